"""Catalogs: where tables are known by name, seen by the engine as `catalog.namespace.table`.

What a name stands for is looked up once for each statement, so that a table which is named twice is the same one twice.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import datafusion as df
import datafusion.catalog as dc

from rota.core.errors import Refused
from rota.wire.capabilities import Source

T = TypeVar("T")


class Catalog(Protocol):
    """Tables by namespace and name. One whose tables are of files that nobody changes has `adds = Source.PINNED`."""

    name: str

    def namespaces(self) -> set[str]:
        """The names of its namespaces."""
        ...

    def tables(self, namespace: str) -> set[str]:
        """The names of the tables in one; none if there is no such namespace."""
        ...

    def frame(self, context: df.SessionContext, namespace: str, table: str) -> df.DataFrame | None:
        """A table as it is now; None if there is none of that name."""
        ...


class Bridge(dc.CatalogProvider):
    """A catalog as the engine asks for it.

    The engine asks in the middle of its own work, where nobody may wait for it; so whatever asks the engine for
    something in turn is done in a thread beside.
    """

    def __init__(self, catalog: Catalog, context: df.SessionContext) -> None:
        self._catalog = catalog
        self._context = context
        self._beside = ThreadPoolExecutor(1, thread_name_prefix=f"rota-catalog-{catalog.name}")
        self._pinned: dict[tuple[str, str], df.DataFrame | None] = {}
        # What went wrong while the engine asked: it would only say that something did.
        self.trouble: BaseException | None = None

    def begin(self) -> None:
        """Another statement begins: tables are looked up anew."""
        self._pinned.clear()
        self.trouble = None

    @property
    def adds(self) -> Source:
        """What can be counted on with all its tables, whatever they are made of: they are looked up once."""
        return getattr(self._catalog, "adds", Source(0))

    def schema_names(self) -> set[str]:
        """The names of its namespaces."""
        return self._ask(self._catalog.namespaces)

    def schema(self, name: str) -> "_Namespace | None":  # pyright: ignore[reportIncompatibleMethodOverride] - so it is asked
        """A namespace."""
        return _Namespace(self, name) if name in self.schema_names() else None

    def tables(self, namespace: str) -> set[str]:
        """The names of the tables of a namespace."""
        return self._ask(lambda: self._catalog.tables(namespace))

    def table(self, namespace: str, name: str) -> df.DataFrame | None:
        """A table as it was when the statement first named it."""
        key = (namespace, name)
        if key not in self._pinned:
            self._pinned[key] = self._ask(lambda: self._catalog.frame(self._context, namespace, name))
        return self._pinned[key]

    def _ask(self, question: Callable[[], T]) -> T:
        try:
            return self._beside.submit(question).result()
        except BaseException as error:
            self.trouble = error
            raise


class _Names(list[str]):
    """Names as the engine wants them: DataFusion 55 calls `table_names`, and elsewhere takes it for a list."""

    def __call__(self) -> set[str]:
        return set(self)


class _Namespace(dc.SchemaProvider):
    def __init__(self, bridge: Bridge, name: str) -> None:
        self._bridge = bridge
        self._name = name

    @property
    def table_names(self) -> _Names:  # pyright: ignore[reportIncompatibleMethodOverride] - it can be called
        return _Names(sorted(self._bridge.tables(self._name)))

    def table(self, name: str) -> dc.Table | None:
        frame = self._bridge.table(self._name, name)
        return None if frame is None else dc.Table(frame)

    def table_exist(self, name: str) -> bool:
        return name in self.table_names()


def check_catalog_name(name: str) -> None:
    """Refuse a name under which a catalog could not be reached, or would hide another."""
    if not name.isidentifier() or name in ("datafusion", "information_schema"):
        text = f"a catalog cannot be called {name!r}"
        raise Refused("field.value", text, "Use letters, digits and underscores.", path="name")


def catalog_trouble(name: str, error: BaseException) -> Refused:
    """What a catalog said when it was asked."""
    if isinstance(error, Refused):
        return error
    said = str(error).splitlines()[0] if str(error) else "no reason"
    text = f"the catalog {name} could not be asked: {type(error).__name__}: {said}"
    return Refused("query.source", text, "See that it can be reached.", path="catalog")
