"""A worker's folder that was copied while the worker runs: the copy is turned away and takes no work."""

import shutil
from pathlib import Path

import pytest

from tests.integration.deadlines import until
from tests.integration.service import tasks
from tests.integration.service.stage import SHORT_LEASE_S, open_stage, until_present, worker_named

pytestmark = pytest.mark.full

MORE = 8


def test_the_copy_of_a_running_worker_is_turned_away_and_the_worker_is_not_disturbed(tmp_path: Path):
    with open_stage(tmp_path, lease_s=SHORT_LEASE_S) as stage:
        stage.start_server()
        original = stage.start_worker("original", slots=2)
        client = stage.client()
        until_present(client, "original")
        held = client.submit(tasks.held, {"folder": str(tmp_path)}, run="held")
        until(lambda: tasks.lines(tmp_path, tasks.BEGAN), "the task to begin")
        known = worker_named(client, "original")
        shutil.copytree(original.folder, tmp_path / "copy", ignore=shutil.ignore_patterns("*.sock"))
        copy = stage.start_worker("copied", folder=tmp_path / "copy", wait=False)
        line = copy.until_said('"cause":"worker.duplicate"')
        assert "worker.duplicate" in line
        for number in range(MORE):
            assert (
                client.submit(tasks.step, {"folder": str(tmp_path)}, run=f"more-{number}").wait(30).state == "success"
            )
        begun = tasks.lines(tmp_path, tasks.BEGAN)
        assert len(begun) == MORE + 1
        assert {line.pid for line in begun} <= set(original.descendants()), "all of it ran below the original"
        (tmp_path / "go").touch()
        assert held.wait(30).state == "success"
        assert [line for line in held.story() if "LeaseReturned" in line] == []
        now = worker_named(client, "original")
        assert now is not None
        assert known is not None
        assert now.incarnation == known.incarnation
        assert '"cause":"worker.duplicate"' not in original.said()
        assert copy.popen.poll() is None, "it keeps asking: the original may end"
