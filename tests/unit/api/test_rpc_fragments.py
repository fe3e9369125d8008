"""Large messages in fragments: those that have not come to their end are bounded, in bytes and in time."""

import asyncio
from typing import Any

import pytest

from rota.api.auth import Principal, Role
from rota.api.rpc import talk as talks
from rota.api.rpc.talk import Talk
from rota.api.rpc.visits import Door
from rota.core.errors import Refused, Unavailable
from rota.wire.channels import LAST_FRAGMENT, MORE_FRAGMENTS
from tests.refusals import refused

PATIENCE_S = 20.0
# A list with one request, number 7.
HEAD = b"\x91\x92\x07"


class NoContext:
    def invocation_metadata(self) -> None:
        return None

    async def write(self, content: bytes) -> None:
        raise NotImplementedError


def streams(count: int) -> list[Talk]:
    """Streams of one server, all admitted."""
    nothing: Any = None
    door = Door(nothing, nothing, lambda *_: None, nothing, lambda: None)
    made: list[Talk] = []
    for _ in range(count):
        context: Any = NoContext()
        made.append(Talk(door, context, nothing))
        made[-1].admit(Principal("writer", Role.WRITER, "default"))
    return made


def answers(one: Talk) -> list[str]:
    """The codes of what a stream has answered."""
    return [codes[0] for answer in one._answers if (codes := [c for c in CODES if c.encode() in answer])]


CODES = ("field.size", "service.busy")


def test_all_callers_together_keep_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(talks, "FRAGMENTS_BYTES_MAX", 1_000)

    async def run() -> None:
        first, second = streams(2)
        await first.take(MORE_FRAGMENTS + HEAD + b"x" * 700)
        await second.take(MORE_FRAGMENTS + HEAD + b"x" * 400)
        assert (answers(first), answers(second)) == ([], ["service.busy"])
        await second.take(MORE_FRAGMENTS + b"x" * 700)
        assert first._door.fragment_bytes == 700 + len(HEAD), "what is dropped is not counted"
        first.close()
        assert first._door.fragment_bytes == 0
        second.close()

    asyncio.run(run())


def test_a_message_that_does_not_come_to_its_end_ends_its_stream(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(talks, "FRAGMENTS_S", 0.01)

    async def run() -> Refused | Unavailable | None:
        (one,) = streams(1)
        await one.take(MORE_FRAGMENTS + HEAD)
        async with asyncio.timeout(PATIENCE_S):
            ended = await one._ended
        one.close()
        return ended

    ended = asyncio.run(run())
    assert ended is not None
    assert ended.code == "service.busy"


def test_an_empty_fragment_is_refused():
    async def run(content: bytes) -> None:
        (one,) = streams(1)
        await one.take(content)

    for content in (MORE_FRAGMENTS, LAST_FRAGMENT):
        with refused("field.type"):
            asyncio.run(run(content))
