"""Logs are shipped while they grow, whole, in order, once; and what cannot be shipped is kept."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rota.core.decide.leases import Offer
from rota.core.ids import BlobRef
from rota.stores.blobs import ObjectBlobs, open_blobs
from rota.worker.logs import driver
from rota.worker.logs.driver import LogShipper
from rota.worker.logs.folder import LogFolder
from rota.worker.supervisor.drains import Drain

PATIENCE_S = 20


def offer(number: int = 1, **ids: str) -> Offer:
    names = {"tenant": "acme", "run": "r", "task_id": "t", **ids}
    return Offer(names["tenant"], names["run"], 0, names["task_id"], number, 1, "command", b"", b"", 0, 30_000)


class Outage(ObjectBlobs):
    """Blobs that refuse some puts, and tell of each."""

    def __init__(self, inner: ObjectBlobs) -> None:
        super().__init__(inner._store)  # pyright: ignore[reportPrivateUsage] - the same store, with trouble in front
        self.refused = 0
        self.takes_and_fails = False
        self.puts = 0
        self.came = asyncio.Event()

    async def put(self, name: str, content: bytes | Path, *, is_durable: bool = True) -> BlobRef:
        self.puts += 1
        self.came.set()
        if self.refused:
            self.refused -= 1
            if self.takes_and_fails:
                await super().put(name, content, is_durable=is_durable)
            raise OSError("no route")
        return await super().put(name, content, is_durable=is_durable)


class Bench:
    def __init__(self, folder: Path) -> None:
        self.blobs = Outage(open_blobs(folder / "blobs"))
        self.folder = LogFolder(folder)
        self.complaints: list[str] = []
        self.shipper = LogShipper(self.blobs, self.folder, self.complaints.append)

    def write(self, path: str, content: bytes) -> None:
        """As the supervisor does."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with Path(path).open("ab") as file:
            file.write(content)

    async def chunks(self, number: int = 1) -> dict[str, bytes]:
        folder = f"acme/r/t/1-{number}/log"
        return {
            each.name: await self.blobs.read(f"{folder}/{each.name}", 0, 1 << 22) if each.size else b""
            for each in await self.blobs.list(folder)
        }

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        while not await holds():
            await asyncio.sleep(0.005)


def played(test: Callable[[Bench], Awaitable[None]]) -> Callable[[Path, pytest.MonkeyPatch], None]:
    """Run a test whose clocks are fifty times as quick as in earnest."""

    async def play(folder: Path) -> None:
        async with asyncio.timeout(PATIENCE_S):
            bench = Bench(folder)
            try:
                await test(bench)
            finally:
                await bench.shipper.close(0)

    def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(driver, "LOOK_S_MIN", 0.01)
        monkeypatch.setattr(driver, "RETRY_S_MIN", 0.01)
        asyncio.run(play(tmp_path))

    run.__name__, run.__doc__ = test.__name__, test.__doc__  # pyright: ignore[reportAttributeAccessIssue] - a function
    return run


def test_a_log_lies_inside_its_folder_whatever_the_ids(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path)
    place = folder.place(offer(2, tenant="../..", run="/etc", task_id=".."))
    assert place == str(tmp_path / "logs" / "%2E.%2F.." / "%2Fetc" / "%2E." / "1-2.log")
    assert folder.name_of(place) == "%2E.%2F../%2Fetc/%2E./1-2"


@played
async def test_what_is_new_is_shipped_while_the_attempt_runs(bench: Bench) -> None:
    path = bench.folder.place(offer())
    bench.shipper.began(path)
    for number, line in enumerate((b"first\n", b"second\n")):
        bench.write(path, line)

        async def has_come(number: int = number, line: bytes = line) -> bool:
            return (await bench.chunks()).get(f"{number:06d}") == line

        await bench.until(has_come)
    bench.write(path, b"third\n")
    bench.shipper.ended(path)
    await bench.shipper.settled()
    assert await bench.chunks() == {"000000": b"first\n", "000001": b"second\n", "000002-end": b"third\n"}
    assert bench.folder.left() == []
    assert list(bench.folder.root.iterdir()) == [], "nor are empty folders left"


@played
async def test_a_short_log_is_one_chunk(bench: Bench) -> None:
    path = bench.folder.place(offer())
    bench.shipper.began(path)
    bench.write(path, b"hello\n")
    bench.shipper.ended(path)
    await bench.shipper.settled()
    assert await bench.chunks() == {"000000-end": b"hello\n"}


@played
async def test_a_long_log_is_cut_into_chunks(bench: Bench) -> None:
    path = bench.folder.place(offer())
    content = os.urandom(2 * driver.CHUNK_BYTES_MAX)
    bench.write(path, content)
    bench.shipper.began(path)
    bench.shipper.ended(path)
    await bench.shipper.settled()
    chunks = await bench.chunks()
    assert [(name, len(chunk)) for name, chunk in chunks.items()] == [
        ("000000", driver.CHUNK_BYTES_MAX),
        ("000001-end", driver.CHUNK_BYTES_MAX),
    ]
    assert b"".join(chunks.values()) == content


@played
async def test_a_log_whose_end_has_nothing_new_is_marked_as_ended(bench: Bench) -> None:
    path = bench.folder.place(offer())
    bench.shipper.began(path)
    bench.write(path, b"all of it\n")

    async def is_shipped() -> bool:
        return bool(await bench.chunks())

    await bench.until(is_shipped)
    bench.shipper.ended(path)
    await bench.shipper.settled()
    assert await bench.chunks() == {"000000": b"all of it\n", "000001-end": b""}


@played
async def test_an_attempt_that_printed_nothing_leaves_nothing(bench: Bench) -> None:
    path = bench.folder.place(offer())
    bench.shipper.began(path)
    bench.shipper.ended(path)
    await bench.shipper.settled()
    assert bench.blobs.puts == 0
    assert not bench.folder.root.exists()


@pytest.mark.parametrize("takes_and_fails", [False, True])
def test_what_cannot_be_stored_is_kept_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes_and_fails: bool
) -> None:
    @played
    async def play(bench: Bench) -> None:
        bench.blobs.refused = 3
        bench.blobs.takes_and_fails = takes_and_fails
        path = bench.folder.place(offer())
        bench.shipper.began(path)
        bench.write(path, b"before ")
        await bench.blobs.came.wait()
        # More is written before the next try, which must not change what may have been stored.
        bench.write(path, b"and after\n")
        bench.shipper.ended(path)
        await bench.shipper.settled()
        assert await bench.chunks() == {"000000": b"before ", "000001-end": b"and after\n"}
        (complaint,) = bench.complaints
        assert path in complaint
        assert "no route" in complaint

    play(tmp_path, monkeypatch)


@played
async def test_a_worker_that_stops_without_its_blobs_leaves_its_logs_to_the_next_one(bench: Bench) -> None:
    bench.blobs.refused = 1_000
    path = bench.folder.place(offer())
    bench.shipper.began(path)
    bench.write(path, b"kept\n")
    bench.shipper.ended(path)
    await bench.shipper.close(0.02)
    assert bench.folder.left() == [path]
    bench.blobs.refused = 0
    following = LogShipper(bench.blobs, bench.folder)
    following.start()
    await following.settled()
    assert await bench.chunks() == {"000000-end": b"kept\n"}
    assert bench.folder.left() == []


@pytest.mark.parametrize(
    ("there", "made"),
    [
        ({}, {"000000-end": b"one two"}),
        ({"000000": b"one "}, {"000000": b"one ", "000001-end": b"two"}),
        ({"000000": b"one two"}, {"000000": b"one two", "000001-end": b""}),
        ({"000000": b"one ", "000001-end": b"two"}, {"000000": b"one ", "000001-end": b"two"}),
    ],
    ids=["nothing was shipped", "some was", "all but the end", "all"],
)
def test_a_log_that_a_killed_worker_left_is_shipped_from_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: dict[str, bytes], made: dict[str, bytes]
) -> None:
    @played
    async def play(bench: Bench) -> None:
        for name, content in there.items():
            await bench.blobs.put(f"acme/r/t/1-1/log/{name}", content)
        bench.write(bench.folder.place(offer()), b"one two")
        bench.shipper.start()
        await bench.shipper.settled()
        assert await bench.chunks() == made
        assert bench.folder.left() == []

    play(tmp_path, monkeypatch)


@played
async def test_many_logs_are_kept_apart(bench: Bench) -> None:
    paths = [bench.folder.place(offer(number)) for number in range(1, 40)]
    for number, path in enumerate(paths, start=1):
        bench.shipper.began(path)
        bench.write(path, f"{number}\n".encode())
        bench.shipper.ended(path)
    await bench.shipper.settled()
    for number in range(1, 40):
        assert await bench.chunks(number) == {"000000-end": f"{number}\n".encode()}


@played
async def test_a_runner_without_processes_writes_its_log_itself(bench: Bench) -> None:
    bench.shipper.write(bench.folder.place(offer()), "GET / 200\n")
    await bench.shipper.settled()
    assert await bench.chunks() == {"000000-end": b"GET / 200\n"}


def test_an_hour_of_talking_is_hundreds_of_looks(tmp_path: Path) -> None:
    looks, now = 0, 0.0
    while now < 3_600:
        now += min(driver.LOOK_S_MAX, max(driver.LOOK_S_MIN, now / driver.LOOKS_PER_AGE))
        looks += 1
    assert 300 < looks < 600


@pytest.mark.slow
def test_a_log_is_opened_although_empty_folders_are_removed_all_the_time(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path)
    is_over = threading.Event()

    def remove() -> None:
        while not is_over.is_set():
            folder.remove(folder.place(offer(0)))

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        for number in range(1, 300):
            reading, writing = os.pipe()
            os.write(writing, b"kept\n")
            os.close(writing)
            drain = Drain(folder.place(offer(number)), [reading], 1_000)
            drain.close()
            assert (drain.written, drain.dropped) == (5, 0)
            folder.remove(folder.place(offer(number)))
    finally:
        is_over.set()
        remover.join()
