"""Pants 2 as a client: processes that its engine has carried out elsewhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.builds.clients.service import Service
from tests.servers.programs import find_program

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("bazel")]
BUILD_S = 150
_SETTINGS = """
[GLOBAL]
pants_version = "2.17.1"
backend_packages = ["pants.backend.shell"]
pantsd = false
remote_execution = true
remote_cache_read = true
remote_store_address = "grpc://127.0.0.1:{port}"
remote_execution_address = "grpc://127.0.0.1:{port}"
remote_instance_name = "{instance}"
local_cache = false

[anonymous-telemetry]
enabled = false

[shell-setup]
executable_search_paths = ["/usr/bin", "/bin"]
"""
# Programs by their whole names: the folder of links that Pants makes for them is found only where it runs itself.
_TARGETS = """
files(name="inputs", sources=["*.txt"])
shell_command(
    name="loud",
    command="/usr/bin/tr a-z A-Z < greeting.txt > loud.txt; /bin/mkdir tree; echo deep > tree/file",
    tools=["tr"],
    execution_dependencies=[":inputs"],
    output_files=["loud.txt"],
    output_directories=["tree"],
)
"""


class Pants:
    """A workspace."""

    def __init__(self, service: Service, folder: Path) -> None:
        environment = Path(sys.prefix) / "pants"
        if not environment.exists():
            pytest.skip("Pants 2.17 needs Python 3.7 to 3.9, and scripts/setup found none")
        self._program = find_program("pants", [environment / "bin/pants"], "scripts/setup installs it for the tests")
        self._folder = folder
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        instance = service.new_instance().partition("=")[2]
        (self.workspace / "pants.toml").write_text(_SETTINGS.format(port=service.port, instance=instance))
        (self.workspace / "BUILD").write_text(_TARGETS)
        (self.workspace / "greeting.txt").write_text("hello\n")

    def run(self, *words: str) -> tuple[int, str]:
        home = {"HOME": str(self._folder), "XDG_CACHE_HOME": str(self._folder / "cache")}
        done = subprocess.run(
            [self._program, *words],
            cwd=self.workspace,
            env={**{name: os.environ[name] for name in os.environ if not name.startswith("ROTA_")}, **home},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_S,
            check=False,
        )
        return done.returncode, done.stdout


@pytest.fixture
def pants(shared: Service, tmp_path: Path) -> Pants:
    """A workspace for one test."""
    return Pants(shared, tmp_path)


def test_what_a_shell_command_makes_comes_back(pants: Pants, shared: Service) -> None:
    before = len(shared.runs())
    code, said = pants.run("export-codegen", "//:loud")
    assert code == 0, said[-4_000:]
    made = pants.workspace / "dist/codegen"
    assert (made / "loud.txt").read_text() == "HELLO\n"
    assert (made / "tree/file").read_text() == "deep\n"
    carried_out = len(shared.runs())
    assert carried_out > before
    assert {str(view.state) for view in shared.runs()[: carried_out - before]} == {"success"}
