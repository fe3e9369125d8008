"""What Airflow and Rota made of the same workflow, compared task by task.

A difference that is meant has a name, which the table in docs/coming-from/airflow.md has too. What comes after a task
that differs is not compared.
"""

from collections.abc import Callable
from typing import Any

from tests.integration.as_airflow.descriptions import DECIDING, Description, TaskDescription, above, ancestors

Answer = dict[str, Any]

NOT_RUN = {"skipped", "upstream_failed"}
BAD = {"failed", "upstream_failed"}
# Those that may skip a task of which something above failed.
SKIPPING_RULES = {"all_failed", "all_skipped", "none_skipped", "all_done_min_one_success"}


class Pair:
    """A task as both have it, and the states of those around it."""

    def __init__(self, described: Description, task: TaskDescription, there: Answer, here: Answer) -> None:
        self.task = task
        self.by_id: dict[str, TaskDescription] = {each["id"]: each for each in described["tasks"]}
        self._all = described["tasks"]
        self._answers = (there, here)
        self.there, self.here = self.states_of(task["id"])
        self.overtakes = task["id"] in here["overtaking"]

    def states_of(self, name: str) -> tuple[set[str], set[str]]:
        there, here = (set(answer["tasks"].get(name, {}).values()) for answer in self._answers)
        return there, here

    def above(self) -> list[str]:
        """The tasks right before it."""
        return above(self.task, self._all)

    def states_above(self) -> set[str]:
        """Every state, of either, of a task right before it."""
        return {state for name in self.above() for states in self.states_of(name) for state in states}

    def may_be_left_out(self) -> bool:
        """Whether a task above has decided about it."""
        direct = [name for name in self.task["up"] if self.by_id[name]["kind"] in DECIDING]
        far = [name for name in ancestors(self.task, self._all) if self.by_id[name]["kind"] == "short"]
        return any("success" in self.states_of(name)[1] for name in (*direct, *far))

    def is_same(self) -> bool:
        """Whether all its tasks ended alike; one that was never expanded stands for all of them."""
        there, here = (answer["tasks"].get(self.task["id"], {}) for answer in self._answers)
        return there == here or (list(there) == ["-1"] and self.there == self.here)


def _failed_or_skipped_first(pair: Pair) -> bool:
    if pair.there == {"skipped"} and pair.may_be_left_out():
        return False
    direct = pair.states_above()
    is_either = (pair.there | pair.here) == NOT_RUN and pair.task["rule"] == "all_success"
    return is_either and "skipped" in direct and bool(BAD & direct)


def _started_before_a_branch(pair: Pair) -> bool:
    return pair.overtakes and pair.there == {"skipped"}


def _teardown_after_a_branch(pair: Pair) -> bool:
    is_after = any(pair.by_id[name]["kind"] == "branch" for name in pair.task["up"])
    return pair.task["is_teardown"] and is_after and pair.there == {"skipped"}


def _mapped_over_tasks_that_failed(pair: Pair) -> bool:
    sources = [pair.by_id[name] for name in (pair.task["over"] or {}).get("outputs", ())]
    failed = [each for each in sources if each["over"] and pair.states_of(each["id"])[1] & BAD]
    return bool(failed) and pair.there == {"skipped"} and pair.here == {"upstream_failed"}


def _mapped_over_a_failure_that_is_skipped(pair: Pair) -> bool:
    sources = [pair.by_id[name] for name in (pair.task["over"] or {}).get("outputs", ())]
    has_failed = any(not each["over"] and pair.states_of(each["id"])[1] & BAD for each in sources)
    return has_failed and pair.task["rule"] in SKIPPING_RULES and (pair.there | pair.here) == NOT_RUN


def _listed_far_below_a_short_circuit(pair: Pair) -> bool:
    is_listed = "items" in (pair.task["over"] or {})
    return is_listed and pair.may_be_left_out() and pair.there != {"skipped"} and pair.here == {"skipped"}


MEANT: dict[str, Callable[[Pair], bool]] = {
    "a task above failed and another was skipped": _failed_or_skipped_first,
    "a branch decides after a task below it has started": _started_before_a_branch,
    "a teardown right after a branch": _teardown_after_a_branch,
    "mapped over a mapped task whose tasks all failed": _mapped_over_tasks_that_failed,
    "mapped over a task that failed, under a rule that skips it": _mapped_over_a_failure_that_is_skipped,
    "mapped over a constant list, further below a short circuit": _listed_far_below_a_short_circuit,
}


class Compared:
    """What differs in one workflow, what is meant to, and how many tasks were compared."""

    def __init__(self, described: Description, there: Answer, here: Answer) -> None:
        self.unmeant: list[str] = []
        self.meant: list[str] = []
        self.tasks = 0
        if "error" in there:
            self.unmeant.append(f"Airflow does not run it: {there['error']}")
            return
        differing: dict[str, None] = {}
        for task in described["tasks"]:
            if any(name in differing for name in ancestors(task, described["tasks"])):
                differing[task["id"]] = None
                continue
            self.tasks += 1
            pair = Pair(described, task, there, here)
            if not pair.is_same():
                differing[task["id"]] = None
                why = next((name for name, is_meant in MEANT.items() if is_meant(pair)), "")
                told = f"{task['id']}: {there['tasks'].get(task['id'])} there, {here['tasks'].get(task['id'])} here"
                (self.meant if why else self.unmeant).append(why or told)
        if not differing and there["state"] != here["state"]:
            self.unmeant.append(f"the run: {there['state']} there, {here['state']} here")
