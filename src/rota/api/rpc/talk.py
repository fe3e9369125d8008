"""A client's stream: requests in batches, answers in batches."""

import asyncio
from collections import deque

from rota.api.auth import Principal
from rota.api.counter import Counter
from rota.api.desk import Desk
from rota.api.rpc.visits import SURFACE, Context, Door, Visit
from rota.core.errors import Refused, Unavailable
from rota.wire.channels import BATCH_BYTES, REQUEST_BYTES_MAX
from rota.wire.requests import Request, Response, pack, pack_batch, split_batch

# What a client may leave unread. Others must not pay for it with our memory.
UNREAD_BYTES_MAX = 64 << 20
# So many requests are taken before anybody else has a turn.
SLICE = 100
# A list around a request takes this much more at most.
_AROUND_BYTES = 16


class Talk(Visit):
    """One client's stream."""

    def __init__(self, door: Door, context: Context, desk: Desk) -> None:
        super().__init__(door, context, "Talk")
        self._desk = desk
        self._counter: _TalkCounter | None = None
        self._answers: deque[bytes] = deque()
        self._unread_bytes = 0

    def admit(self, who: Principal) -> None:
        """See `Visit`. What the caller may ask is the desk's to say."""
        self._counter = _TalkCounter(self._desk, who, self)

    async def take(self, content: bytes) -> None:
        """See `Visit`. Between slices of a long list others have their turn."""
        if len(content) > REQUEST_BYTES_MAX + _AROUND_BYTES:
            text = f"a message of {len(content):,} bytes is too large"
            raise Refused("field.size", text, f"Send at most {REQUEST_BYTES_MAX:,} at once.")
        assert self._counter is not None, "whoever speaks was let in"
        for position, part in enumerate(split_batch(content), 1):
            await self._counter.take(part)
            if position % SLICE == 0:
                await asyncio.sleep(0)
                self.recheck()
                if self._ended.done():
                    return

    def answer(self, response: Response) -> None:
        """Have something said, unless the client does not listen."""
        if self._unread_bytes > UNREAD_BYTES_MAX:
            self.end(Unavailable("leader.none", "what you asked for was not read, and there was too much of it."))
            return
        content = pack(response)
        self._unread_bytes += len(content)
        self._answers.append(content)
        self.wake()

    def note(self, request: Request, code: str) -> None:
        """Count a request that was answered."""
        self._door.count(SURFACE, type(request.body).__name__, code)

    def pull(self) -> bytes | None:
        """See `Visit`."""
        batch: list[bytes] = []
        size = 0
        while self._answers and (not batch or size + len(self._answers[0]) <= BATCH_BYTES):
            batch.append(self._answers.popleft())
            size += len(batch[-1])
        self._unread_bytes -= size
        return pack_batch(batch) if batch else None

    def close(self) -> None:
        """See `Visit`."""
        if self._counter is not None:
            self._counter.close()
        self._answers.clear()


class _TalkCounter(Counter):
    def __init__(self, desk: Desk, who: Principal, talk: Talk) -> None:
        super().__init__(desk, who, talk.note)
        self._talk = talk

    def send(self, response: Response) -> None:
        """See `Counter`."""
        self._talk.answer(response)
