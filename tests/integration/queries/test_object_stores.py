"""Tables in buckets are read and written like those in folders: in this process, and on workers with their own keys."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.s3.models import S3Backend
from pyiceberg.catalog.sql import SqlCatalog

import rota
from rota.kinds.query.graphs import graph_of
from rota.wire.capabilities import Guarantee
from rota.wire.targets import FileWriter, Target, Unpublished, aside, publish, published_name
from tests.integration.deadlines import until
from tests.integration.queries.buckets import BUCKET, Server, let_in, open_server
from tests.integration.queries.cluster import session_on
from tests.integration.service.stage import SHORT_LEASE_S, open_stage
from tests.refusals import refused

T = f"s3://{BUCKET}/t/"
OUT = f"s3://{BUCKET}/out"
SQL = "select part, sum(v) as total, count(*) as n from t group by part order by part"
RIGHT = [{"part": part, "total": 4_950, "n": 100} for part in range(4)]

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("s3")]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with open_server() as server:
        yield server


@pytest.fixture(autouse=True)
def lake(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A table of four objects, and the keys to it in this process."""
    let_in(monkeypatch, server)
    for part in range(4):
        server.put_table(f"t/{part}.parquet", pa.table({"part": [part] * 100, "v": list(range(100))}))
    yield server
    server.clear()


@pytest.fixture(params=["embedded", "on workers"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[rota.Session]:
    if request.param == "embedded":
        yield rota.Session()
        return
    with rota.Rota.embedded(tmp_path / "data", slots=2) as here, rota.Session.on(here, partitions=2) as session:
        yield session


def test_a_table_in_a_bucket_is_read(session: rota.Session, server: Server) -> None:
    session.register_parquet("t", T)
    assert session.sql(SQL).to_pylist() == RIGHT
    obstore.put(server.store(), "c/a.csv", b"id,city\n1,Oslo\n2,Rome\n")
    session.register_path("c", f"s3://{BUCKET}/c")
    joined = "select city, count(*) as n from c join t on c.id = t.part group by city order by city"
    assert session.sql(joined).to_pylist() == [{"city": "Oslo", "n": 100}, {"city": "Rome", "n": 100}]
    # A plan that has a large table in it travels in a bundle.
    session.register_table("large", pa.table({"v": list(range(200_000)), "w": ["x"] * 200_000}))
    large = "select count(*) as n from t join large using (v) where w = 'x'"
    assert session.sql(large).to_pylist() == [{"n": 400}]
    session.sql(f"create external table e stored as parquet location '{T}'")
    assert session.sql("select count(*) as n from e").to_pylist() == [{"n": 400}]


def test_an_answer_is_written_to_a_bucket(session: rota.Session, server: Server) -> None:
    session.register_parquet("t", T)
    assert session.sql(SQL).write_parquet(OUT) == 4
    assert all(name.startswith("out/part-") and name.endswith(".parquet") for name in server.names("out"))
    assert session.read_parquet(f"{OUT}/").sort("part").to_pylist() == RIGHT
    with refused("query.target", "s3://lake/out", "part-", path="mode"):
        session.sql(SQL).write_parquet(OUT)
    session.sql(SQL).write_parquet(f"{OUT}/", mode="append")
    assert session.read_parquet(f"{OUT}/").count() == 8
    session.sql("select 7 as part").write_csv(OUT, mode="overwrite")
    (name,) = server.names("out")
    assert bytes(obstore.get(server.store(), name).bytes()).split() == [b'"part"', b"7"]


def test_a_stream_writes_to_a_bucket_and_takes_back_what_is_made_again(tmp_path: Path, server: Server) -> None:
    def stream() -> rota.StreamSession:
        found = rota.StreamSession(tmp_path, rows_max=2, every_s=0)
        found.register_rows("s", pa.table({"x": [1, 2, 3, 4, 5]}))
        found.write_files("s", f"s3://{BUCKET}/stream")
        return found

    assert stream().guarantee() is Guarantee.EXACTLY_ONCE
    stream().run()
    identity = (tmp_path / "identity").read_text()[:8]
    parts = [f"stream/part-s-{number:012d}-{identity}.parquet" for number in (1, 2, 3)]
    assert server.names("stream") == parts, "and nothing is left aside"
    stream().run()
    assert server.names("stream") == parts, "what was committed can be committed again"
    with stream().start(restore=1):
        assert server.names("stream") == parts[:1]


def test_the_command_reads_buckets(server: Server) -> None:
    words = ["sql", "select count(*) as n from t", "--table", f"t={T}", "--format", "csv"]
    done = subprocess.run([sys.executable, "-m", "rota", *words], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ['"n"', "400"]


def test_nothing_is_left_of_an_answer_that_was_not_finished(session: rota.Session, server: Server) -> None:
    session.register_parquet("t", T)
    with pytest.raises(rota.Refused, match=r"query\.type"):
        session.sql("select 1 / (v - 99) as x from t").write_parquet(OUT)
    until(lambda: server.names("out") == [], "what was put aside to be removed")


def test_tables_of_iceberg_are_in_a_bucket(session: rota.Session, tmp_path: Path, server: Server) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/lake.db", "warehouse": f"s3://{BUCKET}/warehouse"}
    theirs = {"s3.endpoint": server.url, "s3.region": "us-east-1"}
    theirs |= {"s3.access-key-id": server.variables["AWS_ACCESS_KEY_ID"], "s3.secret-access-key": server.secret}
    catalog = SqlCatalog("lake", **properties, **theirs)
    catalog.create_namespace("shop")
    orders = catalog.create_table("shop.orders", schema=pa.schema([("id", pa.int64())]))
    orders.append(pa.table({"id": [1, 2]}))
    orders.append(pa.table({"id": [3]}))
    session.register_iceberg("lake", **properties)
    assert session.sql("select sum(id) as n from lake.shop.orders").to_pylist() == [{"n": 6}]


@pytest.mark.parametrize(
    ("variables", "url", "said"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "not-the-secret"}, T, r"does not let us in at http://127\.0\.0\.1:\d+ \(403, Sig"),
        ({"AWS_ACCESS_KEY_ID": "nobody"}, T, r"does not let us in .*403, InvalidAccessKeyId"),
        ({}, "s3://ocean/t/", r"s3://ocean: it is not there at .* \(404, NoSuchBucket\)"),
        ({}, f"s3://{BUCKET}/none/", r"No files found at s3://lake/none/"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, T, r"does not answer at http://127\.0\.0\.1:9"),
        ({"AWS_ALLOW_HTTP": "false"}, T, r"AWS_ALLOW_HTTP=true"),
        ({}, "ftp://lake/t", r"files at ftp:// cannot be reached"),
        ({}, "s3://me:secret@lake/t", r"begins with a bucket"),
    ],
)
def test_what_cannot_be_reached_is_said_at_once_and_without_secrets(
    server: Server, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], url: str, said: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    began = time.monotonic()
    with pytest.raises(rota.Refused, match=rf"query\.source: .*{said}") as refused:
        rota.Session().register_parquet("t", url)
    assert time.monotonic() - began < 10
    if url != f"s3://{BUCKET}/none/":
        with pytest.raises(rota.Refused, match=r"query\.target: "):
            rota.Session().sql("select 1 as x").write_parquet(url)
    for secret in (server.secret, "not-the-secret", "Signature=", "me:secret"):
        assert secret not in str(refused.value)


def test_without_keys_a_role_is_looked_for_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    # Where a machine of a cloud finds its role; nobody is there.
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(rota.Refused, match=r"query\.source: s3://lake: "):
        rota.Session().register_parquet("t", T)


def test_a_worker_has_keys_of_its_own_and_gives_them_to_no_function(tmp_path: Path, server: Server) -> None:
    """What a fragment without functions is given is not in the processes in which functions run."""
    with open_stage(tmp_path, env=server.variables) as stage:
        stage.start_server()
        stage.start_worker("one", slots=2)
        with session_on(stage, partitions=2) as session:
            session.register_parquet("t", T)
            assert session.sql(SQL).to_pylist() == RIGHT

            def spying(values: pa.Array) -> pa.Array:
                import os
                from pathlib import Path

                found = sorted(name for name in os.environ if name.startswith("AWS_"))
                for place in Path("/proc").glob("[0-9]*/environ"):
                    try:
                        if place.parent.name != "self" and b"AWS_SECRET" in place.read_bytes():
                            found.append(Path(place.parent, "cmdline").read_text())
                    except OSError:
                        pass
                return pa.array([",".join(found)] * len(values))

            session.register_udf(spying, [pa.int64()], pa.string(), name="spying")
            seen = session.sql("select spying(x) as s from (values (1)) as v(x)").to_pylist()[0]["s"]
            assert [each for each in seen.split(",") if "rota" in each] == []
            assert "AWS_" not in seen
            with refused("query.source", "Python", "s3://lake"):
                session.sql("select spying(v) from t").to_pylist()


def test_what_a_worker_may_not_reach_is_told_once(tmp_path: Path, server: Server) -> None:
    wrong = {**server.variables, "AWS_SECRET_ACCESS_KEY": "not-the-secret"}
    none = {"AWS_ENDPOINT_URL": server.url, "AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": ""}
    cases = {
        "wrong": (wrong, r"query\.source: a bucket cannot be read: it does not let us in at .* \(403, Signature"),
        "none": (none | {"AWS_SECRET_ACCESS_KEY": ""}, r"query\.source: "),
        "listed": (server.variables | {"ROTA_WORKER_QUERY_STORES": "s3://ocean"}, r"among worker\.query_stores"),
    }
    with open_stage(tmp_path) as stage:
        stage.start_server()
        session = session_on(stage)
        session.register_parquet("t", T)
        for name, (variables, said) in cases.items():
            worker = stage.start_worker(name, slots=1, env=variables)
            handle = session.submit(SQL)
            with pytest.raises(rota.Refused, match=said) as refused:
                handle.to_arrow(timeout_s=60)
            assert "not-the-secret" not in str(refused.value)
            if name != "none":
                assert [task.attempt for task in handle.tasks() if task.state == "failed"] == [1]  # pyright: ignore[reportAttributeAccessIssue] - of a cluster
            worker.remove()


def test_publishing_goes_on_where_another_was_killed_and_may_be_done_twice(server: Server) -> None:
    target = Target(OUT, "parquet")
    files = [(task, aside(target, "run", task, 41 + task)) for task in range(3)]
    for task, file in files:
        table = pa.table({"task": [task]})
        writer = FileWriter(file, table.schema, "parquet")
        writer.write(table.to_batches()[0])
        assert writer.close() > 0
    late = FileWriter(aside(target, "run", 0, 40), pa.schema([("task", pa.int64())]), "parquet")
    late.close()
    # One was copied before it was killed, and one was even removed.
    store = server.store()
    for task, is_removed in ((0, False), (1, True)):
        name = files[task][1].removeprefix(f"s3://{BUCKET}/")
        obstore.copy(store, name, published_name(target, "run", task).removeprefix(f"s3://{BUCKET}/"))
        if is_removed:
            obstore.delete(store, name)
    publish(target, "run", files)
    publish(target, "run", files)
    found = [obstore.get(store, name).bytes() for name in server.names("out")]
    tables = [pq.read_table(pa.BufferReader(bytes(each))) for each in found]
    assert [table.column("task").to_pylist() for table in tables] == [[0], [1], [2]]


def test_nothing_is_published_while_an_object_is_gone(server: Server) -> None:
    target = Target(OUT, "csv", "append")
    files = [(task, aside(target, "run", task, 1)) for task in range(2)]
    FileWriter(files[0][1], pa.schema([("task", pa.int64())]), "csv").close()
    with pytest.raises(Unpublished, match="00001-1"):
        publish(target, "run", files)
    assert [name for name in server.names("out") if "part-" in name] == []


def test_a_worker_is_killed_while_it_publishes(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    reached, may_go = threading.Event(), threading.Event()
    copy: Any = S3Backend.copy_object

    def held(*args: Any, **more: Any) -> Any:
        if not reached.is_set():
            reached.set()
            may_go.wait(30)
        return copy(*args, **more)

    monkeypatch.setattr(S3Backend, "copy_object", held)
    with open_stage(tmp_path, env=server.variables, lease_s=SHORT_LEASE_S) as stage, ThreadPoolExecutor(1) as threads:
        stage.start_server()
        worker = stage.start_worker("one", slots=2)
        session = session_on(stage, partitions=2)
        session.register_parquet("t", T)
        written = threads.submit(session.sql("select part, v from t").write_parquet, OUT)
        assert reached.wait(30)
        worker.kill()
        stage.start_worker("two", slots=2)
        may_go.set()
        assert written.result(60) == 400
        assert session.read_parquet(f"{OUT}/").count() == 400
        assert [name for name in server.names("out") if "_rota-" in name] == []


def test_what_was_published_of_a_query_that_is_cancelled_is_taken_back(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, waits, may_go = threading.Event(), threading.Event(), threading.Event()
    copy: Any = S3Backend.copy_object

    def held(*args: Any, **more: Any) -> Any:
        if waits.is_set():
            done = copy(*args, **more)
            seen.set()
            return done
        waits.set()
        may_go.wait(30)
        raise ConnectionError("whoever asked for it was killed")

    monkeypatch.setattr(S3Backend, "copy_object", held)
    with (
        rota.Rota.embedded(tmp_path / "data", slots=2) as here,
        rota.Session.on(here, partitions=2) as session,
        ThreadPoolExecutor(1) as threads,
    ):
        session.register_parquet("t", T)
        written = threads.submit(session.sql("select part, v from t").write_parquet, OUT)
        try:
            assert waits.wait(30)
            assert seen.wait(30)
            assert len([name for name in server.names("out") if "part-" in name]) == 1
            (run,) = here.runs()
            here.run(run.id).cancel("no more")
            with pytest.raises(rota.Refused, match=r"run\.ended: .*no more"):
                written.result(30)
        finally:
            may_go.set()
        assert server.names("out") == []


def test_an_object_that_was_replaced_since_the_query_was_planned_is_noticed(server: Server, tmp_path: Path) -> None:
    with rota.Rota.embedded(tmp_path / "data", slots=2) as here, rota.Session.on(here, partitions=2) as session:
        session.register_parquet("t", T)
        plan = session.runtime.plan(session.engine, session.sql(SQL).plan())
        assert plan is not None
        graph = graph_of(plan.stages)
        planned_at = obstore.head(server.store(), "t/0.parquet")["last_modified"].timestamp()
        until(lambda: time.time() >= planned_at + 1, "the next second, which is how exact buckets are")
        server.put_table("t/0.parquet", pa.table({"part": [0] * 100, "v": list(range(99, -1, -1))}))
        run = here.submit(graph)
        run.wait()
        (failed, *_) = run.tasks(states=("failed",))
        assert re.search(r"query\.source: .*t/0\.parquet.*changed.*\(at sql\)", failed.error)
