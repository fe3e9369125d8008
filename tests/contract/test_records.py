"""The generated records leave nothing out: no type, no field, no part of a field."""

from enum import StrEnum
from typing import Annotated, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct, inspect

from rota.core import records as kept
from rota.core.records import RECORD_NAMES, RECORD_TYPES, Audit, Batch, Record, Run, Story, Task, key_of
from rota.core.states import TaskState
from tests.contract.records import (
    anything,
    bare,
    changed,
    default_of,
    few,
    fields_of,
    filled,
    image,
    key_fields,
    key_values,
    with_fields,
)

STORED = (*RECORD_TYPES, Story, Audit)


class Light(StrEnum):
    """An enumeration of one field added tomorrow."""

    RED = "red"
    GREEN = "green"


class Lamp(Struct, frozen=True):
    """A struct of one field added tomorrow."""

    watts: int = 60


class Tomorrow(Struct):
    """A record as somebody may write it later: every kind of field that records have."""

    tenant: str
    number: int = 7
    positive: Annotated[int, Meta(gt=0, le=9)] = 3
    flag: bool = True
    share: float = 0.5
    text: str = "x"
    raw: bytes = b"x"
    light: Light = Light.RED
    maybe: int | None = None
    surely: int | None = 5
    lamp: Lamp = Lamp()
    lamps: tuple[Lamp, ...] = ()
    pair: tuple[str, Light] = ("a", Light.RED)


class Unheard(Struct):
    """A record with a field of a kind that nothing here can make."""

    weights: dict[str, float]


def defaults_kept(value: object, path: str) -> list[str]:
    """The paths below `path` that equal their default, are empty or are None."""
    if value is None or value == ():
        return [path]
    if isinstance(value, tuple):
        return [found for item in value for found in defaults_kept(item, path)]
    if not isinstance(value, Struct):
        return []
    found: list[str] = []
    for field in fields_of(type(value)):
        got, here = getattr(value, field.name), f"{path}.{field.name}"
        found += [here] if image(got) == image(default_of(field)) else defaults_kept(got, here)
    return found


def leaves(value: object) -> list[object]:
    """Every number, text and byte string inside a value."""
    if isinstance(value, Struct):
        return [leaf for field in fields_of(type(value)) for leaf in leaves(getattr(value, field.name))]
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in leaves(item)]
    return [value] if type(value) in (int, float, str, bytes) else []


def parts_of(kind: inspect.Type) -> list[type[Struct]]:
    """The structs that a type is made of."""
    match kind:
        case inspect.StructType():
            return [kind.cls, *[part for field in kind.fields for part in parts_of(field.type)]]
        case inspect.UnionType():
            return [part for option in kind.types for part in parts_of(option)]
        case inspect.TupleType():
            return [part for item in kind.item_types for part in parts_of(item)]
        case inspect.VarTupleType():
            return parts_of(kind.item_type)
        case _:
            return []


def test_every_type_that_a_batch_may_put_is_generated() -> None:
    assert set(get_args(Record)) == set(RECORD_TYPES), "Record and RECORD_TYPES list different types"
    assert {key_of(filled(cls))[0] for cls in RECORD_TYPES} == {*RECORD_NAMES.values()}


def test_every_struct_of_the_records_module_is_stored_or_part_of_what_is() -> None:
    declared = {one for one in vars(kept).values() if isinstance(one, type) and issubclass(one, Struct)}
    reached = {part for cls in STORED for part in parts_of(inspect.type_info(cls))}
    assert declared - reached - {Struct, Batch} == set(), "declared, but in no record: RECORD_TYPES forgot it"


@pytest.mark.parametrize("cls", STORED)
def test_no_field_of_a_filled_record_keeps_its_default(cls: type[Struct]) -> None:
    assert defaults_kept(filled(cls), cls.__name__) == []


@pytest.mark.parametrize("cls", STORED)
@few
@given(st.data())
def test_no_field_of_a_changed_record_keeps_its_default(cls: type[Struct], data: st.DataObject) -> None:
    assert defaults_kept(data.draw(changed(cls)), cls.__name__) == []


@pytest.mark.parametrize("cls", RECORD_TYPES)
def test_a_bare_record_keeps_every_default(cls: type[Struct]) -> None:
    record = bare(cls)
    for field in fields_of(cls):
        assert field.required or image(getattr(record, field.name)) == image(default_of(field)), field.name


@pytest.mark.parametrize("cls", STORED)
def test_no_value_of_a_filled_record_is_there_twice(cls: type[Struct]) -> None:
    record = filled(cls)
    if isinstance(record, Run):
        assert record.solo is not None, "a filled run has its task inside"
        assert (record.solo.tenant, record.solo.run, record.solo.idx) == (record.tenant, record.id, 0)
        record.solo = filled(Task, start=500)
    assert len(set(leaves(record))) == len(leaves(record)), "two swapped columns would not show"


@pytest.mark.parametrize("cls", STORED)
@few
@given(st.data())
def test_generated_records_are_what_their_types_say(cls: type[Struct], data: st.DataObject) -> None:
    record = data.draw(changed(cls) | anything(cls))
    assert image(msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=cls)) == image(record)


@pytest.mark.parametrize("cls", RECORD_TYPES)
def test_a_record_can_be_given_another_key(cls: type[Struct]) -> None:
    other = filled(cls, start=500)
    record = with_fields(filled(cls), **key_values(other))
    assert key_of(record) == key_of(other) != key_of(filled(cls))
    assert key_fields(cls)[0] == "tenant", "the tenant is the first part of every key"


def test_a_field_added_tomorrow_is_generated_without_being_listed() -> None:
    first, second = filled(Tomorrow), filled(Tomorrow, start=500)
    assert defaults_kept(first, "") == defaults_kept(second, "") == []
    assert first.lamps[0].watts != second.lamps[0].watts
    assert 0 < first.positive <= 9


@few
@given(changed(Tomorrow), anything(Tomorrow))
def test_a_field_added_tomorrow_is_drawn_without_being_listed(unlike: Tomorrow, any_one: Tomorrow) -> None:
    assert defaults_kept(unlike, "") == []
    assert 0 < unlike.positive <= 9
    assert 0 < any_one.positive <= 9


def test_a_field_that_nothing_can_make_is_an_error_that_names_it() -> None:
    with pytest.raises(TypeError, match=r"Unheard\.weights"):
        filled(Unheard)


def test_a_check_of_defaults_sees_a_field_that_was_forgotten() -> None:
    assert "Task.tier" in defaults_kept(filled(Task, tier=0), "Task")
    assert "Run.solo.tier" in defaults_kept(filled(Run, solo=filled(Task, tier=0)), "Run")


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), ("none", TaskState.NONE), (b"x", memoryview(b"x")), (0, 0.0)],
    ids=["flag", "enumeration", "bytes", "number"],
)
def test_an_image_tells_apart_what_equality_does_not(one: object, other: object) -> None:
    assert one == other
    assert image(one) != image(other)
    assert image(filled(Task, error=one)) != image(filled(Task, error=other))
