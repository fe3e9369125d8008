"""What a person does about workflows and runs, each by command and over HTTP, with real code underneath."""

from pathlib import Path
from urllib.parse import quote

import pytest

import rota
from rota.core.states import RunState
from tests.integration.deadlines import until
from tests.integration.workflows.place import WAIT_S, Place, log_of, states, until_state

pytestmark = pytest.mark.full

DIAMOND = """
    import pathlib, time
    from datetime import date
    from typing import Annotated, Literal

    import rota
    from rota import task, workflow


    @task(retries=1, retry_delay=3_600)
    def source(folder: str) -> str:
        with open(pathlib.Path(folder) / "sourced", "a") as file:
            file.write("x")
        if (pathlib.Path(folder) / "broken").exists():
            raise OSError("the source is broken")
        return "s"


    @task
    def left(got: str, folder: str) -> str:
        if (pathlib.Path(folder) / "left is broken").exists():
            raise ValueError("left is broken")
        return got + "l"


    @task
    def right(got: str, folder: str) -> str:
        while (pathlib.Path(folder) / "hold").exists():
            time.sleep(0.01)
        return got + "r"


    @task
    def join(first: str, second: str) -> str:
        return first + second


    @workflow
    def {name}(folder: str = ""):
        got = source(folder)
        join(left(got, folder), right(got, folder))
    """


def deploy(place: Place, name: str) -> None:
    place.deploy(name, DIAMOND.replace("{name}", name))


def calls(folder: Path) -> int:
    return len((folder / "sourced").read_text())


def test_a_paused_workflow_starts_nothing_new_until_it_is_resumed(place: Place, tmp_path: Path):
    deploy(place, "pausing")
    (tmp_path / "hold").touch()
    going = place.client.trigger("pausing", {"folder": str(tmp_path)})
    until_state(going, "right", "running")
    assert place.told("pause", "pausing")["paused"]
    waiting = place.ask("POST", "workflows/pausing/runs", {"params": {"folder": str(tmp_path)}}, 201)
    (tmp_path / "hold").unlink()
    until_state(going, "right", "success")
    # What ran has ended; what would follow waits, and says why.
    assert [reason.code for reason in going.why("join")] == ["workflow.paused"]
    assert place.ask("GET", f"runs/{waiting['id']}")["started_at"] == 0
    assert not place.ask("PATCH", "workflows/pausing", {"paused": False})["paused"]
    assert going.result(timeout_s=WAIT_S) == "slsr"
    assert place.client.run(waiting["id"]).result(timeout_s=WAIT_S) == "slsr"


def test_a_run_is_cancelled_by_command_and_over_http(place: Place, tmp_path: Path):
    deploy(place, "stopping")
    (tmp_path / "hold").touch()
    runs = [place.client.trigger("stopping", {"folder": str(tmp_path)}) for _ in range(2)]
    for run in runs:
        until_state(run, "right", "running")
        until_state(run, "left", "success")
    assert place.told("cancel", runs[0].id)["id"] == runs[0].id
    place.ask("POST", f"runs/{runs[1].id}/cancel", {"reason": "wrong day"})
    for run in runs:
        assert run.wait(WAIT_S).state is RunState.CANCELLED
        assert states(run) == {"source": "success", "left": "success", "right": "cancelled", "join": "cancelled"}
    assert "wrong day" in runs[1].status().reason
    # A cancelled run can be taken up again.
    (tmp_path / "hold").unlink()
    runs[1].clear(only_failed=True)
    assert runs[1].result(timeout_s=WAIT_S) == "slsr"
    assert calls(tmp_path) == 2, "what had succeeded was not run again"


@pytest.mark.parametrize(
    ("words", "which"),
    [
        ([], ["source", "left", "right", "join"]),
        (["left"], ["left", "join"]),
        (["left", "--only"], ["left"]),
        (["--failed"], ["left", "join"]),
    ],
)
def test_what_is_cleared_is_run_again_and_nothing_else(
    place: Place, tmp_path: Path, words: list[str], which: list[str]
):
    deploy(place, "clearing")
    (tmp_path / "left is broken").touch()
    run = place.ended("clearing", {"folder": str(tmp_path)})
    assert states(run) == {"source": "success", "left": "failed", "right": "success", "join": "upstream_failed"}
    (tmp_path / "left is broken").unlink()
    before = {view.id: view.attempt for view in run.tasks()}
    assert place.told("clear", run.id, *words, "--dry-run")["tasks"] == which
    assert {view.id: view.attempt for view in run.tasks()} == before
    assert place.told("clear", run.id, *words)["tasks"] == which
    run.wait(WAIT_S)
    again = {view.id: view.attempt - before[view.id] for view in run.tasks()}
    assert [task for task, more in again.items() if more] == which
    if which == ["left"]:
        # Downstream was not asked for: it keeps its verdict, and so does the run.
        assert (run.status().state, states(run)["join"]) == (RunState.FAILED, "upstream_failed")
    else:
        assert run.result() == "slsr"


def test_clearing_marking_and_noting_over_http(place: Place, tmp_path: Path):
    deploy(place, "steering")
    (tmp_path / "left is broken").touch()
    run = place.ended("steering", {"folder": str(tmp_path)})
    at = f"runs/{run.id}"
    looked = place.ask("POST", f"{at}/clear", {"only_failed": True, "dry_run": True})
    assert looked["tasks"] == ["left", "join"]
    assert place.ask("PUT", f"{at}/tasks/left/note", {"note": "Eve looks"})["note"] == "Eve looks"
    # Somebody says that it is good enough: what waited on it runs, without its result.
    place.ask("POST", f"{at}/mark", {"tasks": ["left"], "to": "success"})
    place.ask("POST", f"{at}/clear", {"tasks": ["join"]})
    run.wait(WAIT_S)
    assert run.tasks("left")[0].state == "success"
    (join,) = run.tasks("join")
    assert (join.state, join.failure) == ("failed", "user")
    assert "TypeError" in join.error
    assert run.tasks("left")[0].note == "Eve looks"
    (tmp_path / "left is broken").unlink()
    place.ask("POST", f"{at}/clear", {"tasks": ["left"]})
    assert run.result(timeout_s=WAIT_S) == "slsr"
    place.ask("POST", f"{at}/mark", {"tasks": ["join"], "to": "failed"})
    assert run.wait(WAIT_S).state is RunState.FAILED


def test_marking_what_is_at_work_ends_it(place: Place, tmp_path: Path):
    deploy(place, "marking")
    (tmp_path / "hold").touch()
    run = place.client.trigger("marking", {"folder": str(tmp_path)})
    until_state(run, "right", "running")
    until_state(run, "left", "success")
    assert place.told("mark", run.id, "right", "--failed")
    assert run.wait(WAIT_S).state is RunState.FAILED
    assert states(run)["join"] == "upstream_failed"
    place.check_health()


def test_a_try_is_had_now_and_a_note_is_left_by_command(place: Place, tmp_path: Path):
    deploy(place, "hurrying")
    (tmp_path / "broken").touch()
    run = place.client.trigger("hurrying", {"folder": str(tmp_path)})
    until_state(run, "source", "up_for_retry")
    assert place.told("note", run.id, "source", "mended at noon")["note"] == "mended at noon"
    (tmp_path / "broken").unlink()
    place.ask("POST", f"runs/{run.id}/retry", {"tasks": ["source"]})
    assert run.result(timeout_s=WAIT_S) == "slsr"
    assert (run.tasks("source")[0].attempt, run.tasks("source")[0].note) == (2, "mended at noon")


def test_one_of_a_mapped_task_is_cleared_with_what_follows_and_the_others_are_left(place: Place, tmp_path: Path):
    text = """
        import pathlib, rota

        @rota.task
        def numbers():
            return [0, 1, 2]

        @rota.task
        def square(number, folder):
            if (pathlib.Path(folder) / f"{number} is broken").exists():
                raise ValueError(f"{number} is broken")
            return number * number

        @rota.task
        def add_up(squares):
            return sum(squares)

        @rota.workflow
        def mapping(folder: str = ""):
            add_up(square.partial(folder=folder).expand(number=numbers()))
        """
    place.deploy("mapping", text)
    (tmp_path / "1 is broken").touch()
    run = place.ended("mapping", {"folder": str(tmp_path)})
    ended = states(run)
    assert [ended[f"square[{number}]"] for number in range(3)] == ["success", "failed", "success"]
    assert ended["add_up"] == "upstream_failed"
    (tmp_path / "1 is broken").unlink()
    assert place.told("note", run.id, "square[1]", "mended")["note"] == "mended"
    assert place.told("clear", run.id, "square[1]")["tasks"] == ["square[1]", "add_up"]
    assert run.result("add_up", timeout_s=WAIT_S) == 5
    assert {view.id: (view.attempt, view.note) for view in run.tasks("square")} == {
        "square[0]": (1, ""),
        "square[1]": (2, "mended"),
        "square[2]": (1, ""),
    }


DATED = """
    from datetime import date, datetime
    from typing import Annotated, Literal

    import rota


    @rota.task
    def tell(day: date, size: str, share: float, ds: str, ctx: rota.Context):
        print(f"about {ctx.logical_date.isoformat()}")
        return [day.isoformat(), size, share, ds, ctx.params["size"]]


    @rota.workflow(schedule="0 6 * * *", timezone="Asia/Kolkata", start="2026-01-01", paused=True)
    def dated(
        day: date = date(2026, 1, 1),
        size: Literal["small", "large"] = "small",
        share: Annotated[float, rota.Param(least=0, most=1)] = 0.5,
    ):
        tell(day, size, share, "{{ ds }}")
    """


def test_a_run_is_triggered_with_parameters_and_a_date_by_command_and_over_http(place: Place):
    place.deploy("dated", DATED)
    place.client.resume_workflow("dated")
    before = place.client.workflow("dated").last_slot_at
    words = ["--param", "day=2026-02-28", "--param", "size=large", "--date", "2026-03-01T06:00"]
    by_command = place.told("run", "dated", *words)
    body = {"params": {"day": "2026-02-28", "size": "large"}, "logical_date": "2026-03-01T06:00"}
    over_http = place.ask("POST", "workflows/dated/runs", body, 201)
    for made in (by_command, over_http):
        run = place.client.run(made["id"])
        assert run.result(timeout_s=WAIT_S) == ["2026-02-28", "large", 0.5, "2026-03-01", "large"]
        assert log_of(run, "tell") == b"about 2026-03-01T06:00:00+05:30\n"
    # Runs by hand never move the cursor.
    assert place.client.workflow("dated").last_slot_at == before
    place.client.drop_workflow("dated")


@pytest.mark.parametrize(
    ("params", "date", "said"),
    [
        ({"size": "huge"}, "", "params.size"),
        ({"share": 1.5}, "", "params.share"),
        ({"share": "half"}, "", "params.share"),
        ({"day": "2026-02-30"}, "", "params.day"),
        ({"sise": "small"}, "", "params"),
        ({}, "2026-02-30", "logical_date"),
        ({}, "yesterday", "logical_date"),
        ({}, "2026-02-28T25:00", "logical_date"),
    ],
)
def test_what_does_not_fit_is_refused_at_the_trigger_and_makes_no_run(
    place: Place, params: dict[str, object], date: str, said: str
):
    place.deploy("dated", DATED)
    before = len(place.client.runs(name="dated"))
    problem = place.ask("POST", "workflows/dated/runs", {"params": params, "logical_date": date}, 422)
    assert (problem["code"], said in problem["path"]) == ("field.value", True), problem
    with pytest.raises(rota.Refused, match=r"field\.value"):
        place.client.trigger("dated", params, logical_date=date or None)
    words = [f"--param={name}={value}" for name, value in params.items()] + ([f"--date={date}"] if date else [])
    try:
        code = place.type_in("run", "dated", *words, "--json").code
    except SystemExit as usage:
        # A date that is none is a mistake in the words themselves.
        code = usage.code
    assert code == (2 if date else 3)
    assert len(place.client.runs(name="dated")) == before


def test_names_values_and_logs_may_be_in_any_script(place: Place):
    text = """
        import rota

        @rota.task(id="Größe messen 📏")
        def measure(text, marks):
            print("日本語 и кириллица", text)
            return {"länge": len(text), "текст": text, "marks": marks, "rtl": "שלום"}

        @rota.workflow(description="Überblick über 数据")
        def überblick(wörter: str = "naïve café"):
            measure.partial(marks="é").expand(text=[wörter, "👩‍👩‍👧", "{{ params['wörter'] | upper }}"])
        """
    place.deploy("überblick", text)
    run = place.client.trigger("überblick", {"wörter": "čtyři\nřádky\t✓"}, run="läuft/heute ✓")
    assert run.wait(WAIT_S).state is RunState.SUCCESS
    found = run.result("Größe messen 📏")
    assert [each["текст"] for each in found] == ["čtyři\nřádky\t✓", "👩‍👩‍👧", "ČTYŘI\nŘÁDKY\t✓"]
    task = "Größe messen 📏[1]"
    assert log_of(run, task).decode() == "日本語 и кириллица 👩‍👩‍👧\n"
    shown = place.stage.run_command("logs", run.id, task)
    assert shown.stdout.decode() == "日本語 и кириллица 👩‍👩‍👧\n"
    at = f"runs/{quote(run.id, safe='')}"
    assert place.ask("GET", at)["params"] == {"wörter": "čtyři\nřádky\t✓"}
    assert place.ask("GET", f"{at}/tasks/{quote(task, safe='')}/result")["rtl"] == "שלום"
    assert place.told("workflows", "überblick")["doc"] == "Überblick über 数据"
    (listed,) = place.told("runs", "--name", "überblick")
    assert listed["id"] == run.id


@pytest.mark.long
def test_a_run_in_history_is_cleared_and_goes_on(place: Place, tmp_path: Path):
    deploy(place, "reviving")
    (tmp_path / "left is broken").touch()
    run = place.ended("reviving", {"folder": str(tmp_path)})
    ended_at = run.status().ended_at
    until(lambda: run.id not in [view.id for view in place.client.runs(history=False)], "it to be in history", 150)
    assert states(run) == {"source": "success", "left": "failed", "right": "success", "join": "upstream_failed"}
    assert place.told("clear", run.id, "--failed", "--dry-run")["tasks"] == ["left", "join"]
    (tmp_path / "left is broken").unlink()
    assert place.told("clear", run.id, "--failed")["tasks"] == ["left", "join"]
    assert run.result(timeout_s=WAIT_S) == "slsr"
    assert run.status().ended_at > ended_at
    assert calls(tmp_path) == 1
