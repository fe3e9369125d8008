"""One task, then a thousand, then one: each of the thousand gets one element of what the first gave.

rota run examples/fan_out.py --param width=1000
"""

import rota
from rota import task, workflow


@task
def split(width: int) -> list[int]:
    return list(range(width))


@task
def square(number: int) -> int:
    return number * number


@task
def add_up(squares: list[int]) -> int:
    return sum(squares)


@workflow
def fan_out(width: int = 1_000):
    add_up(square.expand(number=split(width)))


if __name__ == "__main__":
    with rota.Rota.embedded() as r:
        print(r.submit(fan_out).result("add_up"))
