"""What every question has."""

from msgspec import Struct


class Question(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One read."""

    tenant: str
