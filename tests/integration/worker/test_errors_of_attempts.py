"""The error of an attempt begins with its exception or how it died, whatever was printed; its log has the rest."""

import re
from pathlib import Path

import pytest

from rota.core.commands import Outcome
from rota.core.errors import headline
from tests.integration.worker.stage import Stage, staged

RAISED = {
    "raise": r"ValueError: too small",
    "raise lines": r"ValueError: first of all",
    "raise nothing": r"KeyError",
    "raise chained": r"ValueError: no good divisor",
    "raise group": r"ExceptionGroup: several \(2 sub-exceptions\)",
    "raise noted": r"ValueError: too small",
    "raise syntax": r"SyntaxError: .*\(typed\.py, line 1\)",
    "raise unspeakable": r"tests\.integration\.worker\.tasks\.Unspeakable",
    "raise our own": r"account closed",
    "assert": r"AssertionError: not called",
    "exit": r".*sys\.exit\('all is well'\).*",
    "without streams": r"ValueError: too small",
    "closed streams": r"ValueError: too small",
}
DIED = {
    "exit hard": r".*\b3\b.*",
    "9": r".*\bSIGKILL\b.*",
    "15": r".*\bSIGTERM\b.*",
    "11": r".*\bSIGSEGV\b.*",
    "6": r".*\bSIGABRT\b.*",
    "64": r".*\b64\b.*|.*\bSIGRTMAX\b.*",
}
COMMANDS = {
    "exit 3": r".*\b3\b.*",
    "kill -9 $$": r".*\bSIGKILL\b.*",
    "kill -15 $$": r".*\bSIGTERM\b.*",
    "no-such-program-at-all": r".*\b127\b.*",
}


@pytest.mark.slow
def test_every_way_to_fail_is_told_by_its_first_line(tmp_path: Path) -> None:
    @staged()
    async def play(stage: Stage) -> None:
        for how, expected in {**RAISED, **DIED}.items():
            over = await stage.call("talk_and_end", how)
            assert over.outcome is Outcome.FAILED
            assert re.fullmatch(expected, headline(over.error)), (how, over.error)
        for line, expected in COMMANDS.items():
            over = await stage.sh(f"echo all is well; echo really >&2; {line}")
            assert over.outcome is Outcome.FAILED
            assert re.fullmatch(expected, headline(over.error)), (line, over.error)

    play(tmp_path)


@pytest.mark.slow
@staged()
async def test_a_time_limit_is_told_by_its_first_line(stage: Stage) -> None:
    # A process that is there: on a busy machine the limit is over before one is started.
    await stage.call("add", 1, 1)
    for over in (
        await stage.call("talk_and_end", "wait", timeout_ms=500),
        await stage.sh("echo all is well; sleep 1000", timeout_ms=500),
    ):
        assert re.search(r"\b500 ms\b", headline(over.error)), over.error


@pytest.mark.slow
@staged()
async def test_the_log_of_what_raised_ends_with_its_traceback(stage: Stage) -> None:
    for how in RAISED:
        over = await stage.call("talk_and_end", how)
        log = stage.log().decode()
        printed, _, trace = log.partition("no newline, ")
        assert printed.splitlines() == ["all is well", "really"], how
        assert "in talk_and_end" in trace or how in ("raise unspeakable",), (how, log)
        assert "rota/worker" not in trace
        # What is below the error's first line is the end of the log.
        below = over.error.partition("\n\n")[2]
        assert trace.rstrip().endswith(below), how


@pytest.mark.slow
@staged()
async def test_a_log_has_the_whole_traceback_of_which_the_error_keeps_a_part(stage: Stage) -> None:
    over = await stage.call("talk_and_end", "raise long")
    assert headline(over.error).startswith("ValueError: long long ")
    assert len(over.error) <= 4_096 < 10_000 < len(stage.log())


@staged()
async def test_an_attempt_that_is_skipped_or_comes_back_leaves_no_traceback(stage: Stage) -> None:
    await stage.call("skip")
    assert stage.log() == b""
    await stage.call("reschedule", 10)
    assert stage.log() == b""
