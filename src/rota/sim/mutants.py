"""Canary mutants: deliberate mistakes, one per rule, that the simulator must catch. They prove that the rig can fail.

A mutant replaces one piece of source text in one module, in a process of its own, before that module is imported. The
text must occur exactly once, so a mutant that no longer fits the code fails loudly instead of testing nothing.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from msgspec import Struct


class Edit(Struct, frozen=True):
    """In `module`, `old` becomes `new`."""

    module: str
    old: str
    new: str


class Mutant(Struct, frozen=True):
    """One mistake. `rule` is the rule of the design that it breaks; some rules are kept by more than one place."""

    name: str
    rule: str
    edits: tuple[Edit, ...]


def _mutant(name: str, rule: str, module: str, old: str, new: str, *more: tuple[str, str, str]) -> Mutant:
    edits = ((module, old, new), *more)
    return Mutant(name, rule, tuple(Edit(f"rota.{edit[0]}", edit[1], edit[2]) for edit in edits))


MUTANTS: tuple[Mutant, ...] = (
    # Section 2: one loop.
    _mutant(
        "early_reply",
        "every answer waits for the newest commit it could have seen",
        "control.loop",
        "            return self.open\n",
        "            return self.durable\n",
    ),
    _mutant(
        "early_start",
        "grants reach workers only when they are durable",
        "control.loop",
        "                self._hold(self._starter(change))\n",
        "                self._starter(change)()\n",
    ),
    _mutant(
        "early_ack",
        "an acknowledgement means durable",
        "control.sessions",
        "            ack=self.durable,\n",
        "            ack=self.heard,\n",
    ),
    _mutant(
        "unknown_taken_for_done",
        "an unknown commit makes the coordinator drop its memory",
        "control.coordinator",
        "        if event.outcome is CommitOutcome.DONE:\n",
        "        if event.outcome in (CommitOutcome.DONE, CommitOutcome.UNKNOWN):\n"
        "            event = Committed(event.ticket, CommitOutcome.DONE)\n",
    ),
    _mutant(
        "fenced_taken_for_done",
        "a fenced commit makes the coordinator step down",
        "control.coordinator",
        "        if event.outcome is CommitOutcome.DONE:\n",
        "        if event.outcome in (CommitOutcome.DONE, CommitOutcome.FENCED):\n"
        "            event = Committed(event.ticket, CommitOutcome.DONE)\n",
    ),
    _mutant(
        "failed_commit_forgotten",
        "a batch that was not written is written again",
        "control.loop",
        "            self.retry_at = now + RETRY_COMMIT_MS\n",
        "            self.committing, self.durable = None, self.open - 1\n",
    ),
    _mutant(
        "memory_kept_after_refusal",
        "a refused batch is replayed from a fresh load",
        "control.coordinator",
        "            return self._rebuild(loop, event.error, now)\n",
        "            return loop.committed(Committed(event.ticket, CommitOutcome.DONE), now)\n",
    ),
    _mutant(
        "command_id_forgotten",
        "a retried command is answered, not repeated",
        "core.evolve",
        "        state.by_command[(row.tenant, row.command_id)] = run.key\n",
        "        pass\n",
    ),
    _mutant(
        "receipt_not_stored",
        "a command's id commits with its changes",
        "core.evolve",
        '    state.touched.puts[("Receipt", *key)] = receipt\n',
        "    del receipt\n",
    ),
    _mutant(
        "image_shared_with_memory",
        "a batch cannot change after it was taken",
        "core.images",
        "    puts.extend(copy.copy(task) for task in touched.tasks.values()",
        "    puts.extend(task for task in touched.tasks.values()",
    ),
    _mutant(
        "story_without_numbers",
        "the durable story has no gap and no copy",
        "core.images",
        "        run.row.story += 1\n",
        "        pass\n",
    ),
    _mutant(
        "cursor_lost",
        "a larger cascade continues from a durable cursor",
        "core.plan",
        "                self.pending.append(Slice(to, later.start, later.stop))\n",
        "                pass\n",
    ),
    _mutant(
        "cursor_repeated",
        "a slice that was done is not done again",
        "core.plan",
        "        pending, self.pending = self.pending, []\n",
        "        pending, self.pending = self.pending, list(self.pending)\n",
    ),
    _mutant(
        "skipped_countdown",
        "every end counts down what waits for it",
        "core.evolve",
        "        counts[down] += step\n",
        "        counts[down] += step if down % 3 else 0\n",
    ),
    _mutant(
        "reset_not_counted",
        "a reset is counted back",
        "core.evolve",
        "        _count(run, task.idx, here, -1)\n",
        "        pass\n",
    ),
    _mutant(
        "run_ended_early",
        "a run ends when nothing in it moves",
        "core.plan",
        "        if not pending and not self.moving:\n",
        "        if not pending and self.ended:\n",
    ),
    _mutant(
        "lost_wake",
        "a task that arrives is matched at once",
        "core.match",
        "        if bucket.live == 1:\n            self.fresh[bucket] = None\n",
        "        if bucket.live == 2:\n            self.fresh[bucket] = None\n",
    ),
    _mutant(
        "hungry_forgotten",
        "a worker that has room is matched at once",
        "core.match",
        "            if freed:\n                self.hungry[worker] = None\n",
        "            if freed and len(worker.leases) > 1:\n                self.hungry[worker] = None\n",
    ),
    _mutant(
        "pool_waiter_forgotten",
        "whoever waits for a pool is looked at when it opens",
        "core.evolve",
        "            state.index.fresh[waiter] = None\n    took_ms",
        "            pass\n    took_ms",
    ),
    _mutant(
        "cooldown_timer_lost",
        "what has a time is done at that time",
        "core.evolve",
        '        state.set_timer(change.due_at, "due", change.tenant, change.run, change.task)\n',
        "        pass\n",
    ),
    _mutant(
        "growth_not_loaded",
        "loading gives back the same state",
        "core.load",
        "        run.graph = run.graph.grown(growth)\n",
        "        pass\n",
    ),
    _mutant(
        "pending_not_loaded",
        "loading gives back the same state",
        "core.load",
        "        elif task.state is NONE:\n            run.reset.setdefault(node, {})[idx] = None\n",
        "        elif task.state is NONE:\n            pass\n",
    ),
    _mutant(
        "graph_dropped_in_use",
        "a run keeps the definition it started with",
        "core.decide.timers",
        "    if graph is None or graph.users:\n",
        "    if graph is None:\n",
    ),
    # Section 3: fences and time limits.
    _mutant(
        "fence_check_dropped",
        "a report counts only if it names the live lease's fence",
        "core.decide.leases",
        "    if lease is not None and lease.task is task:\n        if lease.worker.key",
        "    lease = lease or state.leases.get(task.fence)\n"
        "    if lease is not None and lease.task is task:\n        if task.fence != command.fence:\n"
        "            return Judgement.ACCEPTED, lease\n        if lease.worker.key",
    ),
    _mutant(
        "fence_issued_twice",
        "a new grant gets a new fence",
        "core.state",
        "        return make_fence(self.epoch, self.lease_number + 1)\n",
        "        return make_fence(self.epoch, self.lease_number // 2 + 1)\n",
    ),
    _mutant(
        "fence_restarts_on_reload",
        "fences only grow, across reloads of one reign too",
        "control.coordinator",
        "        state.lease_number = self._lease_number\n",
        "        state.lease_number = 0\n",
    ),
    _mutant(
        "old_epoch_obeyed",
        "workers refuse commands from an older epoch, and coordinators those who know a newer one",
        "worker.sync",
        "        if frame.epoch < self.epoch:\n",
        "        if frame.epoch < 0:\n",
        ("control.loop", "        if frame.epoch > self.state.epoch:\n", "        if frame.epoch > 1 << 60:\n"),
        (
            "control.leadership",
            "        if self.role is Role.LEADER and now > self.proven_until:\n",
            "        if self.role is Role.LEADER and now > self.proven_until + 60_000:\n",
        ),
        ("control.loop", "        if self.speaking and now <= self.proven_until:\n", "        if self.speaking:\n"),
    ),
    _mutant(
        "epoch_lock_skipped",
        "every commit compares the epoch inside its transaction",
        "stores.memory",
        "        self._check(epoch)\n        records = self.records\n",
        "        records = self.records\n",
    ),
    _mutant(
        "equal_epoch_elected",
        "the epoch strictly grows with every election",
        "stores.memory",
        "        self.epoch += 1\n",
        "        self.epoch = max(self.epoch, 1)\n",
    ),
    _mutant(
        "lock_granted_twice",
        "one holder at a time",
        "stores.memory",
        "        if self.holder:\n            return None\n",
        "",
    ),
    _mutant(
        "leases_end_after_election",
        "after an election no lease ends before a full lease time",
        "core.load",
        "            lease.expires_at = now + max(state.limits.lease_ms, task.lease_ms)\n",
        "            lease.expires_at = now + 500\n",
    ),
    _mutant(
        "lease_cut_short",
        "a lease lasts its time",
        "core.decide.timers",
        "        if is_agent_lost(silent, clock, lease.task.lease_ms):\n",
        "        if is_agent_lost(silent, clock, lease.task.lease_ms // 3):\n",
    ),
    _mutant(
        "lease_never_ends",
        "a dead worker's work is grantable again within its lease",
        "core.decide.timers",
        "        if is_agent_lost(silent, clock, lease.task.lease_ms):\n",
        "        if is_agent_lost(silent, clock, lease.task.lease_ms * 1000):\n",
    ),
    _mutant(
        "no_self_stop",
        "a worker that cannot renew stops its own work at 0.8 of the lease",
        "worker.sync",
        "        if self.held and now >= self.stop_at():\n",
        "        if self.held and now >= self.stop_at() + 10**9:\n",
    ),
    _mutant(
        "unproven_renewal",
        "renewals never reach past the last proven leadership plus a term",
        "control.loop",
        "        if self.speaking and now <= self.proven_until:\n",
        "        if self.speaking:\n",
        (
            "control.leadership",
            "        if self.role is Role.LEADER and now > self.proven_until:\n",
            "        if self.role is Role.LEADER and now > self.proven_until + 60_000:\n",
        ),
    ),
    _mutant(
        "interruption_spends_a_try",
        "an interruption costs no retry",
        "core.evolve",
        "    task.attempt -= 1\n    task.error",
        "    task.error",
    ),
    _mutant(
        "interruptions_unbounded",
        "interruptions are bounded, then parked",
        "core.decide.leases",
        "    if counted and task.interruptions + 1 >= INTERRUPTIONS_MAX:\n",
        "    if counted and task.interruptions + 1 >= INTERRUPTIONS_MAX * 1000:\n",
    ),
    _mutant(
        "retry_budget_ignored",
        "retries by class, no more",
        "core.retry",
        "    return tries <= retries_allowed(policy, failure)\n",
        "    return tries <= retries_allowed(policy, failure) + 1\n",
    ),
    _mutant(
        "cooldown_skipped",
        "a retry waits its time",
        "core.decide.timers",
        "    if run.row.stopping is not None or task.due_at > now:\n",
        "    if run.row.stopping is not None:\n",
        (
            "core.evolve",
            '        state.set_timer(change.due_at, "due", change.tenant, change.run, change.task)\n',
            '        state.set_timer(change.at, "due", change.tenant, change.run, change.task)\n',
        ),
    ),
    _mutant(
        "stop_ignored",
        "work that nobody wants is stopped",
        "worker.sync",
        "            self._intents.append(StopAttempt(fence, cause))\n        self.outbox",
        "            pass\n        self.outbox",
    ),
    # Section 3 and 5: the Sync stream.
    _mutant(
        "frame_gap_accepted",
        "a frame that skips a number breaks the session",
        "worker.sync",
        "        if frame.number != self.heard + 1:\n",
        "        if frame.number < self.heard + 1:\n",
    ),
    _mutant(
        "report_gap_accepted",
        "a frame that skips a number breaks the session, at the coordinator too",
        "control.sessions",
        "        return frame.number == self.heard + 1\n",
        "        return frame.number > self.heard\n",
    ),
    _mutant(
        "absence_judged_early",
        "absence means something only past the frame that granted it",
        "control.loop",
        "            elif not session.is_on_its_way(fence) and fence not in self.unsent:\n",
        "            else:\n",
    ),
    _mutant(
        "list_judged_before_reports",
        "a first frame's reports are judged before its lease list",
        "worker.sync",
        "        self.unacked.clear()\n        self.outbox = again + self.outbox\n",
        "        self.unacked.clear()\n",
    ),
    _mutant(
        "clone_accepted",
        "a second live incarnation is refused",
        "core.decide.workers",
        "        if is_live(state, known, now):\n",
        "        if is_live(state, known, now) and not known.leases:\n",
    ),
    # Section 4 and 6: limits, pauses, schedules, ladder.
    _mutant(
        "pool_slot_leaked",
        "limits never leak",
        "core.evolve",
        "        state.usage[(tenant, need.pool)].give_back(need)\n",
        "        pass\n",
    ),
    _mutant(
        "pool_overrun",
        "limits hold",
        "core.limits",
        "    if pool.slots and taken + need.amount > pool.slots:\n",
        "    if pool.slots and taken > pool.slots:\n",
    ),
    _mutant(
        "key_limit_ignored",
        "limits hold per key",
        "core.limits",
        "        if here + need.amount > pool.slots_per_key:\n",
        "        if here > pool.slots_per_key:\n",
    ),
    _mutant(
        "rate_ignored",
        "rates hold",
        "core.limits",
        "            self.tokens = available_tokens(pool, self, now) - MINUTE_MS\n",
        "            self.tokens = available_tokens(pool, self, now)\n",
    ),
    _mutant(
        "slots_overrun",
        "a worker is not given more than it can hold",
        "core.live",
        "        self.slots_free -= 1\n",
        "        self.slots_free -= len(self.leases) % 2\n",
    ),
    _mutant(
        "run_cap_ignored",
        "a graph has no more active runs than it may",
        "core.decide.runs",
        "    if cap and state.active_runs.get(name, 0) >= cap:\n",
        "    if cap and state.active_runs.get(name, 0) > cap:\n",
    ),
    _mutant(
        "task_cap_ignored",
        "a graph has no more active tasks than it may",
        "core.graph",
        "        if self.graph.max_active_tasks:\n            pools =",
        "        if self.graph.max_active_tasks > 2:\n            pools =",
    ),
    _mutant(
        "pause_ignored",
        "a paused run is given nothing",
        "core.live",
        "        return not (row.paused or row.fault or row.stopping is not None)\n",
        "        return not (row.fault or row.stopping is not None)\n",
    ),
    _mutant(
        "slot_fired_twice",
        "a schedule instant fires once",
        "core.evolve",
        '    state.touched.puts[("Schedule", *key)] = schedule\n\n\ndef _schedule_dropped',
        "    del schedule\n\n\ndef _schedule_dropped",
    ),
    _mutant(
        "busy_taken_for_starving",
        "only a task that nobody can serve climbs the ladder",
        "core.decide.timers",
        "    if state.index.is_servable(bucket):\n        return Decision([])\n    queue",
        "    queue",
        (
            "core.decide.timers",
            "        if not bucket.live or state.index.is_servable(bucket):\n",
            "        if not bucket.live:\n",
        ),
    ),
    _mutant(
        "reason_missing",
        "every wait has a reason",
        "core.why",
        '        return (*held, reason("retry.cooldown", text, at=task.due_at))\n',
        "        return held\n",
    ),
)

BY_NAME: dict[str, Mutant] = {mutant.name: mutant for mutant in MUTANTS}


class _Loader(importlib.abc.SourceLoader):
    def __init__(self, mutant: Mutant, path: str) -> None:
        self.mutant = mutant
        self.path = path

    def get_filename(self, fullname: str) -> str:
        del fullname
        return self.path

    def get_data(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def exec_module(self, module: ModuleType) -> None:
        source = mutate(self.mutant, module.__name__, Path(self.path).read_text(encoding="utf-8"))
        exec(compile(source, self.path, "exec"), module.__dict__)  # noqa: S102 - our own source, changed on purpose


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def find_spec(
        self, fullname: str, path: object = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if all(edit.module != fullname for edit in self.mutant.edits):
            return None
        place = source_path(fullname)
        return importlib.util.spec_from_file_location(fullname, place, loader=_Loader(self.mutant, str(place)))


def source_path(module: str) -> Path:
    """The file of a module of ours."""
    return Path(__file__).parent.parent.joinpath(*module.split(".")[1:]).with_suffix(".py")


def mutate(mutant: Mutant, module: str, source: str) -> str:
    """The changed source of a module; refuses a mutant that does not fit the code exactly once."""
    for edit in mutant.edits:
        if edit.module != module:
            continue
        found = source.count(edit.old)
        if found != 1:
            raise ValueError(f"mutant {mutant.name}: its text occurs {found} times in {module}, not once")
        source = source.replace(edit.old, edit.new)
    return source


def install(mutant: Mutant) -> None:
    """Have the modules imported with their mistake. Must come before anything imports them."""
    for edit in mutant.edits:
        assert edit.module not in sys.modules, f"{edit.module} is imported already; mutants need their own process"
    sys.meta_path.insert(0, _Finder(mutant))
