"""The check of the installed engine: it passes here, and fails when a single number is another one."""

from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from rota.core.errors import Refused
from rota.wire.plans import binding, checking, plan_pb2, tree
from rota.wire.plans.checking import ENGINE, check_engine
from tests.refusals import refused

pytestmark = pytest.mark.slow

ELSEWHERE = 77


def description() -> descriptor_pb2.FileDescriptorProto:
    made = descriptor_pb2.FileDescriptorProto()
    plan_pb2.DESCRIPTOR.CopyToProto(made)
    return made


FIELDS = [(message.name, field.name) for message in description().message_type for field in message.field]


def moved(message_name: str, field_name: str) -> Any:
    """Our messages with one field that has another number."""
    made = description()
    message = next(each for each in made.message_type if each.name == message_name)
    next(each for each in message.field if each.name == field_name).number = ELSEWHERE
    return stubs_of(made)


def swapped(enum_name: str, first: str, second: str) -> Any:
    """Our messages with two values of an enum the other way round."""
    made = description()
    enum = next(each for each in made.enum_type if each.name == enum_name)
    values = {each.name: each for each in enum.value}
    values[first].name, values[second].name = second, first
    return stubs_of(made)


def stubs_of(made: descriptor_pb2.FileDescriptorProto) -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(made)
    file = pool.FindFileByName(made.name)
    messages = message_factory.GetMessageClassesForFiles([made.name], pool)
    names: dict[str, Any] = {name.rpartition(".")[2]: kind for name, kind in messages.items()}
    for name, enum in file.enum_types_by_name.items():
        names[name] = EnumTypeWrapper(enum)
        names |= {value.name: value.number for value in enum.values}
    return SimpleNamespace(**names)


def use(stubs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (binding, checking, tree):
        monkeypatch.setattr(module, "pb", stubs)


@pytest.fixture(autouse=True)
def unchecked():
    check_engine.cache_clear()
    yield
    check_engine.cache_clear()


def test_the_installed_engine_is_the_one_that_plans_are_edited_for():
    check_engine()
    assert ENGINE.startswith("datafusion 55."), "and if it is not, the .proto file is looked at again"


def test_stubs_that_were_made_here_pass_when_nothing_was_changed(monkeypatch: pytest.MonkeyPatch):
    use(stubs_of(description()), monkeypatch)
    check_engine()


@pytest.mark.parametrize(("message", "field"), FIELDS)
def test_a_field_with_another_number_is_noticed(message: str, field: str, monkeypatch: pytest.MonkeyPatch):
    use(moved(message, field), monkeypatch)
    with refused("query.engine", "datafusion ", "pip install --force-reinstall 'rota[query]'"):
        check_engine()


@pytest.mark.parametrize(
    ("enum", "first", "second"),
    [
        ("JoinType", "INNER", "LEFT"),
        ("JoinType", "RIGHT_SEMI", "RIGHT_ANTI"),
        ("JoinType", "LEFT_MARK", "RIGHT_MARK"),
        ("PartitionMode", "COLLECT_LEFT", "PARTITIONED"),
    ],
)
def test_values_of_an_enum_that_changed_places_are_noticed(
    enum: str, first: str, second: str, monkeypatch: pytest.MonkeyPatch
):
    use(swapped(enum, first, second), monkeypatch)
    with pytest.raises(Refused):
        check_engine()
