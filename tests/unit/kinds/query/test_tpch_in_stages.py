"""The queries of TPC-H give the same rows in stages, in the same order."""

from functools import cache
from pathlib import Path

import datafusion as df
import pytest

from tests.queries import staged, tpch
from tests.queries.staged import NO_BROADCAST, SORT_MERGE, run_staged

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tpch")]

WAYS = {"2": (2, ()), "4-hash": (4, NO_BROADCAST)}
MORE_WAYS = {"1": (1, ()), "3": (3, ()), "5-sort-merge": (5, (*NO_BROADCAST, *SORT_MERGE)), "8-hash": (8, NO_BROADCAST)}


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = tpch.generate(folder)
        self.planner = cache(self._planner)

    def _planner(self, partitions: int, settings: staged.Settings) -> df.SessionContext:
        context = staged.planner(partitions, settings)
        tpch.register(context, self.folder)
        return context


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("tpch"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", range(1, 23))
def test_a_query_of_tpch_gives_the_same(number: int, way: str, world: World, tmp_path: Path):
    sql = tpch.QUERIES[number - 1]
    wanted = world.planner(1, ()).sql(sql).to_arrow_table()
    assert wanted.num_rows > 0, "there is something to compare"
    assert run_staged(world.planner(*WAYS[way]), sql, tmp_path).to_pylist() == wanted.to_pylist()


@pytest.mark.long
@pytest.mark.parametrize("way", MORE_WAYS)
@pytest.mark.parametrize("number", range(1, 23))
def test_a_query_of_tpch_gives_the_same_in_other_ways(number: int, way: str, world: World, tmp_path: Path):
    sql = tpch.QUERIES[number - 1]
    wanted = world.planner(1, ()).sql(sql).to_arrow_table()
    assert run_staged(world.planner(*MORE_WAYS[way]), sql, tmp_path, stores=2).to_pylist() == wanted.to_pylist()
