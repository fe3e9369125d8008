"""`rota stream`: what is seen and wanted of a stream by its folder."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

import rota
from rota.cli import EXIT_REFUSED, main

BASE = 1_700_000_000_000
ROWS = pa.table({"t": [BASE + at for at in range(0, 6_000, 100)], "v": [1] * 60})


def stream(folder: Path) -> rota.StreamSession:
    found = rota.StreamSession(folder, rows_max=10, every_s=0)
    found.register_rows("s", ROWS)
    found.register_window("w", "s", time="t", tumbling_s=1, aggregates={"n": "sum(v)"})
    return found


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["stream", *words]) == 0
    return capsys.readouterr().out


def test_a_stream_is_listed_shown_paused_saved_and_restored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "clicks"
    with stream(folder).start(now_ms=lambda: BASE + 10_000) as running:
        rounds = iter(running)
        next(rounds), next(rounds)
        shown = json.loads(said(capsys, "show", str(folder), "--json"))
        assert (shown["state"], shown["round"], shown["counts"]["s.rows"]) == ("open", 2, 20)
        assert shown["progress"] == [
            {"operator": "w", "watermark_ms": BASE + 1_900, "lag_ms": shown["progress"][0]["lag_ms"]}
        ]
        assert shown["state_bytes"] > 0
        said(capsys, "savepoint", str(folder), "two", "--stop")
        assert list(rounds) == [], "it has stopped with the savepoint"
    said(capsys, "pause", str(folder))
    assert "clicks" in said(capsys, "list", str(tmp_path))
    text = said(capsys, "show", str(folder))
    assert "paused, round 2" in text
    assert "savepoint   two" in text
    said(capsys, "resume", str(folder))
    assert len(stream(folder).run()) >= 4
    assert json.loads(said(capsys, "list", str(tmp_path), "--json"))[0]["state"] == "over"
    assert json.loads(said(capsys, "restore", str(folder), "two", "--json"))["round"] == 2
    with stream(folder).start() as running:
        assert running.last is not None
        assert running.last.round == 2
        assert [each.number for each in running] == [3, 4, 5, 6]


def test_what_is_no_stream_and_no_savepoint_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stream", "show", str(tmp_path)]) == EXIT_REFUSED
    assert "stream.unknown" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [], "looking makes nothing"
    stream(tmp_path / "s").run()
    assert main(["stream", "restore", str(tmp_path / "s"), "none"]) == EXIT_REFUSED
    assert main(["stream", "savepoint", str(tmp_path / "s"), "../x"]) == EXIT_REFUSED
