"""A coordinator that loads what another wrote must know what the other knew.

Random commands are carried out, batches are taken at random moments and applied to a disk that knows no rule of ours.
Then the disk, the records in memory and the state loaded from either must be one and the same.
"""

from contextlib import suppress

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rota.core import commands as cm
from rota.core.calendar import ScheduleSpec
from rota.core.changes import LeaseGranted
from rota.core.errors import Refused, Unavailable
from rota.core.images import all_records, is_clean, take_batch
from rota.core.invariants import validate
from rota.core.live import LiveRun
from rota.core.load import load
from rota.core.model import FailureClass, Graph, Pool, PoolNeed, PriorityClass, PropertyRule, RetryPolicy, TaskSpec
from rota.core.records import RECORD_TYPES, GraphRecord, Growth, Key, Record, Run, Task, key_of
from rota.core.states import TERMINAL, RunState
from tests.effort import examples
from tests.unit.core.world import TENANT, World, derived, graph, image, imaged, short_slices, task, task_states

DAY_MS = 86_400_000


def read_back(record: Record) -> Record:
    """A record as it comes out of bytes again."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=type(record))


class Disk:
    """Records by key, written by batches alone."""

    def __init__(self) -> None:
        self.rows: dict[Key, Record] = {}
        self.past: dict[tuple[str, str, int], dict[Key, Record]] = {}
        # Definitions outlive their records: runs in history were made of them.
        self.graphs: dict[str, Graph] = {}
        self.stories: dict[tuple[str, str], int] = {}

    def commit(self, world: World) -> None:
        """Apply one batch, all of it."""
        batch = take_batch(world.state, world.now)
        assert is_clean(world.state)
        put = [key_of(record) for record in batch.puts]
        assert len(set(put)) == len(put), "a batch writes a record twice"
        assert not set(put) & set(batch.drops), "a batch writes a record and drops it"
        for revived in batch.revives:
            self.rows |= self.past.pop(revived)
        for record in batch.puts:
            self.rows[key_of(record)] = read_back(record)
            if isinstance(record, GraphRecord):
                self.graphs[record.digest] = record.graph
        for key in batch.drops:
            self.rows.pop(key, None)
        for tenant, run in batch.archives:
            moved = [key for key in self.rows if key[0] in ("Run", "Task", "Growth") and key[1:3] == (tenant, run)]
            row = self.rows[("Run", tenant, run)]
            assert isinstance(row, Run)
            self.past[(tenant, run, row.created_at)] = {key: self.rows.pop(key) for key in moved}
        for story in batch.stories:
            assert story.number == self.stories.get((story.tenant, story.run), 0), "a story lost a page"
            self.stories[(story.tenant, story.run)] = story.number + 1

    def ended(self, chosen: tuple[str, str, int]) -> tuple[Run, tuple[Task, ...], tuple[Growth, ...]]:
        """A run in history, as a store gives it."""
        rows = [
            msgspec.msgpack.decode(msgspec.msgpack.encode(row), type=type(row)) for row in self.past[chosen].values()
        ]
        (row,) = [each for each in rows if isinstance(each, Run)]
        tasks = [row.solo] if row.solo is not None else [each for each in rows if isinstance(each, Task)]
        return row, tuple(tasks), tuple(each for each in rows if isinstance(each, Growth))

    def copies(self) -> list[Record]:
        """What a store would read back."""
        return [read_back(row) for row in self.rows.values()]


def assert_survives(world: World, disk: Disk) -> None:
    """Disk and memory agree, and loading either gives the same state again."""
    disk.commit(world)
    assert imaged(disk.rows.values()) == image(world.state)
    loaded = load(world.state.epoch + 1, world.state.limits, disk.copies(), world.now)
    assert image(loaded) == image(world.state)
    here, there = derived(world.state), derived(loaded)
    for name, value in here.items():
        assert there[name] == value, name
    assert validate(loaded, world.now) == []


class Disturber:
    """Random commands, of every sort."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.world = World()
        self.disk = Disk()
        self.number = 0
        self.held: list[LeaseGranted] = []
        self.world.worker("w1", slots=3, properties=(("cpu_count", "4"),))
        self.world.pool("p", slots=2)

    def choose(self, *items: object) -> object:
        return self.data.draw(st.sampled_from(items))

    def spec(self, number: int, width: int) -> TaskSpec:
        return task(
            f"n{number}",
            *([f"n{self.data.draw(st.integers(0, number - 1))}"] if number and self.data.draw(st.booleans()) else []),
            width=width,
            pools=self.choose((), (PoolNeed("p", 1, "k"),)),
            requires=self.choose((), (("cpu_count", "2"),)),
            retry=self.choose(RetryPolicy(), RetryPolicy(retries=1, delay_ms=1_000)),
        )

    def submit(self) -> None:
        self.number += 1
        count = self.data.draw(st.integers(1, 3))
        specs = tuple(self.spec(number, self.data.draw(st.sampled_from([1, 1, 2, 0]))) for number in range(count))
        limits = self.choose((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 30_000))
        whole = graph(
            *specs,
            name=str(self.choose("g", "h")),
            max_active_runs=limits[0],
            max_active_tasks=limits[1],
            run_timeout_ms=limits[2],
        )
        self.world.submit(whole, run=f"r{self.number}", priority=PriorityClass(str(self.choose("low", "urgent"))))

    def finish(self) -> None:
        self.held = [granted for granted in self.held if granted.fence in self.world.state.leases]
        if not self.held:
            return
        granted = self.data.draw(st.sampled_from(self.held))
        what = self.choose(
            *("success", "failed", "skipped", "released", "reschedule", "started", "interrupted", "lost", "grew")
        )
        if what == "interrupted":
            self.world.start(granted)
            self.world.interrupt(granted)
        elif what == "lost":
            self.world.fail(granted, failure=FailureClass.INPUT_LOST, lost=("n0", "n0.last[0]", "n1.last"))
        elif what == "grew":
            self.world.report(granted, cm.Outcome.GREW, grows=self.stages(self.world.run(granted.run), granted.task))
        else:
            run = self.world.run(granted.run)
            unknown = [spec.id for node, spec in enumerate(run.graph.specs) if not run.graph.width[node]]
            expands = tuple((name, self.data.draw(st.integers(0, 2))) for name in unknown)
            skips = self.choose((), (), tuple(spec.id for spec in run.graph.specs))
            self.world.report(granted, cm.Outcome(what), resume_at=self.world.now + 5_000, expands=expands, skips=skips)

    def stages(self, run: LiveRun, idx: int) -> tuple[TaskSpec, ...]:
        name = run.graph.spec(idx).id
        last = task(f"{name}.last", f"{name}.first", width=self.data.draw(st.integers(1, 2)))
        first = task(f"{name}.first", width=self.data.draw(st.integers(1, 3)))
        return self.choose((first, last), (task(f"{name}.last"),))

    def run_changes(self) -> None:
        if not self.world.state.runs:
            return
        run = self.data.draw(st.sampled_from(list(self.world.state.runs.values())))
        name = run.row.id
        what = self.choose(
            *("cancel", "pause", "resume", "clear", "grow", "expand", "lose", "resolve"),
            *("mark", "retry", "note", "move", "clear all"),
        )
        known = [run.graph.task_id(idx) for idx in task_states(run) if idx not in run.graph.retired]
        ended = [run.graph.task_id(idx) for idx, state in task_states(run).items() if state in TERMINAL]
        if what == "cancel":
            self.world.client(cm.CancelRun, run=name)
        elif what in ("pause", "resume"):
            self.world.client(cm.PauseRun, run=name, paused=what == "pause")
        elif what == "mark" and known:
            marked = (self.data.draw(st.sampled_from(known)),)
            self.world.client(cm.MarkTasks, run=name, tasks=marked, to=self.choose(*cm.Mark))
        elif what == "retry":
            self.world.client(cm.RetryTasks, run=name)
        elif what == "note" and known:
            self.world.client(cm.NoteTask, run=name, task=self.data.draw(st.sampled_from(known)), note="n")
        elif what == "move":
            self.world.client(cm.MoveRun, run=name, version=self.data.draw(st.integers(0, 2)))
        elif what == "clear all":
            self.world.client(cm.ClearTasks, run=name, only_failed=self.data.draw(st.booleans()))
        elif what == "clear" and ended:
            self.world.client(cm.ClearTasks, run=name, tasks=(self.data.draw(st.sampled_from(ended)),))
        elif what == "grow":
            above = self.choose((), (run.graph.specs[0].id,))
            new = TaskSpec(id=f"grown{run.row.grown}", upstream=above)
            self.world.client(cm.GrowRun, run=name, specs=(new,))
        elif what == "expand":
            unknown = [spec.id for node, spec in enumerate(run.graph.specs) if not run.graph.width[node]]
            if unknown:
                self.world.client(cm.GrowRun, run=name, expands=unknown[0], width=self.data.draw(st.integers(1, 3)))
        elif what == "lose" and ended:
            self.world.client(cm.LoseOutputs, run=name, tasks=(ended[0],))
        elif what == "resolve":
            parked = [run.graph.task_id(idx) for idx, row in run.tasks.items() if row.state == "needs_attention"]
            if parked:
                self.world.client(cm.ResolveTask, run=name, task=parked[0], exit=self.choose(*cm.Exit))

    def definitions_change(self) -> None:
        world = self.world
        what = self.choose("queue", "pool", "drop", "schedule", "unschedule", "worker", "forget", "drain")
        if what == "queue":
            rule = self.choose(PropertyRule.MINIMUM, PropertyRule.PRIORITY)
            world.queue("default", properties=(("cpu_count", rule),))
        elif what == "pool":
            world.pool("p", slots=self.data.draw(st.integers(1, 3)))
        elif what == "drop":
            world.client(cm.DropPool, name="p")
        elif what == "schedule":
            spec = ScheduleSpec(every_ms=20_000, max_active_runs=self.data.draw(st.integers(0, 1)))
            whole = graph(task("s"), name=str(self.choose("s1", "s2")))
            world.client(cm.PutSchedule, schedule="daily", graph=whole, spec=spec)
        elif what == "unschedule":
            world.client(cm.DropSchedule, schedule="daily")
        elif what == "worker":
            world.worker(str(self.choose("w1", "w2")), slots=2, properties=(("cpu_count", str(self.choose(2, 8))),))
        elif what == "forget":
            world.client(cm.ForgetWorker, worker=str(self.choose("w1", "w2")))
        else:
            world.client(cm.DrainWorker, worker="w1", draining=self.data.draw(st.booleans()))

    def workflows_change(self) -> None:
        world = self.world
        what = self.choose(
            "deploy", "deploy", "trigger", "trigger", "pause", "resume", "drop", "backfill", "unfill", "revive"
        )
        name = str(self.choose("wf", "wg"))
        if what == "deploy":
            chain = self.data.draw(st.integers(1, 3))
            specs = [task(f"n{i}", *([f"n{i - 1}"] if i else []), depends_on_past=i == 0) for i in range(chain)]
            mapped = self.choose((), (task("m", "n0", width=0),))
            whole = graph(*specs, *mapped, name=name, max_active_runs=self.data.draw(st.integers(0, 2)))
            spec = self.choose(None, ScheduleSpec(every_ms=15_000, start_at=world.now - 40_000))
            world.client(cm.DeployWorkflow, graph=whole, schedule=spec)
        elif what == "trigger":
            self.number += 1
            at = self.choose(0, world.now - 30_000, world.now + 30_000)
            world.client(cm.SubmitRun, run=f"r{self.number}", workflow=name, logical_at=at)
        elif what in ("pause", "resume"):
            world.client(cm.PauseWorkflow, workflow=name, paused=what == "pause")
        elif what == "drop":
            world.client(cm.DropWorkflow, workflow=name)
        elif what == "backfill":
            self.number += 1
            world.client(
                cm.StartBackfill,
                backfill=f"b{self.number}",
                workflow=name,
                start_at=0,
                end_at=world.now,
                max_active_runs=1,
            )
        elif what == "unfill":
            backfills = [each.id for each in world.state.schedules.values() if each.backfill]
            if backfills:
                world.client(cm.CancelBackfill, backfill=backfills[0])
        elif self.disk.past:
            chosen = self.data.draw(st.sampled_from(sorted(self.disk.past)))
            row, tasks, growths = self.disk.ended(chosen)
            whole = self.disk.graphs[row.graph]
            world.do(cm.ReviveRun(tenant=TENANT, row=row, tasks=tasks, growths=growths, graph=whole))

    def step(self) -> None:
        what = self.choose(
            self.submit,
            self.workflows_change,
            self.workflows_change,
            self.finish,
            self.finish,
            self.finish,
            self.run_changes,
            self.definitions_change,
            "time",
            "turn",
        )
        if what == "time":
            # A commit waits for no timer; time never passes with a batch open.
            self.disk.commit(self.world)
            self.world.advance(self.data.draw(st.sampled_from([1_000, 11_000, 31_000])))
        elif what == "turn":
            self.held += self.world.turn()
        else:
            with suppress(Refused, Unavailable):
                what()


@examples(80)
@given(data=st.data(), size=st.sampled_from([2, 1_000]))
def test_what_was_committed_is_what_is_loaded_after_any_sequence_of_commands(data: st.DataObject, size: int):
    with short_slices(size):
        disturber = Disturber(data)
        for _ in range(data.draw(st.integers(3, 30))):
            disturber.step()
            if data.draw(st.integers(0, 3)) == 0:
                assert_survives(disturber.world, disturber.disk)
        disturber.held += disturber.world.turn()
        assert_survives(disturber.world, disturber.disk)


def full_world() -> tuple[World, Disk]:
    """A world with a record of every type."""
    world, disk = World(), Disk()
    world.queue("q")
    world.pool("p", slots=1)
    world.client(cm.PutTenant, weight=3)
    world.client(cm.PauseScheduler, scope="workspace=w", reason="for a test")
    world.worker("w", slots=5)
    world.client(cm.PutSchedule, schedule="s", graph=graph(task("a"), name="s"), spec=ScheduleSpec(every_ms=DAY_MS))
    world.client(cm.DeployWorkflow, graph=graph(task("a"), name="w"), schedule=ScheduleSpec(every_ms=DAY_MS))
    world.submit(graph(task("a"), task("b", "a"), name="two"), run="two")
    world.submit(task("solo"), run="one")
    world.turn()
    world.client(cm.GrowRun, run="two", specs=(task("c", "b"),))
    world.turn()
    return world, disk


def test_every_type_of_record_is_written_and_read_back():
    world, disk = full_world()
    assert_survives(world, disk)
    assert {type(row) for row in disk.rows.values()} == set(RECORD_TYPES)


def test_all_records_lists_every_type_of_record():
    world, _ = full_world()
    assert {type(row) for row in all_records(world.state)} == set(RECORD_TYPES)


def test_the_only_task_of_a_run_lives_in_the_runs_row():
    world, disk = World(), Disk()
    world.worker("w")
    world.submit(task("x"))
    world.turn()
    disk.commit(world)
    assert not [row for row in disk.rows.values() if isinstance(row, Task)]
    assert_survives(world, disk)


def test_a_grown_run_survives_a_restart_long_after_everybody_else_left_its_graph():
    world, disk = World(), Disk()
    world.worker("w", slots=5)
    world.submit(graph(task("a"), max_active_tasks=5))
    (granted,) = world.turn()
    world.start(granted)
    world.client(cm.GrowRun, run="r", specs=(task("b", "a"),))
    disk.commit(world)
    world.advance(10 * 60_000)
    assert_survives(world, disk)
    world.succeed(granted)
    assert len(world.turn()) == 1


def test_a_grown_run_finds_workers_that_joined_after_it_grew():
    world = World()
    world.worker("w")
    whole = graph(task("a"), task("late", "a", kind="rare"))
    world.submit(whole)
    (granted,) = world.turn()
    world.start(granted)
    world.client(cm.GrowRun, run="r", specs=(task("b", "a"),))
    world.succeed(granted)
    world.follow_up()
    world.advance(10 * 60_000)
    world.worker("rare", kinds=("rare",))
    assert "rare" in [granted.worker for granted in world.turn()]


def test_buckets_are_forgotten_with_the_runs_that_used_them():
    world = World()
    world.worker("w", slots=5)
    for number in range(20):
        world.submit(graph(task("a", kind=f"k{number}"), name=f"g{number}"), run=f"r{number}")
        (granted,) = world.turn()
        world.start(granted)
        if number % 2:
            world.client(cm.GrowRun, run=f"r{number}", specs=(task("b", kind=f"grown{number}"),))
        else:
            world.interrupt(granted)
        for _ in range(3):
            for again in world.turn():
                world.succeed(again)
        if granted.fence in world.state.leases:
            world.succeed(granted)
    world.advance(10 * 60_000)
    assert not world.state.runs
    assert not world.state.graphs
    assert len(world.state.index.buckets) == 0


def test_a_worker_struck_off_and_registered_again_in_one_batch_is_kept():
    world, disk = World(), Disk()
    world.worker("w")
    disk.commit(world)
    world.client(cm.ForgetWorker, worker="w")
    world.worker("w", incarnation="i2")
    assert_survives(world, disk)


def test_an_id_used_again_in_the_batch_that_drops_its_receipt_is_kept():
    world, disk = World(), Disk()
    world.do(cm.PutPool(tenant=TENANT, command_id="c", pool=pool_named("p")))
    disk.commit(world)
    world.advance(2 * 3_600_000)
    world.do(cm.PutPool(tenant=TENANT, command_id="c", pool=pool_named("q")))
    assert_survives(world, disk)


def pool_named(name: str) -> Pool:
    return Pool(tenant=TENANT, name=name, slots=1)


def test_a_cascade_in_the_middle_of_its_slices_goes_on_after_a_restart():
    with short_slices(2):
        world, disk = World(), Disk()
        world.worker("w", slots=20)
        world.submit(graph(task("a"), task("b", "a", width=7)))
        (granted,) = world.turn()
        world.succeed(granted)
        assert world.run().row.pending
        assert_survives(world, disk)
        after = world.restarted()
        after.hear("w")
        for made in after.turn():
            after.succeed(made)
        after.follow_up()
        assert after.result() is RunState.SUCCESS


def test_a_paused_and_a_stopping_run_are_still_so_after_a_restart():
    world, disk = World(), Disk()
    world.worker("w")
    world.submit(graph(task("a", width=3)), run="paused")
    world.submit(graph(task("a", width=3)), run="stopping")
    world.follow_up()
    world.client(cm.PauseRun, run="paused")
    world.client(cm.CancelRun, run="stopping")
    assert_survives(world, disk)
    after = world.restarted()
    after.hear("w")
    assert after.turn() == []
    assert after.result("stopping") is RunState.CANCELLED
    after.client(cm.PauseRun, run="paused", paused=False)
    assert len(after.turn()) == 1


def test_a_retry_that_was_waiting_still_comes_after_a_restart():
    world = World()
    world.worker("w")
    world.submit(task("x", retry=RetryPolicy(retries=1, delay_ms=60_000, jitter=False)))
    (granted,) = world.turn()
    world.fail(granted)
    after = world.restarted()
    after.hear("w")
    after.advance(59_999)
    assert after.turn() == []
    after.advance(1)
    assert len(after.turn()) == 1
