"""Which instance is served by which queue, and the backlog of each caller."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager

from rota.api.reapi.calls import Caller
from rota.api.reapi.driver import BacklogDriver, Keep
from rota.api.reapi.ongoing import Ongoing
from rota.client.line import FarLine
from rota.core.errors import Refused, Unavailable
from rota.core.ids import Millis
from rota.ports import Content
from rota.wire.reapi.names import check_instance

# Callers that are served at once, each by its token and tenant.
CALLERS_MAX = 200

# Opens a line to the coordinator for a caller, by its token and its tenant.
Open = Callable[[str, str], Awaitable[FarLine]]


class Desks:
    """Every caller is served over a line of its own, so that the coordinator knows who asks."""

    def __init__(
        self,
        open_line: Open,
        content: Content,
        clock: Callable[[], Millis],
        say: Callable[[str], None],
        *,
        where: Callable[[], str],
        queues: Mapping[str, str],
        queue: str,
    ) -> None:
        """`queues` are those of instances; if there are any, no other instance is served. `queue` is for all else."""
        self._open_line = open_line
        self._content = content
        self._clock = clock
        self._say = say
        self.where = where
        self._queues = dict(queues)
        # Since when actions are looked through that are not submitted yet.
        self._accepting: dict[int, Millis] = {}
        # Since when actions are under way; None if there are none.
        self._since: Millis | None = None
        self._number = 0
        self._queue = queue
        # Whoever hears of ends; set by who composes the services.
        self.keep: Keep | None = None
        self._backlogs: dict[tuple[str, str], BacklogDriver] = {}
        self._opening = asyncio.Lock()

    def instances(self, name: str) -> str:
        """An instance as it is used, or a refusal."""
        instance = check_instance(name)
        if self._queues and instance not in self._queues:
            known = ", ".join(repr(each) for each in self._queues)
            text = f"there is no instance {instance!r} here"
            raise Refused("instance.unknown", text, f"Use one of {known}.", path="instance_name")
        return instance

    def queue_of(self, instance: str) -> str:
        """In which queue the actions of an instance wait."""
        return self._queues.get(instance, self._queue)

    async def backlog(self, caller: Caller) -> BacklogDriver:
        """The caller's runs under way."""
        return await self.open(caller.token, caller.tenant)

    async def open(self, token: str, tenant: str) -> BacklogDriver:
        """The runs that somebody with this token has under way for a tenant; from now on they are looked after."""
        key = (token, tenant)
        found = self._backlogs.pop(key, None)
        if found is not None:
            # The one that was asked for last is at the end.
            self._backlogs[key] = found
            return found
        async with self._opening:
            if key not in self._backlogs:
                await self._make_room()
                assert self.keep is not None, "it is set before anybody is served"
                line = await self._open_line(*key)
                backlog = BacklogDriver(line, self._clock, self.keep, self._say, self)
                backlog.start()
                self._backlogs[key] = backlog
        return self._backlogs[key]

    async def _make_room(self) -> None:
        """A caller may name one tenant after the other; who was not here for longest, and waits for nothing, goes."""
        if len(self._backlogs) < CALLERS_MAX:
            return
        idle = next((key for key, backlog in self._backlogs.items() if backlog.is_idle), None)
        if idle is None:
            raise Unavailable("service.busy", f"{CALLERS_MAX} callers have actions under way.")
        await self._backlogs.pop(idle).close()

    async def close(self) -> None:
        """Hang up everywhere. The runs go on."""
        await asyncio.gather(*(backlog.close() for backlog in self._backlogs.values()))

    def is_wanted(self, tenant: str, run: str) -> bool:
        """Whether any caller of the tenant waits for a run."""
        return any(backlog.is_wanted(run) for (_, other), backlog in self._backlogs.items() if other == tenant)

    def under_way(self) -> Iterator[Ongoing]:
        """Actions of all callers that are not over."""
        for backlog in self._backlogs.values():
            yield from (ongoing for ongoing in backlog.under_way() if not ongoing.is_over)

    @contextmanager
    def accepting(self) -> Generator[Millis]:
        """While an action is looked through, what it uses stays; the answer is since when."""
        self._number += 1
        number = self._number
        self._accepting[number] = now = self._clock()
        self.changed(now)
        try:
            yield now
        finally:
            del self._accepting[number]
            self.changed(now)

    def changed(self, at: Millis) -> None:
        """Tell the content since when actions are under way. Most that come or go are not the oldest."""
        if self._since is not None and at > self._since:
            return
        ages = [backlog.oldest_at for backlog in self._backlogs.values()]
        ages.append(next(iter(self._accepting.values()), None))
        self._since = min((age for age in ages if age is not None), default=None)
        self._content.keep_since(self._since)
