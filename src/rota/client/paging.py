"""Where a page of runs ended, as text that only we read."""

from typing import Self

import msgspec
from msgspec import Struct

from rota.core.errors import Refused
from rota.core.ids import Millis
from rota.core.questions import RunView


class Place(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """After the live run `run`; or in history, where `past` is the store's own word for it."""

    run: str = ""
    created_at: Millis = 0
    is_past: bool = False
    past: str = ""

    @classmethod
    def of(cls, view: RunView) -> Self:
        """After this live run."""
        return cls(run=view.id, created_at=view.created_at)

    @classmethod
    def read(cls, text: str) -> Self:
        """What `write` wrote; the beginning if it is empty."""
        if not text:
            return cls()
        try:
            return msgspec.json.decode(bytes.fromhex(text), type=cls)
        except (ValueError, msgspec.DecodeError):
            hint = "Take it from `next` of the page before."
            raise Refused("field.value", f"{text[:40]!r} is not where a page ended", hint, path="after") from None

    def write(self) -> str:
        """As text."""
        return msgspec.json.encode(self).hex()


def is_after(view: RunView, place: Place) -> bool:
    """Whether a live run comes after a place, the newest being first."""
    return not place.run or (view.created_at <= place.created_at and view.id != place.run)
