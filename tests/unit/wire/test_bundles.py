"""Bundles: the same files make the same bytes, and nothing that came from outside is unpacked unseen."""

import stat
import struct
from collections.abc import Callable
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZIP_LZMA, ZipFile, ZipInfo

import pytest

from rota.core.bounds import BUNDLE_BYTES_MAX, BUNDLE_FILES_MAX, BUNDLE_PACKED_BYTES_MAX
from rota.core.errors import Refused
from rota.core.ids import BlobRef
from rota.wire.bundles import BundleFile, bundle_name, bundle_ref, check_bundle, check_members, check_ref, pack_bundle
from tests.refusals import refused

FILES = (BundleFile("etl.py", b"import rota\n"), BundleFile("lib/run.sh", b"#!/bin/sh\n", is_executable=True))


def zip_of(*members: tuple[str | ZipInfo, bytes], compression: int = ZIP_DEFLATED) -> bytes:
    packed = BytesIO()
    with ZipFile(packed, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return packed.getvalue()


def link(name: str, to: str) -> tuple[ZipInfo, bytes]:
    member = ZipInfo(name)
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    return member, to.encode()


def device(name: str) -> tuple[ZipInfo, bytes]:
    member = ZipInfo(name)
    member.external_attr = (stat.S_IFCHR | 0o666) << 16
    return member, b""


def test_the_same_files_make_the_same_bytes_in_whatever_order_they_come():
    assert pack_bundle(FILES) == pack_bundle(reversed(FILES))
    # Also tomorrow and elsewhere: a digest that changes would make a new version of everything.
    assert bundle_ref("acme", pack_bundle(FILES)).sha256 == (
        "9a70c0896e3b79b6af63fa9d57709d39e52b8bad4d0a84711d80bf8526ba2fa8"
    )


def test_what_is_packed_comes_out_with_its_names_and_modes():
    packed = pack_bundle(FILES)
    check_bundle(packed)
    with ZipFile(BytesIO(packed)) as archive:
        members = check_members(archive)
        assert [(member.filename, member.external_attr >> 16 & 0o777) for member in members] == [
            ("etl.py", 0o644),
            ("lib/run.sh", 0o755),
        ]
        assert archive.read("etl.py") == b"import rota\n"


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip at all, but long enough to have an end" * 3])
def test_what_is_no_zip_is_refused(content: bytes):
    with pytest.raises(Refused) as caught:
        check_bundle(content)
    assert caught.value.code == "bundle.bad"


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../up.py", "a/../../up.py", "a//b.py", "./a.py", "a\\b.py", "a\x07.py", "..", "x" * 600]
)
def test_a_name_that_leads_elsewhere_is_refused(name: str):
    with pytest.raises(Refused) as caught:
        check_bundle(zip_of(("fine.py", b""), (name, b"")))
    assert caught.value.code == "bundle.bad"
    assert name[:5] in caught.value.reason or repr(name)[1:6] in caught.value.reason


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([link("etc", "/etc")], "'etc' .*neither"),
        ([device("null")], "'null' .*neither"),
        ([("a", b""), ("a/b", b"")], "'a' .*folder"),
        ([("a/b", b""), ("a", b"")], "'a' .*folder"),
    ],
)
def test_a_member_that_is_no_file_is_refused(members: list[tuple[str | ZipInfo, bytes]], why: str):
    with pytest.raises(Refused, match=why) as caught:
        check_bundle(zip_of(*members))
    assert caught.value.code == "bundle.bad"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_there_twice_is_refused():
    with pytest.raises(Refused, match="twice"):
        check_bundle(zip_of(("a.py", b"1"), ("a.py", b"2")))


def test_a_way_of_packing_that_is_not_known_everywhere_is_refused():
    with refused("bundle.bad", "'a.py'", "deflate", path="bundle"):
        check_bundle(zip_of(("a.py", b"1"), compression=ZIP_LZMA))


def test_folders_in_a_zip_of_somebody_elses_making_are_no_trouble():
    check_bundle(zip_of(("a/", b""), ("a/b.py", b"x = 1\n")))


@pytest.mark.slow
def test_a_small_zip_that_unpacks_to_much_is_refused():
    piece = bytes(BUNDLE_BYTES_MAX // 4)
    bomb = zip_of(*((f"{number}.bin", piece) for number in range(5)))
    assert len(bomb) < BUNDLE_PACKED_BYTES_MAX
    with pytest.raises(Refused) as caught:
        check_bundle(bomb)
    assert caught.value.code == "bundle.size"


def test_more_files_than_there_may_be_are_refused():
    with pytest.raises(Refused) as caught:
        check_bundle(pack_bundle(BundleFile(f"{number}.py", b"") for number in range(BUNDLE_FILES_MAX + 1)))
    assert caught.value.code == "bundle.size"


def test_a_list_of_members_that_would_fill_memory_is_not_read():
    packed = bytearray(zip_of(("a.py", b"")))
    struct.pack_into("<H", packed, len(packed) - 12, 65_000)
    with pytest.raises(Refused) as caught:
        check_bundle(bytes(packed))
    assert caught.value.code == "bundle.size"


def _flip_content(packed: bytes) -> bytes:
    return packed.replace(b"x = 1", b"x = 2", 1)


def _cut(packed: bytes) -> bytes:
    return packed[: len(packed) // 3] + packed[2 * len(packed) // 3 :]


@pytest.mark.parametrize("damage", [_flip_content, _cut, lambda packed: packed + b"more"])
def test_a_damaged_bundle_is_refused(damage: Callable[[bytes], bytes]):
    packed = pack_bundle((BundleFile("a.py", b"x = 1\n" * 100),))
    with pytest.raises(Refused) as caught:
        check_bundle(damage(packed))
    assert caught.value.code == "bundle.bad"


def test_a_bundle_has_a_name_that_no_run_can_have():
    assert bundle_name("a/b", "0" * 64) == f"a%2Fb/.bundles/{'0' * 64}.zip"


@pytest.mark.parametrize("digest", ["", "0" * 63, "0" * 65, "A" * 64, "../" + "0" * 61])
def test_what_is_no_digest_names_no_bundle(digest: str):
    with pytest.raises(Refused) as caught:
        bundle_name("acme", digest)
    assert caught.value.code == "bundle.digest"


@pytest.mark.parametrize(
    "ref",
    [
        BlobRef(bundle_name("other", "0" * 64), 10, "0" * 64),
        BlobRef(bundle_name("acme", "0" * 64), 10, "1" * 64),
        BlobRef("acme/run/task/1-2/result", 10, "0" * 64),
        BlobRef(bundle_name("acme", "0" * 64), 0, "0" * 64),
        BlobRef(bundle_name("acme", "0" * 64), BUNDLE_PACKED_BYTES_MAX + 1, "0" * 64),
    ],
)
def test_a_reference_to_what_is_not_ones_own_bundle_is_refused(ref: BlobRef):
    with pytest.raises(Refused) as caught:
        check_ref("acme", ref)
    assert caught.value.code == "bundle.unknown"
