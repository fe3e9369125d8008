"""What follows from a task's end: downstream tasks, and in the end the run.

A cascade is worked out to its fixed point on scratch counts and comes back as a list of changes; nothing has happened
until they are applied. It moves at most one slice of tasks; what is left goes into the run's row as a durable cursor,
and the next turn goes on from there. `rota.core.snapshot` computes the same from scratch and is the oracle in tests.
"""

from heapq import heapify, heappop, heappush
from itertools import islice

from rota.core.bounds import TASKS_PER_SLICE
from rota.core.changes import Change, PendingSet, RunEnded, RunGrew, TasksReset, TasksScheduled, TasksSettled
from rota.core.graph import below_of
from rota.core.ids import Millis
from rota.core.live import LiveRun
from rota.core.records import Growth, Slice
from rota.core.states import (
    BAD,
    CANCELLED,
    COLUMN,
    FAILED,
    NONE,
    SCHEDULED,
    SKIPPED,
    SUCCESS,
    TERMINAL,
    UPSTREAM_FAILED,
    RunState,
    TaskState,
)
from rota.core.trigger import SetupCounts, TriggerRule, Verdict, evaluate_counts, judge_mapped

_NAMED_MAX = 5
# How many nodes are looked at for that, and tasks of each.
_SEEN_MAX = 1_000
# The first word about a run that came to a standstill in the course of events.
DEADLOCK = "deadlock"


class Cascade:
    """Scratch for one run: how it would stand after the changes decided so far."""

    # How many tasks one decision moves. The simulator makes it small, so that every cascade has a cursor.
    slice_tasks = TASKS_PER_SLICE

    def __init__(self, run: LiveRun, now: Millis, *, recount: bool = False) -> None:
        self.run = run
        self._recount = recount
        self.now = now
        self.graph = run.graph
        self.grows: list[Change] = []
        self.ended = run.ended
        self.moving = run.moving
        self.leaf_bad = run.leaf_bad
        self.pending: list[Slice] = list(run.row.pending)
        # While a cascade is unfinished nothing new is judged: it would overtake what was decided before it.
        self._behind = bool(run.row.pending)
        self.left = self.slice_tasks
        self._counts: dict[int, list[int]] = {}
        self._sources: dict[int, list[int]] = {}
        self._states: dict[int, TaskState] = {}
        self._fired: dict[int, bool] = {}
        self._reset: dict[int, dict[int, None]] = {}
        self._forced: dict[int, int] = {}
        # Whether a branch left something out that may have failed upstream before, and what there is to look at.
        self._overrules = False
        self._left_out: dict[int, None] | None = None
        self._overruled: list[int] = []
        self._judge: list[tuple[int, int]] = []
        self._scheduled: list[int] = []
        self._settled: dict[TaskState, list[int]] = {}

    # What happened.

    def task_ended(self, idx: int, to: TaskState, *, was_moving: bool = True) -> None:
        """A task reaches its end in this decision."""
        self.ended += 1
        self.moving -= was_moving
        graph = self.graph
        node = graph.node(idx)
        if to in BAD and graph.leaf[node]:
            self.leaf_bad += 1
        self._count(node, to, 1)
        self._states[idx] = to

    def task_reset(self, idx: int) -> None:
        """A task goes back to `none` in this decision and will be judged again."""
        task = self.run.tasks[idx]
        node = self.graph.node(idx)
        if task.state in TERMINAL:
            self.ended -= 1
            if task.state in BAD and self.graph.leaf[node]:
                self.leaf_bad -= 1
            self._count(node, task.state, -1)
        else:
            self.moving -= 1
        if task.skips:
            self.force(task.skips, -1)
        self._states[idx] = NONE
        self._reset.setdefault(node, dict(self.run.reset.get(node, {})))[idx] = None
        self.judge(node)

    def task_marked(self, idx: int, to: TaskState) -> None:
        """A person says what a task came to that is at `none`, or goes there in this decision."""
        node = self.graph.node(idx)
        if node in self._reset:
            self._reset[node].pop(idx, None)
        self._fired[node] = True
        self.task_ended(idx, to, was_moving=False)

    def force(self, names: tuple[str, ...], step: int = 1) -> None:
        """A branch decides in this decision to skip these, or is asked again."""
        for name in names:
            node = self.graph.index.get(name)
            if node is not None:
                self._forced[node] = self._forced.get(node, 0) + step
                self.judge(node)
                self._overrules |= step > 0 and bool(self.run.blocked or self.run.row.pending)

    def would_wait(self, idx: int) -> bool:
        """Whether a task, put back to `none`, would have to wait for its upstreams; asking uses the cascade up."""
        self.task_reset(idx)
        return self._verdict(self.graph.node(idx)) is Verdict.WAIT

    def may_start(self, idx: int) -> bool:
        """Whether what a task waited for still is as it has to be."""
        return self._verdict(self.graph.node(idx)) is Verdict.SCHEDULE

    def judge(self, node: int) -> None:
        """Look at a node's trigger rule in this cascade, after every node above it."""
        heappush(self._judge, (self.graph.rank[node], node))

    def _count(self, node: int, to: TaskState, step: int) -> None:
        graph = self.graph
        if node in graph.sources:
            self._count_source(node)[COLUMN[to]] += step
        for down in graph.downs[node]:
            counts = self._counts.get(down)
            if counts is None:
                counts = self._counts[down] = self._base(down)
            counts[COLUMN[to]] += step
            if step > 0:
                self.judge(down)
        if graph.setup_downs:
            for down in graph.setup_downs.get(node, ()):
                self.judge(down)

    def _base(self, node: int) -> list[int]:
        run = self.run
        if self._recount or run.success is None or node >= len(run.success):
            return self._count_anew(node)
        assert run.failed is not None and run.skipped is not None and run.upstream_failed is not None, "one has all"
        return [run.success[node], run.failed[node], run.skipped[node], run.upstream_failed[node]]

    def _count_anew(self, node: int) -> list[int]:
        """Counts of a node that this very decision adds to the run."""
        return self._count_tasks(self.graph.ups[node])

    def _count_source(self, node: int) -> list[int]:
        """How the tasks of a node ended over whose output another is mapped; looks at each at most once a decision."""
        counts = self._sources.get(node)
        if counts is None:
            kept = None if self._recount else self.run.sources.get(node)
            counts = self._sources[node] = self._count_tasks((node,)) if kept is None else kept[:]
        return counts

    def _count_tasks(self, nodes: tuple[int, ...]) -> list[int]:
        counts = [0, 0, 0, 0]
        for node in nodes:
            for idx in self.graph.tasks_of(node):
                column = COLUMN.get(self._state(idx))
                if column is not None:
                    counts[column] += 1
        return counts

    def _state(self, idx: int) -> TaskState:
        known = self._states.get(idx)
        if known is not None:
            return known
        task = self.run.tasks.get(idx)
        return NONE if task is None else task.state

    # What follows.

    def start(self) -> None:
        """The run begins: every node without upstreams is judged, as ranges."""
        graph = self.graph
        low = high = 0
        for node, ups in enumerate(graph.ups):
            has_to_ask = (
                graph.rules[node] is TriggerRule.ALWAYS or node in graph.hollow or (node in graph.past and not ups)
            )
            if has_to_ask:
                self.judge(node)
            if ups or not graph.width[node] or has_to_ask or node in graph.gone:
                continue
            start, end = graph.start[node], graph.start[node] + graph.width[node]
            if start == high and high > low:
                high = end
                continue
            self._take(SCHEDULED, range(low, high))
            low, high = start, end
            if self.left <= 0:
                # The rest of the roots is found again by judging everything, a slice at a time.
                self.pending.append(Slice(NONE, 0, len(graph.specs)))
                return
        self._take(SCHEDULED, range(low, high))

    def grow(self, growth: Growth) -> None:
        """Tasks are added by this decision, or let go; new nodes are judged, and the one that they are for."""
        before = len(self.graph.specs)
        if growth.expands and self.graph.width[self.graph.index[growth.expands]]:
            node = self.graph.index[growth.expands]
            self._reset[node] = {}
            self._fired[node] = False
        self.graph = self.graph.grown(growth)
        self.grows.append(RunGrew(*self.run.key, growth, self.now))
        # Another edge may change the order of all.
        self._judge = [(self.graph.rank[node], node) for _, node in self._judge]
        heapify(self._judge)
        if growth.expands or growth.feeds:
            self.judge(self.graph.index[growth.expands or growth.feeds])
        for node in range(before, len(self.graph.specs)):
            self.judge(node)

    def proceed(self) -> None:
        """Take up what earlier turns left over: tasks that were decided, then nodes that were not."""
        pending, self.pending = self.pending, []
        self._behind = False
        for piece in pending:
            if piece.to is UPSTREAM_FAILED and self.run.forced:
                # A branch may have left some of them out since.
                for idx in range(piece.next, piece.end):
                    forced = self._is_forced(self.graph.node(idx))
                    self._take(SKIPPED if forced else piece.to, range(idx, idx + 1))
            elif piece.to is not NONE:
                self._take(piece.to, range(piece.next, piece.end))
        for piece in pending:
            if piece.to is NONE:
                self._overrules |= piece.overrules
                self._judge_ranks(piece.next, piece.end)

    def _judge_ranks(self, low: int, high: int) -> None:
        """Judge nodes in order, as many as one turn may look at; the rest stays a range."""
        end = min(high, low + 2 * self.slice_tasks)
        for node in self.graph.by_rank[low:end]:
            self.judge(node)
        if end < high:
            self.pending.append(Slice(NONE, end, high))

    def settle(self) -> list[Change]:
        """Judge until nothing more follows, and say what is to change."""
        run = self.run
        stopping = run.row.stopping is not None
        if self._behind:
            self.left = 0
        while self._judge and self.left > 0 and not stopping:
            self._answer(heappop(self._judge)[1])
        if not stopping:
            self._postpone()
        tenant, name = run.key
        changes = self.grows
        if self._overruled:
            cause = "left out by a branch"
            changes.insert(0, TasksReset(tenant, name, tuple(self._overruled), self.now, cause, fresh=True))
        if self._scheduled:
            changes.append(TasksScheduled(tenant, name, tuple(self._scheduled), self.now))
        for to, tasks in self._settled.items():
            changes.append(TasksSettled(tenant, name, tuple(tasks), to, self.now))
        pending = tuple(self.pending)
        if pending != run.row.pending:
            changes.append(PendingSet(tenant, name, pending))
        if not pending and not self.moving:
            self._finish(changes)
        return changes

    def _postpone(self) -> None:
        """Keep for later turns what there was no room to judge, as one range in the order of judging.

        Judging stops as soon as a slice is full: whoever is judged before what is above it has moved could get
        another verdict than in one long turn. Judging a node twice is harmless, so one range covers them all.
        """
        ranges = [(piece.next, piece.end) for piece in self.pending if piece.to is NONE]
        ranges += [(rank, rank + 1) for rank, _ in self._judge]
        self._judge.clear()
        if ranges:
            self.pending = [piece for piece in self.pending if piece.to is not NONE]
            low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
            self.pending.append(Slice(NONE, low, high, self._overrules))

    def _finish(self, changes: list[Change]) -> None:
        row = self.run.row
        tenant, name = self.run.key
        graph = self.graph
        if row.stopping is not None:
            if self.ended == graph.to_end:
                changes.append(RunEnded(tenant, name, row.stopping, self.now, row.reason))
        elif self.ended == graph.to_end and not graph.unknown:
            state = RunState.FAILED if self.leaf_bad else RunState.SUCCESS
            changes.append(RunEnded(tenant, name, state, self.now, self._explain() if self.leaf_bad else ""))
        elif not self._waits_for_past():
            nodes = (node for node in range(len(graph.specs)) if node not in graph.gone)
            stuck = [graph.specs[node].id for node in nodes if not self._is_fired(node)]
            named = ", ".join(stuck[:_NAMED_MAX])
            text = f"{DEADLOCK}: nothing can move any more, and {len(stuck)} tasks never started: {named}"
            changes.append(RunEnded(tenant, name, RunState.FAILED, self.now, text))

    def _explain(self) -> str:
        """Which last tasks failed the run; of those that could not run, which tasks above them failed."""
        named: list[str] = []
        blocked: list[int] = []
        for idx in dict.fromkeys((*self.run.tasks, *self._states)):
            if not self.graph.leaf[self.graph.node(idx)]:
                continue
            state = self._state(idx)
            if state in (FAILED, CANCELLED):
                named.append(self.graph.task_id(idx))
                if len(named) == _NAMED_MAX:
                    break
            elif state is UPSTREAM_FAILED and len(blocked) < _NAMED_MAX:
                blocked.append(idx)
        if named:
            return f"failed: {', '.join(named)}"
        last = ", ".join(self.graph.task_id(idx) for idx in blocked)
        above = self._failed_above(blocked)
        return f"failed upstream of {last}: {', '.join(above)}" if above else f"failed upstream of {last}"

    def _failed_above(self, blocked: list[int]) -> list[str]:
        """The tasks that failed above some that could not run, found by way of others that could not; a few of them."""
        found: list[str] = []
        nodes = dict.fromkeys(self.graph.node(idx) for idx in blocked)
        seen = list(nodes)
        for node in seen:
            for up in (*self.graph.ups[node], *self.graph.setups.get(node, ())):
                if up in nodes or len(seen) == _SEEN_MAX:
                    continue
                nodes[up] = None
                tasks = self.graph.tasks_of(up)[:_SEEN_MAX]
                found += (self.graph.task_id(idx) for idx in tasks if self._state(idx) in (FAILED, CANCELLED))
                if any(self._state(idx) is UPSTREAM_FAILED for idx in tasks):
                    seen.append(up)
            if len(found) >= _NAMED_MAX:
                break
        return found[:_NAMED_MAX]

    def _is_fired(self, node: int) -> bool:
        """Whether a node has had its answer: its tasks were moved, or wait in a slice to be moved."""
        fired = self.run.fired
        known = self._fired.get(node)
        if known is not None and known:
            return True
        if known is None and node < len(fired) and fired[node]:
            return True
        if not self.pending:
            return False
        low, high = self.graph.start[node], self.graph.start[node] + self.graph.width[node]
        return any(piece.to is not NONE and piece.next < high and low < piece.end for piece in self.pending)

    def _answer(self, node: int) -> None:
        if self._overrules and not self._overrule(node):
            return
        waiting = self._reset[node] if node in self._reset else self.run.reset.get(node)
        fired = self._is_fired(node)
        if (fired and not waiting) or node in self.graph.gone:
            return
        verdict = self._verdict(node)
        if verdict is Verdict.WAIT:
            return
        to = _OUTCOME[verdict]
        if to is SCHEDULED and node in self.graph.hollow:
            to = SKIPPED
        if not self.graph.width[node]:
            if to is SCHEDULED and node in self.graph.over:
                # What it is mapped over has ended without saying how many tasks this is.
                to = UPSTREAM_FAILED
            elif to is SCHEDULED:
                return
            # How many tasks this would have been stays unknown: one stands for all of them.
            number = self.run.row.grown + len(self.grows)
            self.grow(Growth(*self.run.key, number, (), self.graph.specs[node].id, 0))
        self._fired[node] = True
        if waiting and fired:
            chosen = [idx for idx in waiting if self._state(idx) is NONE]
            room = max(0, self.left)
            self._reset[node] = dict.fromkeys(chosen[room:])
            self._apply(to, chosen[:room])
            if chosen[room:]:
                self.judge(node)
        else:
            self._take(to, self.graph.tasks_of(node))

    def _overrule(self, node: int) -> bool:
        """Put back what failed upstream before a branch left it out, or something above it; False if no room is left.

        So what a run comes to does not depend on which came first, the failure or the branch. Nodes are judged after
        all that is above them: how those stand now is how this one is judged.
        """
        if self._left_out is None:
            forced = [other for other in {**self.run.forced, **self._forced} if self._is_forced(other)]
            self._left_out = {**dict.fromkeys(forced), **below_of(self.graph, forced)}
        if node not in self._left_out or not self._is_fired(node):
            return True
        if self._verdict(node) is not Verdict.UPSTREAM_FAILED:
            blocked = (idx for idx in self.graph.tasks_of(node) if self._state(idx) is UPSTREAM_FAILED)
            chosen = list(islice(blocked, self.left))
            for idx in chosen:
                self.task_reset(idx)
            self._overruled += chosen
            self.left -= len(chosen)
            if chosen:
                for down in (*self.graph.downs[node], *self.graph.setup_downs.get(node, ())):
                    self.judge(down)
            if self.left <= 0:
                self.judge(node)
                return False
        # Nothing above it is judged any more in this decision.
        del self._left_out[node]
        return True

    def _verdict(self, node: int) -> Verdict:
        graph = self.graph
        if self._is_forced(node):
            return Verdict.SKIP
        total = graph.up_total[node]
        verdict = Verdict.SCHEDULE
        if total:
            counts = self._counts.get(node)
            if counts is None:
                counts = self._base(node)
            setups = self._count_setups(node) if graph.setups else None
            verdict = evaluate_counts(graph.rules[node], total, counts[0], counts[1], counts[2], counts[3], setups)
        if node in graph.over:
            verdict = self._judge_mapped(verdict, graph.over[node])
        if verdict is Verdict.SCHEDULE and node in graph.past and past_of(self.run, node):
            return Verdict.WAIT
        return verdict

    def _is_forced(self, node: int) -> bool:
        """Whether a branch decided to skip a node."""
        if not (self._forced or self.run.forced):
            return False
        return self.run.forced.get(node, 0) + self._forced.get(node, 0) > 0

    def _judge_mapped(self, verdict: Verdict, source: int) -> Verdict:
        """The verdict for a node that is mapped over the output of `source`."""
        success, failed, skipped, upstream_failed = self._count_source(source)
        total = self.graph.width[source] or 1
        return judge_mapped(verdict, total, success, failed + upstream_failed, skipped)

    def _waits_for_past(self) -> bool:
        """Whether some task would start if the run before this one had gone well."""
        return any(not self._is_answered(node) and past_of(self.run, node) for node in self.graph.past)

    def _is_answered(self, node: int) -> bool:
        return self._is_fired(node) and not (self._reset.get(node) or self.run.reset.get(node))

    def _count_setups(self, node: int) -> SetupCounts | None:
        setups = self.graph.setups.get(node)
        if not setups:
            return None
        states = [self._state(idx) for setup in setups for idx in self.graph.tasks_of(setup)]
        states += [NONE for setup in setups if not self.graph.width[setup]]
        return SetupCounts(
            total=len(states),
            success=states.count(SUCCESS),
            failed=sum(state in BAD for state in states),
            skipped=states.count(SKIPPED),
        )

    def _take(self, to: TaskState, tasks: range) -> None:
        if not tasks:
            return
        room = max(0, self.left)
        now = tasks[:room]
        later = tasks[room:]
        self._apply(to, now)
        if later:
            last = self.pending[-1] if self.pending else None
            if last is not None and last.to is to and last.end == later.start:
                self.pending[-1] = Slice(to, last.next, later.stop)
            else:
                self.pending.append(Slice(to, later.start, later.stop))

    def _apply(self, to: TaskState, tasks: range | list[int]) -> None:
        if not tasks:
            return
        self.left -= len(tasks)
        if to is SCHEDULED:
            self.moving += len(tasks)
            self._scheduled.extend(tasks)
            for idx in tasks:
                self._states[idx] = SCHEDULED
                self._fired[self.graph.node(idx)] = True
            return
        settled = self._settled.setdefault(to, [])
        for idx in tasks:
            settled.append(idx)
            self._fired[self.graph.node(idx)] = True
            self.task_ended(idx, to, was_moving=False)


def waits_for_past(run: LiveRun) -> bool:
    """Whether a task of the run waits for the run before, which is nobody's fault."""
    return any((not run.fired[node] or node in run.reset) and past_of(run, node) for node in run.graph.past)


def past_of(run: LiveRun, node: int) -> list[int]:
    """The tasks of the run before that a node still waits for: those that neither succeeded nor were skipped."""
    before = run.before
    known = None if before is None else before.graph.index.get(run.graph.specs[node].id)
    if before is None or known is None:
        return []
    if not before.graph.width[known]:
        # How many they are is not known yet: the node itself is what is waited for.
        return [-1]
    return [
        idx
        for idx in before.graph.tasks_of(known)
        if (task := before.tasks.get(idx)) is None or task.state not in (SUCCESS, SKIPPED)
    ]


_OUTCOME: dict[Verdict, TaskState] = {
    Verdict.SCHEDULE: SCHEDULED,
    Verdict.SKIP: SKIPPED,
    Verdict.UPSTREAM_FAILED: UPSTREAM_FAILED,
}
