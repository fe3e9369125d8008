"""The pictures of the documentation can be taken of the pages as they are now."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests.servers.programs import find_program

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
BYTES_MAX = 200_000


def screenshots(*words: str) -> "subprocess.CompletedProcess[str]":
    line = [sys.executable, str(ROOT / "scripts" / "screenshots"), *words]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)


def test_pictures_are_taken_and_small(tmp_path: Path) -> None:
    find_program("chromium", [Path("/usr/bin/google-chrome")], "install chromium")
    done = screenshots("run", "why", "--into", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.png", "why.png"]
    for path in tmp_path.iterdir():
        assert path.stat().st_size < BYTES_MAX
        with Image.open(path) as picture:
            assert picture.width == 1280
            assert len(picture.convert("RGB").getcolors(100_000) or []) > 20, "something is to be seen"


def test_a_picture_that_nobody_knows_of_is_refused() -> None:
    done = screenshots("moon")
    assert done.returncode == 2
    assert re.search(r"\bmoon\b.* home, ", done.stderr)
