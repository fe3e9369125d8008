"""Pages of workers, queues, pools, workflows, work for agents, builds and the audit: what they show, and to whom."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from rota.core.bounds import TimeLimits
from tests.integration.agents.stage import Agents
from tests.integration.deadlines import until
from tests.integration.http_stage import LONG, Stage, gate_of, shell, staged
from tests.integration.page_stage import Page, Person, buttons, hidden, listen, look, said_once

EVIL = "</td><script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
PARAMS: list[dict[str, Any]] = [
    {"name": "day", "type": "date", "default": "2026-01-02"},
    {"name": "size", "type": "string", "choices": ["small", "large"], "default": "small"},
    {"name": "limit", "type": "integer", "least": 1, "most": 10, "default": 5},
    {"name": "ratio", "type": "number", "default": 0.5},
    {"name": "is_full", "type": "boolean", "default": False},
    {"name": "tags", "type": "array", "default": []},
    {"name": "note", "type": "string", "nullable": True, "default": None, "doc": f"What to say {EVIL}"},
]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged(limits=TimeLimits(sweep_ms=50, settle_ms=50, starve_ms=100)) as one:
        yield one


@pytest.fixture(scope="module")
def person(stage: Stage) -> Iterator[Person]:
    with Person(stage, "") as one:
        yield one


def deploy(stage: Stage, name: str, **more: Any) -> None:
    tasks = more.pop("tasks", [shell("t", "echo done")])
    stage.post("workflows", {"graph": {"name": name, "tasks": tasks}, **more}, 200)


def filled(page: Page) -> dict[str, list[str]]:
    """A form as a browser sends it that nobody has touched: parameters and their values, in order."""
    found: dict[str, list[str]] = {"param": [], "value": []}
    for tag, given in page.tags:
        name = given.get("name") or ""
        if name in found and tag in ("input", "select", "textarea"):
            found[name].append(given.get("value") or "")
    return found


def run_of(page: Page) -> str:
    return page.response.url.path.rpartition("/")[2]


def test_a_worker_is_shown_with_what_it_is_and_holds_and_is_drained(stage: Stage, person: Person):
    stage.submit(shell("busy", LONG), run="holding")
    until(lambda: stage.get("runs/holding/tasks/busy")["state"] == "running", "it to run")
    page = person.look("/workers")
    url = f"/workers/{stage.get('runs/holding/tasks/busy')['worker']}"
    assert url in page.links
    assert "present" in page.text
    one = person.look(url)
    assert "/runs/holding/tasks/busy" in one.links
    assert "cpu_count" in one.text
    assert "rota workers drain" in one.html
    after = person.follow(person.send(f"{url}/drain", hidden(one)))
    assert "rota workers drain" in said_once(after)
    assert after.classed("reason s-draining")
    assert "draining" in after.text
    assert f"{url}/undrain" in buttons(after)
    stale = person.follow(person.send(f"{url}/drain", {**hidden(person.look(url)), "seen": "taking work"}), 409)
    assert "is draining already" in stale.text
    person.follow(person.send(f"{url}/undrain", hidden(person.look(url))))
    assert "Strike off" in person.look(f"{url}/forget").text
    person.act("/runs/holding/cancel")
    assert person.look("/workers?find=nothing-like-that").classed("card empty")
    assert "worker.unknown" in person.look("/workers/nobody", 404).text


def test_pools_are_defined_changed_and_dropped_and_say_how_full_they_are(stage: Stage, person: Person):
    person.act("/queues/pools/db/set", slots="2", per_key="1", per_minute="0", burst="1")
    (pool,) = (each for each in stage.get("pools")["pools"] if each["name"] == "db")
    assert (pool["slots"], pool["slots_per_key"]) == (2, 1)
    page = person.look("/queues")
    assert {"id": "pool-db"} in page.named("tr")
    assert {"id": "queue-default"} in page.named("tr")
    assert "0 of 2" in page.text
    second = hidden(person.look("/queues/pools/db/set"))
    person.act("/queues/pools/db/set", slots="3", per_key="0", per_minute="0", burst="1")
    stale = person.send(
        "/queues/pools/db/set", {**second, "slots": "9", "per_key": "0", "per_minute": "0", "burst": "1"}
    )
    assert "is of 3 slots" in person.follow(stale, 409).text
    assert (
        "field.value"
        in person.act("/queues/pools/db/set", 422, slots="-1", per_key="0", per_minute="0", burst="1").text
    )
    assert "was removed" in person.act("/queues/pools/db/drop").text
    assert person.http.get("/queues/pools?name=a%2Fb").headers["location"] == "/queues/pools/a%2Fb/set"


def test_queues_say_how_much_waits_and_since_when(stage: Stage, person: Person):
    stage.ask("PUT", "queues/big", json={"properties": {"cpu_count": "minimum"}, "unservable": "fail"})
    stage.submit(shell("w", requires={"cpu_count": "100000"}, queue="big", width=3), run="deep")
    page = person.look("/queues?find=big")
    assert "big" in page.text
    assert "unservable: fail" in page.text.replace("unservable fail", "unservable: fail")
    person.act("/runs/deep/cancel")


def test_a_workflow_is_run_with_parameters_from_a_form(stage: Stage, person: Person):
    deploy(stage, "shown", params=PARAMS, schedule={"cron": "0 3 * * *", "zone": "Europe/Berlin"}, doc=EVIL)
    page = person.look("/workflows/shown")
    assert "0 3 * * * Europe/Berlin" in page.text
    assert not page.named("img")
    kinds = {given["id"]: given["type"] for given in page.named("input") if "id" in given}
    assert list(kinds.values()) == ["date", "number", "number", "text", "datetime-local"]
    sent = {**hidden(page, "/workflows/shown/run"), **filled(page)}
    assert sent["param"] == [param["name"] for param in PARAMS]
    sent["value"] = ["2026-03-01", "large", "7", "0.25", "true", '["a", 1]', EVIL]
    made = person.follow(person.send("/workflows/shown/run", sent))
    run = run_of(made)
    assert stage.get(f"runs/{run}")["params"] == {
        "day": "2026-03-01",
        "size": "large",
        "limit": 7,
        "ratio": 0.25,
        "is_full": True,
        "tags": ["a", 1],
        "note": EVIL,
    }
    assert "--param day=2026-03-01" in made.text
    assert run_of(person.follow(person.send("/workflows/shown/run", sent))) == run, "sent twice, made once"
    assert f"/runs/{run}" in person.look("/workflows/shown").links


def test_what_is_left_out_is_its_default_and_what_is_wrong_is_said_with_the_form_kept(stage: Stage, person: Person):
    deploy(stage, "kept", params=PARAMS)
    page = person.look("/workflows/kept/run")
    sent = {**hidden(page), "param": [each["name"] for each in PARAMS], "value": ["", "small", "", "", "false", "", ""]}
    made = stage.get(f"runs/{run_of(person.follow(person.send('/workflows/kept/run', sent)))}")
    assert made["params"] == {
        "day": "2026-01-02",
        "size": "small",
        "limit": 5,
        "ratio": 0.5,
        "is_full": False,
        "tags": [],
        "note": None,
    }
    for number, wrong in ((2, "11"), (2, "x"), (5, "{"), (0, "2026-02-30"), (1, "huge")):
        values = list(sent["value"])
        values[number], values[6] = wrong, "keep me"
        form = {**hidden(person.look("/workflows/kept/run")), "param": sent["param"], "value": values}
        refused = person.follow(person.send("/workflows/kept/run", form), 422)
        assert "field.value" in refused.text
        assert "keep me" in [given.get("value") for given in refused.named("input")]


def test_who_fills_in_a_form_of_an_older_version_is_told(stage: Stage, person: Person):
    deploy(stage, "moving", params=PARAMS[:1])
    sent = {**hidden(person.look("/workflows/moving/run")), "param": ["day"], "value": ["2026-01-01"]}
    deploy(stage, "moving", params=PARAMS[1:2])
    refused = person.follow(person.send("/workflows/moving/run", sent), 409)
    assert re.search(r"'day'.*\bcommand\.stale\b", refused.text)


def test_a_workflow_is_paused_backfilled_and_taken_away(stage: Stage, person: Person):
    deploy(stage, "daily", schedule={"cron": "@daily"})
    paused = person.follow(person.send("/workflows/daily/pause", hidden(person.look("/workflows/daily"))))
    assert "is paused" in paused.text
    assert "paused" in person.look("/workflows").text
    person.follow(person.send("/workflows/daily/resume", hidden(person.look("/workflows/daily"))))
    after = person.act("/workflows/daily/backfill", start="2026-01-01", end="2026-01-03", max_active_runs="1")
    assert "makes 3 runs" in after.text
    assert "--from 2026-01-01 --to 2026-01-03" in after.text
    refused = person.act("/workflows/daily/backfill", 422, start="2026-01-03", end="2026-01-01", max_active_runs="1")
    assert "2026-01-03" in [given.get("value") for given in refused.named("input")]
    assert "was taken away" in person.act("/workflows/daily/undeploy").text
    assert "workflow.unknown" in person.look("/workflows/daily", 404).text


@pytest.mark.parametrize("way", ["requeue", "cancel", "fail"])
def test_a_parked_item_is_shown_with_its_ways_out(stage: Stage, person: Person, way: str):
    here = Agents(stage)
    item = here.submit(EVIL, requires=[f"parked-{way}"], workspace="docs")
    until(lambda: here.state(item) == "needs_attention", "it to be parked")
    page = person.look("/work?workspace=docs")
    assert "Needs a person" in page.text
    assert EVIL in page.text
    assert f"/items/{item}/{way}" in (*buttons(page), *buttons(person.look(f"/runs/{item}")), f"/items/{item}/fail")
    form: dict[str, Any] = {"reason": "enough"} if way in ("fail", "cancel") else {"requires": "other, more"}
    after = person.act(f"/items/{item}/{way}", **form)
    assert f"rota work {way} {item}" in after.text
    if way == "requeue":
        assert here.get(f"work/{item}")["requires"] == ["more", "other"]
        assert here.state(item) in ("queued", "needs_attention")
    else:
        until(lambda: here.state(item) == ("cancelled" if way == "cancel" else "failed"), "it to end")


def test_work_is_approved_and_claims_are_paused(stage: Stage, person: Person):
    here = Agents(stage)
    item = here.submit("by hand", approval="manual", workspace="other")
    assert f"/items/{item}/approve" in buttons(person.look("/work?workspace=other"))
    assert "was approved" in person.act(f"/items/{item}/approve", reason="fine").text
    assert re.search(r"\bapproval\b.*\bcommand\.stale\b", person.look(f"/items/{item}/approve", 409).text)
    paused = person.act("/scheduler/pause", workspace="other", reason=EVIL)
    assert "Workspace other" in paused.text
    assert EVIL in paused.text
    assert "rota scheduler pause --workspace other" in paused.text
    assert "is claimed again" in person.act("/scheduler/resume", workspace="other").text
    here.register("session-1", workspace="other", capabilities=["a"])
    assert "session-1" in person.look("/work?workspace=other").text
    person.act(f"/items/{item}/cancel")


def test_work_is_submitted_from_a_form(stage: Stage, person: Person):
    assert "/scheduler/submit" in buttons(person.look("/work"))
    form: dict[str, Any] = {
        "title": EVIL,
        "payload": '{"page": 1}',
        "requires": "review, python",
        "workspace": "forms",
        "priority": "high",
    }
    after = person.act("/scheduler/submit", **form)
    assert "rota work submit" in after.text
    view = Agents(stage).get(f"work/{run_of(after)}")
    assert (view["title"], view["payload"], view["requires"]) == (EVIL, {"page": 1}, ["python", "review"])
    refused = person.act("/scheduler/submit", 422, **{**form, "payload": "{"})
    assert re.search(r"\bJSON\b.*\bfield\.value\b", refused.text)
    assert "forms" in [given.get("value") for given in refused.named("input")]
    assert "field." in person.act("/scheduler/submit", 422, **{**form, "title": ""}).text
    person.act(f"/items/{run_of(after)}/cancel")


def test_what_a_claim_is_kept_by_is_never_shown(stage: Stage, person: Person):
    here = Agents(stage)
    item = here.submit("secret", workspace="kept", requires=["keep"])
    here.register("keeper", workspace="kept", capabilities=["keep"])
    (claim,) = here.claim("keeper")
    assert claim["token"]
    for url in ("/work?workspace=kept", f"/runs/{item}", f"/runs/{item}/tasks/work", "/workers/keeper", "/audit"):
        page = person.look(url)
        assert claim["token"] not in page.html
    assert item in person.look("/workers/keeper").text
    assert f"/items/{item}/release" in buttons(person.look("/work?workspace=kept"))
    assert "was taken back" in person.act(f"/items/{item}/release", reason="mine").text
    person.act(f"/items/{item}/cancel")


def test_the_audit_is_for_admins_and_is_filtered(stage: Stage, person: Person):
    stage.submit(shell("a", LONG), run="audited")
    person.act("/runs/audited/cancel", reason="for the audit")
    page = person.look("/audit?what=cancelrun&find=audited")
    assert "for the audit" in page.text
    assert "/runs/audited" in page.links
    assert "Nothing like that" in person.look("/audit?who=nobody-at-all").text
    assert person.look("/audit").text.count("CancelRun") >= 1
    with staged(gate=gate_of("reader:reader-token\nadmin:admin-token")) as one, Person(one, "reader-token") as reader:
        assert "auth.role" in reader.look("/audit", 403).text
        assert "/audit" not in reader.look("/workers").links


def test_lists_are_kept_current(stage: Stage, person: Person):
    page = look(stage, "/workflows?find=appearing")
    events = listen(stage, page.live)
    assert next(events).name == "fragments"
    deploy(stage, "appearing")
    told = next(event for event in events if "appearing" in str(event.value))
    assert [each["id"] for each in told.value] == ["workflows"]


def test_very_many_pools_and_workflows_make_pages_of_some(stage: Stage, person: Person):
    for number in range(120):
        stage.ask("PUT", f"pools/many-{number:03}", json={"slots": 1})
    page = person.look("/queues?find=many")
    assert len([row for row in page.named("tr") if (row.get("id") or "").startswith("pool-many")]) == 50
    assert "1 to 50 of 120 pools" in page.text
    (more,) = (link for link in page.links if "pool=50" in link)
    assert {"id": "pool-many-099"} in person.look(more).named("tr")


def test_an_empty_service_says_how_to_begin_on_every_page():
    with staged(slots=0) as fresh:
        for url, words in (
            ("/workers", "rota worker"),
            ("/workflows", "rota deploy"),
            ("/builds", "bazel build"),
            ("/work", "rota work submit"),
            ("/audit", "Nobody has asked"),
            ("/queues", "No pool is defined"),
        ):
            assert words in look(fresh, url).text


def test_what_is_not_there_is_said_briefly(person: Person):
    assert re.search(r"'nothing'.*\brun\.unknown\b", person.look("/builds/nothing", 404).text)
    page = person.look(f"/runs/{'a' * 7_000}", 404)
    assert len(page.text) < 10_000


def test_the_run_of_an_item_says_what_it_asks_for_and_who_has_it(stage: Stage, person: Person):
    here = Agents(stage)
    item = here.submit(EVIL, workspace="shown", requires=["show"], priority="high", max_attempts=3)
    panel = person.look(f"/runs/{item}").text
    for words in (EVIL, "Priorityhigh", "Attempts0 of 3", "Workspaceshown", "Requiresshow"):
        assert words in panel
    here.register("shower", workspace="shown", capabilities=["show"])
    here.claim("shower")
    page = person.look(f"/runs/{item}")
    assert "Held byshower" in page.text
    assert "/workers/shower" in page.links
    assert "Attempts1 of 3" in page.text
    person.act(f"/items/{item}/cancel")
