"""Who may ask a front end for queries: tokens, roles, tenants, TLS; and how it starts, or does not."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pyarrow.flight as fl
import pytest
import trustme

from rota.wire.flight import flight_sql_pb2 as pb
from rota.wire.flight.commands import pack
from tests.integration.deadlines import descendants, is_running, until
from tests.integration.queries.flights import TRIPS, Bare, ask, connected, created, make_tables, start_front_end
from tests.integration.service.stage import Stage, open_stage

pytestmark = pytest.mark.full

COUNT = "select count(*) as n from trips"
ACME, OTHER, READER, WORKER = "acme-secret", "other-secret", "reader-secret", "worker-secret"
TOKENS = f"writer@acme:{ACME},writer@other:{OTHER},reader@acme:{READER},worker@acme:{WORKER}"
ENV = {"ROTA_COORDINATOR_BEARER_TOKENS": TOKENS}


class Guarded:
    """A coordinator of two tenants, and front ends that know its tokens, and that do not."""

    def __init__(self, stage: Stage, knowing: str, unknowing: str) -> None:
        self.stage = stage
        self.urls = {"knows the tokens": knowing, "asks the coordinator": unknowing}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    settings = make_tables(folder / "tables")
    with open_stage(folder) as stage:
        stage.start_server(env=ENV)
        stage.start_worker("one", env={"ROTA_EXECUTOR_TASK_BEARER_TOKEN": WORKER})
        _, knowing = start_front_end(stage, settings, env=ENV)
        _, unknowing = start_front_end(stage, settings, name="unknowing")
        yield Guarded(stage, knowing, unknowing)
        assert not any("secret" in process.said() for process in stage.processes)


@pytest.fixture(params=["knows the tokens", "asks the coordinator"])
def url(guarded: Guarded, request: pytest.FixtureRequest) -> str:
    return guarded.urls[request.param]


def test_with_a_token_one_is_answered_and_the_run_is_of_its_tenant(guarded: Guarded, url: str) -> None:
    with connected(url, ACME) as connection:
        assert ask(connection, COUNT).to_pylist() == [{"n": TRIPS}]
    guarded.stage.token = ACME
    assert list(guarded.stage.client().runs())
    guarded.stage.token = OTHER
    assert not list(guarded.stage.client().runs())


@pytest.mark.parametrize(("token", "code"), [("", "auth.missing"), ("wrong", "auth.wrong")])
def test_without_one_or_with_a_wrong_one_nothing_is_answered(url: str, token: str, code: str) -> None:
    with connected(url, token) as connection:
        for call in (
            lambda: ask(connection, COUNT),
            lambda: connection.adbc_get_objects(depth="tables").read_all(),
            lambda: connection.adbc_get_table_schema("trips"),
        ):
            with pytest.raises(adbc.Error, match=code) as caught:
                call()
            assert "Traceback" not in str(caught.value)
            assert "UNAUTHENTICATED" in str(caught.value)


@pytest.mark.parametrize("token", [READER, WORKER])
def test_whose_role_does_not_allow_it_is_told_so(url: str, token: str) -> None:
    with connected(url, token) as connection, pytest.raises(adbc.Error, match=r"UNAUTHORIZED.*auth\.role"):
        ask(connection, COUNT)


def test_a_reader_may_see_which_tables_there_are(url: str) -> None:
    with connected(url, READER) as connection:
        assert connection.adbc_get_table_schema("trips").names == ["id", "city"]


def test_tickets_and_prepared_statements_of_others_are_unknown(url: str) -> None:
    own, other = Bare(url, ACME), Bare(url, OTHER)
    info = own.info("CommandStatementQuery", pb.Statement(query=COUNT))
    ticket = info.endpoints[0].ticket.ticket
    (made,) = own.act(
        "CreatePreparedStatement", pack("ActionCreatePreparedStatementRequest", pb.Statement(query=COUNT))
    )
    handle = created(made).handle
    prepared = pb.Prepared(handle=handle)
    cancel = pack("ActionCancelQueryRequest", pb.CancelQuery(info=info.serialize()))
    for call in (
        lambda: other.get(ticket),
        lambda: other.info("CommandPreparedStatementQuery", prepared),
        lambda: other.act("CancelQuery", cancel),
    ):
        with pytest.raises((KeyError, pa.ArrowException), match=r"run\.unknown"):
            call()
    with pytest.raises(fl.FlightUnauthenticatedError):
        Bare(url).get(ticket)
    other.act("ClosePreparedStatement", pack("ActionClosePreparedStatementRequest", prepared))
    assert own.get(ticket).to_pylist() == [{"n": TRIPS}]
    again = own.info("CommandPreparedStatementQuery", prepared)
    assert own.get(again.endpoints[0].ticket.ticket).to_pylist() == [{"n": TRIPS}]


# TLS.


def test_with_certificates_drivers_speak_tls_and_nothing_else(tmp_path: Path) -> None:
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1", "localhost")
    (tmp_path / "server.pem").write_bytes(b"".join(part.bytes() for part in leaf.cert_chain_pems))
    leaf.private_key_pem.write_to_path(str(tmp_path / "server.key"))
    settings = make_tables(tmp_path / "tables")
    with settings.open("a") as more:
        more.write(f'[tls]\ncert = "{tmp_path}/server.pem"\nkey = "{tmp_path}/server.key"\n')
    trusted = authority.cert_pem.bytes().decode()
    with open_stage(tmp_path) as stage:
        stage.start_up()
        _, url = start_front_end(stage, settings)
        assert url.startswith("grpc+tls://")
        with connected(url, TLS_ROOT_CERTS=trusted) as connection:
            assert ask(connection, COUNT).to_pylist() == [{"n": TRIPS}]
        another = trustme.CA().cert_pem.bytes().decode()
        with connected(url, TLS_ROOT_CERTS=another) as connection, pytest.raises(adbc.OperationalError):
            ask(connection, COUNT)
        with connected(url.replace("grpc+tls", "grpc")) as connection, pytest.raises(adbc.OperationalError):
            ask(connection, COUNT)


# Starting.


def start(folder: Path, text: str, *more: str) -> "subprocess.CompletedProcess[bytes]":
    """`rota flight` that does not start."""
    (folder / "flight.toml").write_text(text)
    with open_stage(folder) as stage:
        words = ("flight", "--coordinator=grpc://127.0.0.1:1", "--listen=127.0.0.1:0", "--config=flight.toml", *more)
        return stage.run_command(*words)


@pytest.mark.parametrize(
    ("text", "more", "code", "said"),
    [
        (
            '[queries.tables]\ntrips = "/nowhere/trips"\n',
            (),
            3,
            r"query\.source: .*'trips'.*/nowhere/trips.*\(at queries\.tables\.trips\)",
        ),
        ('[queries.tables]\nt = "bad.parquet"\n', (), 3, r"\(at queries\.tables\.t\)"),
        ('[queries.tables]\n" x" = "good.csv"\n', (), 3, r"' x'.*\(at queries\.tables\. x\)"),
        ("[queries.tables]\nt = 3\n", (), 3, "queries.tables"),
        ("", ("--listen=0.0.0.0:0",), 3, "auth.exposed"),
        ("", ("--listen=nonsense",), 3, "queries.listen"),
        ("", ("--coordinator=",), 3, "client.coordinator"),
        ("", ("--coordinator=http://x",), 3, "client.coordinator"),
        ('[tls]\ncert = "nothing.pem"\nkey = "nothing.key"\n', (), 3, "tls"),
    ],
)
def test_what_is_wrong_with_the_settings_is_told_at_the_start(
    tmp_path: Path, text: str, more: tuple[str, ...], code: int, said: str
) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"this is no Parquet")
    (tmp_path / "good.csv").write_text("a\n1\n")
    done = start(tmp_path, text, *more)
    assert (done.returncode, bool(re.search(said, done.stderr.decode()))) == (code, True), done.stderr.decode()
    assert done.stdout == b""
    assert b"Traceback" not in done.stderr


def test_an_address_that_somebody_has_is_refused(tmp_path: Path) -> None:
    with open_stage(tmp_path) as stage:
        stage.grpc_port = 1
        _, url = start_front_end(stage, make_tables(tmp_path / "tables"))
        done = stage.run_command(
            "flight", f"--listen={url.removeprefix('grpc://')}", "--coordinator=grpc://127.0.0.1:1"
        )
    assert done.returncode == 3
    assert b"listen.failed" in done.stderr
    assert b"(at queries.listen)" in done.stderr


def test_a_front_end_beside_a_coordinator_comes_and_goes_with_it(tmp_path: Path) -> None:
    settings = make_tables(tmp_path / "tables")
    with open_stage(tmp_path) as stage:
        up = stage.start_up("--flight=127.0.0.1:0", f"--config={settings}")
        found = re.search(r"queries: (grpc\S*) speaks Flight SQL, with 2 tables", up.until_said("speaks Flight SQL"))
        assert found is not None
        with connected(found.group(1)) as connection:
            assert ask(connection, COUNT).to_pylist() == [{"n": TRIPS}]
        front = [pid for pid in descendants(up.pid) if b"flight" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        assert len(front) == 1
        up.kill()
        until(lambda: not is_running(front[0]), "the front end to follow")
