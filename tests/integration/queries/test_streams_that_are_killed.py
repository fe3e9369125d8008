"""kill -9 at any moment, with rivals: every row counts once, and nothing is seen twice."""

import multiprocessing
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rota.kinds.query.streams.chain import rounds_in
from rota.kinds.query.streams.manifests import Manifest
from tests.integration.queries import stream_program as program

pytestmark = pytest.mark.full


def output(folder: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in sorted((folder / "out").glob("*.parquet"))])


def late(folder: Path) -> pa.Table:
    files = sorted((folder / "stream" / "late" / "w").glob("*.parquet"))
    return (
        pa.concat_tables([pq.read_table(path) for path in files])
        if files
        else pa.table({"id": pa.array([], pa.int64())})
    )


def check(folder: Path, rows: pa.Table) -> None:
    """What was given is what one look at all rows gives, but for those that were late and are told."""
    left = rows.to_pylist()
    for row in late(folder).to_pylist():
        left.remove(row)
    wanted: dict[tuple[str, int], list[int]] = {}
    for row in left:
        start = row["t"] - row["t"] % program.SIZE_MS
        count = wanted.setdefault((row["k"], start), [0, 0])
        count[0] += 1
        count[1] += row["v"]
    found = output(folder).to_pylist()
    assert len(found) == len({(row["k"], row["window_start"]) for row in found}), "no window is there twice"
    assert {(row["k"], row["window_start"]): [row["n"], row["total"]] for row in found} == wanted
    assert all(row["label"] == row["k"] + "!" for row in found)


@pytest.mark.parametrize(
    ("state_every", "kills"), [(1, 24), (5, 8)], ids=["state in every round", "state in every fifth"]
)
def test_no_row_is_lost_or_counted_twice_whoever_is_killed_when(tmp_path: Path, state_every: int, kills: int) -> None:
    for name in ("in", "later"):
        (tmp_path / name).mkdir()
    rows = program.make_rows(tmp_path / "later")
    later = sorted((tmp_path / "later").iterdir())
    chance = random.Random(17 + state_every)
    start = multiprocessing.get_context("forkserver")
    start.set_forkserver_preload(["tests.integration.queries.stream_program", "rota.app.sql.streams"])

    def begin(bounded: bool = False) -> multiprocessing.process.BaseProcess:
        # Another size and another number of partitions each time.
        sizes = (tmp_path, chance.randrange(4, 16), chance.choice((1, 2, 3)), state_every, bounded)
        process = start.Process(target=program.run, args=sizes, daemon=True)
        process.start()
        return process

    # Whoever begins looks at a file for its columns.
    first = later.pop(0)
    first.rename(tmp_path / "in" / first.name)
    rivals = [begin(), begin()]
    at_work: dict[int, None] = {}
    killed = 0
    while killed < kills:
        # There is something to do; somebody gets to a round, and one is killed a moment later, whatever it is at.
        before = newest(tmp_path).position
        if later:
            each = later.pop(0)
            each.rename(tmp_path / "in" / each.name)
        while newest(tmp_path).position <= before + 1 and (later or any(each.is_alive() for each in rivals)):
            rivals[-1].join(0.01)
        rivals[-1].join(chance.random() * 0.1)
        at_work[newest(tmp_path).incarnation] = None
        chance.shuffle(rivals)
        if rivals[0].is_alive():
            rivals[0].kill()
            killed += 1
        rivals[0].join()
        rivals = [rivals[1], begin()]
    for each in later:
        each.rename(tmp_path / "in" / each.name)
    # One more takes over from both, and comes to the end.
    last = begin(bounded=True)
    last.join(120)
    for each in rivals:
        each.kill()
        each.join()
    while not newest(tmp_path).is_final:
        again = begin(bounded=True)
        again.join(120)
        assert again.exitcode == 0
    check(tmp_path, rows)
    assert len(at_work) >= kills // 3, "many of them got to rounds of their own"


def newest(folder: Path) -> Manifest:
    rounds = rounds_in(folder / "stream")
    return rounds[-1] if rounds else Manifest(position=0)
