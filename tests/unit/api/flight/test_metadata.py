"""What drivers ask before they ask anything else: which tables, of which types, and what kind of server this is."""

from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pytest

from rota.api.flight import metadata
from rota.api.flight.desk import Table
from rota.wire.flight import flight_sql_pb2 as pb

VERSION = "1.2.3"


def table(name: str, schema: str = "public", catalog: str = "datafusion") -> Table:
    return Table(catalog, schema, name, pa.schema([("id", pa.int64()), ("text", pa.string_view())]))


TABLES = [
    table("trips"),
    table("Trips of 2024"),
    table("t_ips"),
    table("100%"),
    table("a*b"),
    table("[x]"),
    table("other", "private"),
    table("far", "public", "lake"),
]


def rows(name: str, command: Any = None, tables: list[Table] = TABLES) -> list[dict[str, Any]]:
    found = metadata.answer(name, command, tables, VERSION)
    assert found.schema == metadata.schema_of(name, command), "what was announced is what comes"
    found.validate(full=True)
    return found.to_pylist()


def names(**wanted: Any) -> list[str]:
    return [row["table_name"] for row in rows("CommandGetTables", pb.GetTables(**wanted))]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("trips", ["trips"]),
        ("%rips%", ["Trips of 2024", "trips"]),
        ("t_ips", ["t_ips", "trips"]),
        ("t%", ["t_ips", "trips"]),
        ("a*b", ["a*b"]),
        ("a_b", ["a*b"]),
        ("a?b", []),
        ("[x]", ["[x]"]),
        ("[a-z]", []),
        ("100%", ["100%"]),
        ("TRIPS", []),
        ("", []),
        ("%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%a%b", []),
    ],
)
def test_names_are_compared_as_like_does(pattern: str, found: list[str]) -> None:
    assert names(table_pattern=pattern) == found


def test_without_a_pattern_all_tables_are_listed_in_order() -> None:
    listed = rows("CommandGetTables", pb.GetTables())
    assert [tuple(row.values()) for row in listed] == sorted(tuple(row.values()) for row in listed)
    assert len(listed) == len(TABLES)
    assert {row["table_type"] for row in listed} == {"TABLE"}


def test_catalogs_are_compared_letter_by_letter_and_schemas_by_pattern() -> None:
    assert names(catalog="lake") == ["far"]
    assert names(catalog="la%") == []
    assert names(schema_pattern="pri%") == ["other"]
    assert names(catalog="datafusion", schema_pattern="public", table_pattern="far") == []


def test_types_are_those_that_are_asked_for() -> None:
    assert len(names(table_types=["VIEW", "TABLE"])) == len(TABLES)
    assert names(table_types=["VIEW"]) == []


def test_columns_come_along_if_asked_for_with_types_that_drivers_know() -> None:
    (row,) = rows("CommandGetTables", pb.GetTables(table_pattern="far", include_schema=True))
    columns = pyarrow.ipc.read_schema(pa.py_buffer(row["table_schema"]))
    assert columns == pa.schema([("id", pa.int64()), ("text", pa.string())])
    assert "table_schema" not in rows("CommandGetTables", pb.GetTables())[0]


def test_catalogs_and_schemas_are_those_of_the_tables_each_once() -> None:
    assert [row["catalog_name"] for row in rows("CommandGetCatalogs")] == ["datafusion", "lake"]
    found = [tuple(row.values()) for row in rows("CommandGetDbSchemas", pb.GetDbSchemas())]
    assert found == [("datafusion", "private"), ("datafusion", "public"), ("lake", "public")]
    assert rows("CommandGetDbSchemas", pb.GetDbSchemas(catalog="lake", schema_pattern="p%c")) == [
        {"catalog_name": "lake", "db_schema_name": "public"}
    ]


@pytest.mark.parametrize("name", list(metadata.SCHEMAS))
def test_every_question_has_an_answer_also_where_there_is_no_table(name: str) -> None:
    commands: dict[str, Any] = {
        "CommandGetSqlInfo": pb.GetSqlInfo(),
        "CommandGetDbSchemas": pb.GetDbSchemas(),
        "CommandGetTables": pb.GetTables(include_schema=True),
    }
    found = rows(name, commands.get(name, pb.GetKeys(table="x") if name.endswith("Keys") else None), [])
    if name not in ("CommandGetSqlInfo", "CommandGetTableTypes"):
        assert found == []


def test_a_server_says_who_it_is_and_what_it_can_do() -> None:
    found = {row["info_name"]: row["value"] for row in rows("CommandGetSqlInfo", pb.GetSqlInfo())}
    assert found == {0: "Rota", 1: VERSION, 2: pa.__version__, 3: True, 4: True, 5: False, 8: 0, 9: True}
    some = rows("CommandGetSqlInfo", pb.GetSqlInfo(info=[9, 1, 12_345]))
    assert [(row["info_name"], row["value"]) for row in some] == [(9, True), (1, VERSION)]
    assert rows("CommandGetSqlInfo", pb.GetSqlInfo(info=[12_345])) == []
