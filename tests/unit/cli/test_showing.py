"""How things look: tables, spans, values, JSON; and what a terminal must not obey."""

import argparse
import json

import pytest

from rota.cli import showing
from rota.core.spans import show_span


def test_a_table_has_columns_as_wide_as_what_is_in_them(capsys: pytest.CaptureFixture[str]):
    showing.put_table(("A", "LONG"), [("x", "y"), ("wider", "")])
    assert capsys.readouterr().out == "A      LONG\nx      y\nwider\n"


def test_a_table_without_rows_has_its_headings(capsys: pytest.CaptureFixture[str]):
    showing.put_table(("A", "B"), [])
    assert capsys.readouterr().out == "A  B\n"


def test_what_others_wrote_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]):
    showing.put_table(("A",), [("x\x1b[2Jy\nz\x07",)])
    assert capsys.readouterr().out == "A\nx [2Jy z\n"
    assert showing.one_line("x\tb\u2028c\x9bd") == "x b c d"
    assert showing.one_line("plain ✓ text") == "plain ✓ text"


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1.0 s"),
        (59_900, "59.9 s"),
        (60_000, "1 min 00 s"),
        (3_599_000, "59 min 59 s"),
        (3_600_000, "1 h 00 min"),
        (90_000_000, "1 day 1 h"),
    ],
)
def test_a_span_is_shown_in_the_unit_that_suits_it(ms: int, text: str):
    assert show_span(ms) == text


def test_an_instant_is_shown_in_local_time_or_not_at_all(monkeypatch: pytest.MonkeyPatch):
    import time

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert showing.show_time(0) == ""
        assert showing.show_time(1_767_225_600_000) == "2026-01-01 09:00:00 JST"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_counts_are_sorted():
    assert showing.show_counts({"success": 2, "failed": 1}) == "1 failed, 2 success"
    assert showing.show_counts({}) == ""


def test_json_is_readable_text(capsys: pytest.CaptureFixture[str]):
    showing.put_json({"täg": "✓", "odd": 1 + 2j})
    out = capsys.readouterr().out
    assert "täg" in out
    assert json.loads(out) == {"täg": "✓", "odd": "(1+2j)"}


def test_data_and_talk_go_different_ways(capsys: pytest.CaptureFixture[str]):
    showing.put("data")
    showing.say("talk")
    assert capsys.readouterr() == ("data\n", "talk\n")


def test_every_command_takes_the_same_folder():
    parser = argparse.ArgumentParser()
    showing.add_folder(parser)
    showing.add_json(parser)
    options = parser.parse_args([])
    assert (options.data, options.json) == (None, False)


@pytest.mark.parametrize(("at", "text"), [(-(10**15), "before the year 1"), (1 << 62, "after the year 9999")])
def test_an_instant_that_no_date_fits_is_shown_in_words(at: int, text: str):
    assert showing.show_time(at) == f"{text} ({at} ms)"
