"""Numbers and names that identify things: time, epochs, fences, keys.

A fence is one integer: the epoch in the high bits, the lease number below. It fits a signed 64-bit column and is a
string in JSON, so that no reader rounds it. Fences order all leases ever granted, across restarts and leaders.
"""

from hashlib import blake2b
from typing import NewType

from msgspec import Struct

Millis = int

# Ids are types of their own, so that a type checker tells a run from a worker. At run time they are text and numbers:
# whatever comes from outside becomes an id where it is decoded, or by a call such as `RunId(text)`.
RunId = NewType("RunId", str)
# The name of a task in its graph; of one of several that share a node, with its number: `extract[3]`.
TaskId = NewType("TaskId", str)
WorkerId = NewType("WorkerId", str)
# One process of a worker.
Incarnation = NewType("Incarnation", str)
# What a graph is known by: the SHA-256 of its content.
GraphDigest = NewType("GraphDigest", str)
ScheduleId = NewType("ScheduleId", str)
# What a client chose for a command, so that a repeat is known as one.
CommandId = NewType("CommandId", str)
Epoch = NewType("Epoch", int)
Fence = NewType("Fence", int)

# A key is (tenant, id): the tenant always comes first, and no look-up can leave it out.
RunKey = tuple[str, RunId]
WorkerKey = tuple[str, WorkerId]
GraphKey = tuple[str, GraphDigest]
ScheduleKey = tuple[str, ScheduleId]

# Whose everything is where nobody says otherwise.
DEFAULT_TENANT = "default"

LEASE_NUMBER_BITS = 40
LEASE_NUMBER_MAX = (1 << LEASE_NUMBER_BITS) - 1
EPOCH_MAX = (1 << 23) - 1

NO_FENCE = Fence(0)
NO_WORKER = WorkerId("")
NO_RUN = RunId("")
NO_GRAPH = GraphDigest("")


class BlobRef(Struct, frozen=True, array_like=True, tag="blob"):
    """A large thing by its name, with what it takes to know that it is still the same."""

    name: str
    size: int
    sha256: str


class Digest(Struct, frozen=True, gc=False):
    """Content of a build by what is in it: its SHA-256 in lower-case hexadecimal, and how many bytes it has."""

    hash: str
    size: int


def make_fence(epoch: Epoch, number: int) -> Fence:
    """The fence of lease `number` in `epoch`."""
    assert 0 < epoch <= EPOCH_MAX, "an epoch outgrew its 23 bits; the store issues them one by one"
    assert 0 < number <= LEASE_NUMBER_MAX, "a lease number outgrew its 40 bits"
    return Fence((epoch << LEASE_NUMBER_BITS) | number)


def fence_epoch(fence: Fence) -> Epoch:
    """The reign in which a fence was issued."""
    return Epoch(fence >> LEASE_NUMBER_BITS)


def fence_number(fence: Fence) -> int:
    """The lease number inside its epoch."""
    return fence & LEASE_NUMBER_MAX


def show_fence(fence: Fence) -> str:
    """A fence for people: `epoch.number`."""
    return f"{fence_epoch(fence)}.{fence_number(fence)}"


def derive(salt: int, *parts: object) -> int:
    """A 64-bit number that depends only on the command's salt and `parts`: the core's one source of chance."""
    text = "\x1f".join([str(salt), *[str(part) for part in parts]])
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
