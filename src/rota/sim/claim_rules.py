"""Wakes, claims that wait and the ladder, checked at the coordinator's boundary.

The rules see what crosses it (claims, their answers, wakes) and what is durable. Of a coordinator's memory they read
only which tasks wait and which sessions are idle; of wakes, cooldowns and offers they keep their own record.
"""

from collections.abc import Iterator

from msgspec import Struct

from rota.control.events import Wake
from rota.control.loop import Loop
from rota.core.buckets import Bucket
from rota.core.commands import ClaimTask
from rota.core.cycle import COOLDOWN_MS
from rota.core.fits import fits
from rota.core.ids import Epoch, Millis, RunKey, WorkerKey
from rota.core.ladder import ClimbRule
from rota.core.live import LiveRun, LiveWorker
from rota.core.presence import is_idle
from rota.core.records import Task
from rota.core.state import State
from rota.core.states import QUEUED
from rota.core.waking import ATTENTIVE_MS
from rota.sim.broken import Broken
from rota.sim.models import Model, TaskModel
from rota.sim.nodes import CoordinatorNode

# How long a wake may take that is due at once, and what is added to one that is due at the next sweep.
AT_ONCE_MS: Millis = 1_500
SOON_MS: Millis = 4_000
# A coordinator that was not looked at for so long may not have run; what was seen of it before does not count.
GAP_MS: Millis = 3_000


class Wait(Struct, frozen=True):
    """A claim that was answered with nothing and waits for a wake."""

    state: State
    incarnation: str
    since: Millis
    until: Millis


class Watch(Struct):
    """A task that could be claimed whenever it was looked at.

    `since` is when that was first seen. `idle` has the sessions that were idle and fit all the time since an instant,
    `attentive` those of them that were heard of lately as well.
    """

    since: Millis
    idle: dict[WorkerKey, Millis]
    attentive: dict[WorkerKey, Millis]


class ClaimRules:
    """P-MEET, P-TOLD, P-FANOUT, P-COOLDOWN and the wakes that P-LADDER goes by."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.limits = model.mix.limits
        # Claims that wait, by worker and command id.
        self.waits: dict[str, dict[str, Wait]] = {}
        # The first wake for a run since it began to wait, by epoch and the coordinator's clock.
        self.offers: dict[RunKey, tuple[Epoch, Millis]] = {}
        # The last wake for a run that went to a claim that waits.
        self._met: dict[RunKey, tuple[Epoch, Millis]] = {}
        # By the world's clock: the last wake for a run, and the last wake of a session.
        self._woken: dict[RunKey, tuple[State, Millis]] = {}
        self._heard: dict[WorkerKey, Millis] = {}
        self._cooling: dict[tuple[RunKey, str], tuple[State, Millis]] = {}
        self._watched: dict[tuple[RunKey, int, int, int, Millis], Watch] = {}
        self._state: State | None = None
        self._looked_at: Millis = 0

    # What crosses the boundary.

    def claimed(self, node: CoordinatorNode, command: ClaimTask) -> None:
        """A claim arrives; if it waited, it does so no longer. Other claims of the session still wait."""
        del node
        self.waits.get(command.worker, {}).pop(command.command_id, None)

    def answered(self, node: CoordinatorNode, command: ClaimTask, value: object) -> None:
        """A claim is answered. If it was given nothing and may wait, it waits."""
        loop, now = node.machine.loop, self.model.facts.now()
        if value == "" and command.wait_ms and loop is not None:
            wait = Wait(loop.state, command.incarnation, now, now + command.wait_ms)
            self.waits.setdefault(command.worker, {})[command.command_id] = wait

    def woke(self, node: CoordinatorNode, wake: Wake) -> None:
        """P-COOLDOWN: a session is not told twice of the same offer, unless its claim waits."""
        loop, now = node.machine.loop, self.model.facts.now()
        if loop is None:
            return
        runs = [key for key in loop.state.runs if key[1] == wake.run]
        waits = self.waits.pop(wake.worker, {}).values()
        self._heard[(wake.tenant, wake.worker)] = now
        if len(runs) != 1:
            return
        run = runs[0]
        if any(wait.state is loop.state for wait in waits):
            self._met[run] = (loop.state.epoch, wake.at)
        else:
            self._check_cooldown(loop.state, run, wake)
        self._woken[run] = (loop.state, now)
        self._cooling[(run, wake.worker)] = (loop.state, wake.at)
        if not self._is_current(run, self.offers, loop.state):
            self.offers[run] = (loop.state.epoch, wake.at)

    def _is_current(self, run: RunKey, wakes: dict[RunKey, tuple[Epoch, Millis]], state: State) -> bool:
        """Whether a wake for a run was sent in this epoch, and since the run last began to wait."""
        epoch, at = wakes.get(run, (0, 0))
        return epoch == state.epoch and at >= self._queued_at(run, Epoch(epoch))

    def _check_cooldown(self, state: State, run: RunKey, wake: Wake) -> None:
        if _uses_pools(state.runs[run]):
            # A pool may have opened in between.
            return
        before = self._cooling.get((run, wake.worker))
        if before is None or before[0] is not state or wake.at - before[1] >= COOLDOWN_MS:
            return
        model = self.model
        changed_at = max(
            self._queued_at(run, state.epoch),
            model.granted_to.get((run, wake.worker), 0),
            model.meddled_at.get(run[0], 0),
        )
        if changed_at < before[1]:
            raise Broken(f"P-COOLDOWN: {wake.worker} was told of {run} again after {wake.at - before[1]} ms")

    def is_declined(self, run: RunKey, at: Millis) -> bool:
        """Whether a session was told of a run, in this epoch, a threshold ago, and none has claimed it since."""
        epoch, offered_at = self.offers.get(run, (0, 0))
        since = max(offered_at, self._queued_at(run, Epoch(epoch)))
        return epoch == self.model.epoch and at - since >= self.limits.starve_ms

    def is_still_queued(self, task: TaskModel, at: Millis) -> bool:
        """Whether a task has waited for a claim for a threshold, and the ladder's rule counts that."""
        epoch, queued_at = task.queued_at
        has_waited = epoch > 0 and (epoch != self.model.epoch or at - queued_at >= self.limits.starve_ms)
        return self.model.mix.climb_rule is ClimbRule.QUEUED and has_waited

    def _queued_at(self, run: RunKey, epoch: Epoch) -> Millis:
        """When a run began to wait for a claim, if that was in an epoch. Clocks of several coordinators differ."""
        of_epoch, at = self.model.queued_at.get(run, (0, 0))
        return at if of_epoch == epoch else 0

    # What a coordinator's memory shows.

    def look(self, loop: Loop) -> None:
        """Compare what waits with who is idle, and judge how long both have been so."""
        now = self.model.facts.now()
        is_able = now - self._looked_at <= GAP_MS and loop.state is self._state
        if not is_able or loop.turned_at > loop.proven_until or loop.store_trouble or loop.replay:
            self._watched.clear()
        self._state, self._looked_at = loop.state, now
        seen: dict[tuple[RunKey, int, int, int, Millis], None] = {}
        idle: dict[Bucket, list[LiveWorker]] = {}
        for bucket, run, task in _claimable(loop):
            key = (run.key, task.idx, task.attempt, task.interruptions, task.eligible_at)
            seen[key] = None
            watch = self._watched.setdefault(key, Watch(now, {}, {}))
            if bucket not in idle:
                idle[bucket] = self._idle(loop, bucket)
            watch.idle = {worker.key: watch.idle.get(worker.key, now) for worker in idle[bucket]}
            watch.attentive = {
                worker.key: watch.attentive.get(worker.key, now)
                for worker in idle[bucket]
                if loop.turned_at - worker.seen_at <= ATTENTIVE_MS // 2
            }
            if not loop.held:
                self._check_meet(loop, run, watch, now)
                self._check_told(loop, run, watch, now)
                self._check_fan_out(loop, run, watch, now)
                self._check_climb(loop, bucket, run, task, watch, now)
        for key in [key for key in self._watched if key not in seen]:
            del self._watched[key]

    @staticmethod
    def _idle(loop: Loop, bucket: Bucket) -> list[LiveWorker]:
        state, now = loop.state, loop.turned_at
        alone = state.index.is_alone(bucket, now)
        return [
            worker
            for worker in state.workers.values()
            if is_idle(worker, now) and not fits(bucket.demand, worker, now, alone=alone)
        ]

    def _check_meet(self, loop: Loop, run: LiveRun, watch: Watch, now: Millis) -> None:
        """P-MEET: a claim that waits is told of a task at once; if another such claim was, within two sweeps."""
        for (_, name), idle_since in watch.idle.items():
            worker = loop.state.workers.get(("shared", name))
            incarnation = worker.row.incarnation if worker is not None else ""
            since = [
                wait.since
                for wait in self.waits.get(name, {}).values()
                if wait.state is loop.state and wait.until > now and wait.incarnation == incarnation
            ]
            if not since:
                continue
            apart_ms = now - max(min(since), watch.since, idle_since)
            was_told = self._is_current(run.key, self._met, loop.state)
            patience_ms = 2 * self.limits.sweep_ms + SOON_MS if was_told else AT_ONCE_MS
            if apart_ms > patience_ms:
                raise Broken(f"P-MEET: {name} waits in a claim, {run.key} could be claimed, both for {apart_ms} ms")

    def _check_told(self, loop: Loop, run: LiveRun, watch: Watch, now: Millis) -> None:
        """P-TOLD: of a task that waits some idle session is told within a sweep, unless all have other targets."""
        if self._is_current(run.key, self.offers, loop.state):
            return
        for key, idle_since in watch.idle.items():
            untold_ms = now - max(watch.since, idle_since, self._heard.get(key, 0))
            if untold_ms > self.limits.sweep_ms + SOON_MS:
                raise Broken(f"P-TOLD: {key[1]} is idle and was not told of {run.key} for {untold_ms} ms")

    def _check_fan_out(self, loop: Loop, run: LiveRun, watch: Watch, now: Millis) -> None:
        """P-FANOUT: when a session is told of a starved task, every other idle one that fits is told of it as well, or
        of something else, unless it was told before.
        """
        state, woken_at = self._woken.get(run.key, (None, 0))
        is_starved = woken_at - watch.since >= self.limits.starve_ms + AT_ONCE_MS
        if self.model.mix.fan_out_max or state is not loop.state or not is_starved or now - woken_at < AT_ONCE_MS:
            return
        for key, attentive_since in watch.attentive.items():
            told = self._cooling.get((run.key, key[1]))
            was_told = told is not None and told[0] is loop.state
            if attentive_since < woken_at > self._heard.get(key, 0) and not was_told:
                raise Broken(f"P-FANOUT: {run.key} is starved, and {key[1]} was not told of it with the others")

    def _check_climb(self, loop: Loop, bucket: Bucket, run: LiveRun, task: Task, watch: Watch, now: Millis) -> None:
        """P-LADDER: a task climbs of which idle sessions were told for the threshold and which none claimed; or, by the
        other rule, every task that waits to be claimed for the threshold.
        """
        patience_ms = self.limits.starve_ms + 4 * self.limits.sweep_ms + SOON_MS
        if task.cycles:
            return
        if self.model.mix.climb_rule is ClimbRule.QUEUED and now - watch.since > patience_ms:
            raise Broken(f"P-LADDER: {run.key}/{task.idx} was queued for {now - watch.since} ms and has not climbed")
        if not watch.idle or not self._is_current(run.key, self.offers, loop.state):
            return
        if bucket.demand.signature.pools:
            # They may have held it back in between.
            return
        since = max(watch.since, min(watch.idle.values()))
        claimed_ms = loop.turned_at - max(bucket.claimed_at, self.offers[run.key][1])
        if min(now - since, claimed_ms) > patience_ms:
            raise Broken(f"P-LADDER: {run.key}/{task.idx} was offered for {now - since} ms and has not climbed")


def _uses_pools(run: LiveRun) -> bool:
    return bool(run.graph.graph.max_active_tasks) or any(spec.pools for spec in run.graph.specs)


def _claimable(loop: Loop) -> Iterator[tuple[Bucket, LiveRun, Task]]:
    """Tasks that a pull worker could be given now, as far as pauses and pools are concerned."""
    state, now = loop.state, loop.turned_at
    for run in state.runs.values():
        if run.is_runnable:
            for task in run.tasks.values():
                if task.state is QUEUED:
                    bucket = state.bucket_of(run, task)
                    if bucket.demand.pull and not state.hold_reasons(bucket, now):
                        yield bucket, run, task
