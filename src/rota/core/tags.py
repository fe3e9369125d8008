"""Names that data has: the literal tag of a struct, which stays the same when its class is renamed."""

from msgspec import Struct


def tag_of(value: Struct | type[Struct]) -> str:
    """The tag under which a command, a change or a question is stored, sent and counted."""
    tag = value.__struct_config__.tag
    assert isinstance(tag, str), f"{value!r} has no literal tag"
    return tag
