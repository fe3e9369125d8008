"""What a task of a round is told, and what it tells: as it travels to workers and back.

A round is a run. Each source that has rows in it is a group of tasks, one for each partition: they read rows, ask views
about them, and spread them by the keys of the operators that want them. Each operator is a group of tasks, one for each
partition of its state, which they own: they read it, merge what came for it, and write it to a piece of its own.
"""

from typing import Literal

import msgspec
import pyarrow as pa
from msgspec import Struct

from rota.kinds.query.streams.asking import Asking
from rota.kinds.query.streams.distinct import Distinct, DistinctOperator
from rota.kinds.query.streams.joining import Join, JoinOperator
from rota.kinds.query.streams.operators import Operator
from rota.kinds.query.streams.pieces import Piece, Place
from rota.kinds.query.streams.policies import Policies, Policy
from rota.kinds.query.streams.rounds import Plan
from rota.kinds.query.streams.scanning import Scanned
from rota.kinds.query.streams.watermarks import Clock
from rota.kinds.query.streams.windowing import Window, open_window


class SentOperator(Struct, frozen=True):
    """An operator as it was registered, and the columns of what it reads."""

    kind: Literal["window", "join", "distinct"]
    registered: bytes
    read_as: tuple[bytes, ...]


class SentView(Struct, frozen=True, kw_only=True):
    """A view as a physical plan, of which one leaf is a file that is called `leaf`: there go the rows."""

    name: str
    reads: str
    sql: str
    plan: bytes
    leaf: str
    schema: bytes
    on_error: Policy


class Reading(Struct, frozen=True, kw_only=True):
    """What one task reads of a source: files, or rows that whoever drives the stream has put down."""

    source: str
    partition: str
    schema: bytes
    policies: Policies
    files: Scanned | None = None
    rows: tuple[Piece, Place] | None = None


class Feed(Struct, frozen=True, array_like=True):
    """Rows of a node that an operator wants: they go to parts `first` and on, one for each partition of its state."""

    operator: str
    source: str
    first: int


class Taking(Struct, frozen=True, array_like=True):
    """Where the rows of an operator's input come from: an exchange, and the part for its first partition."""

    source: str
    exchange: int
    first: int


class Owning(Struct, frozen=True, kw_only=True):
    """What the tasks of an operator do: each owns one partition of its state.

    `kept` is where the state is, for each of them. `is_dealt`: what is there is theirs alone; otherwise the state was
    kept in another number of partitions, or by whoever drove the stream, and each takes what is its own. `partitions`
    are those whose rows say what time it is; `follows`: it goes by the operators that it reads from, as their tasks
    tell, and as `mark` says of those that had nothing to do.
    """

    operator: str
    takings: tuple[Taking, ...] = ()
    kept: tuple[tuple[tuple[Piece, Place], ...], ...] = ()
    is_dealt: bool = True
    partitions: dict[str, int] = {}
    follows: tuple[int, ...] = ()
    mark: int | None = None


class Step(Struct, frozen=True, kw_only=True):
    """The work of one group of tasks: it reads (one of `readings` each), or it owns state; then comes the same.

    `aside` is where pieces are put, seen from the stream's `folder`. `wanted` are nodes whose rows leave the stream.
    """

    folder: str
    aside: str
    plan: Plan
    parallelism: int
    readings: tuple[Reading, ...] = ()
    owning: Owning | None = None
    views: tuple[SentView, ...] = ()
    operators: dict[str, SentOperator] = {}
    clocks: dict[str, Clock] = {}
    feeds: tuple[Feed, ...] = ()
    wanted: tuple[str, ...] = ()


class Told(Struct, frozen=True, kw_only=True):
    """What a task tells about itself: little, whatever it has computed.

    `clock` and `mark`: how far its operator has come, and those that read from it. `peaks`: the latest rows that it has
    seen of each partition, by the operator that goes by them. `pieces` are the state that it owns, and rows that leave
    the stream, by the name of where they go.
    """

    clock: Clock | None = None
    mark: int = 0
    peaks: dict[str, dict[str, int]] = {}
    pieces: tuple[Piece, ...] = ()
    counts: dict[str, int] = {}


_encode = msgspec.msgpack.Encoder().encode
encode_step = _encode
decode_step = msgspec.msgpack.Decoder(Step).decode
encode_told = _encode
decode_told = msgspec.msgpack.Decoder(Told).decode


def schema_bytes(schema: pa.Schema) -> bytes:
    """A schema as it travels."""
    return schema.serialize().to_pybytes()


def schema_of(packed: bytes) -> pa.Schema:
    """The schema again."""
    return pa.ipc.read_schema(pa.py_buffer(packed))


def sent_operator(operator: Operator) -> SentOperator:
    """An operator as it travels."""
    kinds: dict[type[Struct], Literal["window", "join", "distinct"]]
    kinds = {Window: "window", Join: "join", Distinct: "distinct"}
    schemas = tuple(schema_bytes(schema) for schema in operator.read_as)
    return SentOperator(kinds[type(operator.registered)], _encode(operator.registered), schemas)


def opened_operator(sent: SentOperator, asking: Asking) -> Operator:
    """The operator again."""
    schemas = [schema_of(each) for each in sent.read_as]
    match sent.kind:
        case "window":
            return open_window(msgspec.msgpack.decode(sent.registered, type=Window), schemas[0], asking)
        case "join":
            join = msgspec.msgpack.decode(sent.registered, type=Join)
            return JoinOperator(join, schemas[0], schemas[1], asking)
        case "distinct":
            return DistinctOperator(msgspec.msgpack.decode(sent.registered, type=Distinct), schemas[0], asking)
