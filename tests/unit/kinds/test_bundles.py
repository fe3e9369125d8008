"""Which files go with workflows, and which are refused by their name."""

import os
import re
import socket
from pathlib import Path

import pytest

from rota.core.bounds import BUNDLE_FILES_MAX
from rota.core.errors import Refused
from rota.kinds.workflow.bundles import gather, mentions_rota

WORKFLOW = "import rota\n"


def put(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def names(path: Path) -> list[str]:
    return sorted(file.name for file in gather(path).files)


def refused(path: Path) -> Refused:
    with pytest.raises(Refused) as caught:
        gather(path)
    return caught.value


def test_a_folder_is_taken_whole_without_what_is_nobodys_code(tmp_path: Path):
    put(
        tmp_path,
        {
            "etl.py": WORKFLOW,
            "lib/words.txt": "hello",
            "lib/__pycache__/x.pyc": "",
            "lib/x.pyc": "",
            ".git/config": "",
            ".env": "SECRET=1",
            "node_modules/m/index.js": "",
            "env-of-mine/pyvenv.cfg": "",
            "env-of-mine/lib/thing.py": WORKFLOW,
            "data-of-rota/rota.db": "",
            "data-of-rota/blobs/x": "",
        },
    )
    assert names(tmp_path) == ["etl.py", "lib/words.txt"]
    assert gather(tmp_path).candidates == ("etl.py",)


def test_a_list_of_ignored_files_is_kept_to(tmp_path: Path):
    put(
        tmp_path,
        {
            ".rotaignore": "# large\n*.csv\n\nbuild/\n/docs/old\nnotes\n",
            "etl.py": WORKFLOW,
            "big.csv": "",
            "lib/big.csv": "",
            "build/out.py": "",
            "lib/build": "a file of that name",
            "docs/old/a.md": "",
            "docs/new/a.md": "",
            "lib/notes/n.txt": "",
        },
    )
    assert names(tmp_path) == ["docs/new/a.md", "etl.py", "lib/build"]
    put(tmp_path, {".rotaignore": "*.csv\n!keep.csv\n"})
    found = refused(tmp_path)
    assert found.code == "bundle.file"
    assert "line 2" in found.reason


def test_a_file_brings_the_modules_beside_it_that_it_may_import_and_theirs(tmp_path: Path):
    put(
        tmp_path,
        {
            "etl.py": "import rota\nfrom lib.deep import thing\nimport helper as h\n\ndef f():\n    import late\n",
            "helper.py": "import json\n",
            "late.py": "",
            "lib/__init__.py": "",
            "lib/deep/__init__.py": "from . import side\n",
            "lib/deep/side.py": "from ..other import x\n",
            "lib/deep/thing.py": "",
            "lib/other.py": "",
            "lib/unused.py": "",
            "elsewhere.py": "",
            "data.csv": "",
        },
    )
    assert names(tmp_path / "etl.py") == [
        "etl.py",
        "helper.py",
        "late.py",
        "lib/__init__.py",
        "lib/deep/__init__.py",
        "lib/deep/side.py",
        "lib/deep/thing.py",
        "lib/other.py",
    ]
    assert gather(tmp_path / "etl.py").candidates == ("etl.py",)


@pytest.mark.parametrize(
    ("text", "does"),
    [
        ("import rota", True),
        ("from rota import task", True),
        ("def f():\n    import rota.testing", True),
        ("import rotation", False),
        ("x = 'import rota'", False),
        ("rota = (", True),
        ("other = (", False),
        ("\0rota", True),
    ],
)
def test_only_what_imports_rota_is_looked_at_closer(text: str, does: bool):
    assert mentions_rota(text.encode()) is does


def test_what_is_not_there_or_not_python_is_refused(tmp_path: Path):
    assert refused(tmp_path / "none").code == "field.value"
    put(tmp_path, {"etl.txt": ""})
    found = refused(tmp_path / "etl.txt")
    assert (found.code, "etl.txt " in found.reason, ".py" in found.hint) == ("field.value", True, True)


def test_links_inside_the_folder_are_followed_and_those_out_of_it_refused(tmp_path: Path):
    root = put(tmp_path / "root", {"etl.py": WORKFLOW, "lib/a.py": ""})
    (root / "same.py").symlink_to("lib/a.py")
    assert names(root) == ["etl.py", "lib/a.py", "same.py"]
    secret = put(tmp_path, {"secret": "x"}) / "secret"
    (root / "out.py").symlink_to(secret)
    found = refused(root)
    assert (found.code, str(root / "out.py") in found.reason) == ("bundle.file", True)
    (root / "out.py").unlink()
    (root / "up").symlink_to(tmp_path)
    assert re.search(rf"{root / 'up'} .* {root}, to {tmp_path}\b", refused(root).reason)
    (root / "up").unlink()
    (root / "loop").symlink_to(root)
    assert f"{root / 'loop'} " in refused(root).reason
    (root / "loop").unlink()
    (root / "gone").symlink_to("nowhere")
    assert "cannot be found" in refused(root).reason


def test_what_is_no_plain_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    put(tmp_path, {"etl.py": WORKFLOW})
    os.mkfifo(tmp_path / "pipe")
    assert re.search(r"/pipe .*\bplain file\b", refused(tmp_path).reason)
    (tmp_path / "pipe").unlink()
    # The path of a socket is short.
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("sock")
        assert re.search(r"/sock .*\bplain file\b", refused(tmp_path).reason)


@pytest.mark.parametrize("name", [b"not-\xff-utf8", b"two\nlines", b"back\\slash"])
def test_a_name_that_not_every_machine_can_hold_is_refused(tmp_path: Path, name: bytes):
    put(tmp_path, {"etl.py": WORKFLOW})
    (tmp_path / os.fsdecode(name)).touch()
    assert refused(tmp_path).code == "bundle.bad"


def test_two_gigabytes_are_refused_before_they_are_read(tmp_path: Path):
    put(tmp_path, {"etl.py": WORKFLOW})
    with (tmp_path / "huge.bin").open("wb") as file:
        file.truncate(2 << 30)
    found = refused(tmp_path)
    assert found.code == "bundle.size"
    assert "huge.bin (2,147,483,648 bytes)" in found.reason


@pytest.mark.slow
def test_too_many_files_are_refused(tmp_path: Path):
    put(tmp_path, {"etl.py": WORKFLOW})
    for number in range(BUNDLE_FILES_MAX):
        (tmp_path / f"{number}").touch()
    found = refused(tmp_path)
    assert found.code == "bundle.size"
    assert ".rotaignore" in found.hint


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    put(tmp_path, {"etl.py": WORKFLOW, "closed.py": ""})
    (tmp_path / "closed.py").chmod(0)
    assert re.search(r"/closed\.py .*Permission denied", refused(tmp_path).reason)
