"""What a program waits for ends with it; what it has let go on purpose does not."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from rota.api.abandoning import REASON
from rota.core.questions import RunView
from tests.integration.deadlines import until
from tests.integration.queries.cluster import Gate, make_table, session_on
from tests.integration.service.stage import Stage, open_stage

pytestmark = pytest.mark.full

PROGRAM = """
import sys
import pyarrow as pa
import rota
from pathlib import Path
from rota.app.sql import cluster

cluster.ABANDON_MS = 500
url, table, gate, came, how = sys.argv[1:]

def waits(parts):
    with open(came, "a") as journal:
        journal.write("came\\n")
    with open(gate) as file:
        file.read()
    return parts

with rota.Session.connect(url) as session:
    session.register_parquet("t", table)
    session.register_udf(waits, [pa.int64()], pa.int64(), name="waits")
    frame = session.sql("select sum(waits(part)) as n from t")
    if how == "waits":
        frame.to_arrow()
    else:
        frame.submit()
        Path(came).with_name("submitted").touch()
        sys.stdin.read()
"""


def begin(stage: Stage, folder: Path, gate: Gate, how: str) -> "subprocess.Popen[bytes]":
    url = f"grpc://127.0.0.1:{stage.grpc_port}"
    words = [url, str(make_table(folder / "t", files=1)), gate.path, str(gate.came), how]
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *words], env=stage.env, stdin=subprocess.PIPE)


@pytest.mark.parametrize("how", ["waits", "submits"])
def test_a_query_ends_with_the_program_that_waits_for_it(tmp_path: Path, how: str) -> None:
    gate = Gate(tmp_path)
    with open_stage(tmp_path) as stage:
        stage.start_server()
        stage.start_worker("one")
        program = begin(stage, tmp_path, gate, how)
        try:
            until(gate.is_reached, "the query to wait")
            client = stage.client()
            (view,) = client.runs()
            if how == "submits":
                until((tmp_path / "submitted").exists, "the program to have let go of it")
        finally:
            program.kill()
            program.communicate()
        run = client.run(view.id)
        if how == "waits":
            ended = until(lambda: _ended(run.status()), "the query to be cancelled")
            assert (ended.state, ended.reason) == ("cancelled", REASON)
            return
        gate.open()
        assert run.wait(60).state == "success"


def test_a_connection_that_is_opened_again_keeps_it(tmp_path: Path) -> None:
    """The coordinator is killed and comes back; whoever waits says again that they do."""
    gate = Gate(tmp_path)
    with open_stage(tmp_path, lease_s=10) as stage:
        server = stage.start_server()
        stage.start_worker("one")
        session = session_on(stage)
        session.register_parquet("t", make_table(tmp_path / "t"))
        session.register_udf(gate.function(0), [pa.int64(), pa.int64()], pa.int64(), name="waits")
        handle = session.submit("select sum(waits(part, v)) as n from t")
        handle.is_ours_alone = True
        until(gate.is_reached, "the query to wait")
        with pytest.raises(TimeoutError):
            handle.wait(0.2)
        server.kill()
        stage.start_server()
        gate.open()
        assert handle.to_arrow(timeout_s=60).to_pylist() == [{"n": 19_800}]


def _ended(view: RunView) -> RunView | None:
    return view if view.state in ("cancelled", "failed", "success") else None
