"""Tables of Iceberg beside others: listed, joined, and read as they were at one snapshot."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import rota
from tests.refusals import refused


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{tmp_path}/lake.db", "warehouse": f"file://{tmp_path}/lake"}


@pytest.fixture
def lake(properties: dict[str, str]) -> SqlCatalog:
    """A catalog with one table of two files."""
    catalog = SqlCatalog("lake", **properties)
    catalog.create_namespace("shop")
    orders = catalog.create_table("shop.orders", schema=pa.schema([("id", pa.int64()), ("city", pa.string())]))
    orders.append(pa.table({"id": [1, 2], "city": ["Oslo", "Rome"]}))
    orders.append(pa.table({"id": [3], "city": ["Oslo"]}))
    catalog.create_table("shop.empty", schema=pa.schema([("id", pa.int64())]))
    return catalog


@pytest.fixture
def session(lake: SqlCatalog, properties: dict[str, str]) -> rota.Session:
    session = rota.Session()
    session.register_iceberg("lake", **properties)
    return session


COUNTED = "select city, count(*) as n from lake.shop.orders group by city order by city"


def test_its_tables_are_listed_and_joined_with_others(session: rota.Session) -> None:
    session.register_table("people", pa.table({"city": ["Oslo"], "mayor": ["Anne"]}))
    assert session.sql(COUNTED).to_pylist() == [{"city": "Oslo", "n": 2}, {"city": "Rome", "n": 1}]
    joined = "select id, mayor from lake.shop.orders join people using (city) order by id"
    assert session.sql(joined).to_pylist() == [{"id": 1, "mayor": "Anne"}, {"id": 3, "mayor": "Anne"}]
    shown = session.sql("select table_name from information_schema.tables where table_schema = 'shop' order by 1")
    assert [row["table_name"] for row in shown.to_pylist()] == ["empty", "orders"]
    columns = "select column_name from information_schema.columns where table_name = 'orders' order by 1"
    assert [row["column_name"] for row in session.sql(columns).to_pylist()] == ["city", "id"]
    assert "lake.shop.orders" in session.tables()
    assert session.sql("select count(*) as n from lake.shop.empty").to_pylist() == [{"n": 0}]


def test_a_query_reads_the_snapshot_of_when_it_was_planned(session: rota.Session, lake: SqlCatalog) -> None:
    planned = session.sql(COUNTED)
    lake.load_table("shop.orders").append(pa.table({"id": [4], "city": ["Rome"]}))
    assert planned.to_pylist() == [{"city": "Oslo", "n": 2}, {"city": "Rome", "n": 1}]
    assert session.sql(COUNTED).to_pylist() == [{"city": "Oslo", "n": 2}, {"city": "Rome", "n": 2}]


def test_rows_that_were_deleted_by_writing_files_anew_are_gone(session: rota.Session, lake: SqlCatalog) -> None:
    lake.load_table("shop.orders").delete("id = 1")
    assert session.sql("select id from lake.shop.orders order by id").to_pylist() == [{"id": 2}, {"id": 3}]


def test_columns_that_were_added_are_null_in_files_from_before(session: rota.Session, lake: SqlCatalog) -> None:
    from pyiceberg.types import LongType

    with lake.load_table("shop.orders").update_schema() as update:
        update.add_column("price", LongType())
    found = session.sql("select id, price from lake.shop.orders order by id limit 1").to_pylist()
    assert found == [{"id": 1, "price": None}]


def test_a_column_that_was_renamed_is_refused_and_not_read_wrongly(session: rota.Session, lake: SqlCatalog) -> None:
    with lake.load_table("shop.orders").update_schema() as update:
        update.rename_column("city", "town")
    with pytest.raises(
        rota.Refused, match=r"query\.unsupported: column town \(string\) of lake\.shop\.orders was city"
    ):
        session.sql("select * from lake.shop.orders")


def test_a_table_that_is_not_there_is_answered_with_the_nearest_one(session: rota.Session) -> None:
    with pytest.raises(rota.Refused, match=r"query\.table: .*lake\.shop\.order\b.*lake\.shop\.orders\b"):
        session.sql("select * from lake.shop.order")
    with pytest.raises(rota.Refused, match=r"query\.table"):
        session.sql("select * from lake.nowhere.orders")


def test_a_catalog_that_cannot_be_reached_says_so(tmp_path: Path) -> None:
    with refused("query.source", "gone", path="catalog"):
        rota.Session().register_iceberg("gone", type="sql", uri=f"sqlite:///{tmp_path}/no/such.db", warehouse="x")


def test_it_is_read_in_stages_on_workers(lake: SqlCatalog, properties: dict[str, str], tmp_path: Path) -> None:
    with rota.Rota.embedded(tmp_path / "data", slots=2) as here, rota.Session.on(here, partitions=2) as session:
        session.register_iceberg("lake", **properties)
        handle = session.submit(COUNTED)
        assert handle.to_arrow(timeout_s=60).to_pylist() == [{"city": "Oslo", "n": 2}, {"city": "Rome", "n": 1}]
        assert len(handle.progress().stages) > 1
