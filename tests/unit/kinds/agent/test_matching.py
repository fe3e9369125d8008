"""Agents' words as properties; and that wakes, the predicate and the rule in plain words agree."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.demand import property_values, score, static_reasons
from rota.core.errors import Refused
from rota.core.model import AGENT_PROPERTIES, AGENTS_QUEUE, Capacity, PropertyRule
from rota.kinds.agent import AgentRun, AgentTask, Owner, OwnerKind, Priority, RunSnapshot, SessionSnapshot
from rota.kinds.agent.matching import (
    PRIORITY_WEIGHT,
    agents_queue,
    capacity_of,
    check_capabilities,
    demand_of,
    is_for_sessions,
    requires_of,
)
from tests.effort import examples
from tests.unit.kinds.agent.stage import Stage


def may_have(asked: tuple[tuple[str, str], ...], capacity: Capacity) -> bool:
    return not static_reasons(demand_of(asked), capacity, property_values(capacity))


def test_an_item_asks_for_what_the_table_says() -> None:
    assert requires_of() == (("workspace", "-"),)
    assert requires_of(
        workspace="w",
        channel="c",
        owner=Owner(OwnerKind.POOL, "ada"),
        requires=["write", "review"],
        prefers=["rust"],
    ) == (
        ("workspace", "w"),
        ("channel", "c"),
        ("agent", "ada"),
        ("capability", "review"),
        ("capability", "write"),
        ("prefers", "rust"),
    )
    assert requires_of(owner=Owner(OwnerKind.AGENT_SESSION, "s"))[-1] == ("session", "s")


def test_a_session_offers_what_the_table_says() -> None:
    assert capacity_of("s") == Capacity(
        pull=True, slots=1, queues=("agents",), properties=(("workspace", "-"), ("session", "s"))
    )
    capacity = capacity_of("s", agent="ada", workspace="w", channel="c", capabilities=["b", "a"], slots=3)
    assert (capacity.slots, capacity.properties) == (
        3,
        (
            ("workspace", "w"),
            ("session", "s"),
            ("channel", "c"),
            ("agent", "ada"),
            ("capability", "a"),
            ("prefers", "a"),
            ("capability", "b"),
            ("prefers", "b"),
        ),
    )


def test_the_queue_of_agents_is_claimed_from_and_compares_as_the_table_says() -> None:
    queue = agents_queue("t")
    assert (queue.tenant, queue.name, queue.pull, queue.properties) == ("t", AGENTS_QUEUE, True, AGENT_PROPERTIES)
    assert dict(AGENT_PROPERTIES)["prefers"] is PropertyRule.PRIORITY
    assert demand_of(requires_of(prefers=["x"]), tenant="t").signature.tenant == "t"


def test_preferences_score_and_exclude_nobody() -> None:
    asked = requires_of(prefers=["a", "b"])
    for capabilities, points in (((), 0), (("a",), 1), (("a", "b", "c"), 2)):
        capacity = capacity_of("s", capabilities=capabilities)
        assert may_have(asked, capacity)
        assert score(demand_of(asked), property_values(capacity)) == points


@pytest.mark.parametrize(
    ("names", "code", "where"),
    [
        (["two words"], "field.value", "[0]"),
        (["ok", "a,b"], "field.value", "[1]"),
        ([""], "field.value", "[0]"),
        (["tab\t"], "field.value", "[0]"),
        (["nbsp\u00a0"], "field.value", "[0]"),
        (["a", "b", "a"], "field.value", "[2]"),
        (["x" * 129], "field.size", "[0]"),
        (["é" * 65], "field.size", "[0]"),
        (["\ud800" * 43], "field.size", "[0]"),
    ],
)
def test_what_cannot_be_a_capability_is_refused(names: list[str], code: str, where: str) -> None:
    for check in (
        lambda: check_capabilities(names),
        lambda: capacity_of("s", capabilities=names),
    ):
        with pytest.raises(Refused) as caught:
            check()
        assert (caught.value.code, caught.value.path) == (code, f"capabilities{where}")
    with pytest.raises(Refused) as caught:
        requires_of(prefers=names)
    assert caught.value.path == f"prefers{where}"


def test_capabilities_within_their_limits_are_taken() -> None:
    assert check_capabilities(["x" * 128, "é" * 64, "code.review"]) == ("x" * 128, "é" * 64, "code.review")


def test_the_word_for_no_workspace_is_no_workspace() -> None:
    for make in (lambda: requires_of(workspace="-"), lambda: capacity_of("s", workspace="-")):
        with pytest.raises(Refused) as caught:
            make()
        assert (caught.value.code, caught.value.path) == ("field.value", "workspace")


@pytest.mark.parametrize("kind", OwnerKind)
def test_only_pools_and_sessions_own_what_sessions_claim(kind: OwnerKind) -> None:
    possible = kind in (OwnerKind.POOL, OwnerKind.AGENT_SESSION)
    assert is_for_sessions(Owner(kind, "x")) is possible
    assert not is_for_sessions(Owner(kind, ""))
    if not possible:
        with pytest.raises(Refused) as caught:
            requires_of(owner=Owner(kind, "x"))
        assert caught.value.path == "owner"


def test_priorities_are_in_order() -> None:
    weights = [
        PRIORITY_WEIGHT[priority] for priority in (Priority.LOW, Priority.MEDIUM, Priority.HIGH, Priority.URGENT)
    ]
    assert weights == sorted(set(weights))


# One session, one run: woken, no reasons, and the rule in plain words are the same.

NAMES = st.sampled_from(["", "a", "b"])
CAPABILITIES = st.sets(st.sampled_from(["x", "y", "z"])).map(lambda found: tuple(sorted(found)))
OWNERS = st.sampled_from(
    [
        None,
        *(Owner(OwnerKind.POOL, name) for name in ("a", "b")),
        *(Owner(OwnerKind.AGENT_SESSION, name) for name in ("s", "r")),
        Owner(OwnerKind.HUMAN, "me"),
    ]
)
RUNS = st.builds(
    lambda workspace, owner, channel, required, preferred: RunSnapshot(
        AgentRun(
            id="r", task_id="t", channel=channel, required_capabilities=required, preferred_capabilities=preferred
        ),
        AgentTask(id="t", workspace_id=workspace, owner=owner),
    ),
    NAMES,
    OWNERS,
    NAMES,
    CAPABILITIES,
    CAPABILITIES,
)
SESSIONS = st.builds(
    lambda agent, workspace, channel, capabilities: SessionSnapshot(
        id="s", agent_name=agent, workspace_id=workspace, channel=channel, capabilities=capabilities
    ),
    NAMES,
    NAMES,
    NAMES,
    CAPABILITIES,
)


def in_plain_words(work: RunSnapshot, session: SessionSnapshot) -> bool:
    run, task, owner = work.run, work.task, work.task.owner
    owned = (
        owner is None
        or (owner.kind is OwnerKind.POOL and owner.ref == session.agent_name)
        or (owner.kind is OwnerKind.AGENT_SESSION and owner.ref == session.id)
    )
    return (
        owned
        and task.workspace_id == session.workspace_id
        and run.channel in ("", session.channel)
        and set(run.required_capabilities) <= set(session.capabilities)
    )


@examples(300)
@given(RUNS, SESSIONS)
def test_woken_is_claimable_is_no_reasons(work: RunSnapshot, session: SessionSnapshot) -> None:
    stage = Stage()
    stage.tasks.pending.append(work)
    stage.sessions.live.append(session)
    result = asyncio.run(stage.scheduler.run_once())
    assert bool(stage.woken) == in_plain_words(work, session)
    run, task = work.run, work.task
    if not is_for_sessions(task.owner):
        assert result.unclaimable_runs == 1
        return
    asked = requires_of(
        workspace=task.workspace_id,
        channel=run.channel,
        owner=task.owner,
        requires=run.required_capabilities,
        prefers=run.preferred_capabilities,
    )
    capacity = capacity_of(
        session.id,
        agent=session.agent_name,
        workspace=session.workspace_id,
        channel=session.channel,
        capabilities=session.capabilities,
    )
    assert bool(stage.woken) == may_have(asked, capacity)
    assert result.no_match_runs == (0 if stage.woken else 1)
