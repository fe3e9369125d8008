"""The OpenAPI document, made from the table of endpoints and the very structs that are read and written."""

import re
from importlib.metadata import version
from typing import Any

import msgspec
from starlette.responses import Response

from rota.api.auth import Role
from rota.api.http.endpoints import EVENTS, LINES, Call, Endpoint
from rota.api.http.problems import PROBLEM_TYPE, Problem
from rota.api.http.reading import JSON

_REFS = "#/components/schemas/{name}"
_IN_PATH = re.compile(r"{(\w+)}")
_ITEMS = {EVENTS: "Server-sent events; the data of each of the usual kind is:", LINES: "Lines of JSON, each of them:"}

Schema = dict[str, Any]

_BYTES: Schema = {"type": "string", "format": "binary"}


def describe(endpoints: tuple[Endpoint, ...]) -> Endpoint:
    """The endpoint that describes the others, and itself."""

    async def openapi(call: Call) -> Response:  # noqa: ARG001 - it is the same for everybody
        return Response(content, media_type=JSON)

    own = Endpoint(
        method="GET",
        path="/api/v1/openapi.json",
        role=Role.READER,
        serve=openapi,
        summary="Describe this interface",
        answer=dict[str, Any],
    )
    content = msgspec.json.encode(document((*endpoints, own)))
    return own


def document(endpoints: tuple[Endpoint, ...]) -> Schema:
    """The whole document."""
    kinds: list[Any] = [Problem]
    for endpoint in endpoints:
        kinds += [kind for kind in (endpoint.answer, endpoint.body) if kind is not None]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFS)
    found = dict(zip(map(id, kinds), schemas, strict=True))
    paths: dict[str, Schema] = {}
    for endpoint in endpoints:
        operation = _operation(endpoint, found)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Rota", "version": version("rota"), "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(endpoint: Endpoint, schemas: dict[int, Schema]) -> Schema:
    problem = {"content": {PROBLEM_TYPE: {"schema": schemas[id(Problem)]}}, "description": "What went wrong."}
    operation: Schema = {
        "operationId": endpoint.serve.__name__,
        "summary": endpoint.summary,
        "parameters": _parameters(endpoint),
        "responses": {str(endpoint.status): _answer(endpoint, schemas), "default": problem},
    }
    if endpoint.role is None:
        operation["security"] = []
    else:
        operation["x-rota-role"] = endpoint.role.value
    if endpoint.takes:
        operation["requestBody"] = {"required": True, "content": {endpoint.takes: {"schema": _BYTES}}}
    elif endpoint.body is not None:
        required = any(field.required for field in msgspec.structs.fields(endpoint.body))
        operation["requestBody"] = {"required": required, "content": {JSON: {"schema": schemas[id(endpoint.body)]}}}
    return operation


def _answer(endpoint: Endpoint, schemas: dict[int, Schema]) -> Schema:
    found: Schema = {"description": "Done."}
    if endpoint.is_command:
        found["headers"] = {"Idempotency-Key": {"schema": {"type": "string"}}}
    if endpoint.answer is not None:
        media = endpoint.media.partition(";")[0]
        found["description"] = _ITEMS.get(endpoint.media, "The answer.")
        found["content"] = {media: {"schema": schemas[id(endpoint.answer)]}}
    return found


def _parameters(endpoint: Endpoint) -> list[Schema]:
    text: Schema = {"type": "string"}
    found: list[Schema] = [
        {"name": name, "in": "path", "required": True, "schema": text} for name in _IN_PATH.findall(endpoint.path)
    ]
    for field in msgspec.structs.fields(endpoint.query):
        schema = {**msgspec.json.schema(field.type), "default": msgspec.to_builtins(field.default)}
        found.append({"name": field.name, "in": "query", "schema": schema})
    headers: list[str] = []
    if endpoint.role is not None and not endpoint.of_all_tenants:
        headers.append("Rota-Tenant")
    if endpoint.is_command:
        headers.append("Idempotency-Key")
    if endpoint.media == EVENTS:
        headers.append("Last-Event-ID")
    if endpoint.takes_claim_token:
        headers.append("Rota-Claim-Token")
    return found + [{"name": name, "in": "header", "schema": text} for name in headers]
