"""One stream of a caller, from its admission to its end; what is said on it is a subclass's."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from rota.api.auth import ANY_TENANT, Principal
from rota.core.errors import Refused, Unavailable
from rota.wire.channels import (
    AUTHORIZATION,
    PROTOCOL,
    TENANT,
    VERSION,
    Metadata,
    check_version,
    grpc,
    pack_trouble,
    status_of,
)
from rota.wire.streams import Writer

# How long a caller that is turned away may take to hear why.
FAREWELL_S = 1.0

# A way in, what was asked for, and how it went: `ok` or a code.
Count = Callable[[str, str, str], None]
SURFACE = "grpc"
# Tells the operator of an error of ours; the answer is what the caller is told.
Failed = Callable[[str, Exception], Refused]
# Refusals that are told elsewhere, by the gate or as an error of ours.
_TOLD = ("auth.", "service.failed")


class Gate(Protocol):
    """Knows whom each token stands for."""

    @property
    def version(self) -> int:
        """Grows when other tokens are accepted than before."""
        ...

    def admit(self, token: str | None, tenant: str | None = None, *, peer: str = "") -> Principal:
        """Who is calling, by what its `Authorization` says. Raises Refused, and tells and counts that itself."""
        ...

    def refused(self, refused: Refused, *, peer: str = "") -> None:
        """Tell and count that a caller who was let in may not do what it wants."""
        ...


class Context(Protocol):
    """The coordinator's end of a stream, as `grpc.aio` has it."""

    async def read(self) -> Any:
        """What the caller says next, or `EOF`."""
        ...

    async def write(self, content: bytes) -> None:
        """Tell the caller something."""
        ...

    async def send_initial_metadata(self, metadata: Metadata) -> None:
        """Let the caller in."""
        ...

    async def abort(self, code: grpc.StatusCode, details: str, trailing_metadata: Metadata) -> None:
        """End the stream; it always raises."""
        ...

    def invocation_metadata(self) -> Metadata | None:
        """What the caller said of itself."""
        ...

    def peer(self) -> str:
        """From where it calls."""
        ...


class Door:
    """What all streams of a server share: who may come in, and who is told what came of it."""

    def __init__(
        self, gate: Gate, say: Callable[[str], None], count: Count, failed: Failed, check: Callable[[], None]
    ) -> None:
        """`check` raises Unavailable if callers should go elsewhere."""
        self.gate = gate
        self.check = check
        self.say = say
        self.count = count
        self.failed = failed
        self.visits: dict[Visit, None] = {}
        # What all streams together keep of messages that have not come to their end.
        self.fragment_bytes = 0
        # Why nobody is let in any more.
        self.closed: Unavailable | None = None


class Visit(ABC):
    """One stream. `end` ends it from any side; whatever is wrong with it is told to the caller."""

    def __init__(self, door: Door, context: Context, method: str) -> None:
        self._door = door
        self._context = context
        self._method = method
        self._said = {name: value for name, value in context.invocation_metadata() or () if isinstance(value, str)}
        self._version = -1
        self._who: Principal | None = None
        self._ended: asyncio.Future[Refused | Unavailable | None] = asyncio.get_running_loop().create_future()
        self._writer = Writer(context.write, self.pull)

    @abstractmethod
    def admit(self, who: Principal) -> None:
        """The caller has come in. Raises Refused."""

    @abstractmethod
    async def take(self, content: bytes) -> None:
        """The caller said something. Raises Refused, which ends the stream."""

    @abstractmethod
    def pull(self) -> bytes | None:
        """What to say next."""

    @abstractmethod
    def close(self) -> None:
        """The stream is over."""

    def wake(self) -> None:
        """There is something to say."""
        self._writer.wake()

    def end(self, trouble: Refused | Unavailable | None = None) -> None:
        """Hang up, and say why; None if nobody is there who could be told."""
        if not self._ended.done():
            self._ended.set_result(trouble)

    def denied(self, refused: Refused) -> Refused:
        """A refusal that is about who is calling: those who look after tokens are told."""
        self._door.gate.refused(refused, peer=self._context.peer())
        return refused

    def recheck(self) -> None:
        """See whether the caller may still be here: a token that was revoked ends what was begun with it."""
        version = self._door.gate.version
        if version == self._version:
            return
        self._version = version
        try:
            if self._identify() != self._who:
                # What was begun for one does not go on for another.
                self.end(Unavailable("leader.none", "this token stands for somebody else now; begin again."))
        except Refused as refused:
            self.end(refused)

    async def serve(self) -> None:
        """All of it."""
        tasks: list[asyncio.Task[None]] = []
        trouble: Refused | Unavailable | None = None
        try:
            await self._open()
            self._door.visits[self] = None
            tasks += [asyncio.create_task(self._write()), asyncio.create_task(self._read())]
            trouble = await self._ended
        except (Refused, Unavailable) as refused:
            trouble = refused
        except Exception as error:  # gRPC would tell the caller what it was
            trouble = self._door.failed(self._method, error)
        finally:
            self._door.visits.pop(self, None)
            self._door.count(SURFACE, self._method, "ok" if trouble is None else trouble.code)
            for task in tasks:
                task.cancel()
            self.close()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._part(trouble)

    async def _open(self) -> None:
        if self._door.closed is not None:
            raise self._door.closed
        check_version(self._said.get(VERSION))
        self._version = self._door.gate.version
        self._who = who = self._identify()
        # After that: who leads is nobody's business who may not come in.
        self._door.check()
        self.admit(who)
        welcome = [(VERSION, str(PROTOCOL))]
        if who.tenant != ANY_TENANT:
            welcome.append((TENANT, who.tenant))
        try:
            await self._context.send_initial_metadata(welcome)
        except grpc.aio.BaseError:
            # Gone already; reading will say so.
            return

    def _identify(self) -> Principal:
        return self._door.gate.admit(
            self._said.get(AUTHORIZATION), self._said.get(TENANT) or None, peer=self._context.peer()
        )

    async def _read(self) -> None:
        try:
            while isinstance(content := await self._context.read(), bytes):
                self.recheck()
                if self._ended.done():
                    return
                await self.take(content)
        except (Refused, Unavailable) as trouble:
            self.end(trouble)
        except grpc.aio.BaseError:
            # The stream broke.
            pass
        except Exception as error:  # an error of ours; the caller must not wait for ever
            self.end(self._door.failed(self._method, error))
        self.end(None)

    async def _write(self) -> None:
        try:
            await self._writer.run()
        except Exception as error:  # an error of ours; the caller must not wait for ever
            self.end(self._door.failed(self._method, error))

    async def _part(self, trouble: Refused | Unavailable | None) -> None:
        """End the call with a status. A caller that is gone, or does not read, is dropped instead."""
        if trouble is not None:
            if isinstance(trouble, Refused) and not trouble.code.startswith(_TOLD):
                self._door.say(f"{self._method} from {self._context.peer()} ended: {trouble}")
            text, details = pack_trouble(trouble)
            try:
                async with asyncio.timeout(FAREWELL_S):
                    await self._context.abort(status_of(trouble), text, details)
            except grpc.aio.AbortError:
                raise
            except (TimeoutError, grpc.aio.BaseError):
                pass
        # gRPC takes this as the end of a call that nobody waits for any more, and says nothing about it.
        raise asyncio.CancelledError
