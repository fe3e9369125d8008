"""Sessions of a front end for queries: one for each token, made once, and dropped only when nobody needs it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rota.api.tokens import Gate
from rota.app.sql.flight import CallersDesk, OneCaller
from rota.app.sql.session import Session
from rota.config import Secret
from rota.config.settings import Auth
from rota.core.errors import Refused
from tests.refusals import refused


class Watched(OneCaller):
    """Says whether it was closed."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True
        super().close()


Make = Callable[..., Watched]


def make_caller(_token: str = "", tables: Mapping[str, str] | None = None) -> Watched:
    return Watched(Session(reads_only=True), tables or {})


def desk_with(auth: Auth, **more: Any) -> CallersDesk:
    return CallersDesk(Gate(auth, lambda: 0), make_caller, **more)


def test_a_token_has_one_session_and_another_one_has_another() -> None:
    desk = desk_with(Auth())
    assert desk.session("a", "") is desk.session("a", "")
    assert desk.session("a", "") is not desk.session("b", "")
    desk.close()


def test_the_session_that_was_used_least_recently_makes_room_unless_it_is_needed() -> None:
    desk = desk_with(Auth(), sessions_max=2)
    first, second = desk.session("first", ""), desk.session("second", "")
    handle = first.begin("select 1 as n", ())
    third = desk.session("third", "")
    closed = [each.is_closed for each in (first, second, third) if isinstance(each, Watched)]
    assert closed == [False, True, False], "a query of the first can still be fetched"
    assert handle.to_arrow().to_pylist() == [{"n": 1}]
    assert desk.session("first", "") is first
    desk.close()


def test_tokens_that_are_known_here_are_asked_for_each_time() -> None:
    desk = desk_with(Auth(tokens=Secret("writer@acme:known")))
    assert desk.session("known", "")
    for token, code in (("", "auth.missing"), ("unknown", "auth.wrong"), ("known ", "auth.wrong")):
        with pytest.raises(Refused) as caught:
            desk.session(token, "peer")
        assert caught.value.code == code


def test_a_table_that_comes_later_is_found_later_and_until_then_says_why(tmp_path: Path) -> None:
    (tmp_path / "here.csv").write_text("a\n1\n")
    caller = make_caller(tables={"here": str(tmp_path / "here.csv"), "late": str(tmp_path / "late.csv")})
    assert [table.name for table in caller.tables()] == ["here"]
    assert caller.begin("select * from here", ()).to_arrow().num_rows == 1
    with pytest.raises(Refused, match=r"query\.source: table 'late': .*queries\.tables\.late"):
        caller.begin("select * from late", ())
    with refused("query.table", " other ", path="sql"):
        caller.begin("select * from other", ())
    (tmp_path / "late.csv").write_text("b\n2\n3\n")
    assert caller.begin("select * from late", ()).to_arrow().num_rows == 2
    assert [table.name for table in caller.tables()] == ["here", "late"]
    shown = caller.begin("select table_name from information_schema.tables where table_schema = 'public'", ())
    assert sorted(shown.to_arrow().column(0).to_pylist()) == ["here", "late"]
    caller.close()


def test_names_of_tables_may_be_odd(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a\n1\n")
    caller = make_caller(tables={"with blank": str(tmp_path / "x.csv"), "Größe": str(tmp_path / "x.csv")})
    names = [table.name for table in caller.tables()]
    assert len(names) == 2
    for name in names:
        assert caller.begin('select a from "' + name + '"', ()).to_arrow().to_pylist() == [{"a": 1}]  # noqa: S608 - a name that this test has made up
    caller.close()
