"""The examples, under virtual time."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from rota.testing import Trial, run_workflow

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def states(trial: Trial) -> dict[str, str]:
    return {id: str(task.state) for id, task in trial.tasks.items()}


def test_the_first_one_tries_its_shaky_source_again():
    trial = run_workflow(load("first").first)
    assert (trial.state, trial.results["report"]) == ("success", "2026-11-16: 31")
    assert trial.tasks["fetch_shaky"].attempt == 3


@pytest.mark.parametrize(
    ("goal", "ran", "skipped"),
    [
        (0, ["celebrate"], ["investigate.find_weakest", "investigate.call_shop"]),
        (9_999, ["investigate.find_weakest", "investigate.call_shop"], ["celebrate"]),
    ],
)
def test_the_etl_maps_over_its_shops_and_goes_one_of_two_ways(goal: int, ran: list[str], skipped: list[str]):
    trial = run_workflow(load("etl").etl, {"shop_count": 4, "goal": goal}, logical_date="2026-11-16T05:00:00+00:00")
    assert trial.state == "success", trial.story
    seen = states(trial)
    assert [seen[id] for id in ran] == ["success"] * len(ran)
    assert [seen[id] for id in skipped] == ["skipped"] * len(skipped)
    assert sum(id.startswith("sales[") for id in seen) == 4
    assert trial.results["report"] == f"2026-11-16: {trial.results['total']}"


def test_the_sensor_waits_and_the_late_one_is_skipped(tmp_path: Path):
    trial = run_workflow(load("sensor").waiting, {"folder": str(tmp_path)})
    assert (trial.state, trial.results["count"]) == ("success", 3)
    assert states(trial)["arrived_late"] == states(trial)["count_late"] == "skipped"


@pytest.mark.parametrize(("fails", "state"), [(False, "success"), (True, "failed")])
def test_what_was_set_up_is_taken_down_either_way(fails: bool, state: str):
    trial = run_workflow(load("setup_teardown").cleaned_up, {"fails": fails})
    assert trial.state == state
    assert states(trial)["remove_space"] == "success"
    assert not Path(trial.results["make_space"]).exists()


def test_a_thousand_at_once():
    trial = run_workflow(load("fan_out").fan_out, slots=100)
    assert trial.results["add_up"] == sum(number * number for number in range(1_000))
    assert len(trial.tasks) == 1_002


def test_days_are_carried_over_one_after_the_other(tmp_path: Path):
    balance = load("backfill").balance
    values = [
        run_workflow(balance, {"folder": str(tmp_path)}, logical_date=f"2026-01-{day:02}T00:00:00+01:00").results
        for day in (1, 2, 3)
    ]
    carried = [each["carry_over"] for each in values]
    booked = [sum(each["bookings"]) for each in values]
    assert carried == [booked[0], booked[0] + booked[1], sum(booked)]
