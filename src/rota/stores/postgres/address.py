"""Where a database is, and how to speak of it without giving a password away."""

import re
from collections.abc import Iterator

import psycopg
from psycopg.conninfo import conninfo_to_dict

from rota.core.errors import Refused

# Leaves room for what goes before it in names that PostgreSQL cuts at 63 bytes.
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")
# How the sessions of all coordinators on a database begin their names.
OURS = "rota:"
# What has a value for each host.
_LISTED = ("host", "hostaddr", "port")


class Address:
    """A database, as libpq is told about it. Shown without what is secret."""

    __slots__ = ("_shown", "hosts")

    def __init__(self, url: str, setting: str) -> None:
        try:
            found = conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            # Its text repeats what it was given.
            text = f"{setting} is not the address of a PostgreSQL database."
            raise Refused("config.value", text, "Write postgresql://USER@HOST:5432/DATABASE.") from None
        params = {name: str(value) for name, value in found.items() if value is not None}
        # What is to be tried in turn: the parameters of each host.
        self.hosts = tuple(_each_host(params, setting))
        who = f"{params['user']}@" if "user" in params else ""
        shown = ",".join(_shown(host) for host in self.hosts)
        self._shown = f"postgresql://{who}{shown}/{params.get('dbname', '')}"

    def __str__(self) -> str:
        return self._shown

    __repr__ = __str__


def _each_host(params: dict[str, str], setting: str) -> Iterator[dict[str, str]]:
    """Several hosts are written with commas between them, their ports too, or one port for all."""
    listed = {name: params[name].split(",") for name in _LISTED if name in params}
    number = max((len(listed[name]) for name in ("host", "hostaddr") if name in listed), default=1)
    if any(len(values) not in (1, number) for values in listed.values()):
        text = f"{setting} names {number} hosts, and another number of ports or addresses."
        raise Refused("config.value", text, "Write postgresql://USER@HOST:5432,HOST:5432/DATABASE.")
    for place in range(number):
        own = {name: values[place if len(values) > 1 else 0] for name, values in listed.items()}
        yield {name: value for name, value in {**params, **own}.items() if value or name not in _LISTED}


def _shown(host: dict[str, str]) -> str:
    port = f":{host['port']}" if "port" in host else ""
    return f"{host.get('host') or host.get('hostaddr') or 'localhost'}{port}"


def session_name(part: str, schema: str) -> str:
    """What a session is called in `pg_stat_activity`: whose it is, what it does, on which schema."""
    return f"{OURS}{part}:{schema}"


def check_schema(name: str) -> str:
    """A schema's name that needs no care where it is written into a statement."""
    if not _SCHEMA.fullmatch(name):
        text = f"{name!r} is no name for a schema of Rota's."
        raise Refused("config.value", text, "Use 1 to 40 small letters, digits and underscores.")
    return name
