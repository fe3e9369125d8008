"""Ids become names of files that stay where they belong and never meet."""

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.wire.names import attempt_name, safe_name

IDS = st.text(max_size=250) | st.text(alphabet="./~%aA", max_size=250)


@pytest.mark.parametrize(
    ("id", "name"),
    [
        ("extract", "extract"),
        ("v1.2_3-x", "v1.2_3-x"),
        ("a/b", "a%2Fb"),
        ("..", "%2E."),
        (".", "%2E"),
        (".hidden", "%2Ehidden"),
        ("extract[3]", "extract%5B3%5D"),
        ("ü", "%C3%BC"),
        ("a~b", "a%7Eb"),
        ("", "%"),
    ],
)
def test_only_plain_characters_stay(id: str, name: str) -> None:
    assert safe_name(id) == name


@given(IDS)
def test_a_name_is_one_ordinary_segment(id: str) -> None:
    name = safe_name(id)
    assert PurePosixPath(name).name == name
    assert name not in ("", ".", "..")
    assert len(name.encode()) <= 200
    assert name.isascii()


@given(IDS, IDS)
def test_different_ids_have_different_names(left: str, right: str) -> None:
    assert (safe_name(left) == safe_name(right)) == (left == right)


def test_long_ids_that_begin_alike_stay_apart() -> None:
    assert safe_name("/" * 249 + "a") != safe_name("/" * 249 + "b")


@given(IDS, IDS, IDS)
def test_the_name_of_an_attempt_has_four_parts(tenant: str, run: str, task: str) -> None:
    assert len(PurePosixPath(attempt_name(tenant, run, task, 1, 2)).parts) == 4
