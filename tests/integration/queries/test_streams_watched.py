"""A stream as its coordinator shows it: over HTTP, on a page, at the terminal; and what is asked of it there."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.cli import EXIT_REFUSED, main
from tests.integration.http_stage import Stage, gate_of, staged
from tests.integration.page_stage import Person, buttons, hidden
from tests.integration.queries.test_stream_command import start

READER, WRITER, ADMIN, OTHER = "reader-of-tests", "writer-of-tests", "admin-of-tests", "other-of-tests"
TOKENS = f"reader:{READER},writer:{WRITER},admin:{ADMIN},writer@elsewhere:{OTHER}"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("data"), gate_of(TOKENS), slots=0) as one:
        one.http.headers["Authorization"] = f"Bearer {WRITER}"
        yield one


@pytest.fixture
def folder(stage: Stage, request: pytest.FixtureRequest) -> Path:
    """One for each test, where the coordinator looks."""
    return stage.folder / "streams" / re.sub(r"\W", "-", request.node.name)


def as_(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_it_is_seen_paused_saved_and_restored_over_http(stage: Stage, folder: Path) -> None:
    at = f"streams/{folder.name}"
    stage.get(at, 404)
    with start(folder) as running:
        rounds = iter(running)
        next(rounds), next(rounds)
        shown = stage.get(at)
        assert (shown["state"], shown["round"], shown["rows"]) == ("running", 2, 20)
        assert shown["lag_ms"] > 0
        assert folder.name in [each["name"] for each in stage.get("streams")["streams"]]
        assert stage.post(f"{at}/pause")["paused"]
        assert stage.get(at)["state"] == "paused"
        assert not stage.post(f"{at}/resume")["paused"]
        assert stage.post(f"{at}/savepoint", {"name": "two"})["wanted"] == ["savepoint two"]
        assert next(rounds).number == 3
        assert stage.get(at)["savepoints"] == ["two"]
        stage.post(f"{at}/restore", {"round": "two"})
        assert next(rounds).number == 3, "it went back to the second"
        stage.post(f"{at}/savepoint", {"name": "end", "stop": True})
        assert list(rounds) == []
    assert stage.get(at)["state"] == "stopped"


def test_the_same_key_is_done_once_and_who_asked_is_kept(stage: Stage, folder: Path) -> None:
    at = f"streams/{folder.name}"
    with start(folder) as running:
        rounds = iter(running)
        for _ in range(3):
            next(rounds)
        for _ in range(2):
            stage.post(f"{at}/restore", {"round": "1"}, headers={"Idempotency-Key": "back-to-one"})
        assert next(rounds).number == 2
        stage.post(f"{at}/restore", {"round": "1"}, headers={"Idempotency-Key": "back-to-one"})
        assert next(rounds).number == 3, "it is not restored again"
        stage.post(f"{at}/restore", {"round": "2"}, 409, headers={"Idempotency-Key": "back-to-one"})
    audits = stage.get("audit", headers=as_(ADMIN))["audits"]
    (one,) = [each for each in audits if each["command"] == "SteerStream" and folder.name in each["about"]]
    assert one["actor"].startswith("writer@default")
    assert json.loads(one["about"]) == {"stream": folder.name, "verb": "restore", "which": "1", "stop": False}


@pytest.mark.parametrize(
    ("act", "body", "status"),
    [
        ("savepoint", {"name": "../x"}, 422),
        ("savepoint", {"name": ""}, 422),
        ("savepoint", {}, 422),
        ("restore", {"round": "99"}, 404),
        ("restore", {"round": "/etc/passwd"}, 404),
        ("dance", {}, 404),
    ],
)
def test_what_cannot_be_asked_is_refused(stage: Stage, folder: Path, act: str, body: object, status: int) -> None:
    with start(folder) as running:
        next(iter(running))
    assert stage.post(f"streams/{folder.name}/{act}", body, status)["detail"]


@pytest.mark.parametrize("name", ["..", "%2e%2e", "..%2Fdata", "%2Fetc", "%00", "no-such"])
def test_a_name_leads_to_no_other_folder(stage: Stage, name: str) -> None:
    assert stage.http.get(f"/api/v1/streams/{name}").status_code == 404
    assert stage.http.post(f"/api/v1/streams/{name}/pause", json={}).status_code == 404


def test_who_may_only_read_may_not_ask_and_other_tenants_see_nothing(stage: Stage, folder: Path) -> None:
    at = f"streams/{folder.name}"
    with start(folder) as running:
        next(iter(running))
    stage.get(at, headers=as_(READER))
    stage.post(f"{at}/pause", status=403, headers=as_(READER))
    assert stage.get("streams", headers=as_(OTHER))["streams"] == []
    stage.get(at, 404, headers=as_(OTHER))
    stage.post(f"{at}/pause", status=404, headers=as_(OTHER))
    assert not stage.get(at)["paused"]
    with Person(stage, READER) as reader:
        assert buttons(reader.look(f"/streams/{folder.name}")) == []


def test_it_is_shown_on_pages_and_asked_from_there(stage: Stage, folder: Path) -> None:
    page = f"/streams/{folder.name}"
    with start(folder) as running, Person(stage, WRITER) as person:
        rounds = iter(running)
        next(rounds), next(rounds)
        listed = person.look("/streams")
        assert page in listed.links
        assert "running" in listed.text
        shown = person.look(page)
        for words in (
            "at least once",
            "Watermark lag",
            "20 read",
            "Last took",
            "Rounds",
            f"rota stream show {folder.name}",
        ):
            assert words in shown.text, words
        assert buttons(shown) == [f"{page}/pause", f"{page}/savepoint", f"{page}/restore"]
        told = person.act(f"{page}/pause")
        assert f"rota stream pause {folder.name}" in told.text
        assert f"{page}/resume" in buttons(told)
        person.act(f"{page}/resume")
        told = person.act(f"{page}/savepoint", name="two", stop="")
        assert f"rota stream savepoint {folder.name} two" in told.text
        assert "savepoint two" in told.text
        refused = person.act(f"{page}/savepoint", status=422, name="a/b", stop="")
        assert "cannot be called" in refused.text
        assert next(rounds).number == 3
        assert f"rota stream restore {folder.name} 1" in person.act(f"{page}/restore", round="1").text
        assert next(rounds).number == 2


def test_who_decides_about_what_somebody_else_has_changed_is_told(stage: Stage, folder: Path) -> None:
    page = f"/streams/{folder.name}"
    with start(folder) as running, Person(stage, WRITER) as person:
        next(iter(running))
        before = person.look(page)
        stage.post(f"{page.removeprefix('/')}/pause")
        response = person.send(f"{page}/pause", hidden(before, f"{page}/pause"))
        assert response.status_code == 409
        assert "is paused already" in response.text


def test_a_half_written_folder_and_a_page_that_is_not_there(stage: Stage, folder: Path) -> None:
    (folder / "rounds").mkdir(parents=True)
    (folder / "identity").write_text("abc")
    (folder / "standing.json").write_text('{"told_at": ')
    with Person(stage, WRITER) as person:
        shown = person.look(f"/streams/{folder.name}")
        assert "broken" in shown.text
        assert "standing.json" in shown.text
        assert buttons(shown) == []
        assert "stream.unknown" in person.look("/streams/no-such", 404).text
    stage.post(f"streams/{folder.name}/restore", {"round": "1"}, 500)


def test_the_terminal_asks_the_coordinator_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with staged(tmp_path / "data", slots=0) as stage:
        place = ("--data", str(stage.folder))

        def said(*words: str) -> str:
            assert main(["stream", *words, *place]) == 0
            return capsys.readouterr().out

        assert main(["stream", "list", *place]) == 0
        assert str(stage.folder / "streams") in capsys.readouterr().err, "it is said where they are looked for"
        with start(stage.folder / "streams" / "clicks") as running:
            rounds = iter(running)
            next(rounds), next(rounds)
            assert "clicks" in said("list")
            assert "at least once" in said("show", "clicks")
            said("pause", "clicks")
            assert json.loads(said("show", "clicks", "--json"))["state"] == "paused"
            said("resume", "clicks")
            said("restore", "clicks", "1")
            assert next(rounds).number == 2
            said("savepoint", "clicks", "end", "--stop")
            assert list(rounds) == []
        assert main(["stream", "show", "none", *place]) == EXIT_REFUSED
        assert "stream.unknown" in capsys.readouterr().err
        commands = [each.command for each in stage.rota.audits()]
        assert commands.count("SteerStream") == 4
