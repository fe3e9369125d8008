"""Probes and metrics: is the process alive, can it serve, does it lead, and what has it done."""

import asyncio
from typing import Protocol

from msgspec import Struct
from starlette.responses import Response

from rota.api.agent_scope import check_unbound
from rota.api.auth import ANY_TENANT, Role
from rota.api.http.endpoints import TEXT, Call, Endpoint, Serve, reply
from rota.control.driver import CoordinatorDriver
from rota.control.leadership import Role as Standing
from rota.core.errors import Refused, Unavailable

# A store that does not answer for so long does not answer.
STORE_ANSWERS_S = 2.0
# The store is asked at most so often, however many probe.
ASK_EVERY_S = 1.0


class Telemetry(Protocol):
    """Where calls are counted."""

    def request(self, surface: str, method: str, code: str | int) -> None:
        """One more."""
        ...

    def render(self) -> tuple[bytes, str]:
        """All metrics, and their content type."""
        ...


class ProbeAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How this coordinator stands: `leader` is where HTTP is answered, and `turned_at` when a leader turned last."""

    status: str
    role: str
    leader: str
    turned_at: int


class Probes:
    """Looks at one coordinator."""

    def __init__(self, driver: CoordinatorDriver, telemetry: Telemetry | None, *, tells_where: bool = True) -> None:
        """Probes ask nobody who they are. Unless anybody may ask anything, they do not tell where the leader is."""
        self._driver = driver
        self._tells_where = tells_where
        self._telemetry = telemetry
        self._asking: asyncio.Task[None] | None = None
        self._asked_at = 0.0

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The probes, and the metrics if any are kept."""
        found = [
            _probe("/healthz", self.health, "Say that the process is alive, and its loop too if it leads"),
            _probe("/readyz", self.ready, "Say whether it leads or follows, and its store answers"),
            _probe("/leaderz", self.leader, "Say whether it leads"),
        ]
        if self._telemetry is not None:
            found.append(
                Endpoint(
                    method="GET",
                    path="/metrics",
                    role=Role.READER,
                    of_all_tenants=True,
                    serve=self.metrics,
                    summary="Give the metrics in Prometheus' format",
                    answer=str,
                    media=TEXT,
                )
            )
        return tuple(found)

    async def health(self, call: Call) -> Response:
        """Whoever reads this is answered by a process that lives; a leader must turn, too."""
        if not self._driver.heartbeat().is_healthy:
            raise Unavailable("service.failed", "this coordinator leads, and its loop stands still.")
        return self._well()

    async def ready(self, call: Call) -> Response:
        """Whether there is any use in sending requests here."""
        role = self._driver.machine.leadership.role
        if self._driver.is_stopped:
            raise Unavailable("leader.none", "this coordinator has stopped.")
        if role is Standing.LOADING or (role is Standing.LEADER and not self._driver.is_leader):
            raise Unavailable("leader.none", "this coordinator is reading its state.")
        if role is not Standing.LEADER and self._driver.trouble is not None:
            raise Unavailable(
                "store.unavailable", f"this coordinator cannot stand for election: {self._driver.trouble}"
            )
        loop = self._driver.machine.loop
        if loop is not None and loop.store_trouble:
            raise loop.store_trouble.refusal()
        await self._ask_store()
        return self._well()

    async def leader(self, call: Call) -> Response:
        """Whether it is this one that decides."""
        if self._tells_where:
            self._driver.check_leads()
        if self._driver.is_stopped or not self._driver.is_leader:
            raise Unavailable("leader.none", "this coordinator does not lead.")
        return self._well()

    async def metrics(self, call: Call) -> Response:
        """What it has done."""
        assert self._telemetry is not None, "without metrics there is no such endpoint"
        check_unbound(call.who, "the metrics")
        if call.who.tenant != ANY_TENANT:
            # They are about all tenants: whoever is of one needs to be more than its reader.
            call.demand(Role.ADMIN)
        content, sort = self._telemetry.render()
        return Response(content, media_type=sort)

    def _well(self) -> Response:
        leader = self._driver.leader
        return reply(
            ProbeAnswer(
                status="ok",
                role=self._driver.machine.leadership.role.value,
                leader=leader.http if leader is not None and self._tells_where else "",
                turned_at=self._driver.heartbeat().turned_at,
            )
        )

    async def _ask_store(self) -> None:
        loop = asyncio.get_running_loop()
        if self._asking is None or (self._asking.done() and loop.time() - self._asked_at > ASK_EVERY_S):
            self._asked_at = loop.time()
            self._asking = loop.create_task(self._driver.look_into_store())
            # Nobody may be left to hear of it.
            self._asking.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            async with asyncio.timeout(STORE_ANSWERS_S):
                await asyncio.shield(self._asking)
        except Exception as error:  # whatever the store meets, it does not answer
            known = isinstance(error, Refused | Unavailable)
            text = error.reason if known else f"{error}" or "nothing came in time"
            raise Unavailable("store.unavailable", f"the store does not answer: {text}") from None


def _probe(path: str, serve: Serve, summary: str) -> Endpoint:
    return Endpoint(method="GET", path=path, role=None, serve=serve, summary=summary, answer=ProbeAnswer)
