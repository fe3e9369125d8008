"""Answers that go on: lines, logs, and events with a sign of life in every silence."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable

import msgspec
from msgspec import Struct
from starlette.responses import StreamingResponse

# After so long without an event a comment says that somebody is still there.
BEAT_S = 15.0
LINES_AT_ONCE = 1_000


class Stream(StreamingResponse):
    """An answer that goes on until its content has ended, its reader has gone, or the service stops."""


def stream(
    pieces: AsyncIterator[bytes],
    media: str,
    readmit: Callable[[], None] | None = None,
    *,
    beat: bytes = b"",
    headers: dict[str, str] | None = None,
) -> Stream:
    """Pieces as they come. `readmit` is asked now and then whether the caller may still hear them."""
    content = pieces if readmit is None else _attended(pieces, readmit, beat)
    return Stream(content, headers=headers, media_type=media)


async def _attended(pieces: AsyncIterator[bytes], readmit: Callable[[], None], beat: bytes) -> AsyncIterator[bytes]:
    """The pieces; a beat in each silence; and an end when the caller's right to hear them has ended."""
    coming: asyncio.Task[bytes] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(_next(pieces))
            done, _ = await asyncio.wait((coming,), timeout=BEAT_S)
            readmit()
            if not done:
                if beat:
                    yield beat
                continue
            piece, coming = coming.result(), None
            if not piece:
                return
            yield piece
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
        close = getattr(pieces, "aclose", None)
        if close is not None:
            await close()


async def _next(pieces: AsyncIterator[bytes]) -> bytes:
    """The next piece; nothing at the end."""
    async for piece in pieces:
        if piece:
            return piece
    return b""


async def encode_lines(items: Iterable[Struct]) -> AsyncIterator[bytes]:
    """Each item as JSON on a line of its own."""
    lines: list[bytes] = []
    for item in items:
        lines.append(msgspec.json.encode(item) + b"\n")
        if len(lines) == LINES_AT_ONCE:
            yield b"".join(lines)
            lines.clear()
            # Others have their turn.
            await asyncio.sleep(0)
    yield b"".join(lines)
