"""Rounds that workers compute: each is one run, and the state is in the hands of tasks that own it by key groups."""

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rota
from rota.core.errors import Refused
from rota.kinds.query.streams.chain import Chain, rounds_in
from rota.kinds.query.streams.manifests import Manifest
from tests.integration.queries import stream_program as program
from tests.integration.queries.test_streams_that_are_killed import check

pytestmark = pytest.mark.full

BASE = 1_700_000_000_000


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rota.Rota]:
    with rota.Rota.embedded(tmp_path_factory.mktemp("data"), slots=2) as found:
        yield found


def pieces_on_disk(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in (folder / "pieces").rglob("*") if path.is_file())


def pieces_named(manifests: list[Manifest]) -> list[str]:
    return sorted({piece.file for each in manifests for piece in each.pieces if piece.file})


def test_a_round_is_one_run_and_its_tasks_own_the_state(tmp_path: Path, here: rota.Rota) -> None:
    (tmp_path / "in").mkdir()
    rows = program.make_rows(tmp_path / "in")
    tables = rota.Session.on(here, parent="the-stream")
    rounds = program.stream(tmp_path, rows_max=600, parallelism=2, tables=tables).run()
    check(tmp_path, rows)
    views = [view for view in here.runs() if view.parent == "the-stream"]
    assert len(views) == len(rounds) >= 4, "each round is one run"
    tasks = [task.id for task in here.run(views[0].id).tasks()]
    assert sorted(tasks) == ["rows[0]", "rows[1]", "w[0]", "w[1]"]
    kept = rounds_in(tmp_path / "stream")
    assert all(piece.file for each in kept for piece in each.pieces if piece.kind == "state" and piece.node)
    assert not [name for name in pieces_on_disk(tmp_path / "stream") if name.endswith(".rows")]


def events(seed: int, count: int = 600) -> pa.Table:
    chance = random.Random(seed)
    found: list[dict[str, Any]] = [
        {"id": at, "t": BASE + at * 20 - chance.randrange(400), "k": chance.choice("abcdef"), "v": chance.randrange(50)}
        for at in range(count)
    ]
    for row in found[count // 2 :: 37]:
        row["t"] -= 5_000
    return pa.Table.from_pylist(found + found[::50])


def put_together(folder: Path, tables: rota.Session | None, **options: Any) -> rota.StreamSession:
    """Every kind of part at once."""
    session = tables or rota.Session()
    if not session.engine.context.table_exist("names"):
        # So large that the plan of a view over it does not travel with tasks.
        keys = [*"abcde", *(f"none-{at}" for at in range(20_000))]
        session.register_table("names", pa.table({"k": keys, "name": [f"n{at}" for at in range(len(keys))]}))
    stream = rota.StreamSession(folder, tables=session, rows_max=600, every_s=0, **options)
    stream.register_rows("left_rows", events(1), events(2))
    stream.register_rows("right_rows", events(3))
    stream.register_view("named", "select s.*, n.name from left_rows s join names n on s.k = n.k where v > 2")
    stream.register_view("halved", "select id, t, k, 100 / (v - 7) as h from right_rows", on_error="dead_letter")
    common: dict[str, Any] = {"time": "t", "by": ["k"], "watermark_delay_s": 0.5}
    sums = {"n": "count(*)", "mean": "avg(v)"}
    stream.register_window("tumbling", "named", tumbling_s=1, aggregates=sums, **common)
    stream.register_window("sliding", "left_rows", sliding_s=(2, 1), aggregates=sums, allowed_lateness_s=6, **common)
    stream.register_window("sessions", "halved", session_s=0.3, aggregates={"n": "count(*)"}, **common)
    stream.register_distinct("once", "right_rows", on=["id"], time="t", ttl_s=60, watermark_delay_s=6)
    stream.register_join(
        "pairs", "named", "halved", on=["k"], time=("t", "t"), within_s=(-0.05, 0.05), watermark_delay_s=0.5
    )
    stream.register_window(
        "hourly", "tumbling", time="window_start", tumbling_s=5, aggregates={"n": "sum(n)"}, watermark_delay_s=1
    )
    return stream


def outcome(rounds: list[Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in rounds:
        for name, table in each.rows.items():
            found.setdefault(name, []).extend(sorted(str(sorted(row.items())) for row in table.to_pylist()))
    return found


def test_all_operators_give_on_workers_what_they_give_in_one_process(tmp_path: Path, here: rota.Rota) -> None:
    now = BASE + 10_000_000
    alone = put_together(tmp_path / "alone", None)
    with alone.start(now_ms=lambda: now) as running:
        wanted = outcome(list(running))
        counts = running.last.counts if running.last else {}
    far = put_together(tmp_path / "far", rota.Session.on(here), parallelism=2)
    with far.start(now_ms=lambda: now) as running:
        found = outcome(list(running))
        assert running.last is not None
        assert running.last.counts == counts
    assert {name: sorted(rows) for name, rows in found.items()} == {name: sorted(rows) for name, rows in wanted.items()}
    assert {"tumbling", "sliding", "sessions", "once", "pairs", "hourly"} - set(found) == {"tumbling"}
    assert not [name for name in pieces_on_disk(tmp_path / "far") if name.endswith(".rows")]
    for side in ("late", "dead"):
        there, far_away = (
            # At the end of a name is which of the two streams it is of.
            {path.name.rpartition("-")[0] for path in (tmp_path / name / side).glob("*/*.parquet")}
            for name in ("alone", "far")
        )
        assert far_away == there
        assert there, f"there are {side} rows"


# Pieces: named, kept, damaged.


def part_of_it(folder: Path, here: rota.Rota | None, parallelism: int, rows_max: int = 300) -> rota.StreamSession:
    tables = rota.Session.on(here) if here is not None else None
    return program.stream(folder, rows_max=rows_max, parallelism=parallelism, tables=tables)


def make_some(stream: rota.StreamSession, count: int, **options: Any) -> Manifest:
    with stream.start(**options) as running:
        for number, _ in enumerate(running, 1):
            if number == count:
                break
        assert running.last is not None
        return running.last


@pytest.fixture
def filled(tmp_path: Path) -> tuple[Path, pa.Table]:
    (tmp_path / "in").mkdir()
    return tmp_path, program.make_rows(tmp_path / "in")


def test_a_stream_goes_on_with_other_partitions_here_and_on_workers(
    filled: tuple[Path, pa.Table], here: rota.Rota
) -> None:
    folder, rows = filled
    for where, parallelism in ((None, 2), (here, 2), (here, 3), (None, 1), (here, 1)):
        last = make_some(part_of_it(folder, where, parallelism), 1)
        assert last.parallelism == parallelism
        state = part_of_it(folder, None, 1).state("w")["panes"]
        assert state.num_rows == sum(piece.rows for piece in last.pieces if piece.kind == "state")
        assert [bool(piece.file) for piece in last.pieces if piece.node == "w"][:1] == [where is not None]
    part_of_it(folder, here, 2).run()
    check(folder, rows)


def test_a_savepoint_has_its_pieces_and_is_restored_anywhere(
    filled: tuple[Path, pa.Table], here: rota.Rota, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, rows = filled
    with part_of_it(folder, here, 2).start() as running:
        for number, _ in enumerate(running, 1):
            if number == 2:
                saved = running.savepoint("here")
    kept = pieces_named(rounds_in(folder / "stream"))
    # All that others could need is in the savepoint itself.
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "savepoints"
    elsewhere.mkdir()
    moved = saved.rename(elsewhere / saved.name)
    assert kept
    for name in kept:
        (folder / "stream" / name).unlink(missing_ok=True)
    part_of_it(folder, here, 3).start(restore=str(moved)).close()
    part_of_it(folder, here, 3).run()
    check(folder, rows)


def test_pieces_that_no_round_names_are_removed_and_others_kept(filled: tuple[Path, pa.Table], here: rota.Rota) -> None:
    folder, _ = filled
    make_some(part_of_it(folder, here, 2, rows_max=150), 9)
    make_some(part_of_it(folder, here, 2, rows_max=150), 1)
    stream = folder / "stream"
    on_disk, named = pieces_on_disk(stream), pieces_named(rounds_in(stream))
    assert set(named) <= set(on_disk)
    # What attempts have left that came to nothing goes when somebody begins.
    left = stream / "pieces" / Path(named[0]).parent.name / "w-0-t0-1.state"
    left.write_bytes(b"of an attempt that was not accepted")
    Chain(stream).claim(incarnation=0, holder="test", definition=rounds_in(stream)[-1].definition, now_ms=1)
    make_some(part_of_it(folder, here, 2, rows_max=150), 1)
    assert not left.exists()
    assert len(pieces_on_disk(stream)) < len(on_disk) + 4, "they do not grow with the stream"


def test_pieces_damaged_at_any_byte_are_passed_over_with_a_reason(
    filled: tuple[Path, pa.Table], here: rota.Rota
) -> None:
    folder, rows = filled
    chance = random.Random(11)
    for turn in range(6):
        last = make_some(part_of_it(folder, here, 2, rows_max=120), 2)
        wanted = [piece for piece in last.pieces if piece.kind == "state" and piece.file]
        piece = chance.choice(wanted)
        path = folder / "stream" / piece.file
        content = bytearray(path.read_bytes())
        if turn == 0:
            path.unlink()
        elif turn == 1:
            path.write_bytes(content[: chance.randrange(piece.offset, piece.offset + piece.bytes)])
        else:
            content[chance.randrange(piece.offset, piece.offset + piece.bytes)] ^= 1 << chance.randrange(8)
            path.write_bytes(content)
        if turn == 5:
            # Nothing is gone on from that was not looked at, by name either.
            with pytest.raises(Refused, match=r"stream\.corrupt"):
                part_of_it(folder, here, 2).start(restore=last.round)
        with part_of_it(folder, here, 2).start() as running:
            assert [position for position, _ in running.skipped] == [last.position]
            assert "state of w" in running.skipped[0][1], running.skipped
            assert running.last is not None
            assert running.last.round == last.round, "it was made again from the round before"
    part_of_it(folder, here, 2).run()
    check(folder, rows)


def test_a_partition_without_news_is_named_again_and_not_written(tmp_path: Path, here: rota.Rota) -> None:
    keys = [f"k{at}" for at in range(40)] + ["k1"] * 80
    stream = rota.StreamSession(tmp_path, tables=rota.Session.on(here), rows_max=40, parallelism=4, every_s=0)
    stream.register_rows("rows", pa.table({"t": [BASE + at for at in range(120)], "k": keys}))
    stream.register_window("w", "rows", time="t", tumbling_s=3_600, by=["k"], aggregates={"n": "count(*)"})
    make_some(stream, 2)
    first, second = ({piece.partition: piece for piece in each.pieces} for each in rounds_in(tmp_path))
    assert len(first) == len(second) == 4
    assert sum(second[at] == first[at] for at in first) == 3, "one of them has other rows"


# Files that tasks read.


def test_files_are_read_by_tasks_and_policies_hold_there(tmp_path: Path, here: rota.Rota) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    lines = [f"{BASE + at * 100},{at % 3}" for at in range(50)]
    (folder / "a.csv").write_text("\n".join(["t,k", *lines[:25], "nothing", "x,y", *lines[25:]]) + "\n")
    (folder / "b.csv").write_text("t,k,more\n1,2,3\n")

    def put_together(where: Path, on_poison: Any) -> rota.StreamSession:
        stream = rota.StreamSession(where, tables=rota.Session.on(here), every_s=0)
        schema = pa.schema([("t", pa.int64()), ("k", pa.int64())])
        stream.register_files(
            "rows", folder, "csv", schema=schema, bounded=True, on_poison=on_poison, partitions=2, idle_s=0.001
        )
        stream.register_window("w", "rows", time="t", tumbling_s=1, by=["k"], aggregates={"n": "count(*)"})
        return stream

    rounds = put_together(tmp_path / "kept", "dead_letter").run()
    assert rounds[-1].manifest.counts["rows.dead"] == 2
    dead = pa.concat_tables([pq.read_table(path) for path in (tmp_path / "kept" / "dead" / "rows").glob("*.parquet")])
    assert sorted(row["row"] for row in dead.to_pylist()) == ["nothing", '{"t":"x","k":"y"}']
    with pytest.raises(Refused, match=r"stream\.row") as refused:
        put_together(tmp_path / "failed", "fail").run()
    assert re.search(r"/a\.csv: nothing\b", refused.value.reason)
