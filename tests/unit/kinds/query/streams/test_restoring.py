"""Ways that rounds went: which of them two rounds have in common, and what sinks have after a stream went back."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rota
from rota.core.errors import Refused
from rota.kinds.query.streams.manifests import Manifest
from rota.wire.standings import read_told
from tests.refusals import refused

pytestmark = pytest.mark.slow


def round_at(number: int, *branches: tuple[int, int], stream: str = "s") -> Manifest:
    return Manifest(position=0, round=number, stream=stream, branches=branches)


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        (round_at(3), round_at(7), 3),
        (round_at(7), round_at(3), 3),
        (round_at(3), round_at(3), 3),
        # The other went back to round 3, at position 9.
        (round_at(3), round_at(5, (3, 9)), 3),
        (round_at(4), round_at(5, (3, 9)), 3),
        (round_at(2), round_at(5, (3, 9)), 2),
        (round_at(4), round_at(3, (3, 9)), 3),
        # Both went back, to different rounds, or twice to the same.
        (round_at(6, (3, 9)), round_at(6, (5, 12)), 3),
        (round_at(6, (3, 9)), round_at(6, (3, 12)), 3),
        (round_at(6, (3, 9)), round_at(8, (3, 9)), 6),
        (round_at(8, (3, 9)), round_at(8, (3, 9), (6, 20)), 6),
        # Of another stream.
        (round_at(3, stream="t"), round_at(3), 0),
    ],
)
def test_rounds_are_shared_up_to_where_ways_part(one: Manifest, other: Manifest, shared: int) -> None:
    assert one.shared_with(other) == shared


def test_a_way_is_as_long_as_what_led_to_a_round() -> None:
    assert round_at(5).branched(20) == ((5, 20),)
    assert round_at(5, (3, 9)).branched(20) == ((3, 9), (5, 20))
    assert round_at(3, (3, 9)).branched(20) == ((3, 20),), "the copy of round 3 led to nothing else"


def stream(folder: Path, *, to_folder: bool = True) -> rota.StreamSession:
    made = rota.StreamSession(folder / "s", every_s=0)
    made.register_files("c", folder / "in")
    # Every row but the first is late.
    made.register_window("w", "c", time="at", tumbling_s=1, aggregates={"n": "count(*)"})
    made.call("w", lambda _rows, _number: None)
    if to_folder:
        made.write_files("c", folder / "out")
    return made


def filled(folder: Path, *, to_folder: bool = True) -> None:
    """Four rounds, each with a row, and a savepoint after each."""
    (folder / "in").mkdir()
    for number in range(4):
        pq.write_table(pa.table({"at": [10_000 - 1_000 * number]}), folder / "in" / f"{number}.parquet")
        with stream(folder, to_folder=to_folder).start(follow=False) as running:
            for each in running:
                running.savepoint(f"after-{each.number}")


def restore(folder: Path, which: Any, *, to_folder: bool = True) -> None:
    with stream(folder, to_folder=to_folder).start(follow=False, restore=which) as running:
        list(running)


def times_in(folder: Path) -> list[int]:
    return sorted(at for path in folder.rglob("part-*") for at in pq.read_table(path)["at"].to_pylist())


def test_a_folder_never_has_rows_of_two_ways(tmp_path: Path) -> None:
    filled(tmp_path)
    whole = [7_000, 8_000, 9_000, 10_000]
    assert times_in(tmp_path / "out") == whole
    restore(tmp_path, "after-1")
    assert times_in(tmp_path / "out") == whole, "round 2 has three rows now"
    for which in ("after-3", "after-2", 3):
        with refused("stream.sink", str(tmp_path / "out"), "up to 1 ", path="restore"):
            restore(tmp_path, which)
    assert times_in(tmp_path / "out") == whole
    restore(tmp_path, "after-1")
    stream(tmp_path).run()
    assert times_in(tmp_path / "out") == whole
    assert times_in(tmp_path / "s" / "late" / "w") == whole[:-1]


def test_a_stream_at_work_goes_to_no_other_way_either(tmp_path: Path) -> None:
    filled(tmp_path)
    restore(tmp_path, "after-1")
    with stream(tmp_path).start(follow=False) as running:
        with refused("stream.sink", str(tmp_path / "out"), "round 3", "up to 1 ", path="restore"):
            running._stream.restore(tmp_path / "s" / "savepoints" / "after-3.round")
        list(running)
    assert times_in(tmp_path / "out") == [7_000, 8_000, 9_000, 10_000]


def test_without_a_folder_any_way_can_be_gone_and_what_was_set_aside_is_there_once(tmp_path: Path) -> None:
    filled(tmp_path, to_folder=False)
    for which in ("after-1", "after-3", "after-2", "after-4", "after-1"):
        restore(tmp_path, which, to_folder=False)
        late = times_in(tmp_path / "s" / "late" / "w")
        assert len(late) == len(set(late)), which
    assert late == [7_000, 8_000, 9_000]


def test_what_lies_elsewhere_is_not_gone_on_from_over_rows_of_its_own(tmp_path: Path) -> None:
    for name in ("one", "two"):
        made = rota.StreamSession(tmp_path / name, rows_max=1, every_s=0)
        made.register_rows("c", pa.table({"at": [1, 2, 3]}))
        made.write_files("c", tmp_path / "out")
        if name == "two":
            made.run()
            with pytest.raises(Refused, match=r"stream\.sink.*up to 0"):
                made.start(restore=tmp_path / "one" / "savepoints" / "x.round")
        else:
            with made.start(follow=False) as running:
                for each in running:
                    if each.number == 2:
                        running.stop(savepoint="x")


# What reads what it writes.


@pytest.mark.parametrize(
    ("folder", "out", "form", "is_refused"),
    [
        ("s", "out", "parquet", False),
        ("in/s", "out", "parquet", True),
        ("in/_s", "out", "parquet", False),
        ("in/below/s", "out", "parquet", True),
        ("link/s", "out", "parquet", True),
        ("s", "in", "parquet", True),
        ("s", "in/out", "parquet", True),
        ("s", "in/.out", "parquet", False),
        ("s", "in/out", "csv", False),
        ("s", "inside", "parquet", False),
    ],
)
def test_a_stream_does_not_read_what_it_writes(
    tmp_path: Path, folder: str, out: str, form: Any, is_refused: bool
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    pq.write_table(pa.table({"at": [1]}), tmp_path / "in" / "a.parquet")
    made = rota.StreamSession(tmp_path / folder, every_s=0)
    made.register_files("c", tmp_path / "in")
    made.write_files("c", tmp_path / out, form)
    if is_refused:
        with refused("field.value", " c (", str(tmp_path / "in"), path="folder"):
            made.start()
        assert not (tmp_path / folder).exists()
    else:
        made.run()
        made.run()
        assert sum(1 for _ in (tmp_path / out).glob("part-*")) == 1


# How it stands, and how it ends.


def test_why_a_stream_could_not_begin_is_told(tmp_path: Path) -> None:
    has_failed = False

    def take(_rows: pa.Table, _number: int) -> None:
        if has_failed:
            raise ValueError("boom")

    def made() -> rota.StreamSession:
        stream = rota.StreamSession(tmp_path, rows_max=1, every_s=0)
        stream.register_rows("r", pa.table({"at": [1, 2, 3]}))
        stream.call("r", take)
        return stream

    with made().start(follow=False) as running:
        next(iter(running))
    has_failed = True
    with pytest.raises(Refused, match="boom"):
        made().start()
    told = read_told(tmp_path)
    assert told is not None
    assert (told.ended, told.incarnation, told.round) == ("failed", 2, 1)
    assert "boom" in told.trouble


def test_a_stream_stops_with_its_savepoint_or_not_at_all(tmp_path: Path) -> None:
    made = rota.StreamSession(tmp_path, rows_max=1, every_s=0)
    made.register_rows("r", pa.table({"at": [1, 2, 3]}))
    numbers: list[int] = []
    with made.start(follow=False) as running:
        with refused("stream.unknown", "round"):
            running.stop(savepoint="x")
        for each in running:
            numbers.append(each.number)
            if each.number == 1:
                running.savepoint("x")
                with refused("field.value", "'x'", path="name"):
                    running.stop(savepoint="x")
            if each.number == 2:
                running.stop(savepoint="y")
    assert numbers == [1, 2]


def test_a_rate_that_begins_at_another_time_is_another_stream(tmp_path: Path) -> None:
    def made(from_ms: int) -> rota.StreamSession:
        stream = rota.StreamSession(tmp_path, rows_max=10, every_s=0)
        stream.register_rate("r", 1_000, partitions=2, rows=10, from_ms=from_ms)
        return stream

    assert sum(each.rows["r"].num_rows for each in made(1_700_000_000_000).run()) == 20, "ten of each partition"
    with pytest.raises(Refused, match=r"stream\.definition"):
        made(1_600_000_000_000).start()


def test_a_folder_stays_where_it_was_whatever_the_program_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    made = rota.StreamSession("s", rows_max=1, every_s=0)
    made.register_rows("r", pa.table({"at": [1, 2]}))
    with made.start(follow=False) as running:
        for _ in running:
            monkeypatch.chdir(tmp_path / "elsewhere")
    assert running.last is not None
    assert running.last.round == 2


def test_columns_of_late_rows_are_looked_at_when_their_sink_is_named(tmp_path: Path) -> None:
    made = rota.StreamSession(tmp_path / "s", every_s=0)
    made.register_rows("r", pa.table({"at": [1], "l": [[1]]}))
    made.register_window("w", "r", time="at", tumbling_s=1, aggregates={"n": "count(*)"})
    with pytest.raises(Refused, match=r"query\.type"):
        made.write_files("w.late", tmp_path / "late", "csv")
    made.write_files("w.late", tmp_path / "late")
    made.write_files("w.dead", tmp_path / "dead", "csv")
    assert [each.rows["w"]["n"].to_pylist() for each in made.run()] == [[1]]


# Statements.


@pytest.mark.parametrize(
    "sql", ["drop table names", "create table z as select 1 as x", "drop table r", "insert into names values ('b')"]
)
def test_a_view_that_is_refused_has_changed_nothing(tmp_path: Path, sql: str) -> None:
    session = rota.Session()
    session.register_table("names", pa.table({"k": ["a"]}))
    made = rota.StreamSession(tmp_path, tables=session, every_s=0)
    made.register_rows("r", pa.table({"k": ["a"]}))
    with pytest.raises(Refused, match=r"query\."):
        made.register_view("v", sql)
    made.register_view("v", "select r.k from r join names on r.k = names.k")
    assert [each.rows["v"].num_rows for each in made.run()] == [1]
    with pytest.raises(Refused, match=r"query\.table"):
        session.sql("select * from z").to_pylist()


@pytest.mark.parametrize(
    ("values", "is_taken"),
    [
        (pa.array([1, 2], pa.int32()), True),
        (pa.array([1, 2], pa.uint64()), True),
        (pa.array([1.5, 2], pa.float32()), True),
        (pa.array(["1", "x"]), False),
        (pa.array([True, False]), False),
        (pa.array([1, 2], pa.duration("us")), False),
        (pa.array([1, 2]).cast(pa.decimal128(21, 2)), False),
    ],
)
def test_averages_are_what_the_engine_makes_of_them_or_refused(
    tmp_path: Path, values: pa.Array, is_taken: bool
) -> None:
    rows = pa.table({"at": [1, 2], "x": values})
    made = rota.StreamSession(tmp_path, every_s=0)
    made.register_rows("r", rows)
    given: dict[str, Any] = {"time": "at", "tumbling_s": 1}
    if not is_taken:
        with refused("query.type", "a of r ", str(values.type), path="aggregates.a"):
            made.register_window("w", "r", aggregates={"a": "avg(x)"}, **given)
        return
    made.register_window("w", "r", aggregates={"a": "avg(x)", "b": "avg(x) filter (where x > 1)"}, **given)
    session = rota.Session()
    session.register_table("r", rows)
    wanted = session.sql("select avg(x) as a, avg(x) filter (where x > 1) as b from r").to_arrow()
    assert [each.rows["w"].select(["a", "b"]).to_pylist() for each in made.run()] == [wanted.to_pylist()]
