"""Pieces of the HTTP interface that need no port: statuses, bodies, paths, headers of browsers."""

import asyncio
from typing import Any

import pytest
from starlette.datastructures import Headers, QueryParams

from rota.api.http.bodies import SubmitBody
from rota.api.http.endpoints import Endpoint, Routes
from rota.api.http.guard import check_host, check_origin
from rota.api.http.problems import STATUS, problem_of, respond, status_of
from rota.api.http.reading import FORM, FORM_FIELDS_MAX, NoQuery, nearest, parse, read_form, read_query
from rota.api.http.runs import RunsQuery
from rota.client.paging import Place
from rota.core.errors import CODES, Refused, Unavailable
from tests.refusals import refused


def test_every_code_has_a_status_and_every_status_is_of_a_code():
    for code in CODES:
        assert 400 <= status_of(code) < 600, f"{code}: give it, or its family, a row in STATUS"
    families = {code.partition(".")[0] for code in CODES}
    assert [name for name in STATUS if name not in CODES and name not in families] == []


def test_a_row_that_says_what_its_family_says_is_not_there():
    assert [name for name in STATUS if "." in name and STATUS.get(name.partition(".")[0]) == STATUS[name]] == []


def test_a_refusal_is_not_tried_again_and_what_is_unavailable_is():
    refused = problem_of(Refused("field.value", "too many", "Use fewer.", path="limit"))
    assert (refused.status, refused.retry_after_ms, refused.hint, refused.path) == (422, 0, "Use fewer.", "limit")
    assert "retry-after" not in respond(refused).headers
    away = problem_of(Unavailable("leader.none", retry_after_ms=0))
    assert (away.status, away.retry_after_ms, respond(away).headers["retry-after"]) == (503, 1, "1")


async def _serve(call: object) -> object:
    raise AssertionError("it is not called")


def endpoint(method: str, path: str) -> Endpoint:
    return Endpoint(method=method, path=path, role=None, serve=_serve, summary="")  # pyright: ignore[reportArgumentType] - never called


def test_a_path_is_split_before_it_is_decoded():
    routes = Routes((endpoint("GET", "/a/{x}"), endpoint("PUT", "/a/{x}"), endpoint("GET", "/a/{x}/b/{y}")))
    assert routes.find("GET", "/a/one%2Fb%2Ftwo")[1] == {"x": "one/b/two"}
    assert routes.find("GET", "/a/%E2%9C%93/b/%5B1%5D")[1] == {"x": "✓", "y": "[1]"}
    for path in ("/a", "/a/", "/", "", "/a/x/c/y", "//a/x"):
        with pytest.raises(Refused, match=r"http\.path"):
            routes.find("GET", path)
    with pytest.raises(Refused, match=r"http\.method: .* It takes GET, HEAD, PUT\."):
        routes.find("DELETE", "/a/x")


def test_a_name_that_is_not_there_is_answered_with_the_nearest():
    assert nearest("limt", ["limit", "after"]) == "Did you mean limit?"
    assert "after, limit" in nearest("xyz", ["limit", "after"])
    assert nearest("xyz", []) == "There are none."
    with pytest.raises(Refused, match=r"no field 'argz' \(at graph\.tasks\[1\]\.command\.argz\)\. Did you mean argv\?"):
        parse(
            b'{"graph": {"name": "g", "tasks": [{"id": "a", "command": {}}, {"id": "b", "command": {"argz": []}}]}}',
            SubmitBody,
        )
    with pytest.raises(Refused, match=r"no query parameter 'nam'.* Did you mean name\?"):
        read_query(QueryParams("nam=x"), RunsQuery)


def test_a_query_parameter_may_be_given_often_where_many_are_taken():
    query = read_query(QueryParams("state=failed&state=success&limit=3"), RunsQuery)
    assert (query.state, query.limit) == (("failed", "success"), 3)


@pytest.mark.parametrize("host", ["localhost:80", "127.0.0.1", "127.3.2.1:9", "[::1]", "[::1]:80", "ours.example:1"])
def test_our_own_names_are_ours(host: str):
    check_host(Headers({"host": host}), ("ours.example",))


@pytest.mark.parametrize("host", ["", "evil.example", "127.0.0.1.evil.example", "192.0.2.1", "[::2]", "localhost.evil"])
def test_other_names_are_not(host: str):
    with pytest.raises(Refused, match=r"http\.host"):
        check_host(Headers({"host": host}), ("ours.example",))


def test_an_origin_is_ours_only_with_scheme_and_port():
    for origin in ("https://localhost:80", "http://localhost", "http://localhost:81", "null", ""):
        with pytest.raises(Refused, match=r"http\.origin"):
            check_origin(Headers({"host": "localhost:80", "origin": origin}), "http")
    check_origin(Headers({"host": "localhost:80", "origin": "http://localhost:80"}), "http")
    check_origin(Headers({"host": "localhost:80"}), "http")


def test_a_place_is_written_and_read():
    for place in (Place(), Place(run="r/✓", created_at=5), Place(is_past=True, past="5.6")):
        assert Place.read(place.write()) == place
    for text in ("zz", "00", "7b7d7d", "5b5d"):
        with refused("field.value", repr(text), path="after"):
            Place.read(text)


def test_a_form_with_too_many_fields_is_refused():
    async def receive() -> Any:
        return {"type": "http.request", "body": b"&".join([b"a=1"] * (FORM_FIELDS_MAX + 1)), "more_body": False}

    with refused("field.size"):
        asyncio.run(read_form(receive, Headers({"content-type": FORM}), NoQuery, 1 << 20))
