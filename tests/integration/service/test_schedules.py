"""A schedule whose coordinator is killed again and again: each of its instants makes one run, and none is left out."""

from pathlib import Path

import pytest

import rota
from tests.integration.deadlines import until
from tests.integration.service.stage import open_stage, until_present

pytestmark = pytest.mark.full

KILLS = 3
FLOW = """
from rota import task, workflow

@task
def tick():
    return 1

@workflow(schedule=1, catchup=True)
def ticking():
    tick()
"""


def test_every_instant_makes_one_run_though_the_coordinator_is_killed(tmp_path: Path):
    (tmp_path / "ticking.py").write_text(FLOW)
    with open_stage(tmp_path) as stage:
        server = stage.start_server()
        stage.start_worker("one", slots=2)
        client = stage.client()
        until_present(client, "one")
        client.deploy(tmp_path / "ticking.py")
        for number in range(1, KILLS + 1):
            until(lambda number=number: len(slots(client)) >= 2 * number, "two runs more")
            server.kill()
            server = stage.start_server()
        seen = len(slots(client))
        until(lambda: len(slots(client)) > seen, "the schedule to go on")
        client.pause_workflow("ticking")
        made = slots(client)
        assert made == list(range(made[0], made[-1] + 1_000, 1_000))


def slots(client: rota.Rota) -> list[int]:
    """The instants that runs were made of, oldest first; one that made two runs is there twice."""
    return sorted(view.slot_at for view in client.runs(name="ticking", limit=1_000))
