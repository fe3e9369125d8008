"""What cannot be deployed, through `rota deploy` as people start it: exit code, file, line and hint; nothing half-way.

Each bad file lies beside a good one, which is deployed all the same.
"""

import os
import re
import subprocess
import textwrap
from collections.abc import Iterator
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile, ZipInfo

import httpx
import pytest

from tests.integration.deadlines import PATIENCE_S, is_running, until
from tests.integration.workflows.place import Place, open_place

TASKS = """
import rota
from rota import task, workflow

@task
def f(*args):
    return 1

@task
def g(x):
    return x

"""
GOOD = TASKS + "\n@workflow\ndef good():\n    f()\n"
# After the lines of TASKS.
FIRST = len(TASKS.splitlines()) + 1


# What a file holds, the line of it that is named (0: none can be), and what is said.
BAD = [
    ("@workflow\ndef bad():\n    a, b = f(), f()\n    a >> b\n    b >> a\n", 1, "these tasks wait for each other"),
    ("@workflow\ndef bad():\n    pass\n", 1, "graph.empty"),
    ("@workflow\ndef bad():\n    f.override(id='x')()\n    f.override(id='x')()\n", 4, "graph.duplicate_id"),
    ("@workflow\ndef bad():\n    f().after('nobody')\n", 3, "nobody"),
    ("@workflow(schedule='61 * * * *')\ndef bad():\n    f()\n", 1, "schedule.cron"),
    ("@workflow(schedule='0 0 30 2 *')\ndef bad():\n    f()\n", 1, "schedule.cron"),
    ("@workflow(schedule='@sometimes')\ndef bad():\n    f()\n", 1, "schedule.cron"),
    ("@workflow(schedule='@daily', start='2026-02-30')\ndef bad():\n    f()\n", 1, "2026-02-30"),
    ("@workflow(schedule='@daily', start='2026-02-02', end='2026-02-01')\ndef bad():\n    f()\n", 1, "window"),
    ("@workflow(schedule='@daily', timezone='Mars/Olympus')\ndef bad():\n    f()\n", 1, "schedule.zone"),
    ("@workflow(schedule='@daily', timezone='Europe/Berln')\ndef bad():\n    f()\n", 1, "Europe/Berlin"),
    ("@workflow\ndef bad(n: int = 'x'):\n    f(n)\n", 1, "n is a whole number"),
    ("@workflow(schedule='@daily')\ndef bad(n: int):\n    f(n)\n", 1, "must be able to run by itself"),
    ("@workflow\ndef bad():\n    f('{{ \\'\\'.__class__.__mro__ }}')\n", 3, "template.bad"),
    ("@workflow\ndef bad():\n    f('{{ ds')\n", 3, "template.bad"),
    ("@workflow\ndef bad():\n    f('{{ no_such_name }}')\n", 3, "no_such_name"),
    ("@workflow\ndef bad():\n    f('{{ params.nobody }}')\n", 3, "nobody"),
    ("@workflow\ndef bad():\n    f.override(retries=-2)()\n", 3, "cannot be tried again -2 times"),
    ("@workflow\ndef bad():\n    if f() == 1:\n        f()\n", 3, "the output of 'f' is not known"),
    ("@workflow\ndef bad(n: int = 1):\n    f(n + 1)\n", 3, "the parameter 'n' is not known"),
    ("@workflow(schedule=True)\ndef bad():\n    f()\n", 1, "'schedule' of a workflow cannot be True"),
    ("@workflow(name='bad.py')\ndef bad():\n    f()\n", 1, "`rota run` would look for a file"),
    ("@workflow(name='/bad')\ndef bad():\n    f()\n", 1, "`rota run` would look for a file"),
    ("@workflow(name='..')\ndef bad():\n    f()\n", 1, "'..' is not a usable id"),
    ("@workflow\ndef bad():\n    f('x' * 300_000)\n", 3, "Read it in a task, or have a task return it."),
    ("from . import good\n", 1, "deploy the folder that holds the package"),
    ("@workflow\ndef bad():\n    f.override(trigger_rule='mostly')()\n", 3, "mostly"),
    ("@workflow\ndef bad():\n    g.expand(x=list(range(10_001)))\n", 1, "mapped over 10,001 elements"),
    ("@workflow\ndef bad():\n    for n in range(200_000):\n        f()\n", 4, "100,000"),
    ("@workflow\ndef bad():\n    f(open('/dev/null', 'w'))\n", 3, "file"),
    ("raise ValueError('on import')\n", 1, "ValueError: on import"),
    ("def bad(:\n    pass\n", 1, "SyntaxError"),
    ("import no_such_module\n", 1, "ModuleNotFoundError"),
    ("import sys\nsys.exit(0)\n", 2, "SystemExit"),
    ("x = 1 / 0\n", 1, "ZeroDivisionError"),
    # These end the process that loads them.
    ("import os\nos._exit(0)\n", 0, "ended by itself with code 0"),
    ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", 0, "was killed by SIGKILL"),
    ("import ctypes\nctypes.string_at(0)\n", 0, "was killed by SIGSEGV"),
    ("import os\nos.closerange(0, 1000)\n", 0, "while it was loaded"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A service that is only deployed to."""
    with open_place(tmp_path_factory.mktemp("place"), slots=1) as one:
        yield one


@pytest.fixture(autouse=True)
def untouched(place: Place) -> Iterator[None]:
    """Of what is bad nothing is ever there."""
    yield
    left = [view.workflow.name for view in place.client.workflows()]
    for name in left:
        place.client.drop_workflow(name)
    assert left in ([], ["good"])


def refused(place: Place, path: Path, *more: str) -> str:
    """What `rota deploy` says about what it refuses."""
    done = place.stage.run_command("deploy", str(path), *more)
    said = done.stderr.decode()
    assert done.returncode == 3, f"{done.returncode}: {said}"
    assert "/src/rota/" not in said, "only the author's part of what led there"
    return said


@pytest.fixture(scope="module")
def answer(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator["subprocess.CompletedProcess[bytes]"]:
    """What was said about all of them at once, in one folder with a good one."""
    root = tmp_path_factory.mktemp("flows")
    for number, (text, _, _) in enumerate(BAD):
        (root / f"bad_{number}.py").write_text(TASKS + text.replace("def bad(", f"def bad_{number}("))
    (root / "good.py").write_text(GOOD)
    done = place.stage.run_command("deploy", str(root))
    assert [view.workflow.name for view in place.client.workflows()] == ["good"]
    yield done


@pytest.mark.parametrize("number", range(len(BAD)), ids=[said for _, _, said in BAD])
def test_it_is_refused_with_its_place_and_its_reason(answer: "subprocess.CompletedProcess[bytes]", number: int):
    _, line, said = BAD[number]
    place = f"bad_{number}.py:{FIRST + line - 1}" if line else f"bad_{number}.py"
    (told,) = [text for text in answer.stderr.decode().splitlines() if text.startswith(f"  {place}: ")]
    assert said in told


def test_what_is_good_among_the_bad_is_deployed_and_the_exit_code_says_that_something_is_wrong(
    answer: "subprocess.CompletedProcess[bytes]",
):
    told = answer.stderr.decode()
    assert (answer.returncode, f"rota: deploy.broken: {len(BAD)} broken, 1 deployed:" in told) == (3, True)
    assert answer.stdout.startswith(b"good: version ")
    # Of what led there only the author's part is shown.
    assert "/src/rota/" not in told
    assert "rota-compile-" not in told


def test_a_file_that_hangs_is_stopped_at_its_line(place: Place, tmp_path: Path):
    (tmp_path / "bad.py").write_text(TASKS + "import time\nwhile True:\n    time.sleep(60)\n")
    told = refused(place, tmp_path, "--timeout", "1")
    assert f"bad.py:{FIRST + 2}: " in told
    assert "took longer than 1 s" in told


def test_a_file_that_forks_on_import_leaves_nothing_and_is_deployed_once(place: Place, tmp_path: Path):
    text = """
        import os, signal
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                open(PID, "w").write(str(os.getpid()))
                while True:
                    signal.pause()
            os._exit(0)
        while not os.path.exists(PID) or not open(PID).read():
            pass
        """
    pid = tmp_path / "pid"
    (tmp_path / "flows").mkdir()
    file = tmp_path / "flows" / "good.py"
    file.write_text(f"PID = {str(pid)!r}\n{textwrap.dedent(text)}\n{GOOD}")
    done = place.stage.run_command("deploy", str(file))
    assert done.returncode == 0, done.stderr
    assert not is_running(int(pid.read_text()))
    assert done.stdout.decode().startswith("good: version ")


def test_a_file_that_forks_and_comes_back_twice_is_deployed_once(place: Place, tmp_path: Path):
    (tmp_path / "good.py").write_text(f"import os\nos.fork()\n{GOOD}")
    done = place.stage.run_command("deploy", str(tmp_path / "good.py"))
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    until(lambda: len(place.client.workflows()) == 1, "one workflow to be there")


def test_two_gigabytes_are_refused_before_they_are_read(place: Place, tmp_path: Path):
    (tmp_path / "good.py").write_text(GOOD)
    with (tmp_path / "huge.bin").open("wb") as file:
        file.truncate(2 << 30)
    told = refused(place, tmp_path)
    assert "bundle.size" in told
    assert "huge.bin" in told
    assert place.client.workflows() == ()


def test_a_link_out_of_the_folder_is_refused(place: Place, tmp_path: Path):
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "good.py").write_text(GOOD)
    (tmp_path / "secret.txt").write_text("not for workers")
    (tmp_path / "flows" / "within.txt").symlink_to(tmp_path / "secret.txt")
    told = refused(place, tmp_path / "flows")
    assert "bundle.file" in told
    assert "within.txt" in told
    assert place.client.workflows() == ()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_cannot_be_read_is_named(place: Place, tmp_path: Path):
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "closed.txt").write_text("x")
    (tmp_path / "closed.txt").chmod(0)
    assert re.search(r"bundle\.file: .*closed\.txt", refused(place, tmp_path))
    assert place.client.workflows() == ()


def test_a_link_to_nothing_is_named(place: Place, tmp_path: Path):
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "gone.txt").symlink_to("nothing")
    told = refused(place, tmp_path)
    assert ("bundle.file" in told, "gone.txt" in told) == (True, True)


@pytest.mark.parametrize("path", ["nowhere", "empty", "text.txt", "plain.py"])
def test_where_there_is_nothing_to_deploy_it_is_said(place: Place, tmp_path: Path, path: str):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("hello")
    (tmp_path / "plain.py").write_text("x = 1\n")
    assert "rota: " in refused(place, tmp_path / path)


def test_a_pipe_in_the_folder_does_not_hold_anybody_up(place: Place, tmp_path: Path):
    (tmp_path / "good.py").write_text(GOOD)
    os.mkfifo(tmp_path / "pipe")
    told = refused(place, tmp_path)
    assert ("bundle.file" in told, "pipe" in told) == (True, True)


def member(name: str, mode: int = 0o100644) -> ZipInfo:
    info = ZipInfo(name)
    info.external_attr = mode << 16
    return info


@pytest.mark.parametrize(
    "bad",
    [
        member("../escaped.py"),
        member("a/../../escaped.py"),
        member("/etc/escaped.py"),
        member("link", 0o120777),
        member("a\\..\\..\\escaped.py"),
    ],
    ids=lambda bad: bad.filename,
)
def test_a_bundle_with_a_way_out_is_refused_whole(place: Place, bad: ZipInfo):
    packed = BytesIO()
    with ZipFile(packed, "w") as archive:
        archive.writestr(member("fine.py"), "x = 1\n")
        archive.writestr(bad, "/etc/passwd")
    content = packed.getvalue()
    digest = sha256(content).hexdigest()
    url = f"http://127.0.0.1:{place.stage.http_port}/api/v1/bundles/{digest}"
    response = httpx.put(url, content=content, headers={"Content-Type": "application/zip"}, timeout=PATIENCE_S)
    assert (response.status_code, response.json()["code"]) == (422, "bundle.bad")
    kept = place.stage.folder / "server" / "blobs"
    assert not list(kept.rglob(f"{digest}*"))
    assert not list(place.stage.folder.rglob("escaped.py"))
