"""A table of PostgreSQL as a sink: rows are upserted by their keys, each round in one transaction.

The same transaction writes down the number of the round, so that a round which is committed again changes nothing, and
an incarnation that was deposed cannot commit at all.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa

from rota.core.errors import Refused
from rota.kinds.query.streams.kernels import pc
from rota.kinds.query.streams.policies import Unusable
from rota.kinds.query.streams.refusing import Refusals
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
    (pa.types.is_time, "time"),
    (pa.types.is_string, "text"),
    (pa.types.is_large_string, "text"),
    (pa.types.is_binary, "bytea"),
    (pa.types.is_large_binary, "bytea"),
    (pa.types.is_fixed_size_binary, "bytea"),
)

T = TypeVar("T")

_AGAIN = "The round is published, and is handed over at the next start."


class PostgresSink:
    """Rows by their keys: the newest one of each key is in the table. A row that is `gone` is removed."""

    can = Sink.IDEMPOTENT | Sink.TRANSACTIONAL
    wants_rows_kept = True
    may_lag = False

    def __init__(
        self, url: str, table: str, keys: Sequence[str], *, gone: bool = True, refusals: Refusals | None = None
    ) -> None:
        """`table` is made if it is not there; one that is there needs a unique index on `keys`.

        `gone`: a column of that name says which rows are to be removed. `refusals`: what becomes of rows that it
        refuses by themselves, such as for one of its constraints.
        """
        if not keys:
            raise Refused("field.value", "rows are upserted by at least one key", path="keys")
        self._url = url
        self._table = table
        self._keys = tuple(keys)
        self._has_gone = gone
        self._refusals = refusals or Refusals()
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
        # What the server says where a row is to blame; triggers of somebody's own may say it, too.
        self._of_rows = (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.RaiseException)
        self._stream = stream
        self._refusals.open(stream)
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

    def _run(self, act: Callable[[Any], T], hint: str = _AGAIN) -> T:
        """Do something in one transaction; what the server says about it is a refusal without secrets."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self._psycopg.connect(self._url, autocommit=False)
                with self._connection.transaction(), self._connection.cursor() as cursor:
                    self._make_notes(cursor)
            with self._connection.transaction(), self._connection.cursor() as cursor:
                return act(cursor)
        except self._psycopg.Error as error:
            self.close()
            raise Refused("stream.sink", f"{self.called} refused: {_said(error)}", hint) from None

    def _make_notes(self, cursor: Any) -> None:
        """The table of notes, and a column of it that was not there at first."""
        # Two who make it at the same time would be in each other's way.
        cursor.execute("select pg_advisory_xact_lock(hashtext(%s))", (_ROUNDS,))
        if not self._is_there(cursor, _ROUNDS):
            cursor.execute(
                f"create table {_ROUNDS} (stream text, node text, target text, round bigint not null, "
                "incarnation numeric not null, refused bigint not null default 0, primary key (stream, node, target))"
            )
        cursor.execute("select 1 from pg_attribute where attrelid = %s::regclass and attname = 'refused'", (_ROUNDS,))
        if cursor.fetchone() is None:
            cursor.execute(f"alter table {_ROUNDS} add column if not exists refused bigint not null default 0")

    def _is_there(self, cursor: Any, table: str) -> bool:
        """Whether there is a table. One may be allowed to write to it and not to make any."""
        name = self._psycopg.sql.Identifier(*table.split(".")).as_string(cursor)
        cursor.execute("select to_regclass(%s)", (name,))
        return cursor.fetchone()[0] is not None

    def prepare(self, node: str, number: int, incarnation: int, rows: pa.Table) -> dict[str, str]:
        """The round keeps the rows."""
        self.check(node, rows.schema)
        if not self._refusals.is_tolerant:
            self._check_keys(node, number, rows)
        return {}

    def check(self, node: str, schema: pa.Schema) -> None:
        """Refuse rows that have no place in a table, whatever they are."""
        lacking = [key for key in self._keys if key not in schema.names]
        if lacking:
            hint = f"There are {', '.join(schema.names)}."
            raise Refused("query.column", f"{node} has no column {lacking[0]}", hint, path="keys")
        for field in schema:
            _kind(field)

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
    ) -> int:
        """Upsert a round, unless that was done."""

        def act(cursor: Any) -> int:
            newest, refused = self._newest(cursor, node, incarnation)
            if self._refusals.is_tolerant:
                # Nothing is left for the end, where nobody could say which row is to blame.
                cursor.execute("set constraints all immediate")
            if newest >= number:
                return refused if newest == number else 0
            # Rows that are kept elsewhere are there before the round is noted here.
            refused = self._refusals.keep(node, number, incarnation, self._upsert(cursor, rows()))
            self._note(cursor, node, number, incarnation, refused)
            return refused

        return self._run(act)

    def take_back(self, node: str, number: int, incarnation: int) -> None:
        """Later rounds will be made again, and their rows are upserted over what is there."""

        def act(cursor: Any) -> None:
            newest, refused = self._newest(cursor, node, incarnation)
            # Also where nothing is taken back: whoever was deposed must find that out before its next commit.
            self._note(cursor, node, min(newest, number), incarnation, refused if newest <= number else 0)

        self._run(act)
        self._refusals.take_back(node, number, incarnation)

    def _newest(self, cursor: Any, node: str, incarnation: int) -> tuple[int, int]:
        """The last round, and how many rows of it were refused; held until the transaction ends."""
        key = (self._stream, node, self._table)
        cursor.execute(
            f"insert into {_ROUNDS} (stream, node, target, round, incarnation) values (%s, %s, %s, 0, %s) "
            "on conflict do nothing",
            (*key, incarnation),
        )
        same = "stream = %s and node = %s and target = %s"
        cursor.execute(f"select round, incarnation, refused from {_ROUNDS} where {same} for update", key)
        number, holder, refused = cursor.fetchone()
        if holder > incarnation:
            text = f"incarnation {holder} writes to {self.called} now, and this is {incarnation}"
            raise Refused("stream.fenced", text, "Stop; another one is at it.")
        return number, refused

    def _note(self, cursor: Any, node: str, number: int, incarnation: int, refused: int) -> None:
        cursor.execute(
            f"update {_ROUNDS} set round = %s, incarnation = %s, refused = %s "
            "where stream = %s and node = %s and target = %s",
            (number, incarnation, refused, self._stream, node, self._table),
        )

    def _upsert(self, cursor: Any, rows: pa.Table) -> Unusable:
        """Put rows into the table; those that were refused by themselves."""
        refused, rows = Unusable(), _whole_microseconds(rows)
        if self._refusals.is_tolerant:
            rows = self._with_keys(rows, refused)
        fields = [field for field in rows.schema if field.name != GONE or not self._has_gone]
        if not self._is_there(cursor, self._table):
            self._make_table(cursor, fields)
        names = [field.name for field in fields]
        upsert, delete = self._statements(names)
        if self._has_gone and GONE in rows.column_names:
            is_gone = pc.fill_null(rows.column(GONE), False)
            gone, rows = rows.filter(is_gone), rows.filter(pc.invert(is_gone))
            self._change(cursor, delete, gone, self._keys, refused)
        self._change(cursor, upsert, rows, names, refused)
        return refused

    def _make_table(self, cursor: Any, fields: "Sequence[pa.Field[Any]]") -> None:
        sql = self._psycopg.sql
        columns = [sql.SQL("{} {}").format(sql.Identifier(field.name), sql.SQL(_kind(field))) for field in fields]
        keys = sql.SQL(", ").join(map(sql.Identifier, self._keys))
        make = sql.SQL("create table if not exists {} ({}, primary key ({}))")
        cursor.execute(make.format(sql.Identifier(*self._table.split(".")), sql.SQL(", ").join(columns), keys))

    def _statements(self, names: Sequence[str]) -> tuple[Any, Any]:
        """What is done with each row: one that puts it there, and one that removes it."""
        sql, named = self._psycopg.sql, self._named
        table, keys = named(*self._table.split(".")), sql.SQL(", ").join(map(named, self._keys))
        others = [name for name in names if name not in self._keys]
        changes = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(named(name)) for name in others)
        upsert = sql.SQL("insert into {} ({}) values ({}) on conflict ({}) do {}").format(
            table,
            sql.SQL(", ").join(map(named, names)),
            sql.SQL(", ").join(sql.Placeholder() * len(names)),
            keys,
            sql.SQL("update set {}").format(changes) if others else sql.SQL("nothing"),
        )
        same = sql.SQL(" and ").join(sql.SQL("{} = {}").format(named(key), sql.Placeholder()) for key in self._keys)
        return upsert, sql.SQL("delete from {} where {}").format(table, same)

    def _named(self, *names: str) -> Any:
        """A name in a statement with values, which has its own use for the sign."""
        return self._psycopg.sql.Identifier(*(name.replace("%", "%%") for name in names))

    def _with_keys(self, rows: pa.Table, refused: Unusable) -> pa.Table:
        """Rows without those that lack a key, whatever a table of somebody's own would say to that."""
        for key in self._keys:
            lacks = rows.column(key).is_null()
            if pc.any(lacks).as_py():
                reason = f"a row has no {key}, which is a key of {self.called}"
                self._refusals.refuse(refused, reason, self.called, rows.filter(lacks))
                rows = rows.filter(pc.invert(lacks))
        return rows

    def _change(self, cursor: Any, statement: Any, rows: pa.Table, names: Sequence[str], refused: Unusable) -> None:
        """Do something with each row, in their order; those to blame for a refusal are found by halving."""
        if not rows.num_rows:
            return
        try:
            values = list(zip(*(rows.column(name).to_pylist() for name in names), strict=True))
            with cursor.connection.transaction():
                cursor.executemany(statement, values)
        except (*self._of_rows, ValueError, OverflowError) as error:
            if not self._refusals.is_tolerant:
                # Moments that Python has no value for are not the driver's complaint.
                raise error if isinstance(error, self._psycopg.Error) else self._psycopg.DataError(str(error)) from None
            if rows.num_rows == 1:
                self._refusals.refuse(refused, _said(error), self.called, rows)
                return
            half = rows.num_rows // 2
            self._change(cursor, statement, rows.slice(0, half), names, refused)
            self._change(cursor, statement, rows.slice(half), names, refused)

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _said(error: Exception) -> str:
    """What the server says, on one line."""
    return " ".join(str(error).split())


def _whole_microseconds(rows: pa.Table) -> pa.Table:
    """Rows with moments as fine as a table has them; Python has no value for finer ones."""
    fields: list[pa.Field[Any]] = []
    for field in rows.schema:
        kind = field.type
        if isinstance(kind, pa.TimestampType) and kind.unit == "ns":
            kind = pa.timestamp("us", kind.tz)
        elif pa.types.is_time64(kind):
            kind = pa.time64("us")
        fields.append(field.with_type(kind))
    return rows.cast(pa.schema(fields), safe=False)


def _kind(field: "pa.Field[Any]") -> str:
    kind = field.type
    if isinstance(kind, pa.TimestampType):
        return "timestamptz" if kind.tz else "timestamp"
    found = next((name for fits, name in _KINDS if fits(kind)), None)
    if found is None:
        text = f"{field.name} is {kind}, for which there is no place in PostgreSQL"
        raise Refused("query.type", text, "Cast it in a view.", path=field.name)
    return found
