"""`rota resolve`: a task is let out of needs_attention by one of its three ways."""

import re
from pathlib import Path

import pytest

import rota
from rota.cli.resolve import WAYS
from rota.core.bounds import TimeLimits
from tests.integration import jobs
from tests.integration.deadlines import until
from tests.integration.typing_commands import data, saying


@rota.workflow
def heavy():
    jobs.nothing.override(requires={"gpu_count": 8})()


def test_a_parked_task_is_let_out_and_one_that_has_ended_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    say = saying(capsys, tmp_path)
    limits = TimeLimits(sweep_ms=50, settle_ms=50, starve_ms=100)
    with rota.Rota.embedded(tmp_path, threads=True, limits=limits) as one:
        run = one.submit(heavy, run="heavy")

        def is_parked() -> bool:
            return run.tasks("nothing")[0].state == "needs_attention"

        until(is_parked, "it to be parked")
        told = say("resolve", "heavy", "nothing", "--requeue")[1]
        assert WAYS["requeue"] in told
        assert re.search(r"\bheavy\b.*\brunning\b", told)
        until(is_parked, "it to be parked again")
        assert data(say("resolve", "heavy", "nothing", "--fail", "--json"))["id"] == "heavy"
        assert run.wait(20).state == "failed"
        code, _, err = say("resolve", "heavy", "nothing", "--cancel")
        assert code == 3
        assert "run.ended" in err
