"""Plans that are listed as proven survive being encoded, and what does not survive is not listed.

A plan is run as the engine made it, and once more after it was encoded and decoded. Encoders that drop a field show
that these comparisons notice.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import datafusion as df
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rota.kinds.query import proven_functions, proven_plans
from rota.kinds.query.engine import SqlEngine
from rota.kinds.query.plans import Wishes, logical_plan, physical_plan
from rota.kinds.query.proven_plans import MESSAGES, VALUE, why_unproven, why_unproven_scans
from rota.kinds.query.settings import EXECUTING, PLANNING
from tests.queries import constructs
from tests.queries.staged import Stages

pytestmark = pytest.mark.slow

PARTITIONS = 3
# Fields without which a plan gives the same rows in one piece.
IMMATERIAL: dict[str, tuple[int, ...]] = {
    # What the engine may use to do less: statistics, dynamic filters, predicates that it applies once more above.
    "dynamic filter": (2, 3),
    "file": (3, 6),
    "hash join": (11,),
    "parquet scan": (3, 4),
    "sort": (5,),
    # Sizes of batches, and how much passes a filter.
    "filter": (3, 10),
    # Names for people.
    "aggregate expression": (8,),
    "function call": (6,),
    # What is found in the input, too, or is what the engine does anyway.
    "aggregate node": (13, 14),
    "memory scan": (5,),
    "rowless": (2,),
    "scan": (7, 8),
    "subquery value": (2,),
    "window node": (5, 9),
    # How partitions are divided: all rows may be in one.
    "csv scan": (7,),
    "hash partitioning": (1,),
}


class Oracle:
    """The tables in a context that plans, and one that knows none of them, as a worker has it."""

    def __init__(self, folder: Path) -> None:
        constructs.write_files(folder)
        config = df.SessionConfig().with_target_partitions(PARTITIONS).with_information_schema(True)
        for name, value in PLANNING:
            config = config.set(name, value)
        self.context = df.SessionContext(config)
        constructs.register(self.context, folder)
        config = df.SessionConfig()
        for name, value in EXECUTING:
            config = config.set(name, value)
        self._bare = df.SessionContext(config)

    def plan(self, sql: str) -> df.ExecutionPlan:
        return self.context.sql(sql).execution_plan()

    def rows_of(self, sql: str) -> list[str] | None:
        """What the plan gives as the engine made it; None if the engine does not do that."""
        try:
            return self._rows(self.context, self.plan(sql))
        except Exception:
            return None

    def decoded(self, content: bytes) -> list[str]:
        """What an encoded plan gives."""
        return self._rows(self._bare, df.ExecutionPlan.from_bytes(self._bare, content))

    def keep_in_files(self, folder: Path) -> None:
        """Have the tables in memory in files instead: logical plans with tables in memory cannot be encoded."""
        for name in ("t", "r", "v", "little"):
            table = self.context.table(name).to_arrow_table()
            third = max(1, table.num_rows // 3)
            (folder / name).mkdir()
            for number in range(3):
                piece = table.slice(number * third, third if number < 2 else None)
                pq.write_table(piece, folder / name / f"{number}.parquet")
            self.context.deregister_table(name)
            self.context.register_parquet(name, f"{folder / name}/")

    def logical(self, sql: str) -> bytes:
        """The optimized logical plan, encoded."""
        return self.context.sql(sql).optimized_logical_plan().to_bytes(self.context)

    def decoded_logical(self, content: bytes) -> list[str]:
        """What an encoded logical plan gives."""
        asked = df.LogicalPlan.from_bytes(self._bare, content)
        return self._rows(self._bare, self._bare.create_dataframe_from_logical_plan(asked).execution_plan())

    @staticmethod
    def _rows(context: df.SessionContext, plan: df.ExecutionPlan) -> list[str]:
        async def drain(partition: int) -> list[pa.RecordBatch]:
            return [batch.to_pyarrow() async for batch in context.execute(plan, partition)]

        async def drain_all() -> list[list[pa.RecordBatch]]:
            return await asyncio.gather(*map(drain, range(plan.partition_count)))

        batches = [batch for each in asyncio.run(drain_all()) for batch in each]
        return sorted(
            repr([_comparable(value) for value in row.values()]) for batch in batches for row in batch.to_pylist()
        )


def _comparable(value: Any) -> Any:
    """Sums of fractions may differ in their last digits."""
    return round(value, 9) if isinstance(value, float) else value


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    return Oracle(tmp_path_factory.mktemp("tables"))


def differing(oracle: Oracle, statements: Iterable[str]) -> tuple[list[str], int]:
    """Statements whose plans are listed and give other rows when they were encoded, and how many are listed."""
    wrong: list[str] = []
    proven = 0
    for sql in statements:
        wanted = oracle.rows_of(sql)
        content = oracle.plan(sql).to_bytes() if wanted is not None else b""
        if wanted is None or why_unproven(content):
            continue
        proven += 1
        if oracle.decoded(content) != wanted:
            wrong.append(sql)
    return wrong, proven


@pytest.mark.full
def test_listed_windows_survive(oracle: Oracle) -> None:
    wrong, proven = differing(oracle, constructs.window_statements())
    assert wrong == []
    assert proven > 250


def test_windows_without_what_is_lost_are_listed(oracle: Oracle) -> None:
    """The list is not empty: each window function is on it, in either order."""
    for name, args in constructs.WINDOW_CALLS.items():
        for order in ("o", "o desc"):
            sql = f"select {name}({args}) over (partition by k order by {order}) as x from t"  # noqa: S608 - names of ours
            assert why_unproven(oracle.plan(sql).to_bytes()) == "", sql


@pytest.mark.parametrize(
    ("statements", "proven_min"),
    [
        (constructs.turned_windows, 5),
        (constructs.aggregate_statements, 200),
        (constructs.join_statements, 100),
        (constructs.other_statements, 15),
        (constructs.literal_statements, 300),
    ],
)
def test_listed_constructs_survive(oracle: Oracle, statements: Callable[[], Iterator[str]], proven_min: int) -> None:
    wrong, proven = differing(oracle, statements())
    assert wrong == []
    assert proven >= proven_min


def test_listed_functions_survive(oracle: Oracle) -> None:
    wrong, proven = differing(oracle, constructs.call_statements())
    assert wrong == []
    assert proven > 400


def test_every_listed_function_was_tried(oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: dict[str, dict[str, None]] = {"function": {}, "aggregate": {}, "window function": {}}

    def note(values: Any, name: int, definition: int, kind: str, listed: frozenset[str]) -> None:
        tried[kind][proven_plans._text(values, name)] = None  # pyright: ignore[reportPrivateUsage] - what the rule reads

    monkeypatch.setattr(proven_plans, "_check_function", note)
    for sql in (*constructs.call_statements(), *constructs.aggregate_statements(), *constructs.turned_windows()):
        if oracle.rows_of(sql) is not None:
            why_unproven(oracle.plan(sql).to_bytes())
    assert sorted(proven_functions.SCALARS - set(tried["function"])) == ["random", "uuid"], (
        "no two answers are the same"
    )
    assert sorted(proven_functions.AGGREGATES - set(tried["aggregate"])) == []
    assert sorted(proven_functions.WINDOWS - set(tried["window function"])) == []


def test_values_of_every_type_survive(oracle: Oracle) -> None:
    wrong: list[str] = []
    for name, array in constructs.typed_arrays().items():
        oracle.context.register_record_batches("typed", [[pa.record_batch({"x": array})]])
        for sql in (
            "select x from typed",
            "select x, count(*) as n from typed group by x",
            "select max(x) as m from typed",
        ):
            wanted = oracle.rows_of(sql)
            if wanted is None:
                continue
            content = oracle.plan(sql).to_bytes()
            assert why_unproven(content) == "", (name, sql)
            if oracle.decoded(content) != wanted:
                wrong.append(f"{name}: {sql}")
        oracle.context.deregister_table("typed")
    assert wrong == []


LOST = {
    "null treatment": "select last_value(a) ignore nulls over (order by o) as x from t",
    "filter": "select sum(a) filter (where a > 2) over (order by o) as x from t",
    "turned": "select lag(a) over (order by o) as x, lag(a) over (order by o desc) as y from t",
    "turned nth": "select nth_value(a, 2) over (order by o) as x, nth_value(a, 2) over (order by o desc) as y from t",
    "empty grouping set": "select count(*) as n from t group by grouping sets (())",
}


@pytest.mark.parametrize("what", LOST)
def test_what_does_not_survive_is_not_listed(oracle: Oracle, what: str) -> None:
    assert why_unproven(oracle.plan(LOST[what]).to_bytes())


@pytest.mark.parametrize(
    ("named", "sql"),
    [
        ("EXPLAIN is", "explain select 1"),
        ("EXPLAIN ANALYZE is", "explain analyze select 1"),
        ("COPY to CSV files is", "copy (select 1) to '/nowhere/x.csv'"),
        ("COPY to JSON files is", "copy (select 1) to '/nowhere/x.json'"),
        ("COPY to Parquet files is", "copy (select 1) to '/nowhere/x.parquet'"),
    ],
)
def test_a_reason_says_what_was_written_rather_than_a_number(oracle: Oracle, named: str, sql: str) -> None:
    assert why_unproven(oracle.plan(sql).to_bytes()).startswith(named)


@pytest.mark.parametrize("table", constructs.SCANS)
def test_options_of_files_are_listed_if_they_survive(oracle: Oracle, table: str) -> None:
    engine = SqlEngine(dict(PLANNING))
    engine.context = oracle.context
    sql = f"select * from {table}"  # noqa: S608 - a name of ours
    planned = physical_plan(engine, logical_plan(engine, oracle.context.sql(sql)), lambda: 2, Wishes(partitions=2))
    assert bool(planned.unstaged) == (table in constructs.LOST_SCANS)
    if not planned.unstaged:
        assert oracle.decoded(oracle.plan(sql).to_bytes()) == oracle.rows_of(sql)


@pytest.fixture(scope="module")
def filed(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    folder = tmp_path_factory.mktemp("filed")
    oracle = Oracle(folder)
    oracle.keep_in_files(folder)
    return oracle


@pytest.mark.full
@pytest.mark.parametrize(
    ("statements", "same_min"),
    [
        (constructs.window_statements, 1_000),
        (constructs.turned_windows, 5),
        (constructs.aggregate_statements, 200),
        (constructs.join_statements, 100),
        (constructs.other_statements, 15),
        (constructs.call_statements, 400),
        (constructs.literal_statements, 300),
    ],
)
def test_logical_plans_survive(filed: Oracle, statements: Callable[[], Iterator[str]], same_min: int) -> None:
    """A query that is unproven is sent as its logical plan, whatever is in it."""
    wrong: list[str] = []
    same = 0
    for sql in statements():
        wanted, content = filed.rows_of(sql), b""
        with suppress(Exception):
            content = filed.logical(sql)
        if wanted is None or not content:
            # The engine does not do that, or it is not sent.
            continue
        if filed.decoded_logical(content) == wanted:
            same += 1
        else:
            wrong.append(sql)
    assert wrong == []
    assert same >= same_min


@pytest.mark.parametrize("what", LOST)
def test_what_a_physical_plan_loses_a_logical_plan_keeps(filed: Oracle, what: str) -> None:
    assert filed.decoded_logical(filed.logical(LOST[what])) == filed.rows_of(LOST[what])


SHAPES = {
    "plain": "select * from {t}",
    "scalar subquery": "select (select count(*) from {t}) as n",
    "scalar subquery in a filter": "select * from {t} where (select count(*) from {t}) = 2",
    "scalar subquery in a subquery": "select (select count(*) from {t} where (select count(*) from {t}) = 2) as n",
    "scalar subquery beside memory": "select k from t where k <= (select count(*) from {t})",
    "in": "select * from {t} where {c} in (select {c} from {t})",
    "not in": "select * from {t} where {c} not in (select {c} from {t} where {c} is null)",
    "exists": "select * from {t} as o where exists (select 1 from {t} as i where i.{c} = o.{c})",
    "exists beside memory": "select k from t where exists (select 1 from {t} where {c} is not null)",
    "with": "with w as (select * from {t}) select count(*) as n from w",
    "join": "select l.* from {t} as l join {t} as r on l.{c} = r.{c}",
    "join with memory": "select t.k, x.* from t cross join {t} as x",
    "view": "select * from view_of_{t}",
    "view in a scalar subquery": "select (select count(*) from view_of_{t}) as n",
}


@pytest.mark.parametrize("table", constructs.SCANS)
def test_scans_give_the_same_wherever_they_are_in_a_statement(oracle: Oracle, table: str, tmp_path: Path) -> None:
    engine = SqlEngine(dict(PLANNING))
    engine.context = oracle.context
    oracle.context.register_view(f"view_of_{table}", oracle.context.table(table))
    column = f'"{oracle.context.table(table).schema().names[0]}"'
    for shape, text in SHAPES.items():
        sql = text.format(t=table, c=column)
        frame = oracle.context.sql(sql)
        planned = physical_plan(engine, logical_plan(engine, frame), lambda: 2, Wishes(partitions=2))
        assert planned.unstaged or table not in constructs.LOST_SCANS, (shape, "it has a reason")
        assert planned.stages or "memory" in shape, (shape, "it can be sent")
        if planned.stages:
            found = Stages(planned.stages, tmp_path / shape).answer()
            assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, frame.to_arrow_table().to_pylist())), shape


# Encoders with mistakes.


def without(content: bytes, message: str, dropped: tuple[str, int]) -> bytes:
    """A plan as an encoder would write it that forgets a field."""
    found: list[bytes] = []
    for number, value in proven_plans._fields(content):  # pyright: ignore[reportPrivateUsage] - reads what it writes
        if (message, number) == dropped:
            continue
        inner = _message(message, number)
        if isinstance(value, bytes) and inner:
            found.append(_field(number, without(value, inner, dropped)))
        else:
            found.append(_field(number, value))
    return b"".join(found)


def _message(message: str, number: int) -> str:
    """Which message a field holds; "" if it is a value. Scalars are written with their width, and left alone."""
    inner = MESSAGES[message].get(number, VALUE)
    return inner if isinstance(inner, str) and inner not in (VALUE, "scalar") else ""


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def fields_of(content: bytes, message: str) -> Iterator[tuple[str, int]]:
    """The fields that a plan has."""
    for number, value in proven_plans._fields(content):  # pyright: ignore[reportPrivateUsage] - reads what it writes
        yield message, number
        inner = _message(message, number)
        if isinstance(value, bytes) and inner:
            yield from fields_of(value, inner)


def with_more(content: bytes, message: str) -> Iterator[bytes]:
    """A message as a newer engine would write it, with one more field somewhere in it."""
    known = MESSAGES[message]
    unused = next(number for number in count(1) if number not in known)
    for number in (unused, max(known) + 1, 2_000):
        yield content + _field(number, 1)
    for number, value in proven_plans._fields(content):  # pyright: ignore[reportPrivateUsage] - reads what it writes
        inner = known.get(number)
        if isinstance(value, bytes) and isinstance(inner, str) and inner != VALUE:
            for changed in with_more(value, inner):
                yield content.replace(_field(number, value), _field(number, changed), 1)


def test_an_unknown_field_of_any_message_is_unproven(oracle: Oracle) -> None:
    content = oracle.plan("select k, sum(a) over (order by o) as x from t where a > 2 order by o limit 3").to_bytes()
    assert why_unproven(content) == ""
    changed = list(with_more(content, "plan"))
    assert len(changed) > 60
    assert [each for each in changed if not why_unproven(each)] == []


@pytest.mark.parametrize("table", ["csv_plain", "json_lines"])
def test_an_unknown_field_of_the_scan_of_a_table_is_unproven(oracle: Oracle, table: str) -> None:
    content = oracle.context.table(table).logical_plan().to_bytes(oracle.context)
    ((number, listing),) = proven_plans._fields(content)  # pyright: ignore[reportPrivateUsage] - reads what it writes
    assert number == 1 and isinstance(listing, bytes)
    assert why_unproven_scans(content) == ("", 1)
    changed = list(with_more(listing, "listing"))
    assert len(changed) >= 9
    assert [each for each in changed if not why_unproven_scans(_field(1, each))[0]] == []


# Scalars and types that the engine has and a plan in stages may not: unions, run-end encoding and list views.
UNLISTED: dict[str, tuple[int, ...]] = {"scalar": (42, 45, 46, 47), "type": (29, 42, 43, 44)}
# What a message may begin with, as far as the engine needs to see it to know the field that holds it.
_INNER = (b"", *(_field(number, value) for number in range(1, 6) for value in (1, b"")))


def test_the_listed_scalars_and_types_are_those_of_the_engine(oracle: Oracle) -> None:
    """The engine says that a value is missing where it does not know its field, or finds nothing in it."""
    for message, sql, missing in (
        ("scalar", "select 5 as x", "Missing required field value"),
        ("type", "select cast(column1 as varchar) as x from (values (1), (2))", "Missing required field arrow_type"),
    ):
        content = oracle.plan(sql).to_bytes()
        known = [number for number in range(1, 64) if _is_known(oracle, content, message, number, missing)]
        assert sorted({*MESSAGES[message], *UNLISTED[message]}) == known, message
        assert not _is_known(oracle, content, message, 2_000, missing), "that is how it is seen"


def _is_known(oracle: Oracle, content: bytes, message: str, number: int, missing: str) -> bool:
    return any(missing not in _complaint(oracle, content, message, _field(number, inner)) for inner in _INNER)


def test_every_listed_scalar_was_tried(oracle: Oracle) -> None:
    tried: dict[int, None] = {}

    def note(content: bytes, message: str) -> None:
        for number, value in proven_plans._fields(content):  # pyright: ignore[reportPrivateUsage] - reads what it writes
            if message == "scalar":
                tried[number] = None
            inner = MESSAGES[message].get(number)
            if isinstance(value, bytes) and isinstance(inner, str) and inner != VALUE:
                note(value, inner)

    for sql in constructs.literal_statements():
        if oracle.rows_of(sql) is not None:
            note(oracle.plan(sql).to_bytes(), "plan")
    assert sorted(MESSAGES["scalar"].keys() - tried.keys()) == []


def test_a_literal_of_every_type_is_listed(oracle: Oracle) -> None:
    for values in constructs.literals():
        sql = f"select k, {values[0]} as x from t where a > 1"  # noqa: S608 - names of ours
        assert why_unproven(oracle.plan(sql).to_bytes()) == "", sql


def _complaint(oracle: Oracle, content: bytes, message: str, field: bytes) -> str:
    try:
        oracle.decoded(_with_each(content, "plan", message, field))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        # A panic of the engine is not an Exception.
        return str(error)
    return ""


def _with_each(content: bytes, message: str, replaced: str, new: bytes) -> bytes:
    """A plan with something else in place of each message of a kind."""
    found: list[bytes] = []
    for number, value in proven_plans._fields(content):  # pyright: ignore[reportPrivateUsage] - reads what it writes
        inner = MESSAGES[message].get(number)
        if isinstance(value, bytes) and isinstance(inner, str) and inner != VALUE:
            value = new if inner == replaced else _with_each(value, inner, replaced, new)  # noqa: PLW2901 - the same field
        found.append(_field(number, value))
    return b"".join(found)


@pytest.mark.full
def test_an_encoder_that_drops_a_field_is_noticed(oracle: Oracle) -> None:
    """Each field of each message is dropped in turn; what makes no difference is listed, and is known to make none."""
    statements = [
        *constructs.turned_windows(),
        *constructs.aggregate_statements(),
        *constructs.join_statements(),
        *constructs.other_statements(),
        *list(constructs.call_statements())[::10],
        *[sql for sql in constructs.window_statements() if "filter" not in sql and "ignore" not in sql][::5],
    ]
    having: dict[tuple[str, int], list[tuple[str, bytes]]] = {}
    wanted: dict[str, list[str]] = {}
    for sql in statements:
        content = oracle.plan(sql).to_bytes()
        if not why_unproven(content) and (rows := oracle.rows_of(sql)) is not None:
            wanted[sql] = rows
            for field in dict.fromkeys(fields_of(content, "plan")):
                having.setdefault(field, []).append((sql, content))
    unnoticed: dict[str, list[int]] = {}
    for (message, number), found in sorted(having.items()):
        if not any(_is_noticed(oracle, content, wanted[sql], (message, number)) for sql, content in found):
            unnoticed.setdefault(message, []).append(number)
    assert {message: tuple(numbers) for message, numbers in unnoticed.items()} == IMMATERIAL


def _is_noticed(oracle: Oracle, content: bytes, wanted: list[str], dropped: tuple[str, int]) -> bool:
    try:
        return oracle.decoded(without(content, "plan", dropped)) != wanted
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        # It cannot be read, or is not run; a panic of the engine is not an Exception.
        return True
