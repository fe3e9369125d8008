"""Runs that are for the program that waits for them, and for nobody else: when it is gone, they are cancelled.

It has time to come back: a connection that was cut is opened again. What is known of this is in memory: whoever waits
says so again to the coordinator that leads next.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

from rota.core.commands import CancelRun
from rota.core.errors import Refused, Unavailable
from rota.core.ids import CommandId, RunKey

REASON = "the program that waited for it is gone"
PATIENCE_MS_MAX = 3_600_000


class Abandoned:
    """Who waits for runs that are theirs alone."""

    def __init__(self, ask: Callable[[CancelRun], Awaitable[Any]]) -> None:
        self._ask = ask
        self._waiting: dict[RunKey, int] = {}
        self._gone: dict[RunKey, asyncio.TimerHandle] = {}
        self._cancelling: dict[asyncio.Task[None], None] = {}

    @contextmanager
    def bound(self, key: RunKey, patience_ms: int, actor: str) -> Generator[None]:
        """While somebody waits. If they go before the end, the run does, unless they are back in time."""
        if key in self._gone:
            self._gone.pop(key).cancel()
        self._waiting[key] = self._waiting.get(key, 0) + 1
        is_gone = False
        try:
            yield
        except asyncio.CancelledError:
            is_gone = True
            raise
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key]
                if is_gone:
                    delay_s = min(patience_ms, PATIENCE_MS_MAX) / 1_000
                    loop = asyncio.get_running_loop()
                    self._gone[key] = loop.call_later(delay_s, self._begin_to_cancel, key, actor)

    def _begin_to_cancel(self, key: RunKey, actor: str) -> None:
        del self._gone[key]
        task = asyncio.get_running_loop().create_task(self._cancel(key, actor))
        self._cancelling[task] = None
        task.add_done_callback(self._cancelling.pop)

    async def _cancel(self, key: RunKey, actor: str) -> None:
        tenant, run = key
        command_id = f"abandoned-{secrets.token_hex(8)}"
        # It may have ended, or somebody else leads, to whom whoever waits has said so.
        with suppress(Refused, Unavailable):
            await self._ask(
                CancelRun(tenant=tenant, command_id=CommandId(command_id), run=run, reason=REASON, actor=actor)
            )
