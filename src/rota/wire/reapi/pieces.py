"""Pieces of content on their way in, read without copying what is in them."""

from google.protobuf.message import DecodeError
from msgspec import Struct

from rota.wire.reapi import bytestream_pb2 as bs

# Field 10 of a WriteRequest, a string of bytes. Every client that we know sends it last, as the fields are numbered.
_DATA_TAG = 0x52
_VARINT, _BYTES = 0, 2
_VARINT_BYTES_MAX = 10


class Piece(Struct, frozen=True):
    """A WriteRequest."""

    resource_name: str
    write_offset: int
    finish_write: bool
    data: bytes | memoryview


def read_piece(content: bytes) -> Piece:
    """A piece out of a message. Raises `DecodeError`.

    The message as it came stays in memory for as long as its data does, which has nearly all of it. The usual way would
    copy the data into the message, and out of it again wherever it is looked at.
    """
    at = _find_data(content)
    head = bs.WriteRequest.FromString(content if at is None else content[: at[0]])
    data = head.data if at is None else memoryview(content)[at[1] :]
    return Piece(head.resource_name, head.write_offset, head.finish_write, data)


def _find_data(content: bytes) -> tuple[int, int] | None:
    """Where the field with the data begins, and the data in it, if that is the last there is."""
    at, end = 0, len(content)
    try:
        while at < end:
            begin, tag = at, content[at]
            value, at = _read_varint(content, at + 1)
            if tag & 7 == _BYTES:
                if tag == _DATA_TAG and at + value == end:
                    return begin, at
                at += value
            elif tag & 7 != _VARINT or tag > 0x7F:
                return None
    except (IndexError, DecodeError):
        # Whoever reads all of it says what is wrong.
        return None
    return None


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise DecodeError("a number is too long")
