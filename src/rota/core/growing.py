"""Growing: what may be added to a living run, by a client, or by a task that goes on as others."""

from msgspec import structs

from rota.core.bounds import (
    GROWN_BYTES_MAX,
    GROWTH_EDGES_MAX,
    GROWTH_TASKS_MAX,
    SETUPS_PER_GRAPH_MAX,
    TASKS_PER_GRAPH_MAX,
)
from rota.core.edges import check_edges
from rota.core.errors import Refused
from rota.core.graph import LiveGraph, check_number, check_spec
from rota.core.model import TaskSpec
from rota.core.records import Growth
from rota.core.trigger import TriggerRule

# Under these, one upstream more that succeeds changes nothing, and one that fails is the end.
FED_RULES = (TriggerRule.ALL_SUCCESS, TriggerRule.NONE_FAILED, TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS)


def check_growth(graph: LiveGraph, growth: Growth) -> None:
    """Refuse an addition that the living graph could not take in."""
    if growth.expands:
        node = graph.index.get(growth.expands)
        if node is None or graph.width[node]:
            raise Refused(
                "graph.width",
                f"task {growth.expands!r} {'does not exist' if node is None else 'has its width already'}",
                "Only a task defined with width 0 can be expanded, and only once.",
                path="expands",
            )
        if growth.specs:
            raise Refused("field.value", "a growth either adds tasks or expands one", "Send two.", path="specs")
        check_number(growth.width, 1, min(GROWTH_TASKS_MAX, TASKS_PER_GRAPH_MAX - graph.total), "width")
        return
    check_number(growth.width, 0, 0, "width")
    check_number(sum(spec.width or 1 for spec in growth.specs), 1, GROWTH_TASKS_MAX, "specs")
    setups = sum(spec.is_setup for spec in (*graph.specs, *growth.specs))
    check_number(setups, 0, SETUPS_PER_GRAPH_MAX, "specs.is_setup")
    check_number(graph.total + sum(spec.width for spec in growth.specs), 1, TASKS_PER_GRAPH_MAX, "specs")
    new = {spec.id: position for position, spec in enumerate(growth.specs)}
    for position, spec in enumerate(growth.specs):
        check_spec(spec, f"specs[{position}]")
        if spec.id in graph.index or new[spec.id] != position:
            raise Refused("graph.duplicate_id", f"task {spec.id!r} exists already", path=f"specs[{position}].id")
    edges = sum(len(spec.upstream) for spec in growth.specs)
    check_number(edges, 0, GROWTH_EDGES_MAX, "specs.upstream")
    check_edges(growth.specs, new, "specs", graph.index)
    grown = {stage: None for stages in graph.fed.values() for stage in stages}
    for position, spec in enumerate(growth.specs):
        if any(graph.index.get(name) in grown for name in spec.upstream):
            text = f"task {spec.id!r} waits for a task that another one went on as"
            hint = "Wait for that one: these go when it is run again."
            raise Refused("graph.unknown_upstream", text, hint, path=f"specs[{position}].upstream")


def check_fed(graph: LiveGraph, node: int, specs: tuple[TaskSpec, ...]) -> None:
    """Refuse tasks as which this one cannot go on. The rest is checked of them like of any growth.

    They are its own: they wait for each other only, and nobody but this task waits for the last of them.
    """
    fed = graph.specs[node]
    if graph.is_group(node) or fed.is_setup or fed.is_teardown or fed.trigger_rule not in FED_RULES:
        text = f"task {fed.id!r} cannot go on as others: it is of a group, a setup or a teardown, or has another rule"
        raise Refused("field.value", text, "Do it all in one task.", path="grows")
    if node in graph.fed:
        raise Refused("field.value", f"task {fed.id!r} has gone on as others already", path="grows")
    check_number(len(specs), 1, GROWTH_TASKS_MAX, "grows")
    check_number(sum(len(spec.work) for spec in specs), 0, GROWN_BYTES_MAX, "grows.work")
    own, awaited = {spec.id: None for spec in specs}, {name: None for spec in specs for name in spec.upstream}
    for position, spec in enumerate(specs):
        path = f"grows[{position}]"
        check_number(spec.width, 1, GROWTH_TASKS_MAX, path, "width")
        if not spec.id.startswith(f"{fed.id}."):
            hint = f"Begin it with {fed.id}, and a dot."
            raise Refused("field.value", f"{spec.id[:100]!r} is not of task {fed.id!r}", hint, path=f"{path}.id")
        is_plain = spec.trigger_rule is TriggerRule.ALL_SUCCESS and not spec.depends_on_past
        if not is_plain or spec.is_setup or spec.is_teardown:
            text = f"task {spec.id[:100]!r} has to be an ordinary one"
            raise Refused("field.value", text, "Leave its rule and its part in setups out.", path=path)
        if any(name not in own for name in spec.upstream):
            text = f"task {spec.id[:100]!r} waits for others than those that {fed.id!r} goes on as"
            raise Refused("graph.unknown_upstream", text, path=f"{path}.upstream")
        if (spec.id in awaited) is (position == len(specs) - 1):
            text = f"of the tasks that {fed.id!r} goes on as, the last one waits for all others, and none waits for it"
            raise Refused("field.value", text, path=path)


def inherited(fed: TaskSpec, specs: tuple[TaskSpec, ...]) -> tuple[TaskSpec, ...]:
    """The same tasks under the limits of the one that goes on as them: they are its work, done side by side."""
    return tuple(
        structs.replace(
            spec,
            requires=spec.requires + tuple(pair for pair in fed.requires if pair[0] not in dict(spec.requires)),
            pools=fed.pools,
            priority=fed.priority,
            timeout_ms=fed.timeout_ms,
        )
        for spec in specs
    )
