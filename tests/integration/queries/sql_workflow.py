"""A workflow in which SQL and Python pass tables to each other."""

from typing import Any

import pyarrow as pa

import rota


@rota.task
def extract() -> list[dict[str, Any]]:
    return [{"city": "Oslo", "km": 12}, {"city": "Rome", "km": 30}, {"city": "Oslo", "km": 7}]


@rota.task.sql(
    "select land, sum(km) as km from trips join cities using (city) where km >= $least group by land order by km desc"
)
def totals(trips: Any, cities: Any, least: int) -> None: ...


@rota.task
def lines(found: pa.Table) -> list[str]:
    return [f"{row['land']}: {row['km']}" for row in found.to_pylist()]


@rota.workflow
def report(cities: str, least: int) -> None:
    lines(totals(extract(), cities, least))


BY_PART = "select part, count(*) as n, sum(v) as total, max(name) as name from t where v >= $least group by part"


@rota.task
def where(folder: str) -> str:
    return folder


@rota.task.sql(BY_PART, partitions=2)
def staged(t: Any, least: int) -> None: ...


@rota.task.sql(BY_PART, partitions=1)
def alone(t: Any, least: int) -> None: ...


@rota.task
def same(found: pa.Table, other: pa.Table) -> int:
    assert found.schema.equals(other.schema, check_metadata=True), (found.schema, other.schema)
    rows = [sorted(table.to_pylist(), key=lambda row: row["part"]) for table in (found, other)]
    assert rows[0] == rows[1], rows
    return found.num_rows


@rota.workflow
def compared(folder: str, least: int) -> None:
    files = where(folder)
    same(staged(files, least), alone(files, least))


@rota.task.sql("select * from t where v >= $least", partitions=2)
def large(t: Any, least: int) -> None: ...


@rota.task
def count(found: pa.Table) -> int:
    return found.num_rows


@rota.workflow
def copied(folder: str, least: int) -> None:
    count(large(folder, least))


@rota.task.sql(BY_PART, partitions=2)
def each(t: Any, least: int) -> None: ...


@rota.task.sql(BY_PART, partitions=2, trigger_rule="all_done")
def after_all(t: Any, least: int) -> None: ...


@rota.workflow
def in_place(folder: str) -> None:
    files = where(folder)
    each.partial(t=files).expand(least=[0, 1])
    after_all(files, 0)
