"""What several folders of tests need: a service of real processes, and what is open to other users of the machine."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from tests.integration.service.pair import Pair
from tests.integration.service.stage import open_stage
from tests.integration.worker.stage import AS_NOBODY, ROOT

# Long enough for whatever else this machine is busy with: nothing of this is about leases.
LEASE_S = 20


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A `rota server` and a `rota worker`."""
    with open_stage(tmp_path_factory.mktemp("pair"), lease_s=LEASE_S) as stage:
        yield Pair(stage)


@pytest.fixture(params=["embedded", "remote"])
def in_processes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[rota.Rota]:
    """A client, embedded and remote; its tasks run in processes of their own."""
    remote = request.param == "remote"
    with request.getfixturevalue("pair").connect() if remote else rota.Rota.embedded(tmp_path / "data") as one:
        yield one


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
