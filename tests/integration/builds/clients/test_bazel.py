"""Builds and tests with Bazel, on a service that runs as it should."""

import json
import re

import pytest

from tests.integration.builds.clients.bazel import DONE, FAILED, REMOTE_FAILED, RETRIES, TESTS_FAILED, Bazel
from tests.integration.builds.clients.service import Service
from tests.integration.builds.clients.workspace import GENRULES, LIBRARIES, SHARDS
from tests.integration.deadlines import until

pytestmark = pytest.mark.xdist_group("bazel")
# A genrule each; of each library a source compiled twice, an archive and a shared object; and the program.
ACTIONS_MIN = GENRULES + 3 * LIBRARIES


def test_a_remote_build_is_byte_for_byte_the_local_one_and_the_next_finds_all_of_it(
    bazel: Bazel, shared: Service
) -> None:
    bazel.clean()
    bazel.run("build", "//many:all", "//special:all").well()
    local = bazel.outputs("many", "special")
    assert len(local) >= ACTIONS_MIN
    instance = shared.new_instance()
    bazel.clean()
    cold = bazel.run("build", "//many:all", "//special:all", shared.executor, instance).well()
    assert cold.carried_out >= ACTIONS_MIN
    assert cold.found == 0
    remote = bazel.outputs("many", "special")
    fresh = "special/f.txt"
    assert local.pop(fresh) != remote.pop(fresh), "it has the time in it, and is never taken from a cache"
    assert remote == local

    asked = len(shared.runs())
    bazel.clean()
    again = bazel.run("build", "//many:all", "//special:all", shared.executor, instance).well()
    assert again.carried_out == 1, "the one that must not be cached"
    assert again.found == cold.carried_out - 1
    assert len(shared.runs()) == asked + 1, "nothing else was given to a worker"
    remote = bazel.outputs("many", "special")
    del remote[fresh]
    assert remote == local


@pytest.mark.full
def test_tests_pass_fail_are_sharded_and_run_out_of_time_with_what_they_printed(bazel: Bazel, shared: Service) -> None:
    bazel.clean()
    words = ["--test_timeout=5", "--test_output=all", "--keep_going", shared.executor, shared.new_instance()]
    done = bazel.run("test", "//tests:all", *words)
    assert done.code == TESTS_FAILED
    said = dict(re.findall(r"(?m)^//tests:(\w+) +([A-Z]+)", done.said))
    assert said == {"good": "PASSED", "bad": "FAILED", "endless": "TIMEOUT", "sharded": "PASSED"}
    for line in ("fine", "broken", "begun", *(f"shard {i} of {SHARDS}" for i in range(SHARDS))):
        assert re.search(rf"(?m)^{line}$", done.said), line
    logs = bazel.folder / "base/execroot/rota/bazel-out/k8-fastbuild/testlogs/tests"
    assert "begun" in (logs / "endless/test.log").read_text(), "what there was when its time was up"
    assert 'failures="0"' in (logs / "good/test.xml").read_text()


@pytest.mark.long
def test_an_action_that_fails_is_told_with_its_words_and_is_tried_anew_next_time(bazel: Bazel, shared: Service) -> None:
    bazel.clean()
    words = ["build", "//special:broken", shared.executor, shared.new_instance()]
    for _ in range(2):
        done = bazel.run(*words)
        assert done.code == FAILED
        assert "what went wrong" in done.said
        assert "(Exit 3)" in done.said
    assert [str(view.state) for view in shared.runs()[:2]] == ["failed", "failed"]


@pytest.mark.full
@pytest.mark.long
def test_what_an_action_prints_is_shown_again_when_it_is_found(bazel: Bazel, shared: Service) -> None:
    words = ["build", "//special:loud", shared.executor, shared.new_instance()]
    for found in (0, 1):
        bazel.clean()
        done = bazel.run(*words).well()
        assert done.found == found
        assert re.search(r"(?m)^one$", done.said)
        assert re.search(r"(?m)^two$", done.said)


@pytest.mark.full
def test_a_property_that_no_worker_has_is_named_quickly(bazel: Bazel, shared: Service) -> None:
    done = bazel.run("build", "//special:quantum", shared.executor, shared.new_instance())
    assert done.code == REMOTE_FAILED
    assert "Failed Precondition: worker.none_match" in done.said
    assert "qubits" in done.said, "which property it is"


@pytest.mark.full
@pytest.mark.long
@pytest.mark.long
def test_what_a_person_cancels_fails_and_is_not_asked_for_again(bazel: Bazel, shared: Service) -> None:
    building = bazel.start("build", "//slow:long", shared.executor, shared.new_instance(), RETRIES)
    (run,) = until(lambda: [view for view in shared.runs() if view.tasks.get("running")], "it to run", patience_s=90)
    shared.client().run(run.id).cancel(reason="too-hot")
    done = building.end()
    assert done.code == REMOTE_FAILED, done.said
    assert "too-hot" in done.said
    assert shared.runs()[0].id == run.id, "nothing newer"


@pytest.mark.full
def test_a_priority_becomes_a_class(bazel: Bazel, shared: Service) -> None:
    bazel.clean()
    words = ["build", "//many:g1", shared.executor, shared.new_instance(), "--remote_execution_priority=-200"]
    assert bazel.run(*words).code == DONE
    assert shared.runs()[0].priority.name == "URGENT"


@pytest.mark.full
def test_a_build_is_found_by_its_invocation_with_its_targets(bazel: Bazel, shared: Service) -> None:
    bazel.clean()
    done = bazel.run("build", "//many:l2", shared.executor, shared.new_instance()).well()
    invocation = re.findall(r"Invocation ID: (\S+)", done.said)[0]
    listed = json.loads(shared.stage.run_command("builds", "--json").stdout)
    (found,) = [each for each in listed if each["invocation"] == invocation]
    assert (found["actions"], found["states"]) == (done.carried_out, {"success": done.carried_out})
    actions = json.loads(shared.stage.run_command("builds", invocation[:13], "--json").stdout)
    assert {each["target"] for each in actions} == {"//many:l2"}
    assert json.loads(shared.stage.run_command("builds", invocation, "--json").stdout) == actions, (
        "all of its name, too"
    )
    assert "CppCompile" in {each["mnemonic"] for each in actions}
    assert {each["exit"] for each in actions} == {"0"}


@pytest.mark.full
@pytest.mark.long
def test_outputs_are_left_where_they_are_if_nobody_needs_them(bazel: Bazel, shared: Service) -> None:
    bazel.clean()
    words = ["build", "//many:main", shared.executor, shared.new_instance(), "--remote_download_minimal"]
    done = bazel.run(*words).well()
    assert done.carried_out > 0
    assert not bazel.output("many/main").exists()


@pytest.mark.full
@pytest.mark.long
def test_content_alone_is_served_to_those_who_build_at_home(bazel: Bazel, shared: Service) -> None:
    cache = shared.executor.replace("executor", "cache")
    words = ["build", "//many:all", cache, shared.new_instance()]
    bazel.clean()
    bazel.run(*words).well()
    bazel.clean()
    assert bazel.run(*words).well().found >= ACTIONS_MIN
