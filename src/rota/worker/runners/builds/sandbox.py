"""Bubblewrap around actions: the host's programs, the action's own folder, and nothing else.

An action sees `/usr` and little of `/etc`, neither of which it can write to, its folder as `/build`, and an empty home
and `/tmp`. It has no network, sees no process of others, and runs as a user of its own. Since its folder has the same
name on every machine, outputs do not depend on where it was.

Some clients, such as BuildStream, send a whole root file system as the input tree. Such a tree becomes the root.
"""

import glob
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache

from rota.core.errors import Refused
from rota.wire.builds import NONE

# As the other two of `rota.wire.builds`: bubblewrap where it works, and no builds elsewhere.
AUTO = "auto"
# Where an action's folder is inside.
INSIDE = "/build"
ENV = "/usr/bin/env"
PROBE_S_MAX = 10
# What bwrap itself says begins like this, and it then ends with this code.
COMPLAINT = b"bwrap: "
FAILED_CODE = 1

# The user may be root, who then is root of nothing but the namespace.
_APART = ("--unshare-user", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--die-with-parent")
_PROCESSES = ("--unshare-pid", "--proc", "/proc")
# Where a container forbids another /proc, processes outside are seen, though not touched.
_NO_PROCESSES = ("--ro-bind", "/proc", "/proc")
# The user with the least rights, who is in every list of users and owns no files.
_USER = ("--uid", "65534", "--gid", "65534")
_PROGRAMS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# What compilers, linkers and interpreters look at. There are no keys and no passwords among it.
_SETTINGS = (
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/ca-certificates.conf",
    "/etc/fonts",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/java*",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/pki/tls/certs",
    "/etc/profile",
    "/etc/protocols",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
)
_EMPTY = ("/tmp", "/var/tmp", "/home", "/root", "/run")  # noqa: S108 - inside the sandbox


class Sandbox:
    """How actions are wrapped."""

    def __init__(self, program: str, proc: Sequence[str], paths: Sequence[str]) -> None:
        self._program = program
        self._proc = tuple(proc)
        # Everything that does not depend on the action.
        self._walls = _walls(program, self._proc, paths)

    def wrap(self, argv: Sequence[str], env: Mapping[str, str], root: str, cwd: str) -> list[str]:
        """The command that runs a command in there, with exactly this environment; `cwd` is below the root."""
        # Bubblewrap sets this variable, whether or not it is asked to.
        asked = ["--", f"PWD={env['PWD']}"] if "PWD" in env else ["-u", "PWD", "--"]
        bound = ("--bind", root, INSIDE, "--chdir", f"{INSIDE}/{cwd}")
        return [*self._walls, *bound, "--", ENV, *asked, *argv]

    def wrap_root(self, argv: Sequence[str], root: str, cwd: str, uid: int, gid: int) -> list[str]:
        """The command that runs a command in a root file system; `cwd` is below it. `PWD` is always set there."""
        user = ("--uid", str(uid), "--gid", str(gid))
        bound = ("--bind", root, "/", *self._proc, "--dev", "/dev", "--tmpfs", "/tmp", "--chdir", f"/{cwd}")  # noqa: S108 - inside the sandbox
        return [self._program, *_APART, *user, *bound, "--", *argv]

    def works(self) -> bool:
        """Whether it works now: what is said against it may be an action's own words."""
        return self.why_not() is None

    def why_not(self) -> str | None:
        """What is said against it, if anything."""
        try:
            done = subprocess.run(  # noqa: S603 - our own words
                [*self._walls, "--", ENV, "-u", "PWD", "--", "/bin/sh", "-c", "true"],
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


def _walls(program: str, proc: Sequence[str], paths: Sequence[str]) -> list[str]:
    walls = [program, *_APART, *proc, *_USER, "--ro-bind", "/usr", "/usr"]
    for path in _PROGRAMS:
        if os.path.islink(path):
            walls += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            walls += ["--ro-bind", path, path]
    for path in _EMPTY:
        walls += ["--tmpfs", path]
    for pattern in (*_SETTINGS, *paths):
        for path in sorted(glob.glob(pattern)):
            walls += ["--ro-bind-try", path, path]
    return [*walls, "--dev", "/dev"]


def find_sandbox(wish: str, paths: Sequence[str] = ()) -> Sandbox | None:
    """The sandbox that was asked for; None if none was. Refused if it does not work here.

    `paths` are folders of the host that actions see besides.
    """
    if wish == NONE:
        return None
    program = shutil.which("bwrap")
    found = _probe(program, tuple(paths)) if program is not None else "there is no program bwrap on the PATH"
    if isinstance(found, Sandbox):
        return found
    hint = "Install bubblewrap and allow user namespaces, or set worker.build_sandbox to none."
    raise Refused("config.value", f"actions cannot be run in bubblewrap: {found}", hint, path="worker.build_sandbox")


@cache
def _probe(program: str, paths: tuple[str, ...]) -> Sandbox | str:
    """The sandbox that works here, or what is said against the first one. It is tried once, not by every worker."""
    trouble = ""
    for proc in (_PROCESSES, _NO_PROCESSES):
        sandbox = Sandbox(program, proc, paths)
        said = sandbox.why_not()
        if said is None:
            return sandbox
        trouble = trouble or f"{program} does not work here: {said}"
    return trouble
