"""kill -9 at any moment: what was acknowledged is there, what was not is there whole or not at all."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rota.core.history import HistoryQuery
from rota.core.records import Run, Task
from rota.stores.sqlite import SqliteDisk, care
from tests.integration import writer

pytestmark = pytest.mark.full


def killed_after(folder: Path, first: int, commits: int, spin: int) -> int:
    """Let a process write, kill it some moments after that many commits; the last commit that it acknowledged."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.writer", str(folder), str(first)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    last = first - 1
    for _ in range(commits):
        line = process.stdout.readline()
        assert line, "the writer ended by itself"
        last = int(line)
    sum(range(spin))  # some microseconds more, so that the end comes at another moment each time
    os.kill(process.pid, signal.SIGKILL)
    rest = process.stdout.read()
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL
    whole = [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
    return int(whole[-1]) if whole else last


def written(folder: Path) -> int:
    """How many commits are there; every one of them must be whole."""
    disk = SqliteDisk(folder)
    epoch = writer.elected(disk)
    records = disk.load(epoch)
    live = {record.id: record for record in records if isinstance(record, Run)}
    tasks: dict[str, list[int]] = {}
    for record in records:
        if isinstance(record, Task):
            tasks.setdefault(record.run, []).append(record.idx)
    ended: dict[str, Run] = {}
    query = HistoryQuery(tenant=writer.TENANT, limit=1_000)
    page = disk.page(query)
    while True:
        ended |= {run.id: run for run in page.runs}
        if not page.next:
            break
        page = disk.page(HistoryQuery(tenant=writer.TENANT, limit=1_000, after=page.next))
    assert not live.keys() & ended.keys(), "a run is live and ended"
    count = 0
    while f"many-{count}" in live or f"many-{count}" in ended:
        _check_commit(disk, count, live, ended, tasks)
        count += 1
    assert len(live) + len(ended) == 2 * count, "something of a commit is there that is not"
    assert disk.commit(epoch, writer.batch_of(count)) is None
    disk.close()
    return count


def _check_commit(
    disk: SqliteDisk, number: int, live: dict[str, Run], ended: dict[str, Run], tasks: dict[str, list[int]]
) -> None:
    many, one = writer.runs_of(number)
    followed, back = [
        f"many-{number + later}" in live or f"many-{number + later}" in ended for later in (1, writer.LATER)
    ]
    is_back = writer.is_revived(number) and back
    home = ended if writer.is_archived(number) and followed and not is_back else live
    assert many.id in home
    assert one.id in home
    found = disk.ended(writer.TENANT, many.id)
    idxs = [task.idx for task in found.tasks] if found is not None else tasks[many.id]
    assert idxs == list(range(writer.TASKS)), f"commit {number} has tasks {idxs}"
    for run in (many, one):
        told = [story.number for story in disk.told(writer.TENANT, run.id, run.created_at)]
        assert told == ([0, 1] if is_back else [0])


def crash_again_and_again(folder: Path, times: int, seed: int) -> None:
    chance = random.Random(seed)
    first = 0
    for _ in range(times):
        last = killed_after(folder, first, chance.randrange(1, 12), chance.randrange(60_000))
        count = written(folder)
        assert count > last, f"commit {last} was acknowledged, and {count} are there"
        assert count <= last + 2, "more is there than was ever asked for"
        first = count + 1  # `written` has made one itself
    # The runs here have no graph, which only a coordinator would mind.
    assert [fault for fault in care.check(folder, 0).faults if "cannot be loaded" not in fault] == []


def test_a_writer_that_is_killed_loses_nothing_it_acknowledged(tmp_path: Path):
    crash_again_and_again(tmp_path, 10, 1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_a_writer_that_is_killed_two_hundred_times_loses_nothing_it_acknowledged(tmp_path: Path, seed: int):
    crash_again_and_again(tmp_path, 60, 100 + seed)
