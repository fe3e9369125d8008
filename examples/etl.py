"""Shops report their sales, one task for each; then what happens depends on the total.

rota run examples/etl.py
rota deploy examples/etl.py && rota run etl --follow
"""

from zlib import crc32

import rota
from rota import task, task_group, workflow


@task
def shops(count: int) -> list[str]:
    """Who reports today: how many there are is known when this has run."""
    names = ["Aachen", "Bern", "Cork", "Delft", "Espoo", "Faro", "Graz", "Hull"]
    return names[:count]


@task(retries=2, retry_delay=0.1)
def sales(shop: str, day: str) -> int:
    """One of these runs for each shop."""
    found = 100 + crc32(f"{shop} {day}".encode()) % 800
    print(f"{shop} sold for {found} on {day}")
    return found


@task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@task.branch
def judge(value: int, goal: int) -> str:
    """The name of what is to run: a task, a list of them, or a group."""
    return "celebrate" if value >= goal else "investigate"


@task
def celebrate() -> str:
    return "cake for everybody"


@task_group
def investigate(shops: list[str], numbers: list[int]):
    """Two tasks that belong together; a branch may choose them by the group's name."""
    call_shop(find_weakest(shops, numbers))


@task
def find_weakest(shops: list[str], numbers: list[int]) -> str:
    return min(zip(numbers, shops, strict=True))[1]


@task
def call_shop(shop: str) -> str:
    print(f"calling {shop}")
    return shop


@task(trigger_rule="none_failed_min_one_success")
def report(day: str, value: int, ctx: rota.Context) -> str:
    """Runs after whichever way was taken."""
    ctx.log.info("run %s, attempt %s", ctx.run, ctx.attempt)
    return f"{day}: {value}"


@workflow(schedule="0 6 * * *", timezone="Europe/Berlin", description="The sales of all shops, every morning.")
def etl(shop_count: int = 6, goal: int = 2_500):
    names = shops(shop_count)
    numbers = sales.partial(day="{{ ds }}").expand(shop=names)
    value = total(numbers)
    judge(value, goal) >> [celebrate(), investigate(names, numbers)] >> report("{{ ds }}", value)


if __name__ == "__main__":
    with rota.Rota.embedded() as r:
        print(r.submit(etl).result("report"))
