"""What a stage of a query is made of, as its tasks carry it: a fragment, and the outputs that travel between stages.

The coordinator never looks inside. A fragment is a plan of one stage whose leaves are files, or exchanges that stand
for the outputs of other stages; which files those are is known when an attempt is offered, and `rota.wire.plans` puts
them in (docs/decisions/0016-queries.md).
"""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from rota.wire.targets import Target

QUERY = "query"
# It grows when a worker could misunderstand a fragment, and not for new fields.
FRAGMENT_VERSION = 3

# How a stage reads another: each task its own part; one task, or each, all of it; or all of it, every sorted output by
# itself.
Reading = Literal["hash", "all", "merge"]
Compression = Literal["", "lz4", "zstd"]


# What plans are called, and what they look like.
Texts = tuple[tuple[str, str], ...]


class Exchange(Struct, frozen=True, array_like=True):
    """A leaf of a fragment that stands for the outputs of another stage. `parts` is how many each of them has."""

    stage: str
    reading: Reading
    parts: int = 1


class Hashed(Struct, frozen=True, array_like=True, tag="hash"):
    """The output is in as many parts as the plan's root has partitions; each is for one task of the next stage."""

    parts: int


class Gathered(Struct, frozen=True, array_like=True, tag="all"):
    """The output is one part, for whoever reads all of it."""


class Answered(Struct, frozen=True, array_like=True, tag="answer"):
    """The output is (a piece of) the query's answer: an Arrow stream, as a task's result (`rota.wire.work.Value`).

    `near` is the machine of whoever will read it once, and soon. A large answer then stays with the worker, if it can
    be fetched from there (`KeptAnswer`). Without it, an answer is kept for good. `is_taken`: a task takes all pieces at
    once, so that little of each travels with messages.
    """

    near: str = ""
    is_taken: bool = False


class Written(Struct, frozen=True, array_like=True, tag="write"):
    """The output is a file for each task, put aside where the query writes."""

    target: Target


class Published(Struct, frozen=True, array_like=True, tag="publish"):
    """There is no plan: what the tasks of another stage have put aside is made seen. The answer is how many rows."""

    target: Target
    stage: str


Output = Hashed | Gathered | Answered | Written | Published


class Fragment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The work of one stage: of `tasks` tasks, or of one that runs all partitions of its plan (`is_whole`).

    `plan` is a physical plan of `engine`, or a logical one that its worker plans (`is_logical`). Its exchange leaves
    are Arrow scans of one file that is called `EXCHANGE` and the number of the exchange. `schema` is that of its
    output, as Arrow's IPC has it.
    """

    version: int = FRAGMENT_VERSION
    engine: str
    output: Output
    schema: bytes
    plan: bytes = b""
    # Its name in the graph's bundle, if it is too large to be here.
    bundled: str = ""
    exchanges: tuple[Exchange, ...] = ()
    tasks: int = 1
    is_whole: bool = False
    compression: Compression = ""
    # Whether the plan brings Python functions along.
    has_code: bool = False
    # The buckets that it reads and writes, such as `s3://lake`.
    stores: tuple[str, ...] = ()
    # Where all files are that its plan reads: folders and URLs. Its worker reads no others; None for any.
    places: tuple[str, ...] | None = None
    # Whether it is a step of a stream's round: `plan` is what a task of one is told, with plans of views in it.
    is_step: bool = False
    is_logical: bool = False
    # Settings of the engine that the session has changed (`rota.wire.plans.settings.is_sent`).
    settings: tuple[tuple[str, str], ...] = ()
    # How the whole query is planned, for people: plans by their names. Its last stage has them.
    texts: Texts = ()


# The variable by which a worker tells the process of a task how much memory an engine in it may use.
ENGINE_MEMORY = "ROTA_ENGINE_MEMORY_BYTES"
EXCHANGE = "rota-exchange-"


def is_within(name: str, places: Sequence[str]) -> bool:
    """Whether a file or a place is one of these, or in one of them."""
    if "/../" in f"{name}/":
        return False
    return any(name == place or name.startswith(f"{place.rstrip('/')}/") for place in places)


class Part(Struct, frozen=True, array_like=True):
    """One file of an output: for which task of the next stage, and what is in it. There is none for an empty part."""

    part: int
    bytes: int
    rows: int
    checksum: str = ""


class StageOutput(Struct, frozen=True, array_like=True):
    """What an attempt has written, where, and how it is reached from elsewhere; the result of a task of a stage.

    Files are `<folder>/p<part>.arrow` under the worker's root for exchanges. `root` names that root: whoever has the
    same one opens the file, others ask `url`, which is "" for a root that everybody should have.
    """

    root: str
    folder: str
    parts: tuple[Part, ...] = ()
    url: str = ""
    rows: int = 0
    # How much was read, computed and spilled, by the names of the engine's metrics.
    metrics: tuple[tuple[str, int], ...] = ()
    # What a step of a stream tells about itself.
    told: bytes = b""


# The encoding of a value that is a `KeptAnswer`.
KEPT = "rota.kept"


class KeptAnswer(Struct, frozen=True, array_like=True):
    """A piece of an answer that stayed with the worker: a file as exchanges have them, and the ticket for it."""

    url: str
    folder: str
    part: Part
    ticket: str


_encode = msgspec.msgpack.Encoder().encode
_decode_output = msgspec.msgpack.Decoder(StageOutput).decode


def encode_fragment(fragment: Fragment) -> bytes:
    """The bytes of a task's `work`."""
    return _encode(fragment)


def decode_fragment(work: bytes) -> Fragment:
    """The fragment in a task's `work`."""
    return msgspec.msgpack.decode(work, type=Fragment)


def encode_output(output: StageOutput) -> bytes:
    """What a stage's attempt reports."""
    return _encode(output)


def encode_kept(kept: KeptAnswer) -> bytes:
    """What an attempt reports whose answer stays where it is."""
    return _encode(kept)


def decode_kept(content: bytes) -> KeptAnswer:
    """Where an answer has stayed."""
    return msgspec.msgpack.decode(content, type=KeptAnswer)


def decode_output(result: bytes) -> StageOutput:
    """What a stage's attempt has reported."""
    return _decode_output(result)
