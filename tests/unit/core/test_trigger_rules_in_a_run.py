"""The thirteen trigger rules in a living run: two upstreams come to an end, one after the other, in either order."""

import pytest

from rota.core import commands as cm
from rota.core.model import Graph, TaskSpec
from rota.core.trigger import TriggerRule
from tests.unit.core.test_trigger import CELLS
from tests.unit.core.world import World, graph, task

# What the rule says of two upstreams, whichever comes first; of an upstream that has not ended, A.
TABLE = {(rule, frozenset(pair)): mark for rule, pair, mark in CELLS}
ENDS = {"S": cm.Outcome.SUCCESS, "F": cm.Outcome.FAILED, "K": cm.Outcome.SKIPPED}
BECOMES = {"R": "queued", "W": "none", "K": "skipped", "U": "upstream_failed"}
PAIRS = sorted({pair for _, pair, _ in CELLS} | {pair[::-1] for _, pair, _ in CELLS})


def drawn(pair: str, rule: TriggerRule) -> Graph:
    """Two upstreams and a task behind them; one that is to be upstream_failed has an upstream of its own."""
    tasks: list[TaskSpec] = []
    for name, letter in zip("ab", pair, strict=True):
        if letter == "U":
            tasks += [task(f"above_{name}"), task(name, f"above_{name}")]
        else:
            tasks.append(task(name))
    return graph(*tasks, task("c", "a", "b", trigger_rule=rule))


def expected(rule: TriggerRule, pair: str) -> str:
    """A verdict that does not wait is given at the first end, and the second changes it no more."""
    first = TABLE[rule.value, frozenset(f"{pair[0]}A")]
    return first if first != "W" else TABLE[rule.value, frozenset(pair)]


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("rule", TriggerRule)
def test_a_task_becomes_what_its_rule_says_as_its_upstreams_end(rule: TriggerRule, pair: str) -> None:
    world = World()
    world.worker(slots=2)
    world.submit(drawn(pair, rule))
    if rule is not TriggerRule.ALWAYS:
        assert world.states()["c"] == "none"
    granted = {world.run().graph.task_id(lease.task): lease for lease in world.turn()}
    for name, letter in zip("ab", pair, strict=True):
        if letter == "U":
            world.fail(granted[f"above_{name}"])
        elif letter != "A":
            world.report(granted[name], ENDS[letter])
    assert world.states()["c"] == BECOMES[expected(rule, pair)]
