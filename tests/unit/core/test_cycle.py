"""One pass of the mechanical scheduler: who is woken, who waits, who climbs.

The last two tests compare it with the predicate, and with an oracle that looks at every pair.
"""

from typing import cast

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from rota.core.audience import Session
from rota.core.cycle import CycleSettings, LadderStep, Plan, View, Waiting, Wake, cycle, quiet_ms
from rota.core.demand import Demand, Signature, property_values, read_demand, score, static_reasons, total_reasons
from rota.core.ids import RunKey, WorkerKey
from rota.core.ladder import ClimbRule, Starvation, StarvationCause, Thresholds, Tier, climb, rising
from rota.core.live import WaitingClaim
from rota.core.model import CLASS_WEIGHT, Capacity, Pairs, PriorityClass, PropertyRule, Queue
from tests.effort import examples

NOW = 1_000_000_000
T = "t"
QUEUE = Queue(
    tenant=T,
    name="q",
    pull=True,
    properties=(
        ("must", PropertyRule.EXACT),
        ("likes", PropertyRule.PRIORITY),
        ("gb", PropertyRule.MINIMUM),
    ),
)


def demand(*requires: tuple[str, str], tenant: str = T, avoid: str = "") -> Demand:
    """What an item asks; a name without a rule is loose."""
    return read_demand(Signature(tenant, "q", "agent", requires, (), (T, avoid) if avoid else ()), QUEUE)


def item(id: str, *requires: tuple[str, str], waited: int = 0, weight: int = 2, **fields: object) -> Waiting:
    asked = fields.pop("demand", None) or demand(*requires)
    return Waiting(key=(T, id), demand=asked, weight=weight, eligible_since=NOW - waited, **fields)


def session(id: str, *properties: tuple[str, str], created_at: int = 0, idle: bool = True, **fields: object) -> Session:
    claims = cast("tuple[WaitingClaim, ...]", fields.pop("claims", ()))
    capacity = Capacity(pull=True, queues=("q",), properties=properties, **fields)
    values = property_values(capacity)
    totals = {"gb": int(values["gb"][0])} if "gb" in values else {}
    return Session(
        key=(T, id),
        capacity=capacity,
        values=values,
        created_at=created_at,
        idle=idle,
        totals=totals,
        claims=claims,
    )


def run(
    waiting: list[Waiting],
    sessions: list[Session],
    woken: dict[tuple[str, str], int] | None = None,
    *,
    paused: bool = False,
    offered: dict[str, int] | None = None,
    **fields: object,
) -> Plan:
    """A cycle; `woken` and `offered` say how long ago."""
    keys: dict[RunKey, dict[WorkerKey, int]] = {}
    for (i, s), ago in (woken or {}).items():
        keys.setdefault((T, i), {})[T, s] = NOW - ago
    since = {(T, name): NOW - ago for name, ago in (offered or {}).items()}
    settings = CycleSettings(**fields)
    view = View(waiting=waiting, sessions=sessions, woken=keys, offered=since, paused=paused, settings=settings)
    return cycle(view, NOW)


def pairs(plan: Plan) -> list[tuple[str, str]]:
    return [(wake.item[1], wake.session[1]) for wake in plan.wakes]


def ids(keys: tuple[RunKey, ...]) -> list[str]:
    return [id for _, id in keys]


AGE = CycleSettings().starve_ms


def test_items_go_by_weight_then_by_how_long_they_were_eligible_then_by_id() -> None:
    waiting = [item("b"), item("a"), item("old", waited=5), item("urgent", weight=8)]
    sessions = [session(f"s{n}", created_at=n) for n in range(4)]
    assert pairs(run(waiting, sessions)) == [("urgent", "s0"), ("old", "s1"), ("a", "s2"), ("b", "s3")]


def test_sessions_go_by_preferences_met_then_by_age_then_by_id() -> None:
    asked = [item("a", ("likes", "x"), ("likes", "y"))]
    both = session("both", ("likes", "x"), ("likes", "y"), created_at=9)
    one = session("one", ("likes", "y"), created_at=1)
    none = session("none")
    assert pairs(run(asked, [none, one, both])) == [("a", "both")]
    assert pairs(run(asked, [none, one])) == [("a", "one")]
    assert pairs(run(asked, [none])) == [("a", "none")], "a preference never excludes"
    assert pairs(run([item("a")], [session("z"), session("y"), session("x", created_at=1)])) == [("a", "y")]


def test_a_session_has_one_target_and_a_fresh_item_wakes_one_session() -> None:
    plan = run([item("a"), item("b"), item("c")], [session("s"), session("r")])
    assert pairs(plan) == [("a", "r"), ("b", "s")]
    assert (plan.busy, plan.no_match) == (1, ()), "whoever could have the third has another target"


def test_while_paused_nothing_is_decided() -> None:
    assert run([item("a", waited=AGE)], [session("s")], paused=True) == Plan(paused=True)


def test_what_is_not_claimable_is_counted_and_left_alone() -> None:
    plan = run([item("a", claimable=False, waited=AGE), item("b")], [session("s"), session("r")])
    assert (plan.unclaimable, pairs(plan), plan.starved, plan.steps) == (1, [("b", "r")], (), ())


def test_what_no_session_could_claim_is_named_and_climbs_once_it_is_old_enough() -> None:
    young, old = item("young", ("must", "x"), waited=AGE - 1), item("old", ("must", "x"), waited=AGE)
    plan = run([young, old], [session("s", ("must", "y"))])
    assert ids(plan.no_match) == ["old", "young"]
    assert ids(plan.starved) == ["old"]
    row = Starvation(cycles=1, first_at=NOW, last_at=NOW)
    assert [(step.item[1], step.rung.row) for step in plan.steps] == [("old", row)]


def test_busy_is_not_starved_and_never_climbs() -> None:
    row = Starvation(cycles=100, first_at=1, last_at=2)
    waiting = [item("a", ("must", "x"), waited=100 * AGE, starvation=row)]
    plan = run(waiting, [session("busy", ("must", "x"), idle=False), session("other")])
    assert plan == Plan(busy=1)


def test_an_item_climbs_when_idle_sessions_were_told_of_it_and_none_claimed_it_within_the_threshold() -> None:
    waiting = [item("a", waited=100 * AGE)]
    told = {("a", "s"): 1}
    for offered, declined in ((None, False), (AGE - 1, False), (AGE, True)):
        plan = run(waiting, [session("s")], told, offered={} if offered is None else {"a": offered})
        assert (plan.recently_notified, ids(plan.starved), plan.wakes) == (1, ["a"], ())
        climbs = [("a", StarvationCause.DECLINED)] if declined else []
        assert [(step.item[1], step.cause) for step in plan.steps] == climbs
    busy = run(waiting, [session("s", idle=False)], told, offered={"a": AGE})
    assert busy == Plan(busy=1), "its sessions are busy"


def test_by_the_rule_queued_every_claimable_item_climbs_that_is_late_busy_sessions_or_not() -> None:
    waiting = [
        item("busy", ("must", "x"), waited=AGE),
        item("told", ("must", "y"), waited=AGE),
        item("nobody", ("must", "z"), waited=AGE),
        item("declined", waited=100 * AGE),
        item("young", waited=AGE - 1),
        item("paused", waited=AGE, claimable=False),
    ]
    sessions = [session("s", ("must", "x"), idle=False), session("r", ("must", "y"))]
    told = {("told", "r"): 1, ("declined", "r"): 1}
    plan = run(waiting, sessions, told, offered={"declined": AGE}, rule=ClimbRule.QUEUED)
    assert {step.item[1]: step.cause for step in plan.steps} == {
        "busy": StarvationCause.QUEUED,
        "told": StarvationCause.QUEUED,
        "nobody": StarvationCause.UNSERVED,
        "declined": StarvationCause.DECLINED,
    }
    assert ids(plan.starved) == ["declined", "busy", "nobody", "told"]
    unserved = run(waiting, sessions, told, offered={"declined": AGE})
    assert [step.item[1] for step in unserved.steps] == ["declined", "nobody"]


def test_a_session_whose_claim_waits_comes_first_and_has_no_cooldown() -> None:
    claim = WaitingClaim(until=NOW + 1, least=PriorityClass.LOW, where=(), run="")
    senior, asking = session("senior"), session("asking", created_at=9, claims=(claim,))
    told = {("a", "asking"): 1}
    assert pairs(run([item("a", waited=5)], [senior, asking], told)) == [("a", "asking")]
    other = structs.replace(claim, run="b")
    assert pairs(run([item("a"), item("b")], [senior, structs.replace(asking, claims=(other,))])) == [
        ("a", "senior"),
        ("b", "asking"),
    ]
    picky = structs.replace(asking, claims=(structs.replace(claim, where=(("must", "x"),)),))
    assert pairs(run([item("a", waited=5)], [picky], told)) == [], "it waits for something else, and was told of this"
    urgent = structs.replace(asking, claims=(structs.replace(claim, least=PriorityClass.URGENT),))
    assert pairs(run([item("a", weight=1)], [senior, urgent])) == [("a", "senior")]


def test_a_starved_item_fans_out_to_every_session_unless_that_is_capped() -> None:
    sessions = [session(f"s{n}", created_at=n) for n in range(40)]
    assert len(run([item("a", waited=AGE)], sessions).wakes) == 40
    assert len(run([item("a", waited=AGE)], sessions, fan_out_max=2).wakes) == 2
    assert len(run([item("a", waited=AGE)], sessions, fan_out_max=1).wakes) == 1
    assert len(run([item("a", waited=AGE - 1)], sessions).wakes) == 1
    assert len(run([item("a", waited=AGE)], sessions, starve_ms=0).wakes) == 1, "0 turns starvation off"


def test_a_starved_item_takes_more_than_one_session_only_from_those_that_nothing_else_wants() -> None:
    waiting = [item("starved", waited=AGE, weight=8), item("fresh"), item("low", weight=1)]
    sessions = [session(f"s{n}", created_at=n) for n in range(4)]
    plan = run(waiting, sessions)
    assert pairs(plan) == [("starved", "s0"), ("starved", "s3"), ("fresh", "s1"), ("low", "s2")]
    assert pairs(run(waiting, sessions[:2])) == [("starved", "s0"), ("fresh", "s1")]


def test_within_the_cooldown_another_session_is_woken_or_none() -> None:
    sessions = [session("s0"), session("s1", created_at=1)]
    a = item("a", waited=60_000)
    assert pairs(run([a], sessions, {("a", "s0"): 59_999})) == [("a", "s1")]
    assert pairs(run([a], sessions, {("a", "s0"): 60_000})) == [("a", "s0")]
    plan = run([a, item("b")], sessions, {("a", "s0"): 1, ("a", "s1"): 1})
    assert (pairs(plan), plan.recently_notified) == ([("b", "s0")], 1)
    assert pairs(run([a], sessions, {("a", "s0"): 0}, cooldown_ms=0)) == [("a", "s0")]


def test_a_starved_item_wakes_a_session_again_only_when_it_has_waited_twice_as_long() -> None:
    old = item("a", waited=20 * 60_000)
    assert pairs(run([old], [session("s")], {("a", "s"): 10 * 60_000 - 1})) == []
    assert pairs(run([old], [session("s")], {("a", "s"): 10 * 60_000})) == [("a", "s")]
    ancient = item("a", waited=10 * 24 * 3_600_000)
    bounds = CycleSettings()
    assert quiet_ms(ancient, bounds, NOW, late=True) == bounds.backoff_ms_max == bounds.remembered_ms
    assert quiet_ms(ancient, CycleSettings(cooldown_ms=0), NOW, late=True) == 0


def test_a_session_that_was_interrupted_at_the_work_is_woken_only_if_nobody_else_could_do_it() -> None:
    asked = item("a", demand=demand(avoid="s"))
    assert pairs(run([asked], [session("s"), session("r", created_at=9)])) == [("a", "r")]
    plan = run([asked], [session("s"), session("r", idle=False)])
    assert (pairs(plan), plan.busy) == ([], 1)
    assert pairs(run([asked], [session("s"), session("r", ("must", "x"), tenants=("other",))])) == [("a", "s")]


def test_tiers_add_up_and_each_asks_until_it_was_done() -> None:
    bounds = Thresholds(fan_out=1, spawn=2, event=3, park=4)
    row: Starvation | None = None
    asked: list[tuple[Tier, bool, bool, bool]] = []
    for cycle_number in range(1, 6):
        rung = climb(row, cycle_number, bounds)
        asked.append((rung.row.tier, rung.spawn, rung.event, rung.park))
        row = rung.row
    assert asked == [
        (Tier.FAN_OUT, False, False, False),
        (Tier.SPAWN, True, False, False),
        (Tier.EVENT, True, True, False),
        (Tier.PARK, True, True, True),
        (Tier.PARK, True, True, True),
    ]
    assert row == Starvation(cycles=5, tier=Tier.PARK, first_at=1, last_at=5)
    done = climb(Starvation(cycles=9, spawn_requested_at=1, event_at=1), 10, bounds)
    assert (done.spawn, done.event, done.park) == (False, False, True)


def test_thresholds_are_made_to_rise() -> None:
    assert rising(Thresholds(fan_out=5, spawn=3, event=4, park=1)) == Thresholds(fan_out=5, spawn=5, event=5, park=5)
    assert rising(Thresholds(fan_out=0, spawn=-1, event=0, park=0)) == Thresholds()


# The oracle: each item with each session, in the plainest way.


def could_have(asked: Demand, one: Session) -> bool:
    return not static_reasons(asked, one.capacity, one.values) and not total_reasons(asked, one.totals)


def willing(one: Waiting, view: View) -> list[Session]:
    """Who could claim an item, except the one it avoids while there is another; the best first."""
    able = [other for other in view.sessions if could_have(one.demand, other)]
    if any(other.key != one.demand.signature.avoid for other in able):
        able = [other for other in able if other.key != one.demand.signature.avoid]
    return sorted(able, key=lambda other: (-score(one.demand, other.values), other.created_at, other.key))


class Oracle:
    """A cycle by comparing all pairs."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.taken: list[WorkerKey] = []

    def is_asking(self, one: Waiting, other: Session) -> bool:
        return any(
            claim.run in ("", one.key[1])
            and one.weight >= CLASS_WEIGHT[claim.least]
            and all(pair in one.demand.signature.requires for pair in claim.where)
            for claim in other.claims
        )

    def is_declined(self, one: Waiting) -> bool:
        at, bounds = self.view.offered.get(one.key), self.view.settings
        if at is None or NOW - max(at, one.eligible_since) < bounds.starve_ms:
            return False
        return any(other.idle for other in willing(one, self.view))

    def cause(self, one: Waiting, hopeless: list[Waiting]) -> StarvationCause | None:
        if one in hopeless:
            return StarvationCause.UNSERVED
        if self.is_declined(one):
            return StarvationCause.DECLINED
        return StarvationCause.QUEUED if self.view.settings.rule is ClimbRule.QUEUED else None

    def pick(self, one: Waiting, late: bool) -> tuple[WorkerKey | None, bool]:
        cooling = False
        for other in willing(one, self.view):
            if other.idle and other.key not in self.taken and self.is_asking(one, other):
                self.taken.append(other.key)
                return other.key, cooling
        for other in willing(one, self.view):
            if not other.idle or other.key in self.taken:
                continue
            at = self.view.woken.get(one.key, {}).get(other.key)
            if at is not None and NOW - at < quiet_ms(one, self.view.settings, NOW, late=late):
                cooling = True
                continue
            self.taken.append(other.key)
            return other.key, cooling
        return None, cooling

    def plan(self) -> Plan:
        bounds = self.view.settings
        waiting = sorted(
            (one for one in self.view.waiting if one.claimable),
            key=lambda one: (-one.weight, one.eligible_since, one.key),
        )
        late = {one.key: bounds.starve_ms > 0 and NOW - one.eligible_since >= bounds.starve_ms for one in waiting}
        hopeless = [one for one in waiting if not any(could_have(one.demand, other) for other in self.view.sessions)]
        first = {one.key: self.pick(one, late[one.key]) for one in waiting if one not in hopeless}
        wakes: dict[RunKey, list[WorkerKey]] = {key: [got] for key, (got, _) in first.items() if got is not None}
        for one in waiting:
            while late[one.key] and one.key in wakes and len(wakes[one.key]) < (bounds.fan_out_max or 99):
                more, _ = self.pick(one, True)
                if more is None:
                    break
                wakes[one.key].append(more)
        cooling = [key for key, (got, cooled) in first.items() if got is None and cooled]
        busy = [key for key, (got, cooled) in first.items() if got is None and not cooled]
        return Plan(
            wakes=tuple(Wake(one.key, other) for one in waiting for other in wakes.get(one.key, [])),
            no_match=tuple(one.key for one in hopeless),
            starved=tuple(
                one.key
                for one in waiting
                if late[one.key] and (one.key not in busy or self.cause(one, hopeless) is not None)
            ),
            steps=tuple(
                LadderStep(one.key, climb(one.starvation, NOW, bounds.thresholds), cause)
                for one in waiting
                if late[one.key] and (cause := self.cause(one, hopeless)) is not None
            ),
            recently_notified=len(cooling),
            busy=len(busy),
            unclaimable=len(self.view.waiting) - len(waiting),
        )


VALUES = st.sampled_from(["x", "y", "z"])
REQUIRES: st.SearchStrategy[Pairs] = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["must", "likes", "loose"]), VALUES),
        st.tuples(st.just("gb"), st.sampled_from(["1", "2"])),
    ),
    max_size=4,
).map(tuple)


CLAIMS: st.SearchStrategy[tuple[WaitingClaim, ...]] = st.lists(
    st.builds(
        WaitingClaim,
        until=st.just(NOW + 1),
        least=st.sampled_from([PriorityClass.LOW, PriorityClass.NORMAL]),
        where=st.sampled_from([(), (), (("must", "x"),)]),
        run=st.sampled_from(["", "", "i0"]),
    ),
    max_size=2,
).map(tuple)


@st.composite
def views(draw: st.DrawFn) -> View:
    """Few values, so that things meet."""
    names = [f"s{n}" for n in range(draw(st.integers(0, 7)))]
    sessions = [
        session(
            name,
            *draw(REQUIRES),
            created_at=draw(st.integers(0, 2)),
            idle=draw(st.booleans()),
            tenants=draw(st.sampled_from([(), (T,), ("other",)])),
            kinds=draw(st.sampled_from([(), ("agent",), ("build",)])),
            claims=draw(CLAIMS),
        )
        for name in names
    ]
    waiting = [
        item(
            f"i{n}",
            demand=demand(
                *draw(REQUIRES),
                tenant=draw(st.sampled_from([T, T, "u"])),
                avoid=draw(st.sampled_from(["", "s0", "s9"])),
            ),
            waited=draw(st.sampled_from([0, 1, AGE, 10 * AGE])),
            weight=draw(st.integers(1, 3)),
            claimable=draw(st.integers(0, 5)) > 0,
        )
        for n in range(draw(st.integers(0, 9)))
    ]
    woken = {
        one.key: {
            other: NOW - draw(st.sampled_from([0, 59_999, 60_000, 5 * AGE, 1_000_000]))
            for other in [*(other.key for other in sessions), (T, "gone")]
            if draw(st.booleans())
        }
        for one in waiting
        if draw(st.booleans())
    }
    offered = {
        one.key: NOW - draw(st.sampled_from([0, AGE - 1, AGE, 5 * AGE])) for one in waiting if draw(st.booleans())
    }
    bounds = CycleSettings(
        cooldown_ms=draw(st.sampled_from([0, 60_000])),
        fan_out_max=draw(st.integers(0, 3)),
        rule=draw(st.sampled_from(ClimbRule)),
    )
    return View(waiting=waiting, sessions=sessions, woken=woken, offered=offered, settings=bounds)


@examples(300)
@given(views())
def test_the_fast_way_finds_what_comparing_every_pair_finds(view: View) -> None:
    assert cycle(view, NOW) == Oracle(view).plan()


@examples(200)
@given(views())
def test_what_is_starved_is_told_to_every_idle_session_that_is_left_and_could_claim_it(view: View) -> None:
    settings = structs.replace(view.settings, fan_out_max=0, cooldown_ms=0)
    plan = cycle(structs.replace(view, settings=settings), NOW)
    targets = {wake.session for wake in plan.wakes}
    for one in view.waiting:
        if one.claimable and NOW - one.eligible_since >= settings.starve_ms:
            left = [other.key for other in willing(one, view) if other.idle and other.key not in targets]
            assert left == []


@examples(200)
@given(views())
def test_who_is_woken_has_no_reasons_and_what_nobody_is_woken_for_has_some_for_everyone_free(view: View) -> None:
    plan = cycle(view, NOW)
    items = {one.key: one for one in view.waiting}
    sessions = {one.key: one for one in view.sessions}
    for wake in plan.wakes:
        assert could_have(items[wake.item].demand, sessions[wake.session])
        assert sessions[wake.session].idle
    targets = [wake.session for wake in plan.wakes]
    assert len(targets) == len(set(targets)), "one target for a session"
    for key in plan.no_match:
        assert not any(could_have(items[key].demand, one) for one in view.sessions)
    served = {wake.item for wake in plan.wakes}
    if not view.woken:
        for one in view.waiting:
            if one.claimable and one.key not in served:
                left = [other for other in willing(one, view) if other.idle and other.key not in targets]
                assert left == []
