"""`rota top` on a real terminal: it draws, follows the size, quits at `q`, and gives the terminal back as it was."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from tests.integration import jobs
from tests.integration.deadlines import PATIENCE_S, until

pytestmark = pytest.mark.full

ROTA = str(Path(sys.executable).with_name("rota"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("top") / "data"
    with rota.Rota.embedded(folder, threads=True, slots=2) as one:
        stuck = one.submit(jobs.nothing.override(requires={"gpu_count": 8}), run="stuck")
        until(lambda: stuck.tasks()[0].state == "queued", "the task to wait")
        yield folder


class Terminal:
    """A terminal with `rota top` on it."""

    def __init__(self, folder: Path, *words: str, env: dict[str, str] | None = None) -> None:
        self.ours, theirs = pty.openpty()
        self.resize(80, 24)
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.popen = subprocess.Popen(
            [ROTA, "top", "--data", str(folder), *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", **(env or {})},
            start_new_session=True,
        )
        self.seen = ""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, text: str) -> str:
        give_up_at = time.monotonic() + PATIENCE_S
        while text not in self.seen:
            assert time.monotonic() < give_up_at, f"no {text!r} in {self.seen[-2000:]!r}"
            if select.select([self.ours], [], [], 0.2)[0]:
                self.seen += os.read(self.ours, 65_536).decode(errors="replace")
        found, _, self.seen = self.seen.partition(text)
        return found

    def type(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def end(self) -> int:
        try:
            return self.popen.wait(PATIENCE_S)
        finally:
            self.popen.kill()

    def close(self) -> None:
        self.popen.kill()
        self.popen.wait()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def terminal(folder: Path) -> Iterator[Terminal]:
    one = Terminal(folder)
    yield one
    one.close()


def test_it_shows_what_waits_and_why_and_quits_at_q(terminal: Terminal):
    terminal.read_until("\x1b[?1049h")
    terminal.read_until("WAITING, AND WHY")
    terminal.read_until("rota why stuck nothing")
    terminal.read_until("WORKERS: 1 present")
    terminal.read_until("tasks/s")
    terminal.type(b"q")
    assert terminal.end() == 0
    terminal.read_until("\x1b[?25h\x1b[?1049l")
    assert termios.tcgetattr(terminal.theirs) == terminal.before, "the terminal is as it was"


def test_it_is_drawn_anew_when_the_terminal_has_another_size(terminal: Terminal):
    terminal.read_until("rota why stuck nothing")
    terminal.resize(100, 8)
    os.killpg(terminal.popen.pid, signal.SIGWINCH)
    terminal.read_until("\x1b[H")
    # A picture of eight lines has seven ends of lines.
    picture = terminal.read_until("\x1b[J")
    while picture.count("\n") > 8:
        picture = terminal.read_until("\x1b[J")
    assert picture.count("\n") <= 7
    terminal.type(b"q")
    assert terminal.end() == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_and_gives_the_terminal_back(terminal: Terminal, number: int, code: int):
    terminal.read_until("rota why stuck nothing")
    terminal.popen.send_signal(number)
    assert terminal.end() == code
    terminal.read_until("\x1b[?25h\x1b[?1049l")
    assert termios.tcgetattr(terminal.theirs) == terminal.before


def test_colours_are_left_out_where_none_are_wanted(folder: Path):
    for env, has_colour in (({"NO_COLOR": "1"}, False), ({}, True)):
        terminal = Terminal(folder, "--once", env=env)
        try:
            assert terminal.end() == 0
            shown = terminal.read_until("WORKERS")
            assert ("\x1b[1m" in shown) == has_colour
        finally:
            terminal.close()


def test_without_a_terminal_it_is_one_picture(folder: Path):
    words = [ROTA, "top", "--data", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert "\x1b" not in done.stdout
    assert "worker.none_match" in done.stdout


def test_a_folder_on_which_nobody_runs_is_shown_once_and_left_alone(tmp_path: Path):
    folder = tmp_path / "idle"
    with rota.Rota.embedded(folder, slots=0):
        pass
    terminal = Terminal(folder)
    try:
        assert terminal.end() == 0
        terminal.read_until("nobody runs on it; start it with `rota up`")
    finally:
        terminal.close()
