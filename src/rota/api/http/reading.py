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

BODY_BYTES_MAX = 8 * 1024 * 1024
SUBMISSION_BYTES_MAX = 64 * 1024 * 1024
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
# A form for the parameters of a run has two fields for each.
FORM_FIELDS_MAX = 500
# A body that is too large is read to its end for so long, so that its sender hears why it was refused.
LINGER_S = 5.0

_AT_BYTE = re.compile(r"\(byte (\d+)\)")
_STEPS = re.compile(r"\w+|\[[^\]]*\]")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """No query parameters are taken."""


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


async def read_body(receive: Receive, headers: Headers, kind: type[Struct], bytes_max: int) -> Any:
    """The JSON body as a struct; an empty one is an empty object."""
    content = await _receive(receive, headers, bytes_max)
    if not content:
        return parse(b"{}", kind)
    _check_type(headers, JSON)
    return parse(content, kind)


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
    fields = parse_qsl(content.decode(errors="replace"), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX)
    return read_query(QueryParams(fields), kind)


def parse(content: bytes, kind: type[Struct]) -> Any:
    """JSON as a struct, or a refusal that says where it is wrong."""
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        refused = refusal(str(error))
        unknown = _UNKNOWN.search(str(error))
        if unknown is None:
            raise refused from None
        hint = nearest(unknown[1], _fields_at(kind, refused.path))
        path = f"{refused.path}.{unknown[1]}" if refused.path else unknown[1]
        raise Refused("field.type", f"there is no field {unknown[1]!r}", hint, path=path) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused("http.json", f"this is not JSON: {error}{_place(content, str(error))}") from None
    except RecursionError:
        raise Refused("http.json", "this is nested too deeply") from None


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


async def _receive(receive: Receive, headers: Headers, bytes_max: int) -> bytes:
    if int(headers.get("content-length", "0")) > bytes_max:
        await _discard(receive)
        raise _too_large(bytes_max)
    pieces: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused("http.slow", "the body did not come to its end")
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        more = message.get("more_body", False)
        if size > bytes_max:
            if more:
                await _discard(receive)
            raise _too_large(bytes_max)
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
