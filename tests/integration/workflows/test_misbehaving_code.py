"""Deployed code that misbehaves: each ends in the right state with a readable error, and the service goes on."""

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from rota.core.states import RunState
from tests.integration.deadlines import is_running, until
from tests.integration.workflows.place import WAIT_S, Place, log_of, until_state

pytestmark = pytest.mark.full

# What is kept of a log, and what is said where it was cut.
LOG_BYTES_MAX = (64 << 20) + 1_000
# All in one workflow file, so that they share warm processes: what one does must not harm the next.
MISCHIEF = """
    import ctypes, os, signal, subprocess, sys, threading, time
    from pathlib import Path

    import rota
    from rota import task, workflow


    def devour():
        held = []
        while True:
            held.append(bytearray(16 << 20))


    def segfault():
        ctypes.string_at(0)


    def exit_politely(code):
        sys.exit(code)


    def exit_hard(code):
        print("the last words")
        os._exit(code)


    def loop_forever():
        while True:
            pass


    def refuse_to_stop():
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
        while True:
            time.sleep(1)


    def one_long_line(megabytes):
        sys.stdout.write("x" * (megabytes << 20) + "\\n")
        print("and a short one")
        return "printed"


    def a_lock():
        return threading.Lock()


    def a_generator():
        yield 1


    def close_everything():
        os.closerange(0, 4096)


    def daemonise(folder):
        for number in range(3):
            told, tell = os.pipe()
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)
                    with open(Path(folder) / f"daemon-{number}", "w") as file:
                        file.write(str(os.getpid()))
                    os.write(tell, b"x")
                    while True:
                        signal.pause()
                os._exit(0)
            os.wait()
            os.read(told, 1)
        child = subprocess.Popen(["setsid", "sleep", "1000"])
        (Path(folder) / "daemon-sleep").write_text(str(child.pid))
        return "left some daemons"


    def print_and_print():
        line = "round and round " * 64
        while True:
            print(line)


    def recurse():
        return recurse()


    class Unshowable(Exception):
        def __str__(self):
            raise RuntimeError("not even this")


    def raise_unshowable():
        raise Unshowable


    def raise_interrupt():
        raise KeyboardInterrupt


    def unicode_error():
        raise ValueError("кошка \\N{PILE OF POO} \\x00 \\ud800")


    @task
    def act(what, args):
        return globals()[what](*args)


    @task(execution_timeout=1)
    def act_briefly(what):
        return globals()[what]()


    @task
    def after(got):
        return got


    @workflow
    def mischief(what: str = "", args: list = []):
        after(act(what, args))


    @workflow
    def overlong(what: str = ""):
        act_briefly(what)
    """


@pytest.fixture(scope="module", autouse=True)
def deployed(place: Place) -> None:
    """Everything that is run here."""
    place.client.deploy(place.write("mischief", MISCHIEF))


@pytest.mark.parametrize(
    ("what", "args", "failure", "error"),
    [
        ("devour", [], "out_of_memory", "MemoryError"),
        ("segfault", [], "user", "killed by SIGSEGV"),
        ("exit_politely", [0], "user", r"sys\.exit\(0\)"),
        ("exit_politely", [1], "user", r"sys\.exit\(1\)"),
        ("exit_hard", [0], "user", r"code 0\b.*\nthe last words"),
        ("exit_hard", [7], "user", r"code 7\b.*\nthe last words"),
        ("a_lock", [], "fatal", r"_thread\.lock"),
        ("a_generator", [], "fatal", "generator"),
        ("close_everything", [], "user", "close files"),
        ("recurse", [], "user", "RecursionError"),
        ("raise_unshowable", [], "user", "Unshowable"),
        ("raise_interrupt", [], "user", "KeyboardInterrupt"),
        ("unicode_error", [], "user", "кошка \N{PILE OF POO}"),
    ],
)
def test_it_fails_with_its_own_reason_and_harms_nobody(
    place: Place, what: str, args: list[Any], failure: str, error: str
):
    run = place.ended("mischief", {"what": what, "args": args})
    act, after = run.tasks("act", "after")
    assert (act.state, act.failure, act.attempt) == ("failed", failure, 1), act.error
    assert re.search(error, act.error)
    assert (after.state, run.status().state) == ("upstream_failed", RunState.FAILED)
    place.check_health()


@pytest.mark.parametrize("what", ["loop_forever", "refuse_to_stop", "print_and_print"])
def test_what_takes_too_long_is_killed(place: Place, what: str):
    run = place.ended("overlong", {"what": what})
    (view,) = run.tasks("act_briefly")
    assert (view.state, view.failure) == ("failed", "timeout")
    assert re.search(r"\b1,000 ms\b.*\bkilled\b", view.error)
    # Read from the records: it was given its second, and not much more.
    assert 1_000 <= view.ended_at - view.assigned_at < 15_000
    place.check_health()


def test_a_line_of_ten_megabytes_is_kept_whole_and_what_comes_after_it_too(place: Place):
    run = place.client.trigger("mischief", {"what": "one_long_line", "args": [10]})
    assert run.result(timeout_s=WAIT_S) == "printed"
    log = log_of(run, "act")
    assert log.count(b"x") == 10 << 20
    assert log.endswith(b"\nand a short one\n")
    shown = place.stage.run_command("logs", run.id, "act")
    assert (shown.returncode, shown.stdout == log) == (0, True)


def test_what_prints_without_end_has_a_log_that_ends(place: Place):
    run = place.ended("overlong", {"what": "print_and_print"})
    log = log_of(run, "act_briefly")
    assert log.startswith(b"round and round ")
    assert len(log) <= LOG_BYTES_MAX


def test_daemons_of_a_task_end_with_its_attempt(place: Place, tmp_path: Path):
    run = place.client.trigger("mischief", {"what": "daemonise", "args": [str(tmp_path)]})
    assert run.result(timeout_s=WAIT_S) == "left some daemons"
    left = [int(file.read_text()) for file in tmp_path.iterdir()]
    assert len(left) == 4
    # They are killed before the attempt's end is reported.
    assert [pid for pid in left if is_running(pid)] == []
    place.check_health()


def test_daemons_of_a_cancelled_run_are_gone(place: Place, tmp_path: Path):
    text = """
        import rota, signal
        from mischief import daemonise

        @rota.task
        def linger(folder):
            daemonise(folder)
            signal.pause()

        @rota.workflow
        def lingering(folder: str = ""):
            linger(folder)
        """
    file = place.write("mischief", MISCHIEF).parent / "lingering.py"
    file.write_text(textwrap.dedent(text))
    place.client.deploy(file)
    run = place.client.trigger("lingering", {"folder": str(tmp_path)})
    until((tmp_path / "daemon-sleep").exists, "the daemons to be there")
    until_state(run, "linger", "running")
    left = [int(file.read_text()) for file in tmp_path.iterdir() if file.read_text()]
    run.cancel("enough of this")
    assert run.wait(WAIT_S).state is RunState.CANCELLED
    until(lambda: not any(map(is_running, left)), "the daemons to be gone")
    assert run.tasks("linger")[0].state == "cancelled"


def test_a_branch_that_chooses_what_does_not_follow_fails_for_good_and_says_what_there_is(place: Place):
    text = """
        import rota

        @rota.task.branch(retries=3)
        def choose(way):
            return way

        @rota.task
        def left(): pass

        @rota.task
        def right(): pass

        @rota.workflow
        def choosing(way: str = "up"):
            choose(way) >> [left(), right()]
        """
    place.deploy("choosing", text)
    run = place.ended("choosing")
    choose, left, right = run.tasks("choose", "left", "right")
    assert (choose.state, choose.failure, choose.attempt) == ("failed", "fatal", 1)
    assert "'up'" in choose.error
    assert "left" in choose.error
    assert (left.state, right.state) == ("upstream_failed", "upstream_failed")


def test_templates_cannot_be_made_to_do_harm_when_they_are_rendered(place: Place):
    text = """
        import rota

        @rota.task(retries=3)
        def show(text):
            return text

        @rota.workflow
        def showing(text: str = "", name: str = "__class__"):
            show.override(id="as_it_is", retries=0)(text)
            show.override(id="inside")("<{{ params.text }}>")
            show.override(id="reaching")("{{ params.text | attr(params.name) }}")
            show.override(id="endless")("{% for n in range(1000000000) %}{{ n }}{% endfor %}")
        """
    place.deploy("showing", text)
    run = place.ended("showing", {"text": "{{ ''.__class__.__mro__ }}"})
    # What a parameter holds is never a template.
    assert run.result("as_it_is") == "{{ ''.__class__.__mro__ }}"
    assert run.result("inside") == "<{{ ''.__class__.__mro__ }}>"
    for task in ("reaching", "endless"):
        (view,) = run.tasks(task)
        assert (view.state, view.failure, view.attempt) == ("failed", "fatal", 1), view.error
    place.check_health()
