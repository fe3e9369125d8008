"""What a plan reads from, and what can be counted on there. Decides what is sent to workers, and says why not.

A leaf that is not known here is left to the engine, which writes it down or refuses to.
"""

import re
from collections.abc import Iterator

import datafusion as df
from msgspec import Struct

from rota.wire.capabilities import Source, in_words

# What a worker reads it may read again, and comes to an end with.
SENT = Source.BOUNDED | Source.REWINDABLE | Source.SHIPPABLE
_FILES = SENT | Source.SPLITTABLE
_FORM = re.compile(r"file_type=(\w+)")
_FORMS = {"parquet": "Parquet", "csv": "CSV", "json": "JSON lines", "arrow": "Arrow", "avro": "Avro"}


class Leaf(Struct, frozen=True):
    """Where a plan reads from: what people call it, and what it can do; None if that is not known."""

    called: str
    can: Source | None


_LEAVES = {
    "DatasetExec": Leaf("a pyarrow dataset", Source.BOUNDED | Source.REWINDABLE | Source.SPLITTABLE),
    "EmptyExec": Leaf("no rows", SENT | Source.PINNED),
    "LazyMemoryExec": Leaf("a series", SENT | Source.PINNED),
    "PlaceholderRowExec": Leaf("one row", SENT | Source.PINNED),
    "WorkTableExec": Leaf("a recursive WITH", Source.BOUNDED | Source.REWINDABLE),
}


class TableSource(Struct, frozen=True):
    """A table as something that is read: what it is made of, and what can be counted on."""

    name: str
    made_of: str
    can: Source

    def __str__(self) -> str:
        return f"{self.name}: {self.made_of}; {in_words(self.can)}"


def leaves_of(plan: df.ExecutionPlan) -> Iterator[Leaf]:
    """All that a plan reads from."""
    below = plan.children()
    if not below:
        yield _leaf(plan.display().strip())
    for each in below:
        yield from leaves_of(each)


def unsent(plan: df.ExecutionPlan) -> str:
    """What of a plan cannot be sent to a worker, by what is known of where it reads; "" if nothing."""
    return next((leaf.called for leaf in leaves_of(plan) if leaf.can is not None and SENT not in leaf.can), "")


def is_splittable(plan: df.ExecutionPlan) -> bool:
    """Whether anything that a plan reads can be read by more than one task."""
    return any(leaf.can is None or Source.SPLITTABLE in leaf.can for leaf in leaves_of(plan))


def source_of(name: str, plan: df.ExecutionPlan, more: Source) -> TableSource:
    """A table by the plan that reads all of it; `more` is what its catalog adds. Of several leaves the least counts."""
    leaves = list(leaves_of(plan))
    can = ~Source(0)
    for leaf in leaves:
        can &= leaf.can or Source(0)
    return TableSource(name, " and ".join(dict.fromkeys(leaf.called for leaf in leaves)), can | more)


def _leaf(shown: str) -> Leaf:
    name, _, rest = shown.partition(":")
    if name == "StreamingTableExec":
        # The engine's own tables about tables are of this kind, too.
        is_endless = "infinite_source=true" in rest
        return Leaf("a table without end", Source(0)) if is_endless else Leaf("a stream", Source.BOUNDED)
    if name != "DataSourceExec":
        return _LEAVES.get(name, Leaf(name, None))
    form = _FORM.search(rest)
    if form is None:
        return Leaf("rows in memory", _FILES | Source.PINNED)
    if form[1] == "arrow_stream":
        # It is written down, and read again as a file of the other format.
        return Leaf("a table of Arrow streams", Source.BOUNDED | Source.REWINDABLE)
    called = f"a table of {_FORMS.get(form[1], form[1])} files"
    return Leaf(called, _FILES if form[1] in _FORMS and form[1] != "avro" else None)
