"""A first graph: numbers are fetched, one source is shaky and is tried again, and a report is written.

rota run examples/first.py
"""

import rota


@rota.task
def fetch(day: str) -> list[int]:
    print(f"fetching {day}")
    return [3, 1, 4, 1, 5]


@rota.task(retries=3, retry_delay=0.5)
def fetch_shaky(day: str) -> list[int]:
    attempt = rota.context().attempt
    print(f"fetching {day}, attempt {attempt}")
    if attempt < 3:
        raise ConnectionError("the source did not answer")
    return [9, 2, 6]


@rota.task
def total(first: list[int], second: list[int]) -> int:
    return sum(first) + sum(second)


@rota.task
def report(day: str, value: int) -> str:
    return f"{day}: {value}"


@rota.workflow
def first(day: str = "2026-11-16"):
    value = total(fetch(day), fetch_shaky(day))
    clock = rota.command("date +%H:%M", id="clock")
    clock >> report(day, value)


if __name__ == "__main__":
    with rota.Rota.embedded() as r:
        run = r.submit(first)
        print(run.result("report"))
