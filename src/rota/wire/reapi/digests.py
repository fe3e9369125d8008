"""Digests as messages and as ours. Only SHA-256 is spoken here."""

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from rota.core.errors import Refused
from rota.core.ids import Digest
from rota.wire.reapi import remote_execution_pb2 as pb
from rota.wire.reapi.limits import BLOB_BYTES_MAX

EMPTY: Final = Digest(sha256(b"").hexdigest(), 0)
HASH_CHARS: Final = 64
_HASH = re.compile(r"[0-9a-f]{64}")
# Other functions, by how many digits theirs have.
_OTHERS: Final = {32: "MD5", 40: "SHA1", 66: "VSO", 96: "SHA384", 128: "SHA512"}


def digest_of(content: bytes) -> Digest:
    """The digest of some content."""
    return Digest(sha256(content).hexdigest(), len(content))


def as_message(digest: Digest) -> pb.Digest:
    """A digest as it is sent."""
    return pb.Digest(hash=digest.hash, size_bytes=digest.size)


def check_function(function: int) -> None:
    """Refuse a function that is not spoken here; where none is named the digits say which it is."""
    if function not in (pb.DigestFunction.UNKNOWN, pb.DigestFunction.SHA256):
        known = pb.DigestFunction.Value.keys()
        name = known[function] if 0 <= function < len(known) else str(function)
        raise Refused("content.digest", f"digests of {name} are not used here", "Use SHA256.", path="digest_function")


def check_digest(hash: str, size: int, path: str = "") -> Digest:  # noqa: A002 - the API's word, and ours
    """A digest of these two, or a refusal."""
    if not _HASH.fullmatch(hash):
        other = _OTHERS.get(len(hash))
        text = f"{hash[:80]!r} is not a SHA-256" + (f" but has the length of a {other}" if other else "")
        raise Refused("content.digest", text, f"Send {HASH_CHARS} lower-case hexadecimal digits.", path=path)
    if size < 0 or (size == 0) != (hash == EMPTY.hash):
        raise Refused("content.digest", f"{hash[:12]} cannot have {size:,} bytes", path=path)
    if size > BLOB_BYTES_MAX:
        text = f"{hash[:12]} has {size:,} bytes"
        raise Refused("field.size", text, f"Content has at most {BLOB_BYTES_MAX:,}.", path=path)
    return Digest(hash, size)


def read_digest(message: pb.Digest, path: str = "digest") -> Digest:
    """A digest that was sent."""
    return check_digest(message.hash, message.size_bytes, path)


def read_digests(messages: Iterable[pb.Digest], path: str = "digests", first: int = 0) -> list[Digest]:
    """Many at once: what all of them are is looked at together, and one by one only to say what is wrong.

    `first` is the number of the first one, where these are a part of a longer list.
    """
    found = [Digest(message.hash, message.size_bytes) for message in messages]
    if not found or _are_right(found):
        return found
    return [check_digest(digest.hash, digest.size, f"{path}[{first + index}]") for index, digest in enumerate(found)]


def _are_right(digests: list[Digest]) -> bool:
    hashes = [digest.hash for digest in digests]
    sizes = [digest.size for digest in digests]
    if min(sizes) <= 0 or max(sizes) > BLOB_BYTES_MAX or EMPTY.hash in hashes:
        return False
    if not min(map(len, hashes)) == max(map(len, hashes)) == HASH_CHARS:
        return False
    joined = "".join(hashes)
    try:
        # Blanks are passed over, and so leave less; letters may be large.
        return len(bytes.fromhex(joined)) * 2 == len(joined) and joined == joined.lower()
    except ValueError:
        return False
