"""What the promises are tried with: filled records that belong together."""

from collections.abc import Iterable

from msgspec import Struct

from rota.core.history import Ended
from rota.core.records import RECORD_TYPES, Growth, Record, Run, Story, Task, key_of
from tests.contract.records import bare, fields_of, filled, key_values, with_fields


def one_of_each(start: int = 0) -> list[Record]:
    """A filled record of every type; the task and the growth are the run's."""
    records: list[Record] = [filled(cls, start + 1_000 * number) for number, cls in enumerate(RECORD_TYPES)]
    run = run_of(records)
    run.solo = None
    return [
        with_fields(record, tenant=run.tenant, run=run.id) if isinstance(record, Task | Growth) else record
        for record in records
    ]


def run_of(records: Iterable[Record]) -> Run:
    """The first run among records."""
    return next(record for record in records if isinstance(record, Run))


def with_runs(records: Iterable[Record]) -> list[Record]:
    """These records, and a run for every task and growth that would be without one."""
    made = {key_of(record): record for record in records}
    for part in list(made.values()):
        if isinstance(part, Task | Growth):
            made.setdefault(("Run", part.tenant, part.run), bare(Run, tenant=part.tenant, id=part.run))
    return list(made.values())


def new_images(records: list[Record], **fields: object) -> list[Record]:
    """Records of the same types under the same keys, `fields` apart, and otherwise of other values."""
    return [
        with_fields(filled(type(record), 400_000 + 1_000 * number), **{**key_values(record), **fields})
        for number, record in enumerate(records)
    ]


def a_run(tenant: str = "t", run: str = "r", start: int = 0) -> Ended:
    """A run of several tasks, with everything that moves to history with it."""
    tasks = [filled(Task, start + 100 * idx, tenant=tenant, run=run, idx=idx) for idx in (1, 2, 10, 11)]
    growths = [filled(Growth, start + 500 * part, tenant=tenant, run=run, number=part) for part in (0, 1)]
    return Ended(filled(Run, start, tenant=tenant, id=run, solo=None), tuple(tasks), tuple(growths))


def a_one_task_run(tenant: str = "t", run: str = "r", start: int = 0) -> Ended:
    """A run whose task is stored inside it."""
    row = filled(Run, start, tenant=tenant, id=run)
    assert row.solo is not None, "a filled run has its task inside"
    return Ended(row, (row.solo,), ())


def rows_of(*runs: Ended) -> list[Record]:
    """The rows of runs while they live."""
    return [record for run in runs for record in (run.run, *([] if run.run.solo else run.tasks), *run.growths)]


def story_of(run: Run | None = None, parts: Iterable[int] = (0, 1, 2)) -> list[Story]:
    """Parts of one run's story."""
    told = run or a_run().run
    fields = {"tenant": told.tenant, "run": told.id, "created_at": told.created_at}
    return [filled(Story, 10 * part, number=part, **fields) for part in parts]


def scribble(record: Struct) -> None:
    """Change every field of a record in place, as far as its type allows."""
    other = filled(type(record), start=700_000)
    for field in fields_of(type(record)):
        value = getattr(record, field.name)
        if isinstance(value, Struct):
            scribble(value)
        elif not record.__struct_config__.frozen:
            setattr(record, field.name, getattr(other, field.name))
