"""Linearizability: whether what clients saw could have come from one thing that does one operation at a time.

An operation takes effect at one instant between its beginning and its end. One whose outcome nobody knows has no end:
it takes effect at any time after its beginning, or never. The search is that of Wing and Gong, which tries every order
that respects these intervals, with Lowe's memory of (what has been placed, state): no situation is tried twice.
"""

from collections.abc import Hashable, Iterable, Sequence
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct, structs

State = TypeVar("State", bound=Hashable)

# How many situations are looked at before the search gives up; a few seconds' worth.
SITUATIONS_MAX = 2_000_000
SHOWN_MAX = 12


class Op(Struct, frozen=True, kw_only=True):
    """One operation of one client, by the machine's steady clock. Without an end its outcome is not known.

    `about` is the thing it was done to, `does` what was asked with what (`("write", 3)`), `answer` what came back.
    """

    client: str
    about: Hashable = ""
    does: tuple[Hashable, ...]
    answer: Hashable = None
    began_ns: int
    ended_ns: int | None = None

    def __str__(self) -> str:
        until = "…" if self.ended_ns is None else f"{self.ended_ns / 1e6:.3f}"
        said = "nobody knows" if self.ended_ns is None else repr(self.answer)
        what = " ".join(map(str, (self.about, *self.does))).strip()
        return f"{self.began_ns / 1e6:.3f}–{until} ms {self.client}: {what} → {said}"


class Model(Protocol[State]):
    """What does one operation at a time."""

    initial: State

    def step(self, state: State, op: Op) -> State | None:
        """The state after an operation; None if it could not have been answered like that.

        An operation without an end has no answer, so whatever it would have been answered is right.
        """
        ...


class Outcome(StrEnum):
    """What a search found."""

    LINEARIZABLE = "linearizable"
    BROKEN = "broken"
    # Neither an order nor a proof that there is none, within the situations that were looked at.
    UNDECIDED = "undecided"


class Verdict(Struct, frozen=True, kw_only=True):
    """What a search found. `order` is an order that explains everything, or the longest one that was found.

    `stuck` are the operations of which one would have had to come next, and none could.
    """

    outcome: Outcome
    order: tuple[Op, ...] = ()
    stuck: tuple[Op, ...] = ()
    situations: int = 0

    @property
    def is_linearizable(self) -> bool:
        """Whether there is an order that explains everything."""
        return self.outcome is Outcome.LINEARIZABLE

    def __str__(self) -> str:
        lines = [f"{self.outcome}, {self.situations:,} situations"]
        if not self.is_linearizable:
            lines += ["the last that could be placed:", *[f"  {op}" for op in self.order[-SHOWN_MAX:]]]
            lines += ["none of these could be next:", *[f"  {op}" for op in self.stuck[:SHOWN_MAX]]]
        return "\n".join(lines)


class _Node:
    """The beginning or the end of an operation, in a list ordered by time."""

    __slots__ = ("end", "is_end", "next", "number", "previous")

    def __init__(self, number: int, *, is_end: bool) -> None:
        self.number = number
        self.is_end = is_end
        self.end: _Node | None = None
        self.previous: _Node | None = None
        self.next: _Node | None = None

    def unlink(self) -> None:
        if self.previous is not None:
            self.previous.next = self.next
        if self.next is not None:
            self.next.previous = self.previous

    def relink(self) -> None:
        if self.previous is not None:
            self.previous.next = self
        if self.next is not None:
            self.next.previous = self


def _laid_out(ops: Sequence[Op]) -> _Node:
    """The head of a list of beginnings and ends. Of those at one instant beginnings come first: they overlap."""
    marks: list[tuple[int, bool, _Node]] = []
    for number, op in enumerate(ops):
        begin = _Node(number, is_end=False)
        marks.append((op.began_ns, False, begin))
        if op.ended_ns is not None:
            begin.end = _Node(number, is_end=True)
            marks.append((op.ended_ns, True, begin.end))
    marks.sort(key=lambda mark: mark[:2])
    head = last = _Node(-1, is_end=False)
    for _, _, node in marks:
        last.next, node.previous = node, last
        last = node
    return head


class _Search(Generic[State]):
    """One search for an order."""

    def __init__(self, ops: Sequence[Op], model: Model[State], situations_max: int) -> None:
        self.ops = ops
        self.model = model
        self.head = _laid_out(ops)
        self.state = model.initial
        self.placed = 0
        self.to_place = sum(op.ended_ns is not None for op in ops)
        self.path: list[tuple[_Node, State]] = []
        self.seen: set[tuple[int, State]] = set()
        self.situations_max = situations_max
        self.longest: tuple[int, ...] = ()
        self.stuck: tuple[int, ...] = ()

    def run(self) -> Verdict:
        node = self.head.next
        while self.to_place:
            if len(self.seen) > self.situations_max:
                return self._verdict(Outcome.UNDECIDED)
            if node is not None and not node.is_end:
                node = self.head.next if self._place(node) else node.next
                continue
            # An operation has ended that could not be placed before its end (or the list is over): take one back.
            self._remember()
            if not self.path:
                return self._verdict(Outcome.BROKEN)
            node = self._take_back()
        self.longest = self._order()
        return self._verdict(Outcome.LINEARIZABLE)

    def _place(self, node: _Node) -> bool:
        after = self.model.step(self.state, self.ops[node.number])
        if after is None:
            return False
        placed = self.placed | 1 << node.number
        if (placed, after) in self.seen:
            return False
        self.seen.add((placed, after))
        self.path.append((node, self.state))
        self.placed, self.state = placed, after
        node.unlink()
        if node.end is not None:
            node.end.unlink()
            self.to_place -= 1
        return True

    def _take_back(self) -> _Node | None:
        node, self.state = self.path.pop()
        self.placed &= ~(1 << node.number)
        if node.end is not None:
            node.end.relink()
            self.to_place += 1
        node.relink()
        return node.next

    def _remember(self) -> None:
        """How far this got, if it is the farthest yet; and who would have had to be next."""
        if self.stuck and len(self.path) <= len(self.longest):
            return
        self.longest = self._order()
        stuck: list[int] = []
        node = self.head.next
        while node is not None and not node.is_end:
            stuck.append(node.number)
            node = node.next
        self.stuck = tuple(stuck)

    def _order(self) -> tuple[int, ...]:
        return tuple(node.number for node, _ in self.path)

    def _verdict(self, outcome: Outcome) -> Verdict:
        return Verdict(
            outcome=outcome,
            order=tuple(self.ops[number] for number in self.longest),
            stuck=() if outcome is Outcome.LINEARIZABLE else tuple(self.ops[number] for number in self.stuck),
            situations=len(self.seen),
        )


def check(ops: Iterable[Op], model: Model[Any], situations_max: int = SITUATIONS_MAX) -> Verdict:
    """Whether an order explains what was answered. The number of operations may be in the thousands, if few overlap."""
    return _Search(tuple(ops), model, situations_max).run()


def check_each(ops: Iterable[Op], model: Model[Any], situations_max: int = SITUATIONS_MAX) -> dict[Hashable, Verdict]:
    """The same for things that know nothing of each other, each alone: all are linearizable if each one is."""
    parts: dict[Hashable, list[Op]] = {}
    for op in ops:
        parts.setdefault(op.about, []).append(op)
    return {name: check(part, model, situations_max) for name, part in parts.items()}


READ, WRITE, SWAP = "read", "write", "swap"


class Register:
    """Holds one value: `("write", v)`, `("read",)` answered with it, `("swap", old, new)` with whether it did."""

    def __init__(self, initial: Hashable = None) -> None:
        self.initial = (initial,)

    def step(self, state: tuple[Hashable], op: Op) -> tuple[Hashable] | None:
        """See `Model`."""
        is_known = op.ended_ns is not None
        match op.does:
            case ("write", value):
                return (value,)
            case ("read",):
                return state if not is_known or op.answer == state[0] else None
            case ("swap", old, new):
                does = state[0] == old
                if is_known and op.answer is not does:
                    return None
                return (new,) if does else state
            case _:
                raise AssertionError(f"a register does not {op.does}")


def without_idle(ops: Iterable[Op]) -> list[Op]:
    """The same history of a register without what cannot matter: each would double the work of the search.

    Reads of unknown outcome say nothing. A write of unknown outcome whose value nobody ever saw may as well not have
    happened: nothing that was answered depends on it, as long as every value is written once and nobody swaps.
    """
    every = list(ops)
    if any(op.does[0] == SWAP for op in every):
        return [op for op in every if op.ended_ns is not None or op.does[0] != READ]
    seen = {op.answer for op in every if op.does[0] == READ and op.ended_ns is not None}
    return [op for op in every if op.ended_ns is not None or (op.does[0] == WRITE and op.does[1] in seen)]


def with_reads_as_old_as(ops: Iterable[Op], age_ms: int) -> list[Op]:
    """The same history in which a read may tell what was so up to so long before it was asked.

    A leader that was deposed and does not know it yet answers reads from memory until its proof runs out.
    """
    return [structs.replace(op, began_ns=op.began_ns - age_ms * 1_000_000) if op.does[0] == READ else op for op in ops]
