"""Actions while coordinator, front end and workers are processes of their own, of which one or the other is missing."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from google.rpc import code_pb2

from tests.integration.builds.clients.service import UNWALLED, Service
from tests.integration.builds.remote import open_remote, response_of, stage_of
from tests.integration.builds.test_execution import Door, run_named
from tests.integration.deadlines import until
from tests.integration.service.stage import open_stage

pytestmark = pytest.mark.full

# A worker that is silent for so long has lost its work. A coordinator is back sooner, also on a busy machine.
LEASE_S = 20
# No test waits for the end of this one.
ENDLESS_LEASE_S = 300


@contextmanager
def open_apart(folder: Path, lease_s: int = LEASE_S) -> Iterator[Service]:
    """A coordinator and a front end; workers are the tests' own."""
    with open_stage(folder, lease_s=lease_s) as stage:
        one = Service(stage, UNWALLED)
        stage.start_server()
        one.front_end()
        yield one


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """One in which leases are long."""
    with open_apart(tmp_path) as one:
        yield one


@pytest.fixture
def door(tmp_path: Path) -> Door:
    return Door(tmp_path)


def test_what_waits_for_a_worker_goes_on_for_whoever_still_wants_it(service: Service, door: Door) -> None:
    with open_remote(service.port) as remote, open_remote(service.port) as other:
        action = remote.action(door.line)
        first, second = remote.execute(action), other.execute(action)
        assert [stage_of(heard.next()) for heard in (first, second)] == ["queued", "queued"]
        remote.cancel(first.name)
        assert first.response().status.code == code_pb2.CANCELLED
        service.stage.start_worker("hand")
        door.open()
        assert second.response().result.stdout_raw == b"through\n"


def test_what_nobody_wants_any_more_is_never_begun(service: Service, door: Door) -> None:
    with open_remote(service.port) as remote:
        heard = remote.execute(remote.action(door.line))
        heard.next()
        remote.cancel(heard.name)
        assert heard.response().status.code == code_pb2.CANCELLED
        service.stage.start_worker("hand")
        assert remote.execute(remote.action("echo later")).response().result.stdout_raw == b"later\n"
        assert run_named(service, heard.name) == "cancelled"
        assert not door.begun.exists()


def test_those_who_share_an_action_are_all_told_although_its_worker_died(service: Service, door: Door) -> None:
    worker = service.stage.start_worker("hand")
    with open_remote(service.port) as remote, open_remote(service.port) as other:
        action = remote.action(door.line)
        first, second = door.begin(remote, action), other.execute(action)
        second.next()
        service.kill_all(worker)
        service.stage.start_worker("hand")
        until(lambda: door.times == 2, "it to begin again")
        door.open()
        assert [heard.response().result.stdout_raw for heard in (first, second)] == [b"through\n"] * 2


def test_an_action_of_a_silent_worker_is_given_to_another_long_before_its_lease_is_over(
    tmp_path: Path, door: Door
) -> None:
    with open_apart(tmp_path, ENDLESS_LEASE_S) as service, open_remote(service.port) as remote:
        silent = service.stage.start_worker("silent")
        heard = door.begin(remote, remote.action(door.line))
        silent.freeze()
        service.stage.start_worker("spare")
        until(lambda: door.times == 2, "the other one to begin it", patience_s=60)
        door.open()
        metadata = heard.response().result.execution_metadata
        assert metadata.worker == "spare"
        silent.thaw()
        assert run_named(service, heard.name) == "success", "what the first worker says of it changes nothing"


def test_an_operation_outlives_its_front_end_and_its_coordinator(service: Service, door: Door) -> None:
    service.stage.start_worker("hand")
    front = next(process for process in service.stage.processes if process.name == "frontend")
    server = next(process for process in service.stage.processes if process.name == "server")
    with open_remote(service.port) as remote:
        heard = door.begin(remote, remote.action(door.line))
    front.kill()
    server.kill()
    service.stage.start_server()
    service.front_end()
    with open_remote(service.port) as remote:
        again = remote.wait(heard.name)
        again.next()
        door.open()
        assert again.response().result.stdout_raw == b"through\n"
        assert response_of(remote.get(heard.name)).result.stdout_raw == b"through\n"
    assert door.times == 1, "all that while it ran on"


def test_what_another_client_has_cancelled_is_made_again_also_by_a_front_end_that_knows_neither(
    service: Service, door: Door
) -> None:
    front = next(process for process in service.stage.processes if process.name == "frontend")
    with open_remote(service.port) as remote, open_remote(service.port) as other:
        action = remote.action(door.line)
        first, second = remote.execute(action), other.execute(action)
        assert [stage_of(heard.next()) for heard in (first, second)] == ["queued", "queued"]
    front.kill()
    service.front_end()
    with open_remote(service.port) as remote, open_remote(service.port) as other:
        remote.cancel(first.name)
        until(lambda: run_named(service, first.name) == "cancelled", "it to be cancelled")
        again = other.wait(second.name)
        assert stage_of(again.next()) == "queued"
        assert again.name == second.name
        assert response_of(remote.get(first.name)).status.code == code_pb2.CANCELLED, "who has cancelled it, has"
        service.stage.start_worker("hand")
        door.open()
        assert again.response().result.stdout_raw == b"through\n"
        assert other.wait(second.name).response().result.stdout_raw == b"through\n", "and is found by it later"
        assert len(service.runs()) == 2


def test_what_nobody_comes_back_for_is_given_up_by_a_front_end_that_was_restarted(service: Service, door: Door) -> None:
    front = next(process for process in service.stage.processes if process.name == "frontend")
    with open_remote(service.port) as remote:
        heard = remote.execute(remote.action(door.line))
        heard.next()
        front.kill()
    service.front_end()
    until(lambda: run_named(service, heard.name) == "cancelled", "it to be given up")


def test_trouble_that_is_not_the_action_s_result_is_tried_again_as_often_as_the_queue_says(tmp_path: Path) -> None:
    with open_stage(tmp_path, lease_s=LEASE_S) as stage:
        service = Service(stage, f"max_job_retries = 1\n{UNWALLED}")
        stage.start_server()
        service.front_end()
        stage.start_worker("hand")
        with open_remote(service.port) as remote:
            # What starts actions, and without a sandbox is not safe from them.
            heard = remote.execute(remote.action("kill -9 $PPID; sleep 100"))
            response = heard.response()
        assert response.status.code == code_pb2.INTERNAL
        assert "supervisor" in response.status.message, "the last trouble is what its client is told"
        (run,) = service.runs()
        (task,) = service.client().run(run.id).tasks()
        assert task.attempt == 2
        assert heard.stages[-3:] == ["queued", "executing", "completed"], "it waited again in between"


def test_an_action_that_ends_every_worker_is_given_up(service: Service, door: Door) -> None:
    with open_remote(service.port) as remote:
        worker = service.stage.start_worker("hand")
        heard = remote.execute(remote.action(door.line))
        for times in range(1, 8):
            until(lambda times=times: door.times >= times or run_is_over(service), "its turn", 90)
            if run_is_over(service):
                break
            service.kill_all(worker)
            worker = service.stage.start_worker("hand")
        response = heard.response()
        assert response.status.code == code_pb2.INTERNAL
        assert "interrupted" in response.status.message


def run_is_over(service: Service) -> bool:
    """Whether there is a run, and it has ended."""
    return any(str(view.state) in ("failed", "cancelled") for view in service.runs())
