"""BuildStream 2 as a client: elements are built in root file systems, which it sends whole."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.builds.clients.service import Service
from tests.servers.programs import find_program

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("bazel")]
BUILD_S = 150
APPLETS = ("cat", "cp", "false", "id", "ln", "ls", "mkdir", "rm", "sh", "touch", "tr")

_PROJECT = """
name: rota-test
min-version: 2.0
element-path: elements
environment: {PATH: /bin}
"""
_BASE = """
kind: import
sources: [{kind: local, path: root}]
"""
_GREETING = """
kind: manual
build-depends: [base.bst]
sources: [{kind: local, path: src}]
config:
  build-commands: ["echo built in $(pwd)", "tr a-z A-Z < greeting.txt > loud.txt"]
  install-commands:
  - mkdir -p "%{install-root}/usr/share"
  - cp loud.txt "%{install-root}/usr/share/greeting"
  - ln -s /usr/share/greeting "%{install-root}/usr/share/absolute"
  - ln -s greeting "%{install-root}/usr/share/relative"
  - cp /bin/busybox "%{install-root}/usr/tool"
"""
# It needs what the other one has made, absolute links in it included.
_READER = """
kind: manual
build-depends: [base.bst, greeting.bst]
config:
  install-commands:
  - mkdir "%{install-root}/etc"
  - cat /usr/share/absolute /usr/share/relative > "%{install-root}/etc/both"
"""
_BROKEN = """
kind: manual
build-depends: [base.bst]
config:
  build-commands: ["echo what went wrong >&2; false"]
"""


class BuildStream:
    """A project, and caches of its own, which can be forgotten."""

    def __init__(self, service: Service, folder: Path) -> None:
        # Its packages and ours do not go together, so it has an environment of its own.
        elsewhere = [Path(sys.prefix) / "buildstream/bin/bst"]
        self._program = find_program("bst", elsewhere, "scripts/setup installs it for the tests")
        self._folder = folder
        self.project = folder / "project"
        self._numbers = 0
        place = f'{{url: "{service.url}", instance-name: "{service.new_instance().partition("=")[2]}"}}'
        self._remote = f"""
remote-execution:
  execution-service: {place}
  storage-service: {place}
  action-cache-service: {place}
"""
        self.forget()

    def forget(self) -> None:
        """Begin with empty caches, as on another machine."""
        self._numbers += 1
        (self._folder / "bst.yaml").write_text(f"cachedir: {self._folder}/cache-{self._numbers}\n{self._remote}")

    def run(self, *words: str) -> tuple[int, str]:
        home = {"HOME": str(self._folder), "XDG_CONFIG_HOME": str(self._folder), "XDG_CACHE_HOME": str(self._folder)}
        done = subprocess.run(
            [self._program, "--no-interactive", "--no-colors", "-c", str(self._folder / "bst.yaml"), *words],
            cwd=self.project,
            env={**{name: os.environ[name] for name in os.environ if not name.startswith("ROTA_")}, **home},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_S,
            check=False,
        )
        return done.returncode, done.stdout

    def well(self, *words: str) -> str:
        code, said = self.run(*words)
        assert code == 0, said[-4_000:]
        return said

    def artifact(self, element: str) -> dict[str, str]:
        """What an element has made: the text of each file, and where each link leads."""
        place = self._folder / f"out-{self._numbers}-{element}"
        self.well("artifact", "checkout", element, "--deps", "none", "--directory", str(place))
        found: dict[str, str] = {}
        for path in sorted(place.rglob("*")):
            name = str(path.relative_to(place))
            if path.is_symlink():
                found[name] = f"-> {path.readlink()}"
            elif path.is_file():
                found[name] = "executable" if os.access(path, os.X_OK) else path.read_text()
        return found


@pytest.fixture
def bst(shared: Service, tmp_path: Path) -> BuildStream:
    """A project whose programs are those of busybox, each a link to an absolute path."""
    busybox = find_program("busybox", [], "apt-get install busybox-static")
    one = BuildStream(shared, tmp_path)
    programs = one.project / "root/bin"
    programs.mkdir(parents=True)
    shutil.copy2(busybox, programs / "busybox")
    for name in APPLETS:
        (programs / name).symlink_to("/bin/busybox")
    (one.project / "src").mkdir()
    (one.project / "src/greeting.txt").write_text("hello\n")
    (one.project / "project.conf").write_text(_PROJECT)
    (one.project / "elements").mkdir()
    for name, text in {"base": _BASE, "greeting": _GREETING, "reader": _READER, "broken": _BROKEN}.items():
        (one.project / f"elements/{name}.bst").write_text(text)
    return one


def test_elements_are_built_in_their_root_file_systems_and_found_the_next_time(
    bst: BuildStream, shared: Service
) -> None:
    before = len(shared.runs())
    bst.well("build", "reader.bst")
    made = {
        "greeting.bst": {
            "usr/share/absolute": "-> /usr/share/greeting",
            "usr/share/greeting": "HELLO\n",
            "usr/share/relative": "-> greeting",
            "usr/tool": "executable",
        },
        "reader.bst": {"etc/both": "HELLO\nHELLO\n"},
    }
    assert {element: bst.artifact(element) for element in made} == made
    runs = shared.runs()[: len(shared.runs()) - before]
    assert [str(view.state) for view in runs] == ["success", "success"], "an action for each that runs something"
    assert "built in /buildstream/rota-test/greeting.bst" in bst.well("artifact", "log", "greeting.bst")

    bst.forget()
    bst.well("build", "reader.bst")
    assert {element: bst.artifact(element) for element in made} == made
    assert len(shared.runs()) == before + 2, "nothing was given to a worker"


def test_an_element_that_fails_is_told_with_its_words_and_nothing_is_written_to_the_host(
    bst: BuildStream, shared: Service
) -> None:
    code, said = bst.run("build", "broken.bst")
    assert code != 0
    assert "what went wrong" in said
    assert str(shared.runs()[0].state) == "failed"
    assert not Path("/buildstream-install").exists() and not Path("/buildstream").exists()
