"""Bazel as a client of a service, and what it says of a build."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from tests.integration.builds.clients.workspace import make_workspace
from tests.integration.deadlines import PATIENCE_S
from tests.servers.keeper import kept
from tests.servers.programs import find_program

# The whole of a build on a machine that is busy with other tests.
BUILD_S = 150.0
# Longer than a service takes to come back after a kill; five, which is usual, are over after some three seconds.
RETRIES = "--remote_retries=15"
_PROCESSES = re.compile(r"(?m)^INFO: [0-9]+ process(?:es)?: (.*)\.$")
_COUNT = re.compile(r"([0-9]+) ([a-z][a-z -]*)")
# Bazel's own exit codes.
DONE, FAILED, TESTS_FAILED, INTERRUPTED, REMOTE_FAILED = 0, 1, 3, 8, 34


class Built:
    """What came of one command."""

    def __init__(self, code: int, said: str) -> None:
        self.code = code
        self.said = said

    @cached_property
    def processes(self) -> dict[str, int]:
        """How many actions were done how: `remote`, `remote cache hit`, `internal`."""
        found = _PROCESSES.search(self.said)
        return {how: int(count) for count, how in _COUNT.findall(found[1])} if found else {}

    @property
    def carried_out(self) -> int:
        return self.processes.get("remote", 0)

    @property
    def found(self) -> int:
        return self.processes.get("remote cache hit", 0)

    def well(self) -> "Built":
        assert self.code == DONE, self.said[-4_000:]
        return self


class Building:
    """A command that is under way."""

    def __init__(self, popen: "subprocess.Popen[bytes]", said: Path) -> None:
        self._popen = popen
        self._said = said

    @property
    def is_over(self) -> bool:
        return self._popen.poll() is not None

    def said(self) -> str:
        return self._said.read_text(errors="replace")

    def interrupt(self) -> None:
        """As Ctrl-C does."""
        self._popen.send_signal(signal.SIGINT)

    def end(self) -> Built:
        try:
            code = self._popen.wait(BUILD_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            raise AssertionError(f"Bazel does not end: {self.said()[-4_000:]}") from None
        return Built(code, self.said())


class Bazel:
    """A workspace, and a server of Bazel's for it that stays between commands."""

    def __init__(self, folder: Path, workspace: Path | None = None) -> None:
        """`folder` is its own; the workspace may be another's."""
        self._program = find_program("bazel", [], "apt-get install bazel-bootstrap")
        self.folder = folder
        self.workspace = workspace or make_workspace(folder)
        self._options = [f"--output_base={folder / 'base'}"]
        self._number = 0

    def start(self, *words: str) -> Building:
        """Begin with a command."""
        self._number += 1
        path = self.folder / f"said-{self._number}.txt"
        with path.open("wb") as said:
            popen = subprocess.Popen(
                [self._program, *self._options, *words],
                cwd=self.workspace,
                env={name: value for name, value in os.environ.items() if not name.startswith("ROTA_")},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
            )
        return Building(popen, path)

    def run(self, *words: str) -> Built:
        """A command from its beginning to its end."""
        return self.start(*words).end()

    def clean(self) -> None:
        """Forget everything that was built."""
        self.run("clean").well()

    def remove(self) -> None:
        """End its server."""
        words = [self._program, *self._options, "shutdown"]
        subprocess.run(words, cwd=self.workspace, capture_output=True, check=False, timeout=PATIENCE_S)

    def output(self, name: str) -> Path:
        """A file that was built."""
        return self.folder / "base/execroot/rota/bazel-out/k8-fastbuild/bin" / name

    def outputs(self, *packages: str) -> dict[str, str]:
        """Every file that was built, with its hash and whether it can be run."""
        top = self.output("")
        found: dict[str, str] = {}
        for path in sorted(path for package in packages for path in (top / package).rglob("*")):
            if path.is_file() and ".runfiles" not in str(path):
                mark = "x" if os.access(path, os.X_OK) else "-"
                found[str(path.relative_to(top))] = f"{mark} {sha256(path.read_bytes()).hexdigest()}"
        return found


@contextmanager
def open_bazel(folder: Path, workspace: Path | None = None) -> Iterator[Bazel]:
    """One that leaves no server behind, however this process ends."""
    bazel = Bazel(folder, workspace)
    script = 'pid=$(cat "$1/base/server/server.pid.txt" 2>/dev/null) && kill "$pid"; true'
    with kept(folder, script):
        try:
            yield bazel
        finally:
            bazel.remove()
