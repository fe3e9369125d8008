"""Rows that come more than once are given once, as long as that is remembered."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rota
from rota.core.errors import Refused

BASE = 1_700_000_000_000


def run(folder: Path, rows: list[tuple[str | None, int]], rows_max: int, *parallelisms: int) -> list[tuple[Any, int]]:
    table = pa.table({"k": pa.array([key for key, _ in rows], pa.string()), "t": [BASE + at for _, at in rows]})
    found: dict[int, list[tuple[Any, int]]] = {}
    for number, parallelism in enumerate(parallelisms):
        stream = rota.StreamSession(folder, rows_max=rows_max, parallelism=parallelism, every_s=0)
        stream.register_rows("s", table)
        stream.register_distinct("d", "s", on=["k"], time="t", ttl_s=1)
        with stream.start(now_ms=lambda: BASE) as running:
            for each in running:
                given = each.rows.get("d", pa.table({})).to_pylist()
                found[each.number] = sorted(((row["k"], row["t"] - BASE) for row in given), key=str)
                if number < len(parallelisms) - 1:
                    break
    return [row for each in found.values() for row in each]


def test_a_row_is_given_once_within_and_across_rounds(tmp_path: Path) -> None:
    rows = [("a", 0), ("a", 10), ("b", 20), (None, 25), ("a", 30), (None, 40), ("b", 50), ("c", 60)]
    assert run(tmp_path, rows, 3, 1) == [("a", 0), ("b", 20), (None, 25), ("c", 60)]


def test_what_is_remembered_goes_along_to_other_partitions(tmp_path: Path) -> None:
    rows = [(key, at) for at in range(0, 500, 100) for key in "abcdefgh"]
    assert run(tmp_path, rows, 8, 1, 3, 2) == [(key, 0) for key in "abcdefgh"]


def test_a_key_is_forgotten_after_its_time_and_what_is_older_is_late(tmp_path: Path) -> None:
    rows = [("a", 0), ("b", 1_500), ("a", 1_600), ("c", 100)]
    assert run(tmp_path, rows, 1, 1) == [("a", 0), ("b", 1_500), ("a", 1_600)]
    assert len(list((tmp_path / "late" / "d").glob("part-*"))) == 1


def test_rows_are_the_same_by_columns_that_are_there_and_for_some_time(tmp_path: Path) -> None:
    stream = rota.StreamSession(tmp_path)
    stream.register_rows("s", pa.table({"t": [1]}))
    for options in ({"on": ["x"], "ttl_s": 1}, {"on": [], "ttl_s": 1}, {"on": ["t"], "ttl_s": 0}):
        with pytest.raises(Refused):
            stream.register_distinct("d", "s", time="t", **options)


@pytest.mark.parametrize("rows_max", [1, 2, 100])
def test_which_rows_are_new_goes_by_their_times_and_not_by_rounds(tmp_path: Path, rows_max: int) -> None:
    rows = [("a", 0), ("a", 900), ("b", 950), ("a", 1_000), ("a", 1_900), ("a", 2_000), ("b", 2_000), ("a", 9_000)]
    wanted = [("a", 0), ("a", 1_000), ("a", 2_000), ("a", 9_000), ("b", 950), ("b", 2_000)]
    assert sorted(run(tmp_path, rows, rows_max, 1)) == sorted(wanted)


def test_a_row_that_comes_late_is_the_same_as_one_that_time_has_passed(tmp_path: Path) -> None:
    assert run(tmp_path, [("a", 0), ("b", 1_400), ("a", 500)], 1, 1) == [("a", 0), ("b", 1_400)]


def test_of_rows_of_one_time_the_same_one_is_given_in_whatever_order_they_come(tmp_path: Path) -> None:
    given: list[list[int]] = []
    for name, values in (("one", [1, 2, 3]), ("two", [3, 2, 1])):
        stream = rota.StreamSession(tmp_path / name, every_s=0)
        stream.register_rows("s", pa.table({"k": ["a"] * 3, "t": [5] * 3, "v": values}))
        stream.register_distinct("d", "s", on=["k"], time="t", ttl_s=1)
        given.append([row["v"] for each in stream.run() for row in each.rows["d"].to_pylist()])
    assert given == [[1], [1]]
