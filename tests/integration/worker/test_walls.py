"""The worker's secrets do not reach user code: not its environment, nor its open files, nor what is above it."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rota.core.decide.leases import Offer
from rota.core.errors import Refused
from rota.stores.blobs import open_blobs
from rota.worker.accounts import find_account
from rota.worker.runners.parcels import NotMoved, Parcels
from rota.worker.supervisor.confinement import FORBIDDEN
from tests.integration.worker.snooped import LOOK_UP
from tests.integration.worker.stage import AS_NOBODY, ROOT
from tests.refusals import refused

SECRET = "sesame-9c1f"
NOBODY = "nobody"
IS_ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not IS_ROOT, reason="only root can start workers as somebody else")


def snooped(python: str, folder: Path, run_as: str, kinds: str, who: dict[str, Any] | None = None) -> dict[str, str]:
    """What tasks of a worker with a secret have found."""
    home = folder / "worker"
    home.mkdir(mode=0o700)
    if who is not None:
        os.chown(home, who["user"], who["group"])
    command = [python, "-P", "-m", "tests.integration.worker.snooped", str(home), run_as, kinds]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT}",
            "ROTA_EXECUTOR_TASK_BEARER_TOKEN": SECRET,
        },
        capture_output=True,
        timeout=120,
        check=False,
        **(who or {}),
    )
    assert done.returncode == 0, done.stderr.decode()[-4_000:]
    found = json.loads(done.stdout)
    assert found["command"].count("looking into") >= 3, "two halves of the supervisor, and the worker"
    assert "Permission denied" in found["command"]
    for where, text in found.items():
        assert SECRET not in text, where
    return found


def capabilities(text: str, which: str) -> int:
    (line,) = [line for line in text.splitlines() if line.startswith(which)]
    return int(line.split()[1], 16)


def test_the_search_finds_what_is_not_hidden() -> None:
    """Without walls the same search succeeds, so that it says something if it does not."""
    script = f"import os, subprocess; subprocess.run(['sh', '-c', {LOOK_UP!r}.replace('{{worker}}', str(os.getpid()))])"
    env = {"PATH": os.environ["PATH"], "ROTA_EXECUTOR_TASK_BEARER_TOKEN": SECRET}
    inner = [
        sys.executable,
        "-c",
        f"import os; os.environ.clear(); os.environ['PATH'] = {os.environ['PATH']!r}; {script}",
    ]
    done = subprocess.run(inner, env=env, capture_output=True, check=False, timeout=60)
    assert SECRET in done.stdout.decode(errors="replace")


@needs_root
def test_code_that_is_root_like_the_worker_does_not_find_its_secret(folder: Path) -> None:
    found = snooped(sys.executable, folder, "", "python")
    assert "may not trace" in found["python"]
    assert "could trace" not in found["python"]
    for which in ("CapEff", "CapPrm", "CapBnd", "CapInh"):
        held = capabilities(found["command"], which)
        assert [name for name, number in FORBIDDEN.items() if held >> number & 1] == []
    assert "NoNewPrivs:\t1" in found["command"]
    assert found["large"] == "stored"
    assert found["read"] == "70000"


@needs_root
def test_code_that_runs_as_another_user_does_not_find_the_secret_nor_the_workers_files(
    folder: Path, open_python: str
) -> None:
    found = snooped(open_python, folder, NOBODY, "python")
    assert "Uid:\t65534\t65534\t65534\t65534" in found["command"]
    assert "Groups:\t\n" in found["command"] or "Groups:\t \n" in found["command"]
    assert capabilities(found["command"], "CapPrm") == 0
    assert found["plain"].splitlines() == ["to the device", "/", "/", "65534"]
    assert "Permission denied" in found["folder"]
    assert not (folder / "worker" / "mine").exists()
    assert found["reachable"] == "yes"
    assert (found["large"], found["read"]) == ("stored", "70000"), "large values find their way in and out"
    assert "could trace" not in found["python"]


@needs_root
def test_a_user_who_cannot_reach_the_interpreter_is_refused_and_can_still_run_commands(folder: Path) -> None:
    with contextlib.suppress(PermissionError):
        ended = subprocess.run([sys.executable, "-c", ""], cwd="/", capture_output=True, check=False, **AS_NOBODY)
        assert ended.returncode == 0, ended.stderr
        pytest.skip("everybody can run this interpreter here")
    found = snooped(sys.executable, folder, NOBODY, "command")
    assert found["reachable"].startswith("worker.run_as: user 'nobody' cannot run")
    assert "Permission denied" in found["reachable"]
    assert found["plain"].splitlines()[-1] == "65534"


@needs_root
def test_code_of_a_worker_that_is_not_root_does_not_find_its_secret(folder: Path, open_python: str) -> None:
    found = snooped(open_python, folder, "", "python", AS_NOBODY)
    assert "could trace" not in found["python"]
    assert (found["large"], found["read"]) == ("stored", "70000")


@needs_root
@pytest.mark.parametrize(
    ("user", "reason"),
    [("no-such-user", "has no user"), ("4294967290", "has no user"), ("root", "walls nothing off"), ("0", "walls")],
)
def test_an_account_that_cannot_be_used_is_refused(user: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason) as refused:
        find_account(user)
    assert refused.value.code == "worker.run_as"


def test_only_root_can_run_code_as_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    with refused("worker.run_as", "root", "'nobody'", path="run_as"):
        find_account(NOBODY)


@needs_root
@pytest.mark.parametrize("trick", ["symbolic link", "hard link", "folder"])
def test_a_result_that_is_a_link_to_a_file_of_the_workers_is_not_taken(folder: Path, trick: str) -> None:
    secret = folder / "token"
    secret.write_text(SECRET)

    async def play() -> None:
        blobs = open_blobs(folder / "blobs")
        parcels = Parcels(blobs, folder / "scratch", find_account(NOBODY))
        offer = Offer("acme", "r", 0, "t", 5, 1, "python", b"", b"", 0, 30_000)
        place = Path(parcels.result_file(offer))
        match trick:
            case "symbolic link":
                place.symlink_to(secret)
            case "hard link":
                place.hardlink_to(secret)
            case _:
                place.mkdir()
        with pytest.raises(NotMoved):
            await parcels.publish_file(offer, "plain")
        parcels.close()
        assert not place.exists()
        assert list((folder / "scratch").iterdir()) == []
        assert await blobs.list("acme") == []

    asyncio.run(play())
