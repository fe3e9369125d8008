"""Records to store, made from the struct definitions themselves.

Nobody has to remember a new field: every value is made from its declared type, and a type this module has no way to
make is an error that names the field. `filled` makes one record whose fields are all different from their defaults and
from each other, so that a lost column and two swapped columns both show. `changed` and `anything` are hypothesis
strategies: the first keeps no default anywhere, the second also has defaults, empty tuples and None.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st
from msgspec import NODEFAULT, Struct, inspect
from msgspec.structs import astuple, replace

from rota.core.records import Run, key_of
from tests.effort import examples

Field = inspect.Field
T = TypeVar("T")
S = TypeVar("S", bound=Struct)
Image = tuple[object, ...]

# A fifth of the usual: these tests are run once per type or per store, and `long` stays long.
few = examples(20)
_COMPOUND = (Struct, tuple)
# What a signed 64-bit column holds.
INT_MIN, INT_MAX = -(2**63), 2**63 - 1
# NUL and lone surrogates are left out: PostgreSQL's text holds neither, and UTF-8 has no surrogates.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


class Source(Protocol):
    """Where the values of a record come from."""

    def number(self, least: int, most: int) -> int:
        """An integer between two others."""
        ...

    def text(self) -> str:
        """Text that every store can keep."""
        ...

    def raw(self) -> bytes:
        """Bytes."""
        ...

    def fraction(self) -> float:
        """A number that need not be whole."""
        ...

    def one_of(self, options: Sequence[T]) -> T:
        """One of several."""
        ...

    def count(self, least: int) -> int:
        """How many items a tuple has."""
        ...


class Drawn:
    """Values that hypothesis chooses."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def number(self, least: int, most: int) -> int:
        return self.draw(st.integers(least, most))

    def text(self) -> str:
        return self.draw(TEXT)

    def raw(self) -> bytes:
        return self.draw(st.binary(max_size=12))

    def fraction(self) -> float:
        return self.draw(st.floats(allow_nan=False, allow_infinity=False))

    def one_of(self, options: Sequence[T]) -> T:
        return self.draw(st.sampled_from(options))

    def count(self, least: int) -> int:
        return self.draw(st.integers(least, max(least, 2)))


class Counted:
    """Values that never repeat, the same in every run of the tests."""

    def __init__(self, start: int) -> None:
        self.at = start

    def _next(self) -> int:
        self.at += 1
        return self.at

    def number(self, least: int, most: int) -> int:
        return min(most, max(least, 0) + self._next())

    def text(self) -> str:
        return f"é{self._next()}"

    def raw(self) -> bytes:
        return b"\x00\xff%d" % self._next()

    def fraction(self) -> float:
        return self._next() + 0.1

    def one_of(self, options: Sequence[T]) -> T:
        return options[self._next() % len(options)]

    def count(self, least: int) -> int:
        return max(least, 2)


# One walk over a type.


class _Maker:
    """Makes values of declared types; with `changed`, never a field's default."""

    def __init__(self, source: Source, *, changed: bool) -> None:
        self.source = source
        self.changed = changed

    def struct(self, cls: type[S]) -> S:
        values: dict[str, Any] = {}
        for field in fields_of(cls):
            values[field.name] = self.value(field.type, self._unlike(field), f"{cls.__name__}.{field.name}")
        return with_fields(cls(**values))

    def _unlike(self, field: Field) -> object:
        return default_of(field) if self.changed else NODEFAULT

    def value(self, kind: inspect.Type, unlike: object, path: str) -> object:
        made = self._value(kind, unlike, path)
        assert made != unlike or type(made) is not type(unlike), f"{path}: a changed value equals the default"
        return made

    def _value(self, kind: inspect.Type, unlike: object, path: str) -> object:
        source = self.source
        match kind:
            case inspect.BoolType():
                return not unlike if isinstance(unlike, bool) else source.one_of((False, True))
            case inspect.IntType(multiple_of=None):
                least, most = _range(kind)
                number = source.number(least, most)
                return number if number != unlike else number + (1 if number < most else -1)
            case inspect.StrType(min_length=None, max_length=None, pattern=None):
                text = source.text()
                return text if text != unlike else text + "x"
            case inspect.BytesType(min_length=None, max_length=None):
                raw = source.raw()
                return raw if raw != unlike else raw + b"x"
            case inspect.FloatType(ge=None, gt=None, le=None, lt=None, multiple_of=None):
                fraction = source.fraction()
                return fraction if fraction != unlike else fraction + 1.5
            case inspect.EnumType():
                return source.one_of([member for member in kind.cls if member is not unlike])
            case inspect.NoneType():
                return None
            case inspect.UnionType():
                # What may be None is not None in a changed record, whatever its default: a forgotten column is None.
                options = [one for one in kind.types if not (self.changed and isinstance(one, inspect.NoneType))]
                return self.value(source.one_of(options), unlike, path)
            case inspect.StructType():
                return self.struct(kind.cls)
            case inspect.TupleType():
                return tuple(self.value(item, NODEFAULT, path) for item in kind.item_types)
            case inspect.VarTupleType(min_length=None, max_length=None):
                count = source.count(1 if self.changed else 0)
                items = tuple(self.value(kind.item_type, NODEFAULT, path) for _ in range(count))
                return items if items != unlike else items * 2
            case _:
                raise TypeError(f"{path}: no way to make {kind}; teach it to {__name__}")


def _range(kind: inspect.IntType) -> tuple[int, int]:
    least, most = INT_MIN, INT_MAX
    if kind.ge is not None:
        least = kind.ge
    if kind.gt is not None:
        least = kind.gt + 1
    if kind.le is not None:
        most = kind.le
    if kind.lt is not None:
        most = kind.lt - 1
    return least, most


@cache
def fields_of(cls: type[Struct]) -> tuple[Field, ...]:
    """The declared fields of a struct."""
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType), f"{cls.__name__} is not a struct"
    return info.fields


def default_of(field: Field) -> object:
    """A field's default, or NODEFAULT."""
    return field.default_factory() if field.default_factory is not NODEFAULT else field.default


# What the tests ask for.


def with_fields(record: S, **fields: object) -> S:
    """A copy of a record with some fields set; a task inside a run stays that run's."""
    made = replace(record, **fields)
    if isinstance(made, Run) and made.solo is not None:
        # A run's only task is stored in the run's row, which says once whose it is.
        made.solo = replace(made.solo, tenant=made.tenant, run=made.id, idx=0)
    return made


def filled(cls: type[S], start: int = 0, **fields: object) -> S:
    """A record without any default and, among its numbers and texts, without any value twice.

    Another `start`, some hundreds away, gives another record with no value in common.
    """
    return with_fields(_Maker(Counted(start), changed=True).struct(cls), **fields)


def bare(cls: type[S], start: int = 0, **fields: object) -> S:
    """The same with every default kept: what a put must leave behind of a fuller row."""
    source = _Maker(Counted(start), changed=True)
    required = {
        field.name: source.value(field.type, NODEFAULT, field.name) for field in fields_of(cls) if field.required
    }
    return with_fields(cls(**{**required, **fields}))


def changed(cls: type[S]) -> st.SearchStrategy[S]:
    """Records without any default, down to the structs inside them."""
    return _strategy(cls, changed=True)


def anything(cls: type[S]) -> st.SearchStrategy[S]:
    """Records of any values, defaults and None among them."""
    return _strategy(cls, changed=False)


@cache
def _strategy(cls: type[S], *, changed: bool) -> st.SearchStrategy[S]:
    @st.composite
    def make(draw: st.DrawFn) -> S:
        return _Maker(Drawn(draw), changed=changed).struct(cls)

    return make()


@cache
def key_fields(cls: type[Struct]) -> tuple[str, ...]:
    """The fields that make up a record's key after its table, in order: found by looking, not by listing."""
    sample = filled(cls)
    by_value = {getattr(sample, field.name): field.name for field in fields_of(cls) if _is_plain(sample, field.name)}
    return tuple(by_value[value] for value in key_of(sample)[1:])


def _is_plain(record: Struct, name: str) -> bool:
    return type(getattr(record, name)) in (str, int)


def key_values(record: Struct) -> dict[str, object]:
    """The key fields of a record and their values."""
    return {name: getattr(record, name) for name in key_fields(type(record))}


def image(value: object) -> Image:
    """A value with the exact type of each of its parts; that of a struct lists its fields in order.

    Equality is too kind for a store: 1 equals True, "none" equals TaskState.NONE, and a memoryview equals bytes.
    """
    parts = astuple(value) if isinstance(value, Struct) else value if isinstance(value, tuple) else None
    if parts is None:
        return (type(value), value)
    return (type(value), *[image(part) if isinstance(part, _COMPOUND) else (type(part), part) for part in parts])
