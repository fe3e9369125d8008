"""Parameters as fields of a form, and back: what is shown, what is read, and what that is in a terminal."""

from typing import Any

import msgspec
import pytest

from rota.core.errors import Refused
from rota.core.model import Param, ParamType
from rota.core.params import check_declared, check_params
from rota.ui.acts.params import Given, fields_of, read_given, words_of
from rota.wire.given import packed
from tests.refusals import refused

pack = msgspec.msgpack.encode


def param(name: str, kind: ParamType, default: Any = ..., **more: Any) -> Param:
    return Param(name=name, type=kind, default=None if default is ... else pack(default), **more)


PARAMS = (
    param("any", ParamType.ANY, {"a": [1, None]}),
    param("text", ParamType.STRING, "a\nb"),
    param("count", ParamType.INTEGER, 3, least=1, most=5),
    param("ratio", ParamType.NUMBER, 0.1),
    param("flag", ParamType.BOOLEAN, True),
    param("many", ParamType.ARRAY, ["x"]),
    param("thing", ParamType.OBJECT, {}),
    param("day", ParamType.DATE, "2026-01-02"),
    param("at", ParamType.DATETIME, "2026-01-02T03:04:05"),
    param("size", ParamType.STRING, "s", choices=(pack("s"), pack("l"))),
    param("maybe", ParamType.INTEGER, None, nullable=True),
)
check_declared(PARAMS)


def sent(values: dict[str, str]) -> Given:
    return Given(param=tuple(values), value=tuple(values.values()))


def test_a_form_that_nobody_touched_gives_the_defaults():
    fields = fields_of(PARAMS, None)
    assert [field.param for field in fields] == [each.name for each in PARAMS]
    given = read_given(PARAMS, sent({field.param: field.value for field in fields}))
    assert check_params(PARAMS, packed(given)) == check_params(PARAMS, b"")


def test_fields_are_of_the_kind_of_their_parameter_and_have_its_bounds():
    kinds = {field.param: field.kind for field in fields_of(PARAMS, None)}
    assert kinds == {
        "any": "textarea",
        "text": "textarea",
        "count": "number",
        "ratio": "number",
        "flag": "select",
        "many": "textarea",
        "thing": "textarea",
        "day": "date",
        "at": "datetime-local",
        "size": "select",
        "maybe": "number",
    }
    (count,) = (field for field in fields_of(PARAMS, None) if field.param == "count")
    assert (count.least, count.most) == ("1", "5")


def test_what_was_filled_in_is_shown_again():
    fields = fields_of(PARAMS, sent({"count": "nonsense"}))
    assert next(field.value for field in fields if field.param == "count") == "nonsense"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("any", "plain words", "plain words"),
        ("any", "[1]", [1]),
        ("text", "", ""),
        ("text", "a\r\nb", "a\nb"),
        ("text", "123", "123"),
        ("count", " 4 ", 4),
        ("flag", "false", False),
        ("thing", '{"a": 1}', {"a": 1}),
        ("day", "2026-02-28", "2026-02-28"),
        ("maybe", "", None),
    ],
)
def test_a_text_becomes_a_value_of_its_type(name: str, text: str, value: Any):
    assert read_given(PARAMS, sent({name: text})) == {name: value}


def test_what_is_left_empty_is_left_out():
    assert read_given(PARAMS, sent({"count": "", "many": " ", "day": ""})) == {}


@pytest.mark.parametrize(("name", "text"), [("count", "x"), ("many", "{"), ("flag", "yes"), ("thing", "'a'")])
def test_a_text_that_is_no_value_is_refused_by_the_name_of_its_parameter(name: str, text: str):
    with pytest.raises(Refused) as refused:
        read_given(PARAMS, sent({name: text}))
    assert (refused.value.code, refused.value.path) == ("field.value", name)


def test_a_parameter_that_is_gone_and_lists_that_do_not_match_are_refused():
    with refused("command.stale", "'old'"):
        read_given(PARAMS, sent({"old": "1"}))
    with refused("field.value"):
        Given(param=("a",), value=()).said()


def test_the_line_for_a_terminal_says_texts_as_they_are_and_the_rest_as_json():
    assert words_of({"day": "2026-01-01", "n": 3, "maybe": None}) == [
        "--param",
        "day=2026-01-01",
        "--param-json",
        "n=3",
        "--param-json",
        "maybe=null",
    ]


@pytest.mark.parametrize("kind", [ParamType.DATE, ParamType.DATETIME, ParamType.STRING])
@pytest.mark.parametrize("nullable", [False, True])
def test_a_field_left_empty_leaves_its_parameter_to_the_logical_date(kind: ParamType, nullable: bool):
    declared = (param("day", kind, nullable=nullable, defaults_to_logical_date=True),)
    (field,) = fields_of(declared, None)
    assert (field.value, field.is_required) == ("", False)
    assert "logical date" in field.note
    assert read_given(declared, sent({"day": ""})) == {}
    assert read_given(declared, sent({"day": "2026-01-02"})) == {"day": "2026-01-02"}
