"""What user code finds in its environment: what was put there on purpose, and nothing of the worker's own."""

import os
from collections.abc import Mapping
from pathlib import Path

from rota.core.decide.leases import Offer
from rota.wire.work import RESERVED_PREFIX

PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR")

_PACKAGE_ROOT = str(Path(__file__).parents[2])


def passed_on(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that every process of ours starts with."""
    env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    if _PACKAGE_ROOT in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        # Then it is how Rota itself is found.
        env["PYTHONPATH"] = _PACKAGE_ROOT
    return {**env, **(more or {})}


def of_command(own: Mapping[str, str], attempt: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The variables of a command beside those of the worker, and the names of `own` that were left out.

    A graph that was not checked where it was written can have any names; those that are Rota's own never reach the
    program.
    """
    dropped = [name for name in own if name.startswith(RESERVED_PREFIX)]
    return {**{name: value for name, value in own.items() if name not in dropped}, **attempt}, dropped


def of_attempt(offer: Offer, code: str = "") -> dict[str, str]:
    """The variables by which code in any language knows its attempt, and the folder of its bundle if it has one."""
    return {
        **({"ROTA_BUNDLE": code} if code else {}),
        "ROTA_TENANT": offer.tenant,
        "ROTA_RUN": offer.run,
        "ROTA_TASK": offer.task_id,
        "ROTA_ATTEMPT": str(offer.attempt),
        "ROTA_FENCE": str(offer.fence),
    }
