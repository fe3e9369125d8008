"""Server-sent events: of one run from the store, of all runs from memory; and going on after a cut."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from rota.api.http import feed as feeding
from rota.api.http import streams
from rota.api.http.events import read_place
from rota.api.tokens import Gate
from rota.config.settings import Auth
from rota.core.commands import GrowRun
from rota.core.model import TaskSpec
from rota.wire.work import CommandWork, encode_work
from tests.integration import json_schema
from tests.integration.deadlines import until
from tests.integration.http_stage import LONG, Event, Stage, read_events, shell, staged


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged() as one:
        yield one


def events(stage: Stage, path: str, last: str = "", until_name: str = "end", count: int = 0) -> list[Event]:
    """Events up to the first of a name, or so many."""
    headers = {"Last-Event-ID": last} if last else {}
    found: list[Event] = []
    with stage.http.stream("GET", f"/api/v1/{path}", headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        for each in read_events(response):
            found.append(each)
            if each.name == until_name or len(found) == count:
                break
    return found


def test_a_runs_events_come_from_its_beginning_and_end_with_how_it_stands(stage: Stage):
    made = stage.submit(shell("a"), shell("b", upstream=["a"]))
    *told, end = events(stage, f"runs/{made['id']}/events")
    assert [each.value["what"] for each in told][:2] == ["RunSubmitted", "RunStarted"]
    assert (told[-1].value["what"], told[-1].value["state"]) == ("RunEnded", "success")
    assert {each.name for each in told} == {"happening"}
    assert len({each.id for each in told}) == len(told)
    assert [each.value["state"] for each in told if each.value["task"] == "b"][-1] == "success"
    for each in told:
        assert (each.value["run"], each.value["created_at"]) == (made["id"], made["created_at"])
        json_schema.check(each.value, {"$ref": "#/components/schemas/Happening"}, stage.document)
    assert end.value == stage.get(f"runs/{made['id']}")


def test_who_was_cut_off_goes_on_after_the_last_event_it_saw(stage: Stage):
    made = stage.submit(shell("a", width=3), shell("b", upstream=["a"]))
    path = f"runs/{made['id']}/events"
    whole = events(stage, path)
    for position, each in enumerate(whole[:-1]):
        rest = events(stage, path, last=each.id)
        assert [(one.id, one.value) for one in rest] == [(one.id, one.value) for one in whole[position + 1 :]]


def test_an_id_of_another_run_means_to_read_anew(stage: Stage):
    made = stage.submit(shell("a"))
    whole = events(stage, f"runs/{made['id']}/events")
    for last in ("1.0.0", "nonsense", "1.2", f"{made['created_at']}.-1.0"):
        first, *rest = events(stage, f"runs/{made['id']}/events", last=last)
        assert first.name == "reset"
        assert [one.id for one in rest] == [one.id for one in whole]


def test_a_place_is_read_or_refused():
    assert read_place("5.2.0", 5) == (2, 1)
    assert read_place("5.2.0", 6) is None
    assert read_place("", 5) is None
    assert read_place("5.²0.1", 5) is None
    assert read_place(f"5.{'1' * 19}.1", 5) is None


def test_an_id_that_is_no_id_is_refused(stage: Stage):
    made = stage.submit(shell("a"))
    for path in (f"runs/{made['id']}/events", "events"):
        for last in ("1" * 5_000, f"{made['created_at']}.{'1' * 5_000}.0", f"x.{'1' * 5_000}"):
            problem = stage.get(path, 422, headers={"Last-Event-ID": last})
            assert (problem["code"], problem["path"]) == ("field.value", "Last-Event-ID")
        assert events(stage, path, last="1" * 90, count=1)[0].name == "reset"


def test_events_come_while_the_run_is_running(stage: Stage):
    made = stage.submit(shell("long", LONG))
    seen = events(stage, f"runs/{made['id']}/events", count=4)
    assert seen[-1].value["state"] in ("assigned", "running")
    stage.post(f"runs/{made['id']}/cancel")
    rest = events(stage, f"runs/{made['id']}/events", last=seen[-1].id)
    assert rest[-1].value["state"] == "cancelled"


class Listening:
    """Reads events in the background."""

    def __init__(self, stage: Stage, last: str = "") -> None:
        self.seen: list[Event] = []
        self._stage = stage
        self._last = last
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        headers = {"Last-Event-ID": self._last} if self._last else {}
        with self._stage.http.stream("GET", "/api/v1/events", headers=headers) as response:
            for each in read_events(response):
                self.seen.append(each)
                if self._closing.is_set():
                    return

    def until(self, what: str, run: str) -> None:
        def has_come() -> bool:
            return any(each.value.get("what") == what and each.value["run"] == run for each in list(self.seen))

        until(has_come, f"{what} of {run}")

    def close(self) -> None:
        """It ends with the next event."""
        self._closing.set()
        self._stage.submit(shell("last"))
        self._thread.join(30)
        assert not self._thread.is_alive()


def test_the_events_of_all_runs_are_told_and_a_cut_costs_nothing(stage: Stage):
    listening = Listening(stage)
    until(lambda: listening.seen, "the stream to open")
    assert listening.seen[0].name == "open"
    first = stage.submit(shell("a"), run="all-1")
    listening.until("RunEnded", "all-1")
    listening.close()
    second = stage.submit(shell("a"), run="all-2")
    stage.ended("all-2")
    again = Listening(stage, last=listening.seen[-1].id)
    again.until("RunEnded", "all-2")
    again.close()
    numbers = [int(each.id.partition(".")[2]) for each in (*listening.seen, *again.seen)]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "none is missing and none comes twice"
    told = [each.value for each in (*listening.seen, *again.seen) if each.name == "happening"]
    for made in (first, second):
        of_run = [each for each in told if each["run"] == made["id"]]
        assert (of_run[0]["what"], of_run[-1]["what"]) == ("RunSubmitted", "RunEnded")
        assert {each["task"] for each in of_run} == {None, "a"}
        assert {each["created_at"] for each in of_run} == {made["created_at"]}
    json_schema.check(told[0], {"$ref": "#/components/schemas/Happening"}, stage.document)


def test_who_missed_too_much_is_told_to_read_anew(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(feeding, "EVENTS_KEPT_MAX", 3)
    listening = Listening(stage)
    until(lambda: listening.seen, "the stream to open")
    stage.submit(shell("a"), run="much")
    listening.until("RunEnded", "much")
    listening.close()
    for last in (listening.seen[0].id, "other.1", "nonsense", listening.seen[0].id + "9999"):
        assert [each.name for each in events(stage, "events", last=last, count=1)] == ["reset"]


def test_tasks_that_a_run_grew_by_before_anybody_listened_have_their_names():
    with staged() as stage:
        made = stage.submit(shell("long", LONG), run="grown")
        work = encode_work(CommandWork(shell="true"))
        grown = GrowRun(
            tenant="default", command_id="grow", run="grown", specs=(TaskSpec(id="later", kind="command", work=work),)
        )
        stage.rota._thread.call(stage.line.ask(grown))
        until(lambda: stage.get("runs/grown/tasks/later")["state"] == "success", "the new task to end")
        listening = Listening(stage)
        until(lambda: listening.seen, "the stream to open")
        stage.post("runs/grown/clear", {"tasks": ["later"]})
        listening.until("TasksReset", "grown")
        stage.post("runs/grown/cancel")
        listening.close()
        assert "later" in {each.value["task"] for each in listening.seen if each.value.get("run") == made["id"]}


def test_a_silence_is_filled_with_comments(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(streams, "BEAT_S", 0.05)
    with stage.http.stream("GET", "/api/v1/events") as response:
        lines = response.iter_lines()
        assert next(line for line in lines if line.startswith(":")) == ": still here"


def test_events_of_another_tenant_are_not_told(stage: Stage):
    listening = Listening(stage)
    until(lambda: listening.seen, "the stream to open")
    stage.post(
        "runs",
        {"graph": {"name": "g", "tasks": [shell("a")]}, "run": "theirs"},
        201,
        headers={"Rota-Tenant": "other"},
    )
    stage.submit(shell("a"), run="ours")
    listening.until("RunEnded", "ours")
    listening.close()
    assert "theirs" not in {each.value.get("run") for each in listening.seen}
    assert stage.get("runs/theirs", 404)["code"] == "run.unknown"


@contextmanager
def cut_off(monkeypatch: pytest.MonkeyPatch, folder: Path, before: str, after: str) -> Iterator[Stage]:
    """A stage whose tokens have changed while somebody listened, who was cut off then."""
    monkeypatch.setattr(streams, "BEAT_S", 0.05)
    now = [0]
    tokens = folder / "tokens"
    tokens.write_text(before)
    gate = Gate(Auth(token_file=str(tokens)), lambda: now[0])
    with staged(gate=gate) as stage:
        stage.http.headers["Authorization"] = "Bearer good"
        with stage.http.stream("GET", "/api/v1/events") as response:
            lines = response.iter_lines()
            next(lines)
            tokens.write_text(after)
            now[0] += 10_000
            with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
                list(lines)
        yield stage


def test_a_revoked_token_ends_its_streams(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with cut_off(monkeypatch, tmp_path, "reader:good\nreader:other\n", "reader:other\n") as stage:
        assert stage.get("events", 401)["code"] == "auth.wrong"


@pytest.mark.parametrize("other", ["reader@other", "writer"])
def test_a_token_that_stands_for_another_ends_its_streams(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, other: str):
    with cut_off(monkeypatch, tmp_path, "reader:good\n", f"{other}:good\n") as stage:
        assert stage.get("runs")["runs"] == [], "it is good for what it stands for now"


def test_stopping_ends_streams_and_does_not_wait_for_them():
    ended: list[Any] = []
    with staged() as stage:
        opened = threading.Event()

        def listen() -> None:
            try:
                with stage.http.stream("GET", "/api/v1/events") as response:
                    for _ in response.iter_lines():
                        opened.set()
            except Exception as error:
                ended.append(error)

        thread = threading.Thread(target=listen)
        thread.start()
        assert opened.wait(30)
    thread.join(30)
    assert not thread.is_alive()
    assert ended, "an answer that breaks off does not look like one that came to its end"


def test_a_story_of_many_tasks_is_not_told_once_for_each_of_them(tmp_path: Path):
    with staged(tmp_path / "data", slots=0) as stage:
        made = stage.submit(shell("each", width=2_000))
        size = 0
        with stage.http.stream("GET", f"/api/v1/runs/{made['id']}/events") as response:
            for count, each in enumerate(read_events(response)):
                size += len(str(each.value))
                if count == 1_500:
                    break
        assert size < 1_500 * 1_000
