"""What is known only when all of a workflow is written down: widths, what a branch may choose, circles."""

from graphlib import CycleError, TopologicalSorter

from msgspec import structs

from rota.core.bounds import GROWTH_TASKS_MAX, NAMES_PER_COMMAND_MAX
from rota.core.errors import Refused
from rota.core.growing import FED_RULES
from rota.core.ids import TaskId
from rota.core.model import Expansion, TaskSpec
from rota.core.trigger import TriggerRule
from rota.kinds.workflow.draft import Draft, Node
from rota.wire.work import Branches, CommandWork, PythonWork, encode_work

# What a task is of which nothing is said.
PLAIN = TaskSpec(id=TaskId("plain"))


def specs_of(draft: Draft) -> tuple[TaskSpec, ...]:
    """The tasks of a workflow as the scheduler knows them."""
    nodes = draft.nodes
    _find_setups(nodes, _check_circles(draft))
    below = _downstream(nodes)
    for node in nodes.values():
        if node.is_mapped:
            _tell_source(node, nodes)
        if node.branching:
            assert isinstance(node.work, PythonWork), "only functions branch"
            node.work = structs.replace(node.work, branches=_branches(node, draft, below))
        if isinstance(node.work, PythonWork) and node.work.may_grow and not _may_grow(node):
            node.work = structs.replace(node.work, may_grow=False)
    return tuple(
        TaskSpec(
            id=TaskId(node.id),
            kind=node.kind,
            work=encode_work(node.work),
            upstream=tuple(map(TaskId, tuple(node.upstream))),
            inputs=tuple(map(TaskId, node.inputs)),
            width=node.width,
            expansion=node.expansion,
            **node.fields,
        )
        for node in nodes.values()
    )


def _may_grow(node: Node) -> bool:
    """Whether a task can go on as others, as the scheduler has it (`rota.core.growing.check_fed`)."""
    fields = node.fields
    rule = fields.get("trigger_rule", TriggerRule.ALL_SUCCESS)
    if fields.get("requires") and fields.get("queue", PLAIN.queue) != PLAIN.queue:
        # What that queue makes of them is not what the queue of the others would.
        return False
    return not node.is_mapped and not fields.get("is_setup") and not fields.get("is_teardown") and rule in FED_RULES


def _find_setups(nodes: dict[str, Node], order: list[str]) -> None:
    """Make each teardown of which nobody said of which setups it is one of those on the way to it.

    As with brackets: a setup that has been taken down on that way belongs to the teardown that did it.
    """
    above = {id: list(node.upstream) for id, node in nodes.items()}
    # Of each teardown, the setups that it takes down.
    ended: dict[str, list[str]] = {}
    for id in order:
        node = nodes[id]
        if not node.fields.get("is_teardown"):
            continue
        if not node.has_setups:
            before = {setup for other in _reach(id, above) for setup in ended.get(other, ())}
            node.upstream.update(dict.fromkeys(_nearest_setups(node, nodes, before)))
        ended[id] = [up for up in node.upstream if nodes[up].fields.get("is_setup")]


def _nearest_setups(node: Node, nodes: dict[str, Node], ended: set[str]) -> list[str]:
    found: list[str] = []
    seen = dict.fromkeys(node.upstream)
    frontier = list(seen)
    for id in frontier:
        if nodes[id].fields.get("is_setup") and id not in ended:
            found.append(id)
            continue
        for up in nodes[id].upstream:
            if up not in seen:
                seen[up] = None
                frontier.append(up)
    return found


def _check_circles(draft: Draft) -> list[str]:
    """An order in which each task comes after those before it."""
    try:
        return list(TopologicalSorter({node.id: node.upstream for node in draft.nodes.values()}).static_order())
    except CycleError as error:
        circle: list[str] = error.args[1]
        # From upstream to downstream, each once.
        names = circle[1:] if circle[0] == circle[-1] else circle
        shown = " >> ".join(f"{name!r} ({draft.nodes[name].place})" for name in names[:10])
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        raise Refused(
            "graph.cycle", f"these tasks wait for each other: {shown}{more}", "Remove one of the edges."
        ) from None


def _tell_source(node: Node, nodes: dict[str, Node]) -> None:
    """Settle how many there are of a mapped task, or have the task that makes the list say so."""
    factor, source = node.factor, node.over
    while source and nodes[source].is_mapped:
        factor, source = factor * nodes[source].factor, nodes[source].over
    if not source or not factor:
        # Width zero would mean that it is not known.
        node.width = max(1, factor)
        node.expansion = Expansion(TaskId(node.over), is_empty=not factor)
        if node.width > GROWTH_TASKS_MAX:
            text = f"task {node.id!r} is mapped over {node.width:,} elements, and {GROWTH_TASKS_MAX:,} are the most"
            raise Refused("graph.width", text, "Give each task a slice of the list.", path=node.place)
        return
    node.width, node.expansion = 0, Expansion(TaskId(node.over))
    work = nodes[source].work
    maps = (node.id, factor)
    if isinstance(work, CommandWork):
        text = f"task {node.id!r} is mapped over {source!r}, which is a command and gives a line of text"
        raise Refused("graph.width", text, "Have a function make a list of it.", path=node.place)
    nodes[source].work = structs.replace(work, maps=(*work.maps, maps))


def _branches(node: Node, draft: Draft, below: dict[str, list[str]]) -> Branches:
    nodes = draft.nodes

    def is_spared(id: str) -> bool:
        # What was set up is taken down, whatever was decided meanwhile.
        return bool(nodes[id].fields.get("is_teardown"))

    direct = [id for id in below[node.id] if not is_spared(id)]
    if node.branching != "branch":
        found = direct if node.branching == "condition_direct" else _reach(node.id, below)
        skipped = tuple(id for id in found if not is_spared(id))
        if len(skipped) > NAMES_PER_COMMAND_MAX:
            text = f"task {node.id!r} decides about {len(skipped):,} tasks, and {NAMES_PER_COMMAND_MAX:,} are the most"
            raise Refused("graph.width", text, "Set ignore_downstream_trigger_rules=False.", path=node.place)
        return Branches(unless=skipped, is_condition=True)
    kept = {id: tuple(other for other in direct if other in reached) for id, reached in _reaches(direct, below)}
    choices = list(kept.items())
    for group in draft.groups.values():
        roots = [root.id for root in group.roots() if root.id in kept] if group.members else []
        if roots:
            choices.append((group.id, tuple(dict.fromkeys(other for root in roots for other in kept[root]))))
    return Branches(tuple(choices), tuple(direct))


def _reaches(starts: list[str], below: dict[str, list[str]]) -> "list[tuple[str, dict[str, None]]]":
    return [(id, {id: None, **dict.fromkeys(_reach(id, below))}) for id in starts]


def _reach(start: str, below: dict[str, list[str]]) -> list[str]:
    """Everything further down, in the order found."""
    found = dict.fromkeys(below[start])
    frontier = list(found)
    for id in frontier:
        for other in below[id]:
            if other not in found:
                found[other] = None
                frontier.append(other)
    return list(found)


def _downstream(nodes: dict[str, Node]) -> dict[str, list[str]]:
    below: dict[str, list[str]] = {id: [] for id in nodes}
    for node in nodes.values():
        for up in node.upstream:
            below[up].append(node.id)
    return below
