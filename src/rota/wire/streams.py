"""A stream to a coordinator, from the end that opened it; clients and workers use it alike."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from rota.core.errors import Refused, Unavailable
from rota.wire.channels import TENANT, VERSION, Call, Unreached, check_answered, greeting, grpc, trouble_at_end
from rota.wire.places import Place, open_channel

# How long a coordinator may take to let us in. Less than a worker's patience with a dial, so that it hears why.
OPEN_S = 8.0

# What to say next, or None if there is nothing.
Pull = Callable[[], bytes | None]


class Writer:
    """Says one thing after the other. What comes meanwhile waits, and `pull` may put it together.

    With a pace it says nothing for so long after it has said something: the first thing goes at once, and where there
    is much to say each message has more in it.
    """

    def __init__(self, write: Callable[[bytes], Awaitable[None]], pull: Pull, pace_s: float = 0.0) -> None:
        self._write = write
        self._pull = pull
        self._pace_s = pace_s
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """There is something to say. It is asked for in the next pass of the event loop, with what came in this one."""
        self._woken.set()

    async def run(self) -> None:
        """Say what there is, until cancelled; or until it cannot be said, which whoever reads is told too."""
        try:
            while True:
                while (content := self._pull()) is not None:
                    await self._write(content)
                    if self._pace_s:
                        await asyncio.sleep(self._pace_s)
                self._woken.clear()
                await self._woken.wait()
        except (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            return


class Stream:
    """An open stream. It begins to work with `start`."""

    def __init__(self, place: Place, channel: Any, call: Call, tenant: str) -> None:
        self.place = place
        # For whom the coordinator takes us, if that is one tenant.
        self.tenant = tenant
        self._channel = channel
        self._call = call
        self._writer: Writer | None = None
        self._listening: asyncio.Task[None] | None = None

    def start(
        self,
        pull: Pull,
        hear: Callable[[bytes], None],
        over: Callable[[Refused | Unavailable], None],
        pace_s: float = 0.0,
    ) -> None:
        """`pull` gives what to say, `hear` takes what is said, `over` is told once why there is no more."""
        self._writer = Writer(self._call.write, pull, pace_s)
        self._listening = asyncio.get_running_loop().create_task(self._listen(hear, over))

    def wake(self) -> None:
        """There is something to say."""
        assert self._writer is not None, "a stream is woken after it was started"
        self._writer.wake()

    def close(self) -> None:
        """Hang up; `over` is told."""
        self._call.cancel()

    async def closed(self) -> None:
        """Wait until nothing is left of it."""
        if self._listening is None:
            await self._channel.close()
        else:
            await asyncio.gather(self._listening, return_exceptions=True)

    async def _listen(self, hear: Callable[[bytes], None], over: Callable[[Refused | Unavailable], None]) -> None:
        assert self._writer is not None, "a stream is listened to after it was started"
        writing = asyncio.get_running_loop().create_task(self._writer.run())
        trouble: Refused | Unavailable = Unavailable("leader.none", f"the coordinator at {self.place.url} hung up.")
        try:
            while isinstance(content := await self._call.read(), bytes):
                hear(content)
        except grpc.RpcError:
            trouble = await trouble_at_end(self._call, self.place.url)
        except ValueError as error:
            text = f"what the coordinator at {self.place.url} says cannot be read: {error}."
            trouble = Unavailable("leader.none", text)
        except asyncio.CancelledError:
            # By `close`, or because the event loop ends.
            pass
        finally:
            writing.cancel()
            self._call.cancel()
            over(trouble)
            await self._channel.close()


async def open_stream(place: Place, method: str, token: str, tenant: str = "", within_s: float = OPEN_S) -> Stream:
    """Dial, and wait until the coordinator has let us in. Raises Refused or Unavailable."""
    said = greeting(token, tenant)
    channel = open_channel(place)
    call = cast(Call, channel.stream_stream(method)(metadata=said))
    try:
        async with asyncio.timeout(within_s):
            answered = dict(await call.initial_metadata())
            if VERSION not in answered and await call.code() is not grpc.StatusCode.OK:
                raise await trouble_at_end(call, place.url)
        check_answered(_text(answered.get(VERSION)), place.url)
    except TimeoutError:
        await channel.close()
        text = f"whoever listens at {place.url} did not answer within {within_s:.0f} s."
        raise Unreached("leader.none", text) from None
    except BaseException:
        await channel.close()
        raise
    return Stream(place, channel, call, _text(answered.get(TENANT)) or "")


def _text(value: str | bytes | None) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
