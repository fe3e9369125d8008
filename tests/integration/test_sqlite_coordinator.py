"""A coordinator over a real SQLite folder: a full disk costs nobody a lease, and a restart costs nobody anything."""

from pathlib import Path
from typing import cast

import pytest

from rota.control.coordinator import Coordinator
from rota.control.events import Commit, CommitOutcome, Committed
from rota.control.leadership import Role
from rota.control.trouble import RETRY_COMMIT_MS
from rota.core.commands import Outcome
from rota.core.errors import Unavailable
from rota.core.images import all_records
from rota.core.states import RUNNING, SUCCESS
from rota.ports import CommitUnknown, Fenced, StoreRefused
from rota.stores.sqlite import SqliteDisk
from tests.contract.bench import assert_same, disk_of
from tests.integration.faulty import FaultyFiles
from tests.unit.control.stage import TENANT, Speaker, Stage

OUTCOMES = {
    Fenced: CommitOutcome.FENCED,
    CommitUnknown: CommitOutcome.UNKNOWN,
    StoreRefused: CommitOutcome.REFUSED,
    Unavailable: CommitOutcome.UNAVAILABLE,
}


class SqliteStage(Stage):
    """The stage over a folder; what the store raises becomes the outcome that a driver would report."""

    def _write(
        self, commit: Commit, outcome: CommitOutcome = CommitOutcome.DONE, error: str = "", code: str = ""
    ) -> Committed:
        try:
            self.disk.commit(commit.epoch, commit.batch)
        except tuple(OUTCOMES) as raised:
            code = raised.code if isinstance(raised, Unavailable) else ""
            return Committed(commit.ticket, OUTCOMES[type(raised)], str(raised), code)
        return Committed(commit.ticket, CommitOutcome.DONE)

    def _identity(self) -> str:
        return cast("SqliteDisk", self.disk).identity()


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def stage(tmp_path: Path, files: FaultyFiles):
    disk = SqliteDisk(tmp_path, vfs=files.name)
    stage = SqliteStage(disk=disk)  # pyright: ignore[reportArgumentType] - it has the methods of a memory disk
    stage.wake()
    assert stage.coordinator.leadership.role is Role.LEADER
    yield stage
    disk.close()


def code(stage: Stage, token: int) -> str:
    value = stage.answer(token)
    assert isinstance(value, Unavailable)
    return value.code


def state_of(stage: Stage, run: str):
    return stage.loop.state.runs[(TENANT, run)].tasks[0].state


def test_on_a_full_disk_leases_are_kept_submissions_refused_and_all_goes_on_with_space(
    stage: SqliteStage, files: FaultyFiles
):
    worker = Speaker(stage, slots=4).join()
    assert stage.answer(stage.submit("kept")) == "kept"
    worker.beat()
    (offer,) = worker.held.values()
    worker.say(reports=(worker.word(offer, Outcome.STARTED),))
    assert state_of(stage, "kept") is RUNNING
    with files.full():
        caught = stage.submit("caught")
        assert caught not in stage.answers, "it may still come through"
        turned_away = stage.submit("turned away")
        assert code(stage, turned_away) == "store.full"
        for _ in range(60):
            stage.advance(1_000)
            worker.beat()
        assert stage.coordinator.leadership.role is Role.LEADER, "the lock is held, and that is proof enough"
        assert state_of(stage, "kept") is RUNNING
        assert offer.fence in stage.loop.state.leases, "no lease ended for want of space"
        assert code(stage, caught) == "store.full", "whoever asked is not kept waiting for a minute"
    stage.advance(RETRY_COMMIT_MS[-1])
    assert stage.answer(stage.submit("caught")) == "caught", "it came through, and its repetition is answered"
    assert stage.answer(stage.submit("after")) == "after"
    worker.say(reports=(worker.word(offer, Outcome.SUCCESS),))
    assert state_of(stage, "kept") is SUCCESS
    assert (TENANT, "turned away") not in stage.loop.state.runs
    assert_same(disk_of(stage.disk.load(1)), disk_of(all_records(stage.loop.state)))


def test_a_restart_on_the_same_folder_goes_on_where_it_was(stage: SqliteStage, tmp_path: Path):
    worker = Speaker(stage, slots=4).join()
    for number in range(5):
        stage.submit(f"r{number}")
        worker.beat()
    before = disk_of(all_records(stage.loop.state))
    stage.disk.close()
    stage.disk = SqliteDisk(tmp_path)
    stage.coordinator = Coordinator(stage.limits, stage.now)
    stage.wake()
    assert stage.loop.state.epoch == 2
    assert_same(disk_of(all_records(stage.loop.state)), before)
    stage.disk.close()


def test_a_commit_that_was_not_synced_ends_the_reign_and_the_next_one_goes_on(stage: SqliteStage, files: FaultyFiles):
    files.fails_to_sync = True
    token = stage.submit("r")
    assert code(stage, token) == "leader.none"
    assert stage.coordinator.leadership.role is Role.FOLLOWER
    files.fails_to_sync = False
    stage.advance(2_000)
    assert stage.coordinator.leadership.role is Role.LEADER
    again = stage.submit("r")
    assert stage.answer(again) == "r"
    assert_same(disk_of(stage.disk.load(2)), disk_of(all_records(stage.loop.state)))
