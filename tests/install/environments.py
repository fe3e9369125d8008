"""Empty environments into which the wheel is installed. Nothing is fetched: `scripts/setup test` has put aside what is
needed, for pip in .venv/wheelhouse and for uv in .venv/uv-cache.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.servers.programs import find_program

ROOT = Path(__file__).parents[2]
WHEELHOUSE = Path(sys.prefix) / "wheelhouse"
DEADLINE_S = 180


def build(folder: Path, target: str, source: Path = ROOT) -> Path:
    """The wheel or the sdist of a checkout, or of an unpacked sdist."""
    run([sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)], folder=source)
    (built,) = folder.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return built


def install_with_pip(folder: Path, wheel: Path) -> Path:
    """The programs of an environment that pip made, with the bare wheel."""
    run([sys.executable, "-m", "venv", str(folder)])
    line = ["-m", "pip", "install", "--quiet", "--no-index", "--find-links", str(WHEELHOUSE), str(wheel)]
    run([str(folder / "bin" / "python"), *line])
    return folder / "bin"


def install_with_uv(folder: Path, requirement: str) -> Path:
    """The programs of an environment that uv made, with the wheel and extras."""
    run([uv(), "venv", "--quiet", "--offline", "--python", sys.executable, str(folder)])
    line = [uv(), "pip", "install", "--quiet", "--offline", "--python", str(folder / "bin" / "python"), requirement]
    run(line)
    return folder / "bin"


def uv() -> str:
    return find_program("uv", [Path(sys.executable).with_name("uv")], "scripts/setup test")


def run(line: list[str], *, folder: Path | None = None, code: int = 0) -> str:
    """What a program prints on both channels; it must end with this code."""
    done = subprocess.run(
        line,
        cwd=folder,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == code, f"{line}\n{done.stdout}"
    return done.stdout


def clean_environment() -> dict[str, str]:
    """Variables without those by which a program would find this checkout, or settings of Rota."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ROTA_", "PYTHON", "VIRTUAL_ENV", "COV_", "PYTEST"))
    } | {"PYTHONDONTWRITEBYTECODE": "", "UV_CACHE_DIR": str(Path(sys.prefix) / "uv-cache")}
