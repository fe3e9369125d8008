"""The wheel with each extra alone, as the image has it, and by `uvx`."""

import re
import signal
import subprocess
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.install.environments import DEADLINE_S, ROOT, clean_environment, install_with_uv, run, uv
from tests.servers.ports import free_ports

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("wheel")]

# What each extra is there for, typed in an environment that has no other: the end, and what is printed.
WORKS = {
    "postgres": ("ROTA_SERVER_STORE=postgresql://127.0.0.1:{port}/rota rota doctor", 1, "store.unavailable"),
    "etcd": ("ROTA_SERVER_STORE=etcd://127.0.0.1:{port}/rota rota doctor", 1, "store.unavailable"),
    "query": ("rota sql 'select 6 * 7 as answer, now() as n, now() - now() as d'", 0, "42"),
    "iceberg": ("python -c 'import rota.kinds.query.iceberg, pyiceberg.catalog.sql; print(42)'", 0, "42"),
    "build": ("mkdir d; rota frontend --data d --check", 0, "0 damaged"),
    "agent": ("python -c 'import rota.api.mcp.server; print(42)'", 0, "42"),
}
NOT_FOR_USERS = {"all", "dev", "docs"}


def extras_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
        return set(Parser().parsestr(packed.read(name).decode()).get_all("Provides-Extra") or ())


def test_every_extra_is_tried(wheel: Path) -> None:
    assert extras_of(wheel) - NOT_FOR_USERS == set(WORKS)


@pytest.mark.parametrize("extra", WORKS)
def test_an_extra_alone_brings_what_it_is_for(wheel: Path, tmp_path: Path, extra: str) -> None:
    programs = install_with_uv(tmp_path / "venv", f"{wheel}[{extra}]")
    command, code, printed = WORKS[extra]
    (port,) = free_ports(1)
    line = ["sh", "-c", f"export ROTA_SERVER_BLOBS=d/blobs PATH={programs}:$PATH; {command.format(port=port)}"]
    assert printed in run(line, folder=tmp_path, code=code)
    said = run([str(programs / "rota"), "doctor"], folder=tmp_path)
    (found,) = re.findall(r"extras: (.*); not installed", said)
    assert extra in found.split(", ")


def test_the_image_is_made_of_steps_that_work(wheel: Path, tmp_path: Path) -> None:
    """There is no Docker here: its steps are carried out in an empty environment, and its entry point is started."""
    text = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    (extras,) = re.findall(r'pip install [^\n]*"\$\{wheel\}\[([\w,]+)\]"', text)
    programs = install_with_uv(tmp_path / "venv", f"{wheel}[{extras}]")
    assert "COPY dist/rota-*.whl /tmp/wheels/" in text, "it is made from the wheel"
    (entry,) = re.findall(r'^ENTRYPOINT \["(\w+)"\]$', text, re.MULTILINE)
    (argument,) = re.findall(r'^CMD \["([\w-]+)"\]$', text, re.MULTILINE)
    assert run([str(programs / entry), argument], folder=tmp_path).startswith("usage: rota ")
    serve([str(programs / entry), "up"], tmp_path)


def test_uvx_starts_the_service_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    serve([uv(), "tool", "run", "--offline", "--from", str(wheel), "rota", "up"], tmp_path)


def serve(line: list[str], folder: Path) -> None:
    """A service starts, says where it is, and ends in order."""
    grpc, http = free_ports(2)
    settings = {"ROTA_SERVER_LISTEN": f"127.0.0.1:{grpc}", "ROTA_SERVER_HTTP": f"127.0.0.1:{http}"}
    up = subprocess.Popen(
        [*line, "--data", str(folder / "data")],
        cwd=folder,
        env=clean_environment() | settings,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert up.stderr is not None
    said: list[str] = []
    while not (said and said[-1].startswith("rota: ready: ")):
        said.append(up.stderr.readline())
        assert said[-1], "".join(said)
    up.send_signal(signal.SIGTERM)
    _, rest = up.communicate(timeout=DEADLINE_S)
    assert up.returncode == 0, "".join(said) + rest
