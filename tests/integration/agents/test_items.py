"""Work items over HTTP, from submission to an end, and what a person does about them."""

from collections.abc import Iterator

import pytest

from tests.integration.agents.stage import Agents, open_stage


@pytest.fixture(scope="module")
def here() -> Iterator[Agents]:
    with open_stage() as agents:
        yield agents


def test_an_item_is_submitted_claimed_and_completed(here: Agents) -> None:
    made = here.post(
        "work",
        {
            "title": "Review the guide",
            "payload": {"page": 3, "list": [1, None, "é"]},
            "requires": ["review"],
            "prefers": ["python"],
            "priority": "high",
            "workspace": "life",
            "channel": "c1",
            "owner": "pool:reviewer",
            "max_attempts": 2,
            "labels": {"team": "docs"},
        },
        201,
    )
    assert made["state"] == "queued" and made["priority"] == "high" and made["max_attempts"] == 2
    assert (made["workspace"], made["channel"], made["owner"]) == ("life", "c1", "pool:reviewer")
    assert made["requires"] == ["review"] and made["prefers"] == ["python"]
    assert made["payload"] == {"page": 3, "list": [1, None, "é"]}
    here.register("s-life", agent="reviewer", workspace="life", channel="c1", capabilities=["review"])
    (claim,) = here.claim("s-life")
    assert claim["item"] == made["item"] and claim["payload"] == made["payload"] and claim["attempt"] == 1
    held = here.get(f"work/{made['item']}")
    assert held["state"] == "running" and held["session"] == "s-life" and held["fence"] == claim["fence"]
    here.finish("s-life", claim, result={"words": 812})
    ended = here.get(f"work/{made['item']}")
    assert ended["state"] == "success" and ended["result"] == {"words": 812}


def test_the_same_key_makes_one_item_and_another_content_under_it_is_refused(here: Agents) -> None:
    first = here.post("work", {"title": "once", "workspace": "keyed"}, 201, Idempotency_Key="k-1")
    again = here.post("work", {"title": "once", "workspace": "keyed"}, 201, Idempotency_Key="k-1")
    assert first["item"] == again["item"]
    other = here.post("work", {"title": "twice", "workspace": "keyed"}, 409, Idempotency_Key="k-1")
    assert other["code"] == "command.id_reused"
    assert len(here.get("work?workspace=keyed")["items"]) == 1


def test_an_item_waits_for_approval_and_a_rejected_one_never_runs(here: Agents) -> None:
    here.register("s-gate", workspace="gate")
    item = here.submit(workspace="gate", approval="manual")
    assert here.claim("s-gate") == []
    assert here.get(f"work/{item}")["approval"] == "pending"
    assert here.post(f"work/{item}/approve", {"reason": "fine"})["approval"] == "approved"
    (claim,) = here.claim("s-gate")
    here.finish("s-gate", claim)
    other = here.submit(workspace="gate", approval="manual")
    assert here.post(f"work/{other}/reject", {"reason": "no"})["state"] == "cancelled"
    assert here.post(f"work/{other}/approve", status=409)["code"] == "run.approval"
    assert here.claim("s-gate") == []


def test_an_item_waits_until_what_it_depends_on_has_succeeded(here: Agents) -> None:
    here.register("s-deps", workspace="deps")
    first = here.submit(workspace="deps")
    second = here.submit(workspace="deps", depends_on=[first])
    (claim,) = here.claim("s-deps")
    assert claim["item"] == first
    here.finish("s-deps", claim)
    (claim,) = here.claim("s-deps")
    assert claim["item"] == second
    here.finish("s-deps", claim)
    refused = here.post("work", {"title": "x", "depends_on": ["nobody"]}, 404)
    assert refused["code"] == "run.unknown" and refused["path"] == "depends_on[0]"


def test_an_operator_releases_fails_and_retries_an_item_and_the_audit_knows(here: Agents) -> None:
    here.register("s-force", workspace="force")
    item = here.submit(workspace="force")
    assert here.post(f"work/{item}/release", {"reason": "x"}, 404)["code"] == "lease.none"
    (claim,) = here.claim("s-force")
    assert here.post(f"work/{item}/release", {"reason": "stuck"})["state"] == "queued"
    assert here.finish("s-force", claim, status=409)["code"] == "lease.expired"
    assert here.post(f"work/{item}/fail", {"reason": " "}, 422)["path"] == "reason"
    assert here.post(f"work/{item}/fail", {"reason": "not worth it"})["state"] == "failed"
    assert here.post(f"work/{item}/retry")["state"] == "queued"
    (claim,) = here.claim("s-force")
    assert claim["item"] == item
    here.finish("s-force", claim)
    commands = [audit["command"] for audit in here.get("audit")["audits"]]
    assert {"ReleaseTasks", "MarkTasks", "RetryTasks"} <= set(commands)


def test_several_items_are_dealt_with_at_once_each_with_its_own_outcome(here: Agents) -> None:
    items = [here.submit(workspace="bulk") for _ in range(3)]
    done = here.post("work/bulk", {"action": "cancel", "items": [*items, items[0], "nobody"], "reason": "enough"})
    assert [row["done"] for row in done["outcomes"]] == [True, True, True, False]
    assert done["outcomes"][-1]["code"] == "run.unknown"
    assert {here.state(item) for item in items} == {"cancelled"}
    many = {"action": "cancel", "items": [f"i{number}" for number in range(51)]}
    assert here.post("work/bulk", many, 422)["path"] == "items"
    assert here.post("work/bulk", {"action": "steal", "items": ["x"]}, 422)["path"] == "action"


def test_a_paused_item_is_not_claimed_and_pauses_what_is_part_of_it(here: Agents) -> None:
    here.register("s-pause", workspace="pause", limit=2)
    item = here.submit(workspace="pause")
    child = here.submit(workspace="pause", parent=item)
    assert here.post(f"work/{item}/pause")["paused"]
    assert here.claim("s-pause", limit=2) == []
    lines = here.get("scheduler/backlog?workspace=pause")["backlog"]
    assert {line["run"]: line["paused"] for line in lines} == {item: True, child: True}
    assert here.get("scheduler/backlog?workspace=pause&include_paused=false")["backlog"] == []
    here.post(f"work/{item}/resume")
    assert {claim["item"] for claim in here.claim("s-pause", limit=2)} == {item, child}


@pytest.mark.parametrize(
    ("body", "status", "path"),
    [
        ({"title": ""}, 422, "title"),
        ({"title": "two\nlines"}, 422, "title"),
        ({"title": "x" * 201}, 413, "title"),
        ({"title": "x", "payload": "x" * 70_000}, 413, "payload"),
        ({"title": "x", "max_attempts": 0}, 422, "max_attempts"),
        ({"title": "x", "max_attempts": 11}, 422, "max_attempts"),
        ({"title": "x", "requires": ["a b"]}, 422, "requires[0]"),
        ({"title": "x", "requires": ["ok", "a,b"]}, 422, "requires[1]"),
        ({"title": "x", "prefers": ["a", "a"]}, 422, "prefers[1]"),
        ({"title": "x", "priority": "normal"}, 422, "priority"),
        ({"title": "x", "owner": "human:bob"}, 422, "owner"),
        ({"title": "x", "owner": "pool:"}, 422, "owner"),
        ({"title": "x", "workspace": "-"}, 422, "workspace"),
        ({"title": "x", "deadline": "soon"}, 422, "deadline"),
        ({"title": "x", "deadline": "2001-01-01"}, 422, "deadline_at"),
        ({"title": "x", "labels": {"title": "y"}}, 422, "labels"),
        ({"title": "x", "depends_on": [f"i{number}" for number in range(33)]}, 422, "depends_on"),
        ({"title": "x", "titel": "y"}, 422, "titel"),
    ],
)
def test_what_cannot_be_an_item_is_refused_by_the_name_of_its_field(
    here: Agents, body: dict[str, object], status: int, path: str
) -> None:
    before = here.get("scheduler")["queued"]
    refused = here.post("work", body, status)
    assert refused["path"] == path
    assert here.get("scheduler")["queued"] == before


def test_items_are_listed_by_workspace_and_state_page_by_page(here: Agents) -> None:
    items = [here.submit(workspace="list") for _ in range(5)]
    here.post(f"work/{items[0]}/cancel")
    page = here.get("work?workspace=list&limit=3")
    rest = here.get(f"work?workspace=list&limit=3&after={page['next']}")
    assert [view["item"] for view in (*page["items"], *rest["items"])] == items[::-1]
    queued = here.get("work?workspace=list&state=queued")["items"]
    assert [view["item"] for view in queued] == items[:0:-1]
