"""Every exit code that is documented, from the program itself."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rota.cli import EXIT_CODES
from tests.integration.deadlines import until

pytestmark = pytest.mark.full

ROTA = str(Path(sys.executable).with_name("rota"))
FILE = """import rota

@rota.workflow
def good():
    rota.command("true", id="a")

@rota.workflow
def bad():
    rota.command("exit 3", id="a")

@rota.workflow
def slow():
    rota.command("echo begun > begun; sleep 600", id="a", cwd=".")
"""
CASES = {
    0: ["run", "flow.py:good"],
    1: ["run", "flow.py:bad"],
    2: ["runs", "--nonsense"],
    3: ["tasks", "nobody", "--data", "nowhere"],
    4: ["runs", "--coordinator", "grpc://127.0.0.1:9"],
}
SIGNALS = {130: signal.SIGINT, 143: signal.SIGTERM}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "flow.py").write_text(FILE, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(("code", "words"), CASES.items())
def test_a_command_ends_with_the_code_that_is_documented(home: Path, code: int, words: list[str]):
    done = subprocess.run([ROTA, *words], cwd=home, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code, done.stderr
    assert code == 0 or done.stderr, "whatever went wrong is said"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("code", "number"), SIGNALS.items())
def test_a_signal_ends_a_command_with_its_code(home: Path, code: int, number: int):
    with subprocess.Popen([ROTA, "run", "flow.py:slow"], cwd=home, stderr=subprocess.PIPE, text=True) as process:
        try:
            until(lambda: any(home.rglob("begun")), "the task to begin")
            process.send_signal(number)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == code, err
    assert "Traceback" not in err


def test_these_are_all_codes_that_there_are():
    assert sorted(EXIT_CODES) == sorted([*CASES, *SIGNALS])
