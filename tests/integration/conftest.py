"""What several folders of tests need: places and programs that are open to other users of the machine."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.worker.stage import AS_NOBODY, ROOT


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder below which others can be given theirs; pytest's own lets nobody in."""
    path = Path(tempfile.mkdtemp(prefix="rota-walls-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def open_python(folder: Path) -> str:
    """An interpreter with Rota that everybody can run; skips where there is none."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if not Path(f"/usr/bin/{version}").exists():
        pytest.skip(f"there is no {version} that everybody can run")
    (folder / "env" / "bin").mkdir(parents=True)
    (folder / "env" / "bin" / "python").symlink_to(f"/usr/bin/{version}")
    (folder / "env" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    packages = folder / "env" / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    installed = next(path for path in sys.path if path.endswith("site-packages"))
    (packages / "rota.pth").write_text(f"{ROOT / 'src'}\n{ROOT}\n{installed}\n")
    python = str(folder / "env" / "bin" / "python")
    probe = [python, "-P", "-c", "import rota.worker.runners.child"]
    done = subprocess.run(probe, cwd="/", capture_output=True, check=False, **AS_NOBODY)
    if done.returncode:
        pytest.skip(f"this repository is not readable for everybody: {done.stderr.decode()[-200:]}")
    return python
