"""Actions with real processes: what they find, what they are, how they end."""

import asyncio
import os
import re
import sys
from pathlib import Path

from rota.core.errors import Refused
from rota.core.model import FailureClass
from rota.wire.builds import BuildWork, encode_build
from rota.wire.places import Place
from rota.wire.reapi import remote_execution_pb2 as rx
from rota.wire.reapi.digests import digest_of
from tests.integration.builds.stage import Done, Stage, staged
from tests.integration.worker.stage import told


@staged()
async def test_inputs_of_every_kind_are_there(stage: Stage) -> None:
    inputs = {
        "a.txt": b"alpha",
        "empty": b"",
        "tool": ("x", b"#!/bin/sh\necho from the tool\n"),
        "empty tool": ("x", b""),
        "deep": {"er": {"b.txt": b"beta", "up": "../../a.txt"}, "hollow": {}},
        "large": b"0123456789abcdef" * 200_000,
    }
    done = await stage.sh("./tool; cat a.txt deep/er/up; wc -c < large; find . -printf '%M %p\\n' | sort -k2", inputs)
    assert done.result.exit_code == 0
    lines = done.out.decode().splitlines()
    assert lines[:2] == ["from the tool", "alphaalpha3200000"]
    assert lines[2:] == [
        "drwxr-xr-x .",
        "-r--r--r-- ./a.txt",
        "drwxr-xr-x ./deep",
        "drwxr-xr-x ./deep/er",
        "-r--r--r-- ./deep/er/b.txt",
        "lrwxrwxrwx ./deep/er/up",
        "drwxr-xr-x ./deep/hollow",
        "-r--r--r-- ./empty",
        "-r-xr-xr-x ./empty tool",
        "-r--r--r-- ./large",
        "-r-xr-xr-x ./tool",
    ]


@staged()
async def test_the_environment_is_exactly_what_was_sent(stage: Stage) -> None:
    done = await stage.run(["/usr/bin/env"], env={"ONE": "1", "TWO": "zwei ü\nzwei"})
    assert done.out.decode() == "ONE=1\nTWO=zwei ü\nzwei\n"
    assert (await stage.run(["/usr/bin/env"])).out == b""


@staged()
async def test_a_program_is_found_from_where_it_runs(stage: Stage) -> None:
    inputs = {"dir": {"tools": {"run.sh": ("x", b"#!/bin/sh\n/bin/pwd; echo $0\n")}}}
    done = await stage.run(["tools/run.sh"], inputs, working_directory="dir")
    where, name = done.out.decode().splitlines()
    assert where.endswith("/dir")
    assert name == "tools/run.sh"


@staged()
async def test_an_exit_code_is_a_result(stage: Stage) -> None:
    done = await stage.sh("echo out; echo err >&2; echo partial > o; exit 7", output_files=["o"])
    assert (done.result.exit_code, done.said.exit_code, done.said.status) == (7, 7, 0)
    assert (done.out, done.err, done.files) == (b"out\n", b"err\n", {"o": b"partial\n"})
    assert await stage.log() == b"out\nerr\n"


@staged()
async def test_a_signal_is_a_result_that_says_which(stage: Stage) -> None:
    done = await stage.sh("kill -SEGV $$")
    assert (done.result.exit_code, done.said.message) == (128 + 11, "killed by SIGSEGV")


@staged()
async def test_a_time_limit_keeps_what_there_is(stage: Stage) -> None:
    done = await stage.sh("echo early; echo half > o; exec sleep 1000", output_paths=["o", "never"], timeout_s=0.4)
    assert done.said.status == 4
    assert "400 ms" in done.said.message
    assert (done.out, done.files, done.result.exit_code) == (b"early\n", {"o": b"half\n"}, 137)


@staged()
async def test_a_time_limit_reaches_a_child_in_another_session(stage: Stage) -> None:
    fifo = stage.folder / "alive"
    os.mkfifo(fifo)
    # Holds the pipe open for as long as it lives, and its stdout is the action's.
    daemon = f"(setsid sh -c 'echo up; exec sleep 1000 > {fifo}' &) ; cat {fifo} & sleep 1000"
    reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    done = await stage.sh(daemon, timeout_s=0.5)
    assert done.said.status == 4
    # Nobody has it open for writing any more.
    assert os.read(reading, 1) == b""
    os.close(reading)


@staged()
async def test_a_child_left_in_the_background_does_not_outlive_its_action(stage: Stage) -> None:
    fifo = stage.folder / "alive"
    os.mkfifo(fifo)
    reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    done = await stage.sh(f"setsid sleep 1000 > {fifo} & echo done")
    assert (done.out, done.said.status) == (b"done\n", 0)
    assert os.read(reading, 1) == b""
    os.close(reading)


@staged()
async def test_cancelling_kills_and_cleans_up(stage: Stage) -> None:
    fifo = str(stage.folder / "ready")
    os.mkfifo(fifo)
    held = f"mkdir locked; touch locked/file; chmod 500 locked; printf ready > {fifo}; setsid sleep 1000; sleep 1000"
    action = stage.action(["/bin/sh", "-c", held], env={"PATH": "/usr/bin:/bin"})
    attempt = asyncio.ensure_future(stage.carry(action))
    await told(fifo)
    assert len(stage.rooms()) == 1
    attempt.cancel()
    await asyncio.gather(attempt, return_exceptions=True)
    assert attempt.cancelled()
    assert stage.rooms() == []


@staged()
async def test_ten_megabytes_of_output_are_kept_whole(stage: Stage) -> None:
    done = await stage.sh("head -c 10000000 /dev/zero | tr '\\0' x; echo short >&2")
    assert done.result.stdout_raw == b""
    assert done.out == b"x" * 10_000_000
    assert done.result.stderr_raw == b"short\n"
    log = await stage.log()
    assert len(log) < 1_100_000
    assert b"8,951,424 more bytes are in the action's result" in log


@staged()
async def test_what_was_asked_for_in_vain_fails_for_good(stage: Stage) -> None:
    for action, text in (
        (stage.action([]), "names no program"),
        (stage.action(["/bin/true"], working_directory="missing"), "no folder of its input tree"),
        (stage.action(["/bin/true"], {"file": b"1"}, working_directory="file"), "no folder of its input tree"),
        (stage.action(["/bin/true"], working_directory="../up"), "outside of the action's folder"),
        (stage.action(["/bin/true"], working_directory="/abs"), "no relative path"),
        (stage.action(["/bin/true"], output_files=["../../out"]), "outside of the action's folder"),
        (stage.action(["/bin/true"], output_paths=["/etc/passwd"]), "no relative path"),
        (stage.action(["/bin/true"], {"a": b"1"}, output_files=["a/b/c"]), "below an input that is no folder"),
        (stage.action(["/bin/true", "x" * 200_000]), "200,000 bytes; the most is 131,071"),
        (stage.action(["/bin/true", *["y" * 100_000] * 30]), "its arguments and variables have"),
        (stage.action(["/bin/true"], env={"": "x"}), "no name of a variable"),
        (stage.action(["/bin/true"], env={"A=B": "x"}), "no name of a variable"),
        (stage.action(["/bin/true", "a\0b"]), "NUL"),
        (rx.Action(command_digest=rx.Digest(hash="nonsense", size_bytes=1)), "is not a SHA-256"),
    ):
        over = await stage.carry(action)
        assert (over.outcome, over.failure) == ("failed", FailureClass.FATAL), text
        assert over.error.startswith("invalid action: ")
        assert text in over.error


@staged()
async def test_messages_that_cannot_be_read_are_refused(stage: Stage) -> None:
    root, garbage = stage.tree({}), stage.front.put(b"\xff\xff\xff")
    command = stage.front.put(rx.Command(arguments=["/bin/true"]))
    for action, text in (
        (rx.Action(command_digest=garbage, input_root_digest=root), "the command cannot be read"),
        (rx.Action(command_digest=command, input_root_digest=garbage), "of its input tree is not a Directory message"),
    ):
        over = await stage.carry(action)
        assert over.failure is FailureClass.FATAL
        assert text in over.error
    over = await stage.runner.run(stage.offer(digest_of(b"\xff\xff\xff")))
    assert over.failure is FailureClass.FATAL
    assert "the action" in over.error
    over = await stage.runner.run(stage.offer(stage.action(["/bin/true"]), params=b"junk"))
    assert re.match(r"invalid action: .*\bparams\b", over.error)
    lying = BuildWork(instance="", action=digest_of(b"else"), action_bytes=b"1234", content=stage.front.url)
    over = await stage.runner.run(stage.offer(stage.action(["/bin/true"]), params=encode_build(lying)))
    assert re.match(r"invalid action: .*\bdigest\b", over.error)


@staged()
async def test_where_time_went_is_told(stage: Stage) -> None:
    action = stage.action(["/bin/true"])
    over = await stage.runner.run(stage.offer(digest_of(action.SerializeToString())))
    assert over.error.startswith("missing inputs: ")
    stage.front.put(action)
    done = Done(await stage.runner.run(stage.offer(digest_of(action.SerializeToString()))), stage.front)
    told_of = done.result.execution_metadata
    assert told_of.worker == "worker-7"
    stamps = [
        getattr(told_of, f"{name}_timestamp").ToMilliseconds()
        for name in (
            "worker_start",
            "input_fetch_start",
            "input_fetch_completed",
            "execution_start",
            "execution_completed",
            "output_upload_start",
            "output_upload_completed",
            "worker_completed",
        )
    ]
    assert stamps == sorted(stamps)
    assert stamps[0] > 0


@staged()
async def test_leftovers_of_a_killed_worker_are_swept(stage: Stage) -> None:
    left = stage.place / "rooms" / "dead" / "root" / "locked"
    left.mkdir(parents=True)
    (left / "file").write_text("x")
    left.chmod(0o500)
    (stage.place / "parts").mkdir()
    (stage.place / "parts" / "7").write_text("half")
    assert (await stage.sh("true")).result.exit_code == 0
    assert stage.rooms() == []
    assert list((stage.place / "parts").iterdir()) == []


@staged()
async def test_a_very_deep_folder_is_removed(stage: Stage) -> None:
    dig = "import os\nfor _ in range(1500): os.mkdir('a' * 20); os.chdir('a' * 20)\nprint('deep')"
    assert (await stage.run([sys.executable, "-c", dig])).out == b"deep\n"
    assert stage.rooms() == []


@staged()
async def test_what_is_not_the_actions_fault_is_tried_again(stage: Stage) -> None:
    (stage.place).write_text("no folder")
    over = await stage.carry(stage.action(["/bin/true"]))
    assert over.failure is FailureClass.INTERNAL
    assert "folder" in over.error
    Path(stage.place).unlink()
    assert (await stage.sh("true")).result.exit_code == 0


@staged()
async def test_content_that_cannot_be_anywhere_is_refused(stage: Stage) -> None:
    said = [""]

    def find(url: str) -> Place:
        raise Refused(said[0], "no such address")

    stage.find = find
    for code, failure in (("config.value", FailureClass.FATAL), ("tls.files", FailureClass.INTERNAL)):
        said[0] = code
        over = await stage.carry(stage.action(["/bin/true"]))
        assert over.failure is failure
        assert "no such address" in over.error
