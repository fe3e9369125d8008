"""The charts of a stream, and the lines that its deeds equal."""

import re

import pytest

from rota.ui.acts.acting import Subject
from rota.ui.acts.streams import STREAM_DEEDS, Restoring, Saving
from rota.ui.assets import Assets
from rota.ui.lists.streams import FRAGMENTS, lags, rates
from rota.ui.rendering import Renderer
from rota.ui.words import show_utc
from rota.wire.standings import Progress, Step, StreamView

NOW = 1_700_000_000_000


def view(**more) -> StreamView:
    return StreamView(name="clicks", folder="/s/clicks", state="running", **more)


def test_rows_a_second_are_counted_from_step_to_step_and_end_with_now():
    steps = (Step(at=NOW - 60_000, rows=9), Step(at=NOW - 30_000, rows=3_000), Step(at=NOW - 20_000, rows=5_000))
    found = rates(view(steps=steps, rows_per_s=250.4), NOW)
    assert (found.most, found.last) == ("500", "250")
    assert len(found.line.split()) == 3, "before the first step nothing is known"


def test_a_stream_without_a_past_has_empty_charts():
    assert (rates(view(), NOW).area, rates(view(), NOW).most) == ("", "0")
    assert lags(view(), NOW).area == ""


def test_lag_leaves_out_when_there_was_none():
    steps = (Step(at=NOW - 60_000), Step(at=NOW - 30_000, lag_ms=9_000))
    assert (lags(view(steps=steps, lag_ms=1_000), NOW).most, lags(view(steps=steps), NOW).last) == ("9.0 s", "9.0 s")


@pytest.mark.parametrize(
    ("name", "form", "line"),
    [
        ("pause", None, "rota stream pause clicks"),
        ("resume", None, "rota stream resume clicks"),
        ("savepoint", None, "rota stream savepoint clicks NAME"),
        ("savepoint", Saving(name=" a b ", stop="stop"), "rota stream savepoint clicks 'a b' --stop"),
        ("restore", Restoring(round="41"), "rota stream restore clicks 41"),
    ],
)
def test_a_deed_says_the_command_that_it_equals(name: str, form: object, line: str):
    subject = Subject(name="stream clicks", at="/x", url="/x", standing="", view=view())
    (deed,) = [each for each in STREAM_DEEDS if each.name == name]
    assert deed.line(subject, form) == line


def test_what_is_offered_goes_by_how_it_stands():
    def offered(**more) -> list[str]:
        return [deed.name for deed in STREAM_DEEDS if not deed.objection(view(**more))]

    assert offered() == ["pause", "savepoint"]
    assert offered(paused=True, restorable=(1,)) == ["resume", "savepoint", "restore"]
    broken = StreamView(name="x", folder="/x", state="broken", paused=True, savepoints=("a",))
    assert [deed.name for deed in STREAM_DEEDS if not deed.objection(broken)] == []


@pytest.mark.parametrize("at", [-(1 << 63), -62_135_596_800_001, -1, 0, NOW, 253_402_300_800_000, (1 << 63) - 1])
def test_a_stream_is_shown_whatever_time_it_is_in_it(at: int):
    steps = (Step(at=at, rows=1, lag_ms=abs(at)), Step(at=NOW), Step(at=-at, lag_ms=5))
    progress = (Progress(operator="w", watermark_at=at, lag_ms=max(0, NOW - at)),)
    shown = view(told_at=at, published_at=at, holder="h", progress=progress, steps=steps, lag_ms=abs(at))
    given = {"stream": shown, "streams": [shown], "offers": [], "rates": rates(shown, NOW), "lags": lags(shown, NOW)}
    given |= {"rows_per_s": 0, "left_out": 0, "folders": ()}
    templates = {name: f"stream_{name}.html" for name in FRAGMENTS} | {"all": "streams_table.html"}
    found = {each.id: each.html for each in Renderer(Assets(), "1").fragments(templates, given)}
    assert ('data-ago="' in found["all"]) == (at in (-1, NOW)), "a browser has no date for it, either"
    if at:
        assert show_utc(at) in found["progress"]


def test_why_a_source_is_not_read_is_the_first_thing_that_is_said():
    progress = (Progress(operator="paid", waiting=101, waiting_max=200, reads_only=("payments/0",)),)
    given = {"stream": view(progress=progress), "offers": []}
    (head,) = Renderer(Assets(), "1").fragments({"head": "stream_head.html"}, given)
    assert re.search(r"\b101\b.*\b200\b.*\bpaid\b.*\bpayments/0\b", head.html)
