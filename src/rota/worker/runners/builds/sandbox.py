"""Bubblewrap around actions: no network, nothing to write to but their own folder and an empty /tmp.

What the worker keeps is not even seen. It is asked for (`worker.build_sandbox`), since an action that needs the network
or writes elsewhere works without it and fails with it.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from rota.core.errors import Refused

NONE, BUBBLEWRAP, AUTO = "none", "bubblewrap", "auto"
ENV = "/usr/bin/env"
PROBE_S_MAX = 10
# What bwrap itself says begins like this, and it then ends with this code.
COMPLAINT = b"bwrap: "
FAILED_CODE = 1

# The user may be root, who then is root of nothing but the namespace.
_APART = ("--unshare-user", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--die-with-parent")
# Where a container forbids another /proc, processes outside are seen, though not touched.
_PROCESSES = ("--unshare-pid", "--proc", "/proc")


class Sandbox:
    """How actions are wrapped."""

    def __init__(self, program: str, apart: Sequence[str], hidden: str) -> None:
        self._program = program
        self._apart = tuple(apart)
        self._hidden = hidden

    def wrap(self, argv: Sequence[str], env: Mapping[str, str], root: str, cwd: str) -> list[str]:
        """The command that runs a command in there, with exactly this environment."""
        # Bubblewrap sets this variable, whether or not it is asked to.
        asked = ["--", f"PWD={env['PWD']}"] if "PWD" in env else ["-u", "PWD", "--"]
        return [
            *_walls(self._program, self._apart, self._hidden),
            *("--bind", root, root, "--chdir", cwd, "--", ENV, *asked, *argv),
        ]


def find_sandbox(wish: str, hidden: Path) -> tuple[Sandbox | None, str]:
    """The sandbox that was asked for, if this machine has it, and what to say about it. Refused if there must be one.

    `hidden` is the folder whose content no action sees, except its own.
    """
    if wish == NONE:
        return None, ""
    walled = str(hidden.resolve())
    program = shutil.which("bwrap")
    trouble = "there is no program bwrap on the PATH" if program is None else ""
    if program is not None:
        for apart in ((*_APART, *_PROCESSES), _APART):
            said = _try(_walls(program, apart, walled))
            if said is None:
                return Sandbox(program, apart, walled), f"actions run in {program}"
            trouble = trouble or f"{program} does not work here: {said}"
    if wish == AUTO:
        return None, f"actions run without a sandbox: {trouble}"
    hint = "Install bubblewrap and allow user namespaces, or set build_sandbox to none."
    raise Refused("config.value", f"actions cannot be run in bubblewrap: {trouble}", hint, path="worker.build_sandbox")


def why_not_found(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> str:
    """Why a program cannot be run there; empty if it seems it can. Bubblewrap does not tell this from a failure."""
    name = argv[0]
    if "/" in name:
        path = name if name.startswith("/") else f"{cwd}/{name}"
        found = path if os.access(path, os.X_OK) and not Path(path).is_dir() else None
    else:
        found = shutil.which(name, path=env.get("PATH", os.defpath))
    return "" if found else f"could not run {name!r}: there is no such program"


def _walls(program: str, apart: Sequence[str], hidden: str) -> list[str]:
    return [program, *apart, "--ro-bind", "/", "/", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", hidden]  # noqa: S108 - one of its own


def _try(walls: Sequence[str]) -> str | None:
    """What is said against it, if anything."""
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            [*walls, "--", ENV, "-u", "PWD", "--", "/bin/sh", "-c", "true"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    return done.stderr.decode(errors="replace").strip()[:300] or f"it ended with code {done.returncode}"
