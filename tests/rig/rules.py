"""The rules that a history is held to, each by itself: what must be so, and what is said when it is not."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from rota.core.changes import (
    AttemptEnded,
    AttemptStarted,
    LeaseGranted,
    LeaseReturned,
    TasksReset,
)
from rota.core.ids import Fence, fence_epoch, show_fence
from rota.core.model import FailureClass
from rota.core.reap import NEVER_ACKNOWLEDGED
from rota.core.retry import retries_allowed
from rota.core.states import SUCCESS, UP_FOR_RESCHEDULE, UP_FOR_RETRY
from tests.rig.journal import DONE, FAILED, Attempt, Call, Disturbance, Try
from tests.rig.ledger import Grant, Ledger, RunEntry

SUBMIT = "submit"
# Coordinators of one machine take the day from the same clock, once, at their start.
CLOCKS_APART_MS_MAX = 100
# Of such a lease nobody promises that its work was not begun: the start was lost, or only its answer.
UNHEARD = NEVER_ACKNOWLEDGED
STORY_LINES_MAX = 60

NAMES = (
    "run-lost",
    "run-unended",
    "run-unasked",
    "effect-twice",
    "answers-differ",
    "fence-fell",
    "fence-twice",
    "two-leases",
    "attempt-number",
    "foreign-fence",
    "two-outcomes",
    "over-budget",
    "state-and-story",
    "never-granted",
    "started-twice",
    "success-without-work",
    "failure-without-work",
    "two-at-once",
    "pool-exceeded",
)


class History(Struct, kw_only=True):
    """Everything that was seen of one campaign.

    `pools` are limits that held all the time, by the slots they had. `frozen` are workers that stood still for a while:
    what they held when their leases ended may have run on beside its successor. `clocks_agree` is False where a
    coordinator's clock was set.
    """

    ledger: Ledger
    attempts: Sequence[Attempt] = ()
    calls: Sequence[Call] = ()
    tries: Sequence[Try] = ()
    disturbances: Sequence[Disturbance] = ()
    pools: Mapping[str, int] = {}
    frozen: frozenset[str] = frozenset()
    clocks_agree: bool = True


class Violation(Struct, frozen=True):
    """A rule that does not hold, and what happened to whom it concerns."""

    rule: str
    text: str
    story: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.rule in NAMES, f"{self.rule} is no rule that a test has seen fail"

    def __str__(self) -> str:
        left_out = len(self.story) - STORY_LINES_MAX
        more = [f"… and {left_out} more"] if left_out > 0 else []
        return "\n    ".join([f"{self.rule}: {self.text}", *self.story[:STORY_LINES_MAX], *more])


def conclusions(ledger: Ledger) -> dict[Fence, AttemptEnded | LeaseReturned]:
    """How each lease ended, the first time that it did."""
    found: dict[Fence, AttemptEnded | LeaseReturned] = {}
    for run in ledger.runs:
        for told in run.story:
            if isinstance(told.change, AttemptEnded | LeaseReturned):
                found.setdefault(told.change.fence, told.change)
    return found


Rule = Callable[[History], Iterator[Violation]]


def violations(history: History) -> Iterator[Violation]:
    """Everything that is wrong."""
    for rule in RULES:
        yield from rule(history)


# What clients were told.


def runs_are_kept(history: History) -> Iterator[Violation]:
    """A run that was acknowledged exists, and every run has ended."""
    known = {run.id for run in history.ledger.runs}
    for call in history.calls:
        if call.what == SUBMIT and call.is_acknowledged and call.run not in known:
            yield Violation("run-lost", f"{call.run} was acknowledged to {call.client} and is not there")
    for run in history.ledger.runs:
        if not run.has_ended:
            yield Violation("run-unended", f"{run.id} is {run.state}", tuple(run.lines()))


def commands_count_once(history: History) -> Iterator[Violation]:
    """However often a command was sent, it had one effect, and one answer; nothing came of what nobody asked."""
    asked = {call.run for call in history.calls if call.what == SUBMIT}
    seen: dict[str, RunEntry] = {}
    for run in history.ledger.runs:
        if history.calls and run.id not in asked:
            yield Violation("run-unasked", f"nobody asked for {run.id}", tuple(run.lines()))
        if run.id in seen:
            both = (*seen[run.id].lines(), "and again:", *run.lines())
            yield Violation("effect-twice", f"there are two runs {run.id}", both)
        seen[run.id] = run
    answers: dict[tuple[str, str], str] = {}
    for call in history.calls:
        if call.command_id and call.is_acknowledged:
            first = answers.setdefault((call.what, call.command_id), call.answer)
            if call.answer != first:
                text = f"{call.what} {call.command_id} was answered {first!r}, and {call.answer!r} when it was repeated"
                yield Violation("answers-differ", text)
    audited: dict[str, str] = {}
    for audit in history.ledger.audits:
        if audit.command_id in audited:
            text = f"{audit.command} {audit.command_id} changed something twice"
            yield Violation("effect-twice", text, (audited[audit.command_id], audit.about))
        audited[audit.command_id] = audit.about


# What the store tells.


class _Task:
    """A task while its story is read."""

    def __init__(self) -> None:
        self.live: Fence = 0
        self.spent = 0
        self.tries = 0
        self.ended: dict[Fence, AttemptEnded] = {}
        self.last: AttemptEnded | None = None


def stories_hold(history: History) -> Iterator[Violation]:
    """One lease at a time, one outcome for each attempt, by the fence that holds it, within the budget."""
    for run in history.ledger.runs:
        yield from _read(run)


def _read(run: RunEntry) -> Iterator[Violation]:
    tasks: defaultdict[int, _Task] = defaultdict(_Task)
    newest = floor = 0
    part = -1

    def wrong(rule: str, idx: int, text: str) -> Violation:
        task = run.task(idx)
        return Violation(rule, f"{run.id}/{task.id if task else idx}: {text}", tuple(run.lines(idx)))

    for told in run.story:
        if told.part != part:
            part, floor = told.part, newest
        match told.change:
            case LeaseGranted() as change:
                task = tasks[change.task]
                newest = max(newest, change.fence)
                if change.fence <= floor:
                    text = f"fence {show_fence(change.fence)} was granted after {show_fence(floor)}"
                    yield wrong("fence-fell", change.task, text)
                if task.live:
                    text = f"{show_fence(change.fence)} was granted while {show_fence(task.live)} held it"
                    yield wrong("two-leases", change.task, text)
                if change.attempt != task.spent + 1:
                    text = f"attempt {change.attempt} was granted after {task.spent} outcomes"
                    yield wrong("attempt-number", change.task, text)
                task.live = change.fence
            case AttemptStarted() as change if tasks[change.task].live != change.fence:
                yield wrong("foreign-fence", change.task, f"{show_fence(change.fence)} started it without holding it")
            case AttemptEnded() as change:
                yield from (wrong(rule, change.task, text) for rule, text in _end(run, tasks[change.task], change))
            case LeaseReturned() as change:
                if tasks[change.task].live != change.fence:
                    text = f"{show_fence(change.fence)} was returned without holding it"
                    yield wrong("foreign-fence", change.task, text)
                tasks[change.task].live = 0
            case TasksReset() as change if change.fresh:
                for idx in change.tasks:
                    tasks[idx].tries = 0
            case _:
                pass
    for entry in run.tasks:
        last = tasks[entry.idx].last
        if entry.state == SUCCESS and (last is None or last.state != SUCCESS or last.fence != entry.fence):
            told_of = f"{last.state} by {show_fence(last.fence)}" if last is not None else "nothing"
            text = f"it is said to have succeeded by {show_fence(entry.fence)}; its story ends with {told_of}"
            yield wrong("state-and-story", entry.idx, text)


def _end(run: RunEntry, task: _Task, change: AttemptEnded) -> Iterator[tuple[str, str]]:
    """An outcome: the first of its fence, by the fence that holds the task, and another try only within the budget."""
    if change.fence in task.ended:
        before = task.ended[change.fence].state
        yield "two-outcomes", f"{show_fence(change.fence)} ended as {before}, and again as {change.state}"
    elif change.fence != task.live:
        yield "foreign-fence", f"{show_fence(change.fence)} ended it without holding it"
    task.ended[change.fence] = task.last = change
    task.live = 0
    task.spent += 1
    task.tries += change.state is not UP_FOR_RESCHEDULE
    entry = run.task(change.task)
    if change.state is UP_FOR_RETRY and change.failure is not None and entry is not None:
        allowed = retries_allowed(entry.spec.retry, change.failure)
        if task.tries > allowed:
            yield "over-budget", f"it is tried again after {task.tries} tries, and has {allowed} retries"


def fences_grow(history: History) -> Iterator[Violation]:
    """No two leases share a fence, and the order of fences is the order of grants: in a reign, and across reigns."""
    grants = sorted(history.ledger.grants(), key=lambda grant: grant.change.fence)
    for before, after in pairwise(grants):
        pair = f"{_about(before)} and {_about(after)}"
        story = (*before.run.lines(before.change.task), "and:", *after.run.lines(after.change.task))
        if before.change.fence == after.change.fence:
            yield Violation("fence-twice", pair, story)
            continue
        is_one_reign = fence_epoch(before.change.fence) == fence_epoch(after.change.fence)
        slack = 0 if is_one_reign else CLOCKS_APART_MS_MAX
        if (is_one_reign or history.clocks_agree) and after.change.at < before.change.at - slack:
            ms = before.change.at - after.change.at
            yield Violation("fence-fell", f"{pair}: the second was granted {ms} ms before the first", story)


def _about(grant: Grant) -> str:
    task = grant.run.task(grant.change.task)
    return f"{grant.run.id}/{task.id if task else grant.change.task} under {show_fence(grant.change.fence)}"


# What the work did.


def work_agrees(history: History) -> Iterator[Violation]:
    """What is recorded was done, under that very fence; what was done was granted; and no lease was begun twice."""
    granted = {(grant.run.id, _name(grant), grant.change.fence): grant for grant in history.ledger.grants()}
    done = {(each.run, each.task, each.fence): each for each in history.attempts}
    ended = conclusions(history.ledger)
    for key, attempt in done.items():
        run, task, fence = key
        grant = granted.get(key)
        if grant is None:
            yield Violation("never-granted", f"{run}/{task} ran under {show_fence(fence)}", _story_of(history, attempt))
        if attempt.starts > 1:
            text = f"{run}/{task} began {attempt.starts} times under {show_fence(fence)}"
            yield Violation("started-twice", text, _story_of(history, attempt))
    for key, grant in granted.items():
        concluded = ended.get(grant.change.fence)
        if not isinstance(concluded, AttemptEnded):
            continue
        outcome = done[key].outcome if key in done else ""
        story = tuple(grant.run.lines(grant.change.task))
        if concluded.state is SUCCESS and outcome != DONE:
            yield Violation("success-without-work", f"{_about(grant)} succeeded, and its work says {outcome!r}", story)
        if concluded.failure is FailureClass.USER and outcome != FAILED:
            yield Violation("failure-without-work", f"{_about(grant)} failed, and its work says {outcome!r}", story)


def _name(grant: Grant) -> str:
    task = grant.run.task(grant.change.task)
    return task.id if task is not None else str(grant.change.task)


def _story_of(history: History, attempt: Attempt) -> tuple[str, ...]:
    for run in history.ledger.runs:
        if run.id == attempt.run:
            idx = next((task.idx for task in run.tasks if task.id == attempt.task), None)
            return tuple(run.lines(idx))
    return ()


def _overlapping(history: History) -> Iterator[Attempt]:
    """Attempts of which it is promised that they stood alone: not of frozen workers, nor of starts that got lost."""
    concluded = conclusions(history.ledger)
    workers = {grant.change.fence: grant.change.worker for grant in history.ledger.grants()}
    for attempt in history.attempts:
        change = concluded.get(attempt.fence)
        is_returned = isinstance(change, LeaseReturned)
        if not is_returned or (UNHEARD not in change.cause and workers.get(attempt.fence) not in history.frozen):
            yield attempt


def work_stands_alone(history: History) -> Iterator[Violation]:
    """A task is not done by two at once."""
    by_task: dict[tuple[str, str], list[Attempt]] = {}
    for attempt in _overlapping(history):
        by_task.setdefault((attempt.run, attempt.task), []).append(attempt)
    for (run, task), attempts in by_task.items():
        attempts.sort(key=lambda each: each.began_ns)
        for before, after in pairwise(attempts):
            if after.began_ns < before.seen_ns:
                ms = (before.seen_ns - after.began_ns) / 1e6
                text = (
                    f"{run}/{task} ran under {show_fence(before.fence)} and {show_fence(after.fence)} for {ms:.1f} ms"
                )
                yield Violation("two-at-once", text, _story_of(history, after))


def pools_hold(history: History) -> Iterator[Violation]:
    """At no instant did more of a pool run than it has. Work runs within its lease, so leases held no less."""
    needs = {
        (run.id, task.id): {need.pool: need.amount for need in task.spec.pools}
        for run in history.ledger.runs
        for task in run.tasks
    }
    for pool, slots in history.pools.items():
        marks: list[tuple[int, int, Attempt]] = []
        for attempt in _overlapping(history):
            amount = needs.get((attempt.run, attempt.task), {}).get(pool, 0)
            if amount:
                marks += [(attempt.began_ns, amount, attempt), (attempt.seen_ns, -amount, attempt)]
        # At one instant ends come before beginnings.
        marks.sort(key=lambda mark: mark[:2])
        taken = 0
        running: dict[Fence, Attempt] = {}
        for _, amount, attempt in marks:
            taken += amount
            if amount < 0:
                running.pop(attempt.fence, None)
                continue
            running[attempt.fence] = attempt
            if taken > slots:
                names = ", ".join(f"{each.run}/{each.task}@{show_fence(each.fence)}" for each in running.values())
                yield Violation(
                    "pool-exceeded", f"{pool} has {slots} slots, and {taken} ran: {names}", _story_of(history, attempt)
                )


RULES: tuple[Rule, ...] = (
    runs_are_kept,
    commands_count_once,
    stories_hold,
    fences_grow,
    work_agrees,
    work_stands_alone,
    pools_hold,
)
