"""What a test expects of a refusal: its code, where it points and which names it mentions; never its sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rota.core.errors import Refused, Unavailable


@contextmanager
def refused(code: str, *mentioned: str, path: str | None = None) -> Iterator[pytest.ExceptionInfo[Refused]]:
    """The block raises Refused with this code; its text mentions these names, and it points at this path, if given."""
    with pytest.raises(Refused) as caught:
        yield caught
    check_refusal(caught.value, code, *mentioned, path=path)


def check_refusal(found: Refused | Unavailable, code: str, *mentioned: str, path: str | None = None) -> None:
    text = str(found)
    assert found.code == code, text
    assert [each for each in mentioned if each not in text] == [], text
    if path is not None:
        assert isinstance(found, Refused)
        assert found.path == path, text
