"""How content is named where it is read and written piece by piece, and which instance it is asked of.

`[instance/]blobs/{hash}/{size}` is read, `[instance/]uploads/{upload}/blobs/{hash}/{size}[/whatever]` written. An
instance may have slashes in it, and no part that has a meaning of its own; some clients begin with a slash.
"""

from typing import Final

from msgspec import Struct

from rota.core.errors import Refused
from rota.core.ids import Digest
from rota.wire.reapi.digests import check_digest
from rota.wire.reapi.limits import INSTANCE_CHARS_MAX, UPLOAD_CHARS_MAX

BLOBS: Final = "blobs"
UPLOADS: Final = "uploads"
COMPRESSED: Final = "compressed-blobs"
# No instance has these among its parts: the API gives them a meaning.
RESERVED: Final = (BLOBS, UPLOADS, COMPRESSED, "actions", "actionResults", "operations", "capabilities")
# Functions whose names stand before their digests.
_NAMED_FUNCTIONS: Final = ("blake3", "sha256tree", "gitsha1")
_SIZE_CHARS_MAX: Final = 19
_SHOWN_CHARS: Final = 120


class BlobName(Struct, frozen=True):
    """Content that is to be read."""

    instance: str
    digest: Digest


class UploadName(Struct, frozen=True):
    """Content that is to be written; `upload` is the client's own name for this try."""

    instance: str
    upload: str
    digest: Digest


def blob_name(instance: str, digest: Digest) -> str:
    """The name under which content is read."""
    return _under(instance, f"{BLOBS}/{digest.hash}/{digest.size}")


def upload_name(instance: str, upload: str, digest: Digest) -> str:
    """The name under which content is written."""
    return _under(instance, f"{UPLOADS}/{upload}/{BLOBS}/{digest.hash}/{digest.size}")


def check_instance(instance: str) -> str:
    """An instance as it was named, without slashes at its ends, or a refusal."""
    name = instance.strip("/")
    if len(name) > INSTANCE_CHARS_MAX or not name.isprintable() or _has_reserved(name.split("/")):
        text = f"{name[:_SHOWN_CHARS]!r} cannot be the name of an instance"
        hint = f"Use at most {INSTANCE_CHARS_MAX} printable characters, and no part that the API gives a meaning."
        raise Refused("instance.unknown", text, hint, path="instance_name")
    return name


def read_blob_name(name: str) -> BlobName:
    """What is to be read."""
    parts = name.split("/")
    place = _find(parts, (BLOBS, COMPRESSED), name)
    if UPLOADS in parts[:place] or len(parts) != place + 3:
        raise _unread(name, "[instance/]blobs/{hash}/{size}")
    return BlobName(check_instance("/".join(parts[:place])), _digest(parts[place + 1 : place + 3], name))


def read_upload_name(name: str) -> UploadName:
    """What is to be written. What follows the size is the client's own business."""
    parts = name.split("/")
    place = _find(parts, (UPLOADS,), name)
    rest = parts[place + 1 :]
    if len(rest) >= 2 and rest[1] == COMPRESSED:
        raise _compressed(name)
    if len(rest) < 4 or rest[1] != BLOBS or not 0 < len(rest[0]) <= UPLOAD_CHARS_MAX:
        raise _unread(name, "[instance/]uploads/{uuid}/blobs/{hash}/{size}")
    return UploadName(check_instance("/".join(parts[:place])), rest[0], _digest(rest[2:4], name))


def _under(instance: str, rest: str) -> str:
    return f"{instance}/{rest}" if instance else rest


def _has_reserved(parts: list[str]) -> bool:
    return any(part in RESERVED for part in parts)


def _find(parts: list[str], words: tuple[str, ...], name: str) -> int:
    for place, part in enumerate(parts):
        if part in words:
            if part == COMPRESSED:
                raise _compressed(name)
            return place
    raise _unread(name, "one with a part called " + words[0])


def _digest(parts: list[str], name: str) -> Digest:
    digits, size = parts
    if digits in _NAMED_FUNCTIONS:
        raise Refused("content.digest", f"digests of {digits} are not used here", "Use SHA256.", path="resource_name")
    if not (size.isascii() and size.isdecimal() and len(size) <= _SIZE_CHARS_MAX):
        raise _unread(name, "one that ends with {hash}/{size}")
    return check_digest(digits, int(size), "resource_name")


def _unread(name: str, form: str) -> Refused:
    text = f"the resource name {name[:_SHOWN_CHARS]!r} cannot be read"
    return Refused("content.digest", text, f"Use {form}.", path="resource_name")


def _compressed(name: str) -> Refused:
    text = f"{name[:_SHOWN_CHARS]!r} names compressed content, and none is served"
    return Refused("content.digest", text, "Send and ask for content as it is.", path="resource_name")
