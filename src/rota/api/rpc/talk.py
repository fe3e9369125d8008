"""A client's stream: requests in batches, answers in batches."""

import asyncio
from collections import deque

from rota.api.auth import Principal
from rota.api.counter import Counter
from rota.api.desk import Desk
from rota.api.request_limits import BATCH_BYTES_MAX, message_bytes_max
from rota.api.rpc.visits import SURFACE, Context, Door, Visit
from rota.core.errors import Refused, Unavailable
from rota.core.tags import tag_of
from rota.wire.channels import FRAGMENT, LAST_FRAGMENT, MORE_FRAGMENTS
from rota.wire.large_requests import BATCH_BYTES
from rota.wire.requests import Request, Response, pack, pack_batch, split_batch

# What a client may leave unread. Others must not pay for it with our memory.
UNREAD_BYTES_MAX = 64 << 20
# What all callers together may have sent of messages that have not come to their end, and how long one may take.
FRAGMENTS_BYTES_MAX = 256 << 20
FRAGMENTS_S = 60.0
# So many requests are taken before anybody else has a turn.
SLICE = 100
# How a list with one request begins, and as much of a request as its number needs.
_ONE_REQUEST = b"\x91"
_HEAD_BYTES = 64


class Talk(Visit):
    """One client's stream."""

    def __init__(self, door: Door, context: Context, desk: Desk) -> None:
        super().__init__(door, context, "Talk")
        self._desk = desk
        self._counter: _TalkCounter | None = None
        self._answers: deque[bytes] = deque()
        self._unread_bytes = 0
        self._bytes_max = 0
        self._fragments: list[bytes] = []
        self._fragment_bytes = 0
        self._is_dropping = False
        self._fragments_end: asyncio.TimerHandle | None = None

    def admit(self, who: Principal) -> None:
        """See `Visit`. What the caller may ask is the desk's to say."""
        self._bytes_max = message_bytes_max(who)
        self._counter = _TalkCounter(self._desk, who, self)

    async def take(self, content: bytes) -> None:
        """See `Visit`. Between slices of a long list others have their turn."""
        assert self._counter is not None, "whoever speaks was let in"
        if content.startswith(FRAGMENT):
            whole = self._collect(content, self._counter)
            if whole is None:
                return
            content = whole
        elif len(content) > self._bytes_max:
            self._refuse(content, self._counter)
            return
        if len(content) > BATCH_BYTES_MAX:
            if not content.startswith(_ONE_REQUEST):
                text = f"several requests of {len(content):,} bytes are more than {BATCH_BYTES_MAX:,} together"
                raise Refused("field.size", text, "Send fewer of them in one message.")
            await self._counter.take(memoryview(content)[1:])
            return
        for position, part in enumerate(split_batch(content), 1):
            await self._counter.take(part)
            if position % SLICE == 0:
                await asyncio.sleep(0)
                self.recheck()
                if self._ended.done():
                    return

    def _collect(self, content: bytes, counter: "_TalkCounter") -> bytes | None:
        """Keep a fragment; the whole message after its last one. One that grows too large is dropped, and refused."""
        kind = content[: len(LAST_FRAGMENT)]
        if kind not in (MORE_FRAGMENTS, LAST_FRAGMENT) or len(content) == len(kind):
            raise Refused("field.type", "this is neither a list of requests nor part of one")
        if self._fragments_end is None:
            loop = asyncio.get_running_loop()
            self._fragments_end = loop.call_later(FRAGMENTS_S, self._end_slow_message)
        if not self._is_dropping:
            self._keep(content[len(kind) :], counter)
        if kind == MORE_FRAGMENTS:
            return None
        whole = None if self._is_dropping else b"".join(self._fragments)
        self._forget_fragments()
        self._fragments_end.cancel()
        self._fragments_end, self._is_dropping = None, False
        return whole

    def _keep(self, piece: bytes, counter: "_TalkCounter") -> None:
        first = self._fragments[0] if self._fragments else piece
        self._fragments.append(piece)
        self._fragment_bytes += len(piece)
        self._door.fragment_bytes += len(piece)
        if self._fragment_bytes > self._bytes_max:
            self._is_dropping = True
            self._forget_fragments()
            self._refuse(first, counter)
        elif self._door.fragment_bytes > FRAGMENTS_BYTES_MAX:
            self._is_dropping = True
            self._forget_fragments()
            text = f"callers are sending {FRAGMENTS_BYTES_MAX >> 20} MiB in large messages already."
            self._answer_unread(first, counter, Unavailable("service.busy", text))

    def _forget_fragments(self) -> None:
        self._door.fragment_bytes -= self._fragment_bytes
        self._fragments, self._fragment_bytes = [], 0

    def _end_slow_message(self) -> None:
        text = f"a message did not come to its end within {FRAGMENTS_S:.0f} s."
        self.end(Unavailable("service.busy", text))

    def _refuse(self, content: bytes, counter: "_TalkCounter") -> None:
        """A message is too large."""
        text = f"this message has more than the {self._bytes_max:,} bytes of its caller's role"
        self._answer_unread(
            content, counter, Refused("field.size", text, "Send less at once, or large values as blobs.")
        )

    @staticmethod
    def _answer_unread(content: bytes, counter: "_TalkCounter", trouble: Refused | Unavailable) -> None:
        """A message is not read. One request is answered under its number; for more the stream ends."""
        if not content.startswith(_ONE_REQUEST):
            raise trouble
        counter.refuse(content[1 : 1 + _HEAD_BYTES], trouble)

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
        self._door.count(SURFACE, tag_of(request.body), code)

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
        if self._fragments_end is not None:
            self._fragments_end.cancel()
        self._forget_fragments()
        self._answers.clear()


class _TalkCounter(Counter):
    def __init__(self, desk: Desk, who: Principal, talk: Talk) -> None:
        super().__init__(desk, who, talk.note)
        self._talk = talk

    def send(self, response: Response) -> None:
        """See `Counter`."""
        self._talk.answer(response)
