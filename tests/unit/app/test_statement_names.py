"""Connections that share a session have names of prepared statements of their own, and not too many."""

from typing import Any

import pytest

from rota.app.sql.statement_names import StatementNames
from rota.kinds.query.engine import SqlEngine
from tests.refusals import refused

ONE, TWO = "a" * 32, "b" * 32


class Shared:
    """An engine whose statements come from several connections."""

    def __init__(self, **bounds: int) -> None:
        self.engine = SqlEngine(reads_only=True)
        self.names = StatementNames(self.engine.sql, **bounds)

    def ask(self, connection: str, sql: str) -> list[dict[str, Any]]:
        with self.names.scope(sql, connection) as scoped:
            return self.engine.sql(scoped).to_pylist()


def test_each_connection_has_its_own_names() -> None:
    shared = Shared()
    shared.ask(ONE, "prepare p as select 1 as x")
    shared.ask(TWO, "prepare P as select 2 as x")
    assert shared.ask(ONE, "execute p") == [{"x": 1}]
    assert shared.ask(TWO, 'execute "p"') == [{"x": 2}]
    shared.ask(TWO, "deallocate prepare p")
    assert shared.ask(ONE, "execute P") == [{"x": 1}]
    with refused("query.statement") as caught:
        shared.ask(TWO, "execute p")
    assert TWO not in str(caught.value)


@pytest.mark.parametrize("sql", ["execute a.p", f'execute "{ONE}.p"', "execute p.p", f'execute "{ONE}".p'])
def test_no_other_spelling_reaches_the_name_of_another(sql: str) -> None:
    shared = Shared()
    shared.ask(ONE, "prepare p as select 1 as x")
    with refused("query.statement"):
        shared.ask(TWO, sql)


def test_a_connection_that_is_not_known_again_names_nothing() -> None:
    shared = Shared()
    for sql in ("prepare p as select 1", "execute p", "/* x */ deallocate p"):
        with refused("query.unsupported"):
            shared.ask("", sql)
    assert shared.ask("", "select 1 as x") == [{"x": 1}]


def test_a_name_that_cannot_be_read_is_refused() -> None:
    with refused("query.syntax"):
        Shared().ask(ONE, "prepare 'p' as select 1")


def test_a_connection_has_not_too_many_names() -> None:
    shared = Shared(names_max=2)
    for name in ("p", "q"):
        shared.ask(ONE, f"prepare {name} as select 1 as x")
    with refused("query.statement"):
        shared.ask(ONE, "prepare r as select 1")
    shared.ask(TWO, "prepare r as select 2 as x")
    shared.ask(ONE, "deallocate q")
    shared.ask(ONE, "prepare r as select 3 as x")
    assert shared.ask(ONE, "execute r") == [{"x": 3}]


def test_the_connection_that_used_its_names_least_recently_makes_room() -> None:
    shared = Shared(connections_max=2)
    for number in range(3):
        shared.ask(f"{number:032}", "prepare p as select 1 as x")
        if number == 1:
            shared.ask(f"{0:032}", "execute p")
    assert shared.ask(f"{0:032}", "execute p") == [{"x": 1}]
    with refused("query.statement"):
        shared.ask(f"{1:032}", "execute p")
