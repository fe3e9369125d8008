"""The seams to the outside: what the control plane asks of a store, where large things are kept, who makes workers."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from rota.core.demand import Demand
from rota.core.history import AuditsPage, Ended, HistoryQuery, ListAudits, Page
from rota.core.ids import NO_FENCE, BlobRef, Digest, Epoch, Fence, GraphDigest, Millis, RunId, RunKey
from rota.core.model import Capacity, Graph, Pairs
from rota.core.records import Batch, Record, Story


class Fenced(Exception):
    """Another coordinator reigns: the epoch is not the store's any more. Nothing was written."""


class CommitUnknown(Exception):
    """The store did not say whether the commit happened. Memory must be dropped and loaded again."""


class StoreRefused(Exception):
    """The store will not take this very batch, and would not later. Nothing was written."""


class Kept(Struct, frozen=True):
    """What the store still refers to, live or in history.

    Results by the fences of their attempts, runs, and bundles by their names among the blobs.
    """

    fences: frozenset[Fence]
    runs: frozenset[RunKey]
    bundles: frozenset[str]


class Candidate(Struct, frozen=True):
    """Who stands for election: a name for people, and where it is reached if it wins; empty for nowhere."""

    name: str
    grpc: str = ""
    http: str = ""


class StoreReader(Protocol):
    """What can be read of a store without being its writer."""

    async def history(self, query: HistoryQuery) -> Page:
        """Ended runs that moved to history, newest end first."""
        ...

    async def ended(self, tenant: str, run: RunId, created_at: Millis = 0) -> Ended | None:
        """One run of history with its tasks; of several with that id the newest, unless `created_at` says which."""
        ...

    async def graph(self, tenant: str, digest: GraphDigest) -> Graph | None:
        """A definition that is live, or that a run in history was made of."""
        ...

    async def stories(self, tenant: str, run: RunId, created_at: Millis) -> list[Story]:
        """What is told about one run, live or ended, in order."""
        ...

    async def audits(self, query: ListAudits) -> AuditsPage:
        """Who asked for what, the newest first."""
        ...


class Store(StoreReader, Protocol):
    """Where live records, history and stories are kept, and who may write them."""

    async def identity(self) -> str:
        """The identity of this store: random, made once, and the same for every process that ever uses the store.

        Copies and backups have it too. The cluster id and the mark on the blobs are derived from it.
        """
        ...

    async def elect(self, who: Candidate) -> Epoch | None:
        """Become the writer, or not; never blocks. A success bumps the epoch before anything is loaded."""
        ...

    async def holds(self, epoch: Epoch) -> bool:
        """Whether this very hold still stands. Errors are raised, and count as not held."""
        ...

    async def release(self, epoch: Epoch) -> None:
        """Stop being the writer; of no effect for an epoch that has passed."""
        ...

    def load(self, epoch: Epoch) -> AsyncIterator[Record]:
        """All live records."""
        ...

    async def commit(self, epoch: Epoch, batch: Batch) -> None:
        """Write a batch, all or nothing, if the epoch still stands.

        What it revives leaves history first, and is live as it was archived, under the numbers its stories had; the
        rest of the batch comes on top of that. What is not in history, or has begun to be removed from there, is not
        revived, and neither is a run whose id is in use again: that changes nothing.

        Raises Fenced, CommitUnknown or StoreRefused; `rota.core.errors.Unavailable` means that nothing was written
        and the same batch may be tried again.
        """
        ...

    async def kept(self) -> Kept:
        """What is referred to; what is not, and is old, is garbage."""
        ...

    async def tidy(self, epoch: Epoch, now: Millis, keep_ms: Millis) -> int:
        """One bounded slice of housekeeping: finish moving ended runs, remove what ended `keep_ms` ago.

        How many rows that were; zero means that nothing is left to do. May be stopped anywhere and done again.
        """
        ...


class Look(Struct, frozen=True, kw_only=True):
    """What is at the address of a shared store: which server; its name, empty if there is nothing; the last epoch; who
    leads."""

    # Product and version, such as "PostgreSQL 15.4".
    server: str
    identity: str = ""
    epoch: Epoch = Epoch(0)
    leader: Candidate | None = None


class SharedStore(Store, Protocol):
    """A store that several machines use: one of their coordinators leads, and the others follow."""

    async def look(self) -> Look:
        """What is there. Nothing is made or changed."""
        ...

    async def leader(self) -> Candidate | None:
        """Who was elected last and has not given up the lock since; None if nobody holds it.

        A hint for those who ask the wrong one. It may be out of date, and nothing is decided by it.
        """
        ...

    async def vacancy(self) -> None:
        """Wait until the lock may have become free: a hint that spares waiting for the next look.

        It may come late, or when nothing is free, or not at all; whoever waits looks by itself too.
        """
        ...

    async def close(self) -> None:
        """Give back what is held: the lock, connections. May be called twice."""
        ...


class Wanted(Struct, frozen=True):
    """What somebody is to be started for: a task that no registered worker could have."""

    tenant: str
    run: RunId
    demand: Demand


class Child(Protocol):
    """Somebody whom a spawner has started."""

    @property
    def about(self) -> Pairs:
        """What an operator should know of it. No secrets."""
        ...

    async def ended(self) -> str:
        """Wait for its end: how it went wrong, or nothing if it did not."""
        ...

    async def stop(self, patience_s: float) -> None:
        """Have it end: in order within that time, or else anyway."""
        ...


class Spawner(Protocol):
    """Makes more workers, or sessions that claim their work themselves, when there is work that nobody could have."""

    @property
    def name(self) -> str:
        """By which it is known in the settings and in the journal."""
        ...

    def offer(self, wanted: Wanted) -> Capacity:
        """What it would start for this. Whether that could have the work is not for the spawner to say."""
        ...

    async def start(self, wanted: Wanted) -> Child:
        """Start it. Raises OSError, or Refused, if that cannot be done."""
        ...


class Listed(Struct, frozen=True):
    """A blob, or a folder of some, by the last part of its name."""

    name: str
    size: int
    is_folder: bool = False


class Blobs(Protocol):
    """Where large things are kept: logs, results, bundles. The coordinator's memory holds references only."""

    async def put(self, name: str, content: bytes | Path, *, is_durable: bool = True) -> BlobRef:
        """Store content whole under a name, replacing what was there; nobody ever sees a part of it.

        What is not durable is stored sooner, and a loss of power may undo it.
        """
        ...

    async def adopt(self, name: str, path: Path, *, is_durable: bool = True) -> None:
        """Move a file of this machine in under a name, replacing what was there; nobody ever sees a part of it.

        The file is gone afterwards. Where blobs are files on the same disk nothing is copied.
        """
        ...

    def local(self, name: str) -> Path | None:
        """Where a blob lies as a file on this machine, for reading only; None where blobs are no files."""
        ...

    async def get(self, ref: BlobRef) -> bytes:
        """The content, checked against the reference. Raises `BlobLost` if it is gone or was changed."""
        ...

    async def fetch(self, ref: BlobRef, target: Path) -> None:
        """Copy the content to a file, checked like `get`, without holding it in memory."""
        ...

    async def read(self, name: str, offset: int, size: int) -> bytes:
        """A part of a blob of at most 8 MB, unchecked; less than was asked for only at its end. Raises `BlobLost`."""
        ...

    async def list(self, prefix: str) -> list[Listed]:
        """What is directly under a prefix (empty: at the top), blobs and folders, in the order of their names."""
        ...

    async def collect(self, prefix: str, is_wanted: Callable[[str], bool], older_than: Millis) -> int:
        """Remove what is under a prefix, was stored before an instant and nobody refers to; how many that were."""
        ...

    async def drop(self, names: Sequence[str]) -> None:
        """Remove blobs by their names; one that is not there is no trouble."""
        ...


class BlobLost(Exception):
    """A blob that was referred to is gone, or is not what it was."""


class WrongContent(Exception):
    """What was sent is not what its digest says, or the digest is none. Nothing of it is kept."""


class ContentLost(Exception):
    """There is no such content, or it was found damaged and is gone now."""


class ContentFull(Exception):
    """The limit is reached, and everything that is kept is in use. Nothing was stored."""


class Checked(Struct, frozen=True):
    """What a check of all content found: how many were looked at, with how many bytes, and how many were dropped."""

    checked: int
    checked_bytes: int
    damaged: int


class Held(Struct, frozen=True):
    """How much content there is, with how many bytes on the disk, how many there may be, and how much had to go."""

    entries: int
    bytes: int
    bytes_max: int
    evicted: int


class Upload(Protocol):
    """Content on its way in, piece by piece. It is nothing until it is finished."""

    @property
    def committed(self) -> int:
        """From where the next bytes are wanted; the whole size if the content is there already."""
        ...

    async def write(self, offset: int, content: bytes | memoryview) -> None:
        """The next bytes. What was sent before is skipped. Raises `WrongContent` for a gap, or for too many."""
        ...

    async def finish(self) -> None:
        """Everything was sent: check it and let it be seen. Raises `WrongContent` if it is not what was announced."""
        ...

    async def abort(self) -> None:
        """Forget what was sent."""
        ...


class Content(Protocol):
    """The content of builds by its digest, apart for each tenant. The empty content is always there.

    `rota.core.errors.Unavailable` means that the disk was full or failed; nothing was kept.
    """

    def missing(self, tenant: str, digests: Iterable[Digest]) -> list[Digest]:
        """Which of these are not there; the others count as used now. Asks memory only."""
        ...

    async def put(self, tenant: str, digest: Digest, content: bytes) -> None:
        """Keep content that is in memory whole. Raises `WrongContent` or `ContentFull`."""
        ...

    async def get(self, tenant: str, digest: Digest) -> bytes:
        """Content of at most 8 MB, whole. Raises `ContentLost`."""
        ...

    def read(self, tenant: str, digest: Digest, offset: int = 0, limit: int = 0) -> AsyncIterator[bytes]:
        """Content from an offset on, at most `limit` bytes unless that is zero, in pieces of at most 1 MB.

        Raises `ContentLost`, in the middle only if it was damaged meanwhile.
        """
        ...

    def upload(self, tenant: str, digest: Digest, name: str) -> Upload:
        """Begin to send content, or go on with what was sent under the same name.

        What is not finished is forgotten after a while, and by a restart. Several may send the same content at once.
        """
        ...

    def keep_since(self, at: Millis | None) -> None:
        """Nothing that was used at this moment or later may go: the oldest action under way was accepted then."""
        ...

    def held(self) -> Held:
        """How much there is now, and what went since it was opened."""
        ...

    async def check(self) -> Checked:
        """Read everything and drop what is damaged."""
        ...

    async def close(self) -> None:
        """Give everything back. May be called twice."""
        ...


class ActionResults(Protocol):
    """The action cache: results by the digest of the action, apart for each tenant and instance."""

    async def get(self, tenant: str, instance: str, action: Digest) -> bytes | None:
        """The result that is kept, if there is one."""
        ...

    async def put(self, tenant: str, instance: str, action: Digest, result: bytes, fence: Fence = NO_FENCE) -> bool:
        """Keep a result, unless one with a later fence was: then it is not kept. One of a client has no fence, and
        replaces any.
        """
        ...

    async def close(self) -> None:
        """Give everything back. May be called twice."""
        ...
