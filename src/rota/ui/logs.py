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

    def __init__(self, *, is_whole: bool = False) -> None:
        """`is_whole`: nothing of a piece is left out, however long it is."""
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._is_whole = is_whole

    def read(self, content: bytes) -> str:
        """One piece more, or as much of its end as is shown."""
        text = self._decode(content)
        if len(text) > SHOWN_BYTES and not self._is_whole:
            text = f"… {len(text) - SHOWN_BYTES:,} characters are left out here\n{text[-SHOWN_BYTES:]}"
        return show_text(text)


async def read_end(run: Run, task: str, attempt: int) -> tuple[str, bool]:
    """What an attempt printed last, and whether that is not all."""
    tenant = run.client.line.tenant
    log = ReadLog(tenant=tenant, run=run.id, task=task, attempt=attempt, tail_bytes=SHOWN_BYTES)
    piece: LogPiece = await run.client.ask(log)
    return Text().read(piece.content), len(piece.content) >= SHOWN_BYTES


async def follow(run: Run, task: str, attempt: int, *, is_whole: bool) -> AsyncIterator[bytes]:
    """The same as events, or all of it (`is_whole`), and what is printed until the attempt has ended.

    The first one replaces what is there.
    """
    text = Text(is_whole=is_whole)
    is_first = True
    async for piece in run.logs(task, attempt, follow=True, tail_bytes=0 if is_whole else SHOWN_BYTES):
        # Whether lines came before it, so that nobody counts from there.
        is_cut = is_first and not is_whole and len(piece) >= SHOWN_BYTES
        yield event("log", {"attempt": attempt, "is_first": is_first, "is_cut": is_cut, "text": text.read(piece)})
        is_first = False
        await asyncio.sleep(REST_S)
