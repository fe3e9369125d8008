"""How hypothesis searches: freely at a desk, repeatably on a build server, at length in `make test-long`, and a little
in `make check`.

And tests of a module that share something slow share a process; a suite that was started in the background can still be
interrupted.
"""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

import rota.wire.channels  # noqa: F401 - before any test imports gRPC: what it is told, it reads once

# The machine may be busy with another test process, so elapsed time is never a verdict.
settings.register_profile("desk", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("desk"), derandomize=True, print_blob=True)
settings.register_profile("quick", settings.get_profile("desk"), max_examples=25)
settings.register_profile("long", settings.get_profile("desk"), max_examples=5_000)

settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "desk"))

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
