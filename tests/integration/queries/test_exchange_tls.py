"""What tasks of a query pass on goes over TLS between workers that have certificates, and to nobody who has others."""

import socket
from pathlib import Path

import pytest
import trustme

import rota
from rota.app.sql.cluster import ClusterQuery
from rota.wire.queries import decode_output
from tests.integration.queries.cluster import make_table
from tests.integration.service.stage import Stage, open_stage
from tests.integration.service.test_tls import write_leaf

pytestmark = pytest.mark.full

TOKEN = "0123456789abcdef0123456789abcdef"
SQL = "select v % 7 as k, count(*) as n, sum(part) as s from t group by k order by k"
RIGHT = [{"k": k, "n": 4 * len(range(k, 100, 7)), "s": 6 * len(range(k, 100, 7))} for k in range(7)]


def secure(folder: Path, authority: trustme.CA, other: trustme.CA) -> dict[str, str]:
    """Certificates for a coordinator and its workers, and the variables of both."""
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    other.cert_pem.write_to_path(str(folder / "other.pem"))
    write_leaf(folder, "server", authority, "127.0.0.1")
    write_leaf(folder, "worker", authority, socket.gethostname())
    write_leaf(folder, "stranger", other, socket.gethostname())
    return {
        "ROTA_EXECUTOR_TASK_BEARER_TOKEN": TOKEN,
        "ROTA_COORDINATOR_BEARER_TOKEN": TOKEN[::-1],
        "ROTA_CLIENT_CA": str(folder / "ca.pem"),
        "ROTA_TLS_CERT": str(folder / "server.pem"),
        "ROTA_TLS_KEY": str(folder / "server.key"),
    }


def work(stage: Stage, name: str, cert: str = "worker") -> None:
    """A worker that shows this certificate to others."""
    stage.start_worker(
        name,
        f"--coordinator=grpcs://127.0.0.1:{stage.grpc_port}",
        slots=1,
        env={
            "ROTA_WORKER_EXCHANGE_LISTEN": "0.0.0.0:0",
            "ROTA_TLS_CERT": str(stage.folder / f"{cert}.pem"),
            "ROTA_TLS_KEY": str(stage.folder / f"{cert}.key"),
        },
    )


def session_of(stage: Stage) -> rota.Session:
    url = f"grpcs://127.0.0.1:{stage.grpc_port}"
    remote = rota.Rota.connect(url, token=TOKEN[::-1], ca=str(stage.folder / "ca.pem"))
    return rota.Session.on(remote, partitions=4)


def test_workers_fetch_from_each_other_over_tls(tmp_path: Path) -> None:
    env = secure(tmp_path, trustme.CA(), trustme.CA())
    with open_stage(tmp_path, env=env) as stage:
        stage.start_server()
        work(stage, "one")
        work(stage, "two")
        with session_of(stage) as session:
            session.register_parquet("t", make_table(tmp_path / "t"))
            handle = session.submit(SQL)
            assert isinstance(handle, ClusterQuery)
            assert handle.to_arrow(timeout_s=90).to_pylist() == RIGHT
            tasks = handle.run.tasks("stage-1")
            urls = {decode_output(task.result or b"").url for task in tasks}
            assert len(urls) == 2, "both have something that the other one needs"
            assert all(url.startswith("https://") for url in urls)


def test_a_worker_whose_certificate_nobody_vouches_for_is_not_read(tmp_path: Path) -> None:
    env = secure(tmp_path, trustme.CA(), trustme.CA())
    with open_stage(tmp_path, env=env) as stage:
        stage.start_server()
        work(stage, "one")
        work(stage, "two", "stranger")
        with session_of(stage) as session:
            session.register_parquet("t", make_table(tmp_path / "t"))
            with pytest.raises(rota.Refused, match=r"https://.* is not trusted: .*client\.ca"):
                session.submit(SQL).to_arrow(timeout_s=120)
