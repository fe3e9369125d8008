"""How hypothesis searches: repeatably on a build server; a quarter in `make check` and `make test`, at length in
`make test-long`.

Files that have nothing to run are not imported. Tests of a module that share something slow share a process. A suite
that was started in the background can still be interrupted.
"""

import gc
import os
import re
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import rota.wire.channels  # noqa: F401 - before any test imports gRPC: what it is told, it reads once

IS_CI = bool(os.environ.get("CI"))
# The machine may be busy with another test process, so elapsed time is never a verdict.
settings.register_profile(
    "usual", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=IS_CI, print_blob=IS_CI
)
settings.register_profile("quick", settings.get_profile("usual"), max_examples=25)
settings.register_profile("long", settings.get_profile("usual"), max_examples=5_000, derandomize=False)

settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "usual")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Shells have what they start in the background ignore Ctrl-C, and every program inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have tests of a module in one process if they share a fixture, which every other process would make again."""
    for item in items:
        known = getattr(item, "_fixtureinfo", None)
        shared = known is not None and any(each[-1].scope == "module" for each in known.name2fixturedefs.values())
        if shared and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def pytest_collection_finish() -> None:
    """Keep the garbage collector from walking through all modules and tests again and again: they stay anyway."""
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Have them collected at the end: libraries complain about what is left then."""
    gc.unfreeze()


_ALL_OF = {mark: re.compile(rf"^pytestmark = .*\bmark\.{mark}\b", re.MULTILINE) for mark in ("full", "slow")}
_SOME_FULL = re.compile(r"\bmark\.(?:full|hypothesis)\b|^(?:from|import) hypothesis\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files of which `-m` would leave nothing: importing them takes longer than many of them run."""
    if not collection_path.is_file() or not collection_path.name.startswith("test_"):
        return None
    return True if leaves_out(collection_path, config.getoption("markexpr")) else None


def leaves_out(path: Path, wanted: str) -> bool:
    """Whether nothing of a file has the marks that are wanted, as far as its text and its folder's conftest tell."""
    text = path.read_text(encoding="utf-8")
    if "not full" in wanted:
        return any(f"not {mark}" in wanted and pattern.search(text) for mark, pattern in _ALL_OF.items())
    shared = path.with_name("conftest.py")
    if shared.exists():
        text += shared.read_text(encoding="utf-8")
    return "full" in wanted and _SOME_FULL.search(text) is None
