"""Names of keys under the store's prefix, and of blobs under theirs.

Names of blobs hold the epoch and a number that grows within it, so that nobody ever writes one that another reads:
what a deposed writer still stores is under names that nothing points to.
"""

from rota.core.ids import Epoch

# Beside the mark, where no tenant has anything.
BLOBS = ".rota/store"
SNAPSHOTS = f"{BLOBS}/snapshot"
HISTORY = f"{BLOBS}/history"

_NO_EPOCH = Epoch(0)


class Keys:
    """The keys of one store."""

    def __init__(self, prefix: str) -> None:
        self.prefix = f"{prefix}/".encode()
        # These are read together, at one instant.
        self.state = self.prefix + b"state/"
        # What wrote all this, and the name of the store.
        self.format = self.state + b"format"
        self.identity = self.state + b"identity"
        # There once the blobs have the store's mark.
        self.marked = self.state + b"marked"
        # Who may write: the epoch decides, the leader is a hint and goes with its lease.
        self.epoch = self.state + b"epoch"
        self.leader = self.state + b"leader"
        # The number of the newest entry of the log, and where the snapshot is that it begins with.
        self.head = self.state + b"head"
        self.checkpoint = self.state + b"checkpoint"

    def entry(self, number: int) -> bytes:
        """An entry of the log, by its number."""
        return self.prefix + b"log/%016x" % number

    def part(self, number: int, epoch: Epoch = _NO_EPOCH, attempt: int = 0, part: int = 0) -> bytes:
        """A part of an entry that is too large for one key. Attempts at one number never share a name."""
        return self.prefix + b"part/%016x/%06x-%08x/%06x" % (number, epoch, attempt, part)

    def number_of(self, entry: bytes) -> int:
        """The number of an entry, from its key."""
        return int(entry.rpartition(b"/")[2], 16)


def after(prefix: bytes) -> bytes:
    """The first key that does not begin with a prefix which ends in a slash."""
    return prefix[:-1] + b"0"


def blob_name(folder: str, epoch: Epoch, number: int, what: str) -> str:
    """A blob that one writer stores once."""
    return f"{folder}/{epoch:06x}-{number:08x}-{what}"


def manifest_name(epoch: Epoch, number: int, entry: int) -> str:
    """A checkpoint, which has the log up to an entry. An etcd whose log is not that long was set back."""
    return blob_name(SNAPSHOTS, epoch, number, f"{entry:016x}-manifest")


def entry_of(blob: str) -> int:
    """Up to which entry a checkpoint has the log; 0 for any other blob."""
    parts = blob.rpartition("/")[2].split("-")
    try:
        return int(parts[2], 16) if len(parts) == 4 and parts[3] == "manifest" else 0
    except ValueError:
        return 0


def epoch_of(blob: str) -> Epoch:
    """In whose reign a blob was stored; 0 if that is not said."""
    epoch = blob.rpartition("/")[2].partition("-")[0]
    try:
        return Epoch(int(epoch, 16))
    except ValueError:
        return Epoch(0)
