"""Digests and resource names: what is read from them, what they become, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.errors import Refused
from rota.core.ids import Digest
from rota.wire.reapi import remote_execution_pb2 as pb
from rota.wire.reapi.digests import EMPTY, as_message, check_function, digest_of, read_digest, read_digests
from rota.wire.reapi.limits import BLOB_BYTES_MAX
from rota.wire.reapi.names import (
    RESERVED,
    BlobName,
    UploadName,
    blob_name,
    check_instance,
    read_blob_name,
    read_upload_name,
    upload_name,
)

HASH = "0123456789abcdef" * 4
DIGEST = Digest(HASH, 7)


@pytest.mark.parametrize("instance", ["", "main", "a/b", "a/b/c-d_e.f", "projects/x/instances/default"])
def test_a_name_is_read_as_it_was_written(instance: str):
    assert read_blob_name(blob_name(instance, DIGEST)) == BlobName(instance, DIGEST)
    assert read_upload_name(upload_name(instance, "u-1", DIGEST)) == UploadName(instance, "u-1", DIGEST)


def test_a_slash_in_front_and_words_at_the_end_do_no_harm():
    assert read_blob_name(f"/blobs/{HASH}/7") == BlobName("", DIGEST)
    assert read_upload_name(f"/uploads/u/blobs/{HASH}/7") == UploadName("", "u", DIGEST)
    assert read_upload_name(f"a/uploads/u/blobs/{HASH}/7/dir/file.txt") == UploadName("a", "u", DIGEST)
    assert read_upload_name(f"a/uploads/u/blobs/{HASH}/7/") == UploadName("a", "u", DIGEST)


@pytest.mark.parametrize("word", RESERVED)
def test_an_instance_has_no_part_with_a_meaning_of_its_own(word: str):
    for name in (word, f"a/{word}", f"{word}/b"):
        with pytest.raises(Refused, match=r"instance\.unknown"):
            check_instance(name)


@given(st.text() | st.lists(st.sampled_from(["a", "", "uploads", "blobs", HASH, "7", "u", "-1", "٧"])).map("/".join))
def test_any_text_is_a_name_or_refused(text: str):
    for read in (read_blob_name, read_upload_name):
        try:
            found = read(text)
        except Refused:
            continue
        assert found.digest.hash in text
        assert "/".join(part for part in text.split("/") if part).startswith(found.instance)


def test_many_digests_are_read_as_one_is():
    sent = [as_message(digest_of(b"%d" % number)) for number in range(10)]
    assert read_digests(sent) == [read_digest(message) for message in sent]
    assert read_digests([*sent, as_message(EMPTY)])[-1] == EMPTY
    assert read_digests([]) == []


@given(
    st.lists(st.tuples(st.sampled_from([HASH, EMPTY.hash, "", "x" * 64, HASH[:-1], HASH.upper()]), st.integers(-2, 2)))
)
def test_among_many_a_wrong_digest_is_found_wherever_it_stands(pairs: list[tuple[str, int]]):
    sent = [pb.Digest(hash=digits, size_bytes=size) for digits, size in pairs]
    wrong = None
    for number, message in enumerate(sent):
        try:
            read_digest(message)
        except Refused:
            wrong = number
            break
    if wrong is None:
        assert [(digest.hash, digest.size) for digest in read_digests(sent)] == pairs
    else:
        with pytest.raises(Refused) as refused:
            read_digests(sent, "digests")
        assert refused.value.path == f"digests[{wrong}]"


@pytest.mark.parametrize(
    ("digits", "size", "code", "words"),
    [
        ("a" * 40, 1, "content.digest", "SHA1"),
        ("a" * 128, 1, "content.digest", "SHA512"),
        (HASH, -1, "content.digest", "-1 bytes"),
        (HASH, 0, "content.digest", "0 bytes"),
        (HASH, BLOB_BYTES_MAX + 1, "field.size", "bytes"),
    ],
)
def test_a_refusal_says_what_is_wrong_with_a_digest(digits: str, size: int, code: str, words: str):
    with pytest.raises(Refused, match=words) as refused:
        read_digest(pb.Digest(hash=digits, size_bytes=size))
    assert refused.value.code == code


def test_only_one_function_is_spoken():
    check_function(pb.DigestFunction.UNKNOWN)
    check_function(pb.DigestFunction.SHA256)
    for function in (*range(2, 11), 77, -1):
        with pytest.raises(Refused, match=r"content\.digest"):
            check_function(function)
