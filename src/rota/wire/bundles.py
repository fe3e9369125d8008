"""Bundles: the code of workflows in one file, named by its content.

A bundle is a zip without compression, with its names in order and its times and modes fixed: the same files make the
same bytes on every machine, and so the same version. Compressed bytes depend on who compressed them.

Whoever stores a bundle and whoever unpacks one looks at all of it first: it came from outside.
"""

import re
import stat
import struct
from collections.abc import Iterable
from hashlib import sha256
from io import BytesIO
from typing import IO
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from msgspec import Struct

from rota.core.bounds import BUNDLE_BYTES_MAX, BUNDLE_FILES_MAX, BUNDLE_PACKED_BYTES_MAX
from rota.core.errors import Refused
from rota.core.ids import BlobRef
from rota.wire.names import safe_name

# No run has this name: ids become names without a leading dot.
FOLDER = ".bundles"
MEMBER_BYTES_MAX = 500
SEGMENT_BYTES_MAX = 255

_DIGEST = re.compile(r"[0-9a-f]{64}")
_THE_BEGINNING = (1980, 1, 1, 0, 0, 0)
_UNIX = 3
# The end of a zip: signature, four counts, size and place of its list of members, length of a remark.
_END = struct.Struct("<4s4H2LH")
_END_MARK = b"PK\x05\x06"
_LARGE_MARK = b"PK\x06\x07"
_LARGE_MARK_BYTES = 20
# A member's entry in that list, beside its name; what tools add of their own included.
_ENTRY_BYTES_MAX = 46 + 200
_ENCRYPTED = 1
_PIECE_BYTES = 1 << 20


class BundleFile(Struct, frozen=True):
    """One file of a bundle."""

    name: str
    content: bytes
    is_executable: bool = False


def pack_bundle(files: Iterable[BundleFile]) -> bytes:
    """The bundle of these files."""
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_STORED) as archive:
        for file in sorted(files, key=lambda each: each.name):
            member = ZipInfo(file.name, _THE_BEGINNING)
            member.create_system = _UNIX
            member.external_attr = (stat.S_IFREG | (0o755 if file.is_executable else 0o644)) << 16
            archive.writestr(member, file.content)
    return packed.getvalue()


def bundle_name(tenant: str, digest: str) -> str:
    """Where a tenant's bundle is among the blobs."""
    if not _DIGEST.fullmatch(digest):
        hint = "It is the SHA-256 of the zip, in lower case."
        raise Refused("bundle.digest", f"{digest[:80]!r} is not the digest of a bundle", hint, path="sha256")
    return f"{safe_name(tenant)}/{FOLDER}/{digest}.zip"


def bundle_ref(tenant: str, content: bytes) -> BlobRef:
    """What a graph holds to find its bundle."""
    digest = sha256(content).hexdigest()
    return BlobRef(bundle_name(tenant, digest), len(content), digest)


def check_ref(tenant: str, ref: BlobRef) -> None:
    """Refuse a graph that would have its workers fetch something else, or something of another tenant."""
    if ref.name != bundle_name(tenant, ref.sha256) or not 0 < ref.size <= BUNDLE_PACKED_BYTES_MAX:
        text = f"{ref.name[:200]!r} is not a bundle of tenant {tenant!r}"
        raise Refused("bundle.unknown", text, "Put the bundle first, and use the reference that was answered.")


def check_bundle(content: bytes) -> None:
    """Refuse what is not a bundle, or would not unpack to what it says."""
    if len(content) > BUNDLE_PACKED_BYTES_MAX:
        raise _too_large(f"{len(content):,} bytes", f"{BUNDLE_PACKED_BYTES_MAX:,}")
    _check_end(content[-(_END.size + _LARGE_MARK_BYTES) :])
    try:
        with ZipFile(BytesIO(content)) as archive:
            for member in check_members(archive):
                with archive.open(member) as file:
                    _read_through(file)
    except (BadZipFile, NotImplementedError, EOFError, ValueError, OSError, struct.error) as error:
        raise _bad(f"it is not a zip that can be read: {error}") from None


def check_members(archive: ZipFile) -> list[ZipInfo]:
    """The files in an archive, all of which may be unpacked below a folder. Raises Refused, and names the one."""
    found: list[ZipInfo] = []
    names: set[str] = set()
    folders: set[str] = set()
    total = 0
    for member in archive.infolist():
        name = member.filename
        check_member(name.removesuffix("/"))
        kind = stat.S_IFMT(member.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise _bad(f"{name!r} is neither a file nor a folder", "Links and devices are not unpacked.")
        if member.flag_bits & _ENCRYPTED or member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise _bad(f"{name!r} is encrypted, or packed in a way that is not read here", "Use store or deflate.")
        if name.removesuffix("/") in names:
            raise _bad(f"{name!r} is in it twice")
        names.add(name.removesuffix("/"))
        parts = name.removesuffix("/").split("/")
        folders.update("/".join(parts[:length]) for length in range(1, len(parts)))
        if member.is_dir():
            folders.add(name.removesuffix("/"))
            continue
        found.append(member)
        total += member.file_size
        if len(found) > BUNDLE_FILES_MAX:
            raise _too_large(f"more than {BUNDLE_FILES_MAX:,} files", f"{BUNDLE_FILES_MAX:,}")
        if total > BUNDLE_BYTES_MAX:
            raise _too_large(f"more than {BUNDLE_BYTES_MAX:,} bytes unpacked", f"{BUNDLE_BYTES_MAX:,}")
    for member in found:
        if member.filename in folders:
            raise _bad(f"{member.filename!r} is a file and a folder")
    return found


def check_member(name: str) -> None:
    """Refuse a name that a file of a bundle cannot have."""
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in name or not name.isprintable():
        raise _bad(f"{name[:200]!r} is no name for a file in it", "Names are relative, without `..` and `\\`.")
    if len(name.encode("utf-8", "surrogatepass")) > MEMBER_BYTES_MAX or any(
        len(part.encode("utf-8", "surrogatepass")) > SEGMENT_BYTES_MAX for part in parts
    ):
        raise _bad(f"{name[:100]!r}… is too long a name", f"Use at most {MEMBER_BYTES_MAX} bytes.")


def _check_end(end: bytes) -> None:
    """Look at how many members there are before a list of them is made: it could be a million."""
    if len(end) < _END.size:
        raise _bad("it is not a zip")
    mark, _, _, _, count, listed_bytes, _, remark = _END.unpack(end[-_END.size :])
    if mark != _END_MARK or remark or _LARGE_MARK in end[: -_END.size]:
        raise _bad("it does not end like a zip without remarks that fits 32 bits")
    if count > 2 * BUNDLE_FILES_MAX or listed_bytes > 2 * BUNDLE_FILES_MAX * (_ENTRY_BYTES_MAX + MEMBER_BYTES_MAX):
        raise _too_large(f"{count:,} members", f"{BUNDLE_FILES_MAX:,}")


def _read_through(file: IO[bytes]) -> None:
    """Read to the end; the zip's own sum is compared there."""
    while file.read(_PIECE_BYTES):
        pass


def _bad(text: str, hint: str = "") -> Refused:
    return Refused("bundle.bad", f"this bundle cannot be used: {text}", hint, path="bundle")


def _too_large(what: str, most: str) -> Refused:
    hint = "Leave out what the code does not need: name it in .rotaignore."
    return Refused("bundle.size", f"this bundle has {what}; at most {most} are taken", hint, path="bundle")
