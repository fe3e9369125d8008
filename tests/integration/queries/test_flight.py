"""Flight SQL as the real ADBC driver speaks it: statements, values, tables, and every way to be told no."""

import datetime
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pyarrow.flight as fl
import pytest

from rota.wire.flight import flight_sql_pb2 as pb
from rota.wire.flight.commands import pack
from tests.integration.queries.flights import TRIPS, Bare, ask, connected, created, make_tables, start_front_end
from tests.integration.service.stage import Stage, open_stage

PATIENCE_S = 60


class Front:
    """A coordinator with a worker, a front end, and where that is."""

    def __init__(self, stage: Stage, url: str) -> None:
        self.stage = stage
        self.url = url


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("flight")
    with open_stage(folder) as stage:
        stage.start_up()
        process, url = start_front_end(stage, make_tables(folder / "tables"))
        yield Front(stage, url)
        assert "Traceback" not in process.said()
        assert "request.failed" not in process.said()


@pytest.fixture
def connection(front: Front) -> Iterator[adbc.Connection]:
    with connected(front.url) as one:
        yield one


# Answers.


def test_a_statement_is_a_run_and_its_answer_comes_back(front: Front, connection: adbc.Connection) -> None:
    client = front.stage.client()
    before = len(list(client.runs()))
    table = ask(connection, "select city, count(*) as trips from trips group by city order by city")
    assert table.to_pylist() == [
        {"city": "Oslo", "trips": 334},
        {"city": "Rome", "trips": 333},
        {"city": "Århus", "trips": 333},
    ]
    assert table.schema.field("city").type == pa.string(), "drivers know no views"
    assert len(list(client.runs())) == before + 1


def test_rows_are_fetched_as_the_interface_of_python_has_it(connection: adbc.Connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select id, city from trips where id < 3 order by id")
        assert [column[0] for column in cursor.description or []] == ["id", "city"]
        assert cursor.fetchone() == (0, "Oslo")
        assert cursor.fetchall() == [(1, "Rome"), (2, "Århus")]
        assert cursor.fetchone() is None
        cursor.execute("select 1")
        assert cursor.fetchall() == [(1,)]


@pytest.mark.parametrize("sql", ["select id, city from trips where id < 0", "select id, city from trips limit 0"])
def test_an_answer_without_rows_has_its_columns(connection: adbc.Connection, sql: str) -> None:
    table = ask(connection, sql)
    assert (table.num_rows, table.schema.names, table.schema.types) == (0, ["id", "city"], [pa.int64(), pa.string()])


def test_names_that_come_twice_and_names_that_are_odd_arrive(connection: adbc.Connection) -> None:
    table = ask(connection, """select 1 as "a", 2 as "ä b", 3 as "", null as "n" """)
    assert table.schema.names == ["a", "ä b", "", "n"]
    table = ask(connection, "select l.id, r.id from trips l join trips r on l.id = r.id where l.id = 7")
    assert [column.to_pylist() for column in table.columns] == [[7], [7]]


def test_a_large_answer_comes_in_many_messages(connection: adbc.Connection) -> None:
    sql = "select value as n, repeat('abcdefgh', 40) || value as t from generate_series(1, 100000)"
    with connection.cursor() as cursor:
        cursor.execute(sql)
        reader = cursor.fetch_record_batch()
        count = size = batches = 0
        for batch in reader:
            count, size, batches = count + batch.num_rows, size + batch.nbytes, batches + 1
    assert (count, size > 30_000_000, batches > 3) == (100_000, True, True)


def test_rows_that_are_too_large_for_one_message_come_in_several(connection: adbc.Connection) -> None:
    table = ask(connection, "select value as n, repeat('x', 1000000) || value as t from generate_series(1, 40)")
    assert (table.num_rows, table.nbytes > 40_000_000) == (40, True)
    assert sorted(table.column("n").to_pylist()) == list(range(1, 41))


def test_an_answer_can_be_fetched_again(front: Front) -> None:
    bare = Bare(front.url)
    info = bare.info("CommandStatementQuery", pb.Statement(query="select count(*) as n from trips"))
    ticket = info.endpoints[0].ticket.ticket
    assert info.schema.names == ["n"]
    assert bare.get(ticket).to_pylist() == bare.get(ticket).to_pylist() == [{"n": TRIPS}]


def test_many_statements_at_once_are_all_answered(front: Front) -> None:
    def count(least: int) -> int:
        with connected(front.url) as one:
            return ask(one, "select count(*) from trips where id >= ?", (least,)).column(0)[0].as_py()

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(count, range(0, TRIPS, 50), timeout=PATIENCE_S * 2))
    assert found == [TRIPS - least for least in range(0, TRIPS, 50)]


# Values.


def test_values_keep_their_types(connection: adbc.Connection) -> None:
    values: tuple[Any, ...] = (
        7,
        2.5,
        "Århus'; drop table trips; --",
        True,
        b"\x00\xff",
        datetime.date(2024, 2, 29),
        datetime.datetime(2024, 2, 29, 12, 30, 15, 123456),  # noqa: DTZ001 - SQL has such, too
        Decimal("12.50"),
        None,
    )
    table = ask(connection, "select " + ", ".join(f"? as v{number}" for number in range(len(values))), values)
    assert tuple(column[0].as_py() for column in table.columns) == values


@pytest.mark.parametrize(
    ("sql", "kind", "value"),
    [
        ("select arrow_cast(city, 'Dictionary(Int32, Utf8)') as x from trips order by id limit 1", pa.string(), "Oslo"),
        ("select [arrow_cast('a', 'Dictionary(Int8, Utf8)')] as x", pa.list_(pa.string()), ["a"]),
        ("select interval '1 month 2 days' as x", pa.month_day_nano_interval(), (1, 2, 0)),
    ],
)
def test_types_that_few_drivers_know_arrive(connection: adbc.Connection, sql: str, kind: Any, value: Any) -> None:
    column = ask(connection, sql).column("x")
    assert (column.type, column[0].as_py()) == (kind, value)


def test_dictionaries_of_views_arrive_as_their_values(connection: adbc.Connection) -> None:
    value = "arrow_cast('a', 'Dictionary(Int32, Utf8View)')"
    sql = f"select {value} as x, named_struct('q', {value}) as y, [{value}, null] as z, map(['k'], [{value}]) as w"
    assert ask(connection, sql).to_pylist() == [{"x": "a", "y": {"q": "a"}, "z": ["a", None], "w": [("k", "a")]}]


def test_a_recursive_query_is_planned_by_a_worker(connection: adbc.Connection) -> None:
    sql = "with recursive t as (select 1 as n union all select n + 1 from t where n < 4) select sum(n) as x from t"
    assert ask(connection, sql).to_pylist() == [{"x": 10}]


def test_statements_are_prepared_and_executed_by_name(front: Front) -> None:
    with connected(front.url, WITH_COOKIE_MIDDLEWARE="true") as connection:
        ask(connection, "prepare more as select count(*) as n from trips where id >= $1")
        assert ask(connection, "execute more(10)").to_pylist() == [{"n": TRIPS - 10}]
        ask(connection, "deallocate more")
        with pytest.raises(adbc.Error, match=r"query\.statement: .*'more'"):
            ask(connection, "execute more(10)")


def test_names_of_prepared_statements_are_those_of_one_connection(front: Front) -> None:
    cookies = {"WITH_COOKIE_MIDDLEWARE": "true"}
    with connected(front.url, **cookies) as one, connected(front.url, **cookies) as two:
        ask(one, "prepare p as select 1 as x")
        for sql in ("execute p", "deallocate p", "explain execute p"):
            with pytest.raises(adbc.Error, match=r"query\.(statement|unsupported): "):
                ask(two, sql)
        ask(two, "prepare P as select 2 as x")
        with pytest.raises(adbc.NotSupportedError, match=r"query\.unsupported: .*DDL"):
            ask(two, "prepare p as drop table trips")
        assert ask(one, 'execute "p"').to_pylist() == [{"x": 1}]
        assert ask(two, "execute p").to_pylist() == [{"x": 2}]
        ask(two, "deallocate prepare p")
        assert ask(one, "execute p").to_pylist() == [{"x": 1}]


@pytest.mark.parametrize("sql", ["prepare p as select 1", "execute p", "-- x\ndeallocate p"])
def test_a_connection_without_cookies_cannot_name_statements(connection: adbc.Connection, sql: str) -> None:
    with pytest.raises(adbc.NotSupportedError, match=r"query\.unsupported: .*cookie"):
        ask(connection, sql)


def test_values_of_arrow_keep_theirs_too(connection: adbc.Connection) -> None:
    row = pa.RecordBatch.from_arrays(
        [
            pa.array([1], pa.int8()),
            pa.array([1_234_567_890_123_456_789], pa.timestamp("ns")),
            pa.array([None], pa.string()),
            pa.array([[1, 2]], pa.list_(pa.int32())),
        ],
        names=["", "", "", ""],
    )
    table = ask(connection, "select ? as a, ? as b, ? as c, ? as d", row)
    assert table.schema.types == row.schema.types
    assert [column.to_pylist() for column in table.columns] == [column.to_pylist() for column in row.columns]


def test_a_statement_is_prepared_once_and_run_with_other_values(connection: adbc.Connection) -> None:
    with connection.cursor() as cursor:
        for city, count in (("Oslo", 334), ("Rome", 333), ("Atlantis", 0)):
            cursor.execute("select count(*) from trips where city = $1 or $1 is null", (city,))
            assert cursor.fetchone() == (count,)
        cursor.execute("select count(*) from trips where city = $1 or $1 is null", (None,))
        assert cursor.fetchone() == (TRIPS,)


@pytest.mark.parametrize(
    ("sql", "params", "said"),
    [
        ("select ? + ?", (1,), r"nothing .*\$2"),
        ("select ?", (1, 2), r"a value .*\$2"),
        ("select 1", (1,), r"no parameters"),
        ("select ?", (), r"nothing .*\$1"),
        ("select id from trips where id = ?", ("x",), r"cast string 'x'"),
    ],
)
def test_values_that_do_not_fit_are_refused(connection: adbc.Connection, sql: str, params: Any, said: str) -> None:
    with pytest.raises(adbc.ProgrammingError, match=said):
        ask(connection, sql, params)


def test_a_statement_for_many_rows_of_values_is_refused(front: Front, connection: adbc.Connection) -> None:
    with connection.cursor() as cursor, pytest.raises(adbc.NotSupportedError, match=r"query\.unsupported.*at command"):
        cursor.executemany("select ?", [(1,), (2,)])
    bare = Bare(front.url)
    request = pack("ActionCreatePreparedStatementRequest", pb.Statement(query="select ? as a"))
    (made,) = bare.act("CreatePreparedStatement", request)
    handle = created(made).handle
    descriptor = fl.FlightDescriptor.for_command(pack("CommandPreparedStatementQuery", pb.Prepared(handle=handle)))
    rows = pa.table({"a": [1, 2]})
    writer, _ = bare.client.do_put(descriptor, rows.schema, bare.options)
    with pytest.raises(pa.ArrowInvalid, match=r"query\.parameter: .*\(at params\)"):
        writer.write_table(rows)
        writer.close()


# Tables.


@pytest.mark.parametrize("depth", ["catalogs", "db_schemas", "tables", "columns", "all"])
def test_tables_are_listed_as_deep_as_one_likes(connection: adbc.Connection, depth: Any) -> None:
    (catalog,) = connection.adbc_get_objects(depth=depth).read_all().to_pylist()
    assert catalog["catalog_name"] == "datafusion"
    if depth == "catalogs":
        return
    (schema,) = catalog["catalog_db_schemas"]
    assert schema["db_schema_name"] == "public"
    if depth == "db_schemas":
        return
    tables = {table["table_name"]: table for table in schema["db_schema_tables"]}
    assert list(tables) == ["cities", "trips"]
    if depth != "tables":
        columns = [(each["column_name"], each["ordinal_position"]) for each in tables["trips"]["table_columns"]]
        assert columns == [("id", 1), ("city", 2)]


def test_tables_are_found_by_patterns(connection: adbc.Connection) -> None:
    found = connection.adbc_get_objects(depth="tables", table_name_filter="t%").read_all().to_pylist()
    assert [table["table_name"] for table in found[0]["catalog_db_schemas"][0]["db_schema_tables"]] == ["trips"]
    assert connection.adbc_get_table_types() == ["TABLE"]
    assert connection.adbc_get_table_schema("trips") == pa.schema([("id", pa.int64()), ("city", pa.string())])
    with pytest.raises(adbc.ProgrammingError, match="NOT_FOUND"):
        connection.adbc_get_table_schema("nothing")


def test_the_server_says_who_it_is(connection: adbc.Connection) -> None:
    assert connection.adbc_get_info()["vendor_name"] == "Rota"


def test_questions_about_tables_can_be_asked_in_sql_too(connection: adbc.Connection) -> None:
    names = ask(connection, "show tables").column("table_name").to_pylist()
    assert {"trips", "cities"} <= {*names}
    columns = ask(connection, "select column_name from information_schema.columns where table_name = 'trips'")
    assert columns.column(0).to_pylist() == ["id", "city"]
    assert ask(connection, "describe cities").num_rows == 2
    assert "DataSourceExec" in str(ask(connection, "explain select id + 1 from trips").to_pylist())


def test_what_a_statement_would_give_is_known_before_it_is_run(front: Front, connection: adbc.Connection) -> None:
    before = len(list(front.stage.client().runs()))
    with connection.cursor() as cursor:
        schema = cursor.adbc_execute_schema("select city, count(*) as n from trips group by city")
    assert schema.names == ["city", "n"]
    assert len(list(front.stage.client().runs())) == before


# Refusals.


def test_every_sort_of_error_is_told_in_one_line_without_a_word_about_our_code(connection: adbc.Connection) -> None:
    for sql, kind, said in (
        (
            "selec 1",
            adbc.ProgrammingError,
            "query.syntax: expected: an SQL statement, found: selec (at line 1, column 1)",
        ),
        ("select 1; select 2", adbc.ProgrammingError, "query.syntax: there is more than one statement"),
        (
            "select * from trip",
            adbc.ProgrammingError,
            "query.table: there is no table trip (at sql). Did you mean trips?",
        ),
        ("select nothing from trips", adbc.ProgrammingError, "query.column: there is no column nothing"),
        ("select nofunc(1)", adbc.ProgrammingError, "query.function: "),
        ("select city + 1 from trips", adbc.ProgrammingError, "query.type: "),
        ("select cast(city as int) from trips", adbc.ProgrammingError, "query.type: "),
        ("select 1 / (id - id) from trips", adbc.ProgrammingError, "query.type: Divide by zero"),
        ("select $1", adbc.ProgrammingError, "query.parameter: "),
    ):
        with pytest.raises(kind) as caught:
            ask(connection, sql)
        assert said in str(caught.value), sql
        assert "Traceback" not in str(caught.value)
        assert ".py" not in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "sql",
    [
        "create table x as select 1",
        "create view x as select 1",
        "create external table x stored as csv location '/etc/passwd'",
        "create schema x",
        "drop table trips",
        "insert into trips values (1, 'x')",
        "delete from trips",
        "update trips set id = 1",
        "copy trips to '/tmp/stolen.csv'",
        "set datafusion.execution.batch_size = 1",
        "start transaction",
    ],
)
def test_statements_that_change_something_are_refused(connection: adbc.Connection, sql: str) -> None:
    with pytest.raises(adbc.NotSupportedError, match=r"query\.unsupported: .*(DDL|DML|Statement)"):
        ask(connection, sql)
    assert ask(connection, "select count(*) from trips").column(0).to_pylist() == [TRIPS]


@pytest.mark.parametrize(
    "sql",
    [
        "select * from '/etc/passwd'",
        'select * from "/etc/passwd"',
        "select * from '/etc/passwd.csv'",
        "select * from 'file:///etc/passwd'",
        "select * from read_csv('/etc/passwd')",
        "select * from parquet_metadata('/etc/passwd')",
    ],
)
def test_files_cannot_be_named(connection: adbc.Connection, sql: str) -> None:
    with pytest.raises(adbc.ProgrammingError, match=r"query\.(table|function): "):
        ask(connection, sql)


def test_a_statement_that_is_very_wrong_is_told_shortly(connection: adbc.Connection) -> None:
    with pytest.raises(adbc.ProgrammingError) as caught:
        ask(connection, "select * from " + "å" * 20_000)
    assert "query.table" in str(caught.value)
    assert len(str(caught.value)) < 5_000


def test_what_is_not_flight_sql_is_refused_without_a_trace(front: Front) -> None:
    bare = Bare(front.url)
    command, path = fl.FlightDescriptor.for_command, fl.FlightDescriptor.for_path
    calls: list[Any] = [
        lambda: bare.client.get_flight_info(command(b"\xff\xff"), bare.options),
        lambda: bare.client.get_flight_info(command(b""), bare.options),
        lambda: bare.client.get_flight_info(path("trips"), bare.options),
        lambda: bare.client.get_schema(command(pack("CommandStatementUpdate", pb.Statement(query="x"))), bare.options),
        lambda: bare.info("CommandPreparedStatementQuery", pb.Prepared(handle=b"x")),
        lambda: bare.get(b"\xff"),
        lambda: bare.get(pack("TicketStatementQuery", pb.Ticket(handle=b"nobody's"))),
        lambda: bare.get(pack("CommandStatementQuery", pb.Statement(query="select 1"))),
        lambda: list(bare.client.list_flights(options=bare.options)),
        lambda: bare.act("BeginTransaction", b""),
        lambda: bare.act("CreatePreparedStatement", b"\xff"),
        lambda: bare.act("CreatePreparedStatement", pack("CommandGetTables", pb.GetTables())),
        lambda: bare.act("CancelQuery", pack("ActionCancelQueryRequest", pb.CancelQuery(info=b"\xff"))),
        lambda: bare.act("CancelFlightInfo", b"\xff"),
        bare.client.do_exchange(command(b""), bare.options)[1].read_all,
    ]
    for number, call in enumerate(calls):
        with pytest.raises((pa.ArrowException, fl.FlightError, KeyError, NotImplementedError)) as caught:
            call()
        assert re.search(r"query\.unsupported|field\.value|run\.unknown", str(caught.value)), (
            f"{number}: {caught.value}"
        )
        assert "Traceback" not in str(caught.value)
