"""Random workflows come to the same in Airflow's own engine and in Rota, but for what the documentation lists."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rota.core.calendar import AT_MAX, ScheduleSpec, slots_between
from tests.integration.as_airflow import rota_side
from tests.integration.as_airflow.comparison import MEANT, Compared
from tests.integration.as_airflow.descriptions import Description, draw, without
from tests.servers.programs import find_program

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/coming-from/airflow.md"
BATCH, BATCHES = 60, 5
BATCH_S = 900
# Of the tasks that are compared, how many may differ on purpose.
MEANT_SHARE_MAX = 0.05
ZONE = "Europe/Berlin"


class Airflow:
    """Airflow in an environment of its own: what it depends on and what we depend on do not go together."""

    def __init__(self, folder: Path) -> None:
        elsewhere = [Path(sys.prefix) / "airflow/bin/python"]
        self._python = find_program("Airflow", elsewhere, "scripts/setup long installs it")
        self._folder = folder
        self._number = 0

    def answer(self, asked: list[Any]) -> list[Any]:
        """What it says to each."""
        self._number += 1
        program = Path(__file__).with_name("airflow_program.py")
        home = self._folder / f"home-{self._number}"
        ran = subprocess.run(
            [self._python, str(program), str(home)],
            input="".join(f"{json.dumps(each)}\n" for each in asked),
            capture_output=True,
            text=True,
            timeout=BATCH_S,
            check=False,
        )
        answers = [json.loads(line) for line in ran.stdout.splitlines()]
        assert len(answers) == len(asked), ran.stderr[-3_000:]
        return answers


@pytest.fixture
def airflow(tmp_path: Path) -> Airflow:
    return Airflow(tmp_path)


def smallest(airflow: Airflow, described: Description) -> Description:
    """A workflow without every task that a difference does without."""
    while True:
        smaller = [without(described, task["id"]) for task in described["tasks"]]
        smaller = [{**each, "name": f"{described['name']}_{number}"} for number, each in enumerate(smaller)]
        smaller = [each for each in smaller if each["tasks"]]
        answers = airflow.answer(smaller)
        differing = [
            each
            for each, there in zip(smaller, answers, strict=True)
            if "error" not in there and Compared(each, there, rota_side.run(each)).unmeant
        ]
        if not differing:
            return described
        described = differing[0]


@pytest.mark.long
@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_workflows_come_to_the_same_in_both(airflow: Airflow, batch: int) -> None:
    described = [draw(seed) for seed in range(batch * BATCH, (batch + 1) * BATCH)]
    answers = airflow.answer(described)
    compared = [Compared(each, there, rota_side.run(each)) for each, there in zip(described, answers, strict=True)]
    for each, found in zip(described, compared, strict=True):
        assert not found.unmeant, (found.unmeant, smallest(airflow, each))
    # What is meant to differ does not swallow what is to be compared.
    tasks = sum(found.tasks for found in compared)
    assert tasks > 0.95 * sum(len(each["tasks"]) for each in described)
    assert sum(len(found.meant) for found in compared) < MEANT_SHARE_MAX * tasks


def test_every_kind_of_task_is_drawn_often() -> None:
    tasks = [task for seed in range(BATCH * BATCHES) for task in draw(seed)["tasks"]]
    drawn = {
        "branches": sum(task["kind"] == "branch" for task in tasks),
        "short circuits": sum(task["kind"].startswith("short") for task in tasks),
        "teardowns": sum(task["is_teardown"] for task in tasks),
        "setups": sum(task["is_setup"] for task in tasks),
        "mapped over a list": sum(bool(task["over"]) and "items" in task["over"] for task in tasks),
        "mapped over outputs": sum(bool(task["over"]) and "outputs" in task["over"] for task in tasks),
        "in groups": sum("." in task["id"] for task in tasks),
        "after groups": sum(bool(task["up_groups"]) for task in tasks),
        "retried": sum(0 < task["fails"] <= task["retries"] for task in tasks),
    }
    assert {kind: count for kind, count in drawn.items() if count < 20} == {}
    assert {task["rule"] for task in tasks} >= {"all_success", "one_success", "none_failed_min_one_success", "always"}


@pytest.mark.slow
def test_every_random_workflow_comes_to_an_end_in_rota() -> None:
    ended = {seed: rota_side.run(draw(seed))["state"] for seed in range(200)}
    assert set(ended.values()) == {"success", "failed"}


@pytest.mark.parametrize(
    ("rule", "up", "is_meant"),
    [
        ("all_success", ["bad", "left"], True),
        ("all_success", ["bad", "fine"], False),
        # Only what is right above it counts, and only this rule.
        ("all_success", ["below_bad", "below_left"], False),
        ("none_failed", ["bad", "left"], False),
    ],
)
def test_a_failure_and_a_skip_excuse_a_difference_right_below_both(rule: str, up: list[str], is_meant: bool) -> None:
    states = {"bad": "failed", "left": "skipped", "fine": "success", "below_bad": "success", "below_left": "success"}
    ups = {"below_bad": ["bad"], "below_left": ["left"], "x": up}
    plain = {**draw(0)["tasks"][0], "kind": "plain", "over": None, "setups": [], "up_groups": [], "is_teardown": False}
    tasks = [
        {**plain, "id": name, "rule": rule if name == "x" else "all_done", "up": ups.get(name, [])}
        for name in (*states, "x")
    ]
    there, here = (
        {"tasks": {name: {"-1": state} for name, state in {**states, "x": ended}.items()}, "overtaking": []}
        for ended in ("skipped", "upstream_failed")
    )
    found = Compared({"name": "w", "tasks": tasks}, {**there, "state": "failed"}, {**here, "state": "failed"})
    assert (len(found.meant), len(found.unmeant)) == ((1, 0) if is_meant else (0, 1))


def test_every_difference_that_is_meant_is_in_the_documentation() -> None:
    rows = {
        line.split("|")[1].strip() for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")
    }
    assert [name for name in MEANT if name not in rows] == []


# Around a change of the clock in Berlin: the expression, from when on, what fires there and what fires here, in UTC.
CHANGES = [
    (
        "30 2 * * *",
        "2026-03-28T12:00",
        ["2026-03-29T01:30", "2026-03-30T00:30"],
        ["2026-03-29T01:00", "2026-03-30T00:30"],
    ),
    (
        "30 2 * * *",
        "2026-10-24T12:00",
        ["2026-10-25T01:30", "2026-10-26T01:30"],
        ["2026-10-25T00:30", "2026-10-26T01:30"],
    ),
    (
        "15 2,3 * * *",
        "2026-03-28T12:00",
        ["2026-03-29T01:15", "2026-03-30T00:15"],
        ["2026-03-29T01:00", "2026-03-29T01:15"],
    ),
    (
        "*/30 2 * * *",
        "2026-03-28T12:00",
        ["2026-03-29T01:00", "2026-03-30T00:00"],
        ["2026-03-30T00:00", "2026-03-30T00:30"],
    ),
    (
        "*/30 2 * * *",
        "2026-10-24T12:00",
        ["2026-10-25T01:00", "2026-10-25T01:30"],
        ["2026-10-25T00:00", "2026-10-25T00:30"],
    ),
    (
        "0 * * * *",
        "2026-03-28T23:30",
        ["2026-03-29T00:00", "2026-03-29T01:00"],
        ["2026-03-29T00:00", "2026-03-29T01:00"],
    ),
    (
        "0 * * * *",
        "2026-10-24T23:30",
        ["2026-10-25T00:00", "2026-10-25T01:00"],
        ["2026-10-25T00:00", "2026-10-25T01:00"],
    ),
]


@pytest.mark.long
def test_schedules_fire_around_changes_of_the_clock_as_the_documentation_says(airflow: Airflow) -> None:
    asked = [{"cron": cron, "zone": ZONE, "after": f"{after}Z", "count": 2} for cron, after, _, _ in CHANGES]
    assert airflow.answer(asked) == [there for _, _, there, _ in CHANGES]


@pytest.mark.parametrize(("cron", "after", "here"), [(cron, after, here) for cron, after, _, here in CHANGES])
def test_schedules_fire_here_around_changes_of_the_clock(cron: str, after: str, here: list[str]) -> None:
    begin_at = int(datetime.fromisoformat(f"{after}+00:00").timestamp() * 1000)
    slots = slots_between(ScheduleSpec(cron=cron, zone=ZONE), begin_at, AT_MAX, 2)
    assert [datetime.fromtimestamp(slot // 1000, UTC).strftime("%Y-%m-%dT%H:%M") for slot in slots] == here
