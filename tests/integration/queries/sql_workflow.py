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
