"""Who a worker is, from one life to the next, and that a folder has one at a time."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rota.core.errors import Refused
from rota.worker.identity import NAME_FILE, take_identity
from tests.refusals import refused


def test_a_folder_keeps_its_identity_and_each_life_has_its_own_incarnation(tmp_path: Path) -> None:
    first = take_identity(tmp_path / "deep" / "folder")
    first.free()
    second = take_identity(tmp_path / "deep" / "folder")
    second.free()
    assert first.id == second.id
    assert first.id.startswith(socket.gethostname()[:20])
    assert first.incarnation != second.incarnation
    assert take_identity(tmp_path / "another").id != first.id


def test_a_name_that_is_given_is_the_identity(tmp_path: Path) -> None:
    take_identity(tmp_path, "gpu-box").free()
    take_identity(tmp_path, "gpu-box").free()
    assert take_identity(tmp_path).id == "gpu-box"


def test_a_folder_of_another_name_is_refused(tmp_path: Path) -> None:
    take_identity(tmp_path, "one").free()
    with refused("field.value", str(tmp_path), "'one'", path="name"):
        take_identity(tmp_path, "other")
    take_identity(tmp_path, "one").free()


@pytest.mark.parametrize("name", ["x" * 300, "a\nb"])
def test_a_name_that_is_no_id_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Refused):
        take_identity(tmp_path, name)
    (tmp_path / NAME_FILE).write_text("a\0b\n")
    with pytest.raises(Refused):
        take_identity(tmp_path)


def test_two_processes_cannot_have_one_folder(tmp_path: Path) -> None:
    script = (
        "import signal, sys; from pathlib import Path; from rota.worker.identity import take_identity;"
        "kept = take_identity(Path(sys.argv[1])); print(kept.id, flush=True); signal.pause()"
    )
    other = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        id = other.stdout.readline().decode().strip()
        with pytest.raises(Refused, match=f"process {other.pid}") as refused:
            take_identity(tmp_path)
        assert refused.value.code == "worker.held"
        os.kill(other.pid, signal.SIGKILL)
        other.wait()
        assert take_identity(tmp_path).id == id, "a lock ends with its process"
    finally:
        other.kill()
        other.communicate()


def test_a_place_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match="cannot be used"):
        take_identity(tmp_path / "file")


def test_a_worker_remembers_the_cluster_that_it_joined(tmp_path: Path) -> None:
    first = take_identity(tmp_path)
    assert first.cluster() == ""
    first.join("aaaa-bbbb-cccc")
    first.free()
    second = take_identity(tmp_path)
    assert second.cluster() == "aaaa-bbbb-cccc"
    second.join("dddd-eeee-ffff")
    assert second.cluster_file.read_text() == "dddd-eeee-ffff\n"
    second.cluster_file.unlink()
    assert second.cluster() == ""
    second.free()
