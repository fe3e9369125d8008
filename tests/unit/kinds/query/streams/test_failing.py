"""Streams that fail half-way, are restored, or lack files: nothing counts twice, and nothing is lost."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rota
from rota.app.sql.started import Running
from rota.core.errors import Refused
from rota.kinds.query.streams.calling import CallbackSink
from rota.kinds.query.streams.chain import file_of
from rota.kinds.query.streams.sinks import FolderSink, SideSink
from rota.kinds.query.streams.stream import Round
from tests.refusals import refused

ROWS = pa.table({"at": [0, 100, 200, 300, 9_000], "k": [1] * 5})


class Flaky(CallbackSink):
    """A sink that cannot prepare one round, once."""

    def __init__(self, number: int) -> None:
        super().__init__(lambda _rows, _number: None)
        self.number = number

    def prepare(self, node: str, number: int, incarnation: int, rows: pa.Table) -> dict[str, str]:
        if number == self.number:
            self.number = 0
            raise OSError("disk full")
        return super().prepare(node, number, incarnation, rows)


def counting(folder: Path, sink: CallbackSink | None = None, **options: Any) -> rota.StreamSession:
    stream = rota.StreamSession(folder, rows_max=2, every_s=0, **options)
    stream.register_rows("c", ROWS)
    stream.register_window("w", "c", time="at", tumbling_s=1, by=["k"], aggregates={"n": "count(*)"})
    stream.register_sink("c", sink or Flaky(0))
    return stream


def counted(rounds: list[Round]) -> list[int]:
    return sorted(row["n"] for each in rounds if "w" in each.rows for row in each.rows["w"].to_pylist())


def test_a_stream_that_failed_before_publishing_goes_on_only_when_it_is_started_again(tmp_path: Path) -> None:
    with counting(tmp_path, Flaky(2)).start(follow=False) as running:
        with pytest.raises(OSError, match="disk full"):
            list(running)
        with pytest.raises(Refused, match=r"stream\.failed.*disk full"):
            list(running)
    assert counted(counting(tmp_path).run()) == [1, 4]


def test_a_stream_that_failed_cannot_be_saved(tmp_path: Path) -> None:
    with counting(tmp_path, Flaky(2), state_every=10).start(follow=False) as running:
        with pytest.raises(OSError, match="disk full"):
            list(running)
        with pytest.raises(Refused, match=r"stream\.failed"):
            running.savepoint("half-way")
    assert counted(counting(tmp_path, state_every=10).run()) == [1, 4]


def calling(folder: Path, function: Callable[[pa.Table, int], object]) -> rota.StreamSession:
    stream = rota.StreamSession(folder, rows_max=2, every_s=0)
    stream.register_rows("c", ROWS)
    stream.call("c", function)
    return stream


def test_a_round_whose_sink_refused_it_is_not_passed_over(tmp_path: Path) -> None:
    got: list[int] = []
    failing = [True]

    def take(_rows: pa.Table, number: int) -> None:
        if failing and failing.pop():
            raise RuntimeError("down")
        got.append(number)

    with calling(tmp_path, take).start(follow=False) as running:
        with pytest.raises(Refused, match=r"stream\.sink"):
            list(running)
        with pytest.raises(Refused, match=r"stream\.failed"):
            list(running)
    calling(tmp_path, take).run()
    assert got == [1, 2, 3]


def test_what_a_sink_that_lags_refused_is_not_forgotten(tmp_path: Path) -> None:
    class Late(SideSink):
        def commit(self, node: str, number: int, *rest: Any) -> None:
            raise Refused("stream.sink", "no room")

    stream = rota.StreamSession(tmp_path / "s", rows_max=1, every_s=0)
    stream.register_rows("c", ROWS)
    stream.register_sink("c", Late(tmp_path / "out"))
    with stream.start(follow=False) as running:
        for _ in range(2):
            with pytest.raises(Refused, match="no room"):
                list(running)
        assert running.last is not None
        assert running.last.round == 1


class Killed(FolderSink):
    """Whoever has it ends between publishing round 2 and committing it."""

    def commit(self, node: str, number: int, *rest: Any) -> None:
        if number == 2:
            raise KeyboardInterrupt
        super().commit(node, number, *rest)


def writing(folder: Path, sink: FolderSink) -> rota.StreamSession:
    stream = rota.StreamSession(folder, rows_max=2, every_s=0)
    stream.register_rows("c", ROWS)
    stream.register_sink("c", sink)
    return stream


def test_restoring_the_newest_round_commits_what_it_had_not(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        writing(tmp_path / "s", Killed(out)).run()
    with writing(tmp_path / "s", FolderSink(out)).start(follow=False, restore=2) as running:
        list(running)
    seen = [at for path in sorted(out.glob("part-*")) for at in pq.read_table(path)["at"].to_pylist()]
    assert seen == ROWS["at"].to_pylist()


def test_whoever_iterates_is_given_the_restored_round_again(tmp_path: Path) -> None:
    def started(restore: str | int) -> Running:
        stream = rota.StreamSession(tmp_path, rows_max=2, every_s=0)
        stream.register_rows("c", ROWS)
        return stream.start(follow=False, restore=restore)

    with started("") as running:
        for each in running:
            if each.number == 2:
                break
    with started(2) as running:
        assert [(each.number, each.is_again) for each in running] == [(2, True), (3, False)]


def put(folder: Path, name: str, **columns: list[Any]) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), folder / f"{name}.parquet")


def over_files(folder: Path, name: str) -> rota.StreamSession:
    made = rota.StreamSession(folder / name, rows_max=2, every_s=0)
    made.register_files("c", folder / "in")
    return made


def values(rounds: Iterable[Round]) -> list[str]:
    return [value for each in rounds for value in each.rows["c"]["v"].to_pylist() if "c" in each.rows]


def test_a_savepoint_knows_which_files_were_read_and_is_gone_on_from_in_another_folder(tmp_path: Path) -> None:
    # Seen first, though by name they come last.
    for name in ("z", "y"):
        put(tmp_path / "in", name, v=[name])
        over_files(tmp_path, "one").run()
    put(tmp_path / "in", "a", v=["a1", "a2", "a3"])
    with over_files(tmp_path, "one").start(follow=False) as running:
        next(iter(running))
        saved = running.savepoint("x").rename(tmp_path / "kept.round")
        (rest := values(running)).sort()
    put(tmp_path / "in", "0", v=["later"])
    with over_files(tmp_path, "two").start(follow=False, restore=str(saved)) as running:
        assert values(running) == [*rest, "later"]
    over_files(tmp_path, "one").start(restore=str(saved)).close()


def test_a_savepoint_is_not_gone_on_from_where_files_were_seen_in_another_order(tmp_path: Path) -> None:
    for name in ("z", "y"):
        put(tmp_path / "in", name, v=[name])
        over_files(tmp_path, "one").run()
    with over_files(tmp_path, "one").start(follow=False) as running:
        list(running)
        saved = running.savepoint("x")
        newest = file_of(tmp_path / "one", 2)
    os.utime(tmp_path / "in" / "y.parquet", ns=(1, 1))
    over_files(tmp_path, "two").run()
    with pytest.raises(Refused, match=r"stream\.source: parquet .*\border\b.*\(at restore\)"):
        over_files(tmp_path, "two").start(restore=str(saved))
    with pytest.raises(Refused, match=r"stream\.source: c \(.*\(at restore\).*\bsavepoint\b"):
        over_files(tmp_path, "three").start(restore=str(newest))


def test_a_rate_goes_on_in_another_folder_as_it_began(tmp_path: Path) -> None:
    def rate(name: str) -> rota.StreamSession:
        made = rota.StreamSession(tmp_path / name, every_s=0)
        made.register_rate("c", 1_000, rows=30)
        return made

    def times(rounds: Iterable[Round]) -> list[Any]:
        return [value for each in rounds for value in each.rows["c"]["at"].to_pylist()]

    now = [5_000]
    with rate("one").start(follow=False, now_ms=lambda: now[0]) as running:
        for now[0] in (5_000, 5_010):
            list(running)
        saved = running.savepoint("x")
        now[0] = 9_000
        rest = times(running)
    with rate("two").start(follow=False, now_ms=lambda: now[0], restore=str(saved)) as running:
        assert times(running) == rest != []
    with refused("stream.source", " 1000 ", " 30 rows", path="restore"):
        with rate("three").start(follow=False, now_ms=lambda: now[0]) as running:
            list(running)
        rate("three").start(restore=str(saved))


def test_rows_in_memory_can_be_gone_on_with_in_another_folder(tmp_path: Path) -> None:
    with counting(tmp_path / "one").start(follow=False) as running:
        next(iter(running))
        saved = running.savepoint("x")
    with counting(tmp_path / "two").start(follow=False, restore=str(saved)) as running:
        assert counted(list(running)) == [1, 4]


def test_a_round_that_is_made_again_without_one_of_its_files_is_refused(tmp_path: Path) -> None:
    def stream() -> rota.StreamSession:
        made = rota.StreamSession(tmp_path / "s", rows_max=1, every_s=0, state_every=10)
        made.register_files("c", tmp_path / "in", on_missing="skip")
        made.register_window("w", "c", time="at", tumbling_s=100, aggregates={"n": "count(*)"})
        return made

    for number in range(4):
        put(tmp_path / "in", str(number), at=[number])
    stream().run()
    gone = (tmp_path / "in" / "1.parquet").rename(tmp_path / "1.parquet")
    with refused("stream.source", "round 2 ", "c.rows "):
        stream().start()
    gone.rename(tmp_path / "in" / "1.parquet")
    stream().start().close()


def test_plans_from_before_a_restore_neither_count_nor_keep_it_busy(tmp_path: Path) -> None:
    def stream(rows_max: int) -> rota.StreamSession:
        made = rota.StreamSession(tmp_path / "s", rows_max=rows_max, every_s=0)
        made.register_files("c", tmp_path / "in")
        return made

    for number in range(4):
        put(tmp_path / "in", str(number), v=[number])
    stream(1).run()
    with stream(2).start(follow=False, restore=1) as running:
        assert [each.rows["c"]["v"].to_pylist() for each in running] == [[1, 2], [3]]
        assert not running._stream.is_behind  # pyright: ignore[reportPrivateUsage] - what it was told is nowhere else


@pytest.mark.parametrize("starts", [1, 5])
def test_a_file_with_other_columns_is_told_of_once_however_often_the_stream_is_started(
    tmp_path: Path, starts: int
) -> None:
    put(tmp_path / "in", "0", v=[1])
    put(tmp_path / "in", "1", z=list(range(10)))
    counts: dict[str, int] = {}
    for start in range(starts):
        stream = rota.StreamSession(tmp_path / "s", rows_max=3, every_s=0)
        schema = pa.schema([("v", pa.int64())])
        stream.register_files("c", tmp_path / "in", schema=schema, on_schema="dead_letter")
        with stream.start(follow=False) as running:
            for _ in running:
                if start < starts - 1:
                    break
            assert running.last is not None
            counts = running.last.counts
    assert counts == {"c.rows": 1, "c.dead": 1}


def test_a_file_that_is_gone_half_way_is_told_of(tmp_path: Path) -> None:
    put(tmp_path / "in", "0", v=list(range(6)))

    def started() -> Running:
        stream = rota.StreamSession(tmp_path / "s", rows_max=3, every_s=0)
        stream.register_files("c", tmp_path / "in", schema=pa.schema([("v", pa.int64())]), on_missing="dead_letter")
        return stream.start(follow=False)

    with started() as running:
        next(iter(running))
    (tmp_path / "in" / "0.parquet").unlink()
    with started() as running:
        list(running)
        assert running.last is not None
        assert running.last.counts == {"c.rows": 3, "c.dead": 1}


@pytest.mark.parametrize("times", [pa.array([1, 2**60], pa.timestamp("s")), pa.array([1_000, 2**64 - 1], pa.uint64())])
def test_a_time_that_is_more_than_fits_is_no_time(tmp_path: Path, times: pa.Array) -> None:
    stream = rota.StreamSession(tmp_path, every_s=0)
    stream.register_rows("c", pa.table({"at": times, "k": [1, 2]}))
    stream.register_window("w", "c", time="at", tumbling_s=1, by=["k"], aggregates={"n": "count(*)"})
    (only,) = stream.run()
    assert [row["k"] for row in only.rows["w"].to_pylist()] == [1]
    (dead,) = (tmp_path / "dead" / "w").glob("part-*")
    assert "has no time" in pq.read_table(dead)["reason"][0].as_py()
