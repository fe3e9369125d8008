"""Code that changes under runs: each keeps what it began with until somebody moves it."""

from pathlib import Path
from typing import Any

import rota
from rota.core.states import RunState
from tests.integration.deadlines import until
from tests.integration.workflows.place import WAIT_S, Place, states, until_state

FLOW = """
    import pathlib, time

    import rota

    WORD = "{word}"


    @rota.task
    def first(folder):
        return WORD


    @rota.task
    def second(folder, got):
        (pathlib.Path(folder) / f"began.{{WORD}}").touch()
        while not (pathlib.Path(folder) / "go").exists():
            time.sleep(0.01)
        if (pathlib.Path(folder) / f"bad.{{WORD}}").exists():
            raise ValueError(f"{{WORD}} is broken")
        return [got, WORD]


    @rota.task
    def third(got):
        return [*got, WORD]


    @rota.workflow
    def {name}(folder: str = ""):
        third(second(folder, first(folder)))
    """


def deploy(place: Place, name: str, word: str) -> int:
    return place.deploy(name, FLOW.format(name=name, word=word))


def test_a_run_that_is_going_on_keeps_its_code_and_one_that_is_moved_goes_on_with_the_new(place: Place, tmp_path: Path):
    assert deploy(place, "moving", "old") == 1
    run = place.client.trigger("moving", {"folder": str(tmp_path)})
    until((tmp_path / "began.old").exists, "the second task to begin")
    assert deploy(place, "moving", "new") == 2
    # It is at work: it cannot be moved under its own feet.
    refused = place.type_in("move", run.id, "--json")
    assert (refused.code, "run.at_work" in refused.err) == (3, True)
    (tmp_path / "bad.old").touch()
    (tmp_path / "go").touch()
    assert run.wait(WAIT_S).state is RunState.FAILED
    assert run.tasks("second")[0].error.endswith("ValueError: old is broken")
    assert place.told("move", run.id)["version"] == 2
    assert place.told("clear", run.id, "--failed")["tasks"] == ["second", "third"]
    # What the old code gave is kept, the rest is of the new.
    assert run.result(timeout_s=WAIT_S) == ["old", "new", "new"]
    story = "\n".join(run.story())
    assert "RunMoved" in story
    assert place.ask("GET", f"runs/{run.id}")["version"] == 2


def test_a_run_that_nobody_moves_ends_with_the_code_it_began_with(place: Place, tmp_path: Path):
    deploy(place, "staying", "old")
    run = place.client.trigger("staying", {"folder": str(tmp_path)})
    until((tmp_path / "began.old").exists, "the second task to begin")
    deploy(place, "staying", "new")
    (tmp_path / "go").touch()
    # Its third task is started after the deployment.
    assert run.result(timeout_s=WAIT_S) == ["old", "old", "old"]
    assert place.ended("staying", {"folder": str(tmp_path)}).result() == ["new", "new", "new"]
    # Also if it is cleared.
    run.clear()
    assert run.result(timeout_s=WAIT_S) == ["old", "old", "old"]


def test_the_same_content_is_the_same_version_and_rolling_back_is_deploying_again(place: Place, tmp_path: Path):
    (tmp_path / "go").touch()
    versions = [deploy(place, "rolling", word) for word in ("one", "one", "two", "one", "two", "three", "one")]
    assert versions == [1, 1, 2, 1, 2, 3, 1]
    assert place.ended("rolling", {"folder": str(tmp_path)}).result() == ["one"] * 3
    assert place.ended("rolling", {"folder": str(tmp_path)}, version=3).result() == ["three"] * 3
    answer = place.ask("GET", "workflows/rolling")
    assert (answer["version"], [each["number"] for each in answer["versions"]]) == (1, [1, 2, 3])


def test_files_elsewhere_in_the_folder_are_part_of_the_version(place: Place, tmp_path: Path):
    text = """
        import json, pathlib, rota

        @rota.task
        def read():
            return json.loads((pathlib.Path(__file__).parent / "numbers.json").read_text())

        @rota.workflow
        def reading():
            read()
        """

    def put(numbers: list[int]) -> Any:
        file = place.write("reading", text)
        (file.parent / "numbers.json").write_text(str(numbers))
        (deployed,) = place.client.deploy(file.parent)
        return deployed.version

    assert [put([1]), put([1]), put([2])] == [1, 1, 2]
    assert place.ended("reading").result() == [2]
    assert place.ended("reading", version=1).result() == [1]


def test_a_task_that_is_new_in_the_version_a_run_is_moved_to_is_run_and_one_that_is_gone_is_not(
    place: Place, tmp_path: Path
):
    text = """
        import rota

        @rota.task
        def make(word):
            return word

        @rota.task
        def check(got):
            raise ValueError("too strict")

        @rota.workflow
        def growing():
            check(make("a"))
        """
    place.deploy("growing", text)
    run = place.ended("growing")
    assert states(run) == {"make": "success", "check": "failed"}
    changed = text.replace('raise ValueError("too strict")', "return got").replace(
        'check(make("a"))', 'make.override(id="also")(check.override(id="check_mildly")(make("b")))'
    )
    place.deploy("growing", changed)
    run.move()
    run.clear(only_failed=True)
    assert run.wait(WAIT_S).state is RunState.SUCCESS
    assert states(run) == {"make": "success", "check_mildly": "success", "also": "success"}
    # What was done is kept, with what it gave then.
    assert run.result("also") == "a"


def test_a_workflow_that_is_taken_away_lets_its_runs_end(place: Place, tmp_path: Path):
    deploy(place, "leaving", "old")
    run = place.client.trigger("leaving", {"folder": str(tmp_path)})
    until((tmp_path / "began.old").exists, "the second task to begin")
    until_state(run, "second", "running")
    assert place.type_in("undeploy", "leaving").code == 0
    (tmp_path / "go").touch()
    assert run.result(timeout_s=WAIT_S) == ["old", "old", "old"]
    try:
        place.client.trigger("leaving")
    except rota.Refused as refused:
        assert refused.code == "workflow.unknown"
    else:
        raise AssertionError("a workflow that was taken away was run")
    # Deployed again it begins anew.
    assert deploy(place, "leaving", "new") >= 1
