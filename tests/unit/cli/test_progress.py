"""A run's progress on a terminal, on a narrow one, and where nobody watches."""

import io
import re

import pytest

from rota.cli import progress as module
from rota.cli.bars import Bar, bar
from rota.cli.bars import has_colour as has_colour_on
from rota.cli.progress import Progress
from rota.client.happenings import Happening
from rota.core.graph import LiveGraph
from rota.core.model import Graph, TaskSpec
from rota.core.questions import TaskView, view_task
from rota.core.records import Task


class Terminal(io.StringIO):
    """A stream that says it is a terminal, of a size."""

    def isatty(self) -> bool:
        return True


def tasks(*names: str) -> list[TaskView]:
    graph = LiveGraph("t", "digest", Graph(name="g", tasks=tuple(TaskSpec(id=name) for name in names)))
    return [view_task(Task("t", "r", idx), graph) for idx in range(len(names))]


def happening(idx: int, task: str, state: str, what: str = "AttemptEnded", **fields: object) -> Happening:
    return Happening(at=1_500, what=what, task=task, idx=idx, state=state, text=what, **fields)  # pyright: ignore[reportArgumentType] - of the right types


def explain(task: str) -> str:
    return f"{task} waits for its time"


def shown(text: str) -> list[str]:
    """What stays on the screen: each picture is drawn over the one before."""
    lines: list[str] = []
    for part in re.split(r"(\x1b\[\d+F)", text):
        up = re.fullmatch(r"\x1b\[(\d+)F", part)
        if up:
            del lines[-int(up[1]) :]
        else:
            lines += [re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line) for line in part.splitlines()]
    return lines


def test_where_nobody_watches_each_end_is_one_line():
    out = io.StringIO()
    progress = Progress(tasks("a", "b"), 1_000, explain, out)
    progress.draw()
    progress.take(happening(0, "a", "assigned", "LeaseGranted", attempt=1))
    progress.take(happening(0, "a", "running", "AttemptStarted"))
    progress.take(happening(0, "a", "success"))
    progress.take(happening(1, "b", "failed", error="ValueError: x\x1b[2J\n\nTraceback\n  File"))
    assert out.getvalue() == "   0.500 s  a: success\n   0.500 s  b: failed: ValueError: x [2J\n"


def test_a_task_that_is_tried_again_says_why_it_waits():
    out = io.StringIO()
    progress = Progress(tasks("a"), 1_000, explain, out)
    progress.take(happening(0, "a", "assigned", "LeaseGranted", attempt=1))
    progress.take(happening(0, "a", "up_for_retry", error="oops"))
    tried, waits = out.getvalue().splitlines()
    assert tried == "   0.500 s  a: up_for_retry (attempt 1): oops"
    assert (waits.startswith(" " * 12), waits.endswith(explain("a"))) == (True, True)


def test_on_a_terminal_there_is_a_line_for_each_task_drawn_over_the_last():
    out = Terminal()
    progress = Progress(tasks("extract", "load"), 1_000, explain, out)
    progress.draw()
    assert shown(out.getvalue()) == ["  · extract  none", "  · load     none"]
    progress.take(happening(0, "extract", "assigned", "LeaseGranted", attempt=2))
    progress.take(happening(0, "extract", "success"))
    progress.take(happening(1, "load", "failed", error="KeyError: 'x'"))
    assert shown(out.getvalue()) == ["  ✓ extract  success (attempt 2)", "  ✗ load     failed: KeyError: 'x'"]
    assert "\x1b[32msuccess\x1b[0m" in out.getvalue()


def test_no_line_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Progress, "_size", lambda self: (40, 24))
    out = Terminal()
    progress = Progress(tasks("a", "b" * 100), 1_000, explain, out)
    progress.take(happening(0, "a", "failed", error="no " * 100))
    progress.take(happening(1, "b" * 100, "up_for_retry"))
    lines = shown(out.getvalue())
    assert len(lines) == 2
    assert all(len(line) < 40 for line in lines), lines
    assert lines[0].endswith("…")


def test_text_of_tasks_cannot_break_the_picture():
    out = Terminal()
    progress = Progress(tasks("a"), 1_000, explain, out)
    progress.take(happening(0, "a", "failed", error="one\x1b[2J two\rthree\nfour"))
    assert shown(out.getvalue()) == ["  ✗ a  failed: one [2J two"]
    progress.take(happening(0, "a", "failed", error="red \x1b[31m\x07\x9b1A"))
    assert shown(out.getvalue()) == ["  ✗ a  failed: red  [31m  1A"]


def test_many_tasks_are_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "REDRAW_S", -1.0)
    names = [f"t{number}" for number in range(30)]
    out = Terminal()
    progress = Progress(tasks(*names), 1_000, explain, out)
    progress.draw()
    for idx in range(10):
        progress.take(happening(idx, names[idx], "success"))
    progress.take(happening(10, names[10], "running", "AttemptStarted"))
    assert shown(out.getvalue()) == [
        "  [██████████····················] 10 of 30",
        "  19 none, 1 running, 10 success",
    ]


def test_on_a_low_terminal_few_are_counted_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Progress, "_size", lambda self: (80, 4))
    out = Terminal()
    progress = Progress(tasks(*"abcdef"), 1_000, explain, out)
    progress.draw()
    assert len(shown(out.getvalue())) == 2


def test_many_tasks_are_not_drawn_with_each_change(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "REDRAW_S", 3600.0)
    names = [f"t{number}" for number in range(30)]
    out = Terminal()
    progress = Progress(tasks(*names), 1_000, explain, out)
    progress.draw()
    before = out.getvalue()
    for idx, name in enumerate(names):
        progress.take(happening(idx, name, "success"))
    assert out.getvalue() == before
    progress.draw()
    assert shown(out.getvalue())[0].endswith("30 of 30")


def test_a_task_that_came_later_gets_a_line_with_its_name():
    out = Terminal()
    progress = Progress(tasks("a"), 1_000, explain, out)
    progress.take(happening(1, "each[0]", "queued", "TasksScheduled"))
    assert shown(out.getvalue()) == ["  · a        none", "  · each[0]  queued"]


def test_a_run_that_is_held_says_so():
    out = io.StringIO()
    progress = Progress(tasks("a"), 1_000, explain, out)
    progress.take(Happening(at=2_000, what="RunFaulted", text="RunFaulted  fault=KeyError"))
    assert out.getvalue() == "   1.000 s  the run is held: RunFaulted  fault=KeyError\n"  # wording


def test_what_moves_nothing_draws_nothing():
    out = Terminal()
    progress = Progress(tasks("a"), 1_000, explain, out)
    progress.take(Happening(at=2_000, what="RunPaused", text="RunPaused"))
    progress.take(happening(0, "a", "", "TaskStarved"))
    assert out.getvalue() == ""


def test_colours_are_left_out_where_none_are_wanted(monkeypatch: pytest.MonkeyPatch):
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    for value, terminal, has_colour in (("", "xterm", True), ("1", "xterm", False), ("", "dumb", False)):
        monkeypatch.setenv("NO_COLOR", value)
        monkeypatch.setenv("TERM", terminal)
        assert has_colour_on(Screen()) == has_colour
    assert not has_colour_on(io.StringIO())


def test_a_bar_is_drawn_on_a_terminal_only_and_taken_away_at_the_end():
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown, hidden = Screen(), io.StringIO()
    for out in (shown, hidden):
        progress = Bar("pages", out)
        progress.show(1, 4)
        progress.show(4, 4)
        progress.clear()
    assert hidden.getvalue() == ""
    assert "4 of 4 pages" in shown.getvalue()
    assert shown.getvalue().endswith("\r\x1b[K")
    assert bar(1, 4, 8) == "██······"
    assert bar(1, 0, 3) == "···"
