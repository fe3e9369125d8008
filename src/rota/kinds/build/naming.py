"""Names of operations. Everything that is needed to find one again is in its name, so it outlives every process."""

import re
import secrets

from msgspec import Struct

from rota.core.ids import Digest

_MARK = "operations"
_RUN = re.compile(r"build-[0-9a-f]{12}-[0-9a-f]{16}")
_NUMBER = re.compile(r"[0-9a-f]{1,16}")
_CACHED = re.compile(r"cached-([0-9a-f]{64})-([0-9]{1,18})")


class OperationName(Struct, frozen=True):
    """One client's wait for one run; of a result that was there already `cached` says which action it was."""

    instance: str
    run: str = ""
    number: str = ""
    cached: Digest | None = None

    def __str__(self) -> str:
        what = f"{self.run}.{self.number}"
        if self.cached is not None:
            what = f"cached-{self.cached.hash}-{self.cached.size}"
        return "/".join(part for part in (self.instance, _MARK, what) if part)


def new_run(action: Digest) -> str:
    """An id for a run of an action; it begins with the action, so that people find it."""
    return f"build-{action.hash[:12]}-{secrets.token_hex(8)}"


def new_name(instance: str, run: str) -> OperationName:
    """A name for one more client's wait for a run."""
    return OperationName(instance, run, secrets.token_hex(4))


def read_name(text: str) -> OperationName | None:
    """What a name says; None if it is no name of ours."""
    head, _, what = text.rpartition("/")
    if head != _MARK and not head.endswith(f"/{_MARK}"):
        return None
    instance = head.removesuffix(_MARK).removesuffix("/")
    if cached := _CACHED.fullmatch(what):
        return OperationName(instance, cached=Digest(cached[1], int(cached[2])))
    run, _, number = what.partition(".")
    if not _RUN.fullmatch(run) or not _NUMBER.fullmatch(number):
        return None
    return OperationName(instance, run, number)
