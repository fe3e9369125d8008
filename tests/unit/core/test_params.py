"""Parameters: what is given is what was declared, or it is refused with the name, the value and what was wanted."""

from typing import Any

import msgspec
import pytest

from rota.core.errors import Refused
from rota.core.model import Param, ParamType
from rota.core.params import check_declared, check_params
from tests.refusals import refused

pack = msgspec.msgpack.encode
T = ParamType


def given(param: Param, value: object) -> object:
    """What a run gets of a value."""
    return msgspec.msgpack.decode(check_params((param,), pack({param.name: value})))[param.name]


GOOD = [
    (Param(name="p"), None),
    (Param(name="p"), {"deep": [1, 2]}),
    (Param(name="p", type=T.STRING), "é"),
    (Param(name="p", type=T.STRING, nullable=True), None),
    (Param(name="p", type=T.INTEGER), 2**60),
    (Param(name="p", type=T.INTEGER, least=1, most=3), 3),
    (Param(name="p", type=T.NUMBER), 1),
    (Param(name="p", type=T.NUMBER, least=0.5), 0.5),
    (Param(name="p", type=T.BOOLEAN), False),
    (Param(name="p", type=T.ARRAY, most=2), ["a", "b"]),
    (Param(name="p", type=T.OBJECT), {}),
    (Param(name="p", type=T.DATE), "2024-02-29"),
    (Param(name="p", type=T.DATETIME), "2026-11-16T12:00:00+01:00"),
    (Param(name="p", type=T.STRING, pattern="[a-z]+"), "abc"),
    (Param(name="p", type=T.STRING, pattern=r"^[A-Z]{2}-\d{3,5}\.[^x]?$"), "AB-1234."),
    (Param(name="p", type=T.STRING, choices=(pack("eu"), pack("us"))), "us"),
]
BAD = [
    (Param(name="p", type=T.STRING), 1),
    (Param(name="p", type=T.STRING), None),
    (Param(name="p", type=T.INTEGER), True),
    (Param(name="p", type=T.INTEGER), 1.0),
    (Param(name="p", type=T.INTEGER, least=1, most=3), 4),
    (Param(name="p", type=T.NUMBER), float("nan")),
    (Param(name="p", type=T.NUMBER), float("inf")),
    (Param(name="p", type=T.BOOLEAN), 1),
    (Param(name="p", type=T.ARRAY), "text"),
    (Param(name="p", type=T.ARRAY, least=1), []),
    (Param(name="p", type=T.OBJECT), [1]),
    (Param(name="p", type=T.DATE), "2026-02-29"),
    (Param(name="p", type=T.DATE), 20260101),
    (Param(name="p", type=T.DATETIME), "noon"),
    (Param(name="p", type=T.STRING, pattern="[a-z]+"), "abc1"),
    (Param(name="p", type=T.STRING, pattern="[a-z]+"), "a" * 101),
    (Param(name="p", type=T.STRING, choices=(pack("eu"),)), "asia"),
]


@pytest.mark.parametrize(("param", "value"), GOOD)
def test_a_value_as_it_was_declared_is_taken(param: Param, value: object):
    assert given(param, value) == value


@pytest.mark.parametrize(("param", "value"), BAD)
def test_another_is_refused_by_name(param: Param, value: object):
    with pytest.raises(Refused) as caught:
        given(param, value)
    assert caught.value.path == "params.p"
    assert caught.value.code in ("field.value", "field.size")


def test_a_refusal_says_what_was_wanted():
    param = Param(name="limit", type=T.INTEGER, least=1, most=100, doc="rows at most")
    with pytest.raises(Refused) as caught:
        given(param, "many")
    assert (caught.value.path, "'many'" in caught.value.reason) == ("params.limit", True)
    assert caught.value.hint == "limit is a whole number, bounds from 1 to 100 (rows at most)."  # wording


def test_defaults_are_filled_in_and_what_has_none_must_be_given():
    params = (Param(name="a", default=pack(1)), Param(name="b"))
    assert msgspec.msgpack.decode(check_params(params, pack({"b": 2}))) == {"a": 1, "b": 2}
    with pytest.raises(Refused) as caught:
        check_params(params, b"")
    assert caught.value.path == "params.b"


def test_an_unknown_name_is_refused_with_those_there_are():
    with pytest.raises(Refused) as caught:
        check_params((Param(name="day"),), pack({"dya": 1}))
    assert caught.value.hint == "There are: day."


@pytest.mark.parametrize("packed", [b"\xc1", pack([1]), pack({1: 2}), b"\x81"])
def test_what_is_no_object_is_refused(packed: bytes):
    with pytest.raises(Refused):
        check_params((), packed)


@pytest.mark.parametrize(
    "param",
    [
        Param(name="p", type=T.INTEGER, default=pack("one")),
        Param(name="p", type=T.INTEGER, choices=(pack("one"),)),
        Param(name="p", type=T.STRING, choices=(pack("a"),), default=pack("b")),
        Param(name="p", pattern="("),
        Param(name="p", pattern="(a+)+"),
        Param(name="p", pattern="(a|b*)*"),
        Param(name="p", pattern="(a|aa)+c"),
        Param(name="p", pattern="((a+)b?)+c"),
        Param(name="p", pattern="(?:a?b?)*c"),
        Param(name="p", pattern="a*a*a*a*a*a*c"),
        Param(name="p", pattern="a**"),
        Param(name="p", pattern="a{3}{4}"),
        Param(name="p", pattern=r"(a)\1"),
        Param(name="p", default=pack("x" * 300_000)),
        Param(name="p", pattern="a" * 201),
        Param(name="p", least=float("inf")),
        Param(name=""),
        Param(name="p", default=b"\xc1"),
    ],
)
def test_a_declaration_that_cannot_be_kept_is_refused(param: Param):
    with pytest.raises(Refused):
        check_declared((param,))


def test_two_of_one_name_are_refused():
    with pytest.raises(Refused):
        check_declared((Param(name="p"), Param(name="p")))


@pytest.mark.parametrize("value", [float("nan"), [1.0, float("inf")], {"a": [{"b": float("-inf")}]}])
@pytest.mark.parametrize("kind", [ParamType.ANY, ParamType.ARRAY, ParamType.OBJECT, ParamType.NUMBER])
def test_a_number_without_end_is_refused_at_any_depth(kind: ParamType, value: Any):
    with refused("field.value", repr(value), path="params.x"):
        check_params((Param(name="x", type=kind),), pack({"x": value}))


def test_what_is_declared_as_a_float_arrives_as_one():
    params = (Param(name="x", type=ParamType.NUMBER), Param(name="y", type=ParamType.NUMBER, default=pack(2)))
    found = msgspec.msgpack.decode(check_params(params, pack({"x": 1})))
    assert [(value, type(value)) for value in found.values()] == [(1.0, float), (2.0, float)]
