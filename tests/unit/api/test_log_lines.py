"""Lines of a log and searches in it agree with the raw log, in whatever chunks it was shipped and while it grows."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.api import log_lines
from rota.api.log_lines import LogIndexes
from rota.core.errors import Refused
from rota.ports import BlobLost, Listed
from rota.wire.plain_text import output_text
from rota.wire.requests import LogLines, LogMatches, ReadLogLines, SearchLog

ABOUT: Any = {"tenant": "acme", "run": "r", "task": "t"}
HOME = "acme/r/t"
# So small that a few lines have every border within them.
SIZES = {
    "STEP_BYTES": 16,
    "PAGE_BYTES": 60,
    "WINDOW_BYTES": 64,
    "SEARCHED_BYTES_MAX": 150,
    "HEAD_BYTES": 12,
    "TAIL_BYTES": 6,
    "OVERLAP_BYTES": 12,
    "READ_BYTES_MAX": 10,
    "READS_AT_ONCE": 2,
}


@pytest.fixture(scope="module", autouse=True)
def _small() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction] - pytest uses it
    with pytest.MonkeyPatch.context() as patch:
        for name, size in SIZES.items():
            patch.setattr(log_lines, name, size)
        yield
    RUNNER.close()


class Chunks:
    """Logs of one task, in memory."""

    def __init__(self) -> None:
        self.logs: dict[str, list[bytes]] = {}
        self.lost = False
        self.read_bytes = 0

    async def list(self, prefix: str) -> list[Listed]:
        await asyncio.sleep(0)
        if prefix == HOME:
            return [Listed(name, 0, is_folder=True) for name in self.logs]
        log = prefix.removeprefix(f"{HOME}/")
        if not log.endswith("/log"):
            return [Listed("log", 0, is_folder=True)]
        chunks = self.logs.get(log.removesuffix("/log"), [])
        return [Listed(f"{number:06d}", len(chunk)) for number, chunk in enumerate(chunks)]

    async def read(self, name: str, offset: int, size: int) -> bytes:
        await asyncio.sleep(0)
        log, _, number = name.removeprefix(f"{HOME}/").rpartition("/log/")
        if self.lost:
            raise BlobLost(name)
        assert size > 0, "a read of nothing is left out"
        piece = self.logs[log][int(number)][offset : offset + size]
        self.read_bytes += len(piece)
        assert len(piece) == size, "only what there is is read"
        return piece


class Reader:
    """Asks about the logs of one task as a page does: again, until it has all."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = Chunks()
        self.chunks.logs["1-5"] = list(chunks)
        self.indexes = LogIndexes()

    async def page(self, first: int, count: int, **more: Any) -> Any:
        return await self.indexes.answer(self.chunks, ReadLogLines(**ABOUT, first=first, count=count, **more))

    async def lines(self, first: int, count: int) -> list[str]:
        found: list[str] = []
        while len(found) < count:
            page = await self.page(first + len(found), count - len(found))
            if not page.lines:
                break
            assert page.first == first + len(found)
            found += page.lines
        return found

    async def find(self, text: str, first: int, limit: int) -> Any:
        return await self.indexes.answer(self.chunks, SearchLog(**ABOUT, text=text, first=first, limit=limit))

    async def search(self, text: str, first: int = 1, limit: int = 3) -> tuple[int, ...]:
        found: tuple[int, ...] = ()
        while True:
            some = await self.find(text, first, limit)
            assert len(some.lines) <= limit
            found += some.lines
            if some.is_end:
                return found
            assert some.next > first or some.lines, "it goes on"
            first = some.next


# One loop for all: its threads are made once.
RUNNER = asyncio.Runner()


def run(asked: Coroutine[Any, Any, Any]) -> Any:
    return RUNNER.run(asked)


# The oracle: the whole log in memory.


def raw_lines(log: bytes) -> list[bytes]:
    lines = log.split(b"\n")
    return lines if lines[-1] else lines[:-1]


def shown(line: bytes) -> str:
    if len(line) > SIZES["HEAD_BYTES"] + SIZES["TAIL_BYTES"]:
        head, tail = line[: SIZES["HEAD_BYTES"]], line[-SIZES["TAIL_BYTES"] :]
        return f"{shown(head)} … {len(line) - len(head) - len(tail):,} bytes left out … {shown(tail)}"
    return output_text(line).rstrip("\r").replace("\r", "\n")


def numbers(log: bytes, text: str) -> list[int]:
    return [n for n, line in enumerate(raw_lines(log), 1) if text.lower() in output_text(line).lower()]


PLAIN = st.sampled_from([b"a", b"b", b"Ab", b"error", b"No Error here", b"terrors", b" ", b"x" * 10])
ODD = st.sampled_from([b"\r", b"\x1b[1m", b"\xc3\x89", b"\xff", b"\x00", b"\x1b]0;"])
SHORT = st.lists(PLAIN | ODD, max_size=4).map(b"".join)
# Longer than a window; what lies across the border of two windows has no escapes in it.
LONG = st.lists(PLAIN, min_size=10, max_size=60).map(b"".join)
LOGS = (
    st.lists(SHORT | SHORT | SHORT | LONG, max_size=12)
    .map(b"\n".join)
    .flatmap(lambda log: st.sampled_from([log, log + b"\n"]))
)


@st.composite
def chunked(draw: st.DrawFn) -> list[bytes]:
    """A log in the chunks that a worker may have shipped; an empty one among them, too."""
    log = draw(LOGS)
    cuts = sorted(draw(st.lists(st.integers(0, len(log)), max_size=6)))
    return [log[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(log)], strict=True)]


@given(chunked(), st.integers(1, 15), st.integers(0, 15))
def test_lines_are_those_of_the_raw_log_with_their_numbers(chunks: list[bytes], first: int, count: int) -> None:
    log = b"".join(chunks)
    expected = [shown(line) for line in raw_lines(log)]
    reader = Reader(*chunks)
    assert run(reader.page(1, 0)).total == len(expected)
    assert run(reader.lines(first, count)) == expected[first - 1 : first - 1 + count]
    last = run(reader.page(0, count))
    assert last.first == max(1, len(expected) - count + 1)
    assert list(last.lines) == expected[last.first - 1 :][: len(last.lines)]


@given(chunked(), st.sampled_from(["a", "ERR", "b a", "é", "x" * 11, "nowhere"]), st.integers(1, 15), st.integers(1, 4))
def test_a_search_finds_the_lines_that_a_search_in_the_raw_log_finds(
    chunks: list[bytes], text: str, first: int, limit: int
) -> None:
    expected = [number for number in numbers(b"".join(chunks), text) if number >= first]
    assert list(run(Reader(*chunks).search(text, first, limit))) == expected


@given(chunked())
def test_lines_that_look_like_errors_are_those_that_the_search_for_errors_finds(chunks: list[bytes]) -> None:
    log = b"".join(chunks)
    expected = [n for n, line in enumerate(raw_lines(log), 1) if log_lines.is_error(output_text(line))]
    reader = Reader(*chunks)
    assert list(run(reader.search(""))) == expected
    short = [n for n in expected if len(raw_lines(log)[n - 1]) < SIZES["PAGE_BYTES"]]
    marked = [n for at in range(1, 14) for n in run(reader.page(at, 1)).errors]
    assert [n for n in marked if n in short] == short
    assert run(reader.find("", 1, 1)).lines[:1] == tuple(expected[:1])


@given(chunked(), st.integers(0, 6))
def test_a_log_that_grew_is_read_as_one_that_was_there_at_once(chunks: list[bytes], seen: int) -> None:
    grown = Reader(*chunks[:seen])

    async def reads() -> tuple[list[str], tuple[int, ...]]:
        before = await grown.find("a", 1, 100)
        await asyncio.gather(grown.page(0, 5), grown.lines(1, 30))
        grown.chunks.logs["1-5"] = chunks
        # The last line may have gone on, so it is searched again.
        known = tuple(number for number in before.lines if number < before.next)
        return await grown.lines(1, 100), known + await grown.search("a", before.next)

    lines, found = run(reads())
    assert lines == [shown(line) for line in raw_lines(b"".join(chunks))]
    assert list(found) == numbers(b"".join(chunks), "a")


def test_text_across_the_border_of_windows_of_one_line_is_found() -> None:
    for place in range(40, 140):
        log = b"first\n" + b"." * place + b"Needle" + b"." * (300 - place) + b"\nlast needle\n"
        assert run(Reader(log).search("needle")) == (2, 3), place


def test_a_search_reads_a_bounded_part_of_a_log_at_a_time() -> None:
    reader = Reader(*[b"nothing here\n" * 10] * 40)
    run(reader.page(0, 1))
    reader.chunks.read_bytes = 0
    found = run(reader.find("needle", 1, 1))
    assert (found.lines, found.is_end) == ((), False)
    assert reader.chunks.read_bytes < SIZES["SEARCHED_BYTES_MAX"] + SIZES["WINDOW_BYTES"] + SIZES["STEP_BYTES"]


def test_the_newest_log_is_read_unless_another_is_named() -> None:
    reader = Reader(b"first\n")
    reader.chunks.logs |= {"1-9": [b"again\n"], "2-11": [b"second attempt\n"]}
    assert run(reader.page(1, 1)) == LogLines("2-11", 1, 1, ("second attempt",))
    assert run(reader.page(1, 1, attempt=1)) == LogLines("1-9", 1, 1, ("again",))
    assert run(reader.page(1, 1, log="1-5")) == LogLines("1-5", 1, 1, ("first",))
    reader.chunks.logs.clear()
    assert run(reader.page(1, 1)) == LogLines()
    assert run(reader.find("x", 1, 1)) == LogMatches()


def test_a_log_that_is_removed_meanwhile_is_no_error() -> None:
    reader = Reader(b"one\n", b"two\n")
    assert run(reader.lines(1, 2)) == ["one", "two"]
    reader.chunks.lost = True
    assert run(reader.lines(1, 2)) == []
    assert run(reader.search("one")) == ()
    reader.chunks.logs["1-5"] = []
    assert run(reader.page(1, 1)).total == 0


def test_indexes_of_logs_that_nobody_reads_are_forgotten() -> None:
    reader = Reader(b"one\n")
    reader.indexes = LogIndexes(kept_max=2)
    reader.chunks.logs |= {f"{number}-9": [b"x\n"] for number in range(2, 6)}
    for attempt in (1, 2, 3, 1, 4, 5):
        assert run(reader.page(1, 1, attempt=attempt)).total == 1
    assert len(reader.indexes) == 2


@pytest.mark.parametrize(
    ("asked", "path"),
    [
        ({"count": 1_001}, "count"),
        ({"count": -1}, "count"),
        ({"log": "../../other/1-5"}, "log"),
        ({"text": "x" * 201}, "text"),
        ({"text": "two\nlines"}, "text"),
        ({"text": "x", "limit": 0}, "limit"),
        ({"text": "x", "limit": 10_001}, "limit"),
    ],
)
def test_what_cannot_be_is_refused(asked: dict[str, Any], path: str) -> None:
    reader = Reader(b"one\n")
    with pytest.raises(Refused) as caught:
        if "text" in asked:
            run(reader.indexes.answer(reader.chunks, SearchLog(**ABOUT, **asked)))
        else:
            run(reader.indexes.answer(reader.chunks, ReadLogLines(**ABOUT, **asked)))
    assert (caught.value.code, caught.value.path) == ("field.value", path)
