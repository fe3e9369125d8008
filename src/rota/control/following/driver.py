"""Following: who leads instead, and waiting for the lock to become free. Hints only; elections decide."""

import asyncio
from collections.abc import Callable

from rota.control.events import Tell
from rota.core.errors import Unavailable
from rota.ports import Candidate, SharedStore

# However often a store hints that the lock is free.
VACANCY_EVERY_S = 0.1
# How long a store that cannot even hint is left alone.
TROUBLE_S = 5.0


class Following:
    """What one coordinator of several knows of the others."""

    def __init__(self, shared: SharedStore | None, tell: Callable[[Tell], None]) -> None:
        """Without a shared store there are no others."""
        self._shared = shared
        self._tell = tell
        self._leader: Candidate | None = None
        self._vacated: Callable[[], None] | None = None
        self._waiting: asyncio.Task[None] | None = None

    @property
    def is_one_of_several(self) -> bool:
        """Whether others may lead instead."""
        return self._shared is not None

    @property
    def leader(self) -> Candidate | None:
        """Who leads instead, as far as that is known."""
        return self._leader

    def start(self, vacated: Callable[[], None]) -> None:
        """Call `vacated` whenever the lock may have become free, while another leads."""
        self._vacated = vacated
        self._keep_waiting()

    def changed(self, *, is_leader: bool) -> None:
        """This coordinator leads from now on, and waits for nothing; or does no longer."""
        self._leader = None
        if not is_leader:
            self._keep_waiting()
        elif self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def won(self) -> None:
        """An election was won: nobody else leads, though this coordinator has still to read everything."""
        self._leader = None

    async def lost(self) -> None:
        """An election was lost; see who won."""
        if self._shared is None:
            return
        try:
            self._leader = await self._shared.leader()
        except Exception as error:  # a hint that is not to be had
            self._leader = None
            self._tell(Tell("leader.unknown", (("error", f"{error}"),)))

    def elsewhere(self) -> Unavailable:
        """What to say to somebody who asks this coordinator, and should ask another."""
        leader = self._leader
        if leader is None:
            return Unavailable("leader.none", "nobody leads at the moment.")
        text = f"{leader.name} leads{', at ' + leader.grpc if leader.grpc else ''}; ask it instead."
        return Unavailable("leader.elsewhere", text, grpc=leader.grpc, http=leader.http)

    async def stop(self) -> None:
        """Wait for nothing any more."""
        waiting, self._waiting, self._vacated = self._waiting, None, None
        if waiting is not None:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    def _keep_waiting(self) -> None:
        if self._shared is not None and self._vacated is not None and self._waiting is None:
            self._waiting = asyncio.get_running_loop().create_task(self._wait(self._shared, self._vacated))

    async def _wait(self, shared: SharedStore, vacated: Callable[[], None]) -> None:
        while True:
            try:
                await shared.vacancy()
                vacated()
            except Exception as error:  # whoever looks by itself does not depend on hints
                self._tell(Tell("vacancy.failed", (("error", f"{error}"),)))
                await asyncio.sleep(TROUBLE_S)
            await asyncio.sleep(VACANCY_EVERY_S)
