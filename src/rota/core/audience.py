"""Which sessions could have which work, found without comparing each item with each session.

A set of sessions is an integer: bit n stands for the session of rank n, the oldest first. For every pair that some
demand names there is the set of sessions that advertise it. What a demand needs is the intersection of a few such sets,
and its lowest bit is who comes first. The predicate of the project (`static_reasons`, `total_reasons`) has the last
word on everyone who is chosen, and on whether anyone could be: the sets only leave out whom it would refuse.

An audience is made for one cycle and used up by it.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from rota.core.demand import Demand, Signature, static_reasons, total_reasons
from rota.core.ids import Millis, WorkerKey
from rota.core.live import WaitingClaim
from rota.core.model import Capacity

# Sessions, by rank.
Ranks = int


class Session(Struct, frozen=True, kw_only=True):
    """One live session of a pull worker, as it stands.

    `values` is `property_values(capacity)`; `totals` are the quantities among them, as in `LiveWorker`. It is idle if
    it could begin at once: it is at no prompt, is not stopping and holds fewer leases than it may. `claims` are those
    with which it waits for work.
    """

    key: WorkerKey
    capacity: Capacity
    values: dict[str, tuple[str, ...]]
    created_at: Millis
    idle: bool
    totals: dict[str, int] = {}
    claims: tuple[WaitingClaim, ...] = ()


class Line:
    """The sessions that one demand may choose from, in tiers: those that meet the most preferences come first.

    `asked` are those on which the predicate has spoken; whom it refuses is struck off everywhere.
    """

    __slots__ = ("asked", "demand", "is_servable", "suited", "tiers")

    def __init__(self, demand: Demand, suited: Ranks) -> None:
        self.demand = demand
        self.suited = suited
        self.asked: Ranks = 0
        self.is_servable = False
        self.tiers: list[Ranks] | None = None


class Audience:
    """All live sessions of a cycle. `free` are those that are idle and have no target yet, `waiting` those with a claim
    that waits.
    """

    def __init__(self, sessions: Sequence[Session], demands: Iterable[Demand]) -> None:
        self.ranked = sorted(sessions, key=_seniority)
        self.free: Ranks = 0
        self.waiting: Ranks = 0
        self._ones = {session.key: 1 << rank for rank, session in enumerate(self.ranked)}
        self._by_pair: dict[tuple[str, str], Ranks] = {}
        self._by_terms: dict[tuple[object, ...], Ranks] = {}
        self._welcome: dict[tuple[object, ...], Ranks] = {}
        mentioned: set[tuple[str, str]] = set()
        for demand in demands:
            mentioned.update(demand.exact, demand.soft)
        self._seat(mentioned)

    def line(self, demand: Demand) -> Line:
        """Who may have the work of a demand, one of those that the audience was made for."""
        suited = self._welcomed(demand)
        for pair in demand.exact:
            suited &= self._by_pair.get(pair, 0)
        line = Line(demand, suited)
        line.is_servable = bool(suited) and bool(self.first(suited, line))
        return line

    def first(self, among: Ranks, line: Line) -> Ranks:
        """The oldest of these sessions that the predicate lets have the work, as a set of one; or of none."""
        among &= line.suited
        while among:
            lowest = among & -among
            if line.asked & lowest or self._may_have(line, lowest):
                return lowest
            among ^= lowest
        return 0

    def tiers(self, line: Line) -> list[Ranks]:
        """A line's sessions, the most preferences met first.

        Found when it is first needed, since most lines are looked at only once nobody is free any more.
        """
        if line.tiers is None:
            suited = line.suited & ~self._avoided(line)
            line.tiers = self._by_preference(line.demand, suited) if line.demand.soft else [suited]
        return line.tiers

    def _by_preference(self, demand: Demand, suited: Ranks) -> list[Ranks]:
        """Sessions by how many preferences they meet (`score`), the most first."""
        at_least = [suited] + [0] * len(demand.soft)
        for pair in demand.soft:
            having = self._by_pair.get(pair, 0)
            for points in range(len(demand.soft), 0, -1):
                at_least[points] |= at_least[points - 1] & having
        above = [*at_least[1:], 0]
        return [tier for low, high in zip(at_least, above, strict=True) if (tier := low & ~high)][::-1]

    def claims_of(self, one: Ranks) -> tuple[WaitingClaim, ...]:
        """The claims with which a session waits."""
        return self.ranked[one.bit_length() - 1].claims

    def take(self, one: Ranks) -> WorkerKey:
        """This session has its target for the cycle."""
        assert self.free & one, "a session has at most one target in a cycle"
        self.free ^= one
        return self.ranked[one.bit_length() - 1].key

    def ranks_of(self, keys: Iterable[WorkerKey]) -> Ranks:
        """Sessions by their keys; those that are not here any more are left out."""
        ranks = 0
        for key in keys:
            ranks |= self._ones.get(key, 0)
        return ranks

    def _seat(self, mentioned: set[tuple[str, str]]) -> None:
        """Say for each pair that matters, and for each sort of standing terms, which sessions have it."""
        for session in self.ranked:
            one = self._ones[session.key]
            if session.idle:
                self.free |= one
            if session.claims:
                self.waiting |= one
            for pair in session.capacity.properties:
                if pair in mentioned:
                    self._by_pair[pair] = self._by_pair.get(pair, 0) | one
            terms = _terms(session.capacity)
            self._by_terms[terms] = self._by_terms.get(terms, 0) | one

    def _welcomed(self, demand: Demand) -> Ranks:
        """Whom the predicate would let have work of this queue, tenant and kind that required nothing further."""
        signature = demand.signature
        key = (signature.tenant, signature.queue, signature.kind, demand.pull)
        found = self._welcome.get(key)
        if found is None:
            bare = Demand(Signature(signature.tenant, signature.queue, signature.kind), pull=demand.pull)
            found = 0
            for ranks in self._by_terms.values():
                if not static_reasons(bare, self.ranked[ranks.bit_length() - 1].capacity, {}):
                    found |= ranks
            self._welcome[key] = found
        return found

    def _may_have(self, line: Line, one: Ranks) -> bool:
        line.asked |= one
        session = self.ranked[one.bit_length() - 1]
        refused = static_reasons(line.demand, session.capacity, session.values) or (
            total_reasons(line.demand, session.totals) if line.demand.minimum else ()
        )
        if refused:
            line.suited &= ~one
        return not refused

    def _avoided(self, line: Line) -> Ranks:
        """The session that was interrupted at this very work, while any other could do it."""
        avoid = line.demand.signature.avoid
        one = self.ranks_of((avoid,)) if avoid else 0
        return one if one and self.first(line.suited & ~one, line) else 0


def _seniority(session: Session) -> tuple[Millis, WorkerKey]:
    return (session.created_at, session.key)


def _terms(capacity: Capacity) -> tuple[object, ...]:
    return (capacity.queues, capacity.tenants, capacity.kinds, capacity.pull)
