"""Streams at the desk: found by name and by no path, read without keeping anybody, asked once."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.api import streams as desk
from rota.api.auth import Principal, Role
from rota.api.streams import STREAMS_MAX, Shelf, Streams, find_folder, look_at
from rota.core.commands import SteerStream
from rota.core.errors import Refused, Unavailable
from rota.core.ids import DEFAULT_TENANT
from rota.wire.standings import GetStream, ListStreams, Told, write_told
from rota.wire.wishes import read_wishes

NOW = 1_700_000_000_000


def make(folder: Path, **told: Any) -> Path:
    (folder / "rounds").mkdir(parents=True)
    (folder / "identity").write_text("abc")
    if told:
        write_told(folder, Told(**{"told_at": NOW, **told}))
    return folder


class Coordinator:
    """Keeps what it is asked, and refuses if it was told to."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.refusal: Refused | None = None

    async def ask(self, request: Any) -> tuple[object, object]:
        if self.refusal is not None:
            raise self.refusal
        self.asked.append(request)
        return "s", None


def streams_in(*folders: Path, coordinator: Coordinator | None = None) -> Shelf:
    return Shelf(folders, coordinator or Coordinator(), lambda: NOW)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def steer(verb: str, which: str = "", id: str = "c1", stream: str = "s", tenant: str = DEFAULT_TENANT) -> SteerStream:
    return SteerStream(tenant=tenant, command_id=id, stream=stream, verb=verb, which=which)


def test_streams_are_those_directly_below_a_folder(tmp_path: Path):
    make(tmp_path / "b", round=2)
    make(tmp_path / "a")
    make(tmp_path / "deep" / "c")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    found = look_at([tmp_path, tmp_path / "gone"], NOW)
    assert [(each.name, each.state) for each in found.streams] == [("a", "new"), ("b", "running")]


def test_one_broken_stream_hides_no_other(tmp_path: Path):
    (make(tmp_path / "a") / "standing.json").write_text("{")
    make(tmp_path / "b", round=2)
    assert [each.state for each in look_at([tmp_path], NOW).streams] == ["broken", "running"]


def test_a_name_of_any_bytes_is_left_out_and_hides_no_other(tmp_path: Path):
    make(tmp_path / os.fsdecode(b"bad\xff"))
    make(tmp_path / "b", round=2)
    found = look_at([tmp_path], NOW)
    assert [each.name for each in found.streams] == ["b"]
    msgspec.json.encode(found)


def test_of_two_with_one_name_the_first_is_meant_and_the_other_is_shown_as_hidden(tmp_path: Path):
    make(tmp_path / "one" / "s", round=1)
    make(tmp_path / "two" / "s", round=2)
    folders = [tmp_path / "one", tmp_path / "two"]
    first, second = look_at(folders, NOW).streams
    assert (first.round, second.state) == (1, "broken")
    assert str(tmp_path / "one" / "s") in second.trouble
    assert find_folder(folders, "s") == tmp_path / "one" / "s"


def test_of_very_many_streams_the_first_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(desk, "STREAMS_MAX", 2)
    assert STREAMS_MAX > 2
    for name in "abc":
        make(tmp_path / name)
    found = look_at([tmp_path], NOW)
    assert ([each.name for each in found.streams], found.left_out) == (["a", "b"], 1)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../s", "s/.", "/", "s\0", "secret/s", "..%2fs", "link", "x" * 5_000, "\ud800"]
)
def test_a_name_leads_nowhere_else(tmp_path: Path, name: str):
    make(tmp_path / "s")
    make(tmp_path / "root" / "secret" / "s")
    (tmp_path / "root" / "link").symlink_to(tmp_path / "s")
    with pytest.raises(Refused, match=r"stream\.unknown"):
        find_folder([tmp_path / "root"], name)


def test_a_tenant_sees_and_steers_its_own_streams_only(tmp_path: Path):
    ours, theirs = make(tmp_path / "ours" / "s", round=1), make(tmp_path / "theirs" / "s", round=2)
    make(tmp_path / "theirs" / "t", run="r")
    folders = {DEFAULT_TENANT: [tmp_path / "ours"], "acme": [tmp_path / "theirs"]}
    found = Streams(folders, Coordinator(), lambda: NOW)

    who = Principal("somebody", Role.ADMIN, DEFAULT_TENANT)

    def asked(question: Any) -> Any:
        return found.answer(who, question)

    async def look() -> None:
        for tenant, names in ((DEFAULT_TENANT, ["s"]), ("acme", ["s", "t"]), ("other", [])):
            seen = await asked(ListStreams(tenant=tenant))
            assert [view.name for view in seen.streams] == names
            assert list(seen.folders) == [str(each) for each in folders.get(tenant, [])]
        assert [view.name for view in (await asked(ListStreams(tenant="acme", run="r"))).streams] == ["t"]
        assert (await asked(ListStreams(tenant=DEFAULT_TENANT, run="r"))).streams == ()
        assert (await asked(GetStream(tenant="acme", stream="s"))).round == 2
        await asked(steer("pause", tenant="acme"))
        others = (GetStream(tenant="other", stream="s"), steer("pause", tenant="other"))
        for question in (*others, GetStream(tenant=DEFAULT_TENANT, stream="t")):
            with pytest.raises(Refused, match=r"stream\.unknown"):
                await asked(question)
        assert list(found.seen) == [DEFAULT_TENANT, "acme"]

    run(look())
    assert (read_wishes(ours).paused, read_wishes(theirs).paused) == (False, True)


def test_who_asked_is_durable_before_it_is_asked(tmp_path: Path):
    make(tmp_path / "s", round=4, restorable=(4,))
    coordinator = Coordinator()
    found = streams_in(tmp_path, coordinator=coordinator)
    coordinator.refusal = Refused("command.id_reused", "used for something else")
    with pytest.raises(Refused, match="id_reused"):
        run(found.steer(steer("pause")))
    assert not read_wishes(tmp_path / "s").paused
    coordinator.refusal = None
    assert run(found.steer(steer("pause"))).paused
    assert run(found.steer(steer("restore", "4", "c2"))).wanted == ("restore 4",)
    assert [each.verb for each in coordinator.asked] == ["pause", "restore"]


def test_the_same_command_twice_is_asked_once_also_if_it_was_met_since(tmp_path: Path):
    folder = make(tmp_path / "s", round=4)
    found = streams_in(tmp_path)
    run(found.steer(steer("savepoint", "kept")))
    (folder / "savepoints").mkdir()
    (folder / "savepoints" / "kept.round").touch()
    run(found.steer(steer("savepoint", "kept")))
    assert len(read_wishes(folder).pending) == 1
    with pytest.raises(Refused, match="already"):
        run(found.steer(steer("savepoint", "kept", "c2")))


@pytest.mark.parametrize(
    ("verb", "which", "code"),
    [("dance", "", "field.value"), ("savepoint", "../x", "field.value"), ("restore", "/etc/passwd", "stream.unknown")],
)
def test_what_cannot_be_asked_is_refused_and_not_kept(tmp_path: Path, verb: str, which: str, code: str):
    make(tmp_path / "s", round=4)
    coordinator = Coordinator()
    with pytest.raises(Refused, match=code):
        run(streams_in(tmp_path, coordinator=coordinator).steer(steer(verb, which)))
    assert coordinator.asked == []


def test_a_folder_that_does_not_answer_keeps_only_those_who_asked_about_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    make(tmp_path / "s", run="r")
    go, looks = threading.Event(), []

    def hang(*given: Any) -> Any:
        looks.append(given)
        go.wait()
        return look_at(*given)

    monkeypatch.setattr(desk, "PATIENCE_S", 0.01)
    monkeypatch.setattr(desk, "look_at", hang)
    found = streams_in(tmp_path)

    async def look() -> None:
        for _ in range(3):
            with pytest.raises(Unavailable, match="do not answer"):
                await found.list(ListStreams(tenant=DEFAULT_TENANT))
        assert (await found.list(ListStreams(tenant=DEFAULT_TENANT, run="r"))).streams == (), "a run's page waits not"
        assert len(looks) == 1, "however many ask, one looks"
        go.set()
        monkeypatch.setattr(desk, "PATIENCE_S", 30)
        await found.list(ListStreams(tenant=DEFAULT_TENANT))
        (one,) = (await found.list(ListStreams(tenant=DEFAULT_TENANT, run="r"))).streams
        assert one.name == "s"

    run(look())


def test_a_folder_that_does_not_answer_takes_no_threads_from_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    go = threading.Event()
    monkeypatch.setattr(desk, "PATIENCE_S", 0.001)
    monkeypatch.setattr(desk, "find_folder", lambda *_: go.wait())
    found = streams_in(tmp_path)

    async def look() -> None:
        for _ in range(60):
            with pytest.raises(Unavailable, match="do not answer"):
                await found.get(DEFAULT_TENANT, "s")
        async with asyncio.timeout(10):
            await asyncio.to_thread(lambda: None)
        go.set()

    run(look())
