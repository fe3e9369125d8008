"""What is made for a run is taken away again, also if the work between fails.

rota run examples/setup_teardown.py --param fails=true
"""

import shutil
import tempfile
from pathlib import Path

import rota
from rota import task, workflow


@task
def make_space() -> str:
    return tempfile.mkdtemp(prefix="rota-example-")


@task
def work(space: str, part: int, fails: bool) -> int:
    if fails and part == 2:
        raise ValueError("this part is broken")
    (Path(space) / f"{part}.txt").write_text("x" * part)
    return part


@task
def measure(space: str) -> int:
    return sum(file.stat().st_size for file in Path(space).iterdir())


@task
def remove_space(space: str) -> str:
    shutil.rmtree(space)
    return "removed"


@workflow
def cleaned_up(fails: bool = False):
    space = make_space()
    parts = work.partial(space=space, fails=fails).expand(part=[1, 2, 3])
    removed = remove_space(space).as_teardown(setups=space)
    # Of the parts, too: when one fails nothing is measured, and the others may still be writing.
    parts >> measure(space) >> removed
    parts >> removed


if __name__ == "__main__":
    with rota.Rota.embedded() as r:
        print(r.submit(cleaned_up).result("measure"))
        broken = r.submit(cleaned_up, {"fails": True})
        print(broken.wait().state, broken.result("remove_space"))
