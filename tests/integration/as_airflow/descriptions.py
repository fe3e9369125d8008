"""Random workflows, described so that Airflow and Rota can each build them. Needs nothing but the standard library.

What the two treat differently on purpose (docs/coming-from/airflow.md has the table) is not drawn: a rule that may fire
before everything above has ended, where a list or a branch is waited for; a mapped task of which only some fail, as a
list to map over; and a teardown whose setups are not named.
"""

import random
from typing import Any

Description = dict[str, Any]
TaskDescription = dict[str, Any]

RULES = (
    "all_success",
    "all_failed",
    "all_done",
    "all_skipped",
    "one_success",
    "one_failed",
    "one_done",
    "none_failed",
    "none_failed_min_one_success",
    "none_skipped",
    "always",
    "all_done_min_one_success",
)
# Those that may fire before everything above has ended.
EARLY_RULES = ("always", "one_done", "one_failed", "one_success")
LATE_RULES = tuple(rule for rule in RULES if rule not in EARLY_RULES)
DECIDING = ("branch", "short", "short_direct")


def outcome(task: TaskDescription, attempt: int, index: int) -> str:
    """What an attempt comes to: ok, fail (may be tried again), fatal or skip."""
    if attempt <= task["fails"] or index in task["failing"]:
        return "fail"
    return "skip" if index in task["skipping"] else task["ends"]


def value(task: TaskDescription, element: Any = None) -> Any:
    """What an attempt returns that is ok."""
    if task["kind"] == "branch":
        return task["chooses"] or None
    if task["kind"] in DECIDING:
        return task["holds"]
    return task["gives"] if task["over"] is None else element


def draw(seed: int) -> Description:
    """A workflow of three to nine tasks."""
    chance = random.Random(seed)
    count = chance.randint(3, 9)
    tasks: list[TaskDescription] = []
    groups = _draw_groups(chance, count)
    for number in range(count):
        tasks.append(_draw_task(chance, f"{groups[number]}t{number}", tasks))
    setups = {task["id"] for task in tasks if task["is_setup"]}
    for task in tasks:
        if task["kind"] == "branch":
            task["chooses"] = _draw_choice(chance, task, tasks)
        if not setups.isdisjoint(above(task, tasks)):
            # Airflow refuses any other rule right after a setup.
            task["rule"] = "all_success"
        # Airflow finds a circle after a group of nothing but setups and teardowns.
        task["up_groups"] = [group for group in task["up_groups"] if _has_work(group, tasks)]
    return {"name": f"seed_{seed}", "tasks": tasks}


def _draw_groups(chance: random.Random, count: int) -> list[str]:
    """For each task the prefix of its group; tasks of a group are next to each other."""
    found: list[str] = []
    while len(found) < count:
        size = chance.randint(1, 3)
        prefix = f"g{len(found)}." if size > 1 and chance.random() < 0.4 else ""
        found += [prefix] * size
    return found[:count]


def _draw_task(chance: random.Random, name: str, before: list[TaskDescription]) -> TaskDescription:
    upstream = chance.sample(before, min(len(before), chance.choice((0, 1, 1, 2, 3))))
    task: TaskDescription = {
        "id": name,
        "kind": "plain",
        "rule": chance.choice(("all_success", *RULES)),
        "retries": chance.choice((0, 0, 0, 1, 2)),
        "fails": 0,
        "failing": [],
        "skipping": [],
        "ends": "ok",
        "gives": list(range(chance.choice((0, 1, 2, 2)))),
        "over": None,
        "up": [each["id"] for each in upstream],
        "up_groups": [],
        "is_setup": False,
        "setups": [],
        "is_teardown": False,
        "counts": False,
        "chooses": [],
        "holds": chance.random() < 0.5,
    }
    _draw_end(chance, task)
    role = chance.random()
    setups = [each["id"] for each in before if each["kind"] == "plain" and not each["over"] and not each["is_teardown"]]
    if role < 0.12:
        task["is_setup"] = True
    elif role < 0.27 and setups:
        task["is_teardown"] = True
        task["setups"] = chance.sample(setups, min(len(setups), chance.choice((1, 1, 2))))
        task["counts"] = chance.random() < 0.5
        for each in before:
            each["is_setup"] = each["is_setup"] or each["id"] in task["setups"]
    elif role < 0.42:
        task["kind"] = chance.choice(DECIDING)
    elif role < 0.75:
        _draw_mapping(chance, task, before)
    if before and not task["is_teardown"] and chance.random() < 0.15:
        group = chance.choice(before)["id"].rpartition(".")[0]
        if group and not name.startswith(f"{group}."):
            task["up_groups"] = [group]
    _late(task, before)
    return task


def _draw_end(chance: random.Random, task: TaskDescription) -> None:
    kind = chance.random()
    if kind < 0.15:
        task["fails"] = chance.randint(1, 3)
    elif kind < 0.3:
        task["ends"] = chance.choice(("skip", "fatal"))


def _draw_mapping(chance: random.Random, task: TaskDescription, before: list[TaskDescription]) -> None:
    """Mapped over a constant list, over what one or two tasks give, or over another mapped task."""
    sources = [each for each in before if each["kind"] == "plain"]
    if not sources or chance.random() < 0.3:
        task["over"] = {"items": list(range(chance.choice((0, 1, 2, 3))))}
    else:
        chosen = chance.sample(sources, min(len(sources), chance.choice((1, 1, 1, 2))))
        task["over"] = {"outputs": [each["id"] for each in chosen]}
        for each in chosen:
            if each["over"] is not None:
                # All or none of them, so that there is one list for both.
                each["fails"], each["failing"], each["skipping"] = min(each["fails"], each["retries"]), [], []
                each["ends"] = "ok" if each["ends"] == "fatal" else each["ends"]
    if chance.random() < 0.4:
        task[chance.choice(("failing", "skipping"))] = [chance.randrange(3)]


def _late(task: TaskDescription, before: list[TaskDescription]) -> None:
    """Give a task a rule that waits for everything, where an early one would race with something."""
    by_id = {each["id"]: each for each in before}
    seen = ancestors(task, before)
    is_decided = any(by_id[name]["kind"] in DECIDING for name in seen)
    is_listed = bool(task["over"]) and "outputs" in task["over"]
    if task["rule"] in EARLY_RULES and (is_decided or is_listed):
        task["rule"] = LATE_RULES[len(seen) % len(LATE_RULES)]


def _has_work(group: str, tasks: list[TaskDescription]) -> bool:
    members = [task for task in tasks if task["id"].rpartition(".")[0] == group]
    return any(not task["is_setup"] and not task["is_teardown"] for task in members)


def above(task: TaskDescription, tasks: list[TaskDescription]) -> list[str]:
    """The tasks right before one; of a group before it, all."""
    found = [*task["up"], *task["setups"], *(task["over"] or {}).get("outputs", ())]
    return found + [each["id"] for each in tasks if each["id"].rpartition(".")[0] in (task["up_groups"] or ["-"])]


def ancestors(task: TaskDescription, tasks: list[TaskDescription]) -> dict[str, None]:
    """The tasks before one, however far."""
    by_id = {each["id"]: each for each in tasks}
    ahead = above(task, tasks)
    seen: dict[str, None] = {}
    while ahead:
        name = ahead.pop()
        if name not in seen:
            seen[name] = None
            ahead += above(by_id[name], tasks)
    return seen


def _draw_choice(chance: random.Random, branch: TaskDescription, tasks: list[TaskDescription]) -> list[str]:
    below = [each["id"] for each in tasks if branch["id"] in each["up"] and not each["is_teardown"]]
    return chance.sample(below, chance.randint(0, len(below)))


def without(described: Description, name: str) -> Description:
    """The same workflow without one of its tasks."""
    left = [dict(task) for task in described["tasks"] if task["id"] != name]
    kept = {task["id"].rpartition(".")[0] for task in left}
    for task in left:
        for field in ("up", "setups", "chooses"):
            task[field] = [each for each in task[field] if each != name]
        task["up_groups"] = [each for each in task["up_groups"] if each in kept]
        task["is_teardown"] = task["is_teardown"] and bool(task["setups"])
        outputs = [each for each in (task["over"] or {}).get("outputs", ()) if each != name]
        if task["over"] is not None and "outputs" in task["over"]:
            task["over"] = {"outputs": outputs} if outputs else None
    return {**described, "tasks": left}
