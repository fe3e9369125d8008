"""The import contracts of pyproject.toml hold, and each of them can fail."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LAYERS = "Imports point one way"
PURE_CORE = "The core touches no clock, chance, thread, file or network"
MACHINES = "Machines are synchronous; only drivers know asyncio and the clock"


def lint_imports(tree: Path) -> tuple[int, str]:
    """The verdict on the package under `tree`/src, by the contracts of this repository."""
    result = subprocess.run(
        [
            Path(sys.executable).with_name("lint-imports"),
            "--no-logo",
            "--no-cache",
            "--config",
            ROOT / "pyproject.toml",
        ],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "src"), "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return result.returncode, result.stdout + result.stderr


def planted(tree: Path, files: dict[str, str]) -> Path:
    """A copy of the package in `tree`, with more files in it."""
    package = tree / "src" / "rota"
    shutil.copytree(ROOT / "src" / "rota", package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text, encoding="utf-8")
    return tree


def test_imports_follow_the_layers() -> None:
    status, said = lint_imports(ROOT)
    assert status == 0, said
    for contract in (LAYERS, PURE_CORE, MACHINES):
        assert f"{contract} KEPT" in said


@pytest.mark.parametrize(
    ("contract", "files"),
    [
        (LAYERS, {"core/planted.py": "import rota.control.planted", "control/planted.py": ""}),
        (LAYERS, {"control/planted.py": "import rota.stores.planted", "stores/planted.py": ""}),
        (LAYERS, {"homeless.py": ""}),
        (PURE_CORE, {"core/planted.py": "from time import monotonic"}),
        (MACHINES, {"control/planted.py": "import asyncio"}),
        (MACHINES, {"worker/deep/planted.py": "import random", "worker/__init__.py": ""}),
    ],
    ids=["upwards", "sideways", "no layer", "clock in core", "asyncio in a machine", "chance in a machine"],
)
def test_a_planted_import_breaks_its_contract(contract: str, files: dict[str, str], tmp_path: Path) -> None:
    status, said = lint_imports(planted(tmp_path, files))
    assert status != 0
    assert f"{contract} BROKEN" in said, said


@pytest.mark.parametrize("name", ["control/driver.py", "worker/runners/planted.py", "worker/supervisor/planted.py"])
def test_a_driver_and_what_runs_attempts_may_know_asyncio_and_the_clock(name: str, tmp_path: Path) -> None:
    _, said = lint_imports(planted(tmp_path, {name: "import asyncio\nimport time"}))
    assert f"{MACHINES} KEPT" in said, said


def test_what_user_code_imports_knows_nothing_of_ours(tmp_path: Path) -> None:
    text = (ROOT / "src" / "rota" / "running.py").read_text(encoding="utf-8")
    _, said = lint_imports(planted(tmp_path, {"running.py": f"{text}\nimport rota.core.ids\n"}))
    assert f"{LAYERS} BROKEN" in said, said
