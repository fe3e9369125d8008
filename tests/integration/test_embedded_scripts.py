"""Programs as people write them: one file, classes of its own, functions of all sorts, a library beside it."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

ROTA = str(Path(sys.executable).with_name("rota"))

LIBRARY = """
import rota

@rota.task
def grow(point, by=1):
    point.x += by
    return point
"""

SCRIPT = """
import sys
from dataclasses import dataclass

import rota
from library import grow

@dataclass
class Point:
    x: int

def double(number):
    return 2 * number

@rota.task
def make(x):
    return Point(x)

@rota.task
def add(points, last):
    assert all(isinstance(point, Point) for point in (*points, last)), "they are of this very class"
    return Point(sum(point.x for point in points) + last.x)

class Shop:
    def __init__(self, name):
        self.name = name

    @rota.task
    def label(self, point):
        return f"{self.name} {point.x}"

@rota.workflow
def program(start=1):
    @rota.task
    def nested(point):
        return double(point.x)

    total = add([make(start), make(2)], Point(3))
    grown = grow(total, by=4)
    nested(grown)
    Shop("corner").label(grown)
    rota.task(lambda value: value.x)(grown)

if __name__ == "__main__":
    with rota.Rota.embedded(threads=sys.argv[1] == "threads") as here:
        run = here.submit(program, {"start": 10})
        assert run.wait().state == "success", [task.error for task in run.tasks()]
        point = run.result("grow")
        assert type(point) is Point, type(point)
        print(point.x, *(run.result(task) for task in ("nested", "label", "task")))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "library.py").write_text(LIBRARY)
    (tmp_path / "program.py").write_text(SCRIPT)
    return tmp_path


def said(folder: Path, *command: str) -> str:
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.parametrize("mode", ["processes", "threads"])
def test_a_script_uses_its_own_classes_in_its_tasks_and_gets_them_back(folder: Path, mode: str):
    assert said(folder, sys.executable, "program.py", mode) == "19 38 corner 19 19\n"


@pytest.mark.parametrize("mode", [[], ["--threads"]], ids=["processes", "threads"])
def test_the_same_script_is_run_by_the_command(folder: Path, mode: list[str]):
    lines = said(folder, ROTA, "run", "program.py", *mode).splitlines()
    assert lines[-3:] == ["nested: 20", 'label: "corner 10"', "task: 10"]


def test_a_script_that_starts_rota_when_it_is_loaded_is_told_what_to_do(folder: Path):
    (folder / "bare.py").write_text(
        "import rota\n\n@rota.task\ndef one():\n    return 1\n\n"
        "with rota.Rota.embedded() as here:\n    run = here.submit(one)\n    run.wait()\n"
        "    print(run.tasks()[0].error)\n"
    )
    told = said(folder, sys.executable, "bare.py")
    assert "bare.py starts Rota when it is loaded" in told
    assert 'if __name__ == "__main__":' in told


def test_functions_of_a_prompt_run_in_processes_too(folder: Path):
    program = (
        "import rota\n"
        "def helper(x): return x + 1\n"
        "@rota.task\ndef f(x): return helper(x)\n"
        "here = rota.Rota.embedded()\nprint(here.submit(f, {'x': 4}).result())\nhere.close()\n"
    )
    assert said(folder, sys.executable, "-c", program) == "5\n"
