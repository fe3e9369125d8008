"""Programs and shell lines: their ends, their output, their environment."""

import os
import re
from pathlib import Path

import pytest

from rota.core.commands import Outcome
from rota.core.model import FailureClass
from rota.wire.work import CommandWork
from tests.integration.worker.stage import Stage, python_work, staged, value_of


@staged()
async def test_the_last_line_of_stdout_is_the_result(stage: Stage) -> None:
    assert value_of(await stage.sh("echo first; echo last; echo warning >&2")) == "last"
    assert value_of(await stage.sh("true")) == ""
    assert value_of(await stage.sh("printf 'no newline'")) == "no newline"
    long = value_of(await stage.sh("head -c 10000 /dev/zero | tr '\\0' x"))
    assert long == "x" * 4_096


@staged()
async def test_an_exit_code_is_a_failure_with_what_was_said_last(stage: Stage) -> None:
    over = await stage.sh("echo out; echo no such table >&2; exit 3")
    assert (over.outcome, over.failure) == (Outcome.FAILED, FailureClass.USER)
    assert over.error == "exited with code 3\nno such table"
    assert (await stage.sh("echo only out; exit 4")).error == "exited with code 4\nonly out"
    assert sorted(stage.log(1).splitlines()) == [b"no such table", b"out"]


@staged()
async def test_some_codes_mean_skipped(stage: Stage) -> None:
    assert (await stage.sh("exit 99")).outcome is Outcome.SKIPPED
    over = await stage.sh("exit 7", work={"skip_codes": (7, 8)})
    assert (over.outcome, over.error) == (Outcome.SKIPPED, "exited with code 7")


@staged()
async def test_a_program_is_run_as_it_is_given(stage: Stage) -> None:
    work = CommandWork(argv=("printf", "%s|%s", "$HOME", "a b"), cwd=str(stage.folder))
    assert value_of(await stage.run(stage.offer(work))) == "$HOME|a b"
    where = CommandWork(argv=("pwd",), cwd=str(stage.folder))
    assert value_of(await stage.run(stage.offer(where))) == str(stage.folder)


@staged()
async def test_what_cannot_be_run_is_not_tried_again(stage: Stage) -> None:
    for work, error in (
        (CommandWork(argv=("no-such-program",)), "could not run 'no-such-program'"),
        (CommandWork(argv=("true",), cwd="/no/such/folder"), "could not enter the folder '/no/such/folder'"),
        (CommandWork(), "its work names neither a program nor a shell line"),
    ):
        over = await stage.run(stage.offer(work))
        assert over.failure is FailureClass.FATAL
        assert over.error.startswith(error)


@staged()
async def test_a_signal_and_a_time_limit_are_told_apart(stage: Stage) -> None:
    assert (await stage.sh("kill -9 $$")).error == "killed by SIGKILL"
    over = await stage.sh("echo waiting; sleep 1000", timeout_ms=300)
    assert over.failure is FailureClass.TIMEOUT
    assert re.search(r"\b300 ms\b.*\bkilled\b.*\nwaiting$", over.error)
    assert stage.left() == []


@staged()
async def test_stdin_is_empty_and_pipes_break_as_usual(stage: Stage) -> None:
    assert value_of(await stage.sh("cat; echo end")) == "end"
    assert value_of(await stage.sh("yes | head -n 1")) == "y"


@staged(log_bytes_max=10_000)
async def test_a_log_that_is_full_drops_the_rest_and_keeps_the_result(stage: Stage) -> None:
    over = await stage.sh("head -c 1000000 /dev/zero; echo; echo the end")
    assert value_of(over) == "the end"
    assert stage.log() == b"\0" * 10_000 + b"\n[rota] 990,009 more bytes were dropped: a log holds at most 10,000\n"


@staged()
async def test_a_log_that_cannot_be_written_stops_nobody(stage: Stage) -> None:
    stage.shipper.folder.root.write_text("a file where a folder should be")
    over = await stage.sh("head -c 1000000 /dev/zero | tr '\\0' x; echo; echo the end")
    assert value_of(over) == "the end"


# What user code can see.


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ROTA_EXECUTOR_TASK_BEARER_TOKEN", "sesame-4711")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "sesame-4711")
    monkeypatch.setenv("PYTHONPATH", "sesame-4711")
    return "sesame-4711"


def test_user_code_sees_no_secret_of_the_worker(tmp_path: Path, secret: str) -> None:
    @staged()
    async def play(stage: Stage) -> None:
        given = value_of(await stage.call("environment", fence=7))
        name, _, value = stage.mark.partition("=")
        assert given.pop(name) == value
        assert len(given.pop("ROTA_SUPERVISOR")) == 16
        # What Python itself sets where no locale is named.
        given.pop("LC_CTYPE", None)
        passed = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        assert given == {
            **passed,
            "ROTA_TENANT": "acme",
            "ROTA_RUN": "run/1",
            "ROTA_TASK": "extract[0]",
            "ROTA_ATTEMPT": "1",
            "ROTA_FENCE": "7",
        }
        for over in (await stage.call("everything_readable"), await stage.sh("env; cat /proc/$PPID/environ; true")):
            assert over.outcome is Outcome.SUCCESS
        assert secret.encode() not in stage.log()
        assert secret not in value_of(await stage.call("everything_readable"))

    play(tmp_path)


@staged()
async def test_a_command_is_given_its_own_variables(stage: Stage) -> None:
    work = CommandWork(shell="echo $GREETING $ROTA_FENCE", env=(("GREETING", "hello"),))
    assert value_of(await stage.run(stage.offer(work, fence=12))) == "hello 12"


@staged()
async def test_a_process_holds_only_its_own_files(stage: Stage) -> None:
    held = value_of(await stage.run(stage.offer(CommandWork(argv=("ls", "/proc/self/fd")))))
    # Three streams, and the folder that ls itself reads.
    assert held == "3"
    files = value_of(await stage.run(stage.offer(python_work("everything_readable")))).splitlines()[1:]
    assert len([name for name in files if name.startswith("socket:")]) == 1
