"""What sources and sinks of queries can do, as flags that code asks for; `in_words` tells people."""

from enum import Flag, auto


class Source(Flag):
    """What can be counted on where rows are read."""

    BOUNDED = auto()  # it ends
    REWINDABLE = auto()  # it can be read again, and gives the same as long as nobody writes
    SPLITTABLE = auto()  # several tasks can each read a part of it
    SHIPPABLE = auto()  # a worker can read it
    PINNED = auto()  # a statement reads it as it was when it was planned, whoever writes meanwhile


class Sink(Flag):
    """What can be counted on where rows are written."""

    TWO_PHASE = auto()  # files are put aside, and seen when they are published
    IDEMPOTENT = auto()  # publishing again changes nothing
    TRANSACTIONAL = auto()  # who reads sees all of what is published, or nothing of it


# What attempts need that may be made twice, of which only one counts. Folders and buckets have no more: files get
# their names one after the other.
FENCED = Sink.TWO_PHASE | Sink.IDEMPOTENT


def in_words(flags: Flag) -> str:
    """The names of flags."""
    return ", ".join((flag.name or "").lower().replace("_", "-") for flag in flags) or "nothing"
