"""The examples, deployed as they are and run by a service of real processes."""

import json
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

import rota
from rota.client.blocking import BlockingRun
from rota.core.states import RunState
from tests.integration.deadlines import until
from tests.integration.workflows.place import WAIT_S, Place, log_of, states, until_state

pytestmark = pytest.mark.full

EXAMPLES = Path(__file__).parents[3] / "examples"
DAYS = [f"2026-01-{day:02}" for day in range(1, 11)]


def deploy(place: Place, example: str) -> None:
    answer = place.told("deploy", str(EXAMPLES / f"{example}.py"))
    assert answer["broken"] == []


@pytest.mark.parametrize(
    ("goal", "taken", "left_out"),
    [
        (0, ["celebrate"], ["investigate.find_weakest", "investigate.call_shop"]),
        (1_000_000, ["investigate.find_weakest", "investigate.call_shop"], ["celebrate"]),
    ],
)
def test_the_etl_goes_either_way(place: Place, goal: int, taken: list[str], left_out: list[str]):
    deploy(place, "etl")
    run = place.ended("etl", {"goal": goal, "shop_count": 5}, logical_date="2026-07-01")
    ended = states(run)
    assert run.status().state is RunState.SUCCESS
    assert {ended[task] for task in [*taken, "report", *(f"sales[{number}]" for number in range(5))]} == {"success"}
    assert {ended[task] for task in left_out} == {"skipped"}
    numbers = run.result("sales")
    assert run.result("report") == f"2026-07-01: {sum(numbers)}"
    assert log_of(run, "sales[0]").decode() == f"Aachen sold for {numbers[0]} on 2026-07-01\n"
    assert f"run {run.id}, attempt 1" in log_of(run, "report").decode()


def test_the_etl_is_followed_from_a_terminal(place: Place):
    deploy(place, "etl")
    answer = place.stage.run_command("run", "etl", "--follow", "--param", "goal=0", "--id", "followed", "--json")
    assert answer.returncode == 0, answer.stderr
    assert place.told("runs", "--name", "etl")[0]["id"] == "followed"
    assert place.client.run("followed").status().state is RunState.SUCCESS


def test_a_sensor_holds_no_slot_while_it_waits(place: Place, tmp_path: Path):
    deploy(place, "sensor")
    run = place.client.trigger("waiting", {"folder": str(tmp_path)})
    assert run.wait(WAIT_S).state is RunState.SUCCESS
    assert run.result("count") == 3
    assert {task: state for task, state in states(run).items() if "late" in task} == {
        "arrived_late": "skipped",
        "count_late": "skipped",
    }
    late = [line for line in run.story("arrived_late") if "AttemptEnded" in line]
    # It came back again and again within its second.
    assert len(late) >= 2
    assert all("up_for_reschedule" in line for line in late[:-1])
    assert "skipped" in late[-1]
    assert run.tasks("arrived_late")[0].error


@pytest.mark.parametrize("fails", [False, True])
def test_what_was_set_up_is_taken_down_either_way(place: Place, fails: bool):
    deploy(place, "setup_teardown")
    run = place.ended("cleaned_up", {"fails": fails})
    ended = states(run)
    space = Path(run.result("make_space"))
    assert run.status().state is (RunState.FAILED if fails else RunState.SUCCESS)
    assert (ended["work[0]"], ended["work[1]"], ended["measure"], ended["remove_space"]) == (
        "success",
        "failed" if fails else "success",
        "upstream_failed" if fails else "success",
        "success",
    )
    assert run.result("remove_space") == "removed"
    assert not space.exists()


def test_a_thousand_at_once(place: Place):
    deploy(place, "fan_out")
    run = place.client.trigger("fan_out")
    assert run.result("add_up", timeout_s=WAIT_S) == sum(number * number for number in range(1_000))
    assert run.status().tasks == {"success": 1_002}
    # One outcome each, in the durable account as well.
    ended = [happened.idx for happened in run.events() if happened.what == "AttemptEnded"]
    assert len(ended) == len(set(ended)) == 1_002


def days_of(runs: list[BlockingRun]) -> list[str]:
    """The days that runs are about, in the workflow's zone."""
    return sorted(
        datetime.fromtimestamp((run.status().slot_at + 3_600_000) / 1_000, UTC).date().isoformat() for run in runs
    )


def backfilled(place: Place, workflow: str) -> list[BlockingRun]:
    return [place.client.run(view.id) for view in place.client.runs(name=workflow) if view.backfill]


def test_a_backfill_carries_days_over_in_their_order(place: Place, tmp_path: Path):
    deploy(place, "backfill")
    place.client.pause_workflow("balance")
    stretch = ("--from", DAYS[0], "--to", DAYS[-1])
    listed = place.type_in("backfill", "balance", *stretch, "--dry-run")
    assert listed.out.splitlines() == [f"{day}T00:00:00+01:00" for day in DAYS]
    assert place.client.runs(name="balance") == []
    # A workflow that is paused starts nothing, backfills included.
    begun = place.told("backfill", "balance", *stretch, "--param", f"folder={tmp_path}", "--id", "january")
    assert (begun["backfill"], begun["slots"]) == ("january", len(DAYS))
    place.client.resume_workflow("balance")
    until(lambda: place.client.backfills() == (), "the backfill to be over", WAIT_S)
    runs = backfilled(place, "balance")
    assert days_of(runs) == DAYS
    assert {run.status().state for run in runs} == {RunState.SUCCESS}
    assert {str(run.status().priority) for run in runs} == {"low"}
    balance = json.loads((tmp_path / "balance.json").read_text())
    assert list(balance) == DAYS
    by_day = sorted(runs, key=lambda run: run.status().slot_at)
    for before, after in pairwise(by_day):
        (earlier,), (later,) = before.tasks("carry_over"), after.tasks("carry_over")
        assert earlier.ended_at <= later.assigned_at
    place.client.drop_workflow("balance")


def test_a_backfill_that_is_cancelled_leaves_what_is_done_and_ends_the_rest(place: Place, tmp_path: Path):
    text = """
        import pathlib, rota, time

        @rota.task(depends_on_past=True)
        def day(folder, name):
            (pathlib.Path(folder) / name).touch()
            while not (pathlib.Path(folder) / f"go.{name}").exists():
                time.sleep(0.01)

        @rota.workflow(schedule="@daily", timezone="Europe/Berlin", paused=True)
        def held_back(folder: str = ""):
            day(folder, "{{ ds }}")
        """
    place.deploy("held_back", text)
    place.client.resume_workflow("held_back")
    (tmp_path / f"go.{DAYS[0]}").touch()
    place.client.backfill("held_back", DAYS[0], DAYS[-1], max_active_runs=3, params={"folder": str(tmp_path)})
    until((tmp_path / DAYS[1]).exists, "the second day to begin")
    runs = backfilled(place, "held_back")
    # The third and the fourth wait for the second.
    until(lambda: len(backfilled(place, "held_back")) == 4, "a run to take the place of the first")
    runs = sorted(backfilled(place, "held_back"), key=lambda run: run.status().slot_at)
    until_state(runs[1], "day", "running")
    assert [reason.code for reason in runs[2].why("day")] == ["past.waiting"]
    (view,) = place.told("backfills")
    assert (view["workflow"], view["made"], view["left"]) == ("held_back", 4, 6)
    assert place.type_in("backfills", "cancel", view["id"]).code == 0
    assert [run.wait(WAIT_S).state for run in runs] == [RunState.SUCCESS, *[RunState.CANCELLED] * 3]
    assert place.client.backfills() == ()
    assert len(backfilled(place, "held_back")) == 4
    place.client.drop_workflow("held_back")
    with pytest.raises(rota.Refused, match=r"workflow\.unknown"):
        place.client.backfill("held_back", DAYS[0], DAYS[-1])
