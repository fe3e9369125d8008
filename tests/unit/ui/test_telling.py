"""The end of a story: named, bounded, told once."""

import asyncio

import msgspec

from rota.client.happenings import Names
from rota.core.changes import AttemptEnded, Change, LeaseGranted, RunGrew, TasksScheduled
from rota.core.graph import LiveGraph, graph_digest
from rota.core.model import FailureClass, Graph, TaskSpec
from rota.core.records import Growth, Story
from rota.core.states import TaskState
from rota.ui.telling import LINE_CHARS_MAX, LINES_KEPT_MAX, Tale

OF = ("t", "r")


def graph(*specs: TaskSpec) -> LiveGraph:
    whole = Graph(name="g", tasks=specs)
    return LiveGraph("t", graph_digest(whole), whole)


def part(number: int, *changes: Change, at: int = 0) -> Story:
    return Story(*OF, 0, number, at, msgspec.msgpack.encode(changes))


def ended(task: int, error: str = "", due_at: int = 0) -> AttemptEnded:
    return AttemptEnded(*OF, task, 1, TaskState.UP_FOR_RETRY, 0, None, FailureClass.USER, error, due_at)


def told(tale: Tale) -> list[str]:
    return [f"{line.what}: {line.text}" for line in tale.lines]


def test_many_tasks_are_named_by_the_first_few():
    tale = Tale(Names(graph(TaskSpec(id="work", width=1_000))))
    tale.hear(part(0, TasksScheduled(*OF, tuple(range(1_000)), 0)))
    assert told(tale) == ["tasks scheduled: work[0], work[1], work[2], work[3], work[4] and 995 more"]


def test_on_the_page_of_a_task_only_what_concerns_it_is_told_and_its_worker_is_known():
    tale = Tale(Names(graph(TaskSpec(id="work", width=3))), "work[1]")
    tale.hear(part(0, TasksScheduled(*OF, (0, 1, 2), 0)))
    tale.hear(part(1, LeaseGranted(*OF, 0, 7, "", "other", "i", 1, 0, 0)))
    tale.hear(part(2, LeaseGranted(*OF, 1, 8, "", "mine", "i", 1, 0, 0)))
    assert told(tale) == ["tasks scheduled: ", "lease granted: fence=0.8  worker=mine  attempt=1"]
    assert tale.worker == "mine"


def test_of_an_error_its_cause_is_told_and_when_it_is_tried_again():
    tale = Tale(Names(graph(TaskSpec(id="a"))))
    tale.hear(part(0, ended(0, "ValueError: no\n\nTraceback\n  somewhere\n", due_at=2_500), at=1_000))
    (line,) = tale.lines
    assert line.text.endswith("failure=user  error=ValueError: no  again in 1.5 s")


def test_a_line_is_not_longer_than_fits():
    tale = Tale(Names(graph(TaskSpec(id="a"))))
    tale.hear(part(0, ended(0, "x" * 10_000)))
    assert len(tale.lines[0].text) <= LINE_CHARS_MAX + 1


def test_names_of_tasks_that_came_later_are_known_after_the_run_grew():
    tale = Tale(Names(graph(TaskSpec(id="a"), TaskSpec(id="mapped", width=0, upstream=("a",)))))
    tale.hear(part(0, RunGrew(*OF, Growth(*OF, 0, expands="mapped", width=2), 0)))
    tale.hear(part(1, TasksScheduled(*OF, (1, 2), 0)))
    assert told(tale)[-1] == "tasks scheduled: mapped[0], mapped[1]"


def test_the_last_lines_are_kept_each_once_and_it_is_said_that_there_were_more():
    tale = Tale(Names(graph(TaskSpec(id="a"))))
    parts = [part(number, TasksScheduled(*OF, (0,), 0), at=number) for number in range(LINES_KEPT_MAX + 10)]
    asyncio.run(tale.hear_all(parts[:LINES_KEPT_MAX]))
    assert not tale.is_cut
    asyncio.run(tale.hear_all(parts))
    assert tale.is_cut
    assert [line.at for line in tale.lines] == list(range(10, LINES_KEPT_MAX + 10))
