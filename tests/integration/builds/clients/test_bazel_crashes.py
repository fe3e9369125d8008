"""Builds with Bazel while parts of the service are killed, and what becomes of those that nobody waits for."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.api.reapi.backlog import NOT_ASKED_FOR
from tests.integration.builds.clients.bazel import INTERRUPTED, RETRIES, Bazel, open_bazel
from tests.integration.builds.clients.service import Service, open_service
from tests.integration.builds.clients.workspace import GENRULES, SLOW
from tests.integration.deadlines import until

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("bazel")]
# So many are done when something is killed; others run then, and others wait.
SOME = 6


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """One that may be killed."""
    with open_service(tmp_path) as one:
        yield one


def test_a_build_outlives_everything_being_killed(bazel: Bazel, service: Service) -> None:
    up = service.up()
    bazel.clean()
    building = bazel.start("build", "//slow:all", service.executor, RETRIES)
    service.until_some_are_done(SOME)
    service.kill_all(up)
    assert not building.is_over
    service.up()
    done = building.end().well()
    assert done.carried_out + done.found == SLOW
    assert {bazel.output(f"slow/s{i}.txt").read_text() for i in range(SLOW)} == {f"{i}\n" for i in range(SLOW)}


@pytest.mark.long
def test_a_build_outlives_its_front_end(bazel: Bazel, service: Service) -> None:
    up = service.up()
    bazel.clean()
    building = bazel.start("build", "//slow:all", service.executor, RETRIES)
    service.until_some_are_done(SOME)
    first = service.front_end_of(up)
    os.kill(first, signal.SIGKILL)
    building.end().well()
    assert service.front_end_of(up) != first, "the next one was started by itself"
    runs = service.runs()
    assert {str(view.state) for view in runs} == {"success"}
    assert len(runs) <= SLOW + 1, "what was under way was found again"


@pytest.mark.long
def test_a_build_outlives_each_part_on_its_own(bazel: Bazel, service: Service) -> None:
    server = service.stage.start_server()
    service.front_end()
    worker = service.stage.start_worker("hand", slots=4)
    bazel.clean()
    building = bazel.start("build", "//slow:all", service.executor, RETRIES)
    service.until_some_are_done(SOME)
    service.kill_all(worker)
    service.stage.start_worker("hand", slots=4)
    service.until_some_are_done(2 * SOME)
    server.kill()
    service.stage.start_server()
    building.end().well()
    runs = service.runs()
    assert len(runs) == SLOW, "each action was asked for once"
    assert {str(view.state) for view in runs} == {"success"}


def test_a_result_whose_files_are_gone_is_made_again(bazel: Bazel, service: Service) -> None:
    words = ["build", "//many:g7", service.executor]
    up = service.up()
    bazel.clean()
    assert bazel.run(*words).well().carried_out == 1
    service.kill_all(up)
    for part in ("content", "blobs"):
        shutil.rmtree(up.folder / "builds" / part)
    service.up()
    bazel.clean()
    again = bazel.run(*words).well()
    assert (again.carried_out, again.found) == (1, 0)
    assert bazel.output("many/g7.txt").read_text() == "7\n"


@pytest.mark.long
def test_two_clients_that_build_the_same_share_what_they_can(
    bazel: Bazel, service: Service, tmp_path_factory: pytest.TempPathFactory
) -> None:
    service.up()
    bazel.clean()
    with open_bazel(tmp_path_factory.mktemp("second"), bazel.workspace) as other:
        other.run("build", "--nobuild", "//slow:all").well()
        both = [each.start("build", "//slow:all", service.executor) for each in (bazel, other)]
        done = [building.end().well() for building in both]
        assert other.output("slow/s3.txt").read_text() == "3\n"
    assert all(each.carried_out + each.found == SLOW for each in done)
    assert len(service.runs()) == SLOW, "nothing was carried out twice"


def test_what_a_client_left_is_cancelled_when_nobody_asked_for_it_for_a_while(bazel: Bazel, service: Service) -> None:
    service.up()
    building = bazel.start("build", "//slow:long", service.executor)
    until(lambda: [view for view in service.runs() if view.tasks.get("running")], "it to run", patience_s=90)
    building.interrupt()
    assert building.end().code == INTERRUPTED
    (left,) = service.runs()
    ended = until(lambda: next((view for view in service.runs("cancelled")), None), "it to be cancelled")
    assert ended is not None
    assert ended.id == left.id
    assert ended.reason.startswith(NOT_ASKED_FOR)
    assert "3 s" in ended.reason


@pytest.mark.long
def test_a_build_in_sandboxes_outlives_kills_again_and_again(bazel: Bazel, tmp_path: Path) -> None:
    with open_service(tmp_path, '[worker]\nbuild_sandbox = "bubblewrap"\n') as service:
        up = service.up()
        bazel.clean()
        building = bazel.start("build", "//slow:all", "//many:all", service.executor, RETRIES)
        for done in (SOME, GENRULES // 2, GENRULES):
            service.until_some_are_done(done)
            service.kill_all(up)
            up = service.up()
        building.end().well()
