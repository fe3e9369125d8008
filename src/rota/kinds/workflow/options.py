"""What may be said about a task besides what it runs, and what the scheduler makes of it."""

from collections.abc import Mapping
from datetime import timedelta
from difflib import get_close_matches
from math import isfinite
from typing import Any, TypedDict

import msgspec

from rota.core.errors import Refused
from rota.core.model import PoolNeed, RetryPolicy
from rota.core.trigger import TriggerRule
from rota.kinds.workflow.places import RefusedAt, here

Seconds = float | timedelta


class TaskOptions(TypedDict, total=False):
    """The options of a task. Times are in seconds, or timedeltas."""

    # Its name in the workflow; the function's unless told otherwise.
    id: str
    # How often it is tried again after a failure, and after how long.
    retries: int
    retry_delay: Seconds
    # Each delay is so many times the one before, up to `max_retry_delay`.
    backoff: int
    max_retry_delay: Seconds
    # An attempt that takes longer is killed.
    execution_timeout: Seconds
    # When it runs, by how those before it ended: all_success unless told otherwise.
    trigger_rule: str
    # Where it waits, and what its worker must have.
    queue: str
    requires: Mapping[str, str | int]
    # One pool, of which `pool_slots` are taken, or several with what is taken of each.
    pool: str | Mapping[str, int]
    pool_slots: int
    # Within a run, higher is sooner.
    priority: int
    # It waits until the same task has succeeded, or was skipped, in the run before.
    depends_on_past: bool
    # It makes what others need; it takes that down again, however they ended.
    setup: bool
    teardown: bool
    # Whether the failure of a teardown counts for the run.
    on_failure_fail_run: bool
    # A description, for people.
    doc: str


_KNOWN = tuple(TaskOptions.__annotations__)


def check_options(said: Mapping[str, Any]) -> TaskOptions:
    """The options as they were said, if there are such."""
    for name in said:
        if name not in _KNOWN:
            near = get_close_matches(name, _KNOWN, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(_KNOWN)}"
            raise TypeError(f"a task has no option {name!r}; {hint}")
    try:
        return msgspec.convert(dict(said), TaskOptions)
    except msgspec.ValidationError as error:
        raise TypeError(f"an option of a task: {error}") from None


def millis(value: Seconds) -> int:
    """Seconds, or a timedelta, in milliseconds."""
    if isinstance(value, float) and not isfinite(value):
        raise Refused("field.value", f"{value} is no length of time", "Give seconds, or a timedelta.")
    return round(1_000 * (value.total_seconds() if isinstance(value, timedelta) else value))


def spec_fields(options: TaskOptions) -> dict[str, Any]:
    """The fields of a `TaskSpec` that options decide."""
    fields: dict[str, Any] = {}
    if "trigger_rule" in options:
        fields["trigger_rule"] = _rule(options["trigger_rule"])
    if "execution_timeout" in options:
        fields["timeout_ms"] = millis(options["execution_timeout"])
    if "requires" in options:
        fields["requires"] = tuple((name, str(value)) for name, value in options["requires"].items())
    same = ("queue", "priority", "depends_on_past", "on_failure_fail_run")
    fields.update((name, value) for name, value in options.items() if name in same)
    return {**fields, **_retry(options), **_pools(options)}


def _retry(options: TaskOptions) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if "retries" in options:
        if options["retries"] < 0:
            # To the core, fewer than none means something else.
            text = f"a task cannot be tried again {options['retries']} times"
            raise RefusedAt(Refused("field.value", text, "Use 0 for never.", path="retries"), here())
        said["retries"] = options["retries"]
    if "backoff" in options:
        said["multiplier"] = options["backoff"]
    if "retry_delay" in options:
        said["delay_ms"] = millis(options["retry_delay"])
    if "max_retry_delay" in options:
        said["delay_ms_max"] = millis(options["max_retry_delay"])
    elif said.get("delay_ms", 0) > RetryPolicy().delay_ms_max:
        # A first delay that was asked for is not cut to what later ones may grow to.
        said["delay_ms_max"] = said["delay_ms"]
    return {"retry": RetryPolicy(**said)} if said else {}


def _pools(options: TaskOptions) -> dict[str, Any]:
    pool, slots = options.get("pool"), options.get("pool_slots")
    if pool is None or (isinstance(pool, str) and not pool):
        if slots is not None:
            raise TypeError("pool_slots says how much of a pool is taken, and no pool was named: add pool=…")
        return {}
    if isinstance(pool, str):
        return {"pools": (PoolNeed(pool, 1 if slots is None else slots),)}
    if slots is not None:
        raise TypeError("with several pools, pool={'a': 1, 'b': 2} says how much of each; leave pool_slots out")
    return {"pools": tuple(PoolNeed(name, amount) for name, amount in pool.items())}


def _rule(name: str) -> TriggerRule:
    try:
        return TriggerRule(name)
    except ValueError:
        known = ", ".join(TriggerRule)
        raise Refused(
            "field.value", f"{name!r} is no trigger rule", f"Use one of {known}.", path="trigger_rule"
        ) from None
