"""What is wanted of a stream: written once, heeded once, and overwritten by nobody."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

from rota.core.errors import Refused, Unavailable
from rota.wire.wishes import BEGINNING, PENDING_MAX, Wish, ask, check_round, check_wish, heed, read_wishes


def wish(id: str, verb: str = "savepoint", which: str = "x") -> Wish:
    return Wish(id=id, verb=verb, which=which)  # type: ignore[arg-type] - as it comes from a test's table


def test_a_wish_is_taken_once_however_often_it_is_sent(tmp_path: Path):
    ask(tmp_path, wish("1", "pause", ""))
    ask(tmp_path, wish("2", "resume", ""))
    ask(tmp_path, wish("1", "pause", ""))
    assert not read_wishes(tmp_path).paused, "a repeated command does not undo a later one"
    ask(tmp_path, wish("3"))
    ask(tmp_path, wish("3"))
    assert [each.id for each in read_wishes(tmp_path).pending] == ["3"]


def test_what_was_heeded_is_wanted_no_more_and_is_not_taken_again(tmp_path: Path):
    ask(tmp_path, wish("1", which="a"))
    ask(tmp_path, wish("2", which="b"))
    heed(tmp_path, wish("1"))
    assert [each.id for each in read_wishes(tmp_path).pending] == ["2"]
    ask(tmp_path, wish("1", which="a"))
    assert [each.id for each in read_wishes(tmp_path).pending] == ["2"]
    ask(tmp_path, wish("3", "pause", ""))
    assert [each.id for each in read_wishes(tmp_path).pending] == ["2"], "pausing forgets nothing"


def ask_until_taken(folder: Path, wanted: Wish) -> None:
    while True:
        with suppress(Unavailable):
            return ask(folder, wanted)


@pytest.mark.slow
def test_of_many_who_ask_at_once_nobody_is_lost(tmp_path: Path):
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: ask_until_taken(tmp_path, wish(str(number), which=f"n{number}")), range(40)))
        list(threads.map(lambda number: heed(tmp_path, wish(str(number))), range(1)))
    assert sorted(int(each.id) for each in read_wishes(tmp_path).pending) == list(range(1, 40))


def test_what_heeded_cannot_tell_any_more_is_heeded_again(tmp_path: Path):
    ask(tmp_path, wish("1"))
    heed(tmp_path, wish("1"))
    (tmp_path / "heeded.json").write_text("{")
    assert [each.id for each in read_wishes(tmp_path).pending] == ["1"]


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", ".hidden", "a b", "x" * 101, "字" * 60, "ä\0", "41"])
def test_a_savepoint_needs_a_name_that_is_no_path(tmp_path: Path, name: str):
    with pytest.raises(Refused, match=r"field\.value"):
        check_wish(tmp_path, wish("1", which=name), ())


def test_a_savepoint_that_is_there_is_refused_unless_it_is_the_one_that_was_asked_for(tmp_path: Path):
    check_wish(tmp_path, wish("1", which="a"), ())
    ask(tmp_path, wish("1", which="a"))
    (tmp_path / "savepoints").mkdir()
    (tmp_path / "savepoints" / "a.round").touch()
    check_wish(tmp_path, wish("1", which="a"), ())
    with pytest.raises(Refused, match="already"):
        check_wish(tmp_path, wish("2", which="a"), ())


@pytest.mark.parametrize("which", ["8", "none", "../x", "/etc/passwd", ""])
def test_only_rounds_and_savepoints_that_there_are_can_be_restored(tmp_path: Path, which: str):
    check_wish(tmp_path, wish("1", "restore", "7"), (6, 7))
    with pytest.raises(Refused, match=r"stream\.unknown"):
        check_wish(tmp_path, wish("1", "restore", which), (6, 7))


def test_more_than_so_many_wishes_do_not_wait(tmp_path: Path):
    for number in range(PENDING_MAX):
        ask(tmp_path, wish(str(number), which=f"n{number}"))
    with pytest.raises(Refused, match=r"stream\.busy"):
        check_wish(tmp_path, wish("one more"), ())


def test_a_file_of_wishes_that_is_damaged_is_refused_and_left_alone(tmp_path: Path):
    (tmp_path / "wishes.json").write_text("{")
    with pytest.raises(Refused, match=r"stream\.folder"):
        ask(tmp_path, wish("1"))
    assert (tmp_path / "wishes.json").read_text() == "{"


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(Refused, match=r"stream\.folder"):
        ask(tmp_path / "gone", wish("1"))


def test_a_lock_that_somebody_keeps_is_not_waited_for(tmp_path: Path):
    with (tmp_path / "wishes.lock").open("wb") as held:
        flock(held, LOCK_EX)
        with pytest.raises(Unavailable, match="somebody else"):
            ask(tmp_path, wish("1"))
    ask(tmp_path, wish("1"))
    assert len(read_wishes(tmp_path).pending) == 1


@pytest.mark.parametrize("name", ["wishes.lock", "wishes.json"])
def test_nothing_is_written_to_where_a_link_leads(tmp_path: Path, name: str):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / name).symlink_to(victim)
    with pytest.raises(Refused, match=r"stream\.folder"):
        ask(tmp_path, wish("1"))
    assert victim.read_text() == "precious"


def test_a_link_that_was_planted_where_files_are_written_first_is_not_followed(tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f"_wishes.json-{os.getpid()}").symlink_to(victim)
    (tmp_path / "heeded.json").symlink_to(victim)
    ask(tmp_path, wish("1"))
    heed(tmp_path, wish("1"))
    assert victim.read_text() == "precious"
    assert read_wishes(tmp_path).pending == ()


def test_names_of_wishes_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    flushed: list[Path] = []
    fsync = os.fsync

    def noted(file: int) -> None:
        flushed.append(Path(f"/proc/self/fd/{file}").readlink())
        fsync(file)

    monkeypatch.setattr(os, "fsync", noted)
    ask(tmp_path, wish("1"))
    assert flushed[-1] == tmp_path


def test_a_savepoint_that_is_wanted_already_is_refused_to_whoever_else_asks(tmp_path: Path):
    ask(tmp_path, wish("1", which="a"))
    check_wish(tmp_path, wish("1", which="a"), ())
    check_wish(tmp_path, wish("2", which="b"), ())
    with pytest.raises(Refused, match="wanted already"):
        check_wish(tmp_path, wish("2", which="a"), ())
    heed(tmp_path, wish("1"))
    check_wish(tmp_path, wish("2", which="a"), ())


@pytest.mark.parametrize("digits", [19, 5_000])
def test_a_number_of_very_many_digits_is_no_round(tmp_path: Path, digits: int):
    with pytest.raises(Refused, match=r"stream\.unknown"):
        check_wish(tmp_path, wish("1", "restore", "1" * digits), (6, 7))


def test_a_file_that_is_to_be_restored_begins_like_a_round(tmp_path: Path):
    path = tmp_path / "x.round"
    path.write_bytes(BEGINNING + b"more")
    check_round(path)
    path.write_bytes(BEGINNING[:-1])
    with pytest.raises(Refused, match=rf"stream\.corrupt: {path} ") as refused:
        check_round(path)
    assert refused.value.path == "round"
    os.mkfifo(tmp_path / "pipe")
    for name, code in (("gone", "stream.unknown"), (".", "stream.folder"), ("pipe", "stream.corrupt")):
        with pytest.raises(Refused) as refused:
            check_round(tmp_path / name)
        assert refused.value.code == code
