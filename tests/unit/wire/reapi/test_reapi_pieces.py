"""Pieces of content are read as the messages that they are, whatever way they are written."""

from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from rota.wire.reapi import bytestream_pb2 as bs
from rota.wire.reapi.pieces import Piece, read_piece


def as_message(content: bytes) -> tuple[str, int, bool, bytes] | None:
    try:
        message = bs.WriteRequest.FromString(content)
    except DecodeError:
        return None
    return message.resource_name, message.write_offset, message.finish_write, message.data


def as_piece(content: bytes) -> tuple[str, int, bool, bytes] | None:
    try:
        piece = read_piece(content)
    except DecodeError:
        return None
    return piece.resource_name, piece.write_offset, piece.finish_write, bytes(piece.data)


fields = st.builds(
    bs.WriteRequest,
    resource_name=st.text(max_size=5),
    write_offset=st.integers(-(2**63), 2**63 - 1),
    finish_write=st.booleans(),
    data=st.binary(max_size=300),
).map(bs.WriteRequest.SerializeToString)


@given(fields)
def test_a_piece_is_what_its_message_says(content: bytes) -> None:
    assert as_piece(content) == as_message(content)


@given(st.lists(st.one_of(fields, st.binary(max_size=12)), max_size=3).map(b"".join))
@example(b"\x52\x01a\x10\x05")  # data before the rest
@example(b"\x52\x01a\x52\x02bc")  # data twice
@example(b"\x52\x05abc")  # data that ends too early
@example(b"\x52")  # a tag and nothing else
@example(b"\x10" + b"\xff" * 11)  # a number without an end
@example(b"\xa2\x06\x01x\x52\x01a")  # a field that nobody knows, with a long tag
@example(b"\x0a\x01\xff\x52\x01a")  # a name that is no text
def test_bytes_in_any_order_are_read_as_the_library_reads_them(content: bytes) -> None:
    assert as_piece(content) == as_message(content)


def test_what_is_in_a_piece_is_not_copied() -> None:
    content = bs.WriteRequest(write_offset=7, data=b"x" * 100).SerializeToString()
    piece = read_piece(content)
    assert isinstance(piece, Piece)
    assert isinstance(piece.data, memoryview)
    assert piece.data.obj is content
