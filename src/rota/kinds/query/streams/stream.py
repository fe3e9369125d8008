"""One incarnation of a stream: takes over, makes rounds, publishes them, hands rows to sinks.

The order is the promise. A plan is written down, its round is computed, sinks prepare, the round is published; only
then sinks commit. Whoever is killed anywhere leaves a chain that the next one goes on with.
"""

import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
from msgspec import Struct, structs

from rota.core.errors import Refused
from rota.kinds.query.streams.chain import Chain, Restored, Taken
from rota.kinds.query.streams.computing import Computing, Pieces, check_made_again
from rota.kinds.query.streams.delivery import Delivery, Outlet, kept_rows
from rota.kinds.query.streams.manifests import Manifest
from rota.kinds.query.streams.pieces import Damaged, Piece
from rota.kinds.query.streams.pipeline import Computed, Pipeline
from rota.kinds.query.streams.pressure import Crowd, check_room, rows_allowed, rows_wanted
from rota.kinds.query.streams.restoring import check_definition, recall, shared_rounds
from rota.kinds.query.streams.rounds import Offset, Plan, goes_on, offsets_after, partition_name, plan_round
from rota.kinds.query.streams.savepoints import Savepoints, saved_round
from rota.kinds.query.streams.watermarks import Clock
from rota.wire.capabilities import Source


class Options(Struct, frozen=True, kw_only=True):
    """What may be chosen about how a stream runs; `rota.StreamSession` says what each means."""

    rows_max: int = 100_000
    parallelism: int = 1
    keep: int = 10
    state_every: int = 1
    incarnation: int = 0
    holder: str = ""


class Round(Struct, frozen=True):
    """A round that was published. `is_again`: it was before, too, and nobody knows whether its rows arrived."""

    number: int
    rows: dict[str, pa.Table]
    manifest: Manifest
    is_again: bool = False


class Stream:
    """A stream that this process has taken over."""

    def __init__(
        self,
        pipeline: Pipeline,
        computing: Computing,
        folder: Path,
        outlets: tuple[Outlet, ...],
        options: Options,
        now_ms: Callable[[], int],
    ) -> None:
        self._pipeline = pipeline
        self._computing = computing
        self._folder = folder
        self._delivery = Delivery(outlets)
        self._options = options
        self._now_ms = now_ms
        self._chain = Chain(folder)
        self._savepoints = Savepoints(folder)
        self._definition = pipeline.definition()
        self._clocks: dict[str, Clock] = {}
        self._last: Manifest | None = None
        self._plans: dict[int, Plan] = {}
        self._heard_at_ms: dict[str, int] = {}
        self._begun_at_ms = 0
        self._idle: tuple[str, ...] = ()
        self._since_state = 0
        self._failure: BaseException | None = None
        self.skipped: tuple[tuple[int, str], ...] = ()
        # How long the last round took to be published.
        self.checkpoint_ms = 0.0

    # Taking over.

    def begin(self, restore: Path | None = None) -> Round | None:
        """Take over, from the newest round or from another one (`restore` is its file).

        Gives the last round if its rows may not have arrived.
        """
        with self._for_good():
            return self._begin(restore)

    def _begin(self, restore: Path | None) -> Round | None:
        for name, node in self._pipeline.sources().items():
            below = self._folder / "sources" / name
            below.mkdir(parents=True, exist_ok=True)
            node.source.open(below)
        self._chain.make(self._savepoints.identity_in(restore) if restore is not None else "")
        self._savepoints.make()
        self._delivery.open(self._chain.identity)
        last = self._chain.last_round()
        newest = last if restore is None else saved_round(restore)
        # Before anybody is deposed for it.
        if newest is not None:
            self._check(newest)
        if newest is not None and restore is not None:
            self._shared(newest, last)
            recall(newest, restore, self._chain.identity, self._pipeline.sources())
        restored = self._claim()
        self._begun_at_ms = self._listens_since(restored.last)
        self._heard_at_ms = {
            partition_name(each.name, partition): self._begun_at_ms
            for each in self._pipeline.readings()
            for partition in range(each.partitions)
        }
        shared = None
        if restore is not None and newest is not None and not self._is_here(newest, restored.last):
            shared = self._shared(newest, restored.last)
            restored = self._adopted(restore)
        self._go_on_from(restored, shared)
        self._chain.keep(self._options.keep, self._computing.files())
        return self._commit_again(self._last)

    def _listens_since(self, last: Manifest | None) -> int:
        """From when on a partition without rows has been silent.

        Sources that can be rewound show at the first look what has come since the last round.
        """
        now_ms = self._now_ms()
        if last is None or any(Source.REWINDABLE not in each.source.can for each in self._pipeline.sources().values()):
            return now_ms
        return min(now_ms, last.plan.planned_at_ms if last.plan is not None else last.published_at_ms)

    def _is_here(self, saved: Manifest | None, last: Manifest | None) -> bool:
        """Whether the round to restore is the newest one anyway. Going on from it has its rows handed over, too."""
        if saved is None or last is None:
            return False
        return saved.stream == self._chain.identity and saved.is_same(last)

    def restore(self, path: Path) -> None:
        """Go on from another round instead, between two of them; `path` is its file."""
        saved = saved_round(path)
        self._check(saved)
        recall(saved, path, self._chain.identity, self._pipeline.sources())
        if self._is_here(saved, self._last):
            return
        shared = self._shared(saved, self._last)
        with self._for_good():
            self._delivery.catch_up()
            self._delivery.refused = {}
            self._go_on_from(self._adopted(path), shared)

    def _check(self, manifest: Manifest) -> None:
        check_definition(manifest, self._definition, self._folder, self._pipeline.sources())

    def _shared(self, saved: Manifest, last: Manifest | None) -> int:
        """Up to which round sinks have what led to a round that is restored."""
        if last is None or self._is_here(saved, last):
            return saved.round
        return shared_rounds(saved, last, self._delivery.folders())

    @contextmanager
    def _for_good(self) -> Generator[None]:
        """Something that ends this incarnation if it goes wrong.

        State, offsets and sinks may then be a part of a round apart; the chain alone knows, and whoever begins anew.
        """
        if self._failure is not None:
            code = "stream.fenced" if is_fenced(self._failure) else "stream.failed"
            text = f"this stream has failed: {str(self._failure) or type(self._failure).__name__}"
            raise Refused(code, text, "Start it again: it goes on from the last round that was published.")
        try:
            yield
        except BaseException as error:
            self._failure = error
            raise

    def _adopted(self, path: Path) -> Restored:
        """Another round as the newest one. Plans were made for what came after others, and are forgotten."""
        self._chain.adopt(path)
        return structs.replace(self._chain.find(), plans={})

    def _go_on_from(self, restored: Restored, shared: int | None = None) -> None:
        """`shared`: up to which round sinks have what led here, if that is not all of it."""
        self._resume(restored)
        number = self._last.round if self._last is not None else 0
        for name, offset in (self._last.offsets if self._last is not None else {}).items():
            source, _, partition = name.rpartition("/")
            self._pipeline.sources()[source].source.check_known(int(partition), offset)
        # Whoever took over meanwhile has written what must not be taken back.
        self.check_held()
        self._delivery.take_back(number if shared is None else shared, self._chain.incarnation)

    def _claim(self) -> Restored:
        restored = self._chain.claim(
            incarnation=self._options.incarnation,
            holder=self.holder,
            definition=self._definition,
            now_ms=self._now_ms(),
        )
        self._savepoints.remove_half_saved()
        self.skipped = tuple((each.position, each.reason) for each in restored.skipped)
        return restored

    def _resume(self, restored: Restored) -> None:
        """State as it was after the last round: read, and where it is damaged or was not kept, made again."""
        base = restored.base
        self._since_state = 0
        if base is None:
            self._computing.begin()
            self._clocks = {}
        else:
            self._computing.take(base, self._chain.path(base.position))
            self._clocks = dict(base.clocks)
        counts = base.counts if base is not None else {}
        for manifest in restored.again:
            assert manifest.plan is not None, "rounds without a plan are not made again"
            done = self._compute(manifest.plan)
            counts = done.counted(counts)
            check_made_again(manifest, counts, self._pipeline.sources())
            self._clocks = done.clocks
            self._since_state += 1
        self._last = restored.last
        self._idle = self._last.plan.idle if self._last is not None and self._last.plan is not None else ()
        self._plans = dict(restored.plans)

    def _compute(self, plan: Plan) -> Computed:
        return self._computing.compute(plan, self._clocks, self._chain.aside(plan.round))

    def _commit_again(self, last: Manifest | None) -> Round | None:
        """Have sinks commit the last round once more: nobody knows whether they did."""
        if last is None or last.kind == "claim" or not last.transactions:
            return None
        kept: dict[str, pa.Table] = {}
        with suppress(Damaged):
            kept = {piece.node: table for piece, table in self._chain.rows(last.position)}
        rows = self._delivery.commit_again(last, kept, self._chain.incarnation)
        self.skipped += tuple((last.position, reason) for reason in self._delivery.unclaimed(last))
        return Round(last.round, rows, last, is_again=True) if rows else None

    # Rounds.

    @property
    def incarnation(self) -> int:
        """Its number, once it has begun."""
        return self._chain.incarnation

    @property
    def holder(self) -> str:
        """Who this is, as its claim says."""
        return self._options.holder or f"{os.uname().nodename}:{os.getpid()}"

    @property
    def now_ms(self) -> Callable[[], int]:
        """Its clock."""
        return self._now_ms

    @property
    def last(self) -> Manifest | None:
        """The newest round."""
        return self._last

    @property
    def counts(self) -> dict[str, int]:
        """All that was counted since the stream began, with what sinks have refused of the last round."""
        last, refused = self._last.counts if self._last else {}, self._delivery.refused
        return dict(last) | {name: last.get(name, 0) + count for name, count in refused.items()}

    @property
    def is_over(self) -> bool:
        """Whether no more rows can come."""
        return self._last is not None and self._last.is_final

    @property
    def is_behind(self) -> bool:
        """Whether the next round is known already: there is more to read than one round does."""
        return self._known_plan(*self._next) is not None

    @property
    def _next(self) -> tuple[int, Mapping[str, Offset]]:
        """The number of the next round, and where it reads on."""
        return (self._last.round + 1, self._last.offsets) if self._last else (1, {})

    @property
    def crowds(self) -> list[Crowd]:
        """Where rows wait for others."""
        return self._pipeline.crowds(self._computing.kept(), self._clocks, self._idle)

    def check_held(self) -> None:
        """Refuse to go on if another one has taken over."""
        if self._chain.is_taken:
            raise Refused("stream.fenced", f"another one took over from {self.incarnation}", "Stop.")

    def next_round(self) -> Round | None:
        """Make the next round, if there is anything to read."""
        with self._for_good():
            return self._next_round()

    def _next_round(self) -> Round | None:
        plan = self._next_plan()
        if plan is None:
            self._delivery.catch_up()
            return None
        began = time.perf_counter()
        try:
            round_ = self._publish(*self._in_room(plan), began)
        except Exception as error:
            if self._chain.is_taken and not is_fenced(error):
                # Whoever took over has removed what this one was writing, so that anything may have gone wrong.
                raise Refused("stream.fenced", f"another one took over: {error}", "Stop.") from error
            raise
        if round_.number % self._options.keep == 0:
            self._chain.keep(self._options.keep, self._computing.files())
        return round_

    def _in_room(self, plan: Plan) -> tuple[Plan, Computed]:
        """What a plan comes to; or one that reads other rows, if more would wait after it than may."""
        before, full = self._computing.kept(), None
        for each in self._plans_for_room(plan):
            if each is not plan:
                self._chain.note(each)
            done = self._compute(each)
            try:
                check_room(self._pipeline.crowds(self._computing.kept(), done.clocks, each.idle), before)
            except Refused as refused:
                full = full or refused
                self._computing.undo()
            else:
                return each, done
        assert full is not None, "the first plan has room, or is refused"
        raise full

    def _plans_for_room(self, plan: Plan) -> Iterator[Plan]:
        """A plan; the same with fewer and fewer rows; and at last one with many of those that time waits for."""
        yield plan
        number, offsets = self._next
        allowed, most, last = rows_allowed(self.crowds), self._options.rows_max // 2, plan
        while most:
            fewer = self._plan(number, offsets, {each: min(most, allowed.get(each, most)) for each in plan.begins})
            if fewer is not None and fewer.ranges != last.ranges:
                yield fewer
                last = fewer
            most //= 2
        wanted = self._plan(number, offsets, rows_wanted(self.crowds, self._options.rows_max))
        if wanted is not None:
            yield wanted

    def _next_plan(self) -> Plan | None:
        if self.is_over:
            return None
        number, offsets = self._next
        known = self._known_plan(number, offsets)
        # Of no use from now on, whether or not it goes on from here.
        self._plans.pop(number, None)
        if known is not None:
            return known
        plan = self._plan(number, offsets, rows_allowed(self.crowds))
        if plan is None or (not plan.ranges and not plan.is_final and plan.idle == self._idle):
            return None
        self._chain.note(plan)
        return plan

    def _known_plan(self, number: int, offsets: Mapping[str, Offset]) -> Plan | None:
        """What was planned for a round before, by whoever it was, if that reads on from here."""
        known = self._plans.get(number)
        return known if known is not None and goes_on(known, self._pipeline.readings(), offsets) else None

    def _plan(self, number: int, offsets: Mapping[str, Offset], allowed: Mapping[str, int]) -> Plan | None:
        now_ms = self._now_ms()
        for node in self._pipeline.sources().values():
            node.source.look(now_ms)
        # One that is held is not read, so nobody knows whether it is silent; that counts from when it is read again.
        self._heard_at_ms |= {name: now_ms for name, most in allowed.items() if not most}
        return plan_round(
            number,
            self._pipeline.readings(),
            offsets,
            self._heard_at_ms,
            rows_max=self._options.rows_max,
            now_ms=now_ms,
            begun_at_ms=self._begun_at_ms,
            allowed=allowed,
        )

    def _plan_ahead(self, number: int, offsets: Mapping[str, Offset]) -> Plan | None:
        """The round after this one, if so much is waiting that nothing is gained by waiting for more."""
        plan = self._plan(number, offsets, rows_allowed(self.crowds))
        if plan is None or not plan.ranges:
            return None
        sources = self._pipeline.sources()
        is_full = any(
            sources[each.source].source.end_of_range(each.partition, each.end, 1) != each.end for each in plan.ranges
        )
        return plan if is_full or plan.is_final else None

    def _publish(self, plan: Plan, done: Computed, began: float) -> Round:
        # What lagging sinks refuse of the last round is in the counts of this one.
        self._delivery.catch_up()
        for each in plan.ranges:
            self._heard_at_ms[partition_name(each.source, each.partition)] = plan.planned_at_ms
        self._idle = plan.idle
        self._clocks = done.clocks
        last = self._last
        offsets = offsets_after(last.offsets if last else {}, plan)
        ahead = self._known_plan(plan.round + 1, offsets)
        if ahead is None and not plan.is_final:
            ahead = self._plan_ahead(plan.round + 1, offsets)
        if ahead is not None:
            self._plans[ahead.round] = ahead
        leaving = self._delivery.prepare(done, plan.round, self._chain.incarnation)
        self._since_state += 1
        has_state = self._since_state >= self._options.state_every or plan.is_final or self._computing.is_kept
        manifest = Manifest(
            position=0,
            follows=last.position if last else 0,
            round=plan.round,
            holder=self.holder,
            definition=self._definition,
            plan=plan,
            next=ahead,
            offsets=offsets,
            clocks=self._clocks,
            counts=done.counted(self.counts),
            parallelism=self._options.parallelism,
            transactions=tuple(each.transaction for each in leaving),
            published_at_ms=self._now_ms(),
            took_ms=round((time.perf_counter() - began) * 1e3, 3),
            branches=last.branches if last else (),
            is_final=plan.is_final,
        )
        self._last = self._put(manifest, kept_rows(leaving), has_state=has_state)
        if self._last.has_state:
            self._since_state = 0
        self._delivery.commit(leaving, self._last, self._chain.incarnation)
        if plan.is_final:
            self._delivery.catch_up()
        seen = {each.outlet.name: each.rows for each in leaving if each.outlet.sink is None}
        return Round(plan.round, seen, self._last)

    def _put(self, manifest: Manifest, pieces: Pieces, *, has_state: bool) -> Manifest:
        began = time.perf_counter()
        elsewhere: list[Piece] = []
        if has_state:
            tables, elsewhere = self._computing.state()
            # A stream that keeps nothing can be gone on with, too.
            nothing = [] if tables or elsewhere else [(Piece(kind="state", node=""), pa.table({}))]
            pieces = [*pieces, *tables, *nothing]
        try:
            return self._chain.publish(manifest, pieces, elsewhere)
        except Taken as taken:
            raise Refused("stream.fenced", str(taken), "Stop; another one is at it.") from None
        finally:
            self.checkpoint_ms = (time.perf_counter() - began) * 1e3

    def _publish_state(self) -> None:
        """The last round once more, with its state."""
        assert self._last is not None, "there is a round to save"
        self._delivery.catch_up()
        copy = structs.replace(self._last, plan=None, follows=self._last.position)
        try:
            # Nobody knows yet whether whoever iterates has them.
            rows = self._chain.rows(self._last.position)
        except Damaged as damage:
            text = f"round {self._last.round} cannot be saved: {damage}"
            raise Refused("stream.corrupt", text, "Start the stream again: it is made again.") from None
        self._last = self._put(copy, rows, has_state=True)
        self._since_state = 0

    # Savepoints, and the end.

    def savepoint(self, name: str) -> Path:
        """Keep the last round, with its state, under a name."""
        if self._last is None:
            raise Refused("stream.unknown", "there is no round to save yet", "Wait for the first one.")
        with self._for_good():
            if not self._last.has_state:
                self._publish_state()
        memories = {each: node.source.remembered() for each, node in self._pipeline.sources().items()}
        kept = self._chain.path(self._last.position)
        return self._savepoints.save(kept, name, {each: memory for each, memory in memories.items() if memory})

    def close(self) -> None:
        """Let go of everything; another incarnation can go on."""
        self._computing.close()
        self._chain.close()
        self._delivery.close()


def is_fenced(error: BaseException) -> bool:
    """Whether that is because another one took over."""
    return isinstance(error, Refused) and error.code == "stream.fenced"
