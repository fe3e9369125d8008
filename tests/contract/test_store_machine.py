"""Several writers do as they please, and a store behaves as a model of plain dictionaries says it must."""

import asyncio
from collections.abc import Awaitable
from functools import cache
from typing import Any, TypeVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, multiple, rule, run_state_machine_as_test
from msgspec import Struct

from rota.core.history import Ended
from rota.core.ids import Epoch, RunKey
from rota.core.records import RECORD_TYPES, Batch, Growth, Key, Record, Run, Story, Task, key_of
from rota.ports import Candidate, Fenced, Store
from tests.contract import broken_revival, broken_stores
from tests.contract.adapters import ADAPTERS, Adapter
from tests.contract.bench import Bench, assert_same, batch, disk_of
from tests.contract.records import INT_MAX, filled, key_values, with_fields
from tests.contract.row_store import RowAdapter, RowStore
from tests.contract.samples import scribble
from tests.effort import examples

pytestmark = pytest.mark.slow

T = TypeVar("T")
WRITERS = 3
NOTICED = (AssertionError, pytest.fail.Exception, Fenced)

# Few keys, so that writers meet on them, and few images of each row, all different.
# Runs of one name have one task, which is inside them; those of the other have rows for theirs.
ONE_TASK_RUN, MANY_TASK_RUN = "one", "many"
TENANTS, NAMES, NUMBERS = st.sampled_from(["a", "b"]), st.sampled_from([ONE_TASK_RUN, MANY_TASK_RUN]), st.integers(0, 1)
TYPES = st.sampled_from([Run, Task, Growth]) | st.sampled_from(RECORD_TYPES)


image_of = cache(filled)


def sample(cls: type[Struct], variant: int, tenant: str, name: str, number: int) -> Any:
    """One of a few records of a type under one of a few keys."""
    record, name = image_of(cls, 1_000 * variant), MANY_TASK_RUN if cls in (Task, Growth) else name
    fields = {field: name if isinstance(value, str) else number for field, value in key_values(record).items()}
    if cls is Run and name == MANY_TASK_RUN:
        fields["solo"] = None
    return with_fields(record, **{**fields, "tenant": tenant})


RECORDS = st.builds(sample, TYPES, st.integers(0, 2), TENANTS, NAMES, NUMBERS)
PUTS = st.lists(RECORDS, max_size=5, unique_by=key_of)
DROPS = st.lists(st.integers(0, 9), max_size=3)
SOME_RUNS = st.lists(st.tuples(TENANTS, NAMES), max_size=2)
ASKED = st.tuples(PUTS, DROPS, SOME_RUNS, SOME_RUNS, DROPS)
Asked = tuple[list[Record], list[int], list[RunKey], list[RunKey], list[int]]


class Reign(Struct, frozen=True):
    """An epoch, and the process that it was given to."""

    writer: int
    process: int
    epoch: Epoch


class Model:
    """What the store must have and say."""

    def __init__(self) -> None:
        self.epoch: Epoch = 0
        self.holder: Epoch | None = None
        self.rows: dict[Key, Record] = {}
        self.history: list[Ended] = []
        self.stories: list[Story] = []
        self.created = 0

    def batch_of(
        self, puts: list[Record], drops: list[int], archives: list[RunKey], told: list[RunKey], back: list[int]
    ) -> Batch:
        """The batch as a coordinator may ask for it: no part without its run, and nothing both put and dropped."""
        past = [ended.run for ended in self.history]
        revives = [(run.tenant, run.id, run.created_at) for run in (past[at % len(past)] for at in back if past)]
        after = Model()
        after.rows, after.history, after.created = dict(self.rows), list(self.history), self.created
        for key in revives:
            after.revive(*key)
        made = after.made_of(puts, drops, archives, told, len(self.stories))
        self.created = after.created
        made.revives = revives
        return made

    def made_of(
        self, puts: list[Record], drops: list[int], archives: list[RunKey], told: list[RunKey], first: int
    ) -> Batch:
        written = {key_of(record): record for record in puts}
        for part in puts:
            if isinstance(part, Task | Growth) and ("Run", part.tenant, part.run) not in self.rows:
                run = sample(Run, 0, part.tenant, part.run, 0)
                written.setdefault(key_of(run), run)
        for key, run in written.items():
            if isinstance(run, Run):
                written[key] = with_fields(run, created_at=self.created_at(key))
        keys = [*[key for key in self.rows if key[0] != "Run" and key not in written], ("Pool", "a", "no such pool")]
        there = {key[1:]: run for key, run in {**self.rows, **written}.items() if isinstance(run, Run)}
        living = [there[key] for key in told if key in there]
        stories = [
            with_fields(
                image_of(Story, 10 * number),
                tenant=run.tenant,
                run=run.id,
                created_at=run.created_at,
                number=first + number,
            )
            for number, run in enumerate(living)
        ]
        return batch(written.values(), [keys[at % len(keys)] for at in drops], archives, stories)

    def created_at(self, key: Key) -> int:
        """A run keeps its instant while it lives; one that uses its id again has a later one."""
        alive = self.rows.get(key)
        if isinstance(alive, Run):
            return alive.created_at
        self.created += 1
        return self.created

    def commit(self, written: Batch) -> None:
        for key in written.revives:
            self.revive(*key)
        for record in written.puts:
            self.rows[key_of(record)] = with_fields(record)
        for key in written.drops:
            self.rows.pop(key, None)
        for key in written.archives:
            self._archive(key)
        self.stories.extend(written.stories)

    def revive(self, tenant: str, run: str, created_at: int) -> None:
        for ended in list(self.history):
            row = ended.run
            if (row.tenant, row.id, row.created_at) == (tenant, run, created_at) and key_of(row) not in self.rows:
                self.history.remove(ended)
                parts = () if row.solo is not None else ended.tasks
                self.rows.update({key_of(record): record for record in (row, *parts, *ended.growths)})

    def _archive(self, key: RunKey) -> None:
        run = self.rows.pop(("Run", *key), None)
        if not isinstance(run, Run):
            return
        own = [part for part in self.rows if part[0] in ("Task", "Growth") and part[1:3] == key]
        parts = [self.rows.pop(part) for part in own]
        tasks = [part for part in parts if isinstance(part, Task)]
        self.history.append(
            Ended(
                run,
                tuple(tasks or ([run.solo] if run.solo else [])),
                tuple(part for part in parts if isinstance(part, Growth)),
            )
        )


class StoreMachine(RuleBasedStateMachine):
    """Three processes on one disk. An epoch is used by the process that was given it, if that still lives."""

    reigns = Bundle("reigns")

    def __init__(self, adapter: Adapter) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.bench = self.run(self._open(adapter))
        self.stores = [self.bench.store, *[self.run(self.bench.join()) for _ in range(WRITERS - 1)]]
        self.processes = list(range(WRITERS))
        self.newest = [0] * WRITERS
        self.reigning: Reign | None = None
        self.model = Model()

    def run(self, call: Awaitable[T]) -> T:
        async def wait() -> T:
            return await call

        return self.runner.run(wait())

    @staticmethod
    async def _open(adapter: Adapter) -> Bench:
        return Bench(adapter, await adapter.make_store())

    def teardown(self) -> None:
        try:
            self.run(self.bench.close())
        finally:
            self.runner.close()

    def store_of(self, reign: Reign) -> Store | None:
        """The store of a process, while it lives."""
        return self.stores[reign.writer] if self.processes[reign.writer] == reign.process else None

    @rule(target=reigns, writer=st.integers(0, WRITERS - 1))
    def elect(self, writer: int) -> Any:
        if self.model.holder is not None:
            election = self.stores[writer].elect(Candidate(f"writer {writer}"))
            epoch = self.run(asyncio.wait_for(election, self.bench.adapter.patience_s))
            assert epoch is None, "elected while another holds the lock"
            return multiple()
        epoch = self.run(self.bench.elect_after_death(self.stores[writer]))
        assert epoch > self.model.epoch, "an epoch that is not newer"
        self.model.epoch = self.model.holder = self.newest[writer] = epoch
        self.reigning = Reign(writer, self.processes[writer], epoch)
        return self.reigning

    @rule(reign=reigns)
    def release(self, reign: Reign) -> None:
        store = self.store_of(reign)
        if store is not None:
            self.run(store.release(reign.epoch))
            self.model.holder = None if self.model.holder == reign.epoch else self.model.holder

    @rule(reign=reigns)
    def holds(self, reign: Reign) -> None:
        store = self.store_of(reign)
        if store is not None:
            assert self.run(store.holds(reign.epoch)) == (self.model.holder == reign.epoch)

    @rule(writer=st.integers(0, WRITERS - 1))
    def die_and_come_back(self, writer: int) -> None:
        self.stores[writer] = self.run(self.bench.reopen(self.stores[writer], self.newest[writer]))
        self.model.holder = None if self.model.holder == self.newest[writer] else self.model.holder
        self.processes[writer] += WRITERS
        self.newest[writer] = 0

    @rule(reign=reigns)
    def load(self, reign: Reign) -> None:
        store = self.store_of(reign)
        if store is None:
            return
        if reign.epoch != self.model.epoch:
            with pytest.raises(Fenced):
                self.run(self.bench.disk(store, reign.epoch))
            return
        model = self.model
        assert_same(
            self.run(self.bench.disk(store, reign.epoch)), disk_of(model.rows.values(), model.history, model.stories)
        )

    @rule(asked=ASKED)
    def commit(self, asked: Asked) -> None:
        store = self.reigning and self.store_of(self.reigning)
        if self.reigning is None or store is None:
            return
        written = self.model.batch_of(*asked)
        self.run(store.commit(self.reigning.epoch, written))
        self.model.commit(written)
        self.load(self.reigning)

    @rule(reign=reigns, asked=ASKED)
    def commit_long_after(self, reign: Reign, asked: Asked) -> None:
        store = self.store_of(reign)
        if store is not None and reign.epoch != self.model.epoch:
            self.be_fenced(store, reign, self.model.batch_of(*asked))

    @rule(target=reigns, asked=ASKED, writer=st.integers(0, WRITERS - 1))
    def commit_too_late(self, asked: Asked, writer: int) -> Any:
        reign, store = self.reigning, self.reigning and self.store_of(self.reigning)
        if reign is None or store is None:
            return multiple()
        self.release(reign)
        later = self.elect(writer)
        self.be_fenced(store, reign, self.model.batch_of(*asked))
        return later

    def be_fenced(self, store: Store, reign: Reign, written: Batch) -> None:
        """An epoch that has passed commits, and nothing happens."""
        with pytest.raises(Fenced):
            self.run(store.commit(reign.epoch, written))
        assert self.reigning is not None, "an epoch has passed, so there is a newer one"
        self.load(self.reigning)

    @rule()
    def tidy(self) -> None:
        """Housekeeping that has nothing to remove moves things about, and nobody can tell."""
        store = self.reigning and self.store_of(self.reigning)
        if self.reigning is not None and store is not None:
            self.run(store.tidy(self.reigning.epoch, 0, INT_MAX))
            self.load(self.reigning)

    @rule(reign=reigns)
    def scribble_on_what_was_loaded(self, reign: Reign) -> None:
        store = self.store_of(reign)
        if store is not None and reign.epoch == self.model.epoch:
            for record in self.run(_list(store, reign.epoch)):
                scribble(record)

    @rule(writer=st.integers(0, WRITERS - 1), ahead=st.booleans())
    def come_with_an_epoch_that_nobody_was_given(self, writer: int, ahead: bool) -> None:
        store, never = self.stores[writer], self.model.epoch + 1 if ahead else 0
        assert not self.run(store.holds(never))
        self.run(store.release(never))
        with pytest.raises(Fenced):
            self.run(store.commit(never, batch()))
        with pytest.raises(Fenced):
            self.run(_list(store, never))


async def _list(store: Store, epoch: Epoch) -> list[Record]:
    return [record async for record in store.load(epoch)]


@pytest.mark.hypothesis
@pytest.mark.parametrize("adapter", [*ADAPTERS, RowAdapter()], ids=lambda adapter: adapter.name)
def test_a_store_behaves_like_its_model(adapter: Adapter) -> None:
    effort = settings(examples(20), stateful_step_count=30)
    run_state_machine_as_test(lambda: StoreMachine(adapter), settings=effort)


@pytest.mark.parametrize(
    "make",
    [
        broken_stores.ArchivesForEveryTenant,
        broken_stores.DropsBeforeItCompares,
        broken_stores.FencesByTheLock,
        broken_stores.WritesAsItReads,
        broken_revival.KeepsACopyForLater,
    ],
)
def test_a_store_that_does_not_is_noticed(make: type[RowStore]) -> None:
    effort = settings(
        max_examples=200, stateful_step_count=40, phases=[Phase.generate], database=None, derandomize=True
    )
    with pytest.raises(NOTICED):
        run_state_machine_as_test(lambda: StoreMachine(RowAdapter(make)), settings=effort)
