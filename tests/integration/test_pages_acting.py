"""Acting from pages: what is offered to whom, what is done, once, and what a second one is told."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.core.bounds import TimeLimits
from tests.integration.deadlines import until
from tests.integration.http_stage import LONG, Stage, gate_of, shell, staged
from tests.integration.page_stage import Page, Person, buttons, hidden, look, said_once

READER, WRITER, ADMIN = "reader-token", "writer-token", "admin-token"
EVIL = "</textarea><script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
STUCK = {"gpu_count": "64"}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    tokens = f"reader:{READER}\nwriter:{WRITER}\nadmin:{ADMIN}"
    with staged(gate=gate_of(tokens)) as one:
        one.http.headers["Authorization"] = f"Bearer {ADMIN}"
        yield one


@pytest.fixture
def writer(stage: Stage) -> Iterator[Person]:
    with Person(stage, WRITER) as one:
        yield one


@pytest.fixture
def reader(stage: Stage) -> Iterator[Person]:
    with Person(stage, READER) as one:
        yield one


@pytest.fixture
def admin(stage: Stage) -> Iterator[Person]:
    with Person(stage, ADMIN) as one:
        yield one


def state_of(stage: Stage, run: str) -> str:
    return stage.get(f"runs/{run}")["state"]


def test_a_run_is_cancelled_after_a_question_and_it_is_told_and_audited(stage: Stage, writer: Person):
    stage.submit(shell("a", LONG), run="to-cancel")
    page = writer.look("/runs/to-cancel")
    assert "/runs/to-cancel/cancel" in buttons(page)
    assert "rota cancel to-cancel" in page.html
    asked = writer.look("/runs/to-cancel/cancel")
    assert "/runs/to-cancel/cancel" in buttons(asked)
    assert stage.get("runs/to-cancel")["state"] in ("queued", "running")
    after = writer.act("/runs/to-cancel/cancel", reason="by mistake")
    assert "to-cancel" in said_once(after)
    assert "rota cancel to-cancel --reason 'by mistake'" in after.text
    assert stage.ended("to-cancel") == "cancelled"
    again = writer.look("/runs/to-cancel")
    assert not said_once(again), "it is told once"
    assert "/runs/to-cancel/cancel" not in buttons(again)
    audits = {each["command"]: each for each in stage.get("audit")["audits"] if '"to-cancel"' in each["about"]}
    assert sorted(audits) == ["CancelRun", "SubmitRun"]
    audit = audits["CancelRun"]
    assert audit["actor"].startswith("writer@default#")
    assert "by mistake" in audit["about"]


def test_a_reader_is_offered_nothing_and_refused(stage: Stage, reader: Person, writer: Person):
    stage.submit(shell("a", LONG), run="of-others")
    for url in ("/runs/of-others", "/runs/of-others/tasks/a"):
        assert buttons(reader.look(url)) == []
    assert "auth.role" in reader.look("/runs/of-others/cancel", 403).text
    sent = hidden(writer.look("/runs/of-others"))
    assert "auth.role" in Page(reader.send("/runs/of-others/cancel", {**sent, "seal": seal_of(reader)})).text
    assert state_of(stage, "of-others") == "running"
    writer.act("/runs/of-others/cancel")


def seal_of(person: Person) -> str:
    """What the forms of somebody carry who is offered none."""
    from rota.app.pages import seal_of as seal

    return seal(person.http.cookies["rota_session"], b"")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "https://other.example"},
    ],
)
def test_a_form_on_a_page_of_another_site_is_refused(stage: Stage, writer: Person, headers: dict[str, str]):
    stage.submit(shell("a", LONG), run=f"attacked-{abs(hash(str(headers)))}")
    run = f"attacked-{abs(hash(str(headers)))}"
    response = writer.send(f"/runs/{run}/pause", hidden(writer.look(f"/runs/{run}")), **headers)
    assert response.status_code == 403
    assert "http.origin" in response.text
    assert not stage.get(f"runs/{run}")["paused"]
    writer.act(f"/runs/{run}/cancel")


def test_a_form_that_does_not_say_where_it_is_from_is_refused(stage: Stage, writer: Person):
    stage.submit(shell("a", LONG), run="unsaid")
    form = hidden(writer.look("/runs/unsaid"))
    assert writer.http.post("/runs/unsaid/pause", data=form).status_code == 403
    writer.act("/runs/unsaid/cancel")


@pytest.mark.parametrize("wrong", [{"seal": ""}, {"seal": "0" * 64}, {"once": ""}, {"once": "x" * 32}, {"seal": "é"}])
def test_a_form_without_the_seal_of_its_visitor_is_refused(stage: Stage, writer: Person, wrong: dict[str, str]):
    run = f"unsealed-{next(iter(wrong))}-{len(next(iter(wrong.values())))}"
    stage.submit(shell("a", LONG), run=run)
    form = {**hidden(writer.look(f"/runs/{run}")), **wrong}
    response = writer.send(f"/runs/{run}/pause", form)
    assert response.status_code == 403
    assert "http.form" in response.text
    assert not stage.get(f"runs/{run}")["paused"]
    writer.act(f"/runs/{run}/cancel")


def test_the_seal_of_one_is_not_that_of_another_and_is_no_token(stage: Stage, writer: Person, admin: Person):
    stage.submit(shell("a", LONG), run="sealed")
    ours, theirs = hidden(writer.look("/runs/sealed")), hidden(admin.look("/runs/sealed"))
    assert ours["seal"] != theirs["seal"]
    assert ours["once"] != theirs["once"]
    assert writer.send("/runs/sealed/pause", {**ours, "seal": theirs["seal"]}).status_code == 403
    for page in (writer.look("/runs/sealed"), writer.look("/runs/sealed/cancel")):
        assert WRITER not in page.html
    writer.act("/runs/sealed/cancel")


def test_a_button_that_is_pressed_twice_acts_once(stage: Stage, writer: Person):
    stage.submit(shell("a", LONG), run="twice")
    form = hidden(writer.look("/runs/twice"))
    for _ in range(2):
        page = writer.follow(writer.send("/runs/twice/pause", form))
        assert "rota pause --run twice" in said_once(page)
    commands = [each["command"] for each in stage.get("audit")["audits"] if '"twice"' in each["about"]]
    assert commands == ["PauseRun", "SubmitRun"]
    assert "goes on" in writer.follow(writer.send("/runs/twice/resume", hidden(writer.look("/runs/twice")))).text
    writer.act("/runs/twice/cancel")


def test_a_form_that_is_sent_again_when_things_are_as_before_does_not_say_that_it_is_done(stage: Stage, writer: Person):
    stage.submit(shell("a", LONG), run="undone")
    form = hidden(writer.look("/runs/undone"))
    assert "rota pause --run undone" in said_once(writer.follow(writer.send("/runs/undone/pause", form)))
    writer.follow(writer.send("/runs/undone/resume", hidden(writer.look("/runs/undone"))))
    again = writer.follow(writer.send("/runs/undone/pause", form), 409)
    assert "command.stale" in again.text
    assert not stage.get("runs/undone")["paused"]
    writer.act("/runs/undone/cancel")


def test_a_form_that_does_not_say_how_things_stood_is_refused(stage: Stage, writer: Person):
    stage.submit(shell("a", LONG), run="blind")
    form = hidden(writer.look("/runs/blind"))
    refused = writer.follow(writer.send("/runs/blind/pause", {**form, "seen": ""}), 409)
    assert "command.stale" in refused.text
    assert not stage.get("runs/blind")["paused"]
    writer.act("/runs/blind/cancel")


def test_the_second_of_two_people_is_told_that_somebody_was_faster(stage: Stage, writer: Person, admin: Person):
    stage.submit(shell("a", LONG), run="contested")
    first, second = hidden(writer.look("/runs/contested/cancel")), hidden(admin.look("/runs/contested/cancel"))
    writer.follow(writer.send("/runs/contested/cancel", first))
    stage.ended("contested")
    page = admin.follow(admin.send("/runs/contested/cancel", second), 409)
    assert re.search(r"\bcontested\b.*\bcancelled\b", page.text)
    assert "command.stale" in page.text
    assert "/runs/contested" in page.links
    assert "has ended already" in admin.look("/runs/contested/cancel", 409).text


def test_what_was_retried_meanwhile_is_not_retried_again(stage: Stage, writer: Person, admin: Person, tmp_path: Path):
    stage.submit(shell("a", f"[ -e {tmp_path}/seen ] && {LONG}; touch {tmp_path}/seen; exit 1"), run="retried")
    stage.ended("retried")
    url = "/runs/retried/tasks/a"
    first, second = hidden(writer.look(url)), hidden(admin.look(url))
    assert "is tried again" in writer.follow(writer.send(f"{url}/retry", first)).text
    until(lambda: stage.get("runs/retried/tasks/a")["state"] == "running", "it to run again")
    refused = admin.follow(admin.send(f"{url}/retry", second), 409)
    assert re.search(r"\brunning\b.*\bcommand\.stale\b", refused.text)
    writer.act("/runs/retried/cancel")


def test_a_note_is_not_written_over_by_who_has_not_read_it(stage: Stage, writer: Person, admin: Person):
    stage.submit(shell("a"), run="noted")
    stage.ended("noted")
    url = "/runs/noted/tasks/a/note"
    second = hidden(admin.look(url))
    after = writer.act(url, note=EVIL)
    assert EVIL in after.text
    assert not after.named("img")
    refused = admin.follow(admin.send(url, {**second, "note": "mine"}), 409)
    assert "command.stale" in refused.text
    assert "noted (" in refused.text, "that it has one now"
    admin.act(url, note="")
    assert stage.get("runs/noted/tasks/a")["note"] == ""


def test_a_note_about_a_run_is_shown_found_and_audited(stage: Stage, writer: Person):
    stage.submit(shell("a"), run="spoken-of", labels={"team": "red"})
    stage.ended("spoken-of")
    after = writer.act("/runs/spoken-of/note", note=EVIL)
    assert EVIL in after.text
    assert not after.named("img")
    assert "rota note spoken-of" in after.text
    assert dict(stage.get("runs/spoken-of")["labels"]) == {"team": "red", "note": EVIL}
    assert "/runs/spoken-of" in writer.look(f"/runs?find={EVIL[:8]}").links
    assert "NoteTask" in [each["command"] for each in stage.get("audit")["audits"] if "spoken-of" in each["about"]]
    writer.act("/runs/spoken-of/note", note="")
    assert dict(stage.get("runs/spoken-of")["labels"]) == {"team": "red"}


def test_a_task_is_cleared_marked_and_retried(stage: Stage, writer: Person):
    stage.submit(shell("a"), shell("b", "exit 1", upstream=["a"]), run="steered")
    stage.ended("steered")
    page = writer.look("/runs/steered/tasks/b")
    offered = [url.rpartition("/")[2] for url in buttons(page)]
    assert sorted(offered) == ["clear", "mark", "note", "retry"]
    assert "a, b" in writer.look("/runs/steered/tasks/a/clear").text
    assert "marked as success" in writer.act("/runs/steered/tasks/b/mark", to="success").text
    assert stage.ended("steered") == "success"
    assert "clear steered a --only" in writer.act("/runs/steered/tasks/a/clear", downstream="no").text
    assert stage.ended("steered") == "success"
    assert "cannot be marked" in writer.act("/runs/steered/tasks/b/mark", 422, to="odd").text


@pytest.mark.parametrize(("way", "state"), [("requeue", "queued"), ("fail", "failed"), ("cancel", "cancelled")])
def test_a_parked_task_has_three_ways_out(way: str, state: str):
    limits = TimeLimits(sweep_ms=50, settle_ms=50, starve_ms=100)
    with staged(limits=limits) as one, Person(one, "") as person:
        one.submit(shell("a", requires=STUCK), run="parked")
        until(lambda: one.get("runs/parked/tasks/a")["state"] == "needs_attention", "it to be parked")
        page = person.look("/runs/parked/tasks/a")
        assert f"/runs/parked/tasks/a/{way}" in buttons(page)
        assert f"resolve parked a --{way}" in page.html
        person.act(f"/runs/parked/tasks/a/{way}")
        until(lambda: one.get("runs/parked/tasks/a")["state"] in (state, "needs_attention"), way)


def test_forms_in_fragments_get_their_page_s_once(stage: Stage, writer: Person):
    stage.submit(shell("a", LONG), run="fragmented")
    page = writer.look("/runs/fragmented")
    (body,) = page.named("body")
    onces = {given["value"] for given in page.named("input") if given["name"] == "once"}
    assert onces == {body["data-once"]}
    assert re.fullmatch(r"[0-9a-f]{32}", body["data-once"] or "")
    writer.act("/runs/fragmented/cancel")


def test_who_has_signed_out_meanwhile_is_led_back_to_the_question(stage: Stage, writer: Person):
    stage.submit(shell("a", LONG), run="left")
    form = hidden(writer.look("/runs/left/cancel"))
    writer.http.cookies.clear()
    response = writer.send("/runs/left/cancel", form)
    assert response.status_code == 303
    assert response.headers["location"] == "/sign-in?next=%2Fruns%2Fleft%2Fcancel"
    assert state_of(stage, "left") == "running"


def test_pages_of_another_site_cannot_act_where_nobody_signs_in():
    with staged() as one, Person(one, "") as person:
        one.submit(shell("a", LONG), run="open")
        form = hidden(person.look("/runs/open"))
        assert person.send("/runs/open/pause", form, Origin="https://evil.example").status_code == 403
        assert person.send("/runs/open/pause", {**form, "seal": "0" * 64}).status_code == 403
        assert person.send("/runs/open/pause", form, Host="evil.example").status_code in (403, 421)
        assert person.send("/runs/open/pause", form).status_code == 303
        look(one, "/runs/open")
