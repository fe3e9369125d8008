"""The action cache: what replaces what, what goes, and what a restart leaves."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rota.core.errors import Refused, Unavailable
from rota.core.ids import Digest
from rota.ports import WrongContent
from rota.stores.cas import DiskResults, open_results
from rota.stores.cas.results import RESULT_BYTES_MAX, RESULTS_NAME
from tests.unit.stores.cas.stage import ACME, MB, NOW, OTHER, digest_of, some_bytes
from tests.unit.stores.cas.test_content import files_no_larger_than

ACTION = digest_of(b"an action")


class Cache:
    """Results in a folder, which can be closed and opened again."""

    def __init__(self, folder: Path, bytes_max: int = 100 * MB) -> None:
        self.folder = folder
        self.bytes_max = bytes_max
        self.now = NOW
        self.results: DiskResults

    async def open(self) -> DiskResults:
        self.results = await open_results(self.folder, clock=lambda: self.now, bytes_max=self.bytes_max)
        return self.results


def play(cache: Cache, test: Callable[[DiskResults], Awaitable[None]]) -> None:
    async def whole() -> None:
        try:
            await test(await cache.open())
        finally:
            await cache.results.close()

    asyncio.run(whole())


def test_a_result_is_found_by_its_action_tenant_and_instance(tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    async def test(results: DiskResults) -> None:
        assert await results.get(ACME, "main", ACTION) is None
        assert await results.put(ACME, "main", ACTION, b"result", 7)
        assert await results.get(ACME, "main", ACTION) == b"result"
        assert await results.get(OTHER, "main", ACTION) is None
        assert await results.get(ACME, "main/a", ACTION) is None
        assert await results.get(ACME, "", ACTION) is None
        assert await results.get(ACME, "main", Digest(ACTION.hash, ACTION.size + 1)) is None
        await results.close()
        results = await cache.open()
        assert await results.get(ACME, "main", ACTION) == b"result"

    play(cache, test)


def test_only_a_later_fence_or_a_client_replaces_a_result(tmp_path: Path) -> None:
    async def test(results: DiskResults) -> None:
        for fence, is_kept in (
            (5, True),
            (4, False),
            (5, True),
            (6, True),
            (5, False),
            (0, True),
            (5, False),
            (6, True),
        ):
            before = await results.get(ACME, "", ACTION)
            text = f"by {fence}".encode()
            assert await results.put(ACME, "", ACTION, text, fence) is is_kept
            assert await results.get(ACME, "", ACTION) == (text if is_kept else before)

    play(Cache(tmp_path), test)


def test_many_are_put_at_once_and_each_is_answered_for_itself(tmp_path: Path) -> None:
    async def test(results: DiskResults) -> None:
        actions = [digest_of(b"%d" % number) for number in range(300)]
        await asyncio.gather(*(results.put(ACME, "", action, b"first", 10) for action in actions))
        outcomes = await asyncio.gather(
            *(results.put(ACME, "", action, b"second", 9 + number % 3) for number, action in enumerate(actions))
        )
        assert outcomes == [number % 3 > 0 for number in range(300)]

    play(Cache(tmp_path), test)


@pytest.mark.slow
def test_what_was_used_longest_ago_goes_when_there_is_too_much(tmp_path: Path) -> None:
    cache = Cache(tmp_path, bytes_max=2 * MB)

    async def test(results: DiskResults) -> None:
        actions = [digest_of(b"%d" % number) for number in range(1_000)]
        for number, action in enumerate(actions):
            cache.now += 3_700_000
            await results.put(ACME, "", action, some_bytes(10_000, number), 1)
            await results.get(ACME, "", actions[0])
        there = [await results.get(ACME, "", action) is not None for action in actions]
        assert there[0]
        assert there[-1]
        assert not any(there[1:500])
        assert (tmp_path / RESULTS_NAME).stat().st_size < 4 * MB

    play(cache, test)


def test_a_result_that_is_too_large_or_for_no_action_is_refused(tmp_path: Path) -> None:
    async def test(results: DiskResults) -> None:
        with pytest.raises(Refused, match=r"field\.size"):
            await results.put(ACME, "", ACTION, bytes(RESULT_BYTES_MAX + 1))
        with pytest.raises(WrongContent):
            await results.put(ACME, "", Digest("../x", 5), b"")
        with pytest.raises(WrongContent):
            await results.get(ACME, "", Digest("", 0))

    play(Cache(tmp_path), test)


@pytest.mark.parametrize("damage", [b"", b"not a database", bytes(100_000)])
def test_a_file_that_cannot_be_read_is_begun_anew(tmp_path: Path, damage: bytes) -> None:
    cache = Cache(tmp_path)

    async def test(results: DiskResults) -> None:
        await results.put(ACME, "", ACTION, b"result")
        await results.close()
        (tmp_path / RESULTS_NAME).write_bytes(damage)
        results = await cache.open()
        assert await results.get(ACME, "", ACTION) is None
        assert await results.put(ACME, "", ACTION, b"result")
        assert await results.get(ACME, "", ACTION) == b"result"

    play(cache, test)


def test_a_full_disk_is_said_and_the_others_go_on(tmp_path: Path) -> None:
    async def test(results: DiskResults) -> None:
        assert await results.put(ACME, "", ACTION, b"result")
        with files_no_larger_than(100_000), pytest.raises(Unavailable, match=r"store\.full"):
            await results.put(ACME, "", digest_of(b"another"), bytes(MB))
        assert await results.get(ACME, "", digest_of(b"another")) is None
        assert await results.get(ACME, "", ACTION) == b"result"
        assert await results.put(ACME, "", digest_of(b"another"), bytes(MB))

    play(Cache(tmp_path), test)


def test_one_process_has_the_folder(tmp_path: Path) -> None:
    async def test(results: DiskResults) -> None:
        with pytest.raises(Refused, match=r"store\.held"):
            await Cache(tmp_path).open()
        await results.close()
        await results.close()

    play(Cache(tmp_path), test)
