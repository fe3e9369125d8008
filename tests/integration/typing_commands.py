"""Typing commands at a folder that this process holds, and reading what they say."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rota.cli import main

Said = tuple[int, str, str]
Say = Callable[..., Said]


def saying(capsys: pytest.CaptureFixture[str], folder: Path) -> Say:
    """Runs a command about a folder: its exit code, what it printed, and what it said beside."""

    def run(*words: object) -> Said:
        code = main([*(str(word) for word in words), "--data", str(folder)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def data(said: Said) -> Any:
    """What a command with `--json` printed; it must have gone well."""
    assert said[0] == 0, said[2]
    return json.loads(said[1])
