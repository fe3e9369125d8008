"""From a state to what a commit writes: the images of everything the open batch has touched."""

import msgspec

from rota.core.ids import Millis
from rota.core.live import LiveRun
from rota.core.records import Batch, GraphRecord, Key, Record, Run, Story, copy, key_of
from rota.core.state import State, Touched

_encode = msgspec.msgpack.Encoder().encode


def run_image(run: LiveRun) -> Run:
    """A copy of a run's row, with its only task inside if it has just one."""
    row = copy(run.row)
    if run.is_solo and run.tasks:
        row.solo = copy(run.tasks[0])
    return row


def take_batch(state: State, now: Millis) -> Batch:
    """What the next commit writes. The open batch starts anew; later changes cannot reach into this one."""
    touched = state.touched
    stories: list[Story] = []
    for key, changes in touched.stories.items():
        run = touched.runs[key]
        stories.append(Story(*key, run.row.created_at, run.row.story, now, _encode(changes)))
        run.row.story += 1
    state.touched = Touched()
    puts: list[Record] = [run_image(run) for run in touched.runs.values()]
    puts.extend(copy(task) for task in touched.tasks.values())
    puts.extend(copy(record) for record in touched.puts.values())
    return Batch(puts, _drops(touched), list(touched.archives), stories, touched.audits, touched.revives)


def _drops(touched: Touched) -> list[Key]:
    """The rows that go. A task that a run lost when it was moved, and has again, stays."""
    if not any(key[0] == "Task" for key in touched.drops):
        return list(touched.drops)
    written = dict.fromkeys(key_of(task) for task in touched.tasks.values())
    return [key for key in touched.drops if key not in written]


def is_clean(state: State) -> bool:
    """Whether the open batch is empty."""
    touched = state.touched
    return not (touched.runs or touched.tasks or touched.puts or touched.drops or touched.archives or touched.revives)


def all_records(state: State) -> list[Record]:
    """Every live record, as loading would find it; for `validate` and the simulator's comparison with the disk."""
    records: list[Record] = []
    for run in state.runs.values():
        records.append(run_image(run))
        records.extend(run.growths)
        if not run.is_solo:
            records.extend(copy(task) for task in run.tasks.values())
    records.extend(copy(worker.row) for worker in state.workers.values())
    records.extend(
        GraphRecord(graph.tenant, graph.digest, graph.graph, graph.put_at) for graph in state.graphs.values()
    )
    records.extend(state.queues.values())
    records.extend(pool for pool in state.pools.values() if not pool.name.startswith("@"))
    records.extend(state.tenants.values())
    records.extend(copy(schedule) for schedule in state.schedules.values())
    records.extend(copy(workflow) for workflow in state.workflows.values())
    records.extend(state.receipts.values())
    records.extend(state.pauses.values())
    return records
