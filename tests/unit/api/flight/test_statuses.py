"""What drivers are told: the right status, a message that can be sent, and nothing about our code."""

import traceback

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.api.flight.statuses import MESSAGE_BYTES_MAX, InvalidRequest, Untold, shortened, status_of, translated
from rota.core.errors import CODES, Refused, Unavailable


def ignore(what: str, error: Exception) -> None:
    raise AssertionError(f"{what} failed: {error!r}")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("auth.missing", fl.FlightUnauthenticatedError),
        ("auth.wrong", fl.FlightUnauthenticatedError),
        ("auth.role", fl.FlightUnauthorizedError),
        ("auth.tenant", fl.FlightUnauthorizedError),
        ("query.syntax", pa.ArrowInvalid),
        ("query.table", pa.ArrowInvalid),
        ("query.parameter", pa.ArrowInvalid),
        ("query.unsupported", pa.ArrowNotImplementedError),
        ("query.unstaged", pa.ArrowNotImplementedError),
        ("query.failed", fl.FlightServerError),
        ("query.source", fl.FlightServerError),
        ("run.unknown", pa.ArrowKeyError),
        ("run.ended", fl.FlightCancelledError),
        ("service.failed", fl.FlightInternalError),
    ],
)
def test_a_code_becomes_the_status_that_drivers_know(code: str, kind: type[Exception]) -> None:
    assert isinstance(status_of(Refused(code, "why")), kind)


def test_every_code_has_a_status() -> None:
    for code in CODES:
        assert code in str(status_of(Refused(code, "why")))
    assert isinstance(status_of(Unavailable("leader.none", "nobody")), fl.FlightUnavailableError)


def test_an_error_of_ours_is_told_here_and_not_there() -> None:
    told: list[tuple[str, Exception]] = []
    broken = KeyError("secret detail")
    with (
        pytest.raises(fl.FlightInternalError) as caught,
        translated(lambda what, error: told.append((what, error)), "X"),
    ):
        raise broken
    assert told == [("X", broken)]
    assert "secret" not in str(caught.value)
    assert "service.failed" in str(caught.value)


def test_a_refusal_carries_no_trace_of_where_it_was_raised() -> None:
    with pytest.raises(InvalidRequest) as caught, translated(ignore, "X"):
        raise Refused("query.syntax", "no")
    # This is what keeps pyarrow from appending it.
    with pytest.raises(Untold):
        traceback.format_exception(caught.value)


def test_what_is_a_status_already_stays_as_it_is() -> None:
    gone = fl.FlightCancelledError("gone")
    with pytest.raises(fl.FlightCancelledError) as caught, translated(ignore, "X"):
        raise gone
    assert caught.value is gone
    with translated(ignore, "X"):
        pass


@given(st.text(max_size=3_000))
def test_messages_are_small_enough_whatever_is_in_them(text: str) -> None:
    text = text.encode(errors="ignore").decode() * 3
    cut = shortened(text)
    assert cut == text or cut.endswith(" …")
    assert sum(3 if byte > 126 or byte < 32 else 1 for byte in cut.encode()) <= MESSAGE_BYTES_MAX + 20
