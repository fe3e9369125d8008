"""The wheel in an environment that holds nothing else: the quickstart's first sections, and missing extras."""

import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.docs.stories import play
from tests.install.environments import ROOT, build, run

pytestmark = pytest.mark.xdist_group("wheel")

QUICKSTART = ROOT / "docs" / "quickstart.md"
NEEDS_EXTRA = {
    "sql 'select 1'": "query",
    "flight --coordinator grpc://127.0.0.1:1": "query",
    "frontend --coordinator grpc://127.0.0.1:1": "build",
    "mcp --coordinator grpc://127.0.0.1:1": "agent",
    "server --store postgresql://127.0.0.1:1/rota --data {data}": "postgres",
    "server --store etcd://127.0.0.1:1/rota --data {data}": "etcd",
}


def first_sections(page: str, count: int) -> str:
    return "\n## ".join(page.split("\n## ")[: count + 1])


def test_the_first_five_sections_of_the_quickstart_need_no_extra(bare: Path, tmp_path: Path) -> None:
    page = first_sections(QUICKSTART.read_text(encoding="utf-8"), 5)
    assert "## 5." in page
    assert "## 6." not in page
    play(page, tmp_path, programs=bare)


def test_doctor_finds_nothing_wrong_with_a_bare_install(bare: Path, tmp_path: Path) -> None:
    said = run([str(bare / "rota"), "doctor", "--data", str(tmp_path / "data")])
    graded = [line.split()[:2] for line in said.partition("\n\n")[0].splitlines() if line[:1].strip()]
    assert graded[0] == ["ok", "install"]
    assert [what for grade, what in graded if grade == "fail"] == []


def test_the_demo_runs(bare: Path, tmp_path: Path) -> None:
    assert run([str(bare / "rota"), "demo"], folder=tmp_path)


def test_what_needs_an_extra_names_it_with_the_command_that_installs_it(bare: Path, tmp_path: Path) -> None:
    wrong = {}
    for command, extra in NEEDS_EXTRA.items():
        line = ["sh", "-c", f"ROTA_SERVER_BLOBS={tmp_path}/blobs {bare / 'rota'} {command.format(data=tmp_path)}"]
        said = run(line, folder=tmp_path, code=3)
        if f"pip install 'rota[{extra}]'" not in said:
            wrong[command] = said
    assert not wrong


@pytest.mark.parametrize("name", ["Session", "StreamSession"])
def test_a_name_that_needs_an_extra_says_so_when_it_is_used(bare: Path, tmp_path: Path, name: str) -> None:
    said = run([str(bare / "python"), "-c", f"import rota; rota.{name}"], folder=tmp_path, code=1)
    assert "pip install 'rota[query]'" in said.splitlines()[-1]


def test_doctor_names_a_package_that_is_gone(bare: Path, tmp_path: Path) -> None:
    hide = "import sys; from importlib import metadata as m; real = m.version\ndef version(name):\n"
    hide += "    if name == 'apsw': raise m.PackageNotFoundError(name)\n    return real(name)\nm.version = version\n"
    hide += "sys.modules['apsw'] = None\nfrom rota.cli import main; sys.exit(main(['doctor']))"
    said = run([str(bare / "python"), "-c", hide], folder=tmp_path, code=1)
    assert said.startswith("fail  install")
    assert "apsw" in said


def test_a_wheel_of_the_sdist_holds_the_same_files(wheel: Path, tmp_path: Path) -> None:
    sdist = build(tmp_path / "sdist", "sdist")
    with tarfile.open(sdist) as packed:
        # Python 3.11 has the filter from 3.11.4 on, and Debian 12 has 3.11.2.
        packed.extraction_filter = getattr(tarfile, "data_filter", None)
        packed.extractall(tmp_path / "unpacked")  # noqa: S202 - our own archive
    (source,) = (tmp_path / "unpacked").iterdir()
    again = build(tmp_path / "again", "wheel", source)
    assert zipfile.ZipFile(again).namelist() == zipfile.ZipFile(wheel).namelist()
