"""What is said on a stream: at once, or together with what follows."""

import asyncio
from collections import deque

from rota.wire.streams import Writer


def said_of(pace_s: float, *, first: str, meanwhile: str) -> list[str]:
    """What is said, message by message, if more comes up while the first one is being said, bit by bit."""

    async def inside() -> list[str]:
        waiting, said, is_over = deque(first), list[str](), asyncio.Event()

        def pull() -> bytes | None:
            text = "".join(waiting)
            waiting.clear()
            return text.encode() or None

        async def write(content: bytes) -> None:
            said.append(content.decode())
            if len(said) == 1:
                for number, letter in enumerate(meanwhile):
                    asyncio.get_running_loop().call_later(0.001 * number, add, letter)
            if sum(map(len, said)) == len(first + meanwhile):
                is_over.set()

        def add(letter: str) -> None:
            waiting.append(letter)
            writer.wake()

        writer = Writer(write, pull, pace_s)
        running = asyncio.ensure_future(writer.run())
        async with asyncio.timeout(10):
            await is_over.wait()
        running.cancel()
        return said

    return asyncio.run(inside())


def test_without_a_pace_each_thing_goes_when_it_comes() -> None:
    assert said_of(0, first="a", meanwhile="b") == ["a", "b"]


def test_with_a_pace_the_first_goes_alone_and_the_others_together() -> None:
    assert said_of(0.5, first="a", meanwhile="bcd") == ["a", "bcd"]
