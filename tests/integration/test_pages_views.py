"""The views of a run, the first page, and what somebody is told who looks for what there is not."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest

from bench.pages import many, wide
from rota.core.bounds import TimeLimits
from rota.core.model import Graph
from rota.ui.panels import PANELS
from rota.ui.views import LOGS, VIEWS
from tests.integration.deadlines import until
from tests.integration.http_stage import Stage, shell, staged
from tests.integration.page_stage import Page, listen, look
from tests.integration.test_pages import EVIL, EVIL_ID, check_page
from tests.integration.test_pages_live import held, until_told

BYTES_MAX = 300_000
STUCK = {"gpu_count": "64"}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged() as one:
        yield one


def classes(page: Page, tag: str) -> list[str]:
    return [given.get("class") or "" for given in page.named(tag)]


def test_every_view_of_a_run_is_a_page_with_tabs_to_the_others(stage: Stage):
    stage.submit(shell("a"), shell("b", upstream=["a"]), run="viewed", name="viewed")
    stage.ended("viewed")
    for view in VIEWS:
        page = look(stage, f"/runs/viewed{view.path and f'/{view.path}'}")
        check_page(page)
        for other in VIEWS:
            assert f"/runs/viewed{other.path and f'/{other.path}'}" in page.links
        (here,) = [given for given in page.named("a") if "data-view" in given and given.get("aria-current")]
        assert here["href"] == f"/runs/viewed{view.path and f'/{view.path}'}"


def test_a_graph_has_its_tasks_as_links_with_their_states_and_an_arrow_for_each_edge(stage: Stage):
    tasks = (shell("a"), shell("b", "exit 1", upstream=["a"]), shell("c", upstream=["a", "b"]))
    stage.submit(*tasks, run="drawn", name="drawn")
    stage.ended("drawn")
    page = look(stage, "/runs/drawn/graph")
    nodes = [given for given in page.named("a") if (given.get("class") or "").startswith("node ")]
    assert {given["href"]: (given["class"] or "").split()[1] for given in nodes} == {
        "/runs/drawn/tasks/a": "n-success",
        "/runs/drawn/tasks/b": "n-failed",
        "/runs/drawn/tasks/c": "n-upstream_failed",
    }
    arrows = [given for given in page.named("path") if (given.get("d") or "").startswith("M") and "class" not in given]
    assert len([given for given in arrows if "fill-rule" not in given]) >= 3
    assert stage.get("runs/drawn")["graph"] in [given.get("title") for given in page.classed("mono")]
    shapes = {given["id"] for given in page.named("symbol")}
    assert {given["href"] for given in page.named("use")} <= {f"#{shape}" for shape in shapes}


def test_groups_are_opened_and_closed_by_links(stage: Stage):
    tasks = (shell("load.a"), shell("load.b", upstream=["load.a"]), shell("end", upstream=["load.b"]))
    stage.submit(*tasks, run="grouped", name="grouped")
    closed = look(stage, "/runs/grouped/graph?open=-")
    (url,) = {link for link in closed.links if link == "/runs/grouped/graph?open=load"}
    assert classes(closed, "rect").count("behind") == 1
    opened = look(stage, url)
    assert "/runs/grouped/tasks/load.a" in opened.links
    assert "/runs/grouped/graph?open=-" in opened.links


def test_a_graph_is_kept_current(stage: Stage, tmp_path: Path):
    stage.submit(shell("a", held(tmp_path / "go")), shell("b", upstream=["a"]), run="moving", name="moving")
    with closing(listen(stage, look(stage, "/runs/moving/graph").live)) as events:
        until_told(events, lambda told: "n-running" in told["graph"])
        (tmp_path / "go").touch()
        told = until_told(events, lambda told: told["graph"].count("n-success") == 2)
    assert "story" not in told, "nothing is read that is not shown"


def test_a_timeline_shows_what_each_task_did_and_what_failed(stage: Stage, tmp_path: Path):
    tasks = (
        shell("quick"),
        shell("wrong", "echo 'ValueError: no' >&2; exit 1"),
        shell("slow", held(tmp_path / "go")),
        shell("stuck", requires=STUCK),
        shell("wide", width=30),
        shell("later", upstream=["slow"]),
    )
    stage.submit(*tasks, run="timed", name="timed")
    until(lambda: stage.rota.run("timed").tasks("wide", states=["success"]), "some of it to be done")
    until(lambda: "t-run f-running" in look(stage, "/runs/timed/timeline").html, "it to run")
    page = look(stage, "/runs/timed/timeline")
    check_page(page)
    assert "wrong: run for" in page.text
    assert "exited with code 1" in page.text or "ValueError: no" in page.text
    assert re.search(r"stuck: queue for .*, and goes on", page.text)
    assert "of 30" in page.text
    assert page.text.count("wide: run for") == 1
    assert "later: " not in page.text, "what has not begun has an empty row"
    (tmp_path / "go").touch()
    stage.rota.run("timed").cancel()


def test_the_first_page_says_what_runs_what_waits_and_what_failed(stage: Stage, tmp_path: Path):
    stage.submit(shell("hold", held(tmp_path / "go")), run="now-running", name="now-running")
    stage.submit(shell("train", requires=STUCK), run="now-stuck", name="now-stuck")
    stage.submit(shell("bad", "echo out of cheese >&2; exit 9"), run="now-failed", name="now-failed")
    stage.ended("now-failed")
    page = look(stage, "/")
    check_page(page)
    for url in ("/runs/now-running", "/runs/now-stuck/tasks/train", "/runs/now-failed", "/runs/now-failed/tasks/bad"):
        assert url in page.links
    assert "worker.none_match" in page.text
    assert "exited with code 9" in page.text or "out of cheese" in page.text
    with closing(listen(stage, page.live)) as events:
        until_told(events, lambda told: "now-running" in told["running"])
        (tmp_path / "go").touch()
        until_told(events, lambda told: "now-running" not in told["running"])
    stage.rota.run("now-stuck").cancel()


def test_runs_are_found_by_words_and_by_kind(stage: Stage):
    stage.submit(shell("a"), run="found-1", name="finding", labels={"team": "crimson"})
    stage.submit(shell("a"), run="other-1", name="other")
    for words in ("found", "FIND", "crims", "team=crimson", "find%20crim"):
        links = look(stage, f"/runs?find={words}").links
        assert "/runs/found-1" in links
        assert "/runs/other-1" not in links
    assert look(stage, "/runs?find=nothing-like-it").classed("card empty")
    assert look(stage, "/runs?find=found&kind=query").classed("card empty")
    page = look(stage, "/runs?find=found&kind=workflow&state=success")
    chosen = [given["href"] for given in page.named("a") if given.get("class") == "chip on"]
    assert chosen == ["/runs?find=found&kind=workflow", "/runs?find=found&state=success"]


def test_runs_in_history_are_found_by_words():
    with staged(limits=TimeLimits(retain_ended_ms=0)) as other:
        for number in range(3):
            other.submit(shell("a"), run=f"past-{number}", name="past")
            other.ended(f"past-{number}")
        links = until(
            lambda: found if "/runs/past-1" in (found := look(other, "/runs?find=st-1").links) else None, "it"
        )
        assert "/runs/past-2" not in (links or [])


def test_a_task_that_waits_leads_to_what_holds_it(stage: Stage, tmp_path: Path):
    stage.http.put("/api/v1/pools/licences", json={"slots": 1})
    hold = held(tmp_path / "go")
    pools = [{"pool": "licences"}]
    tasks = (shell("one", hold, pools=pools), shell("two", hold, pools=pools), shell("after", upstream=["one", "two"]))
    stage.submit(*tasks, run="holding", name="holding")
    until(lambda: stage.rota.run("holding").tasks("one", "two", states=["running"]), "one of them to run")
    (waiting,) = stage.rota.run("holding").tasks("one", "two", states=["queued"])
    assert "/queues#pool-licences" in look(stage, f"/runs/holding/tasks/{waiting.id}").links
    after = look(stage, "/runs/holding/tasks/after")
    assert "/runs/holding/tasks/one" in after.links
    assert "/runs/holding/tasks/two" in after.links
    (tmp_path / "go").touch()


def test_a_task_that_never_began_says_because_of_what(stage: Stage):
    tasks = (shell("bad", "echo no cheese >&2; exit 1"), shell("after", upstream=["bad"]))
    stage.submit(*tasks, run="unbegun", name="unbegun")
    stage.ended("unbegun")
    page = look(stage, "/runs/unbegun/tasks/after")
    assert "It never began" in page.text
    assert "/runs/unbegun/tasks/bad" in page.links
    assert "no cheese" in page.text or "exited with code 1" in page.text


def test_whoever_asks_for_a_run_that_there_is_not_is_shown_others_like_it(stage: Stage):
    stage.submit(shell("a"), run="nightly-2026-11-14", name="nightly")
    for url in ("/runs/nightly-2026-11", "/runs/nightly-2026-11-15", "/runs/nightly-2026-11-41/tasks/a"):
        page = look(stage, url, 404)
        check_page(page)
        assert "/runs/nightly-2026-11-14" in page.links
    assert "/runs/nightly-2026-11-14" not in look(stage, "/runs/qqqqqqqqqqqqqqqqqqqqqqqqqqq", 404).links
    page = look(stage, "/runs/nightly-2026-11-14/tasks/nothing", 404)
    assert "/runs/nightly-2026-11-14" in page.links
    page = look(stage, "/nowhere", 404)
    assert {"/", "/runs"} <= set(page.links)
    assert "near" in [given.get("class") for given in page.named("nav")]


@pytest.mark.parametrize("make", [wide, many])
def test_a_page_of_ten_thousand_tasks_is_light(stage: Stage, make: Callable[[], Graph]):
    graph = make()
    run = stage.rota.submit(graph, run=f"light-{graph.name}")
    urls = [f"/runs/{run.id}{view.path and f'/{view.path}'}" for view in VIEWS]
    for url in [*urls, f"/runs/{run.id}/graph?open=*", f"/runs/{run.id}/graph?open=*&row=150", "/", "/runs"]:
        page = look(stage, url)
        assert len(page.html.encode()) < BYTES_MAX, url
    run.cancel()


def test_of_a_graph_that_is_too_large_a_window_is_shown(stage: Stage):
    run = stage.rota.submit(many(), run="windowed")
    page = look(stage, "/runs/windowed/graph?open=*")
    assert "nodes 1 to 150 of 10,000" in page.text
    (after,) = [link for link in page.links if "row=150" in link]
    assert "nodes 151 to 300 of 10,000" in look(stage, after).text
    run.cancel()


def test_kinds_with_a_panel_are_those_with_something_to_show():
    assert sorted(PANELS) == ["agent", "build", "query"]


def test_what_others_wrote_is_text_in_every_view(stage: Stage):
    tasks = (shell(EVIL_ID, "exit 1"), shell(f"group.{EVIL}"[:60], width=2), shell("group.b", upstream=[EVIL_ID]))
    stage.submit(*tasks, run=f"v{EVIL_ID}", name=EVIL_ID, labels={"note": EVIL}, params={EVIL: EVIL})
    until(lambda: stage.rota.run(f"v{EVIL_ID}").tasks(EVIL_ID)[0].state == "failed", "it to fail")
    home = f"/runs/{quote(f'v{EVIL_ID}', safe='')}"
    for view in VIEWS:
        opened = () if view is LOGS else ("?open=-", "?open=*")
        for more in ("", *opened, f"?group={quote(EVIL_ID, safe='')}"):
            page = look(stage, f"{home}{view.path and f'/{view.path}'}{more}")
            check_page(page)
            assert EVIL_ID in "".join(page.words)
    for url in ("/", "/runs", f"/runs?find={quote(EVIL, safe='')}"):
        check_page(look(stage, url))
    check_page(look(stage, f"/runs/{quote(EVIL + 'x', safe='')}", 404))


def chosen(page: Page) -> list[str]:
    """The tasks that are marked in the list beside a log."""
    return [given["href"] or "" for given in page.named("a") if "data-row" in given and given.get("aria-current")]


def test_the_logs_of_a_run_are_one_view_that_begins_with_what_went_wrong(stage: Stage):
    tasks = (
        shell("fine", "echo all is well"),
        shell("wrong", "echo 'ValueError: no' >&2; exit 1", upstream=["fine"], retry={"retries": 1, "delay_ms": 0}),
        shell("after", upstream=["wrong"]),
    )
    stage.submit(*tasks, run="said", name="said")
    stage.ended("said")
    page = look(stage, "/runs/said/logs")
    check_page(page)
    assert chosen(page) == ["/runs/said/logs?task=wrong"]
    assert "ValueError: no" in page.html
    assert {f"/runs/said/logs?task=wrong&attempt={number}" for number in (1, 2)} <= set(page.links)
    assert "/runs/said/tasks/wrong" in page.links
    assert "/live/runs/said/logs?task=wrong" in page.live, "what is looked at does not change by itself"
    fine = look(stage, "/runs/said/logs?task=fine")
    assert "all is well" in fine.text
    assert "ValueError: no" not in fine.html
    after = look(stage, "/runs/said/logs?task=after")
    assert "It never began, so nothing was printed." in after.text
    assert "/runs/said/tasks/wrong" in after.links, "because of what"


def test_logs_are_chosen_by_state_and_by_group_and_one_that_waits_says_why(stage: Stage):
    stage.submit(shell("wide", "echo mine", width=3), shell("stuck", requires=STUCK), run="chosen", name="chosen")
    until(lambda: len(stage.rota.run("chosen").tasks("wide", states=["success"])) == 3, "it to be done")
    page = look(stage, "/runs/chosen/logs?state=queued")
    assert chosen(page) == ["/runs/chosen/logs?task=stuck&state=queued"]
    assert page.classed("pad unsaid")
    assert "gpu_count" in page.text, "something to read though nothing ever started"
    group = stage.http.get("/runs/chosen/logs?task=wide")
    assert group.status_code == 303, "the name of many tasks"
    page = look(stage, group.headers["location"])
    assert chosen(page) == ["/runs/chosen/logs?task=wide%5B0%5D&group=wide"]
    assert "stuck" not in "".join(page.links)
    assert chosen(look(stage, "/runs/chosen/logs?state=failed")) == []
    assert look(stage, "/runs/chosen/logs?task=nobody", 404).status == 404
    stage.rota.run("chosen").cancel()


def test_the_log_of_a_task_grows_in_the_view_of_its_run(stage: Stage, tmp_path: Path):
    stage.submit(shell("talker", f"echo first; {held(tmp_path / 'go')}; echo last"), run="talks", name="talks")
    page = look(stage, "/runs/talks/logs")
    said, picker = [], ""
    with closing(listen(stage, page.live)) as events:
        for event in events:
            if event.name == "log":
                assert event.value["task"] == "talker"
                said = stage.http.get("/runs/talks/tasks/talker/log/lines?count=9").json()["lines"]
            for fragment in event.value if event.name == "fragments" else ():
                picker = fragment["html"] if fragment["id"] == "picker" else picker
            if "first" in said:
                (tmp_path / "go").touch()
            if "last" in said and "s-success" in picker:
                break
