"""Spawners, as a file defines them: who is started when there is work that nobody could have.

`[spawners.NAME]` with a command starts agents by that command; without one it starts workers of this machine. What is
offered is written down here, because whether it would help is decided before anything is started.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta, Struct

from rota.config.lines import Unknown, Where
from rota.core.bounds import ID_CHARS_MAX, WORKER_SLOTS_MAX
from rota.core.errors import Refused
from rota.core.graph import check_id, check_text
from rota.core.ids import DEFAULT_TENANT

SPAWNERS = "spawners"
# A workspace or channel of this name stands for that of the work.
ANY = "*"
# What a command may say of whom it starts and what for.
PLACEHOLDERS = ("agent", "capabilities", "channel", "coordinator", "item", "session", "tenant", "workspace")

_OF_AGENTS = ("agent", "capabilities", "channels", "env", "folder", "shell", "tenant", "token_file", "workspaces")
_OF_WORKERS = ("properties", "queues", "slots")
_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Words = tuple[str, ...]


class SpawnerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One spawner. docs/reference/settings.md says why one would change each of these."""

    name: str
    command: Words = ()
    # Of agents.
    tenant: Annotated[str, Meta(min_length=1, max_length=ID_CHARS_MAX)] = DEFAULT_TENANT
    agent: str = ""
    workspaces: Words = ()
    channels: Words = ()
    capabilities: Words = ()
    shell: bool = False
    folder: str = ""
    env: Words = ()
    token_file: str = ""
    # Of workers.
    slots: Annotated[int, Meta(ge=1, le=WORKER_SLOTS_MAX)] = 1
    queues: Words = ()
    properties: dict[str, str | Words] = msgspec.field(default_factory=dict[str, str | Words])
    # Of both.
    max_alive: Annotated[int, Meta(ge=1, le=1_000)] = 1
    cooldown_s: Annotated[int, Meta(ge=0, le=3_600)] = 30
    starts_per_hour: Annotated[int, Meta(ge=1, le=1_000)] = 10
    lifetime_s: Annotated[int, Meta(ge=0, le=30 * 86_400)] = 3_600


KEYS = tuple(name for name in SpawnerSettings.__struct_fields__ if name != "name")


def read_spawners(tables: object, where: Where, unknown: Unknown) -> tuple[SpawnerSettings, ...]:
    """The spawners in a file."""
    if not isinstance(tables, dict):
        hint = f"Write [{SPAWNERS}.NAME] on a line of its own. It is at {where(SPAWNERS)}."
        raise Refused("config.value", "spawners are tables with names", hint, path=SPAWNERS)
    return tuple(_read(name, table, where, unknown) for name, table in cast(dict[str, object], tables).items())


def _read(name: str, table: object, where: Where, unknown: Unknown) -> SpawnerSettings:
    path = f"{SPAWNERS}.{name}"
    if not isinstance(table, dict):
        hint = f"Write [{path}] on a line of its own. It is at {where(path)}."
        raise Refused("config.value", "a spawner is a table", hint, path=path)
    content = cast(dict[str, Any], table)
    for key in content:
        if key not in KEYS:
            raise unknown(f"{path}.{key}", key, list(KEYS))
    try:
        check_id(name, "name")
        settings = _convert(name, content)
        _check(settings, content)
    except Refused as refused:
        inner = f"{path}.{refused.path}" if refused.path else path
        hint = f"{refused.hint} It is at {where(inner)}.".strip()
        raise Refused("config.value", refused.reason, hint, path=inner) from None
    return settings


def _convert(name: str, content: Mapping[str, Any]) -> SpawnerSettings:
    """One key at a time, so that it is said which is wrong."""
    if isinstance(content.get("properties"), dict):
        properties = cast(dict[str, object], content["properties"])
        content = {**content, "properties": {key: _as_words(value) for key, value in properties.items()}}
    for key, value in content.items():
        try:
            msgspec.convert({"name": name, key: value}, SpawnerSettings)
        except msgspec.ValidationError as error:
            reason = str(error).partition(" - at `$")[0]
            raise Refused("config.value", reason[:1].lower() + reason[1:], path=key) from None
    return msgspec.convert({"name": name, **content}, SpawnerSettings)


def _as_words(value: object) -> object:
    """A property may be written as a number; workers and tasks compare words."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return [_as_words(each) for each in cast(list[object], value)] if isinstance(value, list) else value


def _check(settings: SpawnerSettings, given: Mapping[str, object]) -> None:
    """What a type cannot say."""
    is_agent = bool(settings.command)
    for key in _OF_WORKERS if is_agent else _OF_AGENTS:
        if key in given:
            what = "agents, which a command starts" if is_agent else "workers, which need no command"
            raise Refused("config.value", f"this spawner starts {what}", f"Remove {key!r}.", path=key)
    check_id(settings.tenant, "tenant")
    for name in settings.queues:
        check_id(name, "queues")
    for key, names in (("workspaces", settings.workspaces), ("channels", settings.channels)):
        for name in names:
            check_text(name, key)
    for word in settings.command:
        _check_word(word)
    if settings.shell and len(settings.command) > 1:
        raise Refused("config.value", "a shell is given one text", "Write the command as one word.", path="command")
    for name in settings.env:
        if not _VARIABLE.fullmatch(name):
            hint = "Name variables; their values are those of this service."
            raise Refused("config.value", f"{name[:40]!r} is no name of a variable", hint, path="env")
        if name.startswith("ROTA_"):
            hint = "What it needs to reach the coordinator it is given anyway."
            raise Refused("config.value", f"{name} is this service's own", hint, path="env")


def _check_word(word: str) -> None:
    for found in _BRACES.finditer(word):
        if found[0] not in ("{{", "}}") and found[1] not in PLACEHOLDERS:
            hint = f"There are: {', '.join(f'{{{name}}}' for name in PLACEHOLDERS)}; a brace itself is written twice."
            raise Refused("config.value", f"{found[0][:40]!r} is no placeholder", hint, path="command")


def render(word: str, values: Mapping[str, str]) -> str:
    """A word of a command with its placeholders filled in. What is put in is not looked at again."""

    def fill(found: re.Match[str]) -> str:
        return values[found[1]] if found[1] is not None else found[0][0]

    return _BRACES.sub(fill, word)
