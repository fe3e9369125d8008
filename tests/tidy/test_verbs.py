"""Every test is run by `make test`, `make test-full` or `make test-long`; `make test` meets every real component."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import leaves_out

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
TEST, FULL = "not full and not long", "(full or hypothesis) and not long"
# What `make test` has to run, by a part of its name; CONTRIBUTING.md names the files.
REAL_PARTS = {
    "the contract on PostgreSQL": "contract/test_store_contract.py::test_a_store_keeps_its_promise[a_*-postgres]",
    "the contract on etcd": "contract/test_store_contract.py::test_a_store_keeps_its_promise[a_*-etcd]",
    "a failover": "integration/failover/test_killed_leaders.py::*[postgres]",
    "a Bazel build": "integration/builds/clients/test_bazel.py::test_a_remote_build_*",
    "a query on two workers": "integration/queries/test_staged_tpch.py::*on_two_workers*",
    "a browser": "e2e/test_pages_in_a_browser.py::*",
    "an MCP client": "integration/service/test_mcp.py::test_a_full_cycle*",
    "an ADBC client": "integration/queries/test_flight.py::*",
    "the wheel": "install/test_wheel.py::test_the_first_five_sections_*",
}


class Collected(NamedTuple):
    """A test, the file that it is in, and its marks."""

    id: str
    path: Path
    marks: set[str]

    @property
    def is_in_test(self) -> bool:
        return not self.marks & {"full", "long"}

    @property
    def is_in_full(self) -> bool:
        return bool(self.marks & {"full", "hypothesis"}) and "long" not in self.marks


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> list[Collected]:
    """Every test there is."""
    file = tmp_path_factory.mktemp("collected") / "tests"
    line = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "tests.tidy.collected", "tests"]
    env = {**os.environ, "ROTA_COLLECTED": str(file)}
    subprocess.run(line, cwd=ROOT, env=env, check=True, stdout=subprocess.DEVNULL, timeout=300)
    found = (json.loads(each) for each in file.read_text(encoding="utf-8").splitlines())
    return [Collected(test, Path(path), set(marks)) for test, path, marks in found]


def test_no_file_with_a_test_to_run_is_left_out(collected: list[Collected]) -> None:
    assert len(collected) > 5_000
    wrong = {each.path for each in collected if each.is_in_test and leaves_out(each.path, TEST)}
    wrong |= {each.path for each in collected if each.is_in_full and leaves_out(each.path, FULL)}
    assert sorted(str(path.relative_to(ROOT)) for path in wrong) == []


def test_what_is_tried_by_a_machine_of_hypothesis_is_marked(collected: list[Collected]) -> None:
    machines = {
        each.path for each in collected if "run_state_machine_as_test(" in each.path.read_text(encoding="utf-8")
    }
    marked = {each.path for each in collected if "hypothesis" in each.marks}
    assert machines - marked - {Path(__file__)} == set()


def test_make_test_meets_every_real_component(collected: list[Collected]) -> None:
    names = [Path(each.id) for each in collected if each.is_in_test]
    lacking = [part for part, name in REAL_PARTS.items() if not any(each.match(_escaped(name)) for each in names)]
    assert lacking == []


def test_the_page_for_contributors_names_the_files() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [name for name in REAL_PARTS.values() if name.partition("::")[0] not in page] == []


def test_the_makefile_says_the_same() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f'-m "{TEST}" tests' in text
    assert f'-m "{FULL}" tests' in text


def _escaped(name: str) -> str:
    """Brackets of a test's name mean themselves."""
    return name.replace("[", "[[]")
