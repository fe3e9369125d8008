"""Pages that are stories: their files are written, their commands and programs run, in the order in which they stand.

What a fenced block is for is said by its first line, and by a comment right above it:

- `title="daily.py"`: a file of that name; with `<!-- replaces: the last three lines -->` only those are.
- `console`: lines after `$ ` are commands, typed into one shell for the whole page, as its reader does; those below are
  what is printed, with `…` for what differs. `rota up` runs in a shell of its own until the next one, or the end.
- `python` without a title: a program. What it prints is compared with a block `text title="prints"` below it.
- `<!-- not run: why -->`: neither. `<!-- needs: bazel -->`: only where there is such a program.

Everything else is there to be looked at.
"""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from tests.servers.ports import free_ports
from tests.servers.programs import find_program

ROOT = Path(__file__).parents[2]
PATIENCE_S = 180
# Ports that the documents name, and that somebody may have here.
PORTS = (7433, 7434, 8980, 8982)
_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*?) -->\n)?^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_HOW = {"bazel": "apt-get install bazel-bootstrap"}
_LAST = {"the last three lines": 3}


class Block(NamedTuple):
    """A fenced block of a page."""

    mark: str
    language: str
    title: str
    text: str


def blocks(text: str) -> list[Block]:
    found = ((each["mark"], each["language"], each["title"], each["text"]) for each in _BLOCK.finditer(text))
    return [Block(mark or "", language, title or "", body) for mark, language, title, body in found]


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a console, each with the lines that it prints."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, *printed = part.splitlines()
        yield command, [line for line in printed if line.strip()]


def is_printed(expected: str, line: str) -> bool:
    """Whether a line is what a page shows; `…` is anything, and how much space there is does not count."""
    pattern = ".*".join(re.escape(part.strip()) for part in _spaced(expected).split("…"))
    return re.fullmatch(pattern, _spaced(line)) is not None


def _spaced(text: str) -> str:
    return " ".join(text.split())


def missing(expected: list[str], printed: str) -> list[str]:
    """Lines that were not printed, in the order of the page; others may be in between."""
    lines = iter(printed.splitlines())
    return [each for each in expected if not any(is_printed(each, line) for line in lines)]


class Shell:
    """A shell that commands are typed into, one after the other: a change of folder or a variable stays."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        # Nothing that a command prints looks like this.
        self._end = f"ended {uuid4()} "

    def type(self, command: str) -> tuple[int, str]:
        """The exit code of a command, and what it printed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{{ {command}\n}} </dev/null; printf '\\n{self._end}%d\\n' $?\n")
        self._process.stdin.flush()
        printed: list[str] = []
        with Deadline(self._process, PATIENCE_S):
            for line in self._process.stdout:
                if line.startswith(self._end):
                    return int(line.removeprefix(self._end)), "".join(printed).removesuffix("\n")
                printed.append(line)
        raise AssertionError(f"$ {command}\n{''.join(printed)}\nThe shell has ended.")

    def end(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=PATIENCE_S)


class Deadline:
    """Ends a process that takes too long."""

    def __init__(self, process: "subprocess.Popen[str]", seconds: float) -> None:
        self._timer = threading.Timer(seconds, process.kill)

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()


class Story:
    """A page that is played in a folder of its own."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self._python = str(programs / "python")
        self._up: list[subprocess.Popen[str]] = []
        self._ports = dict(zip(map(str, PORTS), map(str, free_ports(len(PORTS))), strict=True))
        self._env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ROTA_")},
            "PATH": f"{programs}:{os.environ['PATH']}",
            "ROTA_SERVER_LISTEN": f"127.0.0.1:{self._ports['7433']}",
            "ROTA_SERVER_HTTP": f"127.0.0.1:{self._ports['7434']}",
            "ROTA_WORKER_SLOTS": "2",
            "NO_COLOR": "1",
            "COLUMNS": "200",
        }
        self._shell = Shell(folder, self._env)

    def play(self, page: str) -> None:
        """Everything on the page, from top to bottom."""
        found = blocks(page)
        for number, block in enumerate(found):
            following = found[number + 1] if number + 1 < len(found) else None
            if block.mark.startswith("not run: "):
                continue
            if block.mark.startswith("needs: "):
                self._need(block.mark.removeprefix("needs: "))
            if block.title and block.title != "prints":
                self._write(block)
            elif block.language == "console":
                self._type(block.text)
            elif block.language == "python":
                shown = following.text if following is not None and following.title == "prints" else ""
                self._start(block.text, shown)

    def end(self) -> None:
        self._shell.end()
        self._stop()

    def _stop(self) -> None:
        while self._up:
            process = self._up.pop()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_S)

    def _need(self, program: str) -> None:
        find_program(program, [], _HOW[program])

    def _write(self, block: Block) -> None:
        path = self.folder / block.title
        path.parent.mkdir(parents=True, exist_ok=True)
        before = ""
        if block.mark.startswith("replaces: "):
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            before = "".join(lines[: -_LAST[block.mark.removeprefix("replaces: ")]])
        path.write_text(before + self._here(block.text), encoding="utf-8")

    def _type(self, text: str) -> None:
        for command, expected in commands(text):
            if command.startswith("rota up"):
                self._serve(command, expected)
                continue
            code, printed = self._shell.type(self._here(command))
            assert code == 0, f"$ {command}\n{printed}"
            assert missing([self._here(line) for line in expected], printed) == [], f"$ {command}\n{printed}"

    def _start(self, code: str, shown: str) -> None:
        path = self.folder / "program.py"
        path.write_text(self._here(code), encoding="utf-8")
        ended = self._run([self._python, str(path)])
        assert ended.returncode == 0, ended.stderr
        if shown:
            assert ended.stdout == shown

    def _serve(self, command: str, expected: list[str]) -> None:
        self._stop()
        process = subprocess.Popen(
            ["bash", "-c", f"exec {self._here(command)}"],
            cwd=self.folder,
            env=self._env,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._up.append(process)
        assert process.stderr is not None
        said: list[str] = []
        while missing([self._here(line) for line in expected], "".join(said)):
            said.append(process.stderr.readline())
            assert said[-1], f"$ {command}\n{''.join(said)}"

    def _run(self, words: list[str]) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            words, cwd=self.folder, env=self._env, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )

    def _here(self, text: str) -> str:
        """A text with ports that are free here, and a Bazel that ends by itself."""
        for port, free in self._ports.items():
            text = re.sub(rf"(?<=:){port}\b", free, text)
        return text.replace("bazel build", f"bazel --batch --output_base={self.folder / '.bazel'} build")


def play(page: str, folder: Path, programs: Path = Path(sys.executable).parent) -> None:
    """Play a page with the `rota` and the `python` of an environment."""
    story = Story(folder, programs)
    try:
        story.play(page)
    finally:
        story.end()
