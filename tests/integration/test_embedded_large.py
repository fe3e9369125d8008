"""Large graphs in one process: thousands of tasks in the normal suite, a hundred thousand in the long one."""

import subprocess
import sys
from pathlib import Path

import pytest

import rota
from rota.core.states import SUCCESS
from tests.integration import jobs

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]

# The tasks themselves, the coordinator's records of them and what the store holds, with some room.
BYTES_PER_TASK_MAX = 6_000
FIXED_BYTES_MAX = 150 << 20

PROGRAM = """
import sys
import rota
from tests.integration import jobs

count, folder = int(sys.argv[1]), sys.argv[2]

@rota.workflow
def layers():
    first = [jobs.nothing() for _ in range(count // 2)]
    for one in first:
        one >> jobs.nothing()

with rota.Rota.embedded(folder, threads=True, slots=8) as one:
    run = one.submit(layers, run="large")
    ended = sum(event.what == "AttemptEnded" for event in run.events())
    view = run.status()
    # Not from getrusage: that counts the process which started this one too.
    (most,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
    print(view.state, *view.tasks.items(), ended, int(most) * 1024)
"""


def run_large(folder: Path, count: int, patience_s: float) -> int:
    """Run that many tasks in a program of its own; the most memory it had."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(count), str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=patience_s,
    )
    said, _, memory = ended.stdout.rstrip().rpartition(" ")
    assert said == f"success ({SUCCESS!r}, {count}) {count}"
    return int(memory)


def test_five_thousand_tasks_end_and_every_event_is_seen(tmp_path: Path):
    memory = run_large(tmp_path, 5_000, 120)
    assert memory < FIXED_BYTES_MAX + 5_000 * BYTES_PER_TASK_MAX


@pytest.mark.long
def test_a_hundred_thousand_tasks_end_in_bounded_memory(tmp_path: Path):
    memory = run_large(tmp_path, 100_000, 900)
    assert memory < FIXED_BYTES_MAX + 100_000 * BYTES_PER_TASK_MAX
    with rota.Rota.open(tmp_path) as seen:
        assert len(seen.run("large").tasks()) == 100_000


def test_a_wide_fan_in_gives_all_its_values():
    @rota.workflow
    def wide():
        jobs.total([jobs.add(number) for number in range(2_000)])

    with rota.Rota.embedded(threads=True, slots=8) as one:
        assert one.submit(wide).result(timeout_s=60) == 1999 * 1000


def test_edges_to_one_task_are_written_down_in_linear_time():
    @rota.workflow
    def fan():
        last = jobs.nothing()
        for _ in range(20_000):
            jobs.nothing() >> last

    (spec,) = [spec for spec in fan.build().tasks if spec.id == "nothing"]
    assert len(spec.upstream) == 20_000
