"""Callables that raise, hang, exit, crash, devour memory, never stop printing, or return what cannot be sent."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.core.questions import TaskView
from rota.kinds.workflow.tasks import Task
from tests.integration import jobs
from tests.integration.deadlines import is_running, until_there
from tests.integration.deadlines import until as until_so
from tests.refusals import refused

LOG_BYTES = 64 << 20


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rota.Rota]:
    """One coordinator for all of them: none of this may disturb the next."""
    with rota.Rota.embedded(tmp_path_factory.mktemp("data"), slots=2) as one:
        yield one


@pytest.fixture(scope="module")
def in_threads() -> Iterator[rota.Rota]:
    with rota.Rota.embedded(threads=True, slots=4) as one:
        yield one


@pytest.fixture(params=["processes", "threads"])
def either(request: pytest.FixtureRequest) -> rota.Rota:
    name = "processes" if request.param == "processes" else "in_threads"
    return request.getfixturevalue(name)


def end_of(one: rota.Rota, task: "Task[Any, Any]", params: dict[str, Any] | None = None) -> TaskView:
    """How the only task of a run ended; and the runtime is as good as before."""
    run = one.submit(task, params)
    run.wait(60)
    (view,) = run.tasks()
    assert one.submit(jobs.add).result(timeout_s=60) == 0
    return view


def test_one_that_raises(either: rota.Rota):
    view = end_of(either, jobs.fail, {"text": "such is life"})
    assert (view.state, view.failure, view.attempt) == ("failed", "user", 1)
    lines = view.error.splitlines()
    assert lines[0] == lines[-1] == "ValueError: such is life"
    assert lines[2] == "Traceback (most recent call last):"
    assert "jobs.py" in lines[3]


def test_one_that_hangs_in_a_process_is_killed_with_its_children(processes: rota.Rota, tmp_path: Path):
    view = end_of(processes, jobs.hang.override(execution_timeout=1), {"folder": str(tmp_path)})
    assert (view.state, view.failure) == ("failed", "timeout")
    assert re.search(r"\b1,000 ms\b.*\bkilled\b", view.error)
    pids = [int(pid) for pid in until_there(tmp_path / "pids").read_text().split()]
    until_so(lambda: not any(map(is_running, pids)), "its processes to be dead")


def test_one_that_hangs_in_a_thread_is_given_up(tmp_path: Path):
    with rota.Rota.embedded(threads=True, slots=2) as one:
        view = end_of(one, jobs.held.override(execution_timeout=0.2), {"folder": str(tmp_path), "name": "a"})
        assert (view.state, view.failure) == ("failed", "timeout")
        assert "thread" in view.error
        (tmp_path / "a.go").touch()
        until_so(lambda: "a" in jobs.effects(tmp_path), "the thread to end by itself")
        run = one.runs()[-1]
        assert run.state == "failed", "what it returned in the end changed nothing"


def test_a_timeout_is_tried_again_if_retries_say_so(processes: rota.Rota):
    view = end_of(processes, jobs.block.override(execution_timeout=0.3, retries=1))
    assert (view.state, view.failure, view.attempt) == ("failed", "timeout", 2)


@pytest.mark.parametrize("code", [0, 7])
def test_one_that_ends_its_process(processes: rota.Rota, code: int):
    view = end_of(processes, jobs.leave, {"code": code})
    assert (view.state, view.failure) == ("failed", "user")
    assert re.search(rf"\bcode {code}\b", view.error)


def test_one_that_calls_exit(either: rota.Rota):
    view = end_of(either, jobs.ask_to_leave, {"code": 3})
    assert view.state == "failed"
    assert "sys.exit(3)" in view.error


def test_one_that_is_killed_by_a_signal(processes: rota.Rota):
    assert "killed by SIGSEGV" in end_of(processes, jobs.crash).error


def test_one_that_reads_where_nothing_is_shows_where_it_was(processes: rota.Rota):
    view = end_of(processes, jobs.fault)
    assert (view.state, view.failure) == ("failed", "user")
    assert "killed by SIGSEGV" in view.error
    assert "in fault" in view.error, "the interpreter's own account of the crash"


def test_one_that_devours_memory(processes: rota.Rota):
    view = end_of(processes, jobs.devour)
    assert (view.state, view.failure) == ("failed", "out_of_memory")
    assert "MemoryError" in view.error


def test_one_that_prints_100_megabytes(processes: rota.Rota):
    run = processes.submit(jobs.chatter, {"megabytes": 100})
    assert run.result(timeout_s=120) == "done"
    size = 0
    last = b""
    for piece in run.logs("chatter"):
        size += len(piece)
        last = piece
    assert LOG_BYTES <= size < LOG_BYTES + 1000
    assert last.endswith(b"[rota] 37,748,736 more bytes were dropped: a log holds at most 67,108,864\n")


@pytest.mark.parametrize(("task", "hint"), [(jobs.lock, "inside the task"), (jobs.generate, "Return list(…) of it.")])
def test_one_that_returns_what_cannot_be_sent(either: rota.Rota, task: "Task[Any, Any]", hint: str):
    view = end_of(either, task.override(retries=5))
    assert (view.state, view.failure, view.attempt) == ("failed", "fatal", 1), "trying again would not help"
    assert re.search(r"\b_thread\.lock\b|\bgenerator\b", view.error)
    assert hint in view.error


def test_one_whose_function_is_gone(processes: rota.Rota, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "passing.py").write_text("import rota\n\n@rota.task\ndef once():\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    import passing  # pyright: ignore[reportMissingImports] - written above

    graph = passing.once.build()
    (tmp_path / "passing.py").write_text("")
    (tmp_path / "passing.pyc").unlink(missing_ok=True)
    run = processes.submit(graph)
    run.wait(30)
    (view,) = run.tasks()
    assert (view.state, view.failure) == ("failed", "fatal")
    assert re.search(r"'once'.*\bpassing\b", view.error)


def test_a_command_that_fails_shows_the_end_of_what_it_said(processes: rota.Rota):
    @rota.workflow
    def commands():
        rota.command("echo fine; echo 'no such table' >&2; exit 4", id="bad")
        rota.command(["/no/such/program"], id="missing")
        rota.command("exit 99", id="skipped")
        rota.command("kill -9 $$", id="killed")
        rota.command("true", id="odd", cwd="/no/such/folder")

    run = processes.submit(commands)
    run.wait(30)
    errors = {task.id: (task.state, task.failure, task.error) for task in run.tasks()}
    assert errors["bad"] == ("failed", "user", "exited with code 4\nno such table")
    assert errors["missing"][:2] == ("failed", "fatal")
    assert "could not run '/no/such/program'" in errors["missing"][2]
    assert errors["skipped"][0] == "skipped"
    assert "killed by SIGKILL" in errors["killed"][2]
    assert "'/no/such/folder'" in errors["odd"][2]


@pytest.mark.full
def test_a_result_of_100_megabytes_arrives_whole(either: rota.Rota):
    @rota.workflow
    def large():
        jobs.size_of(jobs.blob(100))

    run = either.submit(large)
    assert run.result(timeout_s=120) == 100 << 20
    content = run.result("blob")
    assert len(content) == 100 << 20
    assert content[: 1 << 20] == content[-(1 << 20) :]
    (view,) = run.tasks("blob")
    assert view.result is not None
    assert len(view.result) < 1_000, "only a reference goes through the coordinator"


def test_a_worker_without_the_pickled_class_says_so(processes: rota.Rota):
    class Local:
        pass

    assert type(processes.submit(jobs.identity, {"value": 1}).result()) is int
    with refused("field.type", "Local", path="params"):
        processes.submit(jobs.identity, {"value": Local()})
