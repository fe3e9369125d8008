"""What user code finds in its environment: what was put there on purpose, and nothing of the worker's own."""

import os
from collections.abc import Mapping
from pathlib import Path

from rota.core.decide.leases import Offer

PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR")

_PACKAGE_ROOT = str(Path(__file__).parents[2])


def passed_on(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that every process of ours starts with."""
    env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    if _PACKAGE_ROOT in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        # Then it is how Rota itself is found.
        env["PYTHONPATH"] = _PACKAGE_ROOT
    return {**env, **(more or {})}


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
