"""A table of PostgreSQL as a sink: each round once, by whoever holds the stream."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rota
from rota.core.errors import Refused
from rota.kinds.query.streams.chain import rounds_in
from rota.kinds.query.streams.postgres import PostgresSink
from rota.kinds.query.streams.refusing import Refusals
from rota.wire.capabilities import Guarantee
from rota.wire.standings import read_told
from tests.refusals import refused
from tests.servers.postgres import shared_server

BASE = 1_700_000_000_000
ROWS = pa.table({"t": [BASE + at for at in range(0, 6_000, 100)], "k": ["a", "b"] * 30, "v": [1] * 60})


def stream(folder: Path, url: str, **options: float) -> rota.StreamSession:
    found = rota.StreamSession(folder, rows_max=10, every_s=0)
    found.register_rows("s", ROWS)
    found.register_window(
        "w", "s", time="t", tumbling_s=1, by=["k"], aggregates={"n": "count(*)", "total": "sum(v)"}, **options
    )
    found.upsert("w", url, "totals", ["k", "window_start"])
    return found


@pytest.fixture
def url() -> str:
    return shared_server().new_database()


def totals(url: str) -> list[tuple[object, ...]]:
    return shared_server().execute("select k, window_start, n from totals order by 2, 1", url)


WHOLE = [(key, BASE + at, 5) for at in range(0, 6_000, 1_000) for key in "ab"]


def test_rows_are_upserted_and_a_restart_changes_nothing(tmp_path: Path, url: str) -> None:
    assert stream(tmp_path, url).guarantee() is Guarantee.EXACTLY_ONCE
    stream(tmp_path, url).run()
    assert totals(url) == WHOLE
    shared_server().execute("update totals set n = 99", url)
    stream(tmp_path, url).run()
    assert {row[2] for row in totals(url)} == {99}, "the last round was not upserted again"


def test_a_round_that_was_published_is_handed_over_after_the_table_could_not_be_reached(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., None] = PostgresSink.commit

    def lost(self: PostgresSink, node: str, number: int, *rest: object) -> None:
        if number == 3:
            raise Refused("stream.sink", "connection-lost")
        real(self, node, number, *rest)

    monkeypatch.setattr(PostgresSink, "commit", lost)
    with refused("stream.sink", "connection-lost"):
        stream(tmp_path, url).run()
    assert totals(url) != WHOLE
    monkeypatch.setattr(PostgresSink, "commit", real)
    stream(tmp_path, url).run()
    assert totals(url) == WHOLE


def test_whoever_was_deposed_cannot_commit(tmp_path: Path, url: str) -> None:
    old, new = (PostgresSink(url, "totals", ["k"]) for _ in range(2))
    rows = pa.table({"k": ["a"], "n": [1]})
    for sink in (old, new):
        sink.open("stream")
    new.commit("w", 1, 2, {}, lambda: rows)
    with pytest.raises(Refused, match=r"stream\.fenced"):
        old.commit("w", 2, 1, {}, lambda: rows)
    for sink in (old, new):
        sink.close()


def test_what_the_server_refuses_is_told_without_the_address(tmp_path: Path, url: str) -> None:
    shared_server().execute("create table totals (k int primary key)", url)
    with refused("stream.sink", "table totals", "k, window_start") as caught:
        stream(tmp_path, url).run()
    assert url not in str(caught.value)


@pytest.mark.parametrize("wrong", ["s3cr3t%zz", "s3cr3t@tail"])
def test_an_address_that_cannot_be_read_is_refused_without_its_password(wrong: str) -> None:
    sink = PostgresSink(f"postgresql://postgres:{wrong}@127.0.0.1:5999/postgres", "t", ["k"])
    with refused("field.value", path="url") as caught:
        sink.open("stream")
    assert "s3cr3t" not in str(caught.value)
    assert "tail" not in str(caught.value)


def test_sessions_that_are_gone_are_removed(url: str) -> None:
    sink = PostgresSink(url, "totals", ["k", "window_start"])
    sink.open("stream")
    first = pa.table({"k": ["a", "a"], "window_start": [1, 5], "n": [1, 1], "gone": [False, False]})
    second = pa.table({"k": ["a", "a"], "window_start": [1, 5], "n": [2, None], "gone": [False, True]})
    sink.commit("w", 1, 1, {}, lambda: first)
    sink.commit("w", 2, 1, {}, lambda: second)
    sink.close()
    assert shared_server().execute("select k, window_start, n from totals", url) == [("a", 1, 2)]


def test_two_tables_take_the_rows_of_one_node(tmp_path: Path, url: str) -> None:
    both = stream(tmp_path, url)
    both.upsert("w", url, "others", ["k", "window_start"])
    both.run()
    assert totals(url) == WHOLE
    assert shared_server().execute("select k, window_start, n from others order by 2, 1", url) == WHOLE


def test_whoever_takes_over_is_noted_also_where_nothing_is_taken_back(url: str) -> None:
    old, new = (PostgresSink(url, "totals", ["k"]) for _ in range(2))
    rows = pa.table({"k": ["a"], "n": [1]})
    for sink in (old, new):
        sink.open("stream")
    old.commit("w", 1, 1, {}, lambda: rows)
    new.take_back("w", 1, 2)
    with pytest.raises(Refused, match=r"stream\.fenced"):
        old.commit("w", 2, 1, {}, lambda: rows)
    new.commit("w", 1, 2, {}, lambda: pa.table({"k": ["a"], "n": [9]}))
    for sink in (old, new):
        sink.close()
    assert shared_server().execute("select n from totals", url) == [(1,)], "round 1 was there already"


def test_a_row_without_a_key_is_refused_and_named_before_its_round_is_published(tmp_path: Path, url: str) -> None:
    found = rota.StreamSession(tmp_path)
    found.register_rows("s", pa.table({"k": ["a", None], "v": [1, 77]}))
    found.upsert("s", url, "totals", ["k"])
    with refused("stream.sink", "round 1", "{'k': None, 'v': 77}"):
        found.run()
    assert rounds_in(tmp_path) == []


# Rows that the table refuses.

CHECKED = "create table totals (k text primary key, n bigint check (n < 50), owner int references owners)"
GIVEN = pa.table({"k": ["a", "b", None, "c", "d", "e"], "n": [1, 99, 2, 3, 77, 4], "owner": [1, 1, 1, 8, 1, 1]})


def refusing(folder: Path, url: str, policy: Literal["fail", "skip", "dead_letter"]) -> rota.StreamSession:
    found = rota.StreamSession(folder, rows_max=3, every_s=0)
    found.register_rows("s", GIVEN)
    found.upsert("s", url, "totals", ["k"], on_refused=policy)
    return found


def checked(url: str) -> None:
    shared_server().execute("create table owners (id int primary key)", url)
    shared_server().execute("insert into owners values (1)", url)
    shared_server().execute(CHECKED, url)


def kept(folder: Path) -> list[tuple[str, str]]:
    found = [pq.read_table(path) for path in sorted((folder / "refused" / "s").glob("part-*"))]
    return [(row["row"], row["reason"]) for table in found for row in table.to_pylist()]


def test_rows_that_a_table_refuses_are_kept_with_its_reason_and_all_others_arrive(tmp_path: Path, url: str) -> None:
    checked(url)
    refusing(tmp_path, url, "dead_letter").run()
    assert shared_server().execute("select k, n from totals order by 1", url) == [("a", 1), ("e", 4)]
    rows = kept(tmp_path)
    assert [msgspec.json.decode(row)["k"] for row, _ in rows] == [None, "b", "c", "d"]
    reasons = [reason for _, reason in rows]
    assert "table totals" in reasons[0]
    assert "violates" not in reasons[0], "it was not asked about that row"
    assert "violates check constraint" in reasons[1]
    assert "violates foreign key constraint" in reasons[2]
    told = read_told(tmp_path)
    assert told is not None
    assert told.counts["s.refused"] == 4, "those of the last round, too"


def test_rows_that_are_skipped_are_counted_once_however_often_the_last_round_is_handed_over(
    tmp_path: Path, url: str
) -> None:
    checked(url)
    for _ in range(3):
        refusing(tmp_path, url, "skip").run()
        told = read_told(tmp_path)
        assert told is not None
        assert told.counts["s.refused"] == 4
    assert kept(tmp_path) == []


def test_a_stream_that_failed_for_rows_of_its_table_goes_on_without_them_if_it_may(tmp_path: Path, url: str) -> None:
    checked(url)
    with refused("stream.sink", "round 1", "'k': None"):
        refusing(tmp_path, url, "fail").run()
    refusing(tmp_path, url, "dead_letter").run()
    assert len(kept(tmp_path)) == 4


def test_one_that_is_killed_between_keeping_rows_and_its_note_keeps_them_once(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked(url)
    with monkeypatch.context() as patch:

        def killed(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(PostgresSink, "_note", killed)
        sink = PostgresSink(url, "totals", ["k"], refusals=Refusals("dead_letter", tmp_path / "refused" / "s"))
        sink.open("stream")
        with pytest.raises(KeyboardInterrupt):
            sink.commit("s", 1, 1, {}, lambda: GIVEN)
        sink.close()
    assert len(kept(tmp_path)) == 4
    # The table is another one by now: what counts is what it says when the round is noted.
    shared_server().execute("insert into owners values (8)", url)
    sink.open("stream")
    sink.take_back("s", 1, 2)
    assert sink.commit("s", 1, 2, {}, lambda: GIVEN) == 3
    assert sink.commit("s", 1, 2, {}, lambda: GIVEN) == 3
    sink.close()
    assert [msgspec.json.decode(row)["k"] for row, _ in kept(tmp_path)] == [None, "b", "d"]
    assert shared_server().execute("select k from totals order by 1", url) == [("a",), ("c",), ("e",)]


def test_notes_of_an_older_version_are_gone_on_with(url: str) -> None:
    shared_server().execute(
        "create table rota_stream_tables (stream text, node text, target text, round bigint not null, "
        "incarnation numeric not null, primary key (stream, node, target))",
        url,
    )
    shared_server().execute("insert into rota_stream_tables values ('stream', 'w', 'totals', 7, 1)", url)
    sink = PostgresSink(url, "totals", ["k"])
    sink.open("stream")
    assert sink.commit("w", 7, 1, {}, lambda: GIVEN) == 0, "it was committed before"
    sink.close()


def test_a_column_called_gone_is_one_like_any_other_unless_sessions_say_so(tmp_path: Path, url: str) -> None:
    found = rota.StreamSession(tmp_path)
    found.register_rows("s", pa.table({"k": [1, 2, 3], "gone": [True, False, None], "100%s": ["a", "b", "c"]}))
    found.upsert("s", url, "some%s", ["k"])
    found.run()
    rows = shared_server().execute('select k, gone, "100%s" from "some%s" order by 1', url)
    assert rows == [(1, True, "a"), (2, False, "b"), (3, None, "c")]


@pytest.mark.parametrize(
    ("column", "keys", "complaint"),
    [
        (pa.array([[1]]), ["k"], r"query\.type.*v is list"),
        (pa.array([1], pa.duration("s")), ["k"], r"query\.type.*v is duration"),
        (pa.array([1]), ["nope"], r"query\.column.*\bnope\b.*at keys.*\bk, v\b"),
        (pa.array([1]), "k", r"field\.value.*at keys"),
    ],
)
def test_what_has_no_place_in_a_table_is_refused_at_the_door(
    tmp_path: Path, column: Any, keys: Any, complaint: str
) -> None:
    found = rota.StreamSession(tmp_path)
    found.register_rows("s", pa.table({"k": [1], "v": column}))
    with pytest.raises(Refused, match=complaint):
        found.upsert("s", "postgresql://127.0.0.1:1/nobody", "t", keys)


def test_moments_are_as_fine_as_a_table_has_them_and_those_beyond_python_are_refused_by_themselves(
    tmp_path: Path, url: str
) -> None:
    found = rota.StreamSession(tmp_path)
    moments = pa.array([1_500, None, 3], pa.timestamp("ns"))
    days = pa.array([0, 1, 3_000_000], pa.date32())
    times = pa.array([1, 2_500, 3], pa.time64("ns"))
    found.register_rows("s", pa.table({"k": [1, 2, 3], "at": moments, "day": days, "time": times}))
    found.upsert("s", url, "totals", ["k"], on_refused="dead_letter")
    found.run()
    shown = "select k, at::text, day::text, time::text from totals order by 1"
    assert shared_server().execute(shown, url) == [
        (1, "1970-01-01 00:00:00.000001", "1970-01-01", "00:00:00"),
        (2, None, "1970-01-02", "00:00:00.000002"),
    ]
    ((row, _),) = kept(tmp_path)
    assert '"k":3' in row


def test_rows_that_are_refused_at_the_end_or_by_a_trigger_are_refused_by_themselves(tmp_path: Path, url: str) -> None:
    execute = shared_server().execute
    execute("create table owners (id int primary key)", url)
    execute("insert into owners values (1)", url)
    execute(
        "create table totals (k text primary key, n bigint, owner int references owners deferrable initially deferred)",
        url,
    )
    execute(
        "create function picky() returns trigger language plpgsql as "
        "$$ begin if new.n > 50 then raise exception 'too much: %', new.n; end if; return new; end $$",
        url,
    )
    execute("create trigger picky before insert on totals for each row execute function picky()", url)
    refusing(tmp_path, url, "dead_letter").run()
    assert execute("select k from totals order by 1", url) == [("a",), ("e",)]
    assert [reason.partition(":")[0] for _, reason in kept(tmp_path)][1:] == [
        "too much",
        'insert or update on table "totals" violates foreign key constraint "totals_owner_fkey" DETAIL',
        "too much",
    ]


def test_whoever_may_write_to_tables_and_not_make_any_can_go_on(tmp_path: Path, url: str) -> None:
    stream(tmp_path / "first", url).run()
    execute = shared_server().execute
    who = f"writer_{url.rpartition('/')[2].partition('?')[0]}"
    execute(f"create role {who} login", url)
    execute("revoke create on schema public from public", url)
    execute(f"grant select, insert, update, delete on all tables in schema public to {who}", url)
    try:
        sink = PostgresSink(url, "totals", ["k", "window_start"])
        sink.open("stream")
        sink._connection.execute(f"set role {who}")
        sink._connection.commit()
        rows = pa.table({"k": ["z"], "window_start": [1], "window_end": [2], "n": [3], "total": [4]})
        sink.commit("w", 1, 1, {}, lambda: rows)
        sink.close()
        assert execute("select n from totals where k = 'z'", url) == [(3,)]
    finally:
        execute(f"drop owned by {who}", url)
        execute(f"drop role {who}", url)
