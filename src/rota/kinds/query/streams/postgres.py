"""A table of PostgreSQL as a sink: rows are upserted by their keys, each round in one transaction.

The same transaction writes down the number of the round, so that a round which is committed again changes nothing, and
an incarnation that was deposed cannot commit at all.
"""

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from rota.core.errors import Refused
from rota.kinds.query.streams.windowing import GONE
from rota.wire.capabilities import Sink

# Which round of a stream's node was the last one in which table: several tables may take the rows of one node.
_ROUNDS = "rota_stream_tables"
_SHOWN_CHARS_MAX = 200
_KINDS: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_integer, "bigint"),
    (pa.types.is_floating, "double precision"),
    (pa.types.is_decimal, "numeric"),
    (pa.types.is_date, "date"),
    (pa.types.is_string, "text"),
    (pa.types.is_large_string, "text"),
    (pa.types.is_binary, "bytea"),
)

_AGAIN = "The round is published, and is handed over at the next start."


class PostgresSink:
    """Rows by their keys: the newest one of each key is in the table. A row that is `gone` is removed."""

    can = Sink.IDEMPOTENT | Sink.TRANSACTIONAL
    wants_rows_kept = True
    may_lag = False

    def __init__(self, url: str, table: str, keys: Sequence[str]) -> None:
        """`table` is made if it is not there; one that is there needs a unique index on `keys`."""
        if not keys:
            raise Refused("field.value", "rows are upserted by at least one key", path="keys")
        self._url = url
        self._table = table
        self._keys = tuple(keys)
        # Without the URL, which may have a password in it.
        self.called = f"table {table} of PostgreSQL by {', '.join(keys)}"
        self._stream = ""
        self._connection: Any = None

    def open(self, stream: str) -> None:
        """Connect."""
        try:
            import psycopg
        except ImportError:
            text = "the driver of PostgreSQL is not installed"
            raise Refused("query.unsupported", text, "pip install 'rota[postgres]'", path="sink") from None
        self._psycopg: Any = psycopg
        self._stream = stream
        self._check_address()
        self._run(lambda _: None, "See that it can be reached; the stream has not begun.")

    def _check_address(self) -> None:
        """Refuse an address that cannot be read, before the driver complains of it with the password in its words."""
        try:
            is_whole = urlsplit(self._url).netloc.count("@") < 2
            self._psycopg.conninfo.conninfo_to_dict(self._url)
        except (self._psycopg.Error, ValueError):
            is_whole = False
        if not is_whole:
            hint = "Such as postgresql://user:password@host/database; @ in a password is %40, and % is %25."
            raise Refused("field.value", "the address of PostgreSQL cannot be read", hint, path="url")

    def _run(self, act: Callable[[Any], None], hint: str = _AGAIN) -> None:
        """Do something in one transaction; what the server says about it is a refusal without secrets."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self._psycopg.connect(self._url, autocommit=False)
                with self._connection.transaction(), self._connection.cursor() as cursor:
                    cursor.execute(
                        f"create table if not exists {_ROUNDS} (stream text, node text, target text, "
                        "round bigint not null, incarnation numeric not null, primary key (stream, node, target))"
                    )
            with self._connection.transaction(), self._connection.cursor() as cursor:
                act(cursor)
        except self._psycopg.Error as error:
            self.close()
            said = " ".join(str(error).split())
            raise Refused("stream.sink", f"{self.called} refused: {said}", hint) from None

    def prepare(self, node: str, number: int, incarnation: int, rows: pa.Table) -> dict[str, str]:
        """The round keeps the rows."""
        lacking = [key for key in self._keys if key not in rows.column_names]
        if lacking:
            raise Refused("query.column", f"{node} has no column {lacking[0]}", path="keys")
        self._check_keys(node, number, rows)
        return {}

    def _check_keys(self, node: str, number: int, rows: pa.Table) -> None:
        """Refuse rows without a key before their round is published: afterwards nobody could take them out again."""
        for key in self._keys:
            if rows.column(key).null_count:
                at = rows.column(key).is_null().index(pa.scalar(True)).as_py()
                shown = str(rows.slice(at, 1).to_pylist()[0])[:_SHOWN_CHARS_MAX]
                text = f"a row of {node} in round {number} has no {key}, which is a key of {self.called}: {shown}"
                hint = "Have a view leave such rows out, or give them a value (`coalesce`)."
                raise Refused("stream.sink", text, hint)

    def commit(
        self, node: str, number: int, incarnation: int, prepared: dict[str, str], rows: Callable[[], pa.Table]
    ) -> None:
        """Upsert a round, unless that was done."""

        def act(cursor: Any) -> None:
            if self._newest(cursor, node, incarnation) < number:
                self._upsert(cursor, rows())
                self._note(cursor, node, number, incarnation)

        self._run(act)

    def take_back(self, node: str, number: int, incarnation: int) -> None:
        """Later rounds will be made again, and their rows are upserted over what is there."""

        def act(cursor: Any) -> None:
            # Also where nothing is taken back: whoever was deposed must find that out before its next commit.
            self._note(cursor, node, min(self._newest(cursor, node, incarnation), number), incarnation)

        self._run(act)

    def _newest(self, cursor: Any, node: str, incarnation: int) -> int:
        """The number of the last round, held until the transaction ends."""
        key = (self._stream, node, self._table)
        cursor.execute(f"insert into {_ROUNDS} values (%s, %s, %s, 0, %s) on conflict do nothing", (*key, incarnation))
        cursor.execute(
            f"select round, incarnation from {_ROUNDS} where stream = %s and node = %s and target = %s for update", key
        )
        number, holder = cursor.fetchone()
        if holder > incarnation:
            text = f"incarnation {holder} writes to {self.called} now, and this is {incarnation}"
            raise Refused("stream.fenced", text, "Stop; another one is at it.")
        return number

    def _note(self, cursor: Any, node: str, number: int, incarnation: int) -> None:
        cursor.execute(
            f"update {_ROUNDS} set round = %s, incarnation = %s where stream = %s and node = %s and target = %s",
            (number, incarnation, self._stream, node, self._table),
        )

    def _upsert(self, cursor: Any, rows: pa.Table) -> None:
        sql = self._psycopg.sql
        table = sql.Identifier(*self._table.split("."))
        names = [name for name in rows.column_names if name != GONE]
        keys = sql.SQL(", ").join(map(sql.Identifier, self._keys))
        columns = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(_kind(rows.schema.field(name).type)))
            for name in names
        )
        cursor.execute(sql.SQL("create table if not exists {} ({}, primary key ({}))").format(table, columns, keys))
        others = [name for name in names if name not in self._keys]
        changes = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in others)
        upsert = sql.SQL("insert into {} ({}) values ({}) on conflict ({}) do {}").format(
            table,
            sql.SQL(", ").join(map(sql.Identifier, names)),
            sql.SQL(", ").join(sql.Placeholder() * len(names)),
            keys,
            sql.SQL("update set {}").format(changes) if others else sql.SQL("nothing"),
        )
        same = sql.SQL(" and ").join(
            sql.SQL("{} = {}").format(sql.Identifier(key), sql.Placeholder()) for key in self._keys
        )
        found = rows.to_pylist()
        gone = [[row[key] for key in self._keys] for row in found if row.get(GONE)]
        cursor.executemany(sql.SQL("delete from {} where {}").format(table, same), gone)
        cursor.executemany(upsert, [[row[name] for name in names] for row in found if not row.get(GONE)])

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _kind(kind: pa.DataType) -> str:
    if isinstance(kind, pa.TimestampType):
        return "timestamptz" if kind.tz else "timestamp"
    found = next((name for fits, name in _KINDS if fits(kind)), None)
    if found is None:
        raise Refused("query.type", f"a column of type {kind} has no place in PostgreSQL", "Cast it in a view.")
    return found
