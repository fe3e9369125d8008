"""A run that failed names the task that failed first, with its error, wherever the run is looked at."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rota.core.errors import headline
from rota.core.plan import TASKS_FAILED
from rota.ui.views import VIEWS
from tests.integration.deadlines import until
from tests.integration.http_stage import Stage, shell, staged
from tests.integration.page_stage import Page, listen, look
from tests.integration.test_pages_live import held

# Runs that fail in every way that tasks can make one fail; the task that fails first is called `wrong…`.
FAILING: dict[str, list[dict[str, Any]]] = {
    "the last task": [shell("fine"), shell("wrong", "exit 3", upstream=["fine"])],
    "one in the middle": [
        shell("wrong", "exit 3"),
        shell("after", upstream=["wrong"]),
        shell("last", upstream=["after"]),
    ],
    "one that was tried twice": [
        shell("wrong", "exit 4", retry={"retries": 1, "delay_ms": 0}),
        shell("after", upstream=["wrong"]),
    ],
    "one that was killed": [shell("wrong", "kill -9 $$"), shell("after", upstream=["wrong"])],
    "one of many": [shell("wrong", '[ "$ROTA_TASK" != "wrong[1]" ]', width=3), shell("after", upstream=["wrong"])],
    "one that another follows in any case": [
        shell("wrong", "exit 5"),
        shell("after", upstream=["wrong"], trigger_rule="all_done"),
        shell("last", upstream=["wrong"]),
    ],
}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged() as one:
        yield one


def cause(page: Page) -> list[str]:
    """The tasks that the banner of a run leads to."""
    start = next((place for place, (_, given) in enumerate(page.tags) if given.get("id") == "cause"), len(page.tags))
    linked = [given["href"] or "" for tag, given in page.tags[start + 1 : start + 3] if tag == "a"]
    return linked[:1]


@pytest.mark.parametrize("how", FAILING)
def test_every_view_names_the_task_and_its_error(stage: Stage, how: str):
    run = how.replace(" ", "-")
    stage.submit(*FAILING[how], run=run, name=run)
    assert stage.ended(run) == "failed"
    failed = stage.rota.run(run).tasks(states=["failed"])
    first = min(failed, key=lambda task: task.ended_at)
    assert first.id.startswith("wrong")
    url = f"/runs/{run}/tasks/{first.id}".replace("[", "%5B").replace("]", "%5D")
    for view in VIEWS:
        page = look(stage, f"/runs/{run}{view.path and f'/{view.path}'}")
        assert cause(page) == [url]
        assert f"{first.id} – {headline(first.error)}" in page.text
    assert stage.get(f"runs/{run}")["reason"].startswith(TASKS_FAILED)
    assert first.id in stage.get(f"runs/{run}")["reason"]
    assert url in look(stage, "/").links


def test_of_several_the_one_that_failed_first_is_named_and_the_others_are_counted(stage: Stage, tmp_path: Path):
    late = f"{held(tmp_path / 'go')}; exit 1"
    stage.submit(shell("a-late", late), shell("b-late", late), shell("first", "exit 1"), run="several", name="several")
    until(lambda: stage.rota.run("several").tasks("first", states=["failed"]), "the first to fail")
    (tmp_path / "go").touch()
    with closing(listen(stage, "/live/runs/several")) as events:
        heads = (each["html"] for event in events if event.name == "fragments" for each in event.value)
        head = next(html for html in heads if 'id="cause"' in html)
    assert "/runs/several/tasks/first" in head
    page = look(stage, "/runs/several")
    assert cause(page) == ["/runs/several/tasks/first"]
    assert "/runs/several/tasks?state=failed" in page.links


def test_a_run_that_no_task_failed_says_its_reason(stage: Stage):
    graph = {"name": "limited", "tasks": [shell("a", "sleep 1000")], "run_timeout_ms": 100}
    stage.post("runs", {"graph": graph, "run": "limited"}, 201)
    assert stage.ended("limited") == "failed"
    page = look(stage, "/runs/limited")
    assert cause(page) == []
    assert stage.get("runs/limited")["reason"] in page.text
