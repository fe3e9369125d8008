"""The loop: commands in, changes decided and applied, one commit at a time, answers when they are durable.

Memory may be ahead of the disk by what is being committed and what waits to be. Nothing leaves the coordinator before
everything it could have seen is durable: each effect is held until the commit that was open when it arose is done.
There is no batching timer: a commit starts as soon as the last one ended, with whatever has arrived.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from rota.control.agenda import Agenda
from rota.control.asks import Ask, run_of
from rota.control.events import (
    Answer,
    Commit,
    CommitOutcome,
    Committed,
    Escalate,
    Intent,
    Level,
    Publish,
    Reply,
    Tell,
    Token,
)
from rota.control.matchlog import MatchLog
from rota.control.pullers import Pullers
from rota.control.streams import Act, Streams
from rota.control.tally import Tally
from rota.control.trouble import StoreTrouble
from rota.core.bounds import CHANGES_PER_COMMIT_MAX, WORK_PER_TURN
from rota.core.changes import (
    AttemptEnded,
    Change,
    LeaseGranted,
    LeaseReturned,
    RunFaulted,
    TasksReset,
    TasksScheduled,
    TasksSettled,
    TaskStarved,
    WorkerQuarantined,
)
from rota.core.commands import (
    BeatWorker,
    ClaimTask,
    ClientCommand,
    Command,
    ContinueRun,
    RegisterWorker,
    RenewLease,
    Report,
    StartRuns,
    Tick,
    WithdrawClaim,
)
from rota.core.decide import Decision, decide
from rota.core.decide.leases import offer_of
from rota.core.errors import Refused, Unavailable
from rota.core.evolve import evolve
from rota.core.ids import Fence, Millis
from rota.core.images import is_clean, take_batch
from rota.core.ladder import Tier
from rota.core.model import FailureClass
from rota.core.place import place
from rota.core.presence import stalled
from rota.core.questions import Question, answer
from rota.core.rearm import rearm
from rota.core.records import Batch
from rota.core.spans import show_instant
from rota.core.state import State
from rota.core.tags import tag_of
from rota.core.waking import stir_all
from rota.wire.frames import WorkerFrame

REVIEW_PER_TURN = 200
TURNS_TO_FILL = 2
LEAST_PER_TURN = 10
WORK_PER_SLICE = 250


class Loop:
    """One reign of one coordinator."""

    def __init__(self, state: State, ticket: Callable[[], int]) -> None:
        self.state = state
        self.ticket = ticket
        self.proven_until: Millis = 0
        self.inbox: deque[Ask | tuple[int, WorkerFrame]] = deque()
        self.agenda = Agenda()
        self.asks: list[Ask] = []
        self.asks_committing: list[Ask] = []
        self.replay: deque[Ask] = deque()
        # Whether the batch that is being written holds one command that is tried by itself, and nothing else.
        self.is_isolated = False
        self._is_replaying = False
        self.waiting: dict[Token, Ask] = {}
        # What to do once a batch is durable, with the number of the batch.
        self.held: deque[tuple[int, Act]] = deque()
        self.open = 1
        self.durable = 0
        self.committing: Batch | None = None
        self.commit_ticket = 0
        self.wanted_at: Millis = 0
        self.store_trouble = StoreTrouble()
        self.streams = Streams(self)
        self.pullers = Pullers(self)
        self.work = self.open_changes = self.filled_turns = self.faults = 0
        self.budget = WORK_PER_TURN
        self.turned_at: Millis = 0
        self.tally = Tally()
        self.match_log = MatchLog()
        self.trouble: list[Intent] = []
        # Most changes are only applied. These also have an effect to hold, or move many tasks and count for as many.
        self._apply_one: dict[type[Change], Callable[[Any], int]] = {
            LeaseGranted: self._grant,
            LeaseReturned: self._take_back,
            AttemptEnded: self._end_attempt,
            TaskStarved: self._starve,
            TasksScheduled: self._move_many,
            TasksSettled: self._move_many,
            TasksReset: self._move_many,
            WorkerQuarantined: self._quarantine,
        }

    # Time.

    def begin(self, now: Millis) -> None:
        """The reign begins: arm what repeats."""
        self.wanted_at = now
        limits = self.state.limits
        self.state.set_timer(now + max(limits.sweep_ms, limits.settle_ms), "sweep")
        self.state.set_timer(now + limits.step_ms, "step")

    def notice(self, now: Millis) -> None:
        """Add to every deadline the time during which this coordinator did not run."""
        lost_ms = now - self.wanted_at
        if self.wanted_at and lost_ms > self.state.limits.stall_ms:
            stalled(self.state, lost_ms)

    def wake_at(self, now: Millis) -> Millis:
        """When the loop must be called again even if nothing arrives."""
        if self._has_more(now):
            return now
        at = now + self.state.limits.stall_ms
        if self.state.timers and not self.replay:
            at = min(at, max(now + 1, self.state.timers[0][0]))
        if self.store_trouble.retry_at:
            at = min(at, max(now + 1, self.store_trouble.retry_at))
        return at

    def _has_more(self, now: Millis) -> bool:
        """Whether another turn would get further without anything new: what waits for the store does not count."""
        if self.replay:
            return self.committing is None
        if self.open_changes >= CHANGES_PER_COMMIT_MAX:
            return False
        if self.inbox or self.agenda or self.state.starts or self.state.continues:
            return True
        index = self.state.index
        return not self.store_trouble and now <= self.proven_until and bool(index.fresh or index.hungry)

    # One turn.

    def turn(self, now: Millis) -> list[Intent]:
        """Do a bounded amount of what has arrived and what is due, then see whether a commit can start."""
        self.notice(now)
        self.turned_at = now
        self.work = 0
        # A commit holds a bounded number of changes; what does not fit waits for the next one.
        self.budget = min(WORK_PER_TURN, CHANGES_PER_COMMIT_MAX - self.open_changes)
        intents: list[Intent] = []
        self._is_replaying = bool(self.replay)
        if self._is_replaying:
            # Nothing else goes into its batch, so that a refusal convicts this command and no other.
            intents += self._replay_one(now)
        else:
            intents += self._go_on(now)
        for line in self.match_log.lines(self.state, now):
            self.hold(lambda line=line: (line,))
        self.tally.turned(self.state)
        intents += self._release(now)
        intents += self._commit(now)
        if self.trouble:
            intents += self.trouble
            self.trouble = []
        self.wanted_at = self.wake_at(now)
        return intents

    def _go_on(self, now: Millis) -> list[Intent]:
        intents: list[Intent] = []
        while self.inbox and self.work < self.budget:
            entry = self.inbox.popleft()
            self.work += 1
            if isinstance(entry, Ask):
                intents += self._answer(entry, now)
            elif len(entry[1].reports) > self.budget - self.work:
                rest = self.streams.take_part(entry[0], entry[1], self.budget - self.work, now)
                self.inbox.appendleft((entry[0], rest))
                break
            else:
                intents += self.streams.take(entry[0], entry[1], now)
        self._run_timers(now)
        # What is queued already is granted before more is queued, so that it is written once for both.
        self._place(now)
        self._follow_up(now)
        self._place(now)
        self.pullers.wake(now)
        return intents

    def _replay_one(self, now: Millis) -> list[Intent]:
        """After a refused batch its commands are tried one per commit, so that the culprit stands alone."""
        if self.committing is not None or not is_clean(self.state):
            return []
        return self._answer(self.replay.popleft(), now)

    def _until(self, most: int = WORK_PER_TURN) -> int:
        """How far a part of the turn may go: what the parts before it left over, and never less than a small share.

        So under full load everything is slow and nothing stands still. Only a commit that is full stops it.
        """
        return max(min(most, self.budget), self.work + LEAST_PER_TURN) if self.budget > 0 else 0

    def _run_timers(self, now: Millis) -> None:
        until = self._until()
        while self.work < until:
            due = self.state.due_timer(now)
            if due is None:
                return
            self.work += 1
            self._tick(due[0], due[1], now)

    def _tick(self, kind: str, key: tuple[object, ...], now: Millis) -> None:
        state = self.state
        if kind == "step":
            self.agenda.begin(state, now)
            state.set_timer(now + state.limits.step_ms, "step")
            return
        if kind == "sweep":
            stir_all(state, now)
            self.pullers.wake(now, everybody=True)
        tenant = str(key[0]) if key else ""
        decision = self.carry_out(Tick(tenant=tenant, kind=kind, key=key), now)
        rearm(state, kind, key, decision.detail if isinstance(decision, Decision) else None, now)

    def _follow_up(self, now: Millis) -> None:
        state = self.state
        until = self._until(REVIEW_PER_TURN)
        while self.work < until and self.agenda:
            self.work += 1
            command = self.agenda.take(now)
            if isinstance(command, Exception):
                self._note("step", command)
            elif command is not None:
                self.carry_out(command, now)
        until = self._until()
        while self.work < until and state.starts:
            tenant, name = next(iter(state.starts))
            decision = self.carry_out(StartRuns(tenant=tenant, name=name), now)
            if isinstance(decision, Decision) and not decision.changes:
                state.starts.pop((tenant, name), None)
        until = self._until()
        while self.work < until and state.continues:
            tenant, run = next(iter(state.continues))
            # A slice judges up to two thousand nodes, and may find nothing to change.
            self.work += WORK_PER_SLICE
            decision = self.carry_out(ContinueRun(tenant=tenant, run=run), now)
            if not isinstance(decision, Decision) or not decision.changes:
                state.continues.pop((tenant, run), None)

    def _place(self, now: Millis) -> None:
        if now > self.proven_until or self.store_trouble:  # nobody could be told of what cannot be written
            return
        until = self._until()
        while self.work < until:
            try:
                placed = place(self.state, now)
            except Exception as error:
                self._note("place", error)
                self.state.index.fresh.clear()
                self.state.index.hungry.clear()
                return
            if not placed:
                return
            self._apply(placed)

    # Carrying out commands.

    def carry_out(self, command: Command, now: Millis) -> Decision | Refused | Unavailable | None:
        """Decide and apply one command. An error of ours touches one run and is recorded there."""
        try:
            decision = decide(self.state, command, now)
        except (Refused, Unavailable) as refused:
            self.tally.refused(command)
            return refused
        except Exception as error:
            self._fault(command, error, now)
            return None
        self.tally.decided(command, decision)
        self._apply(decision.changes)
        return decision

    def _note(self, where: str, error: Exception) -> None:
        """Count an error of ours and have it told: whatever goes on in spite of it must not hide it."""
        self.faults += 1
        self.trouble.append(Tell("fault", (("where", where), ("error", f"{type(error).__name__}: {error}"[:500]))))

    def _fault(self, command: Command, error: Exception, now: Millis) -> None:
        self._note(tag_of(command), error)
        run = self.state.runs.get(run_of(command, self.state))
        if run is None or run.row.fault:
            return
        text = f"{tag_of(command)}: {type(error).__name__}: {error}"[:500]
        self._apply([RunFaulted(*run.key, now, text)])

    def _apply(self, changes: list[Change]) -> None:
        size = 0
        for change in changes:
            apply = self._apply_one.get(type(change))
            if apply is None:
                evolve(self.state, change)
                size += 1
            else:
                size += apply(change)
        self.work += size
        self.open_changes += size

    def _grant(self, change: LeaseGranted) -> int:
        evolve(self.state, change)
        self.held.append((self.open, self.streams.starter(change)))
        return 1

    def _take_back(self, change: LeaseReturned | AttemptEnded) -> int:
        worker = self.state.leases[change.fence].worker.key
        evolve(self.state, change)
        self.held.append((self.open, self.streams.stopper(worker, change.fence)))
        return 1

    def _end_attempt(self, change: AttemptEnded) -> int:
        if change.failure is not FailureClass.TIMEOUT and change.failure is not FailureClass.INTERNAL:
            evolve(self.state, change)
            return 1
        # Perhaps it was we who ended it. A worker that said so itself holds it no more, and is told nothing.
        return self._take_back(change)

    def _quarantine(self, change: WorkerQuarantined) -> int:
        evolve(self.state, change)
        if change.until:
            about = (("worker", change.worker), ("tenant", change.tenant), ("until", show_instant(change.until)))
            told = Tell("worker.quarantined", (*about, ("cause", change.cause)), Level.WARNING)
        else:
            told = Tell("worker.recovered", (("worker", change.worker), ("tenant", change.tenant)))
        self.held.append((self.open, lambda: (told,)))
        return 1

    def _starve(self, change: TaskStarved) -> int:
        run = self.state.runs[(change.tenant, change.run)]
        is_new = run.tasks[change.task].tier != change.tier
        evolve(self.state, change)
        task = run.tasks[change.task]
        demand = self.state.bucket_of(run, task).demand if Tier.SPAWN <= change.tier < Tier.PARK else None
        if is_new:
            self.tally.starved(Tier(change.tier))
        told = Escalate(change.tenant, change.run, change.task, change.tier, is_new, task.note, demand)
        self.held.append((self.open, lambda: (told,)))
        return 1

    def _move_many(self, change: TasksScheduled | TasksSettled | TasksReset) -> int:
        evolve(self.state, change)
        return 1 + len(change.tasks)

    def tried(self, command: Command) -> None:
        """A worker's word is part of the open batch; nobody waits for an answer to it."""
        self.asks.append(Ask(command))

    def _answer(self, ask: Ask, now: Millis) -> list[Intent]:
        command = ask.command
        if ask.prepared is not None:
            self.state.prepared, ask = ask.prepared, Ask(command, ask.token)
        if ask.token is not None:
            self.waiting[ask.token] = ask
        if self.store_trouble and isinstance(command, ClientCommand | Question):
            # This answer has seen nothing, so it need not wait for the store that it is about.
            self.state.prepared = None
            return self._refuse_now(ask, self.store_trouble.refusal())
        if isinstance(command, Question):
            self._reply(ask.token, self._read(command, now), None)
            return []
        if isinstance(command, ClaimTask | RenewLease | BeatWorker) and now > self.proven_until:
            return self._refuse_now(ask, Unavailable("leader.none"))
        if isinstance(command, ClaimTask | RenewLease | BeatWorker | Report):
            self.pullers.heard(command, now)
        outcome = self.carry_out(command, now)
        self.state.prepared = None
        if isinstance(outcome, Decision) and outcome.changes:
            self.asks.append(ask)
        if outcome is None:
            self._reply(
                ask.token, Refused("run.faulted", "the scheduler met an error and holds this run", "Resume it."), None
            )
        elif isinstance(outcome, Refused | Unavailable):
            self._reply(ask.token, outcome, None)
        else:
            detail: object = None
            if isinstance(command, RenewLease) and isinstance(outcome.detail, tuple):
                detail = self.pullers.renewed(*outcome.detail, now)
            elif isinstance(command, RegisterWorker):
                self.pullers.registered(ask, command, now)
            elif isinstance(command, ClaimTask):
                lease = self.state.leases.get(Fence(int(outcome.answer))) if outcome.answer else None
                detail = offer_of(lease) if lease is not None else None
                self.pullers.claimed(command, now, granted=lease is not None)
            elif isinstance(command, WithdrawClaim):
                self.pullers.withdrawn(command)
            self._reply(ask.token, outcome.answer, detail)
        return []

    def _read(self, question: Question, now: Millis) -> Reply:
        try:
            return answer(self.state, question, now)
        except Refused as refused:
            return refused
        except Exception as error:
            self._note(tag_of(question), error)
            return Unavailable("leader.none", "the scheduler met an error while reading")

    def _refuse_now(self, ask: Ask, refusal: Unavailable) -> list[Intent]:
        if ask.token is None:
            return []
        self.waiting.pop(ask.token, None)
        return [Answer(ask.token, refusal)]

    def _send_away(self) -> list[Intent]:
        """Nobody waits for a store whose trouble lasts. What they asked may be written yet; a repeat is answered."""
        told, self.waiting = (self.waiting, {}) if self.store_trouble.is_lasting else ({}, self.waiting)
        return [Answer(token, self.store_trouble.refusal()) for token in told]

    def _reply(self, token: Token | None, value: Reply, detail: object) -> None:
        if token is not None:
            self.hold(self._answerer(token, value, detail))

    def _answerer(self, token: Token, value: Reply, detail: object) -> Act:
        def act() -> tuple[Intent, ...]:
            # Whoever was told meanwhile that the store is in trouble asks again.
            return () if self.waiting.pop(token, None) is None else (Answer(token, value, detail),)

        return act

    def unanswered(self) -> list[Ask]:
        """Everyone who asked and has had no answer, in the order in which they asked."""
        asks = list(self.waiting.values())
        asks += self.replay
        return asks + [entry for entry in self.inbox if isinstance(entry, Ask)]

    # Effects wait for what they could have seen.

    def hold(self, act: Act) -> None:
        """Do something once everything it could have seen is durable."""
        self.held.append((self._newest(), act))

    def _newest(self) -> int:
        """The newest batch an answer given now could have seen."""
        if not is_clean(self.state):
            return self.open
        return self.open - 1 if self.committing is not None else self.durable

    def _release(self, now: Millis) -> list[Intent]:
        intents: list[Intent] = []
        held, durable = self.held, self.durable
        while held and held[0][0] <= durable:
            intents += held.popleft()[1]()
        return intents + self.streams.say(now)

    def _commit(self, now: Millis) -> list[Intent]:
        if self.committing is not None:
            if self.store_trouble.is_due(now):
                self.commit_ticket = self.ticket()
                return [Commit(self.commit_ticket, self.state.epoch, self.committing)]
            return []
        if is_clean(self.state):
            # Changes that touch no record, such as a refused report on an unknown run, fill no commit.
            self.open_changes = 0
            return []
        if self._is_filling(now):
            self.filled_turns += 1
            return []
        self.filled_turns = 0
        self.committing = take_batch(self.state, now)
        self.is_isolated = self._is_replaying
        self.asks_committing, self.asks = self.asks, []
        self.open_changes = 0
        self.open += 1
        self.commit_ticket = self.ticket()
        return [Commit(self.commit_ticket, self.state.epoch, self.committing)]

    def _is_filling(self, now: Millis) -> bool:
        """Whether the next turn, which follows at once, still has something for this batch.

        A task that is queued in one turn and granted in the next is then written once instead of twice. Not for long:
        whoever waits for an answer waits for this commit.
        """
        return not self._is_replaying and self.filled_turns < TURNS_TO_FILL and self._has_more(now)

    def committed(self, event: Committed, now: Millis) -> list[Intent]:
        """The store answered. What it cannot be sure of ends this reign; the coordinator decides that."""
        if event.outcome is CommitOutcome.DONE:
            batch, self.committing = self.committing, None
            self.durable = self.open - 1
            self.asks_committing = []
            self.store_trouble.over()
            return [Publish(batch.stories)] if batch is not None and batch.stories else []
        if event.outcome is CommitOutcome.UNAVAILABLE:
            self.store_trouble.met(event.code, event.error, now)
            about = (("cause", event.code), ("error", event.error))
            return [Tell("commit.retry", about, Level.WARNING), *self._send_away()]
        raise AssertionError("fenced, unknown and refused commits are the coordinator's to judge")
