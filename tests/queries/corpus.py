"""Statements of all the shapes that a query can have, and the tables that they ask.

Numbers are whole or decimal, so that sums do not depend on the order of rows. `is_ordered`: the statement says in which
order rows come. `other` is the statement for DuckDB, where that differs; None if there is nothing to compare with.
"""

from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import datafusion as df
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

SAME = "same"


class Case(Struct, frozen=True):
    """A statement by its name."""

    name: str
    sql: str
    is_ordered: bool = False
    other: str | None = SAME


# Tables.


def tables() -> dict[str, pa.Table]:
    """The tables: nulls in them, keys without partners on both sides, one that is empty."""
    random = Random(7)

    def maybe(value: Any) -> Any:
        return None if random.random() < 0.15 else value

    sales = [
        {
            "id": number,
            "shop": maybe(random.randrange(9)),
            "item": maybe(f"item {random.randrange(12)}"),
            "price": Decimal(random.randrange(10_000)) / 100,
            "day": random.randrange(30),
        }
        for number in range(400)
    ]
    shops = [{"shop": number, "town": maybe(f"town {number % 3}"), "rooms": number % 4} for number in range(2, 13)]
    returns = [
        {"id": random.randrange(500), "shop": maybe(random.randrange(9)), "why": random.choice("abc")}
        for _ in range(150)
    ]
    sales_schema = pa.schema(
        [
            ("id", pa.int64()),
            ("shop", pa.int32()),
            ("item", pa.string()),
            ("price", pa.decimal128(12, 2)),
            ("day", pa.int64()),
        ]
    )
    shops_schema = pa.schema([("shop", pa.int32()), ("town", pa.string()), ("rooms", pa.int64())])
    returns_schema = pa.schema([("id", pa.int64()), ("shop", pa.int32()), ("why", pa.string())])
    return {
        "sales": pa.Table.from_pylist(sales, schema=sales_schema),
        "shops": pa.Table.from_pylist(shops, schema=shops_schema),
        "returns": pa.Table.from_pylist(returns, schema=returns_schema),
        "nothing": sales_schema.empty_table(),
        "days": pa.Table.from_pylist(sorted(sales, key=lambda row: row["day"]), schema=sales_schema),
    }


# How many files each table is in. The files of `days` are sorted by day.
FILES = {"sales": 4, "shops": 1, "returns": 3, "nothing": 1, "days": 3}


def write_tables(folder: Path) -> Path:
    """Write the tables as Parquet."""
    for name, table in tables().items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(FILES[name]):
            chosen = [_file_of(name, row, at) == number for at, row in enumerate(table.to_pylist())]
            part = table.filter(pa.array(chosen, pa.bool_()))
            pq.write_table(part, folder / name / f"{number}.parquet", row_group_size=40)
    return folder


def _file_of(name: str, row: dict[str, Any], at: int) -> int:
    """Which file a row is in. Most of the last days are in the first file: whoever reads on has the wrong order."""
    return 2 - row["day"] // 10 if name == "days" and row["id"] % 4 else at % FILES[name]


def register(context: df.SessionContext, folder: Path) -> None:
    """Make the tables known, two of them a second time: in memory, in several partitions and in one."""
    for name in FILES:
        order = [[df.col("day").sort(ascending=True)]] if name == "days" else None
        context.register_parquet(name, f"{folder / name}/", file_sort_order=order)
    made = tables()
    context.register_record_batches("sold", [[batch] for batch in made["sales"].to_batches(max_chunksize=150)])
    context.register_record_batches("places", [made["shops"].to_batches()])
    make: Any = df.udf
    context.register_udf(make(twice, [pa.int64()], pa.int64(), "immutable", name="twice"))
    make = df.udaf
    context.register_udaf(make(Longest, pa.int64(), pa.int64(), [pa.int64()], "immutable", name="longest"))


def connect() -> duckdb.DuckDBPyConnection:
    """The same tables in DuckDB."""
    connection = duckdb.connect(config={"threads": 1})
    made = tables()
    for name, table in (*made.items(), ("sold", made["sales"]), ("places", made["shops"])):
        connection.register(name, table)
    return connection


# Functions.


def twice(values: pa.Array) -> pa.Array:
    """A function of rows."""
    return pc.multiply(values, 2)


class Longest(df.Accumulator):
    """A function of groups: the largest number of a group, in a complicated way."""

    def __init__(self) -> None:
        self._most = -1

    def update(self, *values: pa.Array) -> None:
        self._most = max([self._most, *(value for value in values[0].to_pylist() if value is not None)])

    def merge(self, states: list[pa.Array]) -> None:
        self.update(states[0])

    def state(self) -> list[pa.Scalar]:
        return [pa.scalar(self._most)]

    def evaluate(self) -> pa.Scalar:
        return pa.scalar(self._most)


CASES = (
    # Rows.
    Case("all rows", "select * from sales"),
    Case("some rows", "select id, price * 2 as p from sales where shop > 3 and item is not null"),
    Case("no rows", "select id, item from sales where id < 0"),
    Case("never true", "select id, item from sales where 1 = 2"),
    Case("case", "select id, case when day < 10 then 'early' when day < 20 then 'later' end as w from sales"),
    Case("in a list", "select id from sales where item in ('item 1', 'item 5') or shop in (1, 2)"),
    Case("a constant", "select 1 as one, 'x' as x, null as n"),
    Case("values", "select * from (values (1, 'a'), (2, null), (3, 'c')) as v(n, s)"),
    Case("values joined", "select v.s, s.id from (values (1, 'a'), (2, 'b')) as v(n, s) join sales s on s.shop = v.n"),
    Case("series", "select value as n from generate_series(1, 9)", other="select n from generate_series(1, 9) g(n)"),
    Case(
        "series counted",
        "select count(*) from generate_series(1, 900)",
        other="select count(*) from generate_series(1, 900)",
    ),
    Case(
        "series counted for each",
        "select s.id, g.n from shops t join sales s on s.shop = t.shop, "
        "(select count(*) n from generate_series(3, 8)) g",
        other="select s.id, 6 from shops t, sales s where s.shop = t.shop",
    ),
    Case(
        "series joined",
        "select g.value, count(*) from generate_series(0, 6) g join sales s on s.day = g.value group by g.value",
        other="select g.n, count(*) from generate_series(0, 6) g(n) join sales s on s.day = g.n group by g.n",
    ),
    Case("in memory", "select shop, count(*), sum(price) from sold group by shop"),
    Case("the same name twice", "select a.id, b.id, a.shop, b.shop from sales a join returns b on a.id = b.id"),
    Case("unnest", "select id, unnest([day, day + 1]) as d from sales where id < 50"),
    Case(
        "unnest grouped",
        "select d, count(*) from (select unnest([day, 7]) as d from sales) group by d",
    ),
    # Groups.
    Case("count", "select count(*) from sales"),
    Case("count of a limit", "select count(*) from (select * from sales limit 17)"),
    Case("count of nothing", "select count(*), sum(price), max(item) from nothing"),
    Case("groups", "select shop, item, count(*), sum(price), min(day), max(day) from sales group by shop, item"),
    Case("groups of nothing", "select shop, count(*) from nothing group by shop"),
    Case("having", "select shop, count(*) as n from sales group by shop having count(*) > 30"),
    Case("averages", "select shop, avg(day), avg(id) from sales group by shop"),
    Case("distinct", "select distinct shop, day % 3 from sales"),
    Case("counts of distinct", "select shop, count(distinct item), count(distinct day) from sales group by shop"),
    Case("count of distinct", "select count(distinct item) from sales"),
    Case(
        "filtered",
        "select shop, count(*) filter (where day > 20), sum(day) filter (where id < 9) from sales group by shop",
    ),
    Case(
        "grouping sets",
        "select shop, day % 2 as odd, count(*), sum(price) from sales group by grouping sets ((shop), (day % 2), ())",
    ),
    Case("rollup", "select shop, day % 2 as odd, sum(day) from sales group by rollup (shop, day % 2)"),
    Case("cube", "select shop, day % 2 as odd, sum(day) from sales group by cube (shop, day % 2)"),
    Case("collected", "select shop, array_agg(id order by day, id) from sales group by shop"),
    Case("first", "select shop, first_value(id order by day, id) from sales group by shop", other=None),
    Case("strings together", "select shop, string_agg(item, ',' order by id) from sales group by shop"),
    Case(
        "groups of groups",
        "select n, count(*) from (select shop, item, count(*) n from sales group by shop, item) group by n",
    ),
    Case(
        "groups over two",
        "select shop, sum(n) from (select shop, count(*) n from sales group by shop "
        "union all select shop, count(*) n from returns group by shop) group by shop",
    ),
    # Joins.
    Case("join", "select s.id, t.town from sales s join shops t on s.shop = t.shop"),
    Case(
        "join of three",
        "select t.town, r.why, count(*) from sales s join shops t on s.shop = t.shop join returns r on r.id = s.id "
        "group by t.town, r.why",
    ),
    Case("join by two", "select s.id, r.why from sales s join returns r on s.id = r.id and s.shop = r.shop"),
    Case("left", "select s.id, t.town from sales s left join shops t on s.shop = t.shop"),
    Case("left of few", "select t.shop, t.town, s.id from shops t left join sales s on s.shop = t.shop"),
    Case(
        "left of few, counted",
        "select t.shop, count(s.id) from shops t left join sales s on s.shop = t.shop group by t.shop",
    ),
    Case("right", "select s.id, t.town, t.shop from sales s right join shops t on s.shop = t.shop"),
    Case("full", "select s.id, t.shop, t.town from sales s full join shops t on s.shop = t.shop"),
    Case("full of many", "select s.id, r.id, r.why from sales s full join returns r on s.id = r.id"),
    Case("left with more", "select t.shop, s.id from shops t left join sales s on s.shop = t.shop and s.day > 25"),
    Case("semi", "select * from sales where shop in (select shop from shops where rooms > 1)"),
    Case("semi of few", "select * from shops where shop in (select shop from sales where day > 3)"),
    Case("anti", "select s.id from sales s where not exists (select 1 from returns r where r.id = s.id)"),
    Case(
        "anti of few",
        "select t.* from shops t where not exists (select 1 from sales s where s.shop = t.shop and s.day < 2)",
    ),
    Case("not in, without nulls", "select id from sales where id not in (select id from returns)"),
    Case("not in, with nulls", "select shop from shops where shop not in (select shop from returns)"),
    Case("nulls not in", "select id, shop from sales where shop not in (select shop from shops)"),
    Case("not in nothing", "select shop from shops where shop not in (select shop from nothing)"),
    Case("in, or else", "select shop from shops where shop in (select shop from returns where why = 'a') or rooms = 0"),
    Case(
        "exists, or else",
        "select s.id from sales s where exists (select 1 from returns r where r.id = s.id) or s.day = 3",
    ),
    Case("cross", "select s.id, t.town from sales s cross join shops t where s.id < 20"),
    Case("cross of two", "select count(*) from sales, shops"),
    Case("by order", "select s.id, t.shop from sales s join shops t on s.shop < t.shop where s.day = 4"),
    Case("left by order", "select t.shop, s.id from shops t left join sales s on s.shop > t.shop and s.day = 4"),
    Case("right by order", "select t.shop, s.id from sales s left join shops t on s.shop > t.shop where s.day < 4"),
    Case(
        "full by order", "select t.shop, s.id from shops t full join sales s on s.shop > t.shop + 3 and s.day < t.rooms"
    ),
    Case(
        "joined with itself",
        "select a.shop, count(*) from sales a join sales b on a.shop = b.shop and a.id < b.id group by a.shop",
    ),
    Case("joined with nothing", "select s.id, n.id from sales s left join nothing n on s.id = n.id"),
    Case("nothing joined", "select n.id, s.shop from nothing n full join shops s on n.shop = s.shop"),
    Case(
        "joined in memory",
        "select p.town, count(*), sum(s.price) from sold s join places p on s.shop = p.shop group by p.town",
    ),
    Case("left of places", "select p.shop, s.id from places p left join sold s on s.shop = p.shop and s.day > 20"),
    # Queries in queries.
    Case(
        "a value in a filter of an aggregate",
        "select sum(price) filter (where day > (select min(rooms) from shops) + 3) as z, count(*) from sales",
    ),
    Case(
        "a value in an order",
        "select shop, count(*) n from sales group by shop "
        "order by count(*) + (select max(rooms) from shops), shop nulls first",
        is_ordered=True,
    ),
    Case(
        "values in a join and in each other",
        "select s.id from sales s join shops t on s.shop = t.shop + (select min(rooms) from shops) "
        "where s.price < (select max(price) from sales where day < (select avg(day) from sales))",
    ),
    Case(
        "a value in an aggregate", "select shop, sum(price * (select max(rooms) from shops)) from sales group by shop"
    ),
    Case("no value", "select (select town from shops where shop = 99) as x, count(*) from sales"),
    Case(
        "a value in a window",
        "select id, row_number() over (order by price + (select min(day) from sales), id) as r from sales",
    ),
    Case(
        "a value in having",
        "select shop, count(*) from sales group by shop having count(*) > (select avg(rooms) from shops)",
    ),
    Case("more than average", "select id from sales where day > (select avg(day) from sales)"),
    Case("the last", "select id, day from sales where day = (select max(day) from sales)"),
    Case(
        "the dearest of each",
        "select id, shop from sales s where price = (select max(price) from sales x where x.shop = s.shop)",
    ),
    Case("counted for each", "select t.shop, (select count(*) from sales s where s.shop = t.shop) as n from shops t"),
    Case(
        "with",
        "with a as (select shop, sum(price) p from sales group by shop), b as (select max(p) m from a), "
        "c as (select a.shop, a.p from a, b where a.p < b.m) select c.shop, c.p, t.town from c left join shops t "
        "on c.shop = t.shop",
    ),
    Case(
        "twice the same",
        "with a as (select shop, count(*) n from sales group by shop) select x.shop, y.n from a x join a y on x.n "
        "= y.n",
    ),
    # Sets.
    Case("union all", "select shop from sales union all select shop from returns union all select shop from shops"),
    Case("union", "select shop from sales union select shop from shops"),
    Case("union of names", "select id as x, shop as y from sales where id < 9 union all select shop, rooms from shops"),
    Case(
        "union joined",
        "select u.x, t.town from (select shop as x from sales union all select shop + 1 from returns) u join shops "
        "t on t.shop = u.x",
    ),
    Case(
        "union of few and many",
        "select 0 as a, 'x' as b union all select id, item from sales union all select shop, town from places",
    ),
    Case("intersect", "select shop from sales intersect select shop from shops"),
    Case("except", "select shop from shops except select shop from sales"),
    Case(
        "union sorted",
        "select shop, 'a' as w from sales union all select shop, 'b' from returns order by shop nulls last, w",
        is_ordered=True,
    ),
    # Order.
    Case("sorted", "select id, day, price from sales order by day desc, id", is_ordered=True),
    Case("sorted by nulls", "select item, id from sales order by item nulls first, id", is_ordered=True),
    Case("first ten", "select id, price from sales order by price desc, id limit 10", is_ordered=True),
    Case("next ten", "select id, price from sales order by price desc, id limit 10 offset 10", is_ordered=True),
    Case("after some", "select id from sales order by id offset 390", is_ordered=True),
    Case(
        "groups sorted",
        "select shop, count(*) n from sales group by shop order by n desc, shop nulls last limit 4",
        is_ordered=True,
    ),
    Case("some of all", "select count(*) from (select id from sales where day > 2 limit 7)"),
    Case(
        "join of the first",
        "select f.id, t.town from (select * from sales order by price, id limit 20) f join shops t on t.shop = f.shop",
    ),
    Case(
        "numbers of the first by shop, beside others",
        "select id as a, shop as b from sales where id < 90 union all select n, shop from (select shop, row_number() "
        "over (partition by shop order by id) as n from (select * from sales order by shop nulls last, id limit 20)) g",
    ),
    Case(
        "numbers of the first, beside others",
        "select id as a, shop as b from sales where id < 90 union all select n, shop from (select shop, row_number() "
        "over (order by shop nulls last, id) as n from (select * from sales order by shop nulls last, id limit 20)) g",
    ),
    Case(
        "groups of the first",
        "select shop, count(*) from (select * from sales order by shop nulls last, id limit 60) group by shop "
        "order by shop nulls last",
        is_ordered=True,
    ),
    Case(
        "the first of each",
        "select distinct on (shop) shop, id from sales order by shop nulls last, id",
        is_ordered=True,
    ),
    Case(
        "left of few, sorted",
        "select t.shop, s.id from shops t left join sales s on s.shop = t.shop order by t.shop, s.id",
        is_ordered=True,
    ),
    Case(
        "left of few, the first",
        "select t.shop, s.id from shops t left join sales s on s.shop = t.shop order by t.shop, s.id limit 9",
        is_ordered=True,
    ),
    # Windows.
    Case("numbered", "select id, row_number() over (partition by shop order by day, id) from sales"),
    Case("numbered in all", "select id, row_number() over (order by price, id) from sales"),
    Case("sums so far", "select id, sum(day) over (partition by shop order by day, id) from sales"),
    Case(
        "sums around",
        "select id, sum(day) over (partition by shop order by day, id rows between 2 preceding and 1 following) "
        "from sales",
    ),
    Case("of all", "select id, sum(day) over (), count(*) over () from sales"),
    Case("of the part", "select id, max(price) over (partition by item), count(*) over (partition by item) from sales"),
    Case(
        "before and after",
        "select id, lag(day, 1) over (partition by shop order by id), lead(day, 2) over (partition by shop order "
        "by id) from sales",
    ),
    Case(
        "two ways",
        "select id, rank() over (partition by shop order by day), dense_rank() over (partition by item order by "
        "day desc) from sales",
    ),
    Case(
        "of groups",
        "select shop, sum(day), rank() over (order by sum(day) desc, shop nulls last) from sales group by shop",
    ),
    Case(
        "the best three",
        "select shop, id from (select shop, id, row_number() over (partition by shop order by price desc, id) r "
        "from sales) where r <= 3",
    ),
    Case(
        "by range",
        "select id, count(*) over (partition by shop order by day range between 3 preceding and current row) from "
        "sales",
    ),
    # A table that is sorted.
    Case("days sorted", "select day, id from days order by day, id", is_ordered=True),
    Case("days as they are", "select day from days order by day", is_ordered=True),
    Case("days grouped", "select day, count(*), sum(price) from days group by day order by day", is_ordered=True),
    Case(
        "days by two",
        "select day, shop, count(*) from days group by day, shop order by day, shop nulls last",
        is_ordered=True,
    ),
    Case(
        "days ranked", "select day, n, rank() over (order by day) from (select day, count(*) n from days group by day)"
    ),
    Case(
        "days numbered",
        "select day, shop, n, row_number() over (partition by day order by shop nulls last) from (select day, "
        "shop, count(*) n from days group by day, shop)",
    ),
    Case(
        "days joined",
        "select x.day, x.n, y.n from (select day, count(*) n from days group by day) x full join (select day, "
        "count(*) n from days where id % 2 = 0 group by day) y on x.day = y.day order by x.day",
        is_ordered=True,
    ),
    Case("days, first of each", "select day, first_value(id order by id) from days group by day", other=None),
    Case(
        "days, last of each",
        "select shop, last_value(day order by day, id), array_agg(id order by day, id) from days group by shop",
        other=None,
    ),
    Case("days so far", "select day, id, sum(id) over (order by day, id) from days"),
    Case("days in their parts", "select day, id, count(*) over (partition by day order by id) from days"),
    # Functions of Python.
    Case(
        "function",
        "select id, twice(day) as t from sales where twice(day) > 20",
        other="select id, day * 2 from sales where day > 10",
    ),
    Case(
        "function of groups",
        "select shop, longest(day) from sales group by shop",
        other="select shop, max(day) from sales group by shop",
    ),
    Case("function of all", "select twice(longest(day)) from sales", other="select max(day) * 2 from sales"),
    Case(
        "function joined",
        "select count(*) from sales a join returns b on twice(a.id) = b.id",
        other="select count(*) from sales a join returns b on a.id * 2 = b.id",
    ),
)


def by_name(name: str) -> Case:
    """One of the cases."""
    return next(case for case in CASES if case.name == name)


# Answers.


def rows_of(table: pa.Table, is_ordered: bool) -> list[tuple[Any, ...]]:
    """The rows, so that they can be compared: in their order, or in one that does not depend on how they were found."""
    named = table.rename_columns([str(index) for index in range(table.num_columns)])
    return comparable([tuple(row.values()) for row in named.to_pylist()], is_ordered)


def comparable(rows: list[tuple[Any, ...]], is_ordered: bool) -> list[tuple[Any, ...]]:
    """The same for rows that are tuples already."""
    plain = [tuple(_plain(value) for value in row) for row in rows]
    return plain if is_ordered else sorted(plain, key=repr)


def _plain(value: Any) -> Any:
    match value:
        case Decimal():
            return float(value)
        case float():
            return round(value, 9)
        case int() if not isinstance(value, bool):
            return float(value)
        case list():
            return [_plain(each) for each in value]
        case _:
            return value
