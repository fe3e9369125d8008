"""What follows from what a function gave."""

from typing import Any

import pyarrow as pa
import pytest

from rota.running import Fail, Reschedule
from rota.wire.elements import Unforeseen
from rota.wire.work import Branches, Sensor
from rota.worker.runners.sequels import ask_again, put_together, skipped_by, widths

BRANCHES = Branches((("a", ("a", "join")), ("b", ("b",)), ("load", ("c",))), ("a", "b", "c", "join"))


@pytest.mark.parametrize(
    ("value", "skips"),
    [
        ("a", ("b", "c")),
        (["a", "b"], ("c",)),
        (("a", "load"), ("b",)),
        ("load", ("a", "b", "join")),
        (None, ("a", "b", "c", "join")),
        ([], ("a", "b", "c", "join")),
        (["a", "b", "load"], ()),
    ],
    ids=repr,
)
def test_a_branch_skips_what_it_did_not_choose_and_nobody_chosen_leads_to(
    value: object, skips: tuple[str, ...]
) -> None:
    assert skipped_by(BRANCHES, value) == skips


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("d", r"'d'.*'a', 'b', 'load'"),
        ("join", r"'join'.*'a', 'b', 'load'"),
        (5, r"\bNone\b.*\bint$"),
        (["a", 5], r"\bNone\b.*\blist$"),
        (True, r"\bNone\b.*\bbool$"),
    ],
    ids=repr,
)
def test_a_choice_that_there_is_not_is_an_error_that_names_those_there_are(value: object, said: str) -> None:
    with pytest.raises(Unforeseen, match=said):
        skipped_by(BRANCHES, value)


@pytest.mark.parametrize("value", [0, "", [], None, False])
def test_a_condition_skips_all_unless_it_holds(value: object) -> None:
    condition = Branches(unless=("a", "b"), is_condition=True)
    assert skipped_by(condition, value) == ("a", "b")
    assert skipped_by(condition, "yes") == ()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([1, 2, 3], (("down", 3), ("wide", 6))),
        ((1,), (("down", 1), ("wide", 2))),
        ({"a": 1}, (("down", 1), ("wide", 2))),
        (range(4), (("down", 4), ("wide", 8))),
        ([], (("down", 0), ("wide", 0))),
    ],
    ids=repr,
)
def test_widths_are_the_number_of_elements_times_what_there_are_of_each(value: object, said: Any) -> None:
    assert widths((("down", 1), ("wide", 2)), value) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "'down'.*nothing"),
        ("text", r"'down'.*\bstr$"),
        ({1, 2}, r"'down'.*\bset$"),
        ([0] * 5_001, "'wide' would be 10,002 tasks, and 10,000 are the most"),
    ],
    ids=["nothing", "text", "set", "too many"],
)
def test_what_cannot_be_mapped_over_is_named(value: object, said: str) -> None:
    with pytest.raises(Unforeseen, match=said):
        widths((("down", 1), ("wide", 2)), value)


@pytest.mark.parametrize(
    ("first_started_at", "now", "resumes_at"),
    [
        (0, 1_000_000, 1_060_000),
        (1_000_000, 1_000_000, 1_060_000),
        (1_000_000, 1_270_000, 1_300_000),
        (1_000_000, 1_300_000, None),
        (1_000_000, 9_000_000, None),
    ],
    ids=["first", "at once", "last", "over", "long over"],
)
def test_a_sensor_looks_again_until_its_time_is_over(first_started_at: int, now: int, resumes_at: int | None) -> None:
    raised = ask_again(Sensor(60_000, 300_000), first_started_at, now)
    if resumes_at is None:
        assert isinstance(raised, Fail)
    else:
        assert isinstance(raised, Reschedule)
        assert raised.resume_at(now) == resumes_at


def test_tables_of_stages_are_put_together_in_their_order() -> None:
    pieces = {"totals.stage-2[0]": pa.table({"n": [1, 2]}), "totals.stage-2[1]": pa.table({"n": [3]})}
    assert put_together(pieces).to_pylist() == [{"n": 1}, {"n": 2}, {"n": 3}]


@pytest.mark.parametrize(("piece", "said"), [(None, "nothing"), (5, "a int")])
def test_a_piece_that_is_no_table_fails_for_good_and_names_who_gave_it(piece: object, said: str) -> None:
    with pytest.raises(Fail, match=rf"'totals.stage-2\[1\]' gave {said}"):
        put_together({"totals.stage-2[0]": pa.table({"n": [1]}), "totals.stage-2[1]": piece})
