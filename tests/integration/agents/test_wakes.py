"""Wakes over server-sent events: told once, kept for whoever was cut off, and never a claim."""

from collections.abc import Iterator

import pytest

from rota.api import wakes as boxes
from tests.integration.agents.stage import Agents, open_stage


@pytest.fixture(scope="module")
def here() -> Iterator[Agents]:
    with open_stage() as agents:
        yield agents


def test_a_wake_leaves_the_item_to_whoever_claims_it(here: Agents) -> None:
    here.register("told", workspace="wake")
    with here.wakes("told") as wakes:
        wakes.next("open")
        item = here.submit("Read it", workspace="wake", labels={"team": "a"})
        wake = wakes.next("wake")
    assert wake.value["item"] == item and wake.value["title"] == "Read it" and wake.value["labels"]["team"] == "a"
    view = here.get(f"work/{item}")
    assert view["state"] == "queued" and view["session"] == ""
    assert [claim["item"] for claim in here.claim("told")] == [item]


def test_only_a_session_that_could_claim_it_is_told(here: Agents) -> None:
    here.register("far", workspace="elsewhere")
    here.register("near", workspace="near")
    with here.wakes("far") as far, here.wakes("near") as near:
        far.next("open")
        near.next("open")
        item = here.submit(workspace="near")
        assert near.next("wake").value["item"] == item
        other = here.submit(workspace="elsewhere")
        assert far.next("wake").value["item"] == other


def test_whoever_was_cut_off_is_told_what_it_missed(here: Agents) -> None:
    here.register("cut", workspace="cut", limit=9)
    with here.wakes("cut") as wakes:
        last = wakes.next("open").id
    items = [here.submit(workspace="cut") for _ in range(3)]
    with here.wakes("cut", last) as wakes:
        told = [wakes.next("wake") for _ in range(3)]
    assert [wake.value["item"] for wake in told] == items
    with here.wakes("cut", told[1].id) as wakes:
        assert wakes.next("wake").value["item"] == items[2]


def test_what_was_told_before_anybody_listened_is_kept_too(here: Agents) -> None:
    item = here.submit(workspace="early")
    here.register("early", workspace="early", limit=9)
    other = here.submit(workspace="early")
    with here.wakes("early") as wakes:
        wakes.next("open")
        assert [wakes.next("wake").value["item"] for _ in range(2)] == [item, other]


def test_more_than_is_kept_is_a_gap_and_says_so(here: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxes, "KEPT_MAX", 3)
    here.register("gap", workspace="gap", limit=100)
    with here.wakes("gap") as wakes:
        first = wakes.next("open").id
        for _ in range(4):
            here.submit(workspace="gap")
            wakes.next("wake")
    with here.wakes("gap", first) as wakes:
        wakes.next("reset")
        item = here.submit(workspace="gap")
        assert wakes.next("wake").value["item"] == item


def test_a_place_of_another_reign_is_reset(here: Agents) -> None:
    here.register("reign", workspace="reign")
    with here.wakes("reign", "0123abcd.7") as wakes:
        wakes.next("reset")


@pytest.mark.parametrize(
    "id", ["7", "x.7", "0123abcd.", "0123abcd.-1", "0123ABCD.1", "0123abcd.1.2", "0123abcd." + "9" * 19]
)
def test_a_malformed_place_is_refused(here: Agents, id: str) -> None:
    here.register("place", workspace="place")
    response = here.stage.http.get("/api/v1/sessions/place/wakes", headers={"Last-Event-ID": id})
    assert response.status_code == 422 and response.json()["path"] == "Last-Event-ID"


def test_a_stream_ends_when_its_session_does(here: Agents) -> None:
    here.register("over", workspace="over", silence_ms=1_000)
    with here.wakes("over") as wakes:
        wakes.next("open")
        here.ask("DELETE", "sessions/over", status=204)
        assert wakes.next("end").value["code"] == "worker.unknown"


def test_an_open_stream_is_a_sign_of_life_and_a_closed_one_is_no_end(here: Agents) -> None:
    here.register("alive", workspace="alive", silence_ms=3_000)
    seen = _seen(here, "alive")
    with here.wakes("alive") as wakes:
        wakes.next("open")
        # Whatever else is asked meanwhile, three beats are longer than its silence may last.
        for _ in range(3):
            seen = _later(here, "alive", seen)
    assert here.post("sessions/alive/beat")["held"] == []


def _seen(here: Agents, session: str) -> int:
    return next(line["seen_at"] for line in here.get("sessions")["sessions"] if line["session"] == session)


def _later(here: Agents, session: str, than: int) -> int:
    while (seen := _seen(here, session)) <= than:
        pass
    return seen


def test_nobody_is_told_while_everything_is_paused_and_all_are_afterwards(here: Agents) -> None:
    here.register("paused", workspace="paused")
    here.post("scheduler/pause", {"workspace": "paused", "reason": "lunch"})
    with here.wakes("paused") as wakes:
        wakes.next("open")
        item = here.submit(workspace="paused")
        assert here.claim("paused") == []
        here.post("scheduler/resume", {"workspace": "paused"})
        assert wakes.next("wake").value["item"] == item
