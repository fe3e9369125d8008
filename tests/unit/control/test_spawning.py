"""Whether somebody is started for work that nobody could have: what would fit, how many, how often, after what rest."""

from rota.control.spawning import REST_MS_MAX, Outcome, Spawning, Terms
from rota.core.demand import Demand, Signature, read_demand
from rota.core.model import Capacity, PropertyRule, Queue
from rota.kinds.agent.matching import capacity_of, demand_of, requires_of

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
TERMS = Terms(alive_max=2, cooldown_ms=MINUTE_MS, starts_per_hour=3)


def demand(*capabilities: str, workspace: str = "", prefers: tuple[str, ...] = ()) -> Demand:
    return demand_of(requires_of(workspace=workspace, requires=capabilities, prefers=prefers))


def session(*capabilities: str, workspace: str = "") -> Capacity:
    return capacity_of("", workspace=workspace, capabilities=capabilities)


def spawning(*names: str, terms: Terms = TERMS) -> Spawning:
    return Spawning(dict.fromkeys(names or ("one",), terms))


def test_only_what_could_have_the_work_is_started():
    machine = spawning("painter", "reviewer")
    offers = [("painter", session("paint")), ("reviewer", session("review", "read"))]
    assert machine.choose(demand("review"), offers, 0) == "reviewer"
    assert machine.choose(demand("cook"), offers, 0) is Outcome.UNRESOLVABLE
    assert machine.choose(demand("review", workspace="docs"), offers, 0) is Outcome.UNRESOLVABLE


def test_quantities_are_judged_as_those_of_workers_are():
    queue = Queue(tenant="default", name="gpu", properties=(("gpu_count", PropertyRule.MINIMUM),))
    wanted = read_demand(Signature("default", "gpu", "python", (("gpu_count", "2"),)), queue)
    small, large = (Capacity(slots=1, properties=(("gpu_count", count),)) for count in ("1", "4"))
    machine = spawning("small", "large")
    assert machine.choose(wanted, [("small", small)], 0) is Outcome.UNRESOLVABLE
    assert machine.choose(wanted, [("small", small), ("large", large)], 0) == "large"


def test_an_agent_is_not_started_for_a_task_that_is_assigned():
    wanted = read_demand(Signature("default", "q", "python"), Queue(tenant="default", name="q"))
    assert spawning().choose(wanted, [("one", session())], 0) is Outcome.UNRESOLVABLE


def test_of_several_that_fit_the_one_with_what_is_preferred_is_started_and_else_the_first():
    offers = [("plain", session("review")), ("quick", session("review", "fast"))]
    assert spawning("plain", "quick").choose(demand("review", prefers=("fast",)), offers, 0) == "quick"
    assert spawning("plain", "quick").choose(demand("review"), offers, 0) == "plain"


def test_no_more_live_at_once_than_may():
    machine = spawning(terms=Terms(alive_max=1, cooldown_ms=0, starts_per_hour=9))
    assert machine.choose(demand("a"), [("one", session("a", "b"))], 0) == "one"
    assert machine.choose(demand("b"), [("one", session("a", "b"))], 0) is Outcome.DEFERRED
    machine.ended("one", 5, well=True)
    assert machine.choose(demand("b"), [("one", session("a", "b"))], 5) == "one"


def test_another_start_for_the_same_requirements_waits_for_the_cooldown_and_for_others_it_does_not():
    machine = spawning()
    offers = [("one", session("a", "b"))]
    assert machine.choose(demand("a"), offers, 0) == "one"
    machine.ended("one", 1, well=True)
    assert machine.choose(demand("a"), offers, MINUTE_MS - 1) is Outcome.DEFERRED
    assert machine.choose(demand("b"), offers, MINUTE_MS - 1) == "one"
    machine.ended("one", MINUTE_MS - 1, well=True)
    assert machine.choose(demand("a"), offers, MINUTE_MS) == "one"


def test_requirements_have_a_budget_that_comes_back_with_the_hour():
    machine = spawning()
    offers = [("one", session("a"))]
    for start in range(3):
        assert machine.choose(demand("a"), offers, start * MINUTE_MS) == "one"
        machine.ended("one", start * MINUTE_MS, well=True)
    assert machine.choose(demand("a"), offers, 10 * MINUTE_MS) is Outcome.DEFERRED
    assert machine.choose(demand("a"), offers, HOUR_MS) == "one", "the first start is an hour ago"


def test_a_spawner_whose_children_end_badly_rests_twice_as_long_each_time_and_for_everything():
    machine = spawning(terms=Terms(alive_max=1, cooldown_ms=MINUTE_MS, starts_per_hour=99))
    offers = [("one", session("a", "b", "c"))]
    now = 0
    for name, rest_ms in (("a", 2 * MINUTE_MS), ("b", 4 * MINUTE_MS)):
        assert machine.choose(demand(name), offers, now) == "one"
        machine.ended("one", now, well=False)
        assert machine.choose(demand("c"), offers, now + rest_ms - 1) is Outcome.DEFERRED
        now += rest_ms
    assert machine.choose(demand("c"), offers, now) == "one"
    machine.ended("one", now, well=True)
    assert machine.choose(demand("a"), offers, now) == "one", "one that ended well makes up for it"


def test_no_rest_is_longer_than_ten_minutes():
    machine = spawning(terms=Terms(alive_max=1, cooldown_ms=MINUTE_MS, starts_per_hour=99))
    now = 0
    for _ in range(40):
        assert machine.choose(demand("a"), [("one", session("a"))], now) == "one"
        machine.ended("one", now, well=False)
        now += REST_MS_MAX
