"""Actions behind walls: in bubblewrap, and as another user."""

import asyncio
import os
import shutil
import socket
from pathlib import Path

import pytest

from rota.core.model import FailureClass
from rota.wire.builds import BUBBLEWRAP, NONE
from rota.worker.accounts import find_account
from rota.worker.runners.builds.sandbox import AUTO, find_sandbox
from tests.integration.builds.stage import PATIENCE_S, Node, Stage, in_sandbox, open_stage, staged
from tests.refusals import refused

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
    assert (await stage.sh("cd d; pwd; id -u", {"d": {}})).out == b"/build/d\n65534\n"
    assert (await stage.sh("kill -9 $$")).result.exit_code == 137


@in_sandbox
@staged(sandbox=BUBBLEWRAP)
async def test_a_sandboxed_action_has_no_network_and_writes_nowhere_else(stage: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        dial = f"exec 3<>/dev/tcp/127.0.0.1/{port}"
        done = await stage.run(["/bin/bash", "-c", f"({dial}) 2>&1; echo $?"])
        assert b"refused" in done.out
    # Nothing is there of the worker, of homes, and of what /etc has for root.
    done = await stage.sh(f"ls -d {stage.folder} /etc/shadow /etc/ssl/private; ls -A /tmp /home /root | grep -v :$")
    assert done.out.split() == []
    done = await stage.sh("for d in /tmp /home /root .; do touch $d/mine && echo $d; done", output_paths=["mine"])
    assert done.out.split() == [b"/tmp", b"/home", b"/root", b"."]
    assert list(done.files) == ["mine"]
    done = await stage.sh("for d in /usr /usr/bin /etc/alternatives / /bin; do touch $d/x && echo $d; done; true")
    assert done.out in (b"", b"/\n"), "its root is its own, and gone with it"
    assert not any(Path(place, "x").exists() for place in ("/", "/usr", "/usr/bin", "/etc/alternatives"))


@in_sandbox
@staged(sandbox=BUBBLEWRAP)
async def test_inputs_cannot_be_written_to_and_what_is_around_cannot_be_removed(stage: Stage) -> None:
    inputs = {"shared": b"content", "d": {"e": b"e"}}
    done = await stage.sh("echo x >> shared; echo $?; rm -rf ../*; cat shared d/e; echo out > o", inputs)
    assert done.out.startswith(b"1\n") or done.out.startswith(b"2\n")
    assert (await stage.sh("cat shared", inputs)).out == b"content"


@in_sandbox
@staged(sandbox=BUBBLEWRAP)
async def test_what_an_action_says_in_the_name_of_its_sandbox_is_its_own(stage: Stage) -> None:
    done = await stage.sh("echo 'bwrap: No permissions' >&2; exit 1")
    assert (done.over.failure, done.result.exit_code) == (FailureClass.USER, 1)


@in_sandbox
@staged(sandbox=BUBBLEWRAP)
async def test_an_absolute_link_into_its_own_folder_becomes_a_relative_one(stage: Stage) -> None:
    done = await stage.sh("mkdir d; echo x > f; ln -s $PWD/f d/l; ln -s d/l k", output_paths=["d", "f", "k"])
    assert done.unpacked("d") == {"l": "../f"}


@in_sandbox
@staged(sandbox=BUBBLEWRAP)
async def test_an_input_tree_that_is_a_root_file_system_is_the_root(stage: Stage) -> None:
    shell = _shell()
    inputs = {"bin": {"sh": ("x", shell)}, "etc": {"motd": b"hello\n"}, **_mounts("work")}
    line = "echo more >> /etc/motd; cat /etc/motd > out; id -u > uid; ls / | tr '\\n' ' '; ls /usr"
    done = await stage.run(["/bin/sh", "-c", line], inputs, working_directory="work", output_paths=["out", "uid"])
    assert done.files == {"out": b"hello\nmore\n", "uid": b"0\n"}
    assert done.out.split() == [b"bin", b"dev", b"etc", b"proc", b"tmp", b"work"]
    assert done.result.exit_code, "there is no /usr"
    assert (await stage.run(["/bin/sh", "-c", "cat ../etc/motd"], inputs, working_directory="work")).out == b"hello\n"


def _shell() -> bytes:
    return Path(shutil.which("busybox") or pytest.skip("there is no busybox")).read_bytes()


def _mounts(*more: str) -> Node:
    """Folders that are empty, those by which a root file system is recognised among them."""
    return {name: {} for name in ("dev", "proc", "tmp", *more)}


@in_sandbox
@staged(sandbox=BUBBLEWRAP)
async def test_absolute_links_of_a_root_file_system_lead_where_they_do_inside(stage: Stage) -> None:
    inputs = {
        "bin": {"busybox": ("x", _shell()), "sh": "/bin/busybox", "cat": "/bin/busybox"},
        "etc": {"mtab": "/proc/self/mounts", "passwd": b"inside\n", "up": "../../../../etc/passwd"},
        # On this host /usr/bin, /etc and /var/tmp are other folders.
        "there": {"work": "/usr/bin", "out": "/var/tmp", "loop": "/there/loop"},
        "usr": {"bin": {}},
        "var": {},
        **_mounts(),
    }
    line = """
        pwd -P; /bin/cat /etc/mtab > /dev/null && cat /etc/up
        echo made > ../../there/out/o || echo made > /var/tmp/o
        mkdir tree; ln -s /etc/passwd tree/abs; ln -s ../../../../../up tree/up; ln -s /usr folder; ln -s /there/loop l
    """
    done = await stage.run(
        ["/bin/sh", "-c", line],
        inputs,
        env={"PATH": "/bin"},
        working_directory="there/work",
        output_paths=["tree", "../out/o", "folder", "l", "../work/tree"],
    )
    assert (done.err, done.out) == (b"", b"/usr/bin\ninside\n")
    assert done.files == {"../out/o": b"made\n"}, "its parent is the /var/tmp of the tree"
    assert done.unpacked("tree") == {"abs": "/etc/passwd", "up": "../../../../../up"}
    assert done.unpacked("../work/tree") == done.unpacked("tree")
    assert [(link.path, link.target) for link in done.result.output_directory_symlinks] == [("folder", "/usr")]
    assert [(link.path, link.target) for link in done.result.output_file_symlinks] == [("l", "/there/loop")]
    assert not Path("/usr/bin/tree").exists() and not Path("/var/tmp/o").exists()
    assert not any(b"root:" in content for content in stage.front.blobs.values())


@in_sandbox
@staged(sandbox=BUBBLEWRAP)
async def test_a_folder_of_a_root_file_system_that_leads_to_itself_is_refused(stage: Stage) -> None:
    inputs = {"bin": {"sh": ("x", _shell())}, "loop": "/loop", **_mounts()}
    for more in ({"working_directory": "loop"}, {"output_paths": ["loop/o"]}):
        over = await stage.carry(stage.action(["/bin/sh", "-c", "true"], inputs, **more))
        assert over.failure is FailureClass.FATAL
        assert "'loop'" in over.error


@staged()
async def test_a_root_file_system_is_refused_by_name_without_a_sandbox(stage: Stage) -> None:
    over = await stage.carry(stage.action(["/bin/sh"], {"dev": {}, "proc": {}, "tmp": {}}))
    assert over.failure is FailureClass.FATAL
    assert over.error.startswith("invalid action:")
    assert over.result is None


@in_sandbox
@staged(sandbox=BUBBLEWRAP)
async def test_a_sandboxed_action_is_killed_with_everything_in_time(stage: Stage) -> None:
    done = await stage.sh("echo up; (setsid sleep 1000 &); sleep 1000", timeout_s=0.5)
    assert (done.said.status, done.out) == (4, b"up\n")


@in_sandbox
@staged(sandbox=BUBBLEWRAP)
async def test_a_program_that_is_not_there_is_exit_code_127(stage: Stage) -> None:
    async with open_stage(stage.folder / "bare") as bare:
        await _not_there(stage, bare)


async def _not_there(stage: Stage, bare: Stage) -> None:
    for argv, inputs in (
        (["./gone"], {}),
        (["gone"], {}),
        (["./plain"], {"plain": b"#!/bin/sh\n"}),
        (["./folder"], {"folder": {}}),
    ):
        for stage_of in (stage, bare):
            done = await stage_of.run(argv, inputs)
            assert done.over.failure is FailureClass.USER
            assert done.result.exit_code in ((127,) if "gone" in argv[0] else (126, 127))
            assert argv[0].encode() in done.err


def test_a_sandbox_that_is_not_there_is_an_error_only_if_it_must_be(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        assert find_sandbox(NONE) is None
        for wish in (AUTO, BUBBLEWRAP):
            with refused("config.value", "bwrap", "PATH", path="worker.build_sandbox"):
                find_sandbox(wish)
        broken = tmp_path / "bwrap"
        broken.write_text("#!/bin/sh\necho no namespaces >&2; exit 1\n")
        broken.chmod(0o755)
        with refused("config.value", "namespaces", path="worker.build_sandbox"):
            find_sandbox(AUTO)


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
