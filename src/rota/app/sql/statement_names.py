"""Names of prepared statements in a session that several connections share: each connection has its own."""

from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rota.core.errors import Refused
from rota.kinds.query.parameters import is_of_prepared, statement_name

NAMES_MAX = 100
CONNECTIONS_MAX = 100


class StatementNames:
    """Keeps the names of connections apart: in the engine a name begins with its connection.

    The connection that used a name least recently makes room. The caller has one thread at a time use this.
    """

    def __init__(
        self,
        deallocate: Callable[[str], object],
        connections_max: int = CONNECTIONS_MAX,
        names_max: int = NAMES_MAX,
    ) -> None:
        """`deallocate` has the engine carry out a DEALLOCATE."""
        self._deallocate = deallocate
        self._connections_max = connections_max
        self._names_max = names_max
        self._names: OrderedDict[str, dict[str, None]] = OrderedDict()

    @contextmanager
    def scope(self, sql: str, connection: str) -> Generator[str]:
        """A statement for the engine, with the name in it made one of its connection; the body plans it."""
        if not is_of_prepared(sql):
            yield sql
            return
        if not connection:
            text = "PREPARE, EXECUTE and DEALLOCATE need a connection that is known again, by a cookie"
            hint = "Use the prepared statements of your driver, or have it send cookies."
            raise Refused("query.unsupported", text, hint, path="sql")
        found = statement_name(sql)
        if found is None:
            text = "the name of the prepared statement cannot be read"
            raise Refused("query.syntax", text, "Write it as a word, or in double quotes.", path="sql")
        names = self._names.get(connection, {})
        if found.verb == "prepare" and len(names) >= self._names_max:
            text = f"this connection has {len(names)} prepared statements already"
            raise Refused("query.statement", text, "DEALLOCATE those that are not needed.", path="sql")
        try:
            yield f"{found.before}{_quoted(connection, found.name)}{found.after}"
        except Refused as refused:
            reason = refused.reason.replace(f"{connection}.", "")
            raise Refused(refused.code, reason, refused.hint, path=refused.path) from None
        self._note(connection, found.verb, found.name)

    def _note(self, connection: str, verb: str, name: str) -> None:
        names = self._names.setdefault(connection, {})
        self._names.move_to_end(connection)
        if verb == "prepare":
            names[name] = None
        elif verb == "deallocate":
            names.pop(name, None)
        if not names:
            del self._names[connection]
        while len(self._names) > self._connections_max:
            forgotten, left = self._names.popitem(last=False)
            for each in left:
                self._deallocate(f"DEALLOCATE {_quoted(forgotten, each)}")


def _quoted(connection: str, name: str) -> str:
    inner = name.replace('"', '""')
    return f'"{connection}.{inner}"'
