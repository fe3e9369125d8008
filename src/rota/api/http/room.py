"""Room for connections: how many there may be, who makes place for whom, and TLS before anything else.

Anybody may connect, with a token or without. So whoever asks for nothing just now makes place for whoever comes, and a
thousand idle connections keep nobody out.
"""

import asyncio
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

CONNECTIONS_MAX = 3_000
# Of them so many may be streams, such as those of agents' sessions; the rest is for short questions, such as those of a
# load balancer.
STREAMS_MAX = 2_500
HANDSHAKE_S = 10.0
ACCEPT_AGAIN_S = 0.1
# How long a connection may take to end in good order after it was closed.
SHUTDOWN_S = 5.0


class Guest(Protocol):
    """Somebody who is connected."""

    def hang_up(self) -> None:
        """End it at once."""
        ...


class Room:
    """The connections of one port."""

    def __init__(self) -> None:
        self._here: dict[Guest, None] = {}
        # Who asks for nothing just now, the longest first.
        self._resting: dict[Guest, None] = {}

    def enter(self, guest: Guest) -> bool:
        """One more; if there is no room the one that has rested longest is hung up on. False if nobody rests."""
        if guest in self._here:
            return True
        if len(self._here) >= CONNECTIONS_MAX:
            if not self._resting:
                return False
            oldest = next(iter(self._resting))
            self.leave(oldest)
            oldest.hang_up()
        self._here[guest] = None
        self.rest(guest)
        return True

    def work(self, guest: Guest) -> None:
        """It asks for something."""
        self._resting.pop(guest, None)

    def rest(self, guest: Guest) -> None:
        """It was answered."""
        if guest in self._here:
            self._resting[guest] = None

    def leave(self, guest: Guest) -> None:
        """It is gone."""
        self._here.pop(guest, None)
        self._resting.pop(guest, None)

    def close(self) -> None:
        """Hang up on everybody."""
        for guest in list(self._here):
            self.leave(guest)
            guest.hang_up()


class Speaker(asyncio.Protocol, ABC):
    """Who speaks on a connection, and is a guest from the moment it was accepted."""

    @abstractmethod
    def arrive(self, connection: socket.socket) -> bool:
        """Enter before anything can be said on it; False if there is no room."""

    @abstractmethod
    def hang_up(self) -> None:
        """See `Guest`."""


class Arrivals:
    """Accepts connections, and encrypts them: asyncio's own servers neither count nor end those that do not go on."""

    def __init__(
        self, room: Room, listening: socket.socket, context: ssl.SSLContext | None, make: Callable[[], Speaker]
    ) -> None:
        """`make` gives whoever speaks on a new connection."""
        self._room = room
        self._listening = listening
        self._context = context
        self._make = make
        self._tasks: dict[asyncio.Task[None], None] = {}

    def start(self) -> None:
        """Begin to accept."""
        self._begin(self._accept())

    async def stop(self) -> None:
        """Accept no more, and drop who is still on the way in."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listening.close()
        self._tasks.clear()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="rota-http-arrivals")
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listening)
            except OSError:
                # It was gone at once, or this process has as many files open as it may.
                await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            self._begin(self._let_in(connection))
            # However many come, others have their turn.
            await asyncio.sleep(0)

    async def _let_in(self, connection: socket.socket) -> None:
        speaker = self._make()
        timing: dict[str, Any] = {}
        if self._context is not None:
            if not speaker.arrive(connection):
                # There is no way to say why before the connection is encrypted.
                connection.close()
                return
            timing = {"ssl_handshake_timeout": HANDSHAKE_S, "ssl_shutdown_timeout": SHUTDOWN_S}
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: speaker, connection, ssl=self._context, **timing
            )
        except OSError:
            # It does not speak TLS, shows no certificate that is trusted, took too long, or is gone.
            self._room.leave(speaker)
        except asyncio.CancelledError:
            self._room.leave(speaker)
            speaker.hang_up()
            raise
