"""Parameters of statements are found outside texts and comments, and each has exactly one value."""

import pytest

from rota.core.errors import Refused
from rota.kinds.query.parameters import is_of_prepared, names_in, numbered, statement_name, values_of
from tests.refusals import refused


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("select ?", "select $1"),
        ("select ? where a = ?", "select $1 where a = $2"),
        ("select '?', ?", "select '?', $1"),
        ("select 'it''s ?', ?", "select 'it''s ?', $1"),
        ('select "a?b", ?', 'select "a?b", $1'),
        ("select ? -- really?\n, ?", "select $1 -- really?\n, $2"),
        ("select /* ? */ ?", "select /* ? */ $1"),
        ("select $1, $name", "select $1, $name"),
        ("select 1", "select 1"),
    ],
)
def test_question_marks_are_numbered_where_they_are_parameters(given: str, expected: str) -> None:
    assert numbered(given) == expected


def test_parameters_are_named_once_each() -> None:
    assert names_in("select $a, $b, '$c', $a") == ("a", "b")
    assert names_in("select 1") == ()


def test_every_parameter_has_one_value() -> None:
    assert values_of("select $1, $2", (5, None)) == {"1": 5, "2": None}
    assert values_of("select $a", {"a": "x"}) == {"a": "x"}
    with pytest.raises(Refused, match=r"query\.parameter: .*\$a, \$b.*\$b \(at params\)"):
        values_of("select $a, $b", {"a": 1})
    with refused("query.parameter", " $2", " $1 ", path="params"):
        values_of("select $1", (1, 2))


def test_places_and_numbers_are_not_mixed() -> None:
    for statement in ("select ? where 1 = $1", "select $name, ?"):
        with refused("query.parameter", " ? ", " $1" if "$1" in statement else " $name", path="sql"):
            numbered(statement)
    assert numbered("select '?', $1") == "select '?', $1"


@pytest.mark.parametrize(
    ("sql", "verb", "name"),
    [
        ("prepare P(int) as select $1", "prepare", "p"),
        ("prepare prepare as select 1", "prepare", "prepare"),
        ('prepare"y"as select 5', "prepare", "y"),
        ("execute/* x */p(1)", "execute", "p"),
        ("-- x\nExecute -- y\n z", "execute", "z"),
        ("deallocate prepare", "deallocate", "prepare"),
        ('DEALLOCATE PREPARE "a""B"', "deallocate", 'a"B'),
    ],
)
def test_the_name_of_a_prepared_statement_is_found(sql: str, verb: str, name: str) -> None:
    found = statement_name(sql)
    assert found is not None
    assert (found.verb, found.name) == (verb, name)
    assert sql.startswith(found.before)
    assert sql.endswith(found.after)


def test_a_statement_without_a_name_has_none() -> None:
    assert statement_name("execute") is None
    assert statement_name("execute 'p'") is None
    assert statement_name("select 1") is None


def test_many_comments_are_read_once() -> None:
    comments = "/**/" * 2_000
    assert not is_of_prepared(f"{comments}x")
    assert is_of_prepared(f"{comments}prepare p as select 1")
    assert is_of_prepared("/* a */ -- b\n execute p")
