"""As whom user code runs, if not as the worker's own user."""

import os
import pwd
from pathlib import Path

from msgspec import Struct

from rota.core.errors import Refused


class Account(Struct, frozen=True):
    """A user of this machine; `home` is a folder that it can enter."""

    name: str
    uid: int
    gid: int
    home: str


def find_account(user: str) -> Account:
    """The account of a name or number, to run code as. Only a worker that is root can do that."""
    if os.geteuid() != 0:
        hint = "Start the worker as root, or leave run_as out: code then runs as the worker's own user."
        raise Refused("worker.run_as", f"only root can run code as {user!r}", hint, path="run_as")
    try:
        entry = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
    except (KeyError, OverflowError):
        raise Refused("worker.run_as", f"this machine has no user {user[:80]!r}", path="run_as") from None
    if entry.pw_uid == 0:
        raise Refused("worker.run_as", "running code as root walls nothing off", "Name another user.", path="run_as")
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, _home(entry))


def _home(entry: pwd.struct_passwd) -> str:
    """The user's folder if it is its own, else one that everybody can enter."""
    try:
        is_own = Path(entry.pw_dir).stat().st_uid == entry.pw_uid
    except OSError:
        is_own = False
    return entry.pw_dir if is_own else "/"
