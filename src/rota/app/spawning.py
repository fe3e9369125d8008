"""Spawners at work: what the ladder asks for is started, looked after, and ended with the service.

`rota.control.spawning` decides. Nothing is started unless the settings name a spawner.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from msgspec import structs

from rota.app.hosting import Host
from rota.app.working import token_of
from rota.config import Config
from rota.config.spawners import SpawnerSettings
from rota.control.driver import Listener
from rota.control.events import Escalate, Level, Tell
from rota.control.spawning import Outcome, Spawning, Terms
from rota.core.errors import Refused
from rota.core.ids import Millis
from rota.core.model import Capacity, Pairs
from rota.kinds.agent.matching import NO_WORKSPACE, capacity_of
from rota.ports import Child, Spawner, Wanted
from rota.wire.builds import BUILD
from rota.wire.work import COMMAND, HTTP, PYTHON
from rota.worker.properties import describe
from rota.worker.runners.builds.runner import why_no_builds
from rota.worker.spawners import AgentSpawner, Surroundings, WorkerSpawner
from rota.worker.spawners.agents import read_token

FOLDER = "spawned"
# How long a child may take to end when its time is over, and when the service ends.
LEAVE_S = 60.0
STOP_S = 10.0
# What a worker may be told is cut to that.
DRAIN_S = int(LEAVE_S) - 10
_CHILD_SETTINGS = ("ca", "cert", "key")


class Nursery:
    """The children of a service's spawners."""

    def __init__(
        self,
        spawners: Sequence[tuple[Spawner, SpawnerSettings]],
        clock: Callable[[], Millis],
        tell: Listener,
        count: Callable[[str], None],
    ) -> None:
        """`tell` hears what becomes of children, `count` what came of each time somebody was asked for."""
        self._spawners = {spawner.name: spawner for spawner, _ in spawners}
        self._lifetimes_s = {spawner.name: settings.lifetime_s for spawner, settings in spawners}
        self._machine = Spawning({spawner.name: terms_of(settings) for spawner, settings in spawners})
        self._clock = clock
        self._tell = tell
        self._count = count
        self._lives: dict[asyncio.Task[None], None] = {}
        self._is_stopped = False

    def heard(self, said: Escalate) -> None:
        """The ladder has gone up one cycle for a task; somebody may be started for it."""
        if said.demand is None or self._is_stopped or not self._spawners:
            return
        wanted = Wanted(said.tenant, said.run, said.demand)
        offers = [(name, spawner.offer(wanted)) for name, spawner in self._spawners.items()]
        chosen = self._machine.choose(said.demand, offers, self._clock())
        if isinstance(chosen, Outcome):
            self._count(chosen)
            return
        life = asyncio.get_running_loop().create_task(self._live(self._spawners[chosen], wanted))
        self._lives[life] = None
        life.add_done_callback(lambda done: self._lives.pop(done, None))

    async def stop(self) -> None:
        """Start nobody any more, and end everybody."""
        self._is_stopped = True
        lives = list(self._lives)
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)

    async def _live(self, spawner: Spawner, wanted: Wanted) -> None:
        """One child, from its start to its end."""
        about: Pairs = (("spawner", spawner.name), ("tenant", wanted.tenant), ("run", wanted.run))
        trouble = "given up at the end of the service"
        try:
            try:
                child = await spawner.start(wanted)
            except (OSError, Refused, UnicodeDecodeError) as error:
                trouble = f"{error}"
                self._count(Outcome.FAILED)
                self._tell(Tell("spawner.failed", (*about, ("error", trouble[:500])), Level.WARNING))
                return
            self._count(Outcome.STARTED)
            self._tell(Tell("spawner.started", (*about, *child.about)))
            trouble = await self._until_ended(child, self._lifetimes_s[spawner.name])
            level = Level.WARNING if trouble else Level.INFO
            self._tell(Tell("spawner.ended", (*about, *child.about, ("how", trouble or "well")), level))
        finally:
            self._machine.ended(spawner.name, self._clock(), well=not trouble)

    async def _until_ended(self, child: Child, lifetime_s: int) -> str:
        """How a child went wrong, or nothing. One whose time is over has done nothing wrong."""
        try:
            try:
                async with asyncio.timeout(lifetime_s or None):
                    return await child.ended()
            except TimeoutError:
                await child.stop(LEAVE_S)
                await child.ended()
                return ""
        except asyncio.CancelledError:
            await child.stop(STOP_S)
            raise


def terms_of(settings: SpawnerSettings) -> Terms:
    """What a spawner may do."""
    return Terms(
        alive_max=settings.max_alive,
        cooldown_ms=settings.cooldown_s * 1_000,
        starts_per_hour=settings.starts_per_hour,
    )


def start_nursery(
    parts: AsyncExitStack, here: Host, config: Config, tell: Listener, count: Callable[[str], None]
) -> Nursery:
    """Get the spawners of the settings ready; `parts` ends whatever they have started."""
    around = Surroundings(
        # Of several coordinators any may lead when a child asks, so it is told of all that the settings know.
        coordinator=(config.client.coordinator if here.shared is not None else "") or here.driver.who.grpc,
        folder=here.path / FOLDER,
        environ=os.environ,
        certificates={
            f"ROTA_CLIENT_{name.upper()}": getattr(config.client, name)
            for name in _CHILD_SETTINGS
            if getattr(config.client, name)
        },
    )
    made = [(_make(each, around, config, here.cluster), each) for each in config.spawners]
    nursery = Nursery(made, here.clock, tell, count)
    parts.push_async_callback(nursery.stop)
    return nursery


def _make(settings: SpawnerSettings, around: Surroundings, config: Config, cluster: str) -> Spawner:
    return _agents(settings, around, config) if settings.command else _workers(settings, around, config, cluster)


def _agents(settings: SpawnerSettings, around: Surroundings, config: Config) -> AgentSpawner:
    def offering(workspace: str, channel: str) -> Capacity:
        return capacity_of(
            # Its id is made up when it is started: it is nobody's in particular.
            "",
            agent=settings.agent,
            workspace=workspace,
            channel=channel,
            capabilities=settings.capabilities,
            tenants=(settings.tenant,),
        )

    try:
        offering("", "")
    except Refused as refused:
        path = f"spawners.{settings.name}.{refused.path}"
        raise Refused("config.value", refused.reason, refused.hint, path=path) from None
    if config.auth.asks_for_tokens and not settings.token_file:
        # The service's own tokens may do more than an agent should.
        text = f"agents of {settings.name!r} would be let in nowhere: they have no token"
        hint = f"Put one into a file of its own, and accept it as agent+{'+'.join(settings.capabilities) or '*'}:…"
        raise Refused("config.value", text, hint, path=f"spawners.{settings.name}.token_file")
    return AgentSpawner(settings, around, offering, lambda: read_token(settings.token_file), NO_WORKSPACE)


def _workers(settings: SpawnerSettings, around: Surroundings, config: Config, cluster: str) -> WorkerSpawner:
    """A worker as this machine's are, with what its spawner says of it instead. It belongs to this cluster."""
    side = structs.replace(
        config.worker,
        slots=settings.slots,
        queues=settings.queues or config.worker.queues,
        properties={**config.worker.properties, **settings.properties},
        drain_s=min(config.worker.drain_s, DRAIN_S),
        cluster=cluster,
    )
    kinds = (PYTHON, COMMAND, HTTP) if why_no_builds() else (PYTHON, COMMAND, HTTP, BUILD)
    capacity = Capacity(
        slots=side.slots,
        kinds=kinds,
        properties=describe(side.properties, side.property_commands),
        tenants=side.tenants,
        queues=side.queues,
    )

    def secrets() -> dict[str, str]:
        token = token_of(config)
        told = {"ROTA_HEARTBEAT_TIMEOUT_SECS": str(config.server.heartbeat_timeout_s)}
        return {**told, "ROTA_EXECUTOR_TASK_BEARER_TOKEN": token} if token else told

    table = {name: value for name, value in structs.asdict(side).items() if value and name not in ("data", "name")}
    return WorkerSpawner(settings, around, capacity, table, secrets)
