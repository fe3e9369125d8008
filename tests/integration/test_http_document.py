"""The OpenAPI document describes every endpoint, and everything that it describes is there."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from openapi_spec_validator import validate

from rota.api.http.problems import STATUS, Problem
from tests.integration.http_stage import Stage, staged

PROBLEM = {"$ref": "#/components/responses/Problem"}
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "http.md"
_ROW = re.compile(r"^\| `(?P<method>[A-Z]+) (?P<path>/\S*)` \| (?P<role>[\w –]+) \| (?P<summary>.+) \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged() as one:
        yield one


@pytest.fixture(scope="module")
def document(stage: Stage) -> dict[str, Any]:
    return stage.get("openapi.json")


def refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for each in value.values():
            yield from refs(each)
    elif isinstance(value, list):
        for each in value:
            yield from refs(each)


def test_every_endpoint_is_described_and_nothing_else(stage: Stage, document: dict[str, Any]):
    described = [f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods]
    assert sorted(described) == sorted(endpoint.name for endpoint in stage.endpoints)
    assert document["openapi"].startswith("3.1")


def test_the_document_is_what_openapi_says_a_document_is(document: dict[str, Any]):
    validate(document)


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_every_parameter_answer_and_problem_is_described(document: dict[str, Any]):
    for name, operation in operations(document):
        assert operation["summary"] and operation["tags"], name
        assert [each["name"] for each in operation["parameters"] if not each.get("description")] == [], name
        troubles = {status for status, told in operation["responses"].items() if told == PROBLEM}
        assert {"400", "503", "default"} <= troubles, name
        assert ("401" in troubles) == (operation.get("security") != []), name
        if "requestBody" in operation:
            assert {"413", "415"} <= troubles, name
        assert [status for status in operation["responses"] if status[0] == "2"], name


def test_every_body_has_an_example_that_can_be_sent(stage: Stage, document: dict[str, Any]):
    told = dict(operations(document))
    for endpoint in stage.endpoints:
        if endpoint.body is not None:
            (content,) = told[endpoint.name]["requestBody"]["content"].values()
            msgspec.convert(content["example"], endpoint.body)
    problem = document["components"]["responses"]["Problem"]["content"]["application/problem+json"]["example"]
    assert msgspec.convert(problem, Problem).status == STATUS["run.unknown"]


def test_every_reference_leads_somewhere(document: dict[str, Any]):
    schemas = document["components"]["schemas"]
    known = [*schemas, *document["components"]["responses"]]
    assert [ref for ref in refs(document) if ref.rpartition("/")[2] not in known] == []
    assert [name for name in schemas if not schemas[name].get("description")] == [], "each says what it is"


def test_operations_have_names_of_their_own_and_say_who_may(stage: Stage, document: dict[str, Any]):
    operations = {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    names = [operation["operationId"] for operation in operations.values()]
    assert len(set(names)) == len(names)
    for endpoint in stage.endpoints:
        operation = operations[endpoint.name]
        assert operation.get("x-rota-role") == endpoint.role
        assert (operation.get("security") == []) == (endpoint.role is None)
        given = [each["name"] for each in operation["parameters"]]
        assert [name for name in re.findall(r"{(\w+)}", endpoint.path) if name not in given] == []
        assert ("Idempotency-Key" in given) == (endpoint.method != "GET")
        assert "default" in operation["responses"]


def test_the_page_lists_the_endpoints_that_there_are(stage: Stage):
    told = [
        (f"{row['method']} {row['path']}", row["role"], row["summary"])
        for row in _ROW.finditer(PAGE.read_text(encoding="utf-8"))
    ]
    there = [
        (endpoint.name, endpoint.role.value if endpoint.role is not None else "–", endpoint.summary)
        for endpoint in stage.endpoints
    ]
    assert sorted(told) == sorted(there)
