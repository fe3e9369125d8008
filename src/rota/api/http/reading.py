"""Reading what a caller sent: query parameters and JSON bodies. Nothing is guessed and nothing is ignored."""

import asyncio
import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from typing import Any, get_origin
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct, inspect
from starlette.datastructures import Headers, QueryParams
from starlette.types import Receive

from rota.core.door import refusal
from rota.core.errors import Refused

# What a body may have, unless its endpoint says otherwise. Values in it have up to 256 KiB as MessagePack.
BODY_BYTES_MAX = 512 * 1024
# With ten thousand names of tasks.
NAMES_BYTES_MAX = 2 * 1024 * 1024
# With a graph, whose tasks are decoded in slices.
SUBMISSION_BYTES_MAX = 64 * 1024 * 1024
# How many values, keys aside, JSON may hold: decoding costs time for each, however short it is.
ITEMS_MAX = 70_000
SUBMISSION_ITEMS_MAX = 1_000_000
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
# A form for the parameters of a run has two fields for each.
FORM_FIELDS_MAX = 500
# A body that is too large is read to its end for so long, so that its sender hears why it was refused.
LINGER_S = 5.0

# Before each value of an array or an object there is one of these.
_SIGNS = b"{[,"
# Headers of which one value counts. Two of them could be judged differently by a proxy and by us.
SINGLE_HEADERS = (
    "authorization",
    "content-encoding",
    "content-type",
    "cookie",
    "idempotency-key",
    "last-event-id",
    "origin",
    "rota-claim-token",
    "rota-tenant",
    "sec-fetch-dest",
    "sec-fetch-mode",
    "sec-fetch-site",
)

_AT_BYTE = re.compile(r"\(byte (\d+)\)")
_STEPS = re.compile(r"\w+|\[[^\]]*\]")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """No query parameters are taken."""


def check_single_headers(headers: Headers) -> None:
    """Refuse a request in which a header of `SINGLE_HEADERS` appears more than once, also with equal values."""
    for name in SINGLE_HEADERS:
        count = len(headers.getlist(name))
        if count > 1:
            shown = name.title()
            raise Refused("http.header", f"the request has {count} headers {shown}", "Send it once.", path=shown)


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint with the name that was probably meant, or all there are."""
    names = sorted(known)
    close = get_close_matches(name, names, 1)
    if close:
        return f"Did you mean {close[0]}?"
    return f"There are: {', '.join(names)}." if names else "There are none."


@cache
def _takes_many(kind: type[Struct]) -> dict[str, bool]:
    """Which parameters there are, and whether each may be given several times."""
    return {field.name: get_origin(field.type) is tuple for field in msgspec.structs.fields(kind)}


def read_query(query: QueryParams, kind: type[Struct]) -> Any:
    """Query parameters as a struct. A parameter may be given several times only where many are taken."""
    many = _takes_many(kind)
    given: dict[str, Any] = {}
    for name in query:
        values = query.getlist(name)
        if name not in many:
            raise Refused("field.type", f"there is no query parameter {name!r}", nearest(name, many), path=name)
        if len(values) > 1 and not many[name]:
            raise Refused("field.value", f"the query parameter {name!r} is given {len(values)} times", path=name)
        given[name] = values if many[name] else values[0]
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise refusal(str(error)) from None


async def read_json(receive: Receive, headers: Headers, bytes_max: int, items_max: int) -> bytes:
    """A JSON body that is small enough to be decoded; an empty one is an empty object."""
    content = await _receive(receive, headers, bytes_max, items_max)
    if not content:
        return b"{}"
    _check_type(headers, JSON)
    return content


async def read_bytes(receive: Receive, headers: Headers, media: str, bytes_max: int) -> bytes:
    """A body that is not JSON, as it is."""
    content = await _receive(receive, headers, bytes_max)
    _check_type(headers, media)
    return content


def _check_type(headers: Headers, media: str) -> None:
    encoding = headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise Refused("http.media_type", f"a body encoded as {encoding!r} is not read here", "Send it plain.")
    sort = headers.get("content-type", "").partition(";")[0].strip().lower()
    if sort != media:
        what = f"a body of type {sort!r}" if sort else "a body without a type"
        raise Refused("http.media_type", f"{what} is not read here", f"Send it with Content-Type: {media}.")


async def read_form(receive: Receive, headers: Headers, kind: type[Struct], bytes_max: int) -> Any:
    """What a form of ours was filled in with."""
    content = await _receive(receive, headers, bytes_max)
    sort = headers.get("content-type", "").partition(";")[0].strip().lower()
    if content and sort != FORM:
        raise Refused("http.media_type", f"a body of type {sort!r} is not read here", "Send the form as it is.")
    if content.count(b"&") >= FORM_FIELDS_MAX:
        raise Refused("field.size", f"the form has more than {FORM_FIELDS_MAX} fields", "Send fewer at once.")
    fields = parse_qsl(content.decode(errors="replace"), keep_blank_values=True)
    return read_query(QueryParams(fields), kind)


def count_items(content: bytes) -> int:
    """How many values JSON holds, at most. Signs inside texts are counted too: telling them apart would take longer."""
    return len(content) - len(content.translate(None, _SIGNS))


def check_items(content: bytes, items_max: int, path: str = "") -> None:
    """Refuse JSON with more values than can be decoded at once."""
    # Fewer bytes than that cannot hold as many.
    if len(content) > items_max and count_items(content) > items_max:
        raise _too_many(items_max, path)


def parse(content: bytes, kind: Any, described: type[Struct] | None = None) -> Any:
    """JSON as a struct, or a refusal that says where it is wrong.

    `described` is the type that callers know, if `kind` is another form of it.
    """
    return parse_part(content, kind, "", described or kind)


def parse_part(content: bytes, kind: Any, where: str, described: type[Struct]) -> Any:
    """Likewise for a part of a body of the type `described`, at the path `where`."""
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        refused = refusal(str(error))
        refused.path = (
            f"{where}.{refused.path}" if where and refused.path[:1] not in ("", "[") else where + refused.path
        )
        unknown = _UNKNOWN.search(str(error))
        if unknown is None:
            raise refused from None
        hint = nearest(unknown[1], _fields_at(described, refused.path))
        path = f"{refused.path}.{unknown[1]}" if refused.path else unknown[1]
        raise Refused("field.type", f"there is no field {unknown[1]!r}", hint, path=path) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        place = f", in {where}" if where else _place(content, str(error))
        raise Refused("http.json", f"this is not JSON: {error}{place}", path=where) from None
    except RecursionError:
        raise Refused("http.json", "this is nested too deeply", path=where) from None


def _place(content: bytes, text: str) -> str:
    found = _AT_BYTE.search(text)
    if found is None:
        return ""
    before = content[: int(found[1])]
    line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
    return f", in line {line}, column {column}"


def _fields_at(kind: type[Struct], path: str) -> list[str]:
    """The fields that there are at a path, such as `graph.tasks[0]`."""
    here: Any = inspect.type_info(kind)
    for step in _STEPS.findall(path):
        here = _struct_in(here)
        if isinstance(here, inspect.StructType):
            here = next((field.type for field in here.fields if field.encode_name == step), here)
        elif isinstance(here, inspect.DictType):
            here = here.value_type
        else:
            here = getattr(here, "item_type", here)
    here = _struct_in(here)
    return [field.encode_name for field in here.fields] if isinstance(here, inspect.StructType) else []


def _struct_in(here: Any) -> Any:
    """Of several types the one that has parts."""
    if isinstance(here, inspect.UnionType):
        return next((each for each in here.types if not isinstance(each, inspect.NoneType)), here)
    return here


async def _receive(receive: Receive, headers: Headers, bytes_max: int, items_max: int = 0) -> bytes:
    """The whole body. Its bytes, and with `items_max` its items, are counted as they come."""
    if int(headers.get("content-length", "0")) > bytes_max:
        await _discard(receive)
        raise _too_large(bytes_max)
    pieces: list[bytes] = []
    size = items = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused("http.slow", "the body did not come to its end")
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        more = message.get("more_body", False)
        items += count_items(pieces[-1]) if items_max else 0
        if size > bytes_max or items > items_max:
            pieces.clear()
            if more:
                await _discard(receive)
            raise _too_large(bytes_max) if size > bytes_max else _too_many(items_max)
    return b"".join(pieces)


async def _discard(receive: Receive) -> None:
    try:
        async with asyncio.timeout(LINGER_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def _too_large(bytes_max: int) -> Refused:
    return Refused("field.size", f"the body has more than {bytes_max} bytes", "Send less at once.")


def _too_many(items_max: int, path: str = "") -> Refused:
    text = f"more than {items_max:,} values are too many to be read at once"
    return Refused("field.size", text, "Send less at once, or large values as files or blobs.", path=path)
