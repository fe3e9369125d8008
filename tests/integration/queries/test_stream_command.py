"""`rota stream`: what is seen and wanted of a stream by its folder."""

import json
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

import rota
from rota.app.clocks import wall_clock
from rota.cli import EXIT_REFUSED, main
from rota.core.errors import Refused
from rota.kinds.query.streams.manifests import read_manifest
from rota.wire.standings import read_told
from rota.wire.wishes import Wish, ask, read_wishes

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
        damaged.write_bytes(b"no round")
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
    for words in (("restore", "none"), ("restore", "99"), ("restore", "/no/such.round"), ("savepoint", "../x")):
        verb, which = words
        assert main(["stream", verb, str(tmp_path / "s"), which]) == EXIT_REFUSED, words


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
