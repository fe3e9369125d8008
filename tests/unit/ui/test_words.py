"""How things are put into words."""

import pytest

from rota.core.states import TaskState
from rota.ui import words


def test_every_state_has_its_place_by_urgency():
    assert sorted(words.BY_URGENCY) == sorted(TaskState)


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        ({}, "none"),
        ({"success": 3}, "success"),
        ({"success": 999, "failed": 1}, "failed"),
        ({"success": 3, "running": 1}, "running"),
        ({"needs_attention": 1, "running": 5}, "needs_attention"),
        ({"success": 1, "skipped": 1}, "success"),
    ],
)
def test_of_many_tasks_the_one_that_somebody_should_see_counts(counts: dict[str, int], state: str):
    assert words.most_urgent(counts) == state


def test_counts_begin_with_what_is_done():
    assert words.show_counts({"failed": 1, "none": 2_000, "success": 3}) == "3 success, 1 failed, 2,000 not started"


def test_a_command_can_be_pasted_whatever_its_ids_are():
    assert words.command("why", "r 1", "$(reboot)", "") == "rota why 'r 1' '$(reboot)'"


def test_ids_in_addresses_are_one_part_each():
    assert words.task_url("a/b?c", "x[1]#", attempt=2) == "/runs/a%2Fb%3Fc/tasks/x%5B1%5D%23?attempt=2"
    assert words.runs_url(name="", state=["failed", "queued"], after="") == "/runs?state=failed&state=queued"
    assert words.live_url("/?name=a") == "/live/?name=a"


def test_a_large_value_is_shown_by_its_beginning():
    shown = words.show_value(["x"] * 10_000)
    assert len(shown) < 5_000
    assert "characters more" in shown
    assert words.show_value({"a": "é<"}) == '{\n  "a": "é<"\n}'
    assert words.show_value(float("nan")) == "NaN"


def test_instants_are_told_in_utc():
    assert words.show_utc(1_700_000_000_123) == "2023-11-14 22:13:20 UTC"
    assert words.show_iso(1_700_000_000_123) == "2023-11-14T22:13:20.123+00:00"
