"""Trigger rules: what a task does, given how its upstreams stand.

The thirteen rules of Airflow 3. States are counted, then the counts are judged, so the planner that reads a snapshot
and the engine that keeps countdowns share one judgement. Three promises hold for every rule and are tested:

- a task without upstreams is scheduled;
- once no upstream is active the verdict is not `wait`, so no acyclic graph can hang here;
- a verdict to run, or not to run, is never contradicted by how the remaining upstreams end. Only the *name* of not
  running may still change: under `all_success`, under relevant setups, and of mapped tasks, between `skip` and
  `upstream_failed`.

What counts as what: `cancelled` is a failure. Everything that has not ended is active, `needs_attention` included. A
failed task that will be tried again has not ended; the caller counts it as active.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from rota.core.states import CANCELLED, FAILED, SKIPPED, SUCCESS, UPSTREAM_FAILED, TaskState


class TriggerRule(StrEnum):
    """When a task runs, in terms of its direct upstreams."""

    ALL_SUCCESS = "all_success"
    ALL_FAILED = "all_failed"
    ALL_DONE = "all_done"
    ALL_SKIPPED = "all_skipped"
    ONE_SUCCESS = "one_success"
    ONE_FAILED = "one_failed"
    ONE_DONE = "one_done"
    NONE_FAILED = "none_failed"
    NONE_FAILED_MIN_ONE_SUCCESS = "none_failed_min_one_success"
    NONE_SKIPPED = "none_skipped"
    ALWAYS = "always"
    ALL_DONE_MIN_ONE_SUCCESS = "all_done_min_one_success"
    ALL_DONE_SETUP_SUCCESS = "all_done_setup_success"


class Verdict(StrEnum):
    """What a rule says about a task that has not been scheduled yet."""

    WAIT = "wait"
    SCHEDULE = "schedule"
    SKIP = "skip"
    UPSTREAM_FAILED = "upstream_failed"


class SetupCounts(msgspec.Struct, frozen=True, gc=False):
    """How the setups that matter to a task stand; `failed` includes upstream_failed and cancelled.

    Which setups matter depends on the task. For a teardown (`all_done_setup_success`) they are the setups among its
    direct upstreams, which are counted among the upstreams too. For any other task they are its relevant *indirect*
    setups (`snapshot.relevant_setups`), which are not.
    """

    total: int
    success: int
    failed: int
    skipped: int


_WAIT = Verdict.WAIT
_SCHEDULE = Verdict.SCHEDULE
_SKIP = Verdict.SKIP
_UPSTREAM_FAILED = Verdict.UPSTREAM_FAILED


# One function per rule; the arguments are total, success, failed, skipped, upstream_failed, and total is positive.


def _all_success(total: int, success: int, failed: int, skipped: int, upstream_failed: int) -> Verdict:
    if failed or upstream_failed:
        return _UPSTREAM_FAILED
    if skipped:
        return _SKIP
    return _SCHEDULE if success == total else _WAIT


def _all_failed(total: int, success: int, failed: int, skipped: int, upstream_failed: int) -> Verdict:
    if success or skipped:
        return _SKIP
    return _SCHEDULE if failed + upstream_failed == total else _WAIT


def _all_done(total: int, success: int, failed: int, skipped: int, upstream_failed: int) -> Verdict:
    return _SCHEDULE if success + failed + skipped + upstream_failed == total else _WAIT


def _all_skipped(total: int, success: int, failed: int, skipped: int, upstream_failed: int) -> Verdict:
    if success or failed or upstream_failed:
        return _SKIP
    return _SCHEDULE if skipped == total else _WAIT


def _one_success(total: int, success: int, failed: int, skipped: int, upstream_failed: int) -> Verdict:
    if success:
        return _SCHEDULE
    if failed + skipped + upstream_failed < total:
        return _WAIT
    return _SKIP if skipped == total else _UPSTREAM_FAILED


def _one_failed(total: int, success: int, failed: int, skipped: int, upstream_failed: int) -> Verdict:
    if failed or upstream_failed:
        return _SCHEDULE
    return _SKIP if success + skipped == total else _WAIT


def _one_done(total: int, success: int, failed: int, skipped: int, upstream_failed: int) -> Verdict:
    if success or failed:
        return _SCHEDULE
    return _SKIP if skipped + upstream_failed == total else _WAIT


def _none_failed(total: int, success: int, failed: int, skipped: int, upstream_failed: int) -> Verdict:
    if failed or upstream_failed:
        return _UPSTREAM_FAILED
    return _SCHEDULE if success + skipped == total else _WAIT


def _none_failed_min_one_success(total: int, success: int, failed: int, skipped: int, upstream_failed: int) -> Verdict:
    if failed or upstream_failed:
        return _UPSTREAM_FAILED
    if skipped == total:
        return _SKIP
    return _SCHEDULE if success + skipped == total else _WAIT


def _none_skipped(total: int, success: int, failed: int, skipped: int, upstream_failed: int) -> Verdict:
    if skipped:
        return _SKIP
    return _SCHEDULE if success + failed + upstream_failed == total else _WAIT


def _always(_total: int, _success: int, _failed: int, _skipped: int, _upstream_failed: int) -> Verdict:
    return _SCHEDULE


def _all_done_min_one_success(total: int, success: int, failed: int, skipped: int, upstream_failed: int) -> Verdict:
    if skipped:
        return _SKIP
    if success + failed + upstream_failed < total:
        return _WAIT
    return _SCHEDULE if success else _UPSTREAM_FAILED


_RULES: dict[TriggerRule, Callable[[int, int, int, int, int], Verdict]] = {
    TriggerRule.ALL_SUCCESS: _all_success,
    TriggerRule.ALL_FAILED: _all_failed,
    TriggerRule.ALL_DONE: _all_done,
    TriggerRule.ALL_SKIPPED: _all_skipped,
    TriggerRule.ONE_SUCCESS: _one_success,
    TriggerRule.ONE_FAILED: _one_failed,
    TriggerRule.ONE_DONE: _one_done,
    TriggerRule.NONE_FAILED: _none_failed,
    TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS: _none_failed_min_one_success,
    TriggerRule.NONE_SKIPPED: _none_skipped,
    TriggerRule.ALWAYS: _always,
    TriggerRule.ALL_DONE_MIN_ONE_SUCCESS: _all_done_min_one_success,
    TriggerRule.ALL_DONE_SETUP_SUCCESS: _all_done,  # what is left of it when there is no setup
}


def evaluate_counts(
    rule: TriggerRule,
    total: int,
    success: int,
    failed: int,
    skipped: int,
    upstream_failed: int,
    setups: SetupCounts | None = None,
) -> Verdict:
    """The verdict for a task with `total` upstreams, so many of which ended in each way; the rest are active.

    `cancelled` belongs in `failed`. `setups` is None for a task that no setup concerns, which is the common case.
    """
    if total == 0:
        return _SCHEDULE
    verdict = _RULES[rule](total, success, failed, skipped, upstream_failed)
    if setups is None or setups.total == 0 or rule is TriggerRule.ALWAYS:
        return verdict
    if rule is TriggerRule.ALL_DONE_SETUP_SUCCESS:
        return _judge_teardown(verdict, setups)
    return _judge_under_setups(verdict, setups)


def _judge_teardown(verdict: Verdict, setups: SetupCounts) -> Verdict:
    """A teardown runs after all its upstreams, if at least one setup left something to tear down."""
    if verdict is _WAIT or setups.success:
        return verdict
    return _SKIP if setups.skipped == setups.total else _UPSTREAM_FAILED


def _judge_under_setups(verdict: Verdict, setups: SetupCounts) -> Verdict:
    """A relevant setup that did not succeed outweighs the rule, at once; one still active only holds back a start.

    So an `all_done` task far below a failed setup does not run without its resource.
    """
    if setups.failed:
        return _UPSTREAM_FAILED
    if setups.skipped:
        return _SKIP
    if verdict is _SCHEDULE and setups.success < setups.total:
        return _WAIT
    return verdict


def judge_mapped(verdict: Verdict, total: int, success: int, failed: int, skipped: int) -> Verdict:
    """The verdict for a mapped task, given its rule's and how the tasks stand whose output it is mapped over.

    Without a list there is nothing to run, whatever the rule says: it waits until all of them have ended, and shares
    their fate if none succeeded. `failed` includes upstream_failed and cancelled.
    """
    if success + failed + skipped < total:
        return _WAIT if verdict is _SCHEDULE else verdict
    if success:
        return verdict
    return _UPSTREAM_FAILED if failed or verdict is _UPSTREAM_FAILED else _SKIP


def evaluate_trigger_rule(
    rule: TriggerRule,
    upstream_states: Sequence[TaskState],
    *,
    setup_states: Sequence[TaskState] = (),
    source_states: Sequence[TaskState] = (),
) -> Verdict:
    """The verdict for a task whose direct upstreams stand as given, in any order.

    `setup_states` are the states of the setups that matter to the task, as `SetupCounts` explains, and `source_states`
    those of the upstreams whose output it is mapped over. An upstream that failed and will be tried again must be given
    as `up_for_retry`.
    """
    success, failed, skipped, upstream_failed = _count(upstream_states)
    setups = None
    if setup_states:
        good, bad, missed, blocked = _count(setup_states)
        setups = SetupCounts(total=len(setup_states), success=good, failed=bad + blocked, skipped=missed)
    verdict = evaluate_counts(rule, len(upstream_states), success, failed, skipped, upstream_failed, setups)
    if not source_states:
        return verdict
    good, bad, missed, blocked = _count(source_states)
    return judge_mapped(verdict, len(source_states), good, bad + blocked, missed)


def _count(states: Sequence[TaskState]) -> tuple[int, int, int, int]:
    """How many ended in success, failure (or cancellation), skip and upstream failure."""
    success = failed = skipped = upstream_failed = 0
    for state in states:
        if state == SUCCESS:
            success += 1
        elif state in (FAILED, CANCELLED):
            failed += 1
        elif state == SKIPPED:
            skipped += 1
        elif state == UPSTREAM_FAILED:
            upstream_failed += 1
    return success, failed, skipped, upstream_failed
