"""Where a database is, and how to speak of it without giving a password away."""

import re

import psycopg
from psycopg.conninfo import conninfo_to_dict

from rota.core.errors import Refused

# Leaves room for what goes before it in names that PostgreSQL cuts at 63 bytes.
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")
# How the sessions of all coordinators on a database begin their names.
OURS = "rota:"


class Address:
    """A database, as libpq is told about it. Shown without what is secret."""

    __slots__ = ("_shown", "params")

    def __init__(self, url: str, setting: str) -> None:
        try:
            found = conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            # Its text repeats what it was given.
            text = f"{setting} is not the address of a PostgreSQL database."
            raise Refused("config.value", text, "Write postgresql://USER@HOST:5432/DATABASE.") from None
        self.params = {name: str(value) for name, value in found.items() if value is not None}
        who = f"{self.params['user']}@" if "user" in self.params else ""
        host = self.params.get("host") or self.params.get("hostaddr") or "localhost"
        port = f":{self.params['port']}" if "port" in self.params else ""
        self._shown = f"postgresql://{who}{host}{port}/{self.params.get('dbname', '')}"

    def __str__(self) -> str:
        return self._shown

    __repr__ = __str__


def session_name(part: str, schema: str) -> str:
    """What a session is called in `pg_stat_activity`: whose it is, what it does, on which schema."""
    return f"{OURS}{part}:{schema}"


def check_schema(name: str) -> str:
    """A schema's name that needs no care where it is written into a statement."""
    if not _SCHEMA.fullmatch(name):
        text = f"{name!r} is no name for a schema of Rota's."
        raise Refused("config.value", text, "Use 1 to 40 small letters, digits and underscores.")
    return name
