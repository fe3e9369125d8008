"""What an action does wrong is its own failure: it has a result with what it printed, and the worker is not blamed."""

from pathlib import Path

import pytest

from rota.core.commands import Outcome
from rota.core.model import FailureClass
from rota.wire.builds import BUBBLEWRAP, NONE
from rota.worker.runners.builds import outputs
from rota.worker.runners.builds.carrying import DEADLINE_EXCEEDED, FAILED_PRECONDITION, INVALID_ARGUMENT
from tests.integration.builds.stage import Stage, in_sandbox, staged

# What to run, the exit code, the status of the API, and the class of the failure. Each prints on both streams.
INPUTS = {"shared": b"content", "d": {"e": b"e"}}
OUTPUTS = ["o", "d"]
DEEDS: list[tuple[str, int, int, FailureClass]] = [
    ("exit 3", 3, 0, FailureClass.USER),
    ("kill -9 $$", 137, 0, FailureClass.USER),
    ("sleep 1000", 137, DEADLINE_EXCEEDED, FailureClass.TIMEOUT),
    ("chmod u+w shared; echo changed > shared", 0, INVALID_ARGUMENT, FailureClass.USER),
    # What the API asks for where absolute links are disallowed, as this front end says they are.
    ("ln -s /etc/passwd o", 0, FAILED_PRECONDITION, FailureClass.USER),
    ("ln -s /etc/passwd d/l; exit 7", 7, FAILED_PRECONDITION, FailureClass.USER),
    ("ln -s /nowhere o; kill -9 $$", 137, FAILED_PRECONDITION, FailureClass.USER),
    ("ln -s / o; sleep 1000", 137, DEADLINE_EXCEEDED, FailureClass.TIMEOUT),
    ("ln -s ../../../../x o; exit 5", 5, INVALID_ARGUMENT, FailureClass.USER),
    ("mkfifo o", 0, INVALID_ARGUMENT, FailureClass.USER),
    ("ln -s /etc d/l", 0, FAILED_PRECONDITION, FailureClass.USER),
    ("touch d/$(printf '\\377')", 0, INVALID_ARGUMENT, FailureClass.USER),
    ("head -c 2000 /dev/zero > o", 0, INVALID_ARGUMENT, FailureClass.USER),
]


@pytest.mark.parametrize("sandbox", [NONE, pytest.param(BUBBLEWRAP, marks=in_sandbox)])
def test_each_has_a_result_and_is_not_charged_to_the_worker(
    sandbox: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(outputs, "BLOB_BYTES_MAX", 1_000)

    @staged(sandbox=sandbox)
    async def play(stage: Stage) -> None:
        for line, exit_code, status, failure in DEEDS:
            told = f"echo out; echo err >&2; {line}"
            limit = {"timeout_s": 0.5} if failure is FailureClass.TIMEOUT else {}
            done = await stage.sh(told, INPUTS, output_paths=OUTPUTS, **limit)
            found = (done.over.outcome, done.over.failure, done.said.status, done.result.exit_code)
            assert found == (Outcome.FAILED, failure, status, exit_code), (line, done.over.error)
            assert (done.out, done.err.splitlines()[0]) == (b"out\n", b"err"), line
            assert done.over.error, line
        assert (await stage.sh("cat shared d/e", INPUTS)).out == b"contente", "the next one has its inputs as they were"

    play(tmp_path)


@pytest.mark.parametrize("sandbox", [NONE, pytest.param(BUBBLEWRAP, marks=in_sandbox)])
def test_removing_everything_around_is_its_own_loss(sandbox: str, tmp_path: Path) -> None:
    @staged(sandbox=sandbox)
    async def play(stage: Stage) -> None:
        done = await stage.sh("echo out; rm -rf ../* ./*; echo over; exit 0", INPUTS, output_paths=OUTPUTS)
        assert done.out.startswith(b"out\n") and done.out.endswith(b"over\n")
        assert (done.over.outcome, done.files) == (Outcome.SUCCESS, {})
        long = await stage.sh("head -c 100000 /dev/zero | tr '\\0' x; rm -rf ../* ./*; exit 4", INPUTS)
        assert (len(long.out), long.result.exit_code) == (100_000, 4)

    play(tmp_path)
