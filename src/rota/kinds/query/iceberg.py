"""Tables of Iceberg: read as they were at one snapshot, file by file. Needs the extra `iceberg`."""

import os
from typing import TYPE_CHECKING, Any

import datafusion as df
import pyarrow as pa

from rota.core.errors import Refused
from rota.kinds.query.catalogs import catalog_trouble, check_catalog_name
from rota.kinds.query.listing import frame_of_files
from rota.wire.capabilities import Source

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as PyIceberg
    from pyiceberg.table import Table

_PROPERTIES = {
    "s3.endpoint": "AWS_ENDPOINT_URL",
    "s3.access-key-id": "AWS_ACCESS_KEY_ID",
    "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "s3.session-token": "AWS_SESSION_TOKEN",
    "s3.region": "AWS_REGION",
    "adls.account-name": "AZURE_STORAGE_ACCOUNT_NAME",
    "adls.account-key": "AZURE_STORAGE_ACCOUNT_KEY",
}

# Beyond this the list of files is larger than what is worth planning in one piece.
FILES_MAX = 50_000


class IcebergCatalog:
    """A catalog that pyiceberg knows how to reach."""

    # The files of a snapshot are never changed.
    adds = Source.PINNED

    def __init__(self, name: str, catalog: "PyIceberg") -> None:
        self.name = name
        self._catalog = catalog

    def namespaces(self) -> set[str]:
        """The names of its namespaces; those inside others are reached by no name of SQL."""
        return {parts[0] for parts in self._catalog.list_namespaces() if len(parts) == 1}

    def tables(self, namespace: str) -> set[str]:
        """The names of the tables in one."""
        if namespace not in self.namespaces():
            return set()
        return {parts[-1] for parts in self._catalog.list_tables((namespace,))}

    def frame(self, context: df.SessionContext, namespace: str, table: str) -> df.DataFrame | None:
        """The files of the table's present snapshot."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            found = self._catalog.load_table((namespace, table))
        except (NoSuchNamespaceError, NoSuchTableError):
            return None
        name = f"{self.name}.{namespace}.{table}"
        _check_names(name, found)
        files = _files_of(name, found)
        schema = _plain(found.schema().as_arrow())
        if not files:
            return context.from_arrow(schema.empty_table())
        return frame_of_files(context, files, schema)


def open_iceberg(name: str, properties: dict[str, Any]) -> IcebergCatalog:
    """A catalog by its properties, such as `{"type": "sql", "uri": "sqlite:///…", "warehouse": "file://…"}`."""
    try:
        from pyiceberg.catalog import load_catalog
    except ModuleNotFoundError as missing:
        text = f"catalogs of Iceberg need {missing.name}"
        raise Refused("config.value", text, "pip install 'rota[iceberg]'.", path="name") from None
    check_catalog_name(name)
    try:
        return IcebergCatalog(name, load_catalog(name, **{**_of_environment(), **properties}))
    except Exception as error:
        # Whatever it stands on has errors of its own.
        raise catalog_trouble(name, error) from error


def _of_environment() -> dict[str, str]:
    """How buckets are reached, in the words of pyiceberg, unless the properties say so."""
    return {name: os.environ[variable] for name, variable in _PROPERTIES.items() if os.environ.get(variable)}


def _files_of(name: str, table: "Table") -> list[str]:
    files: list[str] = []
    for task in table.scan().plan_files():
        if task.delete_files:
            text = f"rows of {name} were deleted without writing its files anew, which is not read here"
            raise Refused("query.unsupported", text, "Compact the table first.", path="sql")
        if task.file.file_format.value.upper() != "PARQUET":
            text = f"{name} has files that are {task.file.file_format.value}"
            raise Refused("query.unsupported", text, "Only Parquet is read.", path="sql")
        files.append(task.file.file_path)
        if len(files) > FILES_MAX:
            text = f"{name} has more than {FILES_MAX:,} files"
            raise Refused("query.unsupported", text, "Compact the table first.", path="sql")
    # In one order, so that the same snapshot is the same plan.
    return sorted(files)


def _check_names(name: str, table: "Table") -> None:
    """Columns are found in files by their names: one that had another name, or type, would be read wrongly."""
    now = {field.field_id: field for field in table.schema().fields}
    for schema in table.schemas().values():
        for field in schema.fields:
            present = now.get(field.field_id)
            if present is not None and (present.name, present.field_type) != (field.name, field.field_type):
                was = f"{field.name} ({field.field_type})"
                text = (
                    f"column {present.name} ({present.field_type}) of {name} was {was}, and files may still have that"
                )
                raise Refused("query.unsupported", text, "Write the table anew.", path="sql")
            if present is None and any(each.name == field.name for each in now.values()):
                text = f"{name} had another column {field.name} before, and files may still have it"
                raise Refused("query.unsupported", text, "Write the table anew.", path="sql")


def _plain(schema: pa.Schema) -> pa.Schema:
    """As the files have it: texts of ordinary length, and nothing said about fields."""
    fields: list[pa.Field] = []
    for field in schema:
        kind: pa.DataType = field.type
        if kind == pa.large_string():
            kind = pa.string()
        elif kind == pa.large_binary():
            kind = pa.binary()
        fields.append(pa.field(field.name, kind, field.nullable))
    return pa.schema(fields)
