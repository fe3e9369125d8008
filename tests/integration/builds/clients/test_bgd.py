"""BuildGrid's command line as a client: content, commands, operations."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.builds.clients.service import Service
from tests.integration.deadlines import until
from tests.servers.programs import find_program

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("bazel")]
COMMAND_S = 90


class Bgd:
    """One that speaks to a service, each time under the same instance."""

    def __init__(self, service: Service, folder: Path, environment: Path) -> None:
        self._program = find_program("bgd", [environment / "bin/bgd"], "scripts/setup installs it for the tests")
        self._where = [f"--remote={service.url}", "--instance-name=", f"--invocation-id={folder.name}"]
        self._where[1] += service.new_instance().partition("=")[2]
        self.folder = folder

    def start(self, group: str, *words: str) -> "subprocess.Popen[str]":
        command = [self._program, group, *self._where, *words]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __call__(self, group: str, *words: str) -> str:
        """What a command says that does well."""
        code, said = self.ends(self.start(group, *words))
        assert code == 0, said
        return said

    def ends(self, popen: "subprocess.Popen[str]") -> tuple[int, str]:
        said, _ = popen.communicate(timeout=COMMAND_S)
        return popen.returncode, said

    def operations(self) -> list[str]:
        """The names of those that are under way."""
        _, said = self.ends(self.start("operation", "list", "--json"))
        return re.findall(r'"name": "([^"]+)"', said)


@pytest.fixture(params=["clients", "buildgrid-0.9"])
def bgd(request: pytest.FixtureRequest, shared: Service, tmp_path: Path) -> Bgd:
    """A client with some files, of BuildGrid 0.4.4 and of 0.9.1. Each has an environment of its own."""
    environment = Path(sys.prefix) / request.param
    if request.param != "clients" and not environment.exists():
        pytest.skip("BuildGrid 0.9 needs Python 3.13, and scripts/setup found none")
    (tmp_path / "in/sub").mkdir(parents=True)
    (tmp_path / "in/a.txt").write_text("alpha\n")
    (tmp_path / "in/sub/b.txt").write_text("beta\n")
    return Bgd(shared, tmp_path, environment)


def test_it_is_told_what_the_service_can(bgd: Bgd) -> None:
    said = json.loads(bgd("capabilities"))
    assert said["executionCapabilities"]["execEnabled"] is True
    assert said["cacheCapabilities"]["digestFunctions"] == ["SHA256"]
    assert (said["lowApiVersion"], said["highApiVersion"]) == ({"major": 2}, {"major": 2, "minor": 3})


def test_files_and_folders_come_back_as_they_were(bgd: Bgd) -> None:
    large = bytes(range(256)) * 40_000
    (bgd.folder / "in/large.bin").write_bytes(large)
    digest = re.findall(r"digest=\[(\S+)\]", bgd("cas", "upload-file", "--verify", "in/large.bin"))[-1]
    bgd("cas", "download-file", "--verify", digest, "back.bin")
    assert (bgd.folder / "back.bin").read_bytes() == large
    digest = re.findall(r"path=\[\S*in\] with digest=\[(\S+)\]", bgd("cas", "upload-dir", "--verify", "in"))[-1]
    bgd("cas", "download-dir", "--verify", digest, "back")
    found = {str(path.relative_to(bgd.folder / "back")) for path in (bgd.folder / "back").rglob("*") if path.is_file()}
    assert found == {"a.txt", "sub/b.txt", "large.bin"}
    assert (bgd.folder / "back/sub/b.txt").read_text() == "beta\n"


def test_a_command_leaves_its_files_and_is_found_by_its_action(bgd: Bgd, shared: Service) -> None:
    line = "cat a.txt sub/b.txt > out.txt; mkdir -p more; echo deep > more/c.txt"
    words = ["command", "-c", "--output-file", "out.txt", "--output-file", "more", "--output-directory", "out", "in"]
    words += ["/bin/sh", "--", "-c", line]
    said = bgd("execute", *words)
    assert (bgd.folder / "out/out.txt").read_text() == "alpha\nbeta\n"
    name, size = re.findall(r'Sent action=\[hash: "(\w+)"\s+size_bytes: (\d+)', said)[-1]
    result = json.loads(bgd("actioncache", "get", "--json", f"{name}/{size}"))
    assert [file["path"] for file in result["outputFiles"]] == ["out.txt"]
    assert [folder["path"] for folder in result["outputDirectories"]] == ["more"]
    times = result["executionMetadata"]
    assert times["worker"]
    stages = ("queued", "workerStart", "inputFetchStart", "executionStart", "outputUploadStart", "workerCompleted")
    said_at = [times[f"{stage}Timestamp"] for stage in stages]
    assert said_at == sorted(said_at)

    carried_out = len(shared.runs())
    assert "cached" in bgd("execute", *words)
    assert len(shared.runs()) == carried_out, "the second time it was found"


@pytest.mark.long
def test_an_operation_is_listed_shown_waited_for_and_cancelled(bgd: Bgd, shared: Service) -> None:
    executing = bgd.start("execute", "command", "in", "/bin/sh", "--", "-c", "sleep 300")
    (name,) = until(bgd.operations, "the operation to be listed", patience_s=COMMAND_S)
    assert name.startswith("team/number/")
    waiting = bgd.start("operation", "wait", name)
    until(lambda: "Executing" in bgd("operation", "status", name), "it to be carried out", patience_s=COMMAND_S)
    bgd("operation", "cancel", name)
    for popen in (executing, waiting):
        _, said = bgd.ends(popen)
        assert "cancelled" in said.lower()
    assert "Failure" in bgd("operation", "status", name), "what has ended is told as ended"
    assert str(shared.runs()[0].state) == "cancelled"
    assert bgd.operations() == []


def test_an_operation_that_nobody_knows_is_said_to_be_unknown(bgd: Bgd) -> None:
    code, said = bgd.ends(bgd.start("operation", "status", "operations/build-000000000000-0000000000000000.1"))
    assert code
    assert "NOT_FOUND" in said or "no operation" in said
