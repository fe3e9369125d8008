"""How a stream stands, as its folder tells: every state, and files that are not what they should be."""

import os
import re
from pathlib import Path

import msgspec
import pytest

from rota.wire import standings
from rota.wire.plainfiles import FILE_BYTES_MAX
from rota.wire.standings import FILE, SILENT_MS, Mark, Told, view_stream, write_told
from rota.wire.wishes import Wish, ask

NOW = 1_700_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("rounds", "savepoints"):
        (tmp_path / name).mkdir()
    (tmp_path / "identity").write_text("abc")
    return tmp_path


def state(folder: Path) -> str:
    return view_stream(folder, "s", NOW).state


def test_a_stream_that_has_told_nothing_is_new(folder: Path):
    assert state(folder) == "new"


def test_one_that_was_heard_from_lately_runs_and_one_that_was_not_is_silent(folder: Path):
    write_told(folder, Told(told_at=NOW - SILENT_MS, rows_per_s=5))
    assert (state(folder), view_stream(folder, "s", NOW).rows_per_s) == ("running", 5)
    assert view_stream(folder, "s", NOW + 1).state == "silent"
    assert view_stream(folder, "s", NOW + 1).rows_per_s == 0, "what is silent reads nothing"


@pytest.mark.parametrize("ended", ["over", "stopped", "failed"])
def test_one_that_has_ended_says_how_however_long_ago(folder: Path, ended: str):
    marks = (Mark(operator="w", watermark_at=NOW - 5_000),)
    write_told(folder, Told(told_at=NOW - 10 * SILENT_MS, ended=ended, trouble="why", rows_per_s=9, marks=marks))
    view = view_stream(folder, "s", NOW)
    assert (view.state, view.trouble, view.rows_per_s) == (ended, "why", 0)
    assert (view.watermark_at, view.lag_ms) == (NOW - 5_000, None), "it is behind nothing"


def test_pausing_is_seen_before_and_after_whoever_runs_it_has_ended(folder: Path):
    ask(folder, Wish(id="1", verb="pause"))
    write_told(folder, Told(told_at=NOW))
    assert (state(folder), view_stream(folder, "s", NOW).paused) == ("paused", True)
    write_told(folder, Told(told_at=NOW, ended="stopped"))
    assert (state(folder), view_stream(folder, "s", NOW).paused) == ("stopped", True)


def test_the_lag_is_that_of_the_operator_furthest_behind_and_never_negative(folder: Path):
    marks = (
        Mark(operator="new"),
        Mark(operator="near", watermark_at=NOW + 9_000),
        Mark(operator="far", watermark_at=NOW - 3_000),
    )
    write_told(folder, Told(told_at=NOW, marks=marks))
    view = view_stream(folder, "s", NOW)
    assert [each.lag_ms for each in view.progress] == [None, 0, 3_000]
    assert (view.watermark_at, view.lag_ms) == (NOW - 3_000, 3_000)


def test_what_was_set_aside_is_summed_over_all_parts(folder: Path):
    counts = {"s.rows": 10, "s.dead": 1, "v.dead": 2, "w.late": 3, "v.skipped": 4}
    write_told(folder, Told(told_at=NOW, counts=counts))
    view = view_stream(folder, "s", NOW)
    assert (view.late, view.dead, view.skipped) == (3, 3, 4)


def test_savepoints_and_what_is_wanted_are_told(folder: Path):
    (folder / "savepoints" / "b.v2.round").touch()
    (folder / "savepoints" / "a.round").touch()
    (folder / "savepoints" / "_aside").touch()
    ask(folder, Wish(id="1", verb="savepoint", which="c", stop=True))
    view = view_stream(folder, "s", NOW)
    (wanted,) = view.wanted
    assert (view.savepoints, bool(re.fullmatch(r"savepoint c\b.*\bstop", wanted))) == (("a", "b.v2"), True)


def _half(path: Path) -> None:
    path.write_text('{"told_at": 17')


def _other(path: Path) -> None:
    path.write_text('{"told_at": "yesterday"}')


def _large(path: Path) -> None:
    path.write_bytes(b" " * (FILE_BYTES_MAX + 1))


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


def _folder(path: Path) -> None:
    path.mkdir()


def _deep(path: Path) -> None:
    path.write_text('{"told_at":1,"zz":' + "[" * 100_000 + "]" * 100_000 + "}")


def _unknown(path: Path) -> None:
    path.write_text('{"told_at":1,"ended":"weird"}')


@pytest.mark.parametrize("spoil", [_half, _other, _large, _pipe, _link, _folder, _deep, _unknown])
def test_a_file_that_cannot_be_read_is_shown_as_that(folder: Path, spoil):
    spoil(folder / FILE)
    view = view_stream(folder, "s", NOW)
    assert view.state == "broken"
    assert FILE in view.trouble


def test_wishes_that_cannot_be_read_are_shown_as_that(folder: Path):
    write_told(folder, Told(told_at=NOW, round=7))
    (folder / "wishes.json").write_text("{")
    view = view_stream(folder, "s", NOW)
    assert (view.state, view.round) == ("broken", 7)
    assert "wishes.json" in view.trouble


@pytest.mark.parametrize("spoil", [_pipe, _link, _folder, _large, _deep])
def test_wishes_are_read_from_a_plain_file_only(folder: Path, spoil):
    spoil(folder / "wishes.json")
    view = view_stream(folder, "s", NOW)
    assert view.state == "broken"
    assert "wishes.json" in view.trouble


def test_whatever_goes_wrong_with_one_stream_is_no_error_for_all(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def odd(_: Path) -> None:
        raise ZeroDivisionError("unthought of")

    monkeypatch.setattr(standings, "read_told", odd)
    view = view_stream(folder, "s", NOW)
    assert (view.state, view.name) == ("broken", "s")
    assert "unthought of" in view.trouble


def test_savepoints_with_names_of_any_bytes_and_behind_links_are_left_out(folder: Path, tmp_path: Path):
    (folder / "savepoints" / "a.round").touch()
    (folder / "savepoints" / os.fsdecode(b"bad\xff.round")).touch()
    assert view_stream(folder, "s", NOW).savepoints == ("a",)
    (folder / "savepoints").rename(folder / "elsewhere")
    (folder / "savepoints").symlink_to(folder / "elsewhere")
    assert view_stream(folder, "s", NOW).savepoints == ()


def test_numbers_that_no_answer_can_hold_spoil_one_stream_and_not_the_answer(folder: Path):
    (folder / FILE).write_text(f'{{"told_at":{NOW},"rows":{10**30}}}')
    view = view_stream(folder, "s", NOW)
    assert view.state == "broken"
    msgspec.msgpack.encode(view)


@pytest.mark.parametrize("at", [-(1 << 63), -(10**15), 0, 10**15, (1 << 63) - 1])
def test_every_instant_of_64_bits_can_be_told(folder: Path, at: int):
    write_told(folder, Told(told_at=at, published_at=at, marks=(Mark(operator="w", watermark_at=at),)))
    view = view_stream(folder, "s", NOW)
    assert (view.told_at, view.watermark_at) == (at, at)
