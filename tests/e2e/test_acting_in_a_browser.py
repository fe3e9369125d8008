"""Acting in a real browser, on a real `rota up`: triggering, draining, requeueing, asking; and who may not, and why."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.conftest import PATIENCE_MS, Witness, open_context
from tests.integration.deadlines import until
from tests.integration.http_stage import shell
from tests.integration.service.stage import Stage, open_stage

pytestmark = pytest.mark.full

EVIL = "<script>document.title=1</script><img src=x onerror=document.title=1>"
READER, WRITER, ADMIN = "reader-token-of-the-tests", "writer-token-of-the-tests", "admin-token-of-the-tests"
TOKENS = f"reader:{READER},writer:{WRITER},admin:{ADMIN}"
HEADERS = {"Authorization": f"Bearer {ADMIN}"}
PARAMS = [
    {"name": "day", "type": "date", "default": "2026-11-16", "doc": "Which day is loaded"},
    {"name": "size", "type": "string", "choices": ["small", "large"], "default": "small"},
    {"name": "limit", "type": "integer", "least": 1, "most": 10, "default": 5},
    {"name": "is_full", "type": "boolean", "default": False},
    {"name": "note", "type": "string", "nullable": True, "default": None, "doc": f"Shown as text: {EVIL}"},
]
# Where pictures of pages are put, for whoever wants to look at them.
PICTURES = os.environ.get("ROTA_TEST_PICTURES", "")

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("acting")
    rows = [f"{number},{('de', 'fr', 'it')[number % 3]},{number % 97}" for number in range(3_000)]
    (folder / "people.csv").write_text("\n".join(["id,country,score", *rows]) + "\n")
    settings = folder / "rota.toml"
    settings.write_text(f'[queries.tables]\npeople = "{folder}/people.csv"\n')
    env = {"ROTA_COORDINATOR_BEARER_TOKENS": TOKENS, "ROTA_CONFIG": str(settings)}
    with open_stage(folder, env, lease_s=20) as one:
        one.start_up("--slots=4", f"--config={settings}")
        yield one


def home(stage: Stage) -> str:
    return f"http://127.0.0.1:{stage.http_port}"


def ask(stage: Stage, method: str, path: str, body: object = None) -> dict[str, object]:
    response = httpx.request(method, f"{home(stage)}/api/v1/{path}", json=body, headers=HEADERS)
    assert response.status_code < 300, response.text
    return response.json() if response.content else {}


def submit(stage: Stage, run: str, *tasks: object, **more: object) -> None:
    ask(stage, "POST", "runs", {"run": run, "graph": {"name": run, "tasks": tasks}, **more})


def deploy(stage: Stage, name: str, **more: object) -> None:
    tasks = [shell("extract", "echo extracting; sleep 0.2"), shell("load", "echo loaded", upstream=["extract"])]
    ask(stage, "POST", "workflows", {"graph": {"name": name, "tasks": tasks}, **more})


def sign_in(page: Page, stage: Stage, token: str) -> Page:
    page.goto(f"{home(stage)}/sign-in")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{home(stage)}/")
    return page


@pytest.fixture
def admin(page: Page, stage: Stage) -> Page:
    """Somebody who may do everything; nothing goes wrong on their pages."""
    return sign_in(page, stage, ADMIN)


@pytest.fixture
def other(browser: Browser, stage: Stage) -> Iterator[Page]:
    """Somebody else, with a browser of their own, to whom things may be refused."""
    context = open_context(browser)
    yield sign_in(context.new_page(), stage, WRITER)
    context.close()


def picture(page: Page, name: str) -> None:
    if PICTURES:
        page.screenshot(path=f"{PICTURES}/{name}.png", full_page=True)


def test_a_workflow_is_triggered_with_parameters_and_watched_to_its_end(stage: Stage, admin: Page):
    deploy(stage, "etl", params=PARAMS, schedule={"cron": "0 3 * * *", "zone": "Europe/Berlin"}, doc="Load a day.")
    admin.goto(f"{home(stage)}/workflows")
    picture(admin, "workflows")
    admin.get_by_role("link", name="etl").first.click()
    expect(admin.get_by_label("size")).to_have_value("small")
    admin.get_by_label("day").fill("2026-03-01")
    admin.get_by_label("size").select_option("large")
    admin.get_by_label("limit").fill("7")
    admin.get_by_label("note").fill(EVIL)
    picture(admin, "workflow")
    admin.get_by_role("button", name="Run", exact=True).click()
    expect(admin).to_have_url(re.compile(r"/runs/etl-"))
    expect(admin.get_by_role("status").filter(has_text="was made")).to_contain_text("rota run etl --param")
    expect(admin.locator("#head")).to_contain_text("success")
    expect(admin.locator(".params")).to_contain_text("2026-03-01")
    expect(admin.locator(".params")).to_contain_text(EVIL)
    assert "Rota" in admin.title()
    picture(admin, "run")


def test_a_wrong_parameter_is_refused_by_the_browser_and_by_us(stage: Stage, other: Page):
    deploy(stage, "bounded", params=PARAMS)
    other.goto(f"{home(stage)}/workflows/bounded")
    other.get_by_label("limit").fill("11")
    other.get_by_role("button", name="Run", exact=True).click()
    expect(other).to_have_url(f"{home(stage)}/workflows/bounded")
    other.get_by_label("limit").evaluate("each => each.removeAttribute('max')")
    other.get_by_label("note").fill("kept")
    other.get_by_role("button", name="Run", exact=True).click()
    expect(other.get_by_role("alert")).to_contain_text("11")
    expect(other.get_by_label("note")).to_have_value("kept")
    picture(other, "refused")


def test_a_worker_is_drained_and_given_work_again(stage: Stage, admin: Page, tmp_path: Path):
    submit(stage, "held", shell("hold", f"until [ -e {tmp_path}/go ]; do sleep 0.05; done"))
    until(lambda: ask(stage, "GET", "runs/held/tasks/hold")["state"] == "running", "it to run")
    admin.goto(f"{home(stage)}/workers")
    picture(admin, "workers")
    admin.locator("#workers a.id").first.click()
    expect(admin.locator("#held")).to_contain_text("hold")
    admin.get_by_role("button", name="Drain").click()
    expect(admin.get_by_role("status").filter(has_text="new work")).to_be_visible()
    expect(admin.locator("#head")).to_contain_text("draining")
    picture(admin, "worker")
    submit(stage, "behind", shell("a"))
    (tmp_path / "go").touch()
    # What it had is over, and it is given nothing else: the page says so by itself.
    expect(admin.locator("#held")).to_contain_text("Nothing")
    assert ask(stage, "GET", "runs/behind")["state"] == "running"
    assert ask(stage, "GET", "runs/behind/tasks/a")["state"] == "queued"
    admin.get_by_role("button", name="Give it work again").click()
    expect(admin.locator("#head")).to_contain_text("present")
    until(lambda: ask(stage, "GET", "runs/behind")["state"] == "success", "it to run")


def test_a_parked_task_is_requeued_and_an_item_too(page: Page, tmp_path: Path):
    # A service that gives up soon; nobody is asked for a token there.
    soon = {"ROTA_SERVER_STARVE_S": "1", "ROTA_SERVER_SWEEP_S": "1"}
    with open_stage(tmp_path, soon, lease_s=20) as quick:
        quick.start_up("--slots=2")
        item = ask(quick, "POST", "work", {"title": EVIL, "requires": ["nobody-can"], "workspace": "docs"})["item"]
        submit(quick, "parked", shell("train", requires={"gpu_count": "64"}))
        for path in (f"work/{item}", "runs/parked/tasks/train"):
            until(lambda path=path: ask(quick, "GET", path)["state"] == "needs_attention", "it to be parked", 60)
        page.goto(f"{home(quick)}/work")
        expect(page.locator("#parked")).to_contain_text(EVIL)
        picture(page, "work")
        page.locator("#parked").get_by_role("link", name="Requeue").click()
        page.get_by_label("Capabilities it cannot do without").fill("review")
        picture(page, "requeue")
        page.get_by_role("button", name="Requeue").click()
        expect(page.get_by_role("status").filter(has_text="session")).to_be_visible()
        assert ask(quick, "GET", f"work/{item}")["requires"] == ["review"]
        page.goto(f"{home(quick)}/runs/parked/tasks/train")
        picture(page, "parked")
        page.get_by_role("button", name="Requeue").click()
        expect(page.get_by_role("status").filter(has_text="rota resolve parked train --requeue")).to_be_visible()
        page.goto("about:blank")


def test_a_query_is_asked_and_its_answer_comes_by_itself(stage: Stage, admin: Page):
    admin.goto(f"{home(stage)}/queries")
    statement = "select country, count(*) as people, avg(score) as score from people group by country order by country"
    admin.get_by_label("SQL").fill(statement)
    admin.get_by_role("button", name="Ask").click()
    expect(admin).to_have_url(re.compile(r"/queries\?run=query-"))
    admin.evaluate("window.wasHere = true")
    expect(admin.locator("#answer tbody tr")).to_have_count(3)
    expect(admin.locator("#answer")).to_contain_text("3 rows")
    assert admin.evaluate("window.wasHere")
    expect(admin.get_by_label("SQL")).to_have_value(statement)
    picture(admin, "queries")
    admin.get_by_label("SQL").fill("select * from poeple")
    admin.get_by_role("button", name="Ask").click()
    expect(admin.locator("#answer")).to_contain_text("Did you mean people?")
    expect(admin.get_by_label("SQL")).to_have_value("select * from poeple")
    admin.get_by_label("SQL").fill("select 1\nfrm people")
    admin.get_by_role("button", name="Ask").click()
    expect(admin.locator("#answer")).to_contain_text("line 2")
    picture(admin, "complaint")


def test_the_second_of_two_people_is_told_that_somebody_was_faster(stage: Stage, admin: Page, other: Page):
    submit(stage, "contested", shell("a", "sleep 1000"))
    other.goto(f"{home(stage)}/runs/contested/cancel")
    admin.goto(f"{home(stage)}/runs/contested")
    admin.get_by_role("link", name="Cancel").click()
    admin.get_by_label("Why").fill("not needed")
    picture(admin, "cancel")
    admin.get_by_role("button", name="Cancel").click()
    expect(admin.locator("#head")).to_contain_text("cancelled")
    other.get_by_role("button", name="Cancel").click()
    expect(other.get_by_role("alert")).to_contain_text("cancelled")
    picture(other, "conflict")
    other.get_by_role("link", name="See how it stands").click()
    expect(other).to_have_url(f"{home(stage)}/runs/contested")
    admin.goto(f"{home(stage)}/audit?find=contested")
    # Who made it, and who was faster.
    expect(admin.locator("#audit tbody tr")).to_have_count(2)
    expect(admin.locator("#audit")).to_contain_text("not needed")
    picture(admin, "audit")


def test_a_reader_has_no_buttons_and_no_audit(stage: Stage, browser: Browser):
    submit(stage, "looked-at", shell("a", "sleep 1000"))
    context = open_context(browser)
    reader = sign_in(context.new_page(), stage, READER)
    witness = Witness(reader)
    for url in ("/runs/looked-at", "/runs/looked-at/tasks/a", "/workers", "/queues", "/work", "/queries", "/workflows"):
        reader.goto(f"{home(stage)}{url}")
        expect(reader.locator("#pulse")).to_have_text("live")
        assert reader.locator("form[method=post]:not([action='/sign-out'])").count() == 0, url
        assert reader.locator("a.button").count() == 0, url
    assert reader.get_by_role("link", name="Audit").count() == 0
    assert witness.seen == []
    reader.goto(f"{home(stage)}/runs/looked-at/cancel")
    expect(reader.locator("main")).to_contain_text("auth.role")
    context.close()
    ask(stage, "POST", "runs/looked-at/cancel", {})


def test_a_page_of_another_site_cannot_act_for_who_is_signed_in(stage: Stage, browser: Browser, tmp_path: Path):
    submit(stage, "aimed-at", shell("a", "sleep 1000"))
    context = open_context(browser)
    page = sign_in(context.new_page(), stage, ADMIN)
    target = f"{home(stage)}/runs/aimed-at/pause"
    evil = f'<form method="post" action="{target}"><input name="once" value="{"0" * 32}"></form>'
    # Under another name the same machine is another site.
    elsewhere = f"http://localhost:{stage.http_port}/evil"
    context.route(elsewhere, lambda route: route.fulfill(body=evil, content_type="text/html"))
    page.goto(elsewhere)
    with page.expect_navigation() as sent:
        page.evaluate("document.forms[0].submit()")
    assert sent.value.status in (303, 403)
    assert ask(stage, "GET", "runs/aimed-at")["paused"] is False
    context.close()
    ask(stage, "POST", "runs/aimed-at/cancel", {})


def test_hostile_names_and_notes_are_text_wherever_they_are_shown(stage: Stage, admin: Page):
    ask(stage, "PUT", f"pools/{EVIL.replace('/', '%2F').replace('<', '%3C').replace('>', '%3E')}", {"slots": 2})
    submit(stage, "hostile", shell(EVIL[:60]))
    until(lambda: ask(stage, "GET", "runs/hostile")["state"] == "success", "it to end")
    admin.goto(f"{home(stage)}/runs/hostile")
    admin.locator("#tasks a.id").first.click()
    admin.get_by_role("link", name="Note").click()
    admin.get_by_label("Note").fill(EVIL)
    admin.get_by_role("button", name="Note").click()
    expect(admin.locator("#head")).to_contain_text(EVIL)
    for url in ("/queues", "/audit", "/queries"):
        admin.goto(f"{home(stage)}{url}")
        expect(admin.locator("#pulse")).to_have_text("live")
        assert admin.title().endswith("Rota"), url
    admin.goto(f"{home(stage)}/queues")
    expect(admin.locator("#pools")).to_contain_text(EVIL)
    picture(admin, "queues")


def test_a_form_is_not_lost_while_its_page_is_kept_current(stage: Stage, admin: Page):
    deploy(stage, "typing", params=PARAMS)
    admin.goto(f"{home(stage)}/workflows/typing")
    admin.get_by_label("note").fill("half a sentence")
    ask(stage, "POST", "workflows/typing/runs", {})
    expect(admin.locator("#runs tbody tr")).to_have_count(1)
    expect(admin.get_by_label("note")).to_have_value("half a sentence")
    once = admin.locator("body").get_attribute("data-once")
    found = admin.evaluate("[...document.querySelectorAll('input[name=once]')].map(each => each.value)")
    assert len(found) > 1
    assert set(found) == {once}, "also those that came later"


def test_whoever_is_not_known_any_more_signs_in_again_and_is_back_where_they_were(browser: Browser, tmp_path: Path):
    with open_stage(tmp_path, {"ROTA_COORDINATOR_BEARER_TOKENS": TOKENS}, lease_s=20) as stage:
        server = stage.start_server()
        until(lambda: httpx.get(f"{home(stage)}/leaderz").status_code == 200, "it to lead")
        context = open_context(browser)
        page = sign_in(context.new_page(), stage, READER)
        page.goto(f"{home(stage)}/workers?state=away")
        expect(page.locator("#pulse")).to_have_text("live")
        context.clear_cookies()
        server.kill()
        stage.start_server()
        page.get_by_label("Token").fill(READER)
        page.get_by_role("button", name="Sign in").click()
        expect(page).to_have_url(f"{home(stage)}/workers?state=away")
        (kept,) = (each for each in context.cookies() if each["name"] == "rota_session")
        assert (kept["httpOnly"], kept["sameSite"]) == (True, "Strict")
        context.close()
