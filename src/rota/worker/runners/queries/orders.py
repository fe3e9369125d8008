"""What a worker asks of the process that runs a fragment, and what that answers."""

from typing import Literal

import msgspec
from msgspec import Struct

from rota.wire.queries import Compression, Exchange, Output, Part
from rota.worker.runners.queries.parts import asked_name, part_name

# How the answer is encoded, as the envelope of a value has it; an answer of the query itself is Arrow.
ENDED = "query"
# The parameter by which an order is handed to `fragment.run`.
ORDER = "order"


class Source(Struct, frozen=True, array_like=True):
    """What a task of another stage has written, and where: on this machine, or at a peer."""

    producer: str
    # From the root of the file system, or under the peer's address.
    folder: str
    parts: tuple[Part, ...]
    peer: int | None = None
    # What a step of a stream told.
    told: bytes = b""

    def path(self, part: Part) -> str:
        """Where a part is, as a plan names it."""
        return f"{self.folder}/{part_name(part.part) if self.peer is None else asked_name(part)}"


class Peer(Struct, frozen=True, array_like=True):
    """Another worker, and what is shown to it: good for the files of this query and no others."""

    url: str
    ticket: str


class Order(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt at a fragment."""

    plan: bytes
    # The name of the plan in the graph's bundle, if it was too large to travel.
    bundled: str = ""
    exchanges: tuple[Exchange, ...] = ()
    # For each exchange what the tasks of its stage have written.
    sources: tuple[tuple[Source, ...], ...] = ()
    peers: tuple[Peer, ...] = ()
    # Who vouches for peers (PEM); whom the system trusts, if nothing is said.
    authority: bytes = b""
    # Which task of the stage this is; None if it is all of it.
    task: int | None = None
    output: Output
    schema: bytes
    compression: Compression = ""
    # Whether Python functions in the plan may be opened.
    has_code: bool = False
    # Whether the plan is a logical one.
    is_logical: bool = False
    # Settings of the engine that the session has changed.
    settings: tuple[tuple[str, str], ...] = ()
    # The attempt's own folder, also for what does not fit into memory; and the file for an answer.
    folder: str
    result_file: str
    # Where a file goes that is written for good; and what is published, each file with the number of its task.
    aside: str = ""
    files: tuple[tuple[int, str], ...] = ()
    run: str = ""
    rows: int = 0
    # Whether a large answer stays in the folder.
    keeps_answer: bool = False
    # The buckets that are read or written, the variables by which they are reached, and whether keys are among those.
    stores: tuple[str, ...] = ()
    variables: dict[str, str] = {}
    is_keyed: bool = False
    # Where the files are that may be read; None for any that can be.
    places: tuple[str, ...] | None = None
    # How much memory the engine may use; 0 for all there is.
    memory_bytes: int = 0


class Wrote(Struct, frozen=True, array_like=True, tag="wrote"):
    """The files of the output are there."""

    parts: tuple[Part, ...]
    rows: int
    metrics: tuple[tuple[str, int], ...] = ()
    told: bytes = b""


class Broke(Struct, frozen=True, array_like=True, tag="broke"):
    """Why the fragment failed, and by whose fault."""

    failure: Literal["user", "fatal", "out_of_memory", "input_lost", "internal", "no_room"]
    error: str
    # Tasks whose outputs are gone.
    lost: tuple[str, ...] = ()


Ended = Wrote | Broke

_encode = msgspec.msgpack.Encoder().encode
_decode_order = msgspec.msgpack.Decoder(Order).decode
_decode_ended = msgspec.msgpack.Decoder(Ended).decode


def encode_order(order: Order) -> bytes:
    """An order as a run's parameters, of which it is the only one."""
    return _encode({ORDER: _encode(order)})


def decode_order(packed: bytes) -> Order:
    """The order in such a parameter."""
    return _decode_order(packed)


def encode_ended(ended: Ended) -> bytes:
    """What a process answers."""
    return _encode(ended)


def decode_ended(packed: bytes) -> Ended:
    """What a process has answered."""
    return _decode_ended(packed)
