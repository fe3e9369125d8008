"""Rounds that workers compute: each is one run, and the state is in the hands of tasks that own it by key groups."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rota
from rota.kinds.query.streams.chain import rounds_in
from rota.kinds.query.streams.manifests import Manifest
from tests.integration.queries import stream_program as program
from tests.integration.queries.test_streams_that_are_killed import check

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
        session.register_table("names", pa.table({"k": list("abcde"), "name": [f"n{at}" for at in range(5)]}))
    stream = rota.StreamSession(folder, tables=session, rows_max=300, every_s=0, **options)
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
    far = put_together(tmp_path / "far", rota.Session.on(here), parallelism=3)
    with far.start(now_ms=lambda: now) as running:
        found = outcome(list(running))
        assert running.last is not None
        assert running.last.counts == counts
    assert {name: sorted(rows) for name, rows in found.items()} == {name: sorted(rows) for name, rows in wanted.items()}
    assert {"tumbling", "sliding", "sessions", "once", "pairs", "hourly"} - set(found) == {"tumbling"}
    for side in ("late", "dead"):
        there = {path.name for path in (tmp_path / "alone" / side).glob("*/*.parquet")}
        assert {path.name for path in (tmp_path / "far" / side).glob("*/*.parquet")} == there
        assert there, f"there are {side} rows"
