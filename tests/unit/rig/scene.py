"""A small history in which everything is right, for tests that break one thing of it.

Run `a` has two tasks: `extract` fails once and is tried again, `load` is interrupted by a failover and done again. Run
`b` has one task, which runs through the failover and counts. Both take from the pool `narrow`.
"""

from collections.abc import Callable
from typing import Any

from msgspec import structs

from rota.core.changes import AttemptEnded, AttemptStarted, LeaseGranted, LeaseReturned
from rota.core.ids import make_fence
from rota.core.model import FailureClass, PoolNeed, RetryPolicy, TaskSpec
from rota.core.reap import FELL_SILENT
from rota.core.records import Audit
from rota.core.states import QUEUED, SUCCESS, UP_FOR_RETRY, TaskState
from rota.core.story import RunChange
from tests.rig.history import History
from tests.rig.journal import DONE, FAILED, Attempt, Call, Disturbance, Try
from tests.rig.ledger import Ledger, RunEntry, TaskEntry, Told

MS = 1_000_000
FAILOVER_MS = 5_000
F1, F2, F3, F4 = (make_fence(1, number) for number in (1, 2, 3, 4))
G1 = make_fence(2, 1)


def granted(run: str, task: int, fence: int, at: int, attempt: int = 1, worker: str = "w1") -> LeaseGranted:
    return LeaseGranted("default", run, task, fence, "default", worker, "life", attempt, at, 30_000)


def started(run: str, task: int, fence: int, at: int) -> AttemptStarted:
    return AttemptStarted("default", run, task, fence, at)


def ended(
    run: str, task: int, fence: int, at: int, state: TaskState = SUCCESS, failure: FailureClass | None = None
) -> AttemptEnded:
    return AttemptEnded("default", run, task, fence, state, at, None, failure, "", 0)


def returned(run: str, task: int, fence: int, at: int, cause: str = FELL_SILENT) -> LeaseReturned:
    return LeaseReturned("default", run, task, fence, QUEUED, at, cause, counted=True)


def worked(run: str, task: str, fence: int, began: int, seen: int, outcome: str = DONE, attempt: int = 1) -> Attempt:
    return Attempt(
        run=run,
        task=task,
        attempt=attempt,
        fence=fence,
        pid=100,
        began_ns=began * MS,
        seen_ns=seen * MS,
        outcome=outcome,
    )


def submitted(run: str, began: int, ended: int | None, **more: Any) -> Call:
    fields = {"client": "c1", "command_id": f"submit-{run}", "answer": run, **more}
    return Call(what="submit", run=run, began_ns=began * MS, ended_ns=None if ended is None else ended * MS, **fields)


class Scene:
    """The history, in pieces that may be changed."""

    def __init__(self) -> None:
        self.stories: dict[str, list[RunChange]] = {
            "a": [
                granted("a", 0, F1, 1_000),
                started("a", 0, F1, 1_001),
                ended("a", 0, F1, 1_100, UP_FOR_RETRY, FailureClass.USER),
                granted("a", 0, F3, 1_300, attempt=2),
                ended("a", 0, F3, 1_400),
                granted("a", 1, F4, 4_000),
                started("a", 1, F4, 4_001),
                returned("a", 1, F4, 7_000),
                granted("a", 1, G1, 7_100, worker="w2"),
                ended("a", 1, G1, 8_000),
            ],
            "b": [granted("b", 0, F2, 1_200), started("b", 0, F2, 1_201), ended("b", 0, F2, 9_000)],
        }
        self.states = {"a": "success", "b": "success"}
        self.tasks: dict[str, list[TaskEntry]] = {
            "a": [self.task(0, "extract", F3), self.task(1, "load", G1)],
            "b": [self.task(0, "only", F2)],
        }
        self.twice: list[str] = []
        self.history = History(
            ledger=Ledger(()),
            attempts=[
                worked("a", "extract", F1, 1_002, 1_090, FAILED),
                worked("b", "only", F2, 1_202, 8_990),
                worked("a", "extract", F3, 1_302, 1_390, attempt=2),
                worked("a", "load", F4, 4_002, 6_500, ""),
                worked("a", "load", G1, 7_102, 7_990),
            ],
            calls=[
                submitted("a", 900, 950),
                submitted("b", 1_150, 1_190),
                submitted("b", 1_300, 1_320),
                submitted("c", 4_990, None),
                Call(client="c2", what="submit", run="d", began_ns=0, ended_ns=MS, code="leader.none"),
            ],
            tries=[
                Try(client="c1", what="SubmitRun", began_ns=900 * MS, ended_ns=950 * MS),
                Try(client="c1", what="SubmitRun", began_ns=4_990 * MS, ended_ns=5_001 * MS, code="leader.none"),
                Try(client="c1", what="AwaitRun", began_ns=5_010 * MS, ended_ns=5_020 * MS),
                Try(client="c2", what="ListPools", began_ns=5_400 * MS, ended_ns=5_410 * MS),
                Try(client="c2", what="PutPool", began_ns=5_500 * MS, ended_ns=6_200 * MS),
            ],
            disturbances=[Disturbance(FAILOVER_MS * MS, "kill server-1")],
            pools={"narrow": 2},
        )
        self.audits = [Audit("default", 1, "local", "PutPool", '{"slots":2}', "put-1")]

    def task(self, idx: int, id: str, fence: int) -> TaskEntry:
        spec = TaskSpec(id=id, retry=RetryPolicy(retries=1), pools=(PoolNeed("narrow"),))
        return TaskEntry(idx=idx, id=id, state=SUCCESS, fence=fence, spec=spec)

    def build(self) -> History:
        """The history as it stands now. Every change is a part of its run's story."""
        runs = [
            RunEntry(
                id=name,
                created_at=900 + number,
                state=self.states[name],
                tasks=tuple(self.tasks[name]),
                story=tuple(Told(part, _at(change), change) for part, change in enumerate(story)),
            )
            for number, (name, story) in enumerate(self.stories.items())
        ]
        runs += [structs.replace(run, created_at=run.created_at + 1) for run in runs if run.id in self.twice]
        return structs.replace(self.history, ledger=Ledger(tuple(runs), tuple(self.audits)))

    # Ways to break it.

    def change(self, run: str, number: int, **fields: Any) -> None:
        """Tell one change of a story otherwise."""
        self.stories[run][number] = structs.replace(self.stories[run][number], **fields)

    def retell(self, attempt: int, **fields: Any) -> None:
        """Have one attempt written otherwise."""
        attempts = list(self.history.attempts)
        attempts[attempt] = structs.replace(attempts[attempt], **fields)
        self.history.attempts = attempts

    def recall(self, *calls: Call) -> None:
        """One more call, or several."""
        self.history.calls = [*self.history.calls, *calls]


def _at(change: RunChange) -> int:
    return getattr(change, "at", 0)


Break = Callable[[Scene], object]
