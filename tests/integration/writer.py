"""A process that writes until it is killed, and says after each commit that it is done.

Commit number n puts one run of three tasks and one of a single task, tells their stories, and every third commit also
archives the pair before; every sixth takes such a pair out of history again, and tells more of it. Every fifth is
followed by housekeeping.
"""

import sys
from pathlib import Path

from rota.core.ids import Epoch
from rota.core.records import Batch, Record, Run, Story, Task
from rota.core.states import RunState, TaskState
from rota.stores.sqlite import SqliteDisk

TENANT = "t"
TASKS = 3
KEEP_MS = 1 << 60
LATER = 4


def elected(disk: SqliteDisk) -> Epoch:
    """An election that must be won."""
    epoch = disk.elect("a test")
    assert epoch is not None, f"held by {disk.holder()}"
    return epoch


def runs_of(number: int) -> tuple[Run, Run]:
    many = Run(TENANT, f"many-{number}", "g", "n", created_at=number + 1, state=RunState.RUNNING)
    one = Run(TENANT, f"one-{number}", "g", "n", created_at=number + 1, solo=Task(TENANT, f"one-{number}", 0))
    return many, one


def batch_of(number: int) -> Batch:
    """What commit number `number` writes."""
    many, one = runs_of(number)
    puts: list[Record] = [many, one]
    puts += [Task(TENANT, many.id, idx, TaskState.QUEUED, error="x" * 300) for idx in range(TASKS)]
    stories = [Story(TENANT, run.id, run.created_at, 0, number, b"told") for run in (many, one)]
    archives = [(TENANT, run.id) for run in runs_of(number - 1)] if is_archived(number - 1) else []
    back = runs_of(number - LATER) if is_revived(number - LATER) else ()
    puts += back
    stories += [Story(TENANT, run.id, run.created_at, 1, number, b"told again") for run in back]
    return Batch(puts, [], archives, stories, [], [(TENANT, run.id, run.created_at) for run in back])


def is_archived(number: int) -> bool:
    """Whether the runs of a commit are archived by the next."""
    return number >= 0 and number % 3 == 0


def is_revived(number: int) -> bool:
    """Whether the runs of a commit are archived by the next and revived by the one that is so much later."""
    return number >= 0 and number % 6 == 0


def main() -> None:
    """Write from `first` on."""
    folder, first = Path(sys.argv[1]), int(sys.argv[2])
    disk = SqliteDisk(folder)
    epoch = elected(disk)
    number = first
    while True:
        disk.commit(epoch, batch_of(number))
        print(number, flush=True)  # noqa: T201 - the parent reads it
        if number % 5 == 0:
            disk.tidy(epoch, 0, KEEP_MS)
        number += 1


if __name__ == "__main__":
    main()
