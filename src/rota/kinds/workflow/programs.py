"""Tasks without a function: programs to run, and requests to send. Their texts may be templates."""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from msgspec import structs

from rota.core.errors import Refused
from rota.kinds.workflow.arguments import Taken
from rota.kinds.workflow.draft import Draft, Output, current
from rota.kinds.workflow.options import TaskOptions, check_options
from rota.kinds.workflow.tasks import limited
from rota.kinds.workflow.template_fields import COMMAND_CALL, HTTP_CALL, as_text, as_texts, has_templates, take_fields
from rota.running import Request
from rota.wire.templates import is_template
from rota.wire.web import check_request
from rota.wire.work import COMMAND, HTTP, CommandWork, HttpWork, PythonWork, prepared


def command(
    line: str | Sequence[Any],
    /,
    *,
    env: Mapping[str, Any] | None = None,
    cwd: str = "",
    **options: Unpack[TaskOptions],
) -> Output:
    """A task that runs a program: a line for the shell, or a list of words that is run as it is.

    The line, words, variables and the folder may be templates, outputs and parameters. The last line that it prints is
    what it gives; with exit code 99 it is skipped.
    """
    draft = _draft("command")
    said = check_options(options)
    words: list[Any] = line.split() if isinstance(line, str) else list(line)
    if not words:
        raise Refused("field.value", "a command needs at least one word", path="command")
    name = said.get("id") or _program(words[0])
    fields: dict[str, Any] = {
        "line": line if isinstance(line, str) else [as_text(word) for word in words],
        "env": as_texts(env),
        "cwd": as_text(cwd),
    }
    if has_templates(COMMAND_CALL, fields):
        taken = Taken(draft, name)
        call = _preparing(draft, COMMAND_CALL, taken, fields)
        return draft.add(name, COMMAND, CommandWork(call=call), said, taken.upstream)
    work = CommandWork(
        argv=() if isinstance(line, str) else tuple(fields["line"]),
        shell=line if isinstance(line, str) else "",
        env=tuple(fields["env"].items()),
        cwd=fields["cwd"],
    )
    return draft.add(name, COMMAND, work, said, ())


def http(
    method: str,
    url: str,
    /,
    *,
    headers: Mapping[str, Any] | None = None,
    body: bytes | str = b"",
    json: Any = None,
    accepted: Sequence[int] = (200, 201, 202, 204),
    **options: Unpack[TaskOptions],
) -> Output:
    """A task that sends a request and gives what is answered: a value if it is JSON, else a text or bytes.

    A status that is not accepted is a failure, tried again as the task's retries say. Address, headers and body may be
    templates. Definitions are stored as they are written: anybody who may read runs may read the headers.
    """
    draft = _draft("http")
    said, timeout_ms = limited(draft, check_options(options))
    fields: dict[str, Any] = {"url": url, "headers": dict(headers or {}), "body": body, "json": json}
    if has_templates(HTTP_CALL, fields):
        return _http_later(draft, said, timeout_ms, {"method": method, **fields, "accepted": list(accepted)})
    request = Request(method, url, headers=headers, json=json, body=body, accepted=accepted)
    work = HttpWork(
        method=request.method,
        url=request.url,
        headers=tuple(request.headers.items()),
        body=request.body,
        accepted=request.accepted,
        timeout_ms=timeout_ms,
    )
    host = check_request(work).hostname or ""
    return draft.add(said.get("id") or f"{work.method.lower()}-{host}", HTTP, work, said, ())


def _http_later(draft: Draft, said: TaskOptions, timeout_ms: int, fields: dict[str, Any]) -> Output:
    """A request that is put together where user code runs, and checked again where it is sent."""
    method, accepted = fields["method"], tuple(fields["accepted"])
    # What is known already is checked here; the rest of it stands for itself.
    check_request(HttpWork(method=method.upper(), url="https://example.org", accepted=accepted, timeout_ms=timeout_ms))
    if fields["json"] is not None and fields["body"]:
        raise TypeError("a request has one body: json or body")
    name = said.get("id") or method.lower()
    taken = Taken(draft, name)
    call = _preparing(draft, HTTP_CALL, taken, fields)
    call = structs.replace(call, function=f"{Request.__module__}:{Request.__qualname__}")
    return draft.add(name, HTTP, HttpWork(timeout_ms=timeout_ms, call=call), said, taken.upstream)


def _preparing(draft: Draft, way: str, taken: Taken, fields: dict[str, Any]) -> PythonWork:
    """A call that gives these fields, once what is in them is known."""
    function = f"{prepared.__module__}:{prepared.__qualname__}"
    kwargs = take_fields(way, taken, fields)
    return PythonWork(function=function, kwargs=kwargs, is_preparing=True, zone=draft.zone)


def _program(word: Any) -> str:
    """The name of a program; of one that is not known yet, what it is."""
    if not isinstance(word, str) or is_template(word):
        return COMMAND
    return word.rsplit("/", 1)[-1] or COMMAND


def _draft(what: str) -> Draft:
    draft = current.get()
    if draft is None:
        raise TypeError(f"{what}() makes a task of a workflow: call it inside a function decorated with @workflow")
    return draft
