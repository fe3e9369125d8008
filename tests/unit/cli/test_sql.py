"""`rota sql` where no terminal shows how far it is."""

import pytest

from rota.app.sql.handles import Progress, StageProgress
from rota.cli.sql import wait_in_a_pipe


class Waited:
    """A query that goes on until it was waited for without a limit."""

    id = "query-1"

    def __init__(self, *stages: StageProgress) -> None:
        self._stages = stages
        self.has_ended = False

    def wait(self, timeout_s: float | None = None) -> None:
        if timeout_s is not None:
            raise TimeoutError
        self.has_ended = True

    def progress(self) -> Progress:
        return Progress(self._stages)


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ((StageProgress("scan", 4), StageProgress("last", 1)), "rota why query-1 'scan[0]'"),
        ((StageProgress("all", 1),), "rota why query-1 'all'"),
        ((StageProgress("scan", 4, 1, 0), StageProgress("last", 1)), ""),
        ((StageProgress("scan", 4, 0, 4), StageProgress("last", 1)), ""),
    ],
)
def test_that_a_query_waits_is_said_once_and_that_it_runs_is_not(
    stages: tuple[StageProgress, ...], said: str, capsys: pytest.CaptureFixture[str]
):
    handle = Waited(*stages)
    wait_in_a_pipe(handle, 0)  # pyright: ignore[reportArgumentType] - all of it that is used
    assert handle.has_ended
    told = capsys.readouterr()
    assert told.out == ""
    assert said in told.err if said else told.err == ""
