"""`rota stream`: what is seen and wanted of a stream by its folder."""

import json
import re
from itertools import count
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from msgspec import structs

import rota
from rota.app.clocks import wall_clock
from rota.cli import EXIT_REFUSED, main
from rota.core.errors import Refused
from rota.kinds.query.streams.manifests import read_manifest
from rota.wire.standings import Mark, read_told, write_told
from rota.wire.wishes import BEGINNING, Wish, ask, read_wishes
from tests.refusals import refused

BASE = 1_700_000_000_000
ROWS = pa.table({"t": [BASE + at for at in range(0, 6_000, 100)], "v": [1] * 60})


def stream(folder: Path) -> rota.StreamSession:
    found = rota.StreamSession(folder, rows_max=10, every_s=0)
    found.register_rows("s", ROWS)
    found.register_window("w", "s", time="t", tumbling_s=1, aggregates={"n": "sum(v)"})
    return found


def start(folder: Path, **options: object) -> "rota.app.sql.started.Running":
    """Every look at the clock is a second later, so that every round is told at once."""
    ticks = count()
    return stream(folder).start(now_ms=lambda: wall_clock() + 1_000 * next(ticks), **options)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["stream", *words]) == 0
    return capsys.readouterr().out


def test_a_stream_is_listed_shown_paused_and_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "clicks"
    with start(folder) as running:
        rounds = iter(running)
        next(rounds), next(rounds)
        shown = json.loads(said(capsys, "show", str(folder), "--json"))
        assert (shown["name"], shown["state"], shown["round"], shown["rows"]) == ("clicks", "running", 2, 20)
        assert (shown["counts"]["s.rows"], shown["guarantee"]) == (20, "at least once")
        assert [(each["operator"], each["watermark_at"]) for each in shown["progress"]] == [("w", BASE + 1_900)]
        assert shown["state_bytes"] > 0
        assert 0 < shown["checkpoint_p50_ms"] <= shown["checkpoint_worst_ms"]
        assert shown["rows_per_s"] > 0
        said(capsys, "savepoint", str(folder), "two", "--stop")
        assert list(rounds) == [], "it has stopped with the savepoint"
    said(capsys, "pause", str(folder))
    assert "clicks" in said(capsys, "list", str(tmp_path))
    text = said(capsys, "show", str(folder))
    assert "stopped, round 2" in text
    assert "savepoint   two" in text
    assert "paused      yes" in text
    said(capsys, "resume", str(folder))
    assert len(stream(folder).run()) >= 4
    assert json.loads(said(capsys, "list", str(tmp_path), "--json"))[0]["state"] == "over"


def test_a_stream_goes_back_while_it_runs_and_at_the_next_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "clicks"
    with start(folder) as running:
        rounds = iter(running)
        assert [next(rounds).number for _ in range(3)] == [1, 2, 3]
        assert json.loads(said(capsys, "restore", str(folder), "1", "--json"))["wanted"] == ["restore 1"]
        assert [each.number for each in rounds] == [2, 3, 4, 5, 6], "without being started again"
    shown = json.loads(said(capsys, "show", str(folder), "--json"))
    assert (shown["wanted"], shown["state"], shown["counts"]["s.rows"]) == ([], "over", 60)
    said(capsys, "restore", str(folder), "4")
    assert "wanted      restore 4" in said(capsys, "show", str(folder))
    assert [each.number for each in stream(folder).run()] == [5, 6]
    assert [each.number for each in stream(folder).run() if not each.is_again] == [], "what was wanted is done once"


def test_what_is_wanted_and_cannot_be_done_is_told_and_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "clicks"
    with start(folder) as running:
        rounds = iter(running)
        next(rounds)
        damaged = tmp_path / "damaged.round"
        damaged.write_bytes(BEGINNING + b"and no round")
        said(capsys, "restore", str(folder), str(damaged))
        assert next(rounds).number == 2
        shown = json.loads(said(capsys, "show", str(folder), "--json"))
        assert (shown["state"], shown["wanted"]) == ("running", [])
        assert "stream.corrupt" in shown["trouble"]


def test_a_stream_that_failed_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = rota.StreamSession(tmp_path / "s", every_s=0)
    found.register_rows("s", pa.table({"v": [1, 0]}))
    found.register_view("x", "select 1 / v as x from s")
    with pytest.raises(rota.Refused):
        found.run()
    shown = json.loads(said(capsys, "show", str(tmp_path / "s"), "--json"))
    assert shown["state"] == "failed"
    assert "query." in shown["trouble"]


def test_what_is_no_stream_and_no_savepoint_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stream", "show", str(tmp_path)]) == EXIT_REFUSED
    assert "stream.unknown" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [], "looking makes nothing"
    stream(tmp_path / "s").run()
    for words in (
        ("restore", "none"),
        ("restore", "99"),
        ("restore", "1" * 5_000),
        ("restore", "/no/such.round"),
        ("restore", "/etc/passwd"),
        ("restore", "/etc"),
        ("savepoint", "../x"),
        ("savepoint", "x" * 500),
    ):
        verb, which = words
        assert main(["stream", verb, str(tmp_path / "s"), which]) == EXIT_REFUSED, words
        assert len(capsys.readouterr().err) < 400
    assert read_wishes(tmp_path / "s").pending == ()


def test_whoever_was_deposed_leaves_wishes_to_whoever_took_over(tmp_path: Path) -> None:
    folder = tmp_path / "clicks"
    with start(folder) as old, start(folder) as new:
        deposed, rounds = iter(old), iter(new)
        assert [next(rounds).number for _ in range(3)] == [1, 2, 3]
        ask(folder, Wish(id="1", verb="savepoint", which="three", stop=True))
        with pytest.raises(Refused, match=r"stream\.fenced"):
            next(deposed)
        assert [each.id for each in read_wishes(folder).pending] == ["1"]
        assert list(rounds) == [], "it stopped"
    assert read_manifest(folder / "savepoints" / "three.round").round == 3


def test_a_stream_whose_savepoint_was_refused_does_not_stop(tmp_path: Path) -> None:
    folder = tmp_path / "clicks"
    with start(folder) as running:
        rounds = iter(running)
        next(rounds)
        ask(folder, Wish(id="1", verb="savepoint", which="no/name", stop=True))
        assert next(rounds).number == 2
        assert next(rounds).number == 3
        told = read_told(folder)
        assert told is not None
        assert "no/name" in told.trouble
        assert read_wishes(folder).pending == ()


def test_looking_for_a_stream_that_is_not_there_makes_none(tmp_path: Path) -> None:
    folder = tmp_path / "a-typo"
    assert stream(folder).state("w") == {}
    assert not folder.exists()


def test_a_folder_that_is_none_has_no_list_of_streams(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    for name, code in (("nosuch", "stream.unknown"), ("file", "stream.folder")):
        assert main(["stream", "list", str(tmp_path / name)]) == EXIT_REFUSED
        assert code in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert said(capsys, "list", str(tmp_path / "empty")) == ""
    stream(tmp_path / "clicks").run()
    assert [each["name"] for each in json.loads(said(capsys, "list", str(tmp_path / "clicks"), "--json"))] == ["clicks"]


def test_a_savepoint_that_is_wanted_already_is_not_asked_for_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream(tmp_path / "s").run()
    assert re.search(r"\bover\b", said(capsys, "savepoint", str(tmp_path / "s"), "x"))
    assert main(["stream", "savepoint", str(tmp_path / "s"), "x"]) == EXIT_REFUSED
    assert "wanted already" in capsys.readouterr().err
    assert len(read_wishes(tmp_path / "s").pending) == 1


@pytest.mark.parametrize(
    "wish",
    [
        Wish(id="1", verb="restore", which="1" * 5_000),
        Wish(id="1", verb="restore", which="/etc"),
        Wish(id="1", verb="restore", which="/a\0b"),
        Wish(id="1", verb="restore", which="x" * 500),
        Wish(id="1", verb="restore", which="\0"),
        Wish(id="1", verb="savepoint", which="x" * 500),
        Wish(id="1", verb="savepoint", which="a\0b"),
        Wish(id="1", verb="savepoint", which="../rounds/000000000001"),
        Wish(id="1", verb="pause", which="since when does this wait"),
    ],
)
def test_whatever_is_wanted_ends_no_stream(tmp_path: Path, wish: Wish) -> None:
    folder = tmp_path / "clicks"
    with start(folder) as running:
        rounds = iter(running)
        next(rounds)
        (folder / "wishes.json").write_bytes(msgspec.json.encode({"pending": [wish]}))
        assert next(rounds).number == 2
        told = read_told(folder)
        assert told is not None
        assert told.trouble.startswith(wish.words[:20])
        assert read_wishes(folder).pending == ()


def test_a_slice_of_a_paused_stream_waits_for_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "clicks"
    with start(folder, follow=False) as running:
        rounds = iter(running)
        next(rounds), next(rounds)
        running.pause()
        assert list(rounds) == []
    assert [(each.number, each.is_again) for each in stream(folder).run()] == [(2, True)], "what may not have arrived"
    ask(folder, Wish(id="1", verb="savepoint", which="two"))
    stream(folder).run()
    text = said(capsys, "show", str(folder))
    assert "clicks: stopped, round 2" in text
    assert "paused      yes" in text
    assert "savepoint   two" in text
    said(capsys, "resume", str(folder))
    assert [each.number for each in stream(folder).run()][-1] == 6


def test_state_that_is_damaged_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "clicks"
    with start(folder) as running:
        rounds = iter(running)
        next(rounds), next(rounds)
    assert stream(folder).state("w")["panes"].num_rows == 1
    newest = max((folder / "rounds").glob("*.round"))
    content = newest.read_bytes()
    newest.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with refused("stream.corrupt", "round 2", "state of w"):
        stream(folder).state("w")


@pytest.mark.parametrize("year", [-1, 12_000])
def test_a_watermark_that_no_date_fits_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str], year: int) -> None:
    at = (year - 1970) * 366 * 86_400_000
    found = rota.StreamSession(tmp_path / "s", every_s=0)
    found.register_rows("s", pa.table({"t": [at, at + 5_000]}))
    found.register_window("w", "s", time="t", tumbling_s=1, aggregates={"n": "count(*)"}, ahead_s=3_000_000_000)
    with found.start() as running:
        next(iter(running))
    told = read_told(tmp_path / "s")
    assert told is not None
    write_told(tmp_path / "s", structs.replace(told, marks=(Mark(operator="w", watermark_at=at),), ended=""))
    text = said(capsys, "show", str(tmp_path / "s"))
    assert f"({at} ms)" in text
    assert said(capsys, "list", str(tmp_path))


def test_why_a_source_is_not_read_and_what_was_refused_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream(tmp_path / "s").run()
    told = read_told(tmp_path / "s")
    assert told is not None
    mark = Mark(operator="paid", waiting=1_010, waiting_max=2_000, reads_only=("payments/0",))
    write_told(tmp_path / "s", structs.replace(told, marks=(mark,), counts={"paid.refused": 7}, ended=""))
    text = said(capsys, "show", str(tmp_path / "s"))
    assert re.search(r"\bpaid\b.* 1,010 .* 2,000 .*\bpayments/0\b", text)
    assert "7 refused" in text
