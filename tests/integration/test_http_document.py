"""The OpenAPI document describes every endpoint, and everything that it describes is there."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.http_stage import Stage, staged

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


def test_every_reference_leads_somewhere(document: dict[str, Any]):
    schemas = document["components"]["schemas"]
    assert [ref for ref in refs(document) if ref.rpartition("/")[2] not in schemas] == []
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
