"""A data folder that no process holds is read without an election, and a service can be started on it meanwhile."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.api.auth import NEEDS
from rota.app.folder_line import READS, only_reads
from rota.cli import main
from rota.core.commands import ClientCommand
from rota.stores.sqlite import DiskReader, FolderLock, SqliteDisk, holder_of
from rota.wire.requests import AwaitRun
from tests.integration import jobs
from tests.integration.deadlines import until
from tests.refusals import refused

# Every command that only reads, with what it takes.
READING = [
    ["runs"],
    ["runs", "--name", "chain"],
    ["tasks", "chain"],
    ["why", "chain", "step"],
    ["logs", "chain"],
    ["logs", "chain", "-f"],
    ["logs", "chain", "step"],
    ["logs", "chain", "step", "-f"],
    ["story", "chain"],
    ["story", "chain", "step"],
    ["workers"],
    ["queues"],
    ["pools"],
    ["tenants"],
    ["workflows"],
    ["backfills"],
    ["sessions"],
    ["audit"],
    ["top", "--once"],
    ["scheduler", "status"],
    ["scheduler", "backlog"],
    ["work", "list"],
    ["builds"],
    ["stream", "list"],
]


@rota.workflow
def chain(folder: str) -> None:
    jobs.step(folder, "b", jobs.step(folder, "a"))


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which something ran, and that is held by no process."""
    folder = tmp_path_factory.mktemp("ended")
    with rota.Rota.embedded(folder / "data", threads=True) as one:
        one.submit(chain, {"folder": str(folder)}, run="chain").wait(60)
    return folder / "data"


def epoch(folder: Path) -> int:
    with closing(DiskReader(folder)) as disk:
        return disk.epoch()


@contextmanager
def nothing_is_held(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    """Nothing inside takes the lock, makes an epoch or changes the database."""

    def take(*_: Any) -> bool:
        raise AssertionError("the lock of the folder was taken")

    database, before = folder / "rota.db", epoch(folder)
    content = database.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(FolderLock, "take", take)
        yield
    assert epoch(folder) == before
    assert database.read_bytes() == content


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_reading_command_holds_nothing(
    words: list[str], ended: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with nothing_is_held(monkeypatch, ended):
        for more in ([], ["--json"]):
            if "-f" not in words or not more:
                assert main([*words, "--data", str(ended), *more]) == 0, capsys.readouterr().err


def test_every_request_either_reads_or_is_for_a_holder() -> None:
    assert [kind.__name__ for kind in READS if issubclass(kind, ClientCommand)] == []
    assert set(NEEDS) >= READS
    assert only_reads(AwaitRun(tenant="t", run="r"))
    assert not only_reads(AwaitRun(tenant="t", run="r", abandon_ms=1_000)), "who goes away cancels it"


def test_what_is_read_is_what_a_holder_says(ended: Path) -> None:
    def look(one: rota.Rota) -> list[Any]:
        run = one.run("chain")
        return [
            run.status(),
            run.tasks(),
            run.result(),
            run.story(),
            [(event.task, event.state) for event in run.events()],
            list(run.logs("step")),
            one.runs(),
            one.workers(),
            one.queues(),
            one.pools(),
        ]

    with rota.Rota.open(ended) as seen:
        found = look(seen)
        assert seen.is_host
    with rota.Rota.embedded(ended, slots=0) as holder:
        assert found == look(holder)


def test_a_service_starts_while_the_folder_is_read(ended: Path) -> None:
    stop = threading.Event()
    counts, failed = [0], list[BaseException]()

    def read() -> None:
        try:
            while not stop.is_set():
                with rota.Rota.open(ended) as seen:
                    assert [view.id for view in seen.runs()] == ["chain"]
                counts[0] += 1
        except BaseException as error:
            failed.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(30):
            before = counts[0]
            # No patience: what `rota up` does, which says store.held at once.
            with closing(SqliteDisk(ended)) as disk:
                held = disk.elect("a test")
                assert held is not None
                disk.release(held)
            until(lambda before=before: counts[0] > before or bool(failed), "something to be read")
    finally:
        stop.set()
        for reader in readers:
            reader.join(60)
    assert failed == []


def test_looking_at_a_lock_does_not_hold_it(tmp_path: Path) -> None:
    stop = threading.Event()
    first = FolderLock(tmp_path)
    assert first.take()
    first.free()

    def look() -> None:
        while not stop.is_set():
            holder_of(tmp_path)

    looking = [threading.Thread(target=look) for _ in range(4)]
    for each in looking:
        each.start()
    try:
        for _ in range(300):
            lock = FolderLock(tmp_path)
            assert lock.take("a test")
            assert not FolderLock(tmp_path).take(), "one that is held is not taken"
            lock.free()
    finally:
        stop.set()
        for each in looking:
            each.join()


def test_the_first_command_holds_the_folder_until_it_is_closed(ended: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.app.embedded.PATIENCE_S", 0.0)
    before = epoch(ended)
    with rota.Rota.open(ended) as seen:
        assert seen.run("chain").status().state == "success"
        seen.run("chain").note("step", "looked at")
        assert epoch(ended) == before + 1
        with refused("store.held"):
            rota.Rota.embedded(ended)
        assert seen.run("chain").task("step").note == "looked at"
    rota.Rota.embedded(ended, slots=0).close()


def test_a_reader_goes_on_with_the_service_that_is_started(tmp_path: Path) -> None:
    with rota.Rota.embedded(tmp_path / "data", slots=0) as one:
        one.submit(chain, {"folder": str(tmp_path)}, run="chain")
    with rota.Rota.open(tmp_path / "data") as seen:
        run = seen.run("chain")
        assert run.status().state in ("queued", "running")
        states: list[str] = []
        events: list[str] = []
        waiting = [
            threading.Thread(target=lambda: states.append(run.wait(60).state)),
            threading.Thread(target=lambda: events.extend(event.state for event in run.events() if not event.task)),
        ]
        for each in waiting:
            each.start()
        with rota.Rota.embedded(tmp_path / "data", threads=True):
            for each in waiting:
                each.join(60)
            assert states == ["success"]
            assert events[-1] == "success"
            assert run.result() == "b"
            assert not seen.is_host


KILLED = """
import os, signal, sys
from pathlib import Path
import rota
from tests.integration import jobs
from tests.integration.deadlines import until_there

@rota.workflow
def talking(folder: str):
    jobs.held(folder, "a")

with rota.Rota.embedded(sys.argv[1] + "/data") as one:
    one.submit(talking, {"folder": sys.argv[1]}, run="killed")
    until_there(Path(sys.argv[1]) / "effects")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_program_left_is_read_and_its_workers_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=root, check=False, timeout=60)
    folder = tmp_path / "data"
    # As if its last words had not been shipped: half of the log is among the blobs, the rest is a file.
    with rota.Rota.open(folder) as seen:
        (task,) = seen.run("killed").tasks()
    place = Path("default", "killed", "held", f"1-{task.fence or 1}")
    (folder / "blobs" / place / "log").mkdir(parents=True, exist_ok=True)
    (folder / "blobs" / place / "log" / "000000").write_bytes(b"shipped\n")
    (folder / "logs" / place.parent).mkdir(parents=True, exist_ok=True)
    (folder / "logs" / f"{place}.log").write_bytes(b"shipped\nleft behind\n")
    with nothing_is_held(monkeypatch, folder), rota.Rota.open(folder) as seen:
        assert seen.workers() == ()
        run = seen.run("killed")
        assert run.tasks()[0].state not in ("running", "assigned")
        assert b"".join(run.logs("held", 1)) == b"shipped\nleft behind\n"
    assert (folder / "logs" / f"{place}.log").exists()


def test_a_folder_of_an_older_version_is_brought_up_to_date_first(ended: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_current: Callable[[DiskReader], bool] = DiskReader.is_current
    asked: list[bool] = []

    def once(disk: DiskReader) -> bool:
        asked.append(is_current(disk))
        return False

    monkeypatch.setattr(DiskReader, "is_current", once)
    before = epoch(ended)
    with rota.Rota.open(ended) as seen:
        assert [view.id for view in seen.runs()] == ["chain"]
    assert (asked, epoch(ended)) == ([True], before + 1)


def test_a_folder_that_is_not_rotas_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rota.db").write_bytes(os.urandom(100_000))
    with refused("store.corrupt"):
        rota.Rota.open(tmp_path)
