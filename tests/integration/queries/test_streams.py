"""Streams in one program: restarted, saved and restored, with rows and files that are not as they should be."""

import csv
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rota
from rota.core.errors import Refused
from rota.wire.capabilities import Guarantee
from tests.integration.queries import stream_program as program
from tests.integration.queries.test_streams_that_are_killed import check
from tests.refusals import refused

BASE = 1_700_000_000_000
NOW = BASE + 1_000_000


def rows(*times: int | None, key: str = "a") -> pa.Table:
    schema = pa.schema([("t", pa.int64()), ("k", pa.string()), ("v", pa.int64())])
    return pa.Table.from_pylist(
        [{"t": None if at is None else BASE + at, "k": key, "v": 1} for at in times], schema=schema
    )


def windowed(folder: Path, *tables: pa.Table, **more: Any) -> rota.StreamSession:
    session = {name: more.pop(name) for name in ("rows_max", "parallelism", "state_every") if name in more}
    stream = rota.StreamSession(folder, every_s=0, **session)
    stream.register_rows("s", *tables)
    options = {"tumbling_s": 1, "by": ["k"], "aggregates": {"n": "count(*)"}, **more}
    stream.register_window("w", "s", time="t", **options)
    return stream


def given(stream: rota.StreamSession, name: str = "w", **options: Any) -> list[tuple[Any, ...]]:
    """Starts and counts of all windows that a run gives, each round once."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    with stream.start(now_ms=lambda: NOW, **options) as running:
        for each in running:
            if name in each.rows:
                table = each.rows[name].to_pylist()
                found[each.number] = sorted((row["window_start"] - BASE, row["n"]) for row in table)
    return sorted(row for each in found.values() for row in each)


@pytest.mark.full
def test_another_batch_size_and_parallelism_after_a_restart_give_the_same(tmp_path: Path) -> None:
    """What was planned is read as it was planned, and late rows are late again."""
    answers: list[Any] = []
    for name, sizes in (("once", [(30, 1)]), ("often", [(30, 1), (500, 3), (7, 2)])):
        folder = tmp_path / name
        (folder / "in").mkdir(parents=True)
        rows = program.make_rows(folder / "in")
        for number, (rows_max, parallelism) in enumerate(sizes):
            stream = program.stream(folder, rows_max=rows_max, parallelism=parallelism)
            with stream.start(follow=False) as running:
                for each in running:
                    if number < len(sizes) - 1 and each.number >= 3 * (number + 1):
                        break
        check(folder, rows)
        answers.append(rows)
    assert answers[0].equals(answers[1])


@pytest.mark.parametrize("lateness_s", [0, 3])
@pytest.mark.parametrize("shape", [{"tumbling_s": 1}, {"sliding_s": (2, 0.5)}, {"session_s": 0.4}], ids=str)
def test_any_window_goes_on_with_another_parallelism_as_if_nothing_had_happened(
    tmp_path: Path, shape: dict[str, Any], lateness_s: float
) -> None:
    chance = random.Random(3)
    times = [at * 50 - chance.randrange(1_500) for at in range(160)]
    table = pa.table({"t": [BASE + at for at in times], "k": [chance.choice("abcdef") for _ in times], "v": times})

    def stream(name: str, parallelism: int) -> rota.StreamSession:
        found = rota.StreamSession(tmp_path / name, rows_max=16, parallelism=parallelism, every_s=0)
        found.register_rows("s", table)
        options = {**shape, "watermark_delay_s": 0.5, "allowed_lateness_s": lateness_s}
        found.register_window("w", "s", time="t", by=["k"], aggregates={"n": "count(*)", "v": "sum(v)"}, **options)
        return found

    def rounds(name: str, *parallelisms: int) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for number, parallelism in enumerate(parallelisms):
            with stream(name, parallelism).start(now_ms=lambda: NOW) as running:
                for each in running:
                    found[each.number] = sorted(str(row) for row in each.rows.get("w", pa.table({})).to_pylist())
                    if each.number >= 3 * (number + 1) and number < len(parallelisms) - 1:
                        break
        return found

    assert rounds("often", 1, 3, 2) == rounds("once", 1)


def test_a_range_that_was_written_down_is_read_as_such_by_who_has_another_batch_size(tmp_path: Path) -> None:
    times = [*range(0, 5_000, 100), *range(0, 1_000, 100), 9_000]
    with windowed(tmp_path, rows(*times), rows_max=10).start(now_ms=lambda: NOW) as running:
        first = next(iter(running)).manifest
        assert first.next is not None, "more was waiting, so the next range is known"
    with windowed(tmp_path, rows(*times), rows_max=1_000).start(now_ms=lambda: NOW) as running:
        found = [each.manifest.plan for each in running]
    assert found[0] == first.next
    assert [plan.ranges[0].end for plan in found if plan is not None] == [(20,), (61,)]


def test_a_stream_goes_on_from_a_savepoint_and_takes_back_what_came_after_it(tmp_path: Path) -> None:
    times = range(0, 10_000, 100)

    def stream(parallelism: int = 1) -> rota.StreamSession:
        found = windowed(tmp_path / "s", rows(*times), rows_max=20, parallelism=parallelism, state_every=3)
        found.write_files("w", tmp_path / "out")
        return found

    with stream().start(now_ms=lambda: NOW) as running:
        for each in running:
            if each.number == 2:
                running.stop(savepoint="two")
    assert each.number == 2
    whole = given(stream(), restore="two")
    assert whole == [], "rows are in files"
    before = _files(tmp_path / "out")
    assert sum(count for _, count in before) == 100
    assert given(stream(parallelism=3), restore="two") == []
    assert _files(tmp_path / "out") == before
    with stream().start(now_ms=lambda: NOW) as running:
        assert running.last is not None
        assert list(running) == [], "it is over"
    with pytest.raises(Refused, match=r"stream\.unknown"):
        stream().start(restore="three")


def _files(folder: Path) -> list[tuple[int, int]]:
    tables = [pq.read_table(path).to_pylist() for path in sorted(folder.glob("part-*.parquet"))]
    return sorted((row["window_start"] - BASE, row["n"]) for table in tables for row in table)


def test_any_round_that_is_kept_can_be_restored(tmp_path: Path) -> None:
    times = range(0, 5_000, 100)
    whole = given(windowed(tmp_path, rows(*times), rows_max=10))
    for number in (1, 3):
        again = given(windowed(tmp_path, rows(*times), rows_max=50), restore=number)
        assert again == [row for row in whole if row in again]
        assert again[-1] == whole[-1]
    with refused("stream.unknown", "77", path="round"):
        windowed(tmp_path, rows(*times)).start(restore=77)


def test_a_damaged_round_is_told_and_made_again(tmp_path: Path) -> None:
    times = range(0, 5_000, 100)
    whole = given(windowed(tmp_path / "whole", rows(*times), rows_max=10))
    with windowed(tmp_path / "s", rows(*times), rows_max=10).start(now_ms=lambda: NOW) as running:
        first = [next(each) for each in [iter(running)] for _ in range(3)]
    (newest,) = sorted((tmp_path / "s" / "rounds").glob("*.round"))[-1:]
    content = newest.read_bytes()
    newest.write_bytes(content[:-100] + bytes(100))
    with windowed(tmp_path / "s", rows(*times), rows_max=10).start(now_ms=lambda: NOW) as running:
        assert ["state of w (partition 0)" in reason for _, reason in running.skipped] == [True]
        rest = list(running)
    found = {each.number: each.rows["w"] for each in [*first, *rest] if "w" in each.rows}
    assert (
        sorted((row["window_start"] - BASE, row["n"]) for each in found.values() for row in each.to_pylist()) == whole
    )


def test_a_stream_that_was_put_together_otherwise_is_refused_before_anybody_is_deposed(tmp_path: Path) -> None:
    with windowed(tmp_path, rows(1, 2_000), rows_max=1).start(now_ms=lambda: NOW) as running:
        rounds = iter(running)
        next(rounds)
        with pytest.raises(Refused, match=r"stream\.definition"):
            windowed(tmp_path, rows(1, 2_000), tumbling_s=2).start()
        assert next(rounds).number == 2, "whoever was at it goes on"


def test_whoever_starts_the_same_stream_deposes_the_other(tmp_path: Path) -> None:
    times = range(0, 5_000, 100)
    with windowed(tmp_path, rows(*times), rows_max=5).start(now_ms=lambda: NOW) as old:
        rounds = iter(old)
        next(rounds)
        with windowed(tmp_path, rows(*times), rows_max=5).start(now_ms=lambda: NOW) as new:
            with pytest.raises(Refused, match=r"stream\.fenced"):
                next(rounds)
            assert [each.number for each in new] == list(range(2, 11))


# Rows that cannot be used.


def test_rows_without_a_time_and_from_the_far_future_are_kept_with_a_reason(tmp_path: Path) -> None:
    table = rows(0, None, 10**12, 500, 5_000)
    stream = windowed(tmp_path, table, rows_max=2)
    assert given(stream) == [(0, 2), (5_000, 1)], "the far future has not moved time"
    dead = [
        row for path in sorted((tmp_path / "dead" / "w").glob("*.parquet")) for row in pq.read_table(path).to_pylist()
    ]
    assert ["(t)" in row["reason"] for row in dead] == [True, True]
    assert ["3600 s" in row["reason"] for row in dead] == [False, True]
    assert '"t":null' in dead[0]["row"]
    assert f'"t":{BASE + 10**12}' in dead[1]["row"]


def test_such_rows_can_fail_the_stream_or_be_left_out_and_counted(tmp_path: Path) -> None:
    with refused("stream.row", "(t)", '"t":null'):
        given(windowed(tmp_path / "fail", rows(0, None), on_no_time="fail"))
    stream = windowed(tmp_path / "skip", rows(0, None), on_no_time="skip")
    with stream.start(now_ms=lambda: NOW) as running:
        list(running)
        assert running.last is not None
        assert running.last.counts["w.skipped"] == 1


def test_late_rows_are_counted_and_kept(tmp_path: Path) -> None:
    stream = windowed(tmp_path, rows(0, 100, 5_000, 200, 6_000), rows_max=3)
    assert given(stream) == [(0, 2), (5_000, 1), (6_000, 1)]
    (late,) = sorted((tmp_path / "late" / "w").glob("*.parquet"))
    assert pq.read_table(late).to_pylist() == rows(200).to_pylist()


def files(folder: Path, stream: Path, form: Any = "csv", **options: Any) -> rota.StreamSession:
    found = rota.StreamSession(stream, every_s=0)
    schema = pa.schema([("t", pa.timestamp("ms")), ("v", pa.int64())])
    found.register_files("s", folder, form, schema=schema, **options)
    return found


def _rows_of(running: Any) -> list[int]:
    return [row["v"] for each in running for row in each.rows.get("s", pa.table({})).to_pylist()]


@pytest.mark.parametrize("form", ["csv", "json"])
def test_lines_that_cannot_be_read_are_kept_and_the_others_count(tmp_path: Path, form: str) -> None:
    (tmp_path / "in").mkdir()
    lines = {
        "csv": "t,v\n2026-01-01T00:00:00,1\n2026-01-01T00:00:01,two\n3\n2026-01-01T00:00:02,4\n",
        "json": '{"t":"2026-01-01T00:00:00","v":1}\n{"t":"2026-01-01T00:00:01","v":"two"}\n{"t\n'
        '{"t":"2026-01-01T00:00:02","v":4}\n',
    }
    (tmp_path / "in" / f"a.{form}").write_text(lines[form])
    with files(tmp_path / "in", tmp_path / "s", form, bounded=True).start() as running:
        assert _rows_of(running) == [1, 4]
        assert running.last is not None
        assert running.last.counts["s.dead"] == 2
    with (
        pytest.raises(Refused, match=r"stream\.row"),
        files(tmp_path / "in", tmp_path / "f", form, bounded=True, on_poison="fail").start() as running,
    ):
        list(running)


def test_new_files_are_read_once_and_in_the_order_in_which_they_were_seen(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()

    def add(name: str, *values: int) -> None:
        with (tmp_path / "in" / f"_{name}").open("w", newline="") as file:
            csv.writer(file).writerows([["t", "v"], *(["2026-01-01T00:00:00", value] for value in values)])
        (tmp_path / "in" / f"_{name}").rename(tmp_path / "in" / name)

    add("z.csv", 1, 2)
    with files(tmp_path / "in", tmp_path / "s").start(follow=False) as running:
        assert _rows_of(running) == [1, 2]
    add("a.csv", 3)
    with files(tmp_path / "in", tmp_path / "s").start(follow=False) as running:
        assert _rows_of(running) == [1, 2, 3], "the last round again, since nobody knows whether it arrived"
    with files(tmp_path / "in", tmp_path / "s").start(follow=False) as running:
        assert _rows_of(running) == [3]


def test_other_columns_and_files_that_are_gone_are_what_the_policies_say(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("t,w\n2026-01-01T00:00:00,1\n")
    with pytest.raises(Refused, match=r"stream\.row: file a\.csv: .*\bv\b"):
        list(files(tmp_path / "in", tmp_path / "s", bounded=True).start())
    with files(tmp_path / "in", tmp_path / "t", bounded=True, on_schema="dead_letter").start() as running:
        assert _rows_of(running) == []
        assert running.last is not None
        assert running.last.counts == {"s.dead": 1}
    stream = files(tmp_path / "in", tmp_path / "u", bounded=True, on_missing="skip")
    with stream.start() as running:
        running._stream._plan(1, {}, {})
        (tmp_path / "in" / "a.csv").unlink()
        assert _rows_of(running) == []
        assert running.last is not None
        assert running.last.counts == {"s.skipped": 1}


# Views, tables, sinks.


def test_a_view_joins_rows_with_a_table_and_what_needs_all_rows_is_refused(tmp_path: Path) -> None:
    tables = rota.Session()
    tables.register_table("names", pa.table({"k": ["a", "b"], "name": ["Ada", "Bob"]}))
    stream = rota.StreamSession(tmp_path, tables=tables, every_s=0)
    stream.register_rows("s", rows(0, 1_500), rows(100, 1_600, key="b"))
    stream.register_view("named", "select s.*, name from s join names using (k)")
    stream.register_window("w", "named", time="t", tumbling_s=1, by=["name"], aggregates={"n": "count(*)"})
    stream.register_view("out", "select name, window_start, n from w where n >= 1")
    for sql in (
        "select k, count(*) from s group by k",
        "select distinct k from s",
        "select * from s order by t",
        "select * from s limit 1",
        "select *, row_number() over (order by t) from s",
        "select * from s where v = (select max(v) from s)",
        "select a.k from s a join s b on a.k = b.k",
        "select names.* from names left join s using (k)",
        "select 1",
        "select s.k from s, w",
    ):
        with pytest.raises(Refused, match=r"query\.unsupported"):
            stream.register_view("no", sql)
    found = [row for each in stream.start(now_ms=lambda: NOW) for row in each.rows.get("out", pa.table({})).to_pylist()]
    assert sorted((row["name"], row["window_start"] - BASE, row["n"]) for row in found) == [
        ("Ada", 0, 1),
        ("Ada", 1_000, 1),
        ("Bob", 0, 1),
        ("Bob", 1_000, 1),
    ]


def test_rows_that_a_view_cannot_be_computed_for_are_found_and_the_others_count(tmp_path: Path) -> None:
    def stream(name: str, **options: Any) -> rota.StreamSession:
        found = rota.StreamSession(tmp_path / name, every_s=0)
        found.register_rows("s", pa.table({"x": [1, 2, 0, 4, 5, 0]}))
        found.register_view("v", "select 20 / x as y from s", **options)
        return found

    with pytest.raises(Refused, match=r"[Dd]ivide by zero"):
        stream("fail").run()
    (round_,) = stream("keep", on_error="dead_letter").run()
    assert round_.rows["v"]["y"].to_pylist() == [20, 10, 5, 4]
    assert round_.manifest.counts["v.dead"] == 2


def test_what_is_kept_can_be_looked_at(tmp_path: Path) -> None:
    stream = windowed(tmp_path, rows(0, 100, 1_500), rows_max=2, parallelism=2)
    with stream.start(now_ms=lambda: NOW) as running:
        next(iter(running))
        (panes,) = windowed(tmp_path, rows(0)).state("w").values()
        assert [(row["_pane"] - BASE, row["_a0"]) for row in panes.to_pylist()] == [(0, 2)]


def test_what_was_late_is_taken_back_with_its_round_and_what_others_put_aside_goes(tmp_path: Path) -> None:
    times = (0, 100, 5_000, 200, 6_000, 300, 9_000)
    given(windowed(tmp_path, rows(*times), rows_max=3))
    late = tmp_path / "late" / "w"
    before = sorted(path.name for path in late.glob("part-*"))
    (late / "_rota-stream").mkdir(exist_ok=True)
    left = f"w.late-000000000009-{(tmp_path / 'identity').read_text()[:8]}-1.parquet"
    (late / "_rota-stream" / left).write_bytes(b"of one that was killed")
    with windowed(tmp_path, rows(*times), rows_max=3).start(restore=1, now_ms=lambda: NOW) as running:
        assert not list(late.glob("part-*"))
        assert not list((late / "_rota-stream").glob("*.parquet"))
        list(running)
    assert sorted(path.name for path in late.glob("part-*")) == before != []


def test_columns_that_are_called_like_those_of_the_state_are_refused(tmp_path: Path) -> None:
    stream = rota.StreamSession(tmp_path)
    stream.register_rows("s", pa.table({"t": [1], "_pane": [1]}))
    with pytest.raises(Refused, match=r"query\.column"):
        stream.register_window("w", "s", time="t", tumbling_s=1, aggregates={"n": "count(*)"})


def test_time_is_carried_from_window_to_window(tmp_path: Path) -> None:
    stream = windowed(tmp_path, rows(*range(0, 20_000, 100)), rows_max=20)
    stream.register_window(
        "more", "w", time="window_start", tumbling_s=5, by=["k"], aggregates={"n": "sum(n)"}, watermark_delay_s=1
    )
    assert given(stream, "more") == [(0, 50), (5_000, 50), (10_000, 50), (15_000, 50)]
    assert not list((tmp_path / "late").rglob("*.parquet"))
    again = windowed(tmp_path / "x", rows(1), allowed_lateness_s=1)
    with pytest.raises(Refused, match="would count both"):
        again.register_window("more", "w", time="window_start", tumbling_s=5, aggregates={"n": "sum(n)"})


def test_the_guarantee_is_that_of_the_weakest_part(tmp_path: Path) -> None:
    stream = windowed(tmp_path, rows(1))
    assert stream.guarantee() is Guarantee.AT_LEAST_ONCE
    stream.write_files("w", tmp_path / "out")
    assert stream.guarantee() is Guarantee.EXACTLY_ONCE
    stream.call("w", lambda table, number: None)
    assert stream.guarantee() is Guarantee.AT_LEAST_ONCE
    assert [str(each.guarantee) for each in stream.parts()][:3] == ["exactly once", "exactly once", "at least once"]


def test_a_function_that_refuses_is_called_again_with_the_same_round(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []

    def refuse(table: pa.Table, number: int) -> None:
        told.append((number, table.num_rows))
        if len(told) == 1:
            raise ValueError("not now")

    def stream() -> rota.StreamSession:
        found = windowed(tmp_path, rows(0, 1_500))
        found.call("w", refuse)
        return found

    with pytest.raises(Refused, match=r"stream\.sink: .* raised ValueError .*: not now"):
        list(stream().start(now_ms=lambda: NOW))
    list(stream().start(now_ms=lambda: NOW))
    assert told == [(1, 2), (1, 2)]


def test_a_stream_stands_still_while_it_is_paused(tmp_path: Path) -> None:
    with windowed(tmp_path, rows(0, 1_500, 3_000), rows_max=1).start(now_ms=lambda: NOW) as running:
        rounds = iter(running)
        next(rounds)
        running.pause()

    with windowed(tmp_path, rows(0, 1_500, 3_000), rows_max=1).start(now_ms=lambda: NOW) as running:
        running.resume()
        assert [each.number for each in running if not each.is_again] == [2, 3]


def test_nothing_is_missing_in_a_csv_file_but_what_is_empty(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text('at,country,v\n1,NA,nan\n2,"NULL",1.5\n3,null,inf\n4,,2\n')
    schema = pa.schema([("at", pa.int64()), ("country", pa.string()), ("v", pa.float64())])
    stream = rota.StreamSession(tmp_path / "s")
    stream.register_files("f", tmp_path / "in", "csv", bounded=True, schema=schema)
    (round_,) = stream.run()
    session = rota.Session()
    session.register_csv("f", tmp_path / "in" / "a.csv")
    wanted = session.sql("select country from f order by at").to_pylist()
    assert round_.rows["f"].select(["country"]).to_pylist() == wanted
    assert [str(value) for value in round_.rows["f"].column("v").to_pylist()] == ["nan", "1.5", "inf", "2.0"]


def test_a_view_that_would_repeat_rows_in_each_round_is_refused(tmp_path: Path) -> None:
    stream = rota.StreamSession(tmp_path)
    stream.register_rows("r", rows(1))
    with refused("query.unsupported", "UNION", path="sql"):
        stream.register_view("v", "select k from r union all select 'x'")
    stream.register_view("both", "select k from r union all select k || '!' from r")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("tumbling_s", -1),
        ("tumbling_s", float("nan")),
        ("tumbling_s", 1e18),
        ("tumbling_s", "1"),
        ("watermark_delay_s", -1),
        ("watermark_delay_s", float("inf")),
        ("allowed_lateness_s", -5),
        ("ahead_s", -1),
        ("on_no_time", "explode"),
        ("by", "k"),
        ("aggregates", ["count(*)"]),
        ("sliding_s", 10),
    ],
)
def test_options_of_a_window_that_mean_nothing_are_refused(tmp_path: Path, option: str, value: Any) -> None:
    stream = rota.StreamSession(tmp_path)
    stream.register_rows("s", rows(1))
    options: dict[str, Any] = {"aggregates": {"n": "count(*)"}, "tumbling_s": 1, option: value}
    if option == "sliding_s":
        del options["tumbling_s"]
    with pytest.raises(Refused) as refused:
        stream.register_window("w", "s", time="t", **options)
    assert refused.value.path.startswith(option)


def test_a_stream_that_failed_goes_on_under_another_policy(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="choose a policy"):
        windowed(tmp_path, rows(1, None, 2), on_no_time="fail").run()
    assert given(windowed(tmp_path, rows(1, None, 2), on_no_time="skip"), follow=False) == [(0, 2)]


def test_the_hour_that_is_there_twice_is_two_hours(tmp_path: Path) -> None:
    began = datetime(2024, 10, 27, 0, 30, tzinfo=UTC)
    times = pa.array([began + timedelta(hours=hour) for hour in range(3)], pa.timestamp("ms", "Europe/Berlin"))
    stream = rota.StreamSession(tmp_path)
    stream.register_rows("r", pa.table({"at": times}))
    stream.register_window("w", "r", time="at", tumbling_s=3600, aggregates={"n": "count(*)"})
    found = [row["n"] for each in stream.run() if "w" in each.rows for row in each.rows["w"].to_pylist()]
    assert found == [1, 1, 1]
