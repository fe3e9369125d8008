"""Front ends for queries, in processes of their own or in this one, and the real driver that asks them."""

import re
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pyarrow.csv
import pyarrow.flight as fl
import pyarrow.parquet as pq
from adbc_driver_flightsql import DatabaseOptions
from google.protobuf.any_pb2 import Any as Envelope
from google.protobuf.message import Message

from rota.api.flight.statements import Bounds
from rota.app.sql.flight import start_flight
from rota.config import load_config
from rota.core.questions import RunView
from rota.wire.flight import flight_sql_pb2 as pb
from rota.wire.flight.commands import pack
from tests.integration.deadlines import until
from tests.integration.service.stage import Process, Stage

TRIPS = 1_000
_URL = re.compile(r"(grpc\S*://\S+) speaks Flight SQL")


def make_tables(folder: Path) -> Path:
    """Two small tables, and the settings that name them."""
    folder.mkdir(parents=True, exist_ok=True)
    trips = folder / "trips"
    trips.mkdir()
    for part in range(2):
        ids = list(range(part * TRIPS // 2, (part + 1) * TRIPS // 2))
        table = pa.table({"id": ids, "city": [("Oslo", "Rome", "Århus")[each % 3] for each in ids]})
        pq.write_table(table, trips / f"{part}.parquet")
    pyarrow.csv.write_csv(pa.table({"name": ["Oslo", "Rome"], "people": [700_000, 2_800_000]}), folder / "cities.csv")
    settings = folder / "flight.toml"
    settings.write_text(f'[queries.tables]\ntrips = "{trips}"\ncities = "{folder / "cities.csv"}"\n')
    return settings


def start_front_end(
    stage: Stage, settings: Path, *more: str, env: Mapping[str, str] | None = None, name: str = "flight"
) -> tuple[Process, str]:
    """`rota flight` in a process of its own, and where it is."""
    words = ["flight", f"--coordinator={stage.url}", "--listen=127.0.0.1:0", f"--config={settings}", *more]
    process = stage.start(name, stage.folder, words, env)
    found = _URL.search(process.until_ready())
    assert found is not None
    return process, found.group(1)


@contextmanager
def front_end_here(stage: Stage, settings: Path, bounds: Bounds) -> Iterator[str]:
    """A front end in this process, with other bounds than a real one has."""
    given = {"client.coordinator": stage.url, "queries.listen": "127.0.0.1:0"}
    config = load_config(given, {}, str(settings))
    parts = AsyncExitStack()
    front = stage.call(start_flight(parts, config, bounds))
    try:
        yield front.url
    finally:
        stage.call(parts.aclose())


@contextmanager
def connected(url: str, token: str = "", **options: str) -> Iterator[adbc.Connection]:
    """A connection of the real driver."""
    given = {DatabaseOptions[name].value: value for name, value in options.items()}
    if token:
        given[DatabaseOptions.AUTHORIZATION_HEADER.value] = f"Bearer {token}"
    with adbc.connect(url, db_kwargs=given, autocommit=True) as connection:
        yield connection


def ask(connection: adbc.Connection, sql: str, params: Any = None) -> pa.Table:
    """The answer to a statement."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetch_arrow_table()


class Bare:
    """A client that says exactly what it is told to."""

    def __init__(self, url: str, token: str = "") -> None:
        self.client = fl.connect(url)
        headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        self.options = fl.FlightCallOptions(headers=headers, timeout=60)

    def info(self, name: str, message: Message) -> fl.FlightInfo:
        descriptor = fl.FlightDescriptor.for_command(pack(name, message))
        return self.client.get_flight_info(descriptor, self.options)

    def get(self, ticket: bytes) -> pa.Table:
        return self.client.do_get(fl.Ticket(ticket), self.options).read_all()

    def act(self, name: str, body: bytes) -> list[bytes]:
        return [each.body.to_pybytes() for each in self.client.do_action(fl.Action(name, body), self.options)]


def created(content: bytes) -> pb.Created:
    """What the server says of a statement that was prepared."""
    return pb.Created.FromString(Envelope.FromString(content).value)


def until_begun(stage: Stage, count: int = 1) -> list[RunView]:
    """The runs of a coordinator, once there are so many."""
    client = stage.client()

    def look() -> list[RunView]:
        found = list(client.runs())
        return found if len(found) >= count else []

    return until(look, f"{count} runs")


def until_cancelled(stage: Stage, run: str) -> RunView:
    """A run, once it was cancelled."""
    client = stage.client()

    def look() -> RunView | None:
        view = client.run(run).status()
        return view if view.state == "cancelled" else None

    found = until(look, f"run {run} to be cancelled")
    assert found is not None
    return found
