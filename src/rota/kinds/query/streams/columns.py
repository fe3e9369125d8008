"""The columns of files: those that the first one shows, or those that a stream was told."""

from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from rota.core.errors import Refused
from rota.kinds.query.streams.asking import row_schema
from rota.kinds.query.streams.csv_rows import check_csv_schema, csv_schema
from rota.kinds.query.streams.json_rows import check_json_schema, json_schema
from rota.kinds.query.streams.parsing import Unfit, check_once

FileForm = Literal["parquet", "csv", "json", "arrow"]


def shown_columns(path: Path, form: FileForm) -> pa.Schema:
    """The columns of a file."""
    try:
        schema = row_schema(_shown(path, form))
        check_once(schema.names)
        if not schema.names:
            raise Unfit("it has none")
    except (Unfit, pa.ArrowException, OSError, ValueError, RecursionError) as error:
        text = f"{path} cannot be read to see its columns: {error}"
        raise Refused("stream.source", text, "Give a schema, or remove it.", path="schema") from None
    return schema


def _shown(path: Path, form: FileForm) -> pa.Schema:
    if form == "parquet":
        return pq.read_schema(path)
    if form == "csv":
        return csv_schema(path)
    if form == "json":
        return json_schema(path)
    with pa.OSFile(str(path), "rb") as source, pa.ipc.open_file(source) as file:
        return file.schema


def told_columns(schema: pa.Schema, form: FileForm) -> pa.Schema:
    """The columns that files are read as; refused if none of that form can have them."""
    told = row_schema(schema)
    try:
        check_once(told.names)
        if form == "csv":
            check_csv_schema(told)
        if form == "json":
            check_json_schema(told)
    except Unfit as unfit:
        text = f"{form} files cannot be read by this schema: {unfit}"
        raise Refused("query.type", text, "Declare a text or a number, and cast it in a view.", path="schema") from None
    return told
