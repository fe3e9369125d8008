"""Entries of the log: what one commit changed, as bytes, and how they travel as values of etcd."""

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from rota.core.ids import Epoch, Millis, RunId, RunKey
from rota.core.records import Batch, Key
from rota.ports import StoreRefused
from rota.stores.etcd.rows import AUDIT, TABLES, Row, write_row

# etcd takes requests of 1.5 MB unless it is told otherwise, and keys and compares are in them too.
PART_BYTES = 1024 * 1024

# One part of a run's story: its number, when, and what happened.
Told = tuple[int, Millis, bytes]
# What no record can hold is the fault of whoever sent it, and of nobody else in the batch.
_UNSTORABLE = (AttributeError, KeyError, OverflowError, TypeError, ValueError, msgspec.MsgspecError)


class Revived(Struct, array_like=True):
    """A run that leaves history, with all of it: a segment cannot be changed, and need not be there any more.

    `number` is what its line had in history, and what hides that line from now on.
    """

    number: int
    run: bytes
    tasks: list[bytes]
    growths: list[bytes]
    told: list[Told]


class Entry(Struct, array_like=True):
    """What one commit changed; or, with `expired`, which instant became too long ago to remember."""

    puts: list[Row] = []
    drops: list[Key] = []
    archives: list[RunKey] = []
    stories: list[tuple[str, RunId, Millis, int, Millis, bytes]] = []
    audits: list[bytes] = []
    expired: Millis | None = None
    revives: list[Revived] = []


class Envelope(Struct, array_like=True):
    """The value of an entry's key: who wrote it, and the entry itself or in how many parts it is."""

    epoch: Epoch
    attempt: int
    parts: int
    content: bytes


_encode = msgspec.msgpack.Encoder().encode
_entry_of = msgspec.msgpack.Decoder(Entry).decode
_envelope_of = msgspec.msgpack.Decoder(Envelope).decode


def entry_of(batch: Batch) -> Entry:
    """A batch as an entry, which shares nothing with it. Raises `StoreRefused` for what cannot be stored.

    Runs that leave history are found there by whoever knows it, and not here.
    """
    try:
        puts = [write_row(record) for record in batch.puts]
        stories = [astuple(story) for story in batch.stories]
        audits = [AUDIT.write(audit) for audit in batch.audits]
    except _UNSTORABLE as error:
        raise StoreRefused(f"{type(error).__name__}: {error}") from error
    for key in batch.drops:
        if key[0] not in TABLES:
            raise StoreRefused(f"{key[0]} is no type of record")
    return Entry(puts, list(batch.drops), list(batch.archives), stories, audits)


def pack(entry: Entry) -> bytes:
    """An entry as bytes."""
    try:
        return _encode(entry)
    except _UNSTORABLE as error:
        raise StoreRefused(f"{type(error).__name__}: {error}") from error


def unpack(content: bytes) -> Entry:
    """The entry that was packed. Raises `msgspec.MsgspecError` if it was not."""
    return _entry_of(content)


def seal(envelope: Envelope) -> bytes:
    """An envelope as a value."""
    return _encode(envelope)


def unseal(value: bytes) -> Envelope:
    """The envelope in a value. Raises `msgspec.MsgspecError` if there is none."""
    return _envelope_of(value)
