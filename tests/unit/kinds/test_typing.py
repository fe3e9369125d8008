"""Editors and type checkers know what decorated functions take and give."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
SAMPLE = Path(__file__).with_name("typed.py")


def test_a_type_checker_sees_signatures_and_options_through_the_decorators():
    words = [str(Path(sys.executable).with_name("basedpyright")), "--outputjson", "--level", "error", str(SAMPLE)]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    found = {each["range"]["start"]["line"] for each in json.loads(ended.stdout)["generalDiagnostics"]}
    lines = SAMPLE.read_text().splitlines()
    wrong = {number for number, line in enumerate(lines) if line.endswith("# wrong")}
    assert len(wrong) == 8
    assert found == wrong, [lines[number] for number in found ^ wrong]
