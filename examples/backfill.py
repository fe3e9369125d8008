"""A daily balance that goes on from the day before: made to be run for days long past, in their order.

rota deploy examples/backfill.py
rota backfill balance --from 2026-01-01 --to 2026-01-31 --dry-run
rota backfill balance --from 2026-01-01 --to 2026-01-31
"""

import json
import tempfile
from pathlib import Path

import rota
from rota import task, workflow


@task
def bookings(day: str) -> list[int]:
    """What was booked on a day: here it follows from its date alone."""
    number = int(day.replace("-", ""))
    return [number % 7, number % 11, -(number % 5)]


@task(depends_on_past=True)
def carry_over(day: str, booked: list[int], folder: str) -> int:
    """Waits until the run before this one has carried over, so that days cannot overtake each other."""
    book = Path(folder) / "balance.json"
    balance = json.loads(book.read_text()) if book.exists() else {}
    before = max((other for other in balance if other < day), default="")
    balance[day] = balance.get(before, 0) + sum(booked)
    book.write_text(json.dumps(balance))
    return balance[day]


@workflow(schedule="@daily", start="2026-01-01", timezone="Europe/Berlin", max_active_runs=4)
def balance(folder: str = "/tmp"):  # noqa: S108 - an example writes where everybody may
    carry_over("{{ ds }}", bookings("{{ ds }}"), folder)


if __name__ == "__main__":
    with rota.Rota.embedded() as r, tempfile.TemporaryDirectory() as place:
        print(r.submit(balance, {"folder": place}).result("carry_over"))
