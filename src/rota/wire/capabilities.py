"""What sources and sinks of queries can do, as flags that code asks for; `in_words` tells people."""

from enum import Flag, IntEnum, auto


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


class Guarantee(IntEnum):
    """How often each row of a stream counts where it arrives; the least of all parts is that of the whole."""

    AT_MOST_ONCE = 1
    AT_LEAST_ONCE = 2
    EXACTLY_ONCE = 3

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")


def guarantee_of(can: Source | Sink) -> Guarantee:
    """What a source or a sink of a stream allows.

    A stream publishes first and hands over then, again after a crash; so a sink that notices the second time counts
    rows once. A source that cannot be read again loses what was read by one that was killed.
    """
    if isinstance(can, Source):
        return Guarantee.EXACTLY_ONCE if Source.REWINDABLE in can else Guarantee.AT_MOST_ONCE
    return Guarantee.EXACTLY_ONCE if Sink.IDEMPOTENT in can else Guarantee.AT_LEAST_ONCE


def in_words(flags: Flag) -> str:
    """The names of flags."""
    return ", ".join((flag.name or "").lower().replace("_", "-") for flag in flags) or "nothing"
