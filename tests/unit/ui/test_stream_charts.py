"""The charts of a stream, and the lines that its deeds equal."""

import pytest

from rota.ui.acts.acting import Subject
from rota.ui.acts.streams import STREAM_DEEDS, Restoring, Saving
from rota.ui.lists.streams import lags, rates
from rota.wire.standings import Step, StreamView

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
