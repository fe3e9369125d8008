"""A stream as the one task of a run: leased, fenced, and gone on with when its process, or all of them, are killed."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import rota
from tests.integration.deadlines import until
from tests.integration.queries import stream_program as program
from tests.integration.queries.test_streams_that_are_killed import check, newest

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[3]


def holder(folder: Path) -> int:
    """The process that has taken the stream over, or published a round, last."""
    process = int(newest(folder).holder.rpartition(":")[2])
    assert process > 0, "whoever is killed is one process"
    return process


def test_a_stream_whose_process_is_killed_goes_on_under_a_newer_fence(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = program.make_rows(tmp_path / "in")
    with rota.Rota.embedded(tmp_path / "data", slots=1) as here:
        run = here.submit(program.streamed, {"folder": str(tmp_path)})
        killed: dict[int, None] = {}
        for _ in range(6):
            before = newest(tmp_path).position
            until(lambda before=before: newest(tmp_path).position > before + 2 or newest(tmp_path).is_final, "rounds")
            process = holder(tmp_path)
            if newest(tmp_path).is_final or process in killed:
                break
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
                killed[process] = None
            until(lambda process=process: holder(tmp_path) != process or newest(tmp_path).is_final, "another process")
        fence = run.result()
    assert len(killed) >= 3
    assert newest(tmp_path).incarnation == fence
    check(tmp_path, rows)


def test_a_stream_goes_on_after_coordinator_and_worker_are_killed_together(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = program.make_rows(tmp_path / "in")
    words = [sys.executable, "-m", "tests.integration.queries.stream_program", str(tmp_path)]
    fences: list[int] = []
    for _ in range(3):
        with subprocess.Popen(words, cwd=ROOT) as process:
            before = newest(tmp_path).position
            until(lambda before=before: newest(tmp_path).position > before + 2, "rounds")
            process.kill()
        fences.append(newest(tmp_path).incarnation)
    with subprocess.Popen(words, cwd=ROOT) as process:
        assert process.wait(120) == 0
    fences.append(newest(tmp_path).incarnation)
    assert fences == sorted(fences)
    assert len(dict.fromkeys(fences)) >= 3, "each took over from the one before"
    check(tmp_path, rows)
