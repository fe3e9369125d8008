"""The pages in a real browser, served by a real `rota up`: a stuck task is explained, a log grows, a tab comes back."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.conftest import PATIENCE_MS, open_context
from tests.integration.deadlines import until
from tests.integration.http_stage import shell
from tests.integration.service.stage import Stage, open_stage

EVIL = "<script>document.title=1</script><img src=x onerror=document.title=1>"
TOKEN = "reader-token-of-the-tests"

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with open_stage(tmp_path_factory.mktemp("pages"), lease_s=20) as one:
        one.start_up("--slots=4")
        yield one


def home(stage: Stage) -> str:
    return f"http://127.0.0.1:{stage.http_port}"


def submit(stage: Stage, run: str, *tasks: object, name: str = "", **more: object) -> None:
    body = {"run": run, "graph": {"name": name or run, "tasks": tasks}, **more}
    response = httpx.post(f"{home(stage)}/api/v1/runs", json=body)
    assert response.status_code == 201, response.text


def ended(stage: Stage, run: str) -> str:
    def look() -> str:
        state = httpx.get(f"{home(stage)}/api/v1/runs/{run}").json()["state"]
        return state if state in ("success", "failed", "cancelled") else ""

    return until(look, f"{run} to end")


def held(path: Path) -> str:
    return f"until [ -e {path} ]; do sleep 0.05; done"


def test_the_address_of_the_pages_is_said_at_the_start(stage: Stage):
    assert stage.processes[0].until_said("rota: pages: ").endswith(f"{home(stage)}/")


def test_somebody_finds_out_why_a_task_is_stuck(stage: Stage, page: Page):
    submit(stage, "stuck-run", shell("train", requires={"gpu_count": "64"}))
    page.goto(home(stage))
    page.get_by_role("link", name="stuck-run").first.click()
    expect(page.locator("#waiting")).to_contain_text("gpu_count is nothing, 64 needed")
    page.locator("#tasks").get_by_role("link", name="train").click()
    expect(page.locator("#why")).to_contain_text("worker.none_match")
    expect(page.locator("#unsaid")).to_contain_text("attempt")
    expect(page.locator("#pulse")).to_have_text("live")
    httpx.post(f"{home(stage)}/api/v1/runs/stuck-run/cancel", json={})
    expect(page.locator("#head")).to_contain_text("cancelled")
    expect(page.locator("#why")).to_be_empty()


def test_a_log_grows_while_it_is_looked_at(stage: Stage, page: Page, tmp_path: Path):
    line = f"echo first words; {held(tmp_path / 'go')}; echo '{EVIL}'"
    submit(stage, "talking", shell("talk", line), shell("after", upstream=["talk"]))
    page.goto(f"{home(stage)}/runs/talking/tasks/talk")
    expect(page.locator("#log")).to_have_text("first words\n")
    expect(page.locator("#head")).to_contain_text("running")
    page.evaluate("window.wasHere = true")
    (tmp_path / "go").touch()
    expect(page.locator("#log")).to_have_text(f"first words\n{EVIL}\n")
    expect(page.locator("#head")).to_contain_text("success")
    assert page.evaluate("window.wasHere"), "it was not loaded again"
    page.locator("body").press("u")
    expect(page).to_have_url(f"{home(stage)}/runs/talking")
    assert page.title() == "talking · Rota", "what it printed is text"


def test_the_grid_of_runs_that_ended_leads_to_their_tasks(stage: Stage, page: Page):
    for number in range(3):
        tasks = [shell("extract"), shell("load", "exit 1" if number == 1 else "true", upstream=["extract"])]
        submit(stage, f"etl-{number}", *tasks, name="etl", params={"note": EVIL})
        ended(stage, f"etl-{number}")
    page.goto(f"{home(stage)}/runs/etl-2")
    cells = page.locator(".grid tbody .c")
    expect(cells).to_have_count(6)
    expect(page.locator(".grid tbody .c-failed")).to_have_count(1)
    expect(page.locator(".grid .c-failed").last).to_have_attribute("title", "load: failed")
    shape = page.locator(".grid tbody .c-failed").evaluate("e => getComputedStyle(e, '::before').clipPath")
    assert shape.startswith("polygon"), "a state has a shape as well as a colour"
    expect(page.locator(".params")).to_contain_text(EVIL)
    created = page.locator("#head time").first
    assert re.search(r"\d{4}.*\d\d:\d\d:\d\d", created.inner_text())
    assert (created.get_attribute("title") or "").endswith("UTC")
    page.locator(".grid tbody .c-failed").click()
    expect(page).to_have_url(f"{home(stage)}/runs/etl-1/tasks/load")
    expect(page.locator("#head")).to_contain_text("exited with code 1")


def test_a_group_is_one_row_that_fills_up(stage: Stage, page: Page, tmp_path: Path):
    submit(stage, "wide", shell("work", held(tmp_path / "go"), width=30))
    page.goto(f"{home(stage)}/runs/wide")
    expect(page.locator(".grid tbody tr")).to_have_count(1)
    expect(page.locator(".grid tbody th")).to_contain_text("0 of 30")
    (tmp_path / "go").touch()
    expect(page.locator(".grid tbody th")).to_contain_text("30 of 30")
    page.locator(".grid tbody th a").click()
    expect(page.locator("#tasks")).to_contain_text("Tasks of work")
    expect(page.locator("#tasks tbody tr")).to_have_count(25)
    page.get_by_role("link", name="More").click()
    expect(page.locator("#tasks tbody tr")).to_have_count(5)


def test_the_keyboard_gets_around(stage: Stage, page: Page):
    submit(stage, "by-key", shell("a"))
    ended(stage, "by-key")
    page.goto(home(stage))
    page.keyboard.press("/")
    page.keyboard.type("by-key")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"find=by-key"))
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{home(stage)}/runs/by-key")


def test_dark_is_dark_and_light_is_light(stage: Stage, browser: Browser):
    seen: dict[str, int] = {}
    for scheme in ("light", "dark"):
        context = open_context(browser, scheme)
        page = context.new_page()
        page.goto(home(stage))
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        seen[scheme] = sum(map(int, re.findall(r"\d+", colour)[:3]))
        context.close()
    assert seen["light"] > 600
    assert seen["dark"] < 150


def test_without_scripts_everything_is_there_and_stands_still(stage: Stage, browser: Browser):
    submit(stage, "still", shell("a", "echo hello"))
    ended(stage, "still")
    context = open_context(browser, scripts=False)
    page = context.new_page()
    page.goto(f"{home(stage)}/runs?name=still")
    page.locator("#runs").get_by_role("link", name="still").first.click()
    expect(page.locator("#head")).to_contain_text("UTC")
    page.locator("#tasks").get_by_role("link", name="a", exact=True).click()
    expect(page.locator("#story")).to_contain_text("attempt ended")
    context.close()


def test_a_tab_comes_back_by_itself_after_a_restart_and_a_token_is_asked_for(browser: Browser, tmp_path: Path):
    with open_stage(tmp_path, {"ROTA_COORDINATOR_BEARER_TOKENS": f"reader:{TOKEN}"}) as stage:
        server = stage.start_server()
        context = open_context(browser)
        page = context.new_page()
        page.goto(f"{home(stage)}/runs?state=failed")
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("not accepted")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Sign in").click()
        expect(page).to_have_url(f"{home(stage)}/runs?state=failed")
        expect(page.locator("#pulse")).to_have_text("live")
        assert page.evaluate("document.cookie") == ""
        server.kill()
        expect(page.locator("#pulse")).to_contain_text("not live")
        stage.start_server()
        # Sessions end with the process that knows them; the tab asks for the token again and goes on where it was.
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Sign in").click()
        expect(page).to_have_url(f"{home(stage)}/runs?state=failed")
        expect(page.locator("#pulse")).to_have_text("live")
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        page.goto(home(stage))
        expect(page.get_by_label("Token")).to_be_visible()
        context.close()
        assert TOKEN not in stage.processes[0].said()
