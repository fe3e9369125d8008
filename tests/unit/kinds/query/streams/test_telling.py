"""What whoever runs a stream tells of it: numbers over its rounds, about once a second."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rota.kinds.query.streams.manifests import Manifest, Piece
from rota.kinds.query.streams.pressure import Crowd
from rota.kinds.query.streams.telling import RATE_MS, STEP_MS, STEPS_KEPT, TELL_EVERY_MS, Teller
from rota.kinds.query.streams.watermarks import END, NEVER, Clock
from rota.wire.standings import FILE, Told, read_told, write_told

BASE = 1_700_000_000_000


class Stage:
    """A teller with a clock of its own."""

    crowds: Sequence[Crowd] = ()

    def __init__(self, folder: Path, *, incarnation: int = 1, last: Manifest | None = None) -> None:
        self.now = BASE
        self.folder = folder
        self.last = last
        (folder / "rounds").mkdir(exist_ok=True)
        about = Told(told_at=0, incarnation=incarnation, guarantee="exactly once", run="r")
        self.teller = Teller(folder, self, about, {})

    @property
    def now_ms(self) -> Callable[[], int]:
        return lambda: self.now

    @property
    def counts(self) -> dict[str, int]:
        return self.last.counts if self.last else {}

    def round(self, number: int, rows: int, *, ms: int = TELL_EVERY_MS, checkpoint_ms: float = 1.0) -> Told:
        """So long later a round is published; what is told after it."""
        self.now += ms
        (self.folder / "rounds" / f"{number:012d}.round").touch()
        self.last = manifest(number, rows, self.now)
        self.teller.published(self.last, checkpoint_ms)
        return self.told

    @property
    def told(self) -> Told:
        found = read_told(self.folder)
        assert found is not None
        return found


def manifest(number: int, rows: int, at: int, *, mark: int = BASE - 5_000) -> Manifest:
    return Manifest(
        position=number,
        round=number,
        offsets={"clicks/0": (rows,), "clicks/1": (0,)},
        counts={"clicks.rows": rows, "w.rows": 3},
        clocks={"w": Clock({}, mark)},
        pieces=(Piece(kind="state", node="w", rows=4, bytes=50), Piece(kind="rows", node="w", rows=9, bytes=900)),
        published_at_ms=at,
        took_ms=number * 1.0,
    )


def test_it_is_told_from_the_start_who_runs_it_and_what_it_promises(tmp_path: Path):
    told = Stage(tmp_path).told
    assert (told.told_at, told.round, told.guarantee, told.run) == (BASE, 0, "exactly once", "r")


def test_rounds_are_told_about_once_a_second(tmp_path: Path):
    stage = Stage(tmp_path)
    assert stage.round(1, 10, ms=TELL_EVERY_MS - 1).round == 0
    assert stage.round(2, 20, ms=1).round == 2
    stage.now += TELL_EVERY_MS
    stage.teller.tell_now_and_then()
    assert stage.told.told_at == stage.now, "also one without rows is heard from"


def test_rows_a_second_are_those_of_the_last_seconds(tmp_path: Path):
    stage = Stage(tmp_path)
    for number in range(1, 21):
        told = stage.round(number, number * 500)
    assert (told.rows, told.rows_per_s) == (10_000, 500)
    stage.now += 2 * RATE_MS
    stage.teller.tell()
    assert stage.told.rows_per_s == 0, "no rows came for a while"


def test_checkpoints_have_a_last_a_median_and_a_worst_time(tmp_path: Path):
    stage = Stage(tmp_path)
    for number, took in enumerate((5.0, 80.0, 7.0), 1):
        told = stage.round(number, number, checkpoint_ms=took)
    assert (told.checkpoint_ms, told.checkpoint_p50_ms, told.checkpoint_worst_ms) == (7.0, 7.0, 80.0)
    assert (told.round_ms, told.published_at) == (2.0, stage.now)


def test_state_and_rounds_to_go_on_from_are_those_that_are_still_there(tmp_path: Path):
    stage = Stage(tmp_path)
    for number in (1, 2, 3):
        told = stage.round(number, number)
    assert (told.state_rows, told.state_bytes, told.restorable) == (4, 50, (1, 2, 3))
    (tmp_path / "rounds" / f"{1:012d}.round").unlink()
    assert stage.round(4, 4).restorable == (2, 3, 4)


def test_time_that_has_not_begun_or_is_over_is_no_watermark(tmp_path: Path):
    for mark, expected in ((NEVER, None), (END, None), (BASE, BASE)):
        stage = Stage(tmp_path, last=manifest(1, 1, BASE, mark=mark))
        assert [each.watermark_at for each in stage.told.marks] == [expected]


def test_the_trend_has_so_many_steps_and_goes_on_with_the_next_incarnation(tmp_path: Path):
    stage = Stage(tmp_path)
    for number in range(1, STEPS_KEPT + 10):
        told = stage.round(number, number * 300, ms=STEP_MS)
    assert len(told.steps) == STEPS_KEPT
    assert (told.steps[-1].rows, told.steps[-1].lag_ms) == (300, stage.now - (BASE - 5_000))
    assert len(Stage(tmp_path, incarnation=2).told.steps) == STEPS_KEPT


def test_one_that_went_back_counts_from_there(tmp_path: Path):
    stage = Stage(tmp_path)
    stage.round(1, 100)
    stage.round(2, 900)
    stage.now += 500
    stage.last = manifest(1, 100, stage.now)
    stage.teller.restored()
    assert (stage.told.round, stage.told.rows, stage.told.rows_per_s) == (1, 100, 0)


def test_an_older_incarnation_says_nothing_once_a_newer_one_has_spoken(tmp_path: Path):
    older = Stage(tmp_path)
    newer = Stage(tmp_path, incarnation=2)
    older.round(1, 10)
    older.teller.ended("failed", "another one took over")
    assert (newer.told.incarnation, newer.told.ended, newer.told.round) == (2, "", 0)


def test_the_end_is_told_with_its_reason(tmp_path: Path):
    stage = Stage(tmp_path)
    stage.teller.ended("failed", "stream.sink: disk full")
    assert (stage.told.ended, stage.told.trouble) == ("failed", "stream.sink: disk full")


def test_a_damaged_file_and_a_folder_that_is_gone_stop_nothing(tmp_path: Path):
    (tmp_path / FILE).write_text("{")
    stage = Stage(tmp_path)
    assert stage.told.round == 0
    (tmp_path / "_standing-1").mkdir()
    stage.round(1, 1)
    assert stage.told.round == 0, "it could not be written, and nobody minds"


def test_what_others_left_aside_is_tidied_up(tmp_path: Path):
    write_told(tmp_path, Told(told_at=1, incarnation=1))
    (tmp_path / "_standing-1").write_text("half")
    Stage(tmp_path, incarnation=2)
    assert not list(tmp_path.glob("_standing-*"))


def test_rows_that_wait_are_told_with_what_they_wait_for(tmp_path: Path):
    stage = Stage(tmp_path)
    stage.crowds = [Crowd(operator="w", waiting=60, waiting_max=100, reached={"a/0": 9, "b/0": 4})]
    (mark,) = stage.round(1, 10).marks
    assert (mark.waiting, mark.waiting_max, mark.reads_only) == (60, 100, ("b/0",))
