"""How queries of drivers end before their time: cancelled, left behind, stopped. Without a worker they wait."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pyarrow.flight as fl
import pytest

from rota.api.flight.statements import Bounds
from rota.core.questions import RunView
from rota.wire.flight import flight_sql_pb2 as pb
from rota.wire.flight.commands import pack
from tests.integration.deadlines import PATIENCE_S
from tests.integration.queries.flights import (
    TRIPS,
    Bare,
    ask,
    connected,
    front_end_here,
    make_tables,
    start_front_end,
    until_begun,
    until_cancelled,
)
from tests.integration.service.stage import Stage, open_stage

pytestmark = pytest.mark.full

COUNT = "select count(*) as n from trips"
STATEMENT = pb.Statement(query=COUNT)
# A caller goes while it waits, or when it was about to.
LEFT = ("its caller has gone", "nobody fetched it")


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    return make_tables(tmp_path / "tables")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A coordinator without a worker."""
    with open_stage(tmp_path) as one:
        one.start_server()
        yield one


def begun(stage: Stage) -> RunView:
    """The one run there is."""
    (run,) = until_begun(stage)
    return run


def test_a_query_is_cancelled_from_another_thread(stage: Stage, settings: Path) -> None:
    with (
        front_end_here(stage, settings, Bounds(grace_s=1)) as url,
        connected(url) as connection,
        connection.cursor() as cursor,
        ThreadPoolExecutor(1) as threads,
    ):

        def wait() -> pa.Table:
            cursor.execute(COUNT)
            return cursor.fetch_arrow_table()

        asked: Future[pa.Table] = threads.submit(wait)
        run = begun(stage)
        cursor.adbc_cancel()
        with pytest.raises(adbc.OperationalError, match=r"(?i)cancel"):
            asked.result(PATIENCE_S)
        assert until_cancelled(stage, run.id).reason in LEFT


@pytest.mark.parametrize("action", ["CancelQuery", "CancelFlightInfo"])
def test_a_query_is_cancelled_by_what_was_said_about_it(stage: Stage, settings: Path, action: str) -> None:
    _, url = start_front_end(stage, settings)
    bare = Bare(url)
    info = bare.info("CommandStatementQuery", STATEMENT)
    run = begun(stage)
    request = pb.CancelQuery(info=info.serialize())
    is_bare = action == "CancelFlightInfo"
    (done,) = bare.act(action, request.SerializeToString() if is_bare else pack("ActionCancelQueryRequest", request))
    assert done.endswith(pb.Cancelled(result=1).SerializeToString())
    assert "client" in until_cancelled(stage, run.id).reason
    with pytest.raises(fl.FlightCancelledError, match=r"run\.ended"):
        bare.get(info.endpoints[0].ticket.ticket)


def test_a_client_that_is_killed_takes_its_query_along(stage: Stage, settings: Path) -> None:
    program = (
        "import sys, adbc_driver_flightsql.dbapi as adbc\n"
        "connection = adbc.connect(sys.argv[1], autocommit=True)\n"
        "cursor = connection.cursor()\n"
        "cursor.execute(sys.argv[2])\n"
        "cursor.fetchall()\n"
    )
    with front_end_here(stage, settings, Bounds(grace_s=1)) as url:
        with subprocess.Popen([sys.executable, "-c", program, url, COUNT]) as client:
            try:
                run = begun(stage)
            finally:
                client.kill()
        assert until_cancelled(stage, run.id).reason in LEFT


def test_a_query_that_nobody_fetches_is_cancelled_after_the_grace(stage: Stage, settings: Path) -> None:
    with front_end_here(stage, settings, Bounds(grace_s=0.2)) as url:
        bare = Bare(url)
        info = bare.info("CommandStatementQuery", STATEMENT)
        run = begun(stage)
        assert until_cancelled(stage, run.id).reason == "nobody fetched it"
        with pytest.raises(KeyError, match=r"run\.unknown"):
            bare.get(info.endpoints[0].ticket.ticket)


def test_too_many_at_once_are_told_to_come_later(stage: Stage, settings: Path) -> None:
    with front_end_here(stage, settings, Bounds(of_one_caller_max=2)) as url:
        bare = Bare(url)
        for _ in range(2):
            bare.info("CommandStatementQuery", STATEMENT)
        with connected(url) as connection, pytest.raises(adbc.OperationalError, match=r"service\.busy: 2 queries"):
            ask(connection, COUNT)
        runs = until_begun(stage, 2)
    for run in runs:
        assert "front end" in until_cancelled(stage, run.id).reason


def test_a_front_end_that_is_stopped_ends_its_queries_and_says_so(stage: Stage, settings: Path) -> None:
    process, url = start_front_end(stage, settings)
    bare = Bare(url)
    ticket = bare.info("CommandStatementQuery", STATEMENT).endpoints[0].ticket.ticket
    run = begun(stage)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(bare.get, ticket)
        process.signal(signal.SIGTERM)
        with pytest.raises((fl.FlightError, pa.ArrowException)):
            asked.result(PATIENCE_S)
        assert process.ended() == 0
    assert "rota: stopping" in process.said()
    assert "front end" in until_cancelled(stage, run.id).reason


def test_a_reader_that_does_not_read_does_not_keep_a_front_end_from_ending(stage: Stage, settings: Path) -> None:
    stage.start_worker("one")
    process, url = start_front_end(stage, settings)
    bare = Bare(url)
    sql = "select repeat('x', 100000) || value as t from generate_series(1, 5000)"
    info = bare.info("CommandStatementQuery", pb.Statement(query=sql))
    reader = bare.client.do_get(info.endpoints[0].ticket, bare.options)
    reader.read_chunk()
    process.signal(signal.SIGTERM)
    assert process.ended() == 0
    with pytest.raises((pa.ArrowException, fl.FlightError, OSError)):
        reader.read_all()


def test_the_coordinator_may_be_started_again_in_the_middle_of_a_query(stage: Stage, settings: Path) -> None:
    _, url = start_front_end(stage, settings)
    with connected(url) as connection, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(ask, connection, COUNT)
        begun(stage)
        (server,) = (each for each in stage.processes if each.name == "server")
        server.kill()
        stage.start_server()
        stage.start_worker("one")
        assert asked.result(PATIENCE_S * 2).to_pylist() == [{"n": TRIPS}]
        assert ask(connection, COUNT).to_pylist() == [{"n": TRIPS}]


def test_without_a_coordinator_callers_are_told_to_come_later(stage: Stage, settings: Path) -> None:
    (server,) = stage.processes
    server.kill()
    process, url = start_front_end(stage, settings)
    with connected(url) as connection, pytest.raises(adbc.OperationalError, match=r"leader\.none") as caught:
        ask(connection, COUNT)
    assert "Traceback" not in str(caught.value)
    stage.start_server()
    stage.start_worker("one")
    with connected(url) as connection:
        assert ask(connection, COUNT).to_pylist() == [{"n": TRIPS}]
    assert process.popen.poll() is None
