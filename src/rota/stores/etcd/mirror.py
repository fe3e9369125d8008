"""What the log adds up to: live records as bytes, their stories, and the past that is in no segment yet.

A mirror is made from a snapshot and the entries after it, one by one and in order; whoever has applied the same entries
has the same mirror. Nothing in it is shared with a record.
"""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from rota.core.ids import Millis, RunId, RunKey
from rota.core.records import Audit, Key, Run
from rota.stores.etcd.entries import Entry, Revived, Told
from rota.stores.etcd.rows import AUDIT, FORMS, GROWTH, RUN, TABLES, TASK, Row, key_of_row
from rota.stores.etcd.segments import AuditLine, GraphLine, Parts, Past, PastAudit, PastGraph, RunLine, Segment

# A run that its id alone does not tell from one of before.
StoryKey = tuple[str, RunId, Millis]


class Counts(Struct, array_like=True):
    """What grows with history and is never counted anew."""

    runs: int = 0
    audits: int = 0
    # When the newest of all ended runs ended.
    newest_end: Millis | None = None


class Frozen(Struct):
    """A mirror as it was at one entry; later ones cannot reach into it."""

    number: int
    rows: list[Row]
    told: list[tuple[str, RunId, Millis, list[Told]]]
    pasts: list[Past]
    graphs: list[PastGraph]
    audits: list[PastAudit]
    segments: list[Segment]
    counts: Counts
    left: dict[int, None]


class Mirror:
    """The state after the entry `number`."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.live: dict[Key, bytes] = {}
        self.told: dict[StoryKey, list[Told]] = {}
        self.pasts: list[Past] = []
        self.graphs: dict[tuple[str, str], PastGraph] = {}
        self.audits: list[PastAudit] = []
        self.segments: list[Segment] = []
        self.counts = Counts()
        # Runs that left history, by their numbers there. Their lines may be in segments, which are never changed; a
        # number is kept for as long as the segment is that it would be in.
        self.left: dict[int, None] = {}
        # The checkpoint below, and what the log holds beyond it.
        self.based_on = number
        self.snapshot_bytes = 0
        self.entries = 0
        self.bytes = 0
        self._parts: dict[RunKey, dict[Key, None]] = {}

    def fill(self, rows: Iterable[Row]) -> None:
        """Put rows, as a snapshot or an entry has them."""
        live, parts = self.live, self._parts
        for row in rows:
            key = key_of_row(row)
            live[key] = row[1]
            if key[0] in ("Task", "Growth"):
                parts.setdefault((str(key[1]), RunId(str(key[2]))), {})[key] = None

    def apply(self, number: int, entry: Entry, size: int) -> None:
        """The next entry. One that was applied before, or that is further on, changes nothing.

        What leaves history, then puts, drops, stories, archives: what is archived is as it was put, and told.
        Definitions are dropped last: a run that goes to history with this very commit needs its own there.
        """
        if number != self.number + 1:
            return
        self.number = number
        self.entries += 1
        self.bytes += size
        for revived in entry.revives:
            self._revive(revived)
        self.fill(entry.puts)
        for key in entry.drops:
            if key[0] != "GraphRecord":
                self._drop(key)
        for tenant, run, created_at, part, at, changes in entry.stories:
            self.told.setdefault((tenant, run, created_at), []).append((part, at, changes))
        for audit in entry.audits:
            self._audit(audit)
        for run_key in entry.archives:
            self._archive(run_key)
        for key in entry.drops:
            if key[0] == "GraphRecord":
                self._drop_graph(key)
        if entry.expired is not None:
            self._expire(entry.expired)

    def _revive(self, revived: Revived) -> None:
        self.left[revived.number] = None
        self.pasts = [each for each in self.pasts if each.line.number != revived.number]
        rows: list[Row] = [(RUN, revived.run)]
        rows += [(TASK, row) for row in revived.tasks]
        rows += [(GROWTH, row) for row in revived.growths]
        self.fill(rows)
        if revived.told:
            run: Run = FORMS[RUN].read(revived.run)
            self.told[run.tenant, run.id, run.created_at] = list(revived.told)

    def _drop(self, key: Key) -> None:
        content = self.live.pop(key, None)
        if key[0] in ("Task", "Growth"):
            self._parts.get((str(key[1]), RunId(str(key[2]))), {}).pop(key, None)
        elif key[0] == "Run" and content is not None:
            run: Run = FORMS[RUN].read(content)
            self._take_parts((run.tenant, run.id))
            self.told.pop((run.tenant, run.id, run.created_at), None)

    def _take_parts(self, run: RunKey) -> list[tuple[Key, bytes]]:
        keys = self._parts.pop(run, {})
        return [(key, self.live.pop(key)) for key in keys if key in self.live]

    def _audit(self, row: bytes) -> None:
        audit: Audit = AUDIT.read(row)
        self.counts.audits += 1
        self.audits.append(PastAudit(AuditLine(self.counts.audits, audit.tenant, audit.at), row))

    def _archive(self, key: RunKey) -> None:
        content = self.live.pop(("Run", *key), None)
        if content is None:
            return
        run: Run = FORMS[RUN].read(content)
        own = self._take_parts(key)
        tasks = [row for part, row in sorted(own) if part[0] == "Task"]
        growths = [row for part, row in sorted(own) if part[0] == "Growth"]
        told = self.told.pop((run.tenant, run.id, run.created_at), [])
        counts = self.counts
        counts.runs += 1
        if counts.newest_end is None or run.ended_at > counts.newest_end:
            counts.newest_end = run.ended_at
        line = RunLine(counts.runs, run.tenant, run.id, run.created_at, run.ended_at, run.name, run.kind, run.state)
        line.labels = run.labels
        self.pasts.append(Past(line, content, Parts(tasks, growths, told)))

    def _drop_graph(self, key: Key) -> None:
        """Keep a definition for the history: whatever was made of it has ended by then, and goes no later than it."""
        content = self.live.pop(key, None)
        end = self.counts.newest_end
        if content is not None and end is not None:
            tenant, digest = str(key[1]), str(key[2])
            self.graphs[tenant, digest] = PastGraph(GraphLine(tenant, digest, end), content)

    def _expire(self, until: Millis) -> None:
        self.pasts = [each for each in self.pasts if each.line.ended_at > until]
        self.audits = [each for each in self.audits if each.line.ended_at > until]
        self.graphs = {key: each for key, each in self.graphs.items() if each.line.ended_at > until}
        for segment in self.segments:
            segment.expired = until if segment.expired is None else max(segment.expired, until)

    # Checkpoints.

    def rows(self) -> list[Row]:
        """All live records."""
        return [(TABLES[str(key[0])], content) for key, content in self.live.items()]

    def freeze(self) -> Frozen:
        """A copy to make a checkpoint of."""
        return Frozen(
            self.number,
            self.rows(),
            [(*key, list(told)) for key, told in self.told.items()],
            list(self.pasts),
            list(self.graphs.values()),
            list(self.audits),
            [replace(segment) for segment in self.segments],
            replace(self.counts),
            dict(self.left),
        )

    def settle(self, frozen: Frozen, segments: list[Segment], left: dict[int, None], entries: int, size: int) -> None:
        """A checkpoint of the frozen copy stands: what it moved to segments is there now.

        `left` is what the segments still have of runs that had left history by then.
        """
        counts = frozen.counts
        moved = {id(graph) for graph in frozen.graphs}
        self.pasts = [each for each in self.pasts if each.line.number > counts.runs]
        self.audits = [each for each in self.audits if each.line.number > counts.audits]
        self.graphs = {key: each for key, each in self.graphs.items() if id(each) not in moved}
        self.left = {number: None for number in self.left if number in left or number not in frozen.left}
        self.segments = segments
        self.based_on = frozen.number
        self.entries -= entries
        self.bytes -= size
