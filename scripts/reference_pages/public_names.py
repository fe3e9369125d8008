"""docs/reference/python.md: the public names of `rota`: how each is called, its options, what its docstring says."""

import ast
import inspect
import re
import textwrap
import typing
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import rota
from rota.app.embedded import Options
from rota.app.remote import RemoteOptions
from rota.app.sql.cluster import Choices
from rota.app.sql.frames import DataFrame
from rota.app.sql.handles import QueryHandle
from rota.app.sql.session import Prepared
from rota.client.blocking import BlockingRun
from rota.client.blocking_items import BlockingClaim, BlockingItem, BlockingSession
from rota.client.items import Item
from rota.client.runs import Run
from rota.client.sessions import AgentSession, WorkClaim
from rota.kinds.workflow.authoring import WorkflowOptions
from rota.kinds.workflow.options import TaskOptions
from rota.testing import Trial, pass_time, run_workflow

HEAD = """# Python

The public names of `rota`, and of what they give. This page is written by `scripts/reference` from the code; how the
names are used is in the [guides](../guides/index.md). What stands in neither is not public, and may change.
"""

# Of each part: a heading, and what stands under it by its name. What is not of `rota` itself is called as guides do.
PARTS: dict[str, dict[str, Any]] = {
    "Writing workflows": {
        "rota.workflow": rota.workflow,
        "rota.task": rota.task,
        "rota.task_group": rota.task_group,
        "rota.command": rota.command,
        "rota.http": rota.http,
        "rota.chain": rota.chain,
        "rota.literal": rota.literal,
        "rota.logical_date": rota.logical_date,
        "rota.Param": rota.Param,
    },
    "Inside a task": {
        "rota.context": rota.context,
        "rota.Context": rota.Context,
        "rota.Request": rota.Request,
        "rota.Skip": rota.Skip,
        "rota.Fail": rota.Fail,
        "rota.Reschedule": rota.Reschedule,
    },
    "Clients": {
        "rota.Rota": rota.Rota,
        "rota.AsyncRota": rota.AsyncRota,
        "rota.connect": rota.connect,
        "rota.submit_work": rota.submit_work,
        "rota.Recorder": rota.Recorder,
        "Run": BlockingRun,
        "Item": BlockingItem,
        "AgentSession": BlockingSession,
        "Claim": BlockingClaim,
    },
    "SQL": {
        "rota.Session": rota.Session,
        "rota.StreamSession": rota.StreamSession,
        "DataFrame": DataFrame,
        "Prepared": Prepared,
        "QueryHandle": QueryHandle,
    },
    "What is raised": {
        "rota.Refused": rota.Refused,
        "rota.Unavailable": rota.Unavailable,
        "rota.RunFailed": rota.RunFailed,
        "rota.DeployFailed": rota.DeployFailed,
    },
    "Tests of your own": {
        "rota.testing.run_workflow": run_workflow,
        "rota.testing.pass_time": pass_time,
        "rota.testing.Trial": Trial,
    },
    "Version": {"rota.__version__": rota.__version__},
}

# Options that are taken as keywords, under the name that takes them.
OPTIONS: dict[str, list[tuple[str, type]]] = {
    "rota.workflow": [("Options ([what they mean](../guides/workflows.md#schedules))", WorkflowOptions)],
    "rota.task": [("Options ([what they mean](../guides/workflows.md#options-of-tasks))", TaskOptions)],
    "rota.Rota": [("Options of `embedded`", Options), ("Options of `connect`", RemoteOptions)],
    "rota.Session": [("Choices of `connect` and `on` ([what they mean](../guides/queries.md#on-workers))", Choices)],
}

# A blocking method whose docstring only points to the one that is awaited says what that one says.
AWAITED: dict[str, type] = {
    "rota.Rota": rota.AsyncRota,
    "Run": Run,
    "Item": Item,
    "AgentSession": AgentSession,
    "Claim": WorkClaim,
}
AWAITED_ALONE = {"rota.connect": rota.AsyncRota.connect}
# What is not said by a docstring.
NOTES = {
    "rota.AsyncRota": "It has the methods of [rota.Rota](#rotarota), to be awaited; what they give has them likewise.",
    "rota.Context": "Its fields: `run`, `workflow`, `version`, `task`, `map_index`, `attempt`, `fence`, `deadline_at`"
    " ([in a task](../guides/workflows.md#in-a-task)).",
}
# For their own use, though their names do not say so.
INNER = {"take_growth", "plain", "resume_at", "put_bundle", "happened", "complete_claim", "renew_claim"}
# Its methods are those of rota.Rota, and more that are for our own parts.
UNLISTED = {"rota.AsyncRota"}
# Classes that programs make objects of by calling them; of the others they are given some.
MADE = {"rota.Param", "rota.Request", "rota.Reschedule", "rota.Session", "rota.Refused", "rota.Unavailable"}

_POINTS = re.compile(r"[;.,]? see `[\w.]+`", re.IGNORECASE)
# Of a docstring that goes through the keys: "`slots`: how many tasks run at once; …"
_LISTED = re.compile(r"`(\w+)`(?:, `\w+`)*: (.*?)(?= `\w+`(?:, `\w+`)*: |$)")
_PATHS = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])")


def page() -> str:
    parts = [HEAD]
    for title, names in PARTS.items():
        parts.append(f"## {title}\n")
        for name, thing in names.items():
            parts += described(name, thing)
    return "\n".join(parts).rstrip() + "\n"


def described(name: str, thing: Any) -> Iterator[str]:
    yield f"### {name}\n"
    if isinstance(thing, str):
        yield "The version that is installed, as text.\n"
        return
    call = signature(thing) if name in MADE or not inspect.isclass(thing) else ""
    if call:
        yield f"```\n{name}{call}\n```\n"
    yield f"{_POINTS.sub('', told(AWAITED_ALONE.get(name, thing)))}\n"
    if name in NOTES:
        yield f"{NOTES[name]}\n"
    for title, options in OPTIONS.get(name, []):
        yield f"{title}:\n\n| option | type | |\n|---|---|---|"
        yield (
            "\n".join(f"| `{option}` | `{cell(kind)}` | {cell(text)} |" for option, kind, text in fields(options))
            + "\n"
        )
    rows = list(members(name, thing)) if inspect.isclass(thing) or name == "rota.task" else []
    if rows:
        yield "| member | |\n|---|---|"
        yield "\n".join(f"| `{cell(call)}` | {cell(text)} |" for call, text in rows) + "\n"


def members(owner: str, thing: Any) -> Iterator[tuple[str, str]]:
    """Public methods and properties, in the order in which they are written."""
    kind = thing if inspect.isclass(thing) else type(thing)
    if owner in UNLISTED:
        return
    seen: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("rota"):
            seen.update({name: value for name, value in vars(base).items() if not name.startswith("_")})
    for name, value in seen.items():
        if name in INNER or not (callable(value) or isinstance(value, property | classmethod | staticmethod)):
            continue
        found = getattr(kind, name)
        text = told(found)
        awaited = getattr(AWAITED.get(owner), name, None)
        if _POINTS.search(text) and awaited is not None:
            text = told(awaited)
        yield (name if isinstance(value, property) else f"{name}{signature(found)}"), _POINTS.sub("", text)


def signature(thing: Any) -> str:
    """As it is called: without `self`, without what it gives, and with short names of types."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    taken = [each for each in found.parameters.values() if each.name != "self"]
    plain = [each.replace(annotation=each.empty) for each in taken]
    return str(found.replace(parameters=plain, return_annotation=found.empty))


def told(thing: Any) -> str:
    """The docstring, its paragraphs put together."""
    return " ".join((inspect.getdoc(thing) or "").split())


def fields(options: type) -> Iterator[tuple[str, str, str]]:
    """The keys of options with their types, and what a comment above one, or the docstring, says of it."""
    module = import_module(options.__module__)
    lines = textwrap.dedent(inspect.getsource(options)).splitlines()
    tree = ast.parse("\n".join(lines)).body[0]
    assert isinstance(tree, ast.ClassDef)
    hints = typing.get_type_hints(options, vars(module))
    listed = dict(_LISTED.findall(" ".join((options.__doc__ or "").split())))
    said = {
        each.target.id: (
            comment_above(lines, each.lineno) or listed.get(each.target.id, ""),
            ast.unparse(each.annotation),
        )
        for each in tree.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    before = ""
    for name, hint in hints.items():
        comment, kind = said.get(name, ("", _PATHS.sub("", str(hint))))
        # A comment is about all that stand below it, up to the next one.
        yield name, kind, comment or (before and "as above")
        before = comment or before


def comment_above(lines: list[str], number: int) -> str:
    found: list[str] = []
    for line in reversed(lines[: number - 1]):
        if not line.strip().startswith("#"):
            break
        found.insert(0, line.strip().removeprefix("#").strip())
    return " ".join(found)


def cell(text: str) -> str:
    """A text that may stand in a cell. A bar in it would need a backslash, which some readers show inside of code."""
    return text.replace(" | ", " or ").replace("\n", " ")
