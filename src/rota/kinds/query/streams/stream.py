"""One incarnation of a stream: takes over, makes rounds, publishes them, hands rows to sinks.

The order is the promise. A plan is written down, its round is computed, sinks prepare, the round is published; only
then sinks commit. Whoever is killed anywhere leaves a chain that the next one goes on with.
"""

import os
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import pyarrow as pa
from msgspec import Struct, structs

from rota.core.errors import Refused
from rota.kinds.query.streams.chain import Chain, Restored, Taken, saved_round
from rota.kinds.query.streams.computing import Computing, Pieces, check_made_again
from rota.kinds.query.streams.connectors import StreamSink
from rota.kinds.query.streams.manifests import Manifest, Transaction
from rota.kinds.query.streams.pieces import Damaged, Piece
from rota.kinds.query.streams.pipeline import Computed, Pipeline
from rota.kinds.query.streams.rounds import Offset, Plan, Reading, goes_on, offsets_after, partition_name, plan_round
from rota.kinds.query.streams.watermarks import Clock

# What of a node goes to a sink.
Side = Literal["given", "late", "dead"]


class Outlet(Struct, frozen=True):
    """A sink, and what goes there. Without a sink, rows are for whoever iterates over the stream."""

    node: str
    side: Side
    sink: StreamSink | None

    @property
    def name(self) -> str:
        """What it is called in manifests."""
        return self.node if self.side == "given" else f"{self.node}.{self.side}"


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
        self._outlets = outlets
        self._options = options
        self._now_ms = now_ms
        self._chain = Chain(folder)
        self._definition = pipeline.definition()
        self._clocks: dict[str, Clock] = {}
        self._last: Manifest | None = None
        self._plans: dict[int, Plan] = {}
        self._heard_at_ms: dict[str, int] = {}
        self._idle: tuple[str, ...] = ()
        self._since_state = 0
        self._behind: list[Future[None]] = []
        self._threads = ThreadPoolExecutor(1, "rota-stream")
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
        self._chain.make()
        for outlet in self._outlets:
            if outlet.sink is not None:
                outlet.sink.open(self._chain.identity)
        newest = self._chain.find().last if restore is None else saved_round(restore)
        # Before anybody is deposed for it.
        if newest is not None:
            self._check_definition(newest)
        if newest is not None and restore is not None:
            self._check_numbered_here(newest)
        restored = self._claim()
        now_ms = self._now_ms()
        for reading in self._pipeline.readings():
            self._heard_now(reading, now_ms)
        again = None
        if restore is not None:
            if newest is not None and restored.last is not None and newest.is_same(restored.last):
                # What is adopted has nothing to commit, and this round's rows are not made again.
                again = self._commit_again(restored.last)
            restored = self._adopted(restore)
        self._go_on_from(restored)
        self._chain.keep(self._options.keep, self._computing.files())
        return again or self._commit_again(self._last)

    def restore(self, path: Path) -> None:
        """Go on from another round instead, between two of them; `path` is its file."""
        saved = saved_round(path)
        self._check_definition(saved)
        self._check_numbered_here(saved)
        with self._for_good():
            self._catch_up()
            self._idle = ()
            self._go_on_from(self._adopted(path))

    @contextmanager
    def _for_good(self) -> Generator[None]:
        """Something that ends this incarnation if it goes wrong.

        State, offsets and sinks may then be a part of a round apart; the chain alone knows, and whoever begins anew.
        """
        if self._failure is not None:
            code = "stream.fenced" if _is_fenced(self._failure) else "stream.failed"
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

    def _go_on_from(self, restored: Restored) -> None:
        self._resume(restored)
        number = self._last.round if self._last is not None else 0
        # Whoever took over meanwhile has written what must not be taken back.
        self.check_held()
        for outlet in self._outlets:
            if outlet.sink is not None:
                outlet.sink.take_back(outlet.name, number, self._chain.incarnation)

    def _claim(self) -> Restored:
        restored = self._chain.claim(
            incarnation=self._options.incarnation,
            holder=self.holder,
            definition=self._definition,
            now_ms=self._now_ms(),
        )
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
        self._plans = dict(restored.plans)

    def _compute(self, plan: Plan) -> Computed:
        return self._computing.compute(plan, self._clocks, self._chain.aside(plan.round))

    def _check_numbered_here(self, manifest: Manifest) -> None:
        """Refuse a round of another stream whose offsets mean other files here."""
        if manifest.stream in ("", self._chain.identity):
            return
        for name, node in self._pipeline.sources().items():
            if node.source.remembers:
                text = f"{name} ({node.source.called}) numbers what it reads in its own folder, and this is of another"
                hint = "Restore it where it was saved; to move a stream, move its whole folder."
                raise Refused("stream.source", text, hint, path="restore")

    def _check_definition(self, manifest: Manifest) -> None:
        if manifest.definition != self._definition:
            text = f"the stream in {self._folder} was put together otherwise"
            hint = "Register what was registered before, or use another folder."
            raise Refused("stream.definition", text, hint)

    def _commit_again(self, last: Manifest | None) -> Round | None:
        """Have sinks commit the last round once more: nobody knows whether they did."""
        if last is None or last.kind == "claim" or not last.transactions:
            return None
        kept: dict[str, pa.Table] = {}
        with suppress(Damaged):
            kept = {piece.node: table for piece, table in self._chain.rows(last.position)}
        rows: dict[str, pa.Table] = {}
        for transaction in last.transactions:
            if transaction.is_kept_here and transaction.node not in kept:
                text = f"rows of {transaction.node} in round {last.round} are not what was written"
                raise Refused("stream.corrupt", text, "Restore the stream from an older round.")
            self._commit(transaction, last, lambda node=transaction.node: kept[node])
            if self._is_iterated(transaction.node):
                rows[transaction.node] = kept[transaction.node]
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
            self._catch_up()
            return None
        began = time.perf_counter()
        try:
            round_ = self._publish(plan, self._compute(plan), began)
        except Exception as error:
            if self._chain.is_taken and not _is_fenced(error):
                # Whoever took over has removed what this one was writing, so that anything may have gone wrong.
                raise Refused("stream.fenced", f"another one took over: {error}", "Stop.") from error
            raise
        if round_.number % self._options.keep == 0:
            self._chain.keep(self._options.keep, self._computing.files())
        return round_

    def _next_plan(self) -> Plan | None:
        if self.is_over:
            return None
        number, offsets = self._next
        known = self._known_plan(number, offsets)
        # Of no use from now on, whether or not it goes on from here.
        self._plans.pop(number, None)
        if known is not None:
            return known
        plan = self._plan(number, offsets)
        if plan is None or (not plan.ranges and not plan.is_final and plan.idle == self._idle):
            return None
        self._chain.note(plan)
        return plan

    def _known_plan(self, number: int, offsets: Mapping[str, Offset]) -> Plan | None:
        """What was planned for a round before, by whoever it was, if that reads on from here."""
        known = self._plans.get(number)
        return known if known is not None and goes_on(known, self._pipeline.readings(), offsets) else None

    def _plan(self, number: int, offsets: Mapping[str, Offset]) -> Plan | None:
        now_ms = self._now_ms()
        for node in self._pipeline.sources().values():
            node.source.look(now_ms)
        readings, held = self._pipeline.readings(), self._computing.held()
        for reading in readings:
            if reading.name in held:
                # It is not read, so nobody knows whether it is silent; that counts from when it is read again.
                self._heard_now(reading, now_ms)
        return plan_round(
            number,
            readings,
            offsets,
            self._heard_at_ms,
            rows_max=self._options.rows_max,
            now_ms=now_ms,
            held=held,
        )

    def _heard_now(self, reading: Reading, now_ms: int) -> None:
        for partition in range(reading.partitions):
            self._heard_at_ms[partition_name(reading.name, partition)] = now_ms

    def _plan_ahead(self, number: int, offsets: Mapping[str, Offset]) -> Plan | None:
        """The round after this one, if so much is waiting that nothing is gained by waiting for more."""
        plan = self._plan(number, offsets)
        if plan is None or not plan.ranges:
            return None
        sources = self._pipeline.sources()
        is_full = any(
            sources[each.source].source.end_of_range(each.partition, each.end, 1) != each.end for each in plan.ranges
        )
        return plan if is_full or plan.is_final else None

    def _publish(self, plan: Plan, done: Computed, began: float) -> Round:
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
        given = self._given(done)
        transactions = [self._prepare(outlet, plan.round, rows) for outlet, rows in given]
        pieces = [(Piece(kind="rows", node=outlet.name), rows) for outlet, rows in given if _is_kept(outlet)]
        self._since_state += 1
        has_state = self._since_state >= self._options.state_every or plan.is_final or self._computing.is_kept
        manifest = Manifest(
            position=0,
            follows=last.position if last else 0,
            round=plan.round,
            definition=self._definition,
            plan=plan,
            next=ahead,
            offsets=offsets,
            clocks=self._clocks,
            counts=done.counted(last.counts if last else {}),
            parallelism=self._options.parallelism,
            transactions=tuple(transactions),
            published_at_ms=self._now_ms(),
            took_ms=round((time.perf_counter() - began) * 1e3, 3),
            is_final=plan.is_final,
        )
        self._last = self._put(manifest, pieces, has_state=has_state)
        if self._last.has_state:
            self._since_state = 0
        for transaction, (outlet, rows) in zip(transactions, given, strict=True):
            if outlet.sink is not None and outlet.sink.may_lag:
                arguments = (transaction, self._last, lambda rows=rows: rows)
                self._behind.append(self._threads.submit(self._commit, *arguments))
            else:
                self._commit(transaction, self._last, lambda rows=rows: rows)
        if plan.is_final:
            self._catch_up()
        seen = {outlet.name: rows for outlet, rows in given if outlet.sink is None}
        return Round(plan.round, seen, self._last)

    def _catch_up(self) -> None:
        """Wait for sinks that lag: only the last round is committed again by whoever comes next."""
        while self._behind:
            self._behind.pop(0).result()

    def _put(self, manifest: Manifest, pieces: Pieces, *, has_state: bool) -> Manifest:
        self._catch_up()
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
        """The last round once more, with its state and with nothing to commit."""
        assert self._last is not None, "there is a round to save"
        copy = structs.replace(self._last, plan=None, next=None, follows=self._last.position, transactions=())
        self._last = self._put(copy, [], has_state=True)
        self._since_state = 0

    # Sinks.

    def _given(self, done: Computed) -> list[tuple[Outlet, pa.Table]]:
        found: list[tuple[Outlet, pa.Table]] = []
        for outlet in self._outlets:
            side = {"given": done.given, "late": done.late, "dead": done.dead}[outlet.side]
            rows = side.get(outlet.node)
            if rows is not None and rows.num_rows:
                found.append((outlet, rows))
        return found

    def _is_iterated(self, name: str) -> bool:
        return any(outlet.name == name and outlet.sink is None for outlet in self._outlets)

    def _prepare(self, outlet: Outlet, number: int, rows: pa.Table) -> Transaction:
        prepared: dict[str, str] = {}
        if outlet.sink is not None:
            prepared = outlet.sink.prepare(outlet.name, number, self._chain.incarnation, rows)
        called = outlet.sink.called if outlet.sink is not None else ""
        return Transaction(
            sink=called, node=outlet.name, rows=rows.num_rows, prepared=prepared, is_kept_here=_is_kept(outlet)
        )

    def _commit(self, transaction: Transaction, manifest: Manifest, rows: Callable[[], pa.Table]) -> None:
        for outlet in self._outlets:
            if outlet.name == transaction.node and outlet.sink is not None and outlet.sink.called == transaction.sink:
                outlet.sink.commit(
                    transaction.node, manifest.round, self._chain.incarnation, transaction.prepared, rows
                )

    # Savepoints, and the end.

    def savepoint(self, name: str) -> Path:
        """Keep the last round, with its state, under a name."""
        if self._last is None:
            raise Refused("stream.unknown", "there is no round to save yet", "Wait for the first one.")
        with self._for_good():
            if not self._last.has_state:
                self._publish_state()
        return self._chain.save(self._last.position, name)

    def close(self) -> None:
        """Let go of everything; another incarnation can go on."""
        self._threads.shutdown()
        self._computing.close()
        self._chain.close()
        for outlet in self._outlets:
            if outlet.sink is not None:
                outlet.sink.close()


def _is_fenced(error: BaseException) -> bool:
    return isinstance(error, Refused) and error.code == "stream.fenced"


def _is_kept(outlet: Outlet) -> bool:
    return outlet.sink is None or outlet.sink.wants_rows_kept
