"""The end of a log, as text that can be shown: what a page has at first, and what is added to it while it grows."""

import asyncio
import codecs
import re
from collections.abc import AsyncIterator

from rota.client.runs import Run
from rota.wire.requests import LogPiece, ReadLog
from rota.wire.sse import event

SHOWN_BYTES = 64 * 1024
# Between one addition and the next.
REST_S = 0.2

# Colours and movements are for terminals.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Text:
    """Bytes that come in pieces, as text without what only a terminal obeys."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode

    def read(self, content: bytes) -> str:
        """One piece more, or as much of its end as is shown."""
        text = self._decode(content)
        if len(text) > SHOWN_BYTES:
            text = f"… {len(text) - SHOWN_BYTES:,} characters are left out here\n{text[-SHOWN_BYTES:]}"
        return _CONTROLS.sub("�", _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


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
