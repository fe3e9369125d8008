"""The OpenAPI document, made from the table of endpoints and the very structs that are read and written."""

import re
from importlib.metadata import version
from typing import Any

import msgspec
from starlette.responses import Response

from rota.api.auth import Role
from rota.api.http.endpoints import EVENTS, LINES, NOUN_AT, Call, Endpoint
from rota.api.http.examples import BODIES, IN_HEADER, IN_PATH, IN_QUERY, PROBLEM
from rota.api.http.problems import PROBLEM_TYPE, Problem
from rota.api.http.reading import JSON, NoQuery

_REFS = "#/components/schemas/{name}"
_IN_PATH = re.compile(r"{(\w+)}")
_ITEMS = {EVENTS: "Server-sent events; the data of each of the usual kind is:", LINES: "Lines of JSON, each of them:"}

Schema = dict[str, Any]

_BYTES: Schema = {"type": "string", "format": "binary"}
_PROBLEM: Schema = {"$ref": "#/components/responses/Problem"}
_ABOUT = (
    "Everything that a coordinator can be asked. Instants are milliseconds since 1970, UTC. A call that changes "
    "something may carry an Idempotency-Key: repeated with it, it is carried out once, and the same key with another "
    "call is refused with 409. Trouble is problem+json with a stable code."
)
_TOKENS = "One of the tokens that the coordinator accepts; where none are configured, none is asked for."


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
        "info": {
            "title": "Rota",
            "version": version("rota"),
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The coordinator that gave this document."}],
        "tags": [{"name": name} for name in sorted({_tag(endpoint) for endpoint in endpoints})],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {
                "Problem": {
                    "description": "What went wrong.",
                    "content": {PROBLEM_TYPE: {"schema": found[id(Problem)], "example": PROBLEM}},
                }
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": _TOKENS}},
        },
        "security": [{"token": []}],
    }


def _operation(endpoint: Endpoint, schemas: dict[int, Schema]) -> Schema:
    operation: Schema = {
        "operationId": endpoint.serve.__name__,
        "summary": endpoint.summary,
        "tags": [_tag(endpoint)],
        "parameters": _parameters(endpoint),
        "responses": {
            str(endpoint.status): _answer(endpoint, schemas),
            **{str(status): _PROBLEM for status in _troubles(endpoint)},
            "default": _PROBLEM,
        },
    }
    if endpoint.role is None:
        operation["security"] = []
    else:
        operation["x-rota-role"] = endpoint.role.value
    if endpoint.takes:
        operation["requestBody"] = {"required": True, "content": {endpoint.takes: {"schema": _BYTES}}}
    elif endpoint.body is not None:
        required = any(field.required for field in msgspec.structs.fields(endpoint.body))
        content: Schema = {"schema": schemas[id(endpoint.body)]}
        if endpoint.name in BODIES:
            content["example"] = BODIES[endpoint.name]
        operation["requestBody"] = {"required": required, "content": {JSON: content}}
    if endpoint.name == "POST /api/v1/runs":
        operation["responses"]["200"] = {
            **_answer(endpoint, schemas),
            "description": "A run with the same key was joined.",
        }
    return operation


def _tag(endpoint: Endpoint) -> str:
    """What an endpoint is about: the first word of its path."""
    parts = endpoint.path.split("/")
    return parts[NOUN_AT] if parts[1] == "api" and parts[NOUN_AT] != "openapi.json" else "service"


def _troubles(endpoint: Endpoint) -> list[int]:
    """The statuses with which such an endpoint refuses; others are possible, and look the same."""
    found = [400, 503]
    if endpoint.role is not None:
        found += [401, 403]
    if (
        endpoint.query is not NoQuery
        or endpoint.body is not None
        or endpoint.is_command
        or _IN_PATH.search(endpoint.path)
    ):
        found.append(422)
    if _IN_PATH.search(endpoint.path):
        found.append(404)
    if endpoint.is_command:
        found.append(409)
    if endpoint.body is not None or endpoint.takes:
        found += [408, 413, 415]
    return sorted(found)


def _answer(endpoint: Endpoint, schemas: dict[int, Schema]) -> Schema:
    found: Schema = {"description": "Done."}
    headers: Schema = {}
    if endpoint.is_command:
        text = "The key with which this call may be repeated; the caller's own, if it sent one."
        headers["Idempotency-Key"] = {"schema": {"type": "string"}, "description": text}
    if any(field.name == "after" for field in msgspec.structs.fields(endpoint.query)):
        headers["Link"] = {"schema": {"type": "string"}, "description": "Where the next page is, if there is one."}
    if headers:
        found["headers"] = headers
    if endpoint.answer is not None:
        media = endpoint.media.partition(";")[0]
        found["description"] = _ITEMS.get(endpoint.media, "The answer.")
        found["content"] = {media: {"schema": schemas[id(endpoint.answer)] if media == JSON else {"type": "string"}}}
        if endpoint.media in _ITEMS:
            found["content"][media]["x-rota-item"] = schemas[id(endpoint.answer)]
    return found


def _parameters(endpoint: Endpoint) -> list[Schema]:
    found: list[Schema] = []
    for name in _IN_PATH.findall(endpoint.path):
        text, example, schema = IN_PATH[name]
        found.append(
            {"name": name, "in": "path", "required": True, "description": text, "example": example, "schema": schema}
        )
    for field in msgspec.structs.fields(endpoint.query):
        text, bounds = IN_QUERY[field.name]
        schema = {**msgspec.json.schema(field.type), "default": msgspec.to_builtins(field.default), **bounds}
        found.append({"name": field.name, "in": "query", "description": text, "schema": schema})
    headers: list[str] = []
    if endpoint.role is not None and not endpoint.of_all_tenants:
        headers.append("Rota-Tenant")
    if endpoint.is_command:
        headers.append("Idempotency-Key")
    if endpoint.media == EVENTS:
        headers.append("Last-Event-ID")
    if endpoint.takes_claim_token:
        headers.append("Rota-Claim-Token")
    for name in headers:
        text, schema = IN_HEADER[name]
        found.append({"name": name, "in": "header", "description": text, "schema": schema})
    return found
