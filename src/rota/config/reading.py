"""From options, environment and a file to one `Config`, or to a refusal that says which value and where it stands.

An option beats a variable, a variable beats the file, the file beats the default.
"""

import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from ipaddress import ip_network
from pathlib import Path
from typing import Any, cast

import msgspec

from rota.config.addresses import check_host, check_store_url, has_password, read_address, read_target
from rota.config.definitions import KINDS, SCHEDULERS, read_definitions
from rota.config.folders import folders_by_tenant
from rota.config.json5 import Json5Error, read_json5
from rota.config.lines import lines_of
from rota.config.secret import Secret
from rota.config.settings import SECTIONS, SETTINGS, Config, Definitions, Setting
from rota.config.spawners import SPAWNERS, SpawnerSettings, read_spawners
from rota.core.bounds import check_ladder
from rota.core.errors import Refused
from rota.core.graph import check_id, check_text

FILE = "rota.toml"
# The other form that a file may have; it is known by its name.
JSON5 = ".json5"
FILE_VARIABLE = "ROTA_CONFIG"
FILE_BYTES_MAX = 1 << 20

_BY_PATH = {setting.path: setting for setting in SETTINGS}
_HEXADECIMAL = re.compile("0x[0-9a-fA-F]{1,16}")
_SECRET_WORDS = ("token", "secret", "password")


class _File:
    """What a settings file says, and where."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            content = path.read_bytes()
        except OSError as error:
            hint = f"Name it with --config or {FILE_VARIABLE}."
            raise Refused("config.file", f"{path} cannot be read: {error.strerror}", hint) from None
        if len(content) > FILE_BYTES_MAX:
            raise Refused("config.file", f"{path} has {len(content)} bytes", f"Use at most {FILE_BYTES_MAX}.")
        kind = "JSON5" if path.suffix == JSON5 else "TOML"
        try:
            text = content.decode()
            self.tables, self._lines = _read_json5(text) if kind == "JSON5" else (tomllib.loads(text), lines_of(text))
        except (UnicodeDecodeError, tomllib.TOMLDecodeError, Json5Error) as error:
            # The message of a decoder names a place; only this one could hold a piece of the text.
            what = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
            raise Refused("config.file", f"{path} is not {kind}: {what}") from None

    def where(self, path: str) -> str:
        """File and line of a key, or of the table it is in."""
        while path and path not in self._lines:
            path = path.rpartition("." if "." in path else "[")[0]
        return f"{self.path}:{self._lines[path]}" if path else str(self.path)

    def unknown(self, path: str, key: str, known: list[str]) -> Refused:
        """The refusal of a key that is none."""
        if any(word in key.lower() for word in _SECRET_WORDS):
            return _no_secrets(path, self.where(path))
        near = get_close_matches(key, known, 1)
        hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known)}."
        return Refused(
            "config.unknown", f"there is no setting {path!r}", f"{hint} It is at {self.where(path)}.", path=path
        )

    def settings(self) -> dict[str, object]:
        """Values by the path of their setting. Every key is known."""
        found: dict[str, object] = {}
        for section, table in self.tables.items():
            if section in KINDS:
                self._need_table(section, table)
                continue
            if section in (SCHEDULERS, SPAWNERS):
                continue
            if section not in SECTIONS:
                raise self.unknown(section, section, [*SECTIONS, *KINDS, SCHEDULERS, SPAWNERS])
            for name, value in self._need_table(section, table).items():
                path = f"{section}.{name}"
                if path not in _BY_PATH:
                    raise self.unknown(path, name, [each.name for each in SETTINGS if each.section == section])
                if _BY_PATH[path].is_secret:
                    raise _no_secrets(path, self.where(path))
                found[path] = value
        return found

    def _need_table(self, section: str, table: object) -> dict[str, object]:
        if not isinstance(table, dict):
            hint = f"Write [{section}] on a line of its own. It is at {self.where(section)}."
            raise Refused("config.value", f"{section!r} is a table", hint, path=section)
        return cast(dict[str, object], table)


def load_config(
    options: Mapping[str, object] | None = None, env: Mapping[str, str] | None = None, file: str | None = None
) -> Config:
    """All settings. `options` are by path (`server.listen`), and None in them means that nothing was said.

    `file` is what `--config` named. Without it ROTA_CONFIG does, and else ./rota.toml or ./rota.json5 is read if there
    is one.
    """
    env = env or {}
    found = _find_file(file, env)
    values: dict[str, tuple[object, str]] = {}
    definitions = Definitions()
    spawners: tuple[SpawnerSettings, ...] = ()
    if found is not None:
        for path, value in found.settings().items():
            values[path] = (_as_given(_BY_PATH[path], value, found.where(path)), found.where(path))
        definitions = read_definitions(found.tables, found.where, found.unknown)
        spawners = read_spawners(found.tables.get(SPAWNERS, {}), found.where, found.unknown)
    for setting in SETTINGS:
        if setting.env and setting.env in env:
            values[setting.path] = (_from_text(setting, env[setting.env]), setting.env)
    for path, value in (options or {}).items():
        if value is not None:
            values[path] = (_from_option(_BY_PATH[path], value), "option")
    for path, (value, source) in values.items():
        _check(path, value, source)
    sections: dict[str, Any] = {
        section: kind(**{each.name: values[each.path][0] for each in SETTINGS if _is_given(each, section, values)})
        for section, kind in SECTIONS.items()
    }
    config = Config(
        **sections,
        definitions=definitions,
        spawners=spawners,
        sources={path: source for path, (_, source) in values.items()},
        file=str(found.path) if found is not None else "",
    )
    _check_patience(config)
    check_ladder(config.server.limits)
    return config


def _check_patience(config: Config) -> None:
    """The one rung of the ladder that two settings could break."""
    server, path = config.server, "server.dispatch_timeout_s"
    if server.dispatch_timeout_s >= server.heartbeat_timeout_s:
        reason = f"expected less than server.heartbeat_timeout_s, which is {server.heartbeat_timeout_s}"
        raise _refusal(_BY_PATH[path], reason, config.sources[path])


def _is_given(setting: Setting, section: str, values: Mapping[str, object]) -> bool:
    return setting.section == section and setting.path in values


def _find_file(named: str | None, env: Mapping[str, str]) -> _File | None:
    name = named if named is not None else env.get(FILE_VARIABLE)
    if name is not None:
        return _File(Path(name))
    found = [path for path in (Path(FILE), Path(FILE).with_suffix(JSON5)) if path.exists()]
    if len(found) > 1:
        raise Refused("config.file", f"there are {found[0]} and {found[1]}", "Name one with --config, or remove one.")
    return _File(found[0]) if found else None


def _read_json5(text: str) -> tuple[dict[str, Any], dict[str, int]]:
    value, lines = read_json5(text)
    if not isinstance(value, dict):
        raise Json5Error("expected a table, in braces")
    return cast(dict[str, Any], value), lines


def _no_secrets(path: str, where: str) -> Refused:
    hint = f"Put it into the variable of its own, or into auth.token_file, and remove it at {where}."
    return Refused("config.secret", f"{path!r} would be a secret in a file that others read", hint, path=path)


def _no_password(path: str, where: str) -> Refused:
    name = _BY_PATH[path].env
    hint = f"Put the URL into {name}, or the password where the client library finds it (PGPASSFILE). It is at {where}."
    return Refused("config.secret", f"{path!r} has a password in it, and others read it there", hint, path=path)


def _refusal(setting: Setting, reason: str, source: str) -> Refused:
    return Refused("config.value", reason, f"It comes from {source}: {setting.what}.", path=setting.path)


def _as_given(setting: Setting, value: object, source: str) -> object:
    """A value that has a type already."""
    if setting.path == "worker.properties" and isinstance(value, dict):
        value = {name: _as_words(each) for name, each in cast(dict[str, object], value).items()}
    try:
        return msgspec.convert(value, setting.kind)
    except msgspec.ValidationError as error:
        raise _refusal(setting, _said(error), source) from None


def _as_words(value: object) -> object:
    """A property may be written as a number; workers and tasks compare words."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return [_as_words(each) for each in cast(list[object], value)] if isinstance(value, list) else value


def _from_text(setting: Setting, text: str, source: str = "") -> object:
    """A value that came as text."""
    if setting.is_secret:
        return Secret(text)
    value: object = text
    if setting.plain_kind is int and _HEXADECIMAL.fullmatch(text):
        # As a lock's number is written elsewhere.
        value = int(text, 16)
    if setting.is_list:
        value = [word.strip() for word in text.split(",") if word.strip()]
    try:
        return msgspec.convert(value, setting.kind, strict=False)
    except msgspec.ValidationError as error:
        raise _refusal(setting, _said(error), source or setting.env) from None


def _from_option(setting: Setting, value: object) -> object:
    if isinstance(value, str):
        return _from_text(setting, value, "an option")
    return _as_given(setting, value, "an option")


def _said(error: msgspec.ValidationError) -> str:
    """The reason without msgspec's path: it tells what was expected, and never the value."""
    reason = str(error).partition(" - at `$")[0]
    return reason[:1].lower() + reason[1:]


def _check(path: str, value: object, source: str) -> None:
    """What a type cannot say."""
    try:
        if path in ("server.listen", "server.http", "builds.listen", "builds.http", "queries.listen") and value:
            read_address(str(value), path)
        elif path == "client.coordinator":
            for each in str(value).split(","):
                read_target(each.strip(), path)
        elif path in ("server.store", "server.lock_url") and value:
            check_store_url(str(value), path)
            if has_password(str(value)) and source != _BY_PATH[path].env:
                raise _no_password(path, source)
        elif path == "server.advertise" and value:
            check_host(str(value), path)
        elif path in ("client.tenant", "worker.name"):
            check_id(str(value), path)
        elif path in ("worker.tenants", "worker.queues"):
            for name in cast(tuple[str, ...], value):
                check_id(name, path)
        elif path == "worker.egress_allow":
            for network in cast(tuple[str, ...], value):
                _check_network(network, path)
        elif path == "streams.folders":
            folders_by_tenant(cast(tuple[str, ...], value), path)
        elif path in ("worker.properties", "worker.property_commands"):
            _check_properties(cast(dict[str, str | tuple[str, ...]], value), path)
    except Refused as refused:
        if refused.code == "config.secret":
            raise
        hint = f"{refused.hint} It comes from {source}.".strip()
        raise Refused("config.value", refused.reason, hint, path=refused.path) from None


def _check_network(text: str, path: str) -> None:
    try:
        ip_network(text)
    except ValueError as error:
        hint = "Write it as 10.0.0.0/8 or 192.168.1.5."
        raise Refused("config.value", f"not a network: {error}", hint, path=path) from None


def _check_properties(properties: dict[str, str | tuple[str, ...]], path: str) -> None:
    for name, value in properties.items():
        check_id(name, path)
        words = (value,) if isinstance(value, str) else value
        if not words:
            raise Refused("config.value", "there is nothing in the list", path=f"{path}.{name}")
        for word in words:
            check_text(word, f"{path}.{name}")
