"""A round as stages: who reads, who owns state, and who feeds whom.

Pure. Rows change hands only where an operator wants them by its keys, so a source, or an operator, and all views over
it, are one stage; its tasks do all that can be done before rows have to be spread.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa
from msgspec import Struct

from rota.kinds.query.stages import Stage
from rota.kinds.query.streams.keygroups import kept_in
from rota.kinds.query.streams.pieces import Piece, Place
from rota.kinds.query.streams.pipeline import Pipeline, SourceNode, ViewNode
from rota.kinds.query.streams.rounds import Plan
from rota.kinds.query.streams.steps import Feed, Owning, Reading, SentView, Step, Taking, encode_step, sent_operator
from rota.kinds.query.streams.watermarks import Clock
from rota.wire.queries import Exchange, Hashed


class Kept(Struct, frozen=True):
    """The state of a stream as pieces, by operator, and in how many partitions it is kept."""

    partitions: int
    pieces: Mapping[str, Sequence[tuple[Piece, Place]]]

    def is_dealt(self, operator: str, parallelism: int) -> bool:
        """Whether each of so many tasks finds what it owns, and nothing else, in files of its own."""
        return self.partitions == parallelism and all(piece.file for piece, _ in self.pieces.get(operator, ()))

    def of(self, operator: str, partition: int, parallelism: int) -> tuple[tuple[Piece, Place], ...]:
        """What of it has keys of one of so many partitions."""
        wanted = kept_in(partition, parallelism, self.partitions)
        return tuple(each for each in self.pieces.get(operator, ()) if each[0].partition in wanted)


class Given(Struct, frozen=True, kw_only=True):
    """What a round is made of, beside the stream itself. `views` are those that are asked, as plans."""

    plan: Plan
    clocks: Mapping[str, Clock]
    kept: Kept
    parallelism: int
    folder: str
    aside: str
    readings: Mapping[str, Sequence[Reading]]
    views: Mapping[str, SentView]
    wanted: tuple[str, ...]


class Segments(Struct, frozen=True):
    """The stages of a round; and how far operators have come that have nothing to do in it."""

    stages: tuple[Stage, ...]
    clocks: Mapping[str, Clock]


def segments_of(pipeline: Pipeline, given: Given) -> Segments:
    """Cut a round into stages."""
    found = _Cutter(pipeline, given)
    for name, node in pipeline.nodes.items():
        if isinstance(node, SourceNode):
            found.add_source(name)
        elif not isinstance(node, ViewNode):
            found.add_operator(name)
    return Segments(tuple(found.stages.values()), found.clocks)


class _Cutter:
    def __init__(self, pipeline: Pipeline, given: Given) -> None:
        self._pipeline = pipeline
        self._given = given
        self._feeds = _feeds(pipeline, given.parallelism)
        self.stages: dict[str, Stage] = {}
        self.clocks: dict[str, Clock] = {}

    def add_source(self, name: str) -> None:
        """The tasks that read a source, if it has rows in this round."""
        readings = tuple(self._given.readings.get(name, ()))
        if readings:
            self._add(name, len(readings), (), readings=readings)

    def add_operator(self, name: str) -> None:
        """The tasks that own the state of an operator, unless nothing can have changed for it."""
        given, operator, behind = self._given, self._pipeline.operators()[name], self._pipeline.behind(name)
        heads = list(dict.fromkeys(self._pipeline.head(source) for source in operator.inputs))
        heads = [head for head in heads if head in self.stages]
        idle = [node.mark_after(self.clocks[each].mark) for each, node in behind.items() if each in self.clocks]
        moment = self._pipeline.moment(name, given.plan, given.clocks, min(idle, default=None))
        is_dealt = given.kept.is_dealt(name, given.parallelism)
        if not heads:
            after = operator.advanced(moment, {})
            if after.mark == moment.clock.mark and is_dealt:
                self.clocks[name] = after
                return
        owning = Owning(
            operator=name,
            takings=tuple(
                Taking(source, heads.index(head), self._first(head, name, source))
                for source in operator.inputs
                if (head := self._pipeline.head(source)) in heads
            ),
            kept=tuple(given.kept.of(name, each, given.parallelism) for each in range(given.parallelism)),
            is_dealt=is_dealt,
            partitions=dict(moment.partitions),
            follows=tuple(heads.index(each) for each in behind if each in heads),
            mark=moment.upstream,
        )
        self._add(name, given.parallelism, tuple(heads), owning=owning)

    def _first(self, head: str, operator: str, source: str) -> int:
        return next(feed.first for feed in self._feeds[head] if (feed.operator, feed.source) == (operator, source))

    def _add(
        self,
        head: str,
        tasks: int,
        upstream: tuple[str, ...],
        *,
        readings: tuple[Reading, ...] = (),
        owning: Owning | None = None,
    ) -> None:
        given, pipeline = self._given, self._pipeline
        nodes = [name for name in pipeline.nodes if pipeline.head(name) == head]
        feeds = self._feeds[head]
        named = dict.fromkeys((*(feed.operator for feed in feeds), *((head,) if owning else ())))
        step = Step(
            folder=given.folder,
            aside=given.aside,
            plan=given.plan,
            parallelism=given.parallelism,
            readings=readings,
            owning=owning,
            views=tuple(given.views[name] for name in nodes if name in given.views),
            operators={name: sent_operator(pipeline.operators()[name]) for name in named},
            clocks={name: given.clocks[name] for name in named if name in given.clocks},
            feeds=feeds,
            wanted=tuple(name for name in nodes if name in given.wanted),
        )
        parts = len(feeds) * given.parallelism
        self.stages[head] = Stage(
            id=head,
            plan=encode_step(step),
            output=Hashed(parts),
            schema=pa.schema([]),
            exchanges=tuple(Exchange(each, "hash", self._parts(each)) for each in upstream),
            tasks=tasks,
            upstream=upstream,
            is_step=True,
        )

    def _parts(self, head: str) -> int:
        return len(self._feeds[head]) * self._given.parallelism


def _feeds(pipeline: Pipeline, parallelism: int) -> dict[str, tuple[Feed, ...]]:
    """For each source and operator, who wants its rows, and to which parts they go."""
    found: dict[str, list[Feed]] = {pipeline.head(name): [] for name in pipeline.nodes}
    for name, operator in pipeline.operators().items():
        for source in operator.inputs:
            feeds = found[pipeline.head(source)]
            feeds.append(Feed(name, source, len(feeds) * parallelism))
    return {head: tuple(feeds) for head, feeds in found.items()}
