"""The end of a log, as text that can be shown: what a page has at first, and what is added to it while it grows."""

import asyncio
import codecs
from collections.abc import AsyncIterator

from rota.client.runs import Run
from rota.ui.words import show_text
from rota.wire.requests import LogPiece, ReadLog
from rota.wire.sse import event

SHOWN_BYTES = 64 * 1024
# Between one addition and the next.
REST_S = 0.2


class Text:
    """Bytes that come in pieces, as text without what only a terminal obeys."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode

    def read(self, content: bytes) -> str:
        """One piece more, or as much of its end as is shown."""
        text = self._decode(content)
        if len(text) > SHOWN_BYTES:
            text = f"… {len(text) - SHOWN_BYTES:,} characters are left out here\n{text[-SHOWN_BYTES:]}"
        return show_text(text)


async def read_end(run: Run, task: str, attempt: int) -> tuple[str, bool]:
    """What an attempt printed last, and whether that is not all."""
    tenant = run.client.line.tenant
    log = ReadLog(tenant=tenant, run=run.id, task=task, attempt=attempt, tail_bytes=SHOWN_BYTES)
    piece: LogPiece = await run.client.ask(log)
    return Text().read(piece.content), len(piece.content) >= SHOWN_BYTES


async def follow(run: Run, task: str, attempt: int) -> AsyncIterator[bytes]:
    """The same as events, and what is printed until the attempt has ended. The first one replaces what is there."""
    text = Text()
    is_first = True
    async for piece in run.logs(task, attempt, follow=True, tail_bytes=SHOWN_BYTES):
        yield event("log", {"attempt": attempt, "is_first": is_first, "text": text.read(piece)})
        is_first = False
        await asyncio.sleep(REST_S)
