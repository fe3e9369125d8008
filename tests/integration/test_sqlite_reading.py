"""What a person with plain SQL finds in a data folder. Python's own sqlite3 stands for that person."""

import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rota.core.graph import graph_digest
from rota.core.ids import make_fence
from rota.core.model import FailureClass, Graph, TaskSpec
from rota.core.records import Batch, GraphRecord, Key, Record, Run, Task
from rota.core.states import RunState, TaskState
from rota.stores.sqlite import SqliteDisk
from tests.integration.writer import elected

# The query of the guide, and the same for the day on which the tests began.
TODAY = "select * from failures where day = date()"
NOW = int(datetime.now(UTC).timestamp() * 1_000)
THAT_DAY = TODAY.replace("date()", f"date({NOW} / 1000, 'unixepoch')")
ETL = Graph(name="etl", tasks=(TaskSpec(id="extract"), TaskSpec(id="transform", width=3), TaskSpec(id="load", width=1)))
ONE = Graph(name="mail", tasks=(TaskSpec(id="send"),))


def failed(run: str, idx: int, at: int, error: str) -> Task:
    return Task(
        "t",
        run,
        idx,
        TaskState.FAILED,
        attempt=2,
        worker="w1",
        done_fence=make_fence(1, 7),
        started_at=at - 1_500,
        ended_at=at,
        failure=FailureClass.USER,
        error=error,
    )


def a_day(now: int) -> list[Record]:
    """Two graphs, a failed run of three tasks, a failed run of one, one that was late, and yesterday's."""
    etl, one, day = graph_digest(ETL), graph_digest(ONE), 86_400_000
    bad = {"state": RunState.FAILED, "created_at": now - 5_000, "started_at": now - 4_000, "ended_at": now}
    return [
        GraphRecord("t", etl, ETL),
        GraphRecord("t", one, ONE),
        Run("t", "etl-1", etl, "etl", **bad),
        Task("t", "etl-1", 0, TaskState.SUCCESS, ended_at=now - 10),
        failed("etl-1", 2, now, "ValueError: no such column"),
        Run("t", "mail-1", one, "mail", **bad, solo=failed("mail-1", 0, now, "it's down")),
        Run("t", "late", one, "mail", **{**bad, "reason": "deadline"}),
        Run("t", "old", one, "mail", **{**bad, "ended_at": now - day}, solo=failed("old", 0, now - day, "older")),
    ]


def ask(folder: Path, text: str) -> list[dict[str, object]]:
    with sqlite3.connect(folder / "rota.db") as connection:
        connection.row_factory = sqlite3.Row
        found = [dict(row) for row in connection.execute(text)]
    connection.close()
    return found


def fill(folder: Path, archived: tuple[str, ...] = (), drops: tuple[Key, ...] = (), tidied: int = 0) -> None:
    disk = SqliteDisk(folder)
    epoch = elected(disk)
    disk.commit(epoch, Batch(a_day(NOW), [], [], []))
    disk.commit(epoch, Batch([], [], [("t", run) for run in archived], []))
    disk.commit(epoch, Batch([], list(drops), [], []))
    for _ in range(tidied):
        disk.tidy(epoch, 0, 1 << 60)
    disk.close()


RUNS = ("etl-1", "mail-1", "late", "old")
GRAPHS: tuple[Key, ...] = (("GraphRecord", "t", graph_digest(ETL)), ("GraphRecord", "t", graph_digest(ONE)))


@pytest.mark.parametrize(
    ("archived", "drops", "tidied"),
    [((), (), 0), (RUNS, (), 0), (RUNS, (), 3), (RUNS, GRAPHS, 3)],
    ids=["live", "ended", "moved", "long after"],
)
def test_what_failed_today_and_why(tmp_path: Path, archived: tuple[str, ...], drops: tuple[Key, ...], tidied: int):
    fill(tmp_path, archived, drops, tidied)
    rows = ask(tmp_path, THAT_DAY)
    assert sorted((row["run"], row["task"], row["failure"], row["why"]) for row in rows if row["task"]) == [
        ("etl-1", "transform[1]", "user", "ValueError: no such column"),
        ("mail-1", "send", "user", "it's down"),
    ]
    assert [(row["run"], row["why"]) for row in rows if not row["task"]] == [("late", "deadline")]
    assert len(ask(tmp_path, TODAY)) in (0, len(rows)), "none if midnight has just passed"


def test_times_are_told_in_words_that_people_read(tmp_path: Path):
    fill(tmp_path)
    (run,) = ask(tmp_path, "SELECT * FROM runs WHERE run = 'etl-1'")
    assert datetime.fromisoformat(str(run["ended"])).timestamp() * 1_000 == pytest.approx(NOW, abs=1)
    assert run["seconds"] == 4.0
    assert run["live"] == 1
    (task,) = ask(tmp_path, "SELECT * FROM tasks WHERE task = 'extract'")
    assert task["state"] == "success"
    assert task["started"] is None


def test_definitions_in_history_go_with_the_last_run_that_needs_them(tmp_path: Path):
    fill(tmp_path, RUNS, GRAPHS, 3)
    assert len(ask(tmp_path, "SELECT * FROM history_graph")) == 2
    disk = SqliteDisk(tmp_path)
    epoch = elected(disk)
    while disk.tidy(epoch, NOW, 1_000):
        pass
    disk.close()
    assert len(ask(tmp_path, "SELECT * FROM history_graph")) == 2, "today's runs still need both"
    disk = SqliteDisk(tmp_path)
    epoch = elected(disk)
    while disk.tidy(epoch, NOW, 0):
        pass
    disk.close()
    assert ask(tmp_path, "SELECT * FROM history_graph") == []
    assert ask(tmp_path, "SELECT * FROM runs") == []


def test_the_query_of_the_guide_is_the_one_that_is_tested():
    guide = Path(__file__).parents[2] / "docs" / "guides" / "storage.md"
    assert TODAY in guide.read_text(encoding="utf-8")
