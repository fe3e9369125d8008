"""Actions behind walls: in bubblewrap, and as another user."""

import asyncio
import os
import re
import shutil
import socket
from pathlib import Path

import pytest

from rota.core.model import FailureClass
from rota.worker.accounts import find_account
from rota.worker.runners.builds.sandbox import AUTO, BUBBLEWRAP, NONE, find_sandbox
from tests.integration.builds.stage import PATIENCE_S, Stage, open_stage, staged
from tests.refusals import refused


def _has_sandbox() -> bool:
    return shutil.which("bwrap") is not None and find_sandbox(AUTO, Path("/var"))[0] is not None


# On a build server it has to be there.
in_sandbox = pytest.mark.skipif(
    not _has_sandbox() and "CI" not in os.environ, reason="bubblewrap is not here, or does not work here"
)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


@in_sandbox
@staged(sandbox=BUBBLEWRAP)
async def test_a_sandboxed_action_is_an_action(stage: Stage) -> None:
    inputs = {"d": {"tool": ("x", b"#!/bin/sh\ncat ../f; /usr/bin/env; echo out > o; exit 3\n")}, "f": b"input\n"}
    done = await stage.run(["./tool"], inputs, working_directory="d", output_paths=["o"], env={"A": "1"})
    assert done.result.exit_code == 3
    assert done.out.splitlines()[0] == b"input"
    # The shell sets its own.
    assert set(done.out.splitlines()[1:]) <= {b"A=1", *(line for line in done.out.splitlines() if b"PWD=" in line)}
    assert done.files == {"o": b"out\n"}
    assert (await stage.run(["/usr/bin/env"], env={"A": "1"})).out == b"A=1\n"
    assert (await stage.run(["/usr/bin/env"], env={"PWD": "/proc/self/cwd"})).out == b"PWD=/proc/self/cwd\n"
    assert (await stage.sh("kill -9 $$")).result.exit_code == 137


@in_sandbox
@staged(sandbox=BUBBLEWRAP)
async def test_a_sandboxed_action_has_no_network_and_writes_nowhere_else(stage: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        dial = f"exec 3<>/dev/tcp/127.0.0.1/{port}"
        done = await stage.run(["/bin/bash", "-c", f"({dial}) 2>&1; echo $?"])
        assert b"refused" in done.out
    done = await stage.sh(f"ls {stage.folder}; touch /etc/x {stage.folder}/x; touch /tmp/fine && echo fine")
    assert b"Read-only file system" in done.err
    # Of the worker's folder only its own room is there.
    assert done.out == b"builds\nfine\n"
    assert not (stage.folder / "x").exists()
    assert not Path("/tmp/fine").exists()


@in_sandbox
@staged(sandbox=BUBBLEWRAP)
async def test_a_sandboxed_action_is_killed_with_everything_in_time(stage: Stage) -> None:
    done = await stage.sh("echo up; (setsid sleep 1000 &); sleep 1000", timeout_s=0.5)
    assert (done.said.status, done.out) == (4, b"up\n")


@in_sandbox
@staged(sandbox=BUBBLEWRAP)
async def test_a_program_that_is_not_there_is_told_from_one_that_failed(stage: Stage) -> None:
    for argv, inputs in (
        (["./gone"], {}),
        (["gone"], {}),
        (["./plain"], {"plain": b"#!/bin/sh\n"}),
        (["./folder"], {"folder": {}}),
    ):
        over = await stage.carry(stage.action(argv, inputs))
        assert over.failure is FailureClass.FATAL
        assert re.match(rf"invalid action: .*'{re.escape(argv[0])}'", over.error)


def test_a_sandbox_that_is_not_there_is_an_error_only_if_it_must_be(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        assert find_sandbox(NONE, tmp_path) == (None, "")
        sandbox, about = find_sandbox(AUTO, tmp_path)
        assert sandbox is None
        assert "PATH" in about
        with refused("config.value", "bwrap", "PATH", path="worker.build_sandbox"):
            find_sandbox(BUBBLEWRAP, tmp_path)
        broken = tmp_path / "bwrap"
        broken.write_text("#!/bin/sh\necho no namespaces >&2; exit 1\n")
        broken.chmod(0o755)
        assert find_sandbox(AUTO, tmp_path)[1].endswith(": no namespaces")


@as_root
def test_actions_run_as_another_user_and_cannot_touch_what_is_shared(tmp_path: Path) -> None:
    async def play() -> None:
        tmp_path.chmod(0o700)
        nobody = find_account("nobody")
        async with asyncio.timeout(PATIENCE_S), open_stage(tmp_path, run_as=nobody) as stage:
            inputs = {"shared": b"untouched", "d": {}}
            line = "id -u; echo x > shared; chmod 777 shared; echo made > d/o; cat shared; echo $HOME"
            done = await stage.sh(line, inputs, output_paths=["d/o"])
            assert done.out == f"{nobody.uid}\nuntouched\n".encode()
            assert done.files == {"d/o": b"made\n"}
            assert (await stage.sh("cat o", {"o": b"made\n"})).out == b"made\n"
            [elsewhere] = [path.readlink() for path in stage.place.iterdir() if path.is_symlink()]
            assert list((elsewhere / "rooms").iterdir()) == []
            await stage.runner.close()
            assert not elsewhere.exists()
            stage.runner = stage.new_runner()

    asyncio.run(play())
