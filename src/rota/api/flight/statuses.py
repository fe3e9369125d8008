"""Refusals as the statuses that drivers know, and nothing about where in our code they were raised."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NoReturn
from urllib.parse import quote

import pyarrow as pa
import pyarrow.flight as fl

from rota.core.errors import Refused, Unavailable

# A message is a header of HTTP/2, in which a letter may take nine bytes, and clients refuse large ones altogether.
MESSAGE_BYTES_MAX = 4_000


class Untold(Exception):
    """Why a traceback is not made."""


class _Curt:
    """For errors that pyarrow has no other way to give the status of: it would append their traceback.

    It asks Python's `traceback` to write it down, which looks at the cause first; if that fails only the name of the
    class is appended.
    """

    @property
    def __cause__(self) -> NoReturn:
        raise Untold


class InvalidRequest(_Curt, pa.ArrowInvalid):
    """INVALID_ARGUMENT."""


class NotFound(_Curt, pa.ArrowKeyError):
    """NOT_FOUND."""


class NotServed(_Curt, pa.ArrowNotImplementedError):
    """UNIMPLEMENTED."""


# The first line whose prefix a code has says what it becomes.
_ERRORS: tuple[tuple[str, Callable[[str], Exception]], ...] = (
    ("auth.role", fl.FlightUnauthorizedError),
    ("auth.tenant", fl.FlightUnauthorizedError),
    ("auth.", fl.FlightUnauthenticatedError),
    ("query.failed", fl.FlightServerError),
    ("query.function_failed", fl.FlightServerError),
    ("query.memory", fl.FlightServerError),
    ("query.source", fl.FlightServerError),
    ("query.unstaged", NotServed),
    ("query.unsupported", NotServed),
    ("run.ended", fl.FlightCancelledError),
    ("run.unknown", NotFound),
    ("service.failed", fl.FlightInternalError),
    ("", InvalidRequest),
)


def status_of(trouble: Refused | Unavailable) -> Exception:
    """What a driver is told."""
    if isinstance(trouble, Unavailable):
        return fl.FlightUnavailableError(shortened(str(trouble)))
    kind = next(kind for prefix, kind in _ERRORS if trouble.code.startswith(prefix))
    return kind(shortened(str(trouble)))


def shortened(text: str) -> str:
    """A message that is small enough to be sent."""
    if len(quote(text)) <= MESSAGE_BYTES_MAX:
        return text
    size = 0
    for number, char in enumerate(text):
        size += len(quote(char))
        if size > MESSAGE_BYTES_MAX:
            return f"{text[:number]} …"
    return text


@contextmanager
def translated(failed: Callable[[str, Exception], Any], what: str) -> Generator[None]:
    """Refusals as statuses; `failed` is told of what is our own mistake, and of it the caller learns nothing more."""
    try:
        yield
    except (Refused, Unavailable) as trouble:
        raise status_of(trouble) from None
    except (fl.FlightError, InvalidRequest, NotFound, NotServed):
        raise
    except Exception as error:
        failed(what, error)
        text = "the front end met an error of its own"
        raise status_of(Refused("service.failed", text, "Its journal says more.")) from None
