"""Agent sessions at the desk: their words as commands, their tokens, and waiting for work without asking all the time.

A token is made here, given to whoever claimed, and only its hash goes on; so neither the store nor any log can give one
away. Whoever waits for work is a waker of its session: it asks once, and again when it is told that there is something.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from hashlib import sha256
from hmac import compare_digest
from typing import Any, Protocol, TypeVar, cast

from rota.api.agent_scope import check_session
from rota.api.auth import Principal
from rota.api.wakes import Boxes, Ear
from rota.control.events import Wake
from rota.core import commands as cm
from rota.core.decide.leases import Judgement, Offer
from rota.core.errors import Refused, Unavailable
from rota.core.graph import check_number
from rota.core.ids import CommandId, Fence, Incarnation, Millis, RunId, WorkerId, WorkerKey
from rota.core.model import Pairs
from rota.core.questions import ListTasks, ListWorkers, Question, TasksPage, WorkerView
from rota.kinds.agent.matching import NO_WORKSPACE, capacity_of
from rota.wire import sessions as ss
from rota.wire.items import RESULT_BYTES_MAX, TITLE, check_plain
from rota.wire.values import PLAIN
from rota.wire.work import Value, encode_value

WAKE_REASON = "pending_task_run"
# Of so many leases that ended last the digest of the token is remembered.
ENDED_TOKENS_MAX = 1_000

T = TypeVar("T")

_REFUSALS: dict[str, tuple[str, str]] = {
    Judgement.NOT_THE_HOLDER: ("lease.foreign", "another session holds this item"),
    Judgement.OTHER_INCARNATION: ("lease.foreign", "another incarnation of this session holds this item"),
    Judgement.WRONG_TOKEN: ("lease.token", "this is not the token of the lease"),
    Judgement.UNKNOWN_RUN: ("lease.none", "there is no such item, or it has ended"),
    Judgement.UNKNOWN_TASK: ("lease.none", "the item has not been claimed"),
    Judgement.UNKNOWN_FENCE: ("lease.none", "no lease has this fence"),
    Judgement.ALREADY_ENDED: ("lease.expired", "the item has ended without this lease"),
    Judgement.OLD_EPOCH: ("lease.expired", "the lease is over"),
    Judgement.OLD_FENCE: ("lease.expired", "the lease is over"),
    Judgement.OTHER_OUTCOME: ("lease.ended", "the lease has ended with a different outcome"),
}


class Coordinator(Protocol):
    """Whoever decides."""

    @property
    def clock(self) -> Callable[[], Millis]:
        """What time it is."""
        ...

    async def ask(self, request: Any) -> tuple[object, object]:
        """Carry out a command or answer a question."""
        ...

    async def ask_all(self, requests: Sequence[Any]) -> list[tuple[object, object]]:
        """Several at once, so that they share a commit; what is refused is among the answers."""
        ...

    def on_wake(self, worker: WorkerKey, waker: Callable[[Wake | None], None]) -> Callable[[], None]:
        """Be told of a session's wakes; the answer ends it."""
        ...


def hash_of(token: str) -> str:
    """What is kept of a token."""
    return sha256(token.encode(errors="replace")).hexdigest()


def wake_view(wake: Wake) -> ss.WakeView:
    """A wake as a session is told of it."""
    title = dict(wake.labels).get(TITLE, "")
    return ss.WakeView(item=wake.run, title=title, labels=wake.labels, reason=WAKE_REASON, at=wake.at)


class Sessions:
    """What sessions ask of one coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._boxes = Boxes(coordinator)
        # How many callers wait in each claim: its tenant, session and command id.
        self._claimants: dict[tuple[str, str, str], int] = {}
        self._withdrawals: dict[asyncio.Task[None], None] = {}
        # Digests of the tokens of leases that ended last.
        self._ended_tokens: dict[tuple[str, Fence], bytes] = {}

    async def answer(self, who: Principal, request: ss.SessionRequest) -> Any:
        """Do what a session asks. Raises Refused or Unavailable."""
        if not request.session:
            hint = "Register one, and name it in every call."
            raise Refused("session.required", "this call names no session", hint, path="session")
        if who.is_bound and not isinstance(request, ss.RegisterSession):
            check_session(who, await self._view(request))
        match request:
            case ss.RegisterSession():
                return await self._register(who, request)
            case ss.BeatSession():
                return await self.beat(who, request)
            case ss.EndSession():
                await self._ask(self._command(cm.LeaveWorker, who, request))
                self._boxes.drop((request.tenant, WorkerId(request.session)))
                return None
            case ss.AwaitWake():
                return await self._await_wake(who, request)
            case ss.ClaimWork():
                return await self._claim(who, request)
            case ss.RenewWork():
                return await self._renew(who, request)
            case ss.FinishWork():
                return await self._finish(who, request)

    async def _ask(self, command: cm.Command | Question) -> tuple[object, object]:
        return await self._coordinator.ask(command)

    @staticmethod
    def _command(kind: Any, who: Principal, request: ss.OfSession, **fields: object) -> cm.Command:
        return kind(tenant=request.tenant, worker=request.session, incarnation=request.life, owner=who.name, **fields)

    async def _register(self, who: Principal, request: ss.RegisterSession) -> ss.SessionView:
        who.may_offer(request.capabilities)
        who.may_work_as(request.workspace, request.agent)
        capacity = capacity_of(
            request.session,
            agent=request.agent,
            workspace=request.workspace,
            channel=request.channel,
            capabilities=request.capabilities,
            slots=request.limit,
            tenants=(request.tenant,),
            silence_ms=request.silence_ms,
            type=request.session_type,
        )
        # It is told of work as soon as it has joined, whether or not it listens yet.
        self._boxes.keep((request.tenant, WorkerId(request.session)))
        await self._ask(self._command(cm.RegisterWorker, who, request, capacity=capacity))
        view = await self._view(request)
        silence_ms = view.silence_ms
        return ss.SessionView(
            session=request.session,
            incarnation=request.life,
            beat_ms=max(1_000, silence_ms // 6),
            silence_ms=silence_ms,
            created_at=view.registered_at,
        )

    async def _view(self, request: ss.OfSession) -> WorkerView:
        question = ListWorkers(tenant=request.tenant, worker=WorkerId(request.session))
        views = cast("tuple[WorkerView, ...]", (await self._coordinator.ask(question))[0])
        if views:
            return views[0]
        raise Refused("worker.unknown", f"session {request.session!r} is not registered", "Register again.")

    async def beat(self, who: Principal, request: ss.BeatSession) -> tuple[Fence, ...]:
        """A session is alive. The answer is what it holds."""
        held, _ = await self._ask(self._command(cm.BeatWorker, who, request, mood=request.mood))
        return tuple(Fence(int(fence)) for fence in str(held).split(",") if fence)

    # Wakes.

    @asynccontextmanager
    async def listening(self, who: Principal, request: ss.OfSession) -> AsyncGenerator[Ear]:
        """Hear what a session is told. Whoever listens for it is its sign of life."""
        beat = ss.BeatSession(tenant=request.tenant, session=request.session, incarnation=request.life)
        if who.is_bound:
            check_session(who, await self._view(request))
        # Whoever may not beat for the session may not listen for it either.
        await self.beat(who, beat)
        silence_ms = (await self._view(request)).silence_ms
        alive = self._command(cm.BeatWorker, who, request)
        assert isinstance(alive, cm.BeatWorker), "it is made as one"
        with self._boxes.listen((request.tenant, WorkerId(request.session)), alive, silence_ms) as ear:
            yield ear

    async def _await_wake(self, who: Principal, request: ss.AwaitWake) -> ss.WakeView | None:
        """The next wake after the one that was asked for last; what was told in between is kept."""
        check_number(request.wait_ms, 0, ss.WAIT_MS_MAX, "wait_ms")
        async with self.listening(who, request) as ear:
            told = await _within(ear.next(ear.box.unread), request.wait_ms)
            if not told:
                return None
            ear.box.given, wake = told[0]
        return wake_view(wake)

    # Leases.

    async def _claim(self, who: Principal, request: ss.ClaimWork) -> tuple[ss.WorkLease, ...]:
        check_number(request.limit, 1, ss.CLAIMS_AT_ONCE_MAX, "limit")
        check_number(request.wait_ms, 0, ss.WAIT_MS_MAX, "wait_ms")
        if request.workspace:
            await self._check_workspace(request)
        if not request.wait_ms:
            return await self._claim_now(who, request, 0)
        async with self.listening(who, request) as ear:
            until = self._coordinator.clock() + request.wait_ms
            left = request.wait_ms
            with self._withdrawn_at_end(who, request):
                while True:
                    place = ear.box.here
                    found = await self._claim_now(who, request, left)
                    left = until - self._coordinator.clock()
                    if found or left <= 0 or await _within(ear.next(place), left) is None:
                        return found

    @contextmanager
    def _withdrawn_at_end(self, who: Principal, request: ss.ClaimWork) -> Generator[None]:
        """A claim that waits. When its last caller has its answer, or has gone, the coordinator forgets the wait.

        Callers are not kept waiting for that. A repeat may have come before its first caller was seen to be gone.
        """
        command = self._command(cm.WithdrawClaim, who, request, claim=request.command_id)
        key = (request.tenant, request.session, request.command_id)
        self._claimants[key] = self._claimants.get(key, 0) + 1
        try:
            yield
        finally:
            self._claimants[key] -= 1
            if not self._claimants[key]:
                del self._claimants[key]
                task = asyncio.get_running_loop().create_task(self._withdraw(command), name="WithdrawClaim")
                self._withdrawals[task] = None
                task.add_done_callback(lambda done: self._withdrawals.pop(done, None))

    async def _withdraw(self, command: cm.Command) -> None:
        # A coordinator that cannot be told forgets the wait when its time is over.
        with suppress(Refused, Unavailable):
            await self._ask(command)

    async def _check_workspace(self, request: ss.ClaimWork) -> None:
        """A session claims in its own workspace, which is the one it is told of and judged by."""
        own = dict((await self._view(request)).capacity.properties).get("workspace", NO_WORKSPACE)
        if request.workspace != own:
            shown = "none" if own == NO_WORKSPACE else repr(own)
            text = f"session {request.session!r} is of another workspace: {shown}"
            raise Refused("session.workspace", text, "Register a session there.", path="workspace")

    async def _claim_now(self, who: Principal, request: ss.ClaimWork, wait_ms: Millis) -> tuple[ss.WorkLease, ...]:
        """As many claims as are asked for, all at once, so that they share a commit.

        Their ids are made of the request's: a repeat meets the same leases. `wait_ms` is how long the caller waits for
        a wake if there is nothing: the coordinator tells such a session first.
        """
        ids = [request.command_id, *(f"{request.command_id}+{number}" for number in range(1, request.limit))]
        tokens = [secrets.token_urlsafe(32) for _ in ids]
        # One wait is enough: if the first finds nothing, none does.
        waits = [wait_ms, *(0 for _ in ids[1:])]
        claims = [self._claim_of(who, request, *one) for one in zip(ids, tokens, waits, strict=True)]
        answers = await self._coordinator.ask_all(claims)
        now = self._coordinator.clock()
        found = tuple(
            _lease_of(offer, token, now)
            for (_, offer), token in zip(answers, tokens, strict=True)
            if isinstance(offer, Offer)
        )
        trouble = next((word for word, _ in answers if isinstance(word, Refused | Unavailable)), None)
        # What was given is given, under tokens that are nowhere but here: it is told whatever became of the rest.
        if trouble is not None and not found:
            raise trouble
        return found

    def _claim_of(
        self, who: Principal, request: ss.ClaimWork, command_id: str, token: str, wait_ms: Millis
    ) -> cm.Command:
        where: Pairs = (("channel", request.channel),) if request.channel else ()
        return self._command(
            cm.ClaimTask,
            who,
            request,
            command_id=command_id,
            lease_ms=request.lease_ms,
            wait_ms=wait_ms,
            least=request.least,
            where=where,
            run=request.item,
            token_hash=hash_of(token),
        )

    async def _renew(self, who: Principal, request: ss.RenewWork) -> Millis:
        command = self._command(
            cm.RenewLease,
            who,
            request,
            fence=request.fence,
            lease_ms=request.lease_ms,
            token_hash=hash_of(request.token),
        )
        _, until = await self._ask(command)
        assert isinstance(until, int), "a renewal is answered with its end"
        if request.note:
            await self._note(who, request)
        return until

    async def _note(self, who: Principal, request: ss.RenewWork) -> None:
        """Put down how far the work is. Whose the item is was shown by its token, so no other right is asked for."""
        held = {fence: run for run, fence in (await self._view(request)).held}
        run = held.get(request.fence)
        if run is None:
            raise Refused("lease.none", f"fence {request.fence} is over", "Stop and discard.", path="fence")
        page = cast(TasksPage, (await self._ask(ListTasks(tenant=request.tenant, run=RunId(run), limit=1)))[0])
        await self._ask(
            cm.NoteTask(
                tenant=request.tenant,
                command_id=CommandId(f"note-{secrets.token_hex(12)}"),
                actor=who.name,
                run=RunId(run),
                task=page.tasks[0].id,
                note=request.note,
            )
        )

    async def _finish(self, who: Principal, request: ss.FinishWork) -> None:
        """Report how it went. The same report again is answered as the first one; a different one is refused."""
        beat = ss.BeatSession(tenant=request.tenant, session=request.session, incarnation=request.life)
        # Also a check that the session is this caller's.
        await self.beat(who, beat)
        outcomes = {
            ss.Ending.COMPLETE: cm.Outcome.SUCCESS,
            ss.Ending.FAIL: cm.Outcome.FAILED,
            ss.Ending.RELEASE: cm.Outcome.RELEASED,
        }
        if request.ending is ss.Ending.FAIL and not request.error.strip():
            raise Refused("field.value", "a failure needs an error", "Say what went wrong.", path="error")
        check_plain(request.result, "result", RESULT_BYTES_MAX)
        judged, _ = await self._ask(
            cm.Report(
                tenant=request.tenant,
                run=RunId(request.item),
                task=0,
                worker_tenant=request.tenant,
                worker=WorkerId(request.session),
                incarnation=Incarnation(request.life),
                fence=request.fence,
                outcome=outcomes[request.ending],
                salt=secrets.randbits(63),
                result=encode_value(Value(PLAIN, request.result)) if request.result else None,
                error=request.error,
                token_hash=hash_of(request.token),
            )
        )
        refusal = _REFUSALS.get(str(judged))
        if judged in (Judgement.DUPLICATE, Judgement.OTHER_OUTCOME) and self._is_other_token(request):
            refusal = _REFUSALS[Judgement.WRONG_TOKEN]
        if judged == Judgement.ACCEPTED:
            self._remember_token(request)
        if refusal is not None:
            code, text = refusal
            raise Refused(
                code, f"{text}: {request.item} under fence {request.fence}", "Stop and discard.", path="fence"
            )

    def _remember_token(self, request: ss.FinishWork) -> None:
        self._ended_tokens[(request.tenant, request.fence)] = bytes.fromhex(hash_of(request.token))
        if len(self._ended_tokens) > ENDED_TOKENS_MAX:
            self._ended_tokens.pop(next(iter(self._ended_tokens)))

    def _is_other_token(self, request: ss.FinishWork) -> bool:
        """Whether a lease that has ended is known to have had another token.

        Its record keeps no token, so after a failover the caller is known by its session alone; nothing is changed.
        """
        known = self._ended_tokens.get((request.tenant, request.fence))
        return known is not None and not compare_digest(known, bytes.fromhex(hash_of(request.token)))


def _lease_of(offer: Offer, token: str, now: Millis) -> ss.WorkLease:
    """A lease as whoever claimed it is told of it, with its token."""
    return ss.WorkLease(
        item=offer.run,
        title=dict(offer.labels).get(TITLE, ""),
        payload=offer.params,
        labels=offer.labels,
        fence=offer.fence,
        token=token,
        attempt=offer.attempt,
        deliveries=offer.deliveries,
        lease_ms=offer.lease_ms,
        expires_at=now + offer.lease_ms,
        deadline_at=offer.deadline_at,
    )


async def _within(told: Awaitable[T], wait_ms: int) -> T | None:
    """What comes within a time; None if nothing does."""
    try:
        async with asyncio.timeout(wait_ms / 1000):
            return await told
    except TimeoutError:
        return None
