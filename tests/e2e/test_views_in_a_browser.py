"""The views of a run in a real browser: graph, timeline, log, why, and whether everybody can use them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from rota.app.clocks import wall_clock
from rota.wire.standings import Mark, Step, Told, write_told
from rota.wire.wishes import heed, read_wishes
from tests.e2e.conftest import PATIENCE_MS, open_context
from tests.e2e.test_pages_in_a_browser import EVIL, ended, held, home, submit
from tests.integration.deadlines import until
from tests.integration.http_stage import shell
from tests.integration.service.stage import Stage, open_stage

pytestmark = pytest.mark.full

expect.set_options(timeout=PATIENCE_MS)
# What is judged: WCAG 2.1, levels A and AA, with contrast, labels, headings, landmarks and the order of focus.
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}}
LINES = "for i in $(seq 1 40); do echo line $i; done; echo 'ValueError: no cheese'; for i in 1 2 3; do echo after; done"

RED = "printf '\\033[31mred\\033[0m\\n'"
PRINTS = f"echo '{EVIL}'; echo printed; exit 1"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with open_stage(tmp_path_factory.mktemp("views"), lease_s=20) as one:
        one.start_up("--slots=4")
        yield one


@pytest.fixture(scope="module")
def seeded(stage: Stage) -> Stage:
    """With something of every sort to look at."""
    tasks = (
        shell("load.orders", LINES),
        shell("load.rates"),
        shell("check", upstream=["load.orders", "load.rates"]),
        shell("score", width=12, upstream=["check"]),
        shell(
            "publish", f"echo '{EVIL}'; echo printed; exit 1", upstream=["score"], retry={"retries": 1, "delay_ms": 0}
        ),
        shell("report", upstream=["publish"]),
    )
    submit(stage, "shown", *tasks, name="shown", params={"day": "2026-11-17", "note": EVIL})
    submit(stage, "waits", shell("train", requires={"gpu_count": "64"}), shell("after", upstream=["train"]))
    ended(stage, "shown")
    tell_stream(stage, "clicks", round=41, run="shown", task="check")
    (tell_stream(stage, "torn") / "standing.json").write_text("{", encoding="utf-8")
    return stage


def tell_stream(stage: Stage, name: str, **more: object) -> Path:
    """What whoever runs a stream leaves in its folder, where the coordinator looks."""
    folder, now = stage.processes[0].folder / "streams" / name, wall_clock()
    (folder / "rounds").mkdir(parents=True, exist_ok=True)
    (folder / "identity").write_text(name, encoding="utf-8")
    told: dict[str, Any] = {
        "told_at": now,
        "holder": "there:1",
        "guarantee": "exactly once",
        "rows_per_s": 1_250,
        "rows": 90_000,
        "marks": (Mark(operator="per_minute", watermark_at=now - 3_000), Mark(operator=EVIL)),
        "counts": {"clicks.rows": 90_000, "per_minute.late": 3},
        "restorable": (40, 41),
        "steps": tuple(Step(at=now - 60_000 * ago, rows=5_000 + ago, lag_ms=100 * ago) for ago in range(9, 0, -1)),
    }
    write_told(folder, Told(**{**told, **more}))
    return folder


def test_a_new_run_is_watched_from_the_first_page_to_its_end(stage: Stage, page: Page, tmp_path: Path):
    page.goto(home(stage))
    expect(page.locator("#pulse")).to_have_text("live")
    submit(stage, "fresh", shell("one", held(tmp_path / "go")), shell("two", upstream=["one"]))
    page.locator("#running").get_by_role("link", name="fresh").click()
    page.get_by_role("navigation", name="Views").get_by_role("link", name="Graph").click()
    expect(page).to_have_url(f"{home(stage)}/runs/fresh/graph")
    expect(page.locator(".node.n-running")).to_have_count(1)
    page.evaluate("window.wasHere = true")
    (tmp_path / "go").touch()
    expect(page.locator(".node.n-success")).to_have_count(2)
    assert page.evaluate("window.wasHere"), "it was not loaded again"
    page.keyboard.press("3")
    expect(page).to_have_url(f"{home(stage)}/runs/fresh/timeline")
    expect(page.locator(".lane .t-run.f-success")).to_have_count(2)


def test_nodes_of_a_graph_lie_apart_and_lead_to_their_tasks(seeded: Stage, page: Page):
    page.goto(f"{home(seeded)}/runs/shown/graph")
    boxes = page.locator(".node > rect:not(.behind)").evaluate_all(
        "all => all.map(e => { const b = e.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; })"
    )
    assert len(boxes) == 6
    for number, one in enumerate(boxes):
        for other in boxes[:number]:
            assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    wide = page.locator(".node text:not(.of)").evaluate_all(
        "all => all.map(e => e.getBBox().x + e.getBBox().width"
        " - (e.parentNode.querySelector('rect:not(.behind)').getBBox().x"
        " + e.parentNode.querySelector('rect:not(.behind)').getBBox().width))"
    )
    assert all(over < 0 for over in wide), "names fit their nodes"
    page.get_by_role("link", name="Close load").click()
    expect(page.locator(".node")).to_have_count(5)
    page.locator(".node", has_text="load").click()
    expect(page.locator(".node")).to_have_count(6)
    page.locator(".node.n-failed").click()
    expect(page).to_have_url(f"{home(seeded)}/runs/shown/tasks/publish")


def test_a_log_has_lines_that_can_be_searched_and_linked_to(seeded: Stage, page: Page):
    url = f"{home(seeded)}/runs/shown/tasks/load.orders"
    page.goto(url)
    expect(page.locator(".line")).to_have_count(44)
    page.get_by_role("button", name="First error").click()
    expect(page.locator(".line.now")).to_contain_text("ValueError: no cheese")
    page.get_by_label("Search the log").fill("after")
    expect(page.locator("#log-bar output")).to_have_text("3 lines")
    page.keyboard.press("Enter")
    expect(page.locator("#log-bar output")).to_have_text("1 of 3")
    page.locator("#L12 > a").click()
    expect(page).to_have_url(f"{url}?attempt=1#L12")
    page.goto(f"{home(seeded)}/runs/shown/tasks/load.orders?attempt=1#L30")
    page.reload()
    expect(page.locator(".line.here")).to_have_text("line 30")
    expect(page.locator(".line.here")).to_be_in_viewport()
    page.locator("#L32 > a").click(modifiers=["Shift"])
    expect(page.locator(".line.here")).to_have_count(3)


def test_a_permalink_into_a_long_log_shows_the_line_it_names(stage: Stage, page: Page):
    rest = f"of a long log {'.' * 100}"
    submit(stage, "chatty", shell("talk", f"{RED}; seq -f 'line %g {rest}' 2 600"))
    ended(stage, "chatty")
    page.goto(f"{home(stage)}/runs/chatty/tasks/talk?attempt=1#L7")
    expect(page.locator(".line.here")).to_have_text(f"line 7 {rest}")
    page.goto(f"{home(stage)}/runs/chatty/tasks/talk")
    expect(page.locator("#L600")).to_have_text(f"line 600 {rest}")
    expect(page.locator("#log-cut")).to_be_hidden()
    page.locator("#log").press("Control+Home")
    expect(page.locator("#L1")).to_have_text("red")


def test_attempts_are_switched_and_what_never_ran_says_why(seeded: Stage, page: Page):
    page.goto(f"{home(seeded)}/runs/shown/tasks/publish")
    expect(page.locator("#log")).to_contain_text(EVIL)
    page.get_by_role("link", name="attempt 1", exact=True).click()
    expect(page).to_have_url(re.compile("attempt=1"))
    expect(page.locator("#log")).to_contain_text("printed")
    page.goto(f"{home(seeded)}/runs/shown/tasks/report")
    expect(page.locator("#unsaid")).to_contain_text("It never began")
    page.locator("#unsaid").get_by_role("link", name="publish").click()
    expect(page).to_have_url(f"{home(seeded)}/runs/shown/tasks/publish")


def test_the_logs_of_a_run_are_read_one_after_the_other(seeded: Stage, page: Page):
    page.goto(f"{home(seeded)}/runs/shown/graph")
    page.keyboard.press("4")
    expect(page).to_have_url(f"{home(seeded)}/runs/shown/logs")
    expect(page.locator("#log")).to_contain_text(EVIL)
    page.locator("#picker").get_by_role("link", name="load.orders").click()
    expect(page.locator(".line")).to_have_count(44)
    page.keyboard.press("e")
    expect(page.locator(".line.now")).to_contain_text("ValueError: no cheese")
    page.goto(f"{home(seeded)}/runs/shown/logs?state=success")
    page.locator("#L12 > a").click()
    expect(page).to_have_url(f"{home(seeded)}/runs/shown/logs?state=success&attempt=1&task=load.orders#L12")
    page.goto(f"{home(seeded)}/runs/shown/logs?task=report")
    expect(page.locator("#unsaid")).to_contain_text("It never began")


def test_a_stuck_task_leads_to_what_holds_it(seeded: Stage, page: Page):
    page.goto(home(seeded))
    stuck = page.locator("#waiting li.stuck")
    expect(stuck).to_contain_text("gpu_count is nothing, 64 needed")
    stuck.get_by_role("link", name="1 task").click()
    expect(page).to_have_url(f"{home(seeded)}/runs/waits/tasks/train")
    expect(page.locator("#why .holder").first).to_have_attribute("href", re.compile("^/workers/"))
    page.goto(f"{home(seeded)}/runs/waits/tasks/after")
    page.locator("#why").get_by_role("link", name="task train").click()
    expect(page).to_have_url(f"{home(seeded)}/runs/waits/tasks/train")


def test_keys_are_listed_and_lead_around(seeded: Stage, page: Page):
    page.goto(f"{home(seeded)}/runs/shown")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("one level up")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("g")
    page.keyboard.press("h")
    expect(page).to_have_url(f"{home(seeded)}/")
    page.keyboard.press("/")
    page.keyboard.type("shown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{home(seeded)}/runs?find=shown")
    page.keyboard.press("g")
    page.keyboard.press("r")
    expect(page).to_have_url(f"{home(seeded)}/runs")


def test_whoever_is_lost_is_helped(seeded: Stage, browser: Browser):
    context = open_context(browser)
    page = context.new_page()
    page.goto(f"{home(seeded)}/runs/show")
    page.locator(".near").get_by_role("link", name="shown").click()
    expect(page).to_have_url(f"{home(seeded)}/runs/shown")
    page.goto(f"{home(seeded)}/no/such/page")
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Runs").click()
    expect(page).to_have_url(f"{home(seeded)}/runs")
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_use_the_pages(seeded: Stage, browser: Browser, scheme: str):
    context = open_context(browser, scheme)
    page = context.new_page()
    page.emulate_media(reduced_motion="reduce")
    paths = (
        "/",
        "/runs",
        "/runs/shown",
        "/runs/shown/graph",
        "/runs/shown/timeline",
        "/runs/shown/logs",
        "/runs/shown/logs?task=report",
        "/runs/shown/tasks",
        "/runs/shown/story",
        "/runs/shown/tasks/publish",
        "/runs/shown/tasks/report",
        "/runs/waits",
        "/runs/waits/tasks/train",
        "/runs/nothing",
        "/streams",
        "/streams/clicks",
        "/streams/torn",
        "/streams/clicks/restore",
        "/streams/clicks/savepoint",
    )
    wrong: list[str] = []
    for path in paths:
        page.goto(f"{home(seeded)}{path}")
        found = Axe().run(page, options=RULES)
        for violation in found.response["violations"]:
            places = [f"{node['target']}: {node['failureSummary']}" for node in violation["nodes"][:3]]
            wrong.append(f"{path}: {violation['id']}: {places}")
    context.close()
    assert wrong == [], "\n".join(wrong)


def test_narrow_screens_need_no_scrolling_sideways(seeded: Stage, browser: Browser):
    context = open_context(browser)
    page = context.new_page()
    page.set_viewport_size({"width": 390, "height": 800})
    views = ("", "/graph", "/timeline", "/logs", "/tasks/publish")
    runs = ("/runs", *(f"/runs/shown{view}" for view in views))
    for path in ("/", *runs, "/streams", "/streams/clicks", "/streams/torn"):
        page.goto(f"{home(seeded)}{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    context.close()


def test_a_stream_is_watched_paused_and_saved(seeded: Stage, page: Page):
    folder = tell_stream(seeded, "orders", round=7, run="shown", task="check")
    page.goto(f"{home(seeded)}/streams")
    expect(page.locator("#streams")).to_contain_text("orders")
    page.get_by_role("link", name="orders").click()
    expect(page.locator("#numbers")).to_contain_text("7rounds")
    expect(page.locator("#pulse")).to_have_text("live")
    page.evaluate("window.wasHere = true")
    tell_stream(seeded, "orders", round=8, run="shown", task="check", rows_per_s=77)
    expect(page.locator("#numbers")).to_contain_text("8rounds")
    expect(page.locator("#numbers")).to_contain_text("77")
    assert page.evaluate("window.wasHere"), "it was not loaded again"
    assert page.title() == "orders · Rota", "what others wrote is text"
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".said")).to_contain_text("rota stream pause orders")
    expect(page.locator("#head")).to_contain_text("paused")
    assert read_wishes(folder).paused
    page.get_by_role("link", name="Savepoint").click()
    page.get_by_label("Name").fill("before-upgrade")
    page.get_by_role("button", name="Savepoint").click()
    expect(page.locator("#head")).to_contain_text("before-upgrade")
    heed(folder, read_wishes(folder).pending[0])
    expect(page.locator("#head")).not_to_contain_text("Asked to")
    counted = 'rota_stream_rounds_total{stream="orders",tenant="default"} 8.0'
    until(lambda: counted in httpx.get(f"{home(seeded)}/metrics").text, "metrics to tell of it")
    page.locator("#head").get_by_role("link", name="shown").click()
    expect(page.locator("#head")).to_contain_text("Stream")
    expect(page.locator("#head").get_by_role("link", name="orders")).to_have_attribute("href", "/streams/orders")


def test_a_stale_tab_of_a_graph_comes_back_after_a_restart(browser: Browser, tmp_path: Path):
    with open_stage(tmp_path) as stage:
        server = stage.start_server()
        body = {"run": "kept", "graph": {"name": "kept", "tasks": [shell("a")]}}
        assert httpx.post(f"{home(stage)}/api/v1/runs", json=body).status_code == 201
        context = open_context(browser)
        page = context.new_page()
        page.goto(f"{home(stage)}/runs/kept/graph")
        expect(page.locator("#pulse")).to_have_text("live")
        server.kill()
        expect(page.locator("#pulse")).to_contain_text("not live")
        stage.start_server()
        expect(page.locator("#pulse")).to_have_text("live")

        def cancelled() -> bool:
            return httpx.post(f"{home(stage)}/api/v1/runs/kept/cancel", json={}, timeout=30).is_success

        # Pages are shown before the one that was started again leads.
        until(cancelled, "somebody who leads")
        expect(page.locator(".node.n-cancelled")).to_have_count(1)
        context.close()
