"""JSON5 as its description has it, with the line of every name; what is none is refused with its place."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.config.json5 import DEPTH_MAX, Json5Error, read_json5

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(PLAIN, st.sampled_from([None, 2]), st.booleans())
def test_json_is_read_as_it_was_written(value: object, indent: int | None, ascii_only: bool):
    read, _ = read_json5(json.dumps(value, indent=indent, ensure_ascii=ascii_only))
    assert read == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{a: 1, $b_2: 'x', 'c-d': \"y\", ü: 2,}", {"a": 1, "$b_2": "x", "c-d": "y", "ü": 2}),
        ("[1, 2, 3,]", [1, 2, 3]),
        ("// a comment\n[ /* and\nanother */ 1 ] // the end", [1]),
        ("[0xFf, -0x10, +7, .5, 5., 1e3, -1.5E-2]", [255, -16, 7, 0.5, 5.0, 1000.0, -0.015]),
        ("[Infinity, -Infinity]", [math.inf, -math.inf]),
        (r"""'it\'s "so" \x41é\n\0\v\q'""", 'it\'s "so" Aé\n\0\vq'),
        ("'one \\\ntwo \\\r\nthree'", "one two three"),
        (r"'😀'", "😀"),
        ("{true: true, null: null}", {"true": True, "null": None}),
        ("\ufeff{}", {}),
        ("{}", {}),
    ],
)
def test_what_json5_adds_is_read(text: str, value: object):
    assert read_json5(text)[0] == value


def test_a_number_that_is_none_is_read():
    assert math.isnan(read_json5("NaN")[0])


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("", 1, 1),
        ("{a 1}", 1, 4),
        ("{\n  a: 1\n  b: 2}", 3, 3),
        ("[1,,2]", 1, 4),
        ("{,}", 1, 2),
        ("[1] 2", 1, 5),
        ("'no end", 1, 8),
        ("'no\nend'", 1, 4),
        ("/* no end", 1, 1),
        ("{a: 1,\n a: 2}", 2, 2),
        ("[01]", 1, 2),
        ("[1.2.3]", 1, 2),
        ("[truer]", 1, 2),
        (r"'\u12'", 1, 4),
        (r"'\1'", 1, 4),
        ("{1: 2}", 1, 2),
        ("[" * (DEPTH_MAX + 1), 1, DEPTH_MAX + 1),
        ("[" + "9" * 5_000 + "]", 1, 5_002),
    ],
)
def test_what_is_no_json5_is_refused_with_its_place(text: str, line: int, column: int):
    with pytest.raises(Json5Error) as caught:
        read_json5(text)
    assert str(caught.value).endswith(f"(at line {line}, column {column})")


@given(st.text())
def test_any_text_is_read_or_refused(text: str):
    try:
        read_json5(text)
    except Json5Error as error:
        assert "at line" in str(error)


def test_every_name_and_element_has_its_line():
    text = "{\n  a: 1, // one\n  b: [\n    {c: 2},\n    3,\n  ],\n}"
    assert read_json5(text)[1] == {"a": 2, "b": 3, "b[0]": 4, "b[0].c": 4, "b[1]": 5}
