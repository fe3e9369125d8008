"""A workflow that waits for a file without holding a slot meanwhile.

rota run examples/sensor.py --param folder=/tmp
"""

import tempfile
from pathlib import Path

import rota
from rota import task, workflow


@task.sensor(poke_interval=0.2, timeout=60)
def arrived(folder: str) -> str | None:
    """Called again and again until it returns something, which is then its result. In between it is not running."""
    file = Path(folder) / "delivery.csv"
    return str(file) if file.exists() else None


@task.sensor(poke_interval=0.2, timeout=1, soft_fail=True)
def arrived_late(folder: str) -> bool:
    """Nobody ever brings this one: when its time is over it is skipped, and so is what follows it."""
    return (Path(folder) / "late.csv").exists()


@task
def count(file: str) -> int:
    return len(Path(file).read_text().split(","))


@task
def count_late() -> None:
    raise AssertionError("skipped with its sensor")


@workflow
def waiting(folder: str):
    rota.command(["sh", "-c", "sleep 0.5; echo 1,2,3 > delivery.csv.part; mv delivery.csv.part delivery.csv"],
                 id="deliver", cwd=folder)  # fmt: skip
    count(arrived(folder))
    arrived_late(folder) >> count_late()


if __name__ == "__main__":
    with rota.Rota.embedded() as r, tempfile.TemporaryDirectory() as place:
        print(r.submit(waiting, {"folder": place}).result("count"))
