"""Statements of all shapes give the same rows in stages as in one piece, however they are divided."""

from functools import cache
from pathlib import Path
from typing import Any

import datafusion as df
import pytest

from rota.kinds.query import cutting
from rota.kinds.query.cutting import cut
from rota.kinds.query.sizing import AGAIN_BYTES
from tests.queries import corpus, staged
from tests.queries.corpus import CASES, Case, by_name, comparable, rows_of
from tests.queries.staged import NO_BROADCAST, SORT_MERGE, SPLIT_FILES, run_staged

pytestmark = pytest.mark.slow

# How many partitions there are, and how joins are done.
WAYS = {
    "1": (1, SPLIT_FILES),
    "3": (3, SPLIT_FILES),
    "4-hash": (4, (*SPLIT_FILES, *NO_BROADCAST)),
    "7-sort-merge": (7, (*SPLIT_FILES, *NO_BROADCAST, *SORT_MERGE)),
}
MORE_WAYS = {
    "2": (2, ()),
    "3-sort-merge": (3, (*SPLIT_FILES, *SORT_MERGE)),
    "5": (5, SPLIT_FILES),
    "7-hash": (7, (*SPLIT_FILES, *NO_BROADCAST)),
    "12": (12, SPLIT_FILES),
    "16-hash": (16, (*SPLIT_FILES, *NO_BROADCAST)),
}

Answer = list[tuple[Any, ...]]


class World:
    """The tables, contexts that plan in different ways, and what the engine answers in one piece."""

    def __init__(self, folder: Path) -> None:
        self.folder = corpus.write_tables(folder)
        self.planner = cache(self._planner)
        self.answer = cache(self._answer)

    def _planner(self, partitions: int, settings: staged.Settings) -> df.SessionContext:
        context = staged.planner(partitions, settings)
        corpus.register(context, self.folder)
        return context

    def _answer(self, case: Case) -> Answer:
        return rows_of(self.planner(1, ()).sql(case.sql).to_arrow_table(), case.is_ordered)

    def staged(
        self, case: Case, way: tuple[int, staged.Settings], folder: Path, stores: int = 0, again_bytes: int = 0
    ) -> Answer:
        return rows_of(run_staged(self.planner(*way), case.sql, folder, stores, again_bytes), case.is_ordered)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("tables"))


def name_of(case: Case) -> str:
    return case.name.replace(" ", "-")


def in_turn() -> list[object]:
    """Every case in every way; of each case one way, in turn, in `make test`."""
    return [
        pytest.param(
            case, way, id=f"{name_of(case)}-{way}", marks=[] if turn == number % len(WAYS) else pytest.mark.full
        )
        for number, case in enumerate(CASES)
        for turn, way in enumerate(WAYS)
    ]


@pytest.mark.parametrize(("case", "way"), in_turn())
def test_a_statement_gives_the_same_in_stages(case: Case, way: str, world: World, tmp_path: Path):
    assert world.staged(case, WAYS[way], tmp_path) == world.answer(case)


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_statement_gives_the_same_if_tasks_read_little_tables_by_themselves(case: Case, world: World, tmp_path: Path):
    assert world.staged(case, WAYS["3"], tmp_path, again_bytes=AGAIN_BYTES) == world.answer(case)


@pytest.mark.parametrize("case", [case for case in CASES if case.other], ids=name_of)
def test_another_engine_gives_the_same(case: Case, world: World):
    sql = case.sql if case.other == corpus.SAME else case.other
    assert comparable(corpus.connect().execute(sql or "").fetchall(), case.is_ordered) == world.answer(case)


@pytest.mark.parametrize("case", CASES[::6], ids=name_of)
def test_outputs_may_be_in_different_places(case: Case, world: World, tmp_path: Path):
    assert world.staged(case, WAYS["4-hash"], tmp_path, stores=3) == world.answer(case)


@pytest.mark.long
@pytest.mark.parametrize("stores", [0, 2])
@pytest.mark.parametrize("way", MORE_WAYS)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_statement_gives_the_same_in_many_other_ways(case: Case, way: str, stores: int, world: World, tmp_path: Path):
    assert world.staged(case, MORE_WAYS[way], tmp_path, stores) == world.answer(case)


def test_joins_that_remember_what_found_no_partner_would_be_wrong_in_several_tasks(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cutting, "_shared_by", lambda node: "")
    monkeypatch.setattr(cutting, "_divided", lambda node: node)
    for name in ("left of few", "full", "semi of few", "not in, without nulls", "full by order"):
        case = by_name(name)
        assert world.staged(case, WAYS["3"], tmp_path / name) != world.answer(case), f"{name}: the rule is needed"


def test_an_order_that_an_exchange_loses_would_be_missed(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cutting._Cutter, "_loses_order", lambda *_: False)
    case = by_name("days grouped")
    assert world.staged(case, WAYS["4-hash"], tmp_path) != world.answer(case), "the rule is needed"


def test_every_case_is_cut_and_some_really_have_several_stages(world: World):
    planner = world.planner(*WAYS["4-hash"])
    stages = [cut(planner.sql(case.sql).execution_plan(), planner, 0) for case in CASES]
    assert sum(len(each) > 1 for each in stages) > len(CASES) * 0.7
    assert {exchange.reading for each in stages for stage in each for exchange in stage.exchanges} == {
        "all",
        "hash",
        "merge",
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "sql",
    [
        "select id, (select shop from shops) as x from sales",
        "select id from sales where shop = (select shop from shops where rooms > 0)",
        "select shop, sum(price * (select rooms from shops)) from sales group by shop",
    ],
)
def test_a_scalar_subquery_of_two_rows_fails(world: World, way: str, sql: str, tmp_path: Path) -> None:
    case = Case("two rows", sql)
    with pytest.raises(Exception, match=r"[Ss]calar subquery"):
        world.staged(case, WAYS[way], tmp_path)
