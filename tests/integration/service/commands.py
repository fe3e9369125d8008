"""Commands about a service, carried out in this process: that saves the start of another for each."""

import os
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import NamedTuple
from unittest.mock import patch

from rota.cli import main
from tests.integration.service.stage import Stage


class Answer(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str


def type_in(stage: Stage, *words: str, env: Mapping[str, str] | None = None) -> Answer:
    """What a command says, about the coordinator of the stage."""
    out, err = StringIO(), StringIO()
    given = {**stage.env, "ROTA_COORDINATOR": stage.url, **(env or {})}
    with patch.dict(os.environ, given, clear=True), redirect_stdout(out), redirect_stderr(err):
        code = main(words)
    return Answer(code, out.getvalue(), err.getvalue())


def told(stage: Stage, *words: str) -> str:
    """What a command prints that is not refused."""
    answer = type_in(stage, *words)
    assert answer.code == 0, answer.err
    return answer.out
