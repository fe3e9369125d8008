"""The pages, rendered by a real coordinator: what they say, what they link to, how large they are, and hostile text."""

import re
import shlex
from collections.abc import Iterator

import pytest

from rota.core.bounds import TimeLimits
from rota.core.errors import CODES, Refused
from rota.core.history import GetGraph
from rota.core.questions import GetRun
from tests.integration.deadlines import until
from tests.integration.http_stage import LONG, Stage, shell, staged
from tests.integration.page_stage import BROWSER, POLICY, Page, look

EVIL = "</pre><script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7 * 7 }}"
EVIL_ID = "<script>alert('1')</script>&\"?#%2F/é"
STUCK = {"gpu_count": "64"}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged() as one:
        yield one


def check_page(page: Page) -> None:
    """What holds on every page."""
    policy = page.response.headers[POLICY]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.response.headers["cache-control"] == "no-store"
    scripts = page.named("script")
    for script in scripts:
        assert (script["src"] or "").startswith(("/static/rota.", "/static/log.")), "all scripts are ours"
    assert not page.named("style")
    assert not [given for _, given in page.tags if any(name == "style" or name.startswith("on") for name in given)]
    assert not page.named("img")


def test_runs_are_listed_the_newest_first_with_state_and_command(stage: Stage):
    for run in ("list-1", "list-2"):
        stage.submit(shell("a"), run=run, name="listed")
        stage.ended(run)
    page = look(stage, "/runs?name=listed")
    check_page(page)
    assert [link for link in page.links if link.startswith("/runs/")] == ["/runs/list-2", "/runs/list-1"]
    assert "success" in page.text
    assert "rota runs --name listed" in page.text


def test_filters_and_pages_are_in_the_url(stage: Stage):
    for number in range(27):
        stage.submit(shell("a"), run=f"paged-{number:02}", name="paged")
    for number in range(27):
        stage.ended(f"paged-{number:02}")
    page = look(stage, "/runs?name=paged&state=success")
    assert "/runs/paged-26" in page.links
    assert "/runs/paged-01" not in page.links
    (older,) = (link for link in page.links if "after=" in link)
    assert "name=paged" in older
    assert "state=success" in older
    rest = look(stage, older)
    assert [link for link in rest.links if link.startswith("/runs/")] == ["/runs/paged-01", "/runs/paged-00"]
    assert look(stage, "/runs?name=paged&state=failed").classed("card empty")
    assert "field.value" in look(stage, "/runs?state=odd", 422).text
    assert "field.type" in look(stage, "/runs?colour=red", 422).text


def test_an_empty_service_says_how_to_begin():
    with staged() as fresh:
        assert "rota run" in look(fresh, "/").text


def test_a_run_shows_its_reason_params_grid_tasks_and_story(stage: Stage):
    tasks = [shell("extract"), shell("clean", "exit 3", upstream=["extract"]), shell("load", upstream=["clean"])]
    for run in ("etl-1", "etl-2"):
        stage.submit(*tasks, run=run, name="etl", params={"day": "2026-11-16", "limit": 5})
        stage.ended(run)
    page = look(stage, "/runs/etl-2")
    check_page(page)
    assert '"2026-11-16"' in page.text
    assert "1 success, 1 failed, 1 upstream failed" in page.text
    for run in ("etl-1", "etl-2"):
        for task in ("extract", "clean", "load"):
            assert f"/runs/{run}/tasks/{task}" in page.links
    cells = [given["title"] for given in page.named("a") if "c " in (given.get("class") or "") and given.get("title")]
    assert cells.count("clean: failed") == 2
    assert "exited with code 3" in page.text
    assert "attempt ended" in page.text
    assert "rota story etl-2" in page.text
    failed = look(stage, "/runs/etl-2?state=failed")
    assert "rota tasks etl-2 --state failed" in failed.text


def test_a_stuck_task_is_explained_on_its_page_and_on_its_run(stage: Stage):
    stage.submit(shell("train", requires=STUCK), run="stuck", name="stuck")
    page = look(stage, "/runs/stuck/tasks/train")
    check_page(page)
    assert "gpu_count" in page.text
    assert "worker.none_match" in page.text
    assert "rota why stuck train" in page.text
    assert page.classed("pad unsaid")
    run = look(stage, "/runs/stuck")
    assert run.classed("card waiting stuck")
    assert "gpu_count is nothing, 64 needed" in run.text


def deploy(stage: Stage, name: str, *tasks: dict[str, object], **more: object) -> None:
    stage.post("workflows", {"graph": {"name": name, "tasks": list(tasks)}, **more})


def waiting_in(page: Page) -> str:
    """The HTML of what waits, and why."""
    return page.html.partition('class="card waiting')[2].partition("</section>")[0]


def test_what_waits_for_the_run_before_is_explained_and_what_waits_for_others_of_its_run_is_not(stage: Stage):
    bound = {"depends_on_past": True}
    tasks = [shell("load", "exit 3", **bound), shell("next", upstream=["load"], **bound), shell("wide", LONG)]
    deploy(stage, "bound", *tasks)
    for run, date in (("bound-1", "2026-11-15"), ("bound-2", "2026-11-16")):
        stage.post("workflows/bound/runs", {"run": run, "logical_date": date}, 201)
    until(lambda: stage.rota.run("bound-1").tasks("load")[0].state == "failed", "the first to fail")
    page = look(stage, "/runs/bound-2")
    waiting = waiting_in(page)
    assert "/runs/bound-2/tasks/load" in waiting
    assert re.search(r"\bbound-1\b.*\bload\b.*\bfailed\b.*\bpast\.waiting\b", waiting)
    assert "next" not in waiting
    assert [given for given in page.named("section") if given.get("class") == "card waiting stuck"]
    for run in ("bound-1", "bound-2"):
        stage.rota.run(run).cancel()


def test_a_run_of_a_paused_workflow_says_so(stage: Stage):
    deploy(stage, "idle", shell("a"), shell("b", upstream=["a"]), paused=True)
    stage.post("workflows/idle/runs", {"run": "idle"}, 201)
    page = look(stage, "/runs/idle")
    waiting = waiting_in(page)
    assert re.search(r"\bidle\b.*\bworkflow\.paused\b", waiting)
    assert [given for given in page.named("section") if given.get("class") == "card waiting stuck"]
    assert "workflow paused" in page.text.partition("What waits")[0]
    stage.rota.resume_workflow("idle")
    assert stage.ended("idle") == "success"
    assert "workflow paused" not in look(stage, "/runs/idle").text


def has_graph(stage: Stage, digest: str) -> bool:
    try:
        stage.rota._thread.call(stage.rota._rota.ask(GetGraph(tenant="default", digest=digest)))
    except Refused as refused:
        assert refused.code == "graph.unknown"
        return False
    return True


def test_a_run_whose_former_graph_is_gone_is_told_with_numbers():
    with staged(limits=TimeLimits(retain_ended_ms=500)) as stage:
        deploy(stage, "moved", shell("old", "exit 3"), shell("kept", "exit 3"))
        digest = stage.post("workflows/moved/runs", {"run": "moved"}, 201)["graph"]
        assert stage.ended("moved") == "failed"
        deploy(stage, "moved", shell("first"), shell("new", upstream=["first"]))
        stage.post("runs/moved/move")
        assert stage.ended("moved") == "success"
        stage.ask("DELETE", "workflows/moved", 204)
        until(lambda: not has_graph(stage, digest), "the former graph to be gone")
        run = stage.rota.run("moved")
        told = [line.partition("AttemptEnded ")[2].split()[0] for line in run.story() if "AttemptEnded" in line]
        assert (sorted(told[:2]), told[2:]) == (["0", "1"], ["first", "new"])
        assert [each.task for each in run.events() if each.what == "AttemptEnded"] == told
        page = look(stage, "/runs/moved")
        assert "attempt endedfirst" in page.text
        assert "attempt ended0" in page.text
        assert "success" in look(stage, "/runs/moved/tasks/new").text


@pytest.mark.parametrize("way", ["cancel", "mark"])
def test_what_an_attempt_printed_is_shown_though_it_was_ended_from_outside(stage: Stage, way: str):
    run = f"ended-by-{way}"
    stage.submit(shell("a", "echo said; sleep 1000"), run=run, name=run)
    url = f"/runs/{run}/tasks/a"
    until(lambda: "said" in stage.http.get(f"{url}/log").text, "the log")
    one = stage.rota.run(run)
    if way == "cancel":
        one.cancel()
    else:
        one.mark("a", to="success")
    stage.ended(run)
    page = look(stage, url)
    assert "said" in page.text
    assert "none yet" not in page.text and not page.classed("pad unsaid")
    assert stage.http.get(f"{url}/log").text == stage.http.get(f"{url}/log?attempt=1").text == "said\n"
    assert stage.http.get(f"{url}/log?attempt=2").status_code == 404


def test_a_task_shows_its_attempts_log_result_and_story(stage: Stage):
    retry = {"retries": 1, "delay_ms": 0}
    stage.submit(shell("shaky", "echo this is $ROTA_ATTEMPT; exit 1", retry=retry), run="shaky", name="shaky")
    stage.ended("shaky")
    url = "/runs/shaky/tasks/shaky"
    # The last words of an attempt may come a moment after its end.
    page = until(lambda: p if "this is 2" in (p := look(stage, url)).text else None, "the log")
    assert page is not None
    check_page(page)
    assert f"{url}?attempt=1" in page.links
    assert "this is 1" in look(stage, f"{url}?attempt=1").text
    assert "lease granted" in page.text
    assert stage.http.get(f"{url}/log?attempt=1").text == "this is 1\n"
    assert stage.http.get(f"{url}/log").headers["content-type"].startswith("text/plain")
    stage.submit(shell("fine", "echo a result"), run="fine", name="fine")
    stage.ended("fine")
    assert '"a result"' in look(stage, "/runs/fine/tasks/fine").text


def is_archived(stage: Stage, run: str) -> bool:
    try:
        stage.rota._thread.call(stage.line.ask(GetRun(tenant=stage.line.tenant, run=run)))
    except Refused:
        return True
    return False


def test_a_run_in_history_is_shown_like_any_other(stage: Stage):
    with staged(limits=TimeLimits(retain_ended_ms=0)) as other:
        for run in ("old-1", "old-2"):
            other.submit(shell("a", "echo old"), shell("b", width=3, upstream=["a"]), run=run, name="old")
            other.ended(run)
            until(lambda run=run: is_archived(other, run), "it to be in history")
        page = look(other, "/runs/old-2")
        assert "4 success" in page.text
        cells = [given["title"] for given in page.named("a") if (given.get("class") or "").startswith("c ")]
        assert (cells.count("a: success"), cells.count("b: 3 success")) == (2, 2)
        assert [link for link in look(other, "/runs").links if link.startswith("/runs/")] == [
            "/runs/old-2",
            "/runs/old-1",
        ]
        assert "Tasks of b" in look(other, "/runs/old-2?group=b&state=success").text
        assert look(other, "/runs/old-2/tasks/b%5B1%5D").text.count("attempt ended") == 1


def test_a_run_that_was_mended_in_history_is_shown_as_it_came_back(stage: Stage):
    with staged(limits=TimeLimits(retain_ended_ms=500)) as other:
        other.submit(shell("a", "exit 3"), run="mended", name="mended")
        assert other.ended("mended") == "failed"
        until(lambda: is_archived(other, "mended"), "it to be in history")
        assert "failed" in look(other, "/runs?name=mended").text
        other.rota.run("mended").mark("a", to="success")
        until(lambda: is_archived(other, "mended"), "it to be in history again")
        page = look(other, "/runs?name=mended&state=success")
        assert [given["title"] for given in page.named("td") if given.get("class") == "tasks"] == ["1 success"]


def test_what_others_wrote_is_text_wherever_it_is_shown(stage: Stage):
    line = f"printf '%s\\n' {shlex.quote(EVIL)}; printf '\\033[31mred\\033[0m \\000\\377'; exit 7"
    params = {EVIL: EVIL, "list": [EVIL]}
    stage.submit(shell(EVIL_ID, line), shell("b", requires={EVIL: EVIL}), run=EVIL_ID, name=EVIL_ID, params=params)
    until(lambda: stage.rota.run(EVIL_ID).tasks(EVIL_ID)[0].state == "failed", "it to fail")
    stage.rota.run(EVIL_ID).cancel(EVIL)
    run = look(stage, "/runs/%3Cscript%3Ealert%28%271%27%29%3C%2Fscript%3E%26%22%3F%23%252F%2F%C3%A9")
    check_page(run)
    (url,) = {link for link in run.links if "/tasks/%3C" in link and link.startswith("/runs/%3C")}
    for page in (look(stage, "/runs"), run, look(stage, url)):
        check_page(page)
        assert EVIL_ID in "".join(page.words)
    assert EVIL in "".join(run.words), "the reason and the parameters"
    task = until(lambda: p if EVIL in "".join((p := look(stage, url)).words) else None, "the log")
    assert task is not None
    check_page(task)
    assert "\x1b" not in task.html
    assert "red" in task.text


def test_no_name_or_log_turns_around_what_stands_after_it(stage: Stage):
    turn = "a\u202eb"
    line = "printf 'before \\342\\200\\256after\\n'"
    stage.submit(shell("a", line), run="turned", name="turned", labels={"note": turn}, params={"note": turn})
    stage.ended("turned")
    stage.rota.run("turned").note("a", turn)
    for url in ("/runs/turned", "/runs/turned/tasks/a", "/runs/turned/logs", "/runs", f"/runs?find={turn}"):
        assert "\u202e" not in look(stage, url).html, url
    assert "before \ufffdafter" in look(stage, "/runs/turned/logs").text


def test_what_is_not_there_is_said_on_a_page(stage: Stage):
    stage.submit(shell("a"), run="there", name="there")
    for url, status, code in (
        ("/runs/nothing", 404, "run.unknown"),
        ("/runs/there/tasks/nothing", 404, "task.unknown"),
        ("/runs/there/tasks/a?attempt=x", 422, "field.type"),
        ("/runs/there?first=99999", 422, "field.value"),
        ("/nowhere", 404, "http.path"),
        ("/static/rota.000000000000.js", 404, "http.path"),
    ):
        page = look(stage, url, status)
        check_page(page)
        assert code in page.text
        assert CODES[code] in page.text
        assert "/" in page.links
    posted = stage.http.post("/runs/there", headers={"Accept": "text/html"})
    assert (posted.status_code, posted.headers["allow"]) == (405, "GET, HEAD")
    assert "Traceback" not in posted.text


def test_programs_are_answered_as_programs(stage: Stage):
    for url in ("/nowhere", "/runs/nothing", "/live/runs/nothing"):
        response = stage.http.get(url, headers={"Accept": "application/json"})
        assert (response.status_code, response.headers["content-type"]) == (404, "application/problem+json")
    response = stage.http.get("/api/v1/runs/nothing", headers={"Accept": "text/html"})
    assert response.headers["content-type"] == "application/problem+json"


def test_scripts_and_styles_are_kept_for_ever_under_the_name_of_their_content(stage: Stage):
    page = look(stage, "/")
    urls = [given["src"] for given in page.named("script")] + [given["href"] for given in page.named("link")]
    assert len(urls) == 4
    for url in urls:
        response = stage.http.get(url or "")
        assert response.status_code == 200
        assert "immutable" in response.headers["cache-control"]
        assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("shape", ["one group", "ten groups", "single tasks"])
def test_the_page_of_a_run_of_ten_thousand_tasks_is_light(stage: Stage, shape: str):
    requires = STUCK
    if shape == "one group":
        tasks = [shell("start", requires=requires), shell("work", width=10_000, upstream=["start"])]
    elif shape == "ten groups":
        tasks = [shell(f"work-{number}", width=1_000, requires=requires) for number in range(10)]
    else:
        tasks = [shell(f"task-{number:05}", requires=requires) for number in range(10_000)]
    name = shape.replace(" ", "-")
    for number in range(3):
        stage.submit(*tasks, run=f"{name}-{number}", name=name)
    page = look(stage, f"/runs/{name}-2")
    assert len(page.html) < 300_000
    assert "More »" in page.text
    if shape == "single tasks":
        (after,) = {link for link in page.links if "row=" in link}
        assert "rows 41 to 80 of 10,000" in look(stage, after).text
    else:
        group = "work" if shape == "one group" else "work-3"
        assert f"/runs/{name}-2?group={group}#tasks" in page.links
        assert f"/runs/{name}-2/tasks/{group}%5B24%5D" in look(stage, f"/runs/{name}-2?group={group}").links
    for number in range(3):
        stage.rota.run(f"{name}-{number}").cancel()


def test_the_name_of_a_group_leads_to_its_tasks(stage: Stage):
    stage.submit(shell("wide", width=2_000, requires=STUCK), run="led", name="led")
    response = stage.http.get("/runs/led/tasks/wide", headers=BROWSER)
    assert (response.status_code, response.headers["location"]) == (303, "/runs/led?group=wide#tasks")
    assert stage.http.get("/live/runs/led/tasks/wide").status_code == 404
    stage.rota.run("led").cancel()


def listed(page: Page) -> list[str]:
    """The tasks in the list, without those that are named elsewhere on the page."""
    _, _, below = page.html.partition('<div id="tasks"')
    return [link for link in dict.fromkeys(page.links) if f'<td><a class="id" data-row href="{link}">' in below]


def test_a_group_opens_its_tasks_in_pages_and_by_state(stage: Stage):
    stage.submit(shell("a"), shell("wide", width=60, requires=STUCK), shell("z", LONG), run="grouped", name="grouped")
    page = look(stage, "/runs/grouped?group=wide")
    first = listed(page)
    (more,) = {link for link in page.links if "first=" in link}
    second = look(stage, more)
    (more,) = {link for link in second.links if "first=" in link}
    third = look(stage, more)
    assert (len(first), first[-1]) == (25, "/runs/grouped/tasks/wide%5B24%5D")
    assert (len(listed(third)), listed(third)[-1]) == (10, "/runs/grouped/tasks/wide%5B59%5D")
    assert not [link for link in third.links if "first=" in link]
    assert "Tasks of wide" in page.text
    queued = look(stage, "/runs/grouped?group=wide&state=queued")
    assert listed(queued) == first
    assert not listed(look(stage, "/runs/grouped?group=wide&state=success"))
    stage.rota.run("grouped").cancel()
