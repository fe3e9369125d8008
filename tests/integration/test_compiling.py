"""Compiling what people write: in a process of its own, which may fail, hang, die or misbehave by itself."""

import asyncio
import os
import re
import textwrap
from pathlib import Path

import pytest

from rota.core.errors import Refused
from rota.kinds.workflow.deployment import Prepared, prepare
from rota.wire.deployments import Broken, Compiled
from tests.integration.deadlines import until

GOOD = """
import rota

@rota.task
def one():
    return 1

@rota.workflow(schedule="@daily", timezone="Europe/Berlin", priority="high")
def good(day: str = "today", n: int = 3):
    \"\"\"Its purpose.\"\"\"
    one()
"""


def put(root: Path, **files: str) -> Path:
    root.mkdir(exist_ok=True)
    for name, text in files.items():
        (root / f"{name}.py").write_text(textwrap.dedent(text))
    return root


def compiled(path: Path, timeout_s: float = 20) -> Prepared:
    return asyncio.run(asyncio.wait_for(prepare(path, timeout_s=timeout_s), 60))


def only(path: Path, timeout_s: float = 20) -> Broken:
    """What is wrong, where one thing is and the rest is fine."""
    put(path, good=GOOD)
    found = compiled(path, timeout_s)
    assert [each.graph.name for each in found.workflows] == ["good"]
    (broken,) = found.broken
    return broken


def test_a_workflow_is_compiled_with_all_that_is_known_of_it(tmp_path: Path):
    (workflow,) = compiled(put(tmp_path, flows=GOOD)).workflows
    assert isinstance(workflow, Compiled)
    assert [param.name for param in workflow.params] == ["day", "n"]
    assert workflow.schedule is not None and workflow.schedule.zone == "Europe/Berlin"
    assert (workflow.priority, workflow.paused, workflow.doc) == ("high", None, "Its purpose.")
    assert workflow.source == "flows.py:8"
    assert b"flows:one" in workflow.graph.tasks[0].work


def test_the_same_content_elsewhere_is_the_same_graph_and_the_same_bundle(tmp_path: Path):
    text = """
        import rota

        @rota.task
        def f(what):
            return what

        @rota.workflow
        def w():
            f({"b", "a", "c"})
            f(frozenset(range(100)))
        """
    first, second = (compiled(put(tmp_path / name, flows=text)) for name in ("one", "two"))
    assert first.bundle == second.bundle
    assert first.workflows == second.workflows
    assert str(tmp_path).encode() not in first.workflows[0].graph.tasks[0].work


@pytest.mark.parametrize(
    ("text", "line", "error", "traced"),
    [
        ("import rota\n\n\ndef f():\n    raise KeyError('x')\n\nf()\n", 5, "KeyError: 'x'", "line 7, in <module>"),
        ("import rota\nimport no_such_module\n", 2, "ModuleNotFoundError: No module named 'no_such_module'", ""),
        ("import rota\ndef f(:\n    pass\n", 2, "SyntaxError: invalid syntax", "def f(:"),
        ("import rota, sys\nsys.exit('no')\n", 2, "SystemExit: no", ""),
        ("import rota\nraise KeyboardInterrupt\n", 2, "KeyboardInterrupt", ""),
        ("import rota\nclass E(BaseException): pass\nraise E('odd')\n", 3, "E: odd", ""),
        ("import rota\n@rota.workflow(schedule='61 * * * *')\ndef w(): pass\n", 2, "schedule.cron: ", ""),
        ("import rota\n@rota.workflow(start='2026-02-30', schedule='@daily')\ndef w(): pass\n", 2, "2026-02-30", ""),
        ("import rota\nx = 'a' * 10**12\n", 2, "MemoryError", ""),
    ],
)
def test_a_file_that_fails_is_told_with_its_line_and_the_others_are_compiled(
    tmp_path: Path, text: str, line: int, error: str, traced: str
):
    broken = only(put(tmp_path, bad=text))
    assert (broken.file, broken.line) == ("bad.py", line)
    assert error in broken.error
    assert traced in broken.trace
    assert "rota-compile-" not in broken.trace + broken.error


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import rota\n@rota.workflow\ndef w(): pass\n", "graph.empty"),
        (
            """
            import rota
            @rota.task
            def f(): pass
            @rota.workflow
            def w():
                a, b = f(), f()
                a >> b
                b >> a
            """,
            "graph.cycle",
        ),
        (
            """
            import rota
            @rota.task(id="same")
            def f(): pass
            @rota.workflow
            def w():
                f()
                f()
            """,
            "graph.duplicate_id",
        ),
        (
            """
            import rota
            @rota.task
            def f(): pass
            @rota.workflow
            def w():
                for n in range(200_000):
                    f()
            """,
            "100,000",
        ),
        (
            """
            import rota
            @rota.task
            def f(x): pass
            @rota.workflow
            def w():
                f("{{ ''.__class__.__mro__ }}")
            """,
            "template.bad",
        ),
        (
            """
            import rota
            def make():
                def f(): pass
                return rota.task(f)
            f = make()
            @rota.workflow
            def w():
                f()
            """,
            "make.<locals>.f",
        ),
        (
            """
            import rota
            from pathlib import Path
            @rota.task
            def f(x): pass
            @rota.workflow
            def w():
                f(Path(__file__).parent)
            """,
            "__file__",
        ),
    ],
)
def test_a_workflow_that_makes_no_sense_is_told_and_the_others_of_its_file_are_compiled(
    tmp_path: Path, text: str, error: str
):
    put(tmp_path, flows=textwrap.dedent(text) + GOOD)
    found = compiled(tmp_path)
    assert [each.graph.name for each in found.workflows] == ["good"]
    (broken,) = found.broken
    assert (broken.file, broken.workflow) == ("flows.py", "w")
    assert broken.line > 1
    assert error in broken.error


def test_a_file_that_hangs_is_stopped_where_it_hangs(tmp_path: Path):
    broken = only(put(tmp_path, slow="import rota, time\n\n\nwhile True:\n    time.sleep(60)\n"), timeout_s=1)
    assert broken.place == "slow.py:5"
    assert "took longer than 1 s" in broken.error


def test_a_file_that_does_not_let_itself_be_stopped_is_killed_with_what_it_started(tmp_path: Path):
    broken = only(
        put(
            tmp_path,
            deaf=f"""
            import os, rota, signal, subprocess, time
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
            child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
            open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
            time.sleep(1000)
            """,
        ),
        timeout_s=1,
    )
    assert re.search(r"\b1 s\b.*\bkilled\b", broken.error)
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import os, rota\nos._exit(5)\n", "code 5"),
        ("import os, rota, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", "SIGSEGV"),
    ],
)
def test_a_file_that_ends_its_process_is_told(tmp_path: Path, text: str, error: str):
    broken = only(put(tmp_path, bad=text))
    assert (broken.file, error in broken.error) == ("bad.py", True)


def test_a_file_that_leaves_processes_behind_is_compiled_and_they_are_gone(tmp_path: Path):
    text = f"""
    import os
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
            while True:
                os.read(os.pipe()[0], 1)
        os._exit(0)
    while not os.path.exists({str(tmp_path / "pid")!r}) or not open({str(tmp_path / "pid")!r}).read():
        pass
    """
    found = compiled(put(tmp_path / "root", flows=textwrap.dedent(text) + GOOD))
    assert [each.graph.name for each in found.workflows] == ["good"]
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()


def test_files_see_an_environment_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET_OF_THE_SHELL", "x")
    text = "import os\nassert 'SECRET_OF_THE_SHELL' not in os.environ\nassert os.environ['GIVEN'] == 'yes'\n"
    path = put(tmp_path, flows=text + GOOD)
    found = asyncio.run(prepare(path, env={"GIVEN": "yes"}))
    assert found.broken == ()


def test_what_files_print_is_shown_and_is_no_answer(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    text = "import os, sys\nprint('to stdout')\nos.write(1, b'raw\\n')\nprint('to stderr', file=sys.stderr)\n"
    assert compiled(put(tmp_path, flows=text + GOOD)).broken == ()
    out, err = capfd.readouterr()
    assert out == ""
    assert all(word in err for word in ("to stdout", "raw", "to stderr"))


def test_files_that_do_not_import_rota_are_not_run(tmp_path: Path):
    put(tmp_path, other=f"open({str(tmp_path / 'ran')!r}, 'w')\n", good=GOOD)
    assert compiled(tmp_path).broken == ()
    assert not (tmp_path / "ran").exists()


def test_two_workflows_of_one_name_are_both_refused(tmp_path: Path):
    put(tmp_path, a=GOOD, b=GOOD)
    found = compiled(tmp_path)
    assert found.workflows == ()
    (broken,) = found.broken
    assert "a.py:8 and b.py:8" in broken.error


@pytest.mark.parametrize("name", ["json", "types", "rota", "with.dot"])
def test_a_file_whose_name_stands_for_something_else_is_refused(tmp_path: Path, name: str):
    broken = only(put(tmp_path, **{name: "import rota\n"}))
    assert broken.file == f"{name}.py"
    assert "field.value" in broken.error


def test_a_workflow_that_is_imported_from_beside_is_not_there_twice(tmp_path: Path):
    put(tmp_path, good=GOOD, more="import rota\nfrom good import good\n")
    found = compiled(tmp_path)
    assert ([each.source for each in found.workflows], found.broken) == (["good.py:8"], ())


def test_where_there_is_nothing_to_deploy_it_is_said(tmp_path: Path):
    for text in ("x = 1\n", "import rota\n"):
        with pytest.raises(Refused) as caught:
            compiled(put(tmp_path, a=text))
        assert caught.value.code == "graph.empty"


def test_whoever_gives_up_ends_the_process_and_all_it_started(tmp_path: Path):
    path = put(
        tmp_path / "root",
        flows=f"""
        import os, rota, time
        open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
        time.sleep(1000)
        """,
    )

    async def give_up() -> int:
        work = asyncio.ensure_future(prepare(path))
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            await asyncio.sleep(0.01)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        return int((tmp_path / "pid").read_text())

    pid = asyncio.run(asyncio.wait_for(give_up(), 60))
    until(lambda: not Path(f"/proc/{pid}").exists(), "the process to be gone")
    assert os.getpid() != pid
