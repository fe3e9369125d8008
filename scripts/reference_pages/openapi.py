"""docs/reference/openapi.md: every call of `/api/v1` with its parameters, and every object with its fields.

It is made from the document that a coordinator gives at `/api/v1/openapi.json`, so one is started and asked.
"""

import json
import tempfile
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

from scripts.serving import serving

HEAD = """# HTTP, field by field

Every call with its parameters, and every object with its fields. This page is written by `scripts/reference` from the
OpenAPI document that a coordinator gives at `/api/v1/openapi.json`. How calls are made, what trouble looks like and how
events are read is in [HTTP](http.md); the role is the least that a token needs.
"""
METHODS = ("get", "post", "put", "patch", "delete")
# Parameters that stand for themselves in every call that has them; http.md says what they are.
HEADERS = ("Rota-Tenant", "Idempotency-Key", "Last-Event-ID", "Rota-Claim-Token")

Schema = dict[str, Any]


def page() -> str:
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(folder) as (_, http),
        urlopen(f"{http}/api/v1/openapi.json") as answer,  # noqa: S310 - our own service
    ):
        return written(json.load(answer))


def written(document: Schema) -> str:
    calls = [
        (method.upper(), path, operations[method])
        for path, operations in document["paths"].items()
        for method in METHODS
        if method in operations
    ]
    schemas = document["components"]["schemas"]
    parts = [HEAD, "## Calls\n"]
    for method, path, operation in calls:
        parts += called(method, path, operation)
    parts.append("## Objects\n")
    for name in sorted(schemas):
        parts += shaped(name, schemas[name])
    return "\n".join(parts).rstrip() + "\n"


def called(method: str, path: str, operation: Schema) -> Iterator[str]:
    yield f"### {method} {path}\n"
    yield f"{operation['summary']}. Role: {operation.get('x-rota-role', 'none')}.\n"
    rows = [
        (each["name"], each["in"], kind(each["schema"]), default(each["schema"]))
        for each in operation["parameters"]
        if each["in"] == "query"
    ]
    if rows:
        yield "| parameter | type | default |\n|---|---|---|"
        yield "\n".join(f"| `{name}` | {of} | {usual} |" for name, _, of, usual in rows) + "\n"
    headers = [each["name"] for each in operation["parameters"] if each["name"] in HEADERS]
    said = [f"Headers: {', '.join(f'`{name}`' for name in headers)}."] if headers else []
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        said.append(f"Body: {shown(media, content)}.")
    for status, answer in operation["responses"].items():
        if status != "default":
            content = [shown(media, each) for media, each in answer.get("content", {}).items()]
            said.append(f"Answer: {status}{', ' if content else ''}{' or '.join(content)}.")
    yield " ".join(said) + "\n"


def shown(media: str, content: Schema) -> str:
    of = kind(content["schema"])
    return of if media == "application/json" else f"`{media}`: {of}"


def shaped(name: str, schema: Schema) -> Iterator[str]:
    yield f"### {name}\n"
    yield f"{' '.join(schema.get('description', '').split())}\n"
    if "enum" in schema:
        yield f"One of {', '.join(f'`{value}`' for value in schema['enum'])}.\n"
    properties = schema.get("properties", {})
    if properties:
        required = schema.get("required", [])
        yield "| field | type | default |\n|---|---|---|"
        rows = ((field, kind(of), "required" if field in required else default(of)) for field, of in properties.items())
        yield "\n".join(f"| `{field}` | {of} | {usual} |" for field, of, usual in rows) + "\n"


def kind(schema: Schema) -> str:
    """A type in a few words, with links to objects."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(kind(each) for each in sorted(schema["anyOf"], key=lambda each: each.get("type") == "null"))
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    match schema.get("type"):
        case "array" if "prefixItems" in schema:
            return f"list of {', '.join(kind(each) for each in schema['prefixItems'])}"
        case "array":
            return f"list of {kind(schema['items'])}" if "items" in schema else "list"
        case "object":
            rest = schema.get("additionalProperties")
            return f"object of {kind(rest)}" if isinstance(rest, dict) and rest else "object"
        case None:
            return "anything"
        case word:
            return f"{word} ({schema['contentEncoding']})" if "contentEncoding" in schema else str(word)


def default(schema: Schema) -> str:
    if "default" not in schema:
        return "–"
    return f"`{json.dumps(schema['default'])}`" if schema["default"] not in ("", None, [], {}) else "–"
