"""What a query writes is seen when all of it is written, and not before; by whatever it is run."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rota
from rota.core.errors import Refused
from rota.wire.targets import FileWriter, Target, Unpublished, aside, publish, published_name, retract
from tests.integration.queries.cluster import make_table
from tests.refusals import refused

pytestmark = pytest.mark.full

SQL = "select part, count(*) as n from t group by part"


@pytest.fixture(params=["embedded", "on workers"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[rota.Session]:
    table = make_table(tmp_path / "t")
    if request.param == "embedded":
        session = rota.Session()
        session.register_parquet("t", table)
        yield session
        return
    with rota.Rota.embedded(tmp_path / "data", slots=2) as here, rota.Session.on(here, partitions=2) as session:
        session.register_parquet("t", table)
        yield session


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_an_answer_is_written_and_read_again(session: rota.Session, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert session.sql(SQL).write_parquet(out) == 4
    assert all(name.startswith("part-") and name.endswith(".parquet") for name in names(out))
    read = session.read_parquet(out).sort("part").to_pylist()
    assert read == [{"part": part, "n": 100} for part in range(4)]
    assert session.sql(SQL).write_csv(tmp_path / "csv") == 4
    assert session.read_csv(tmp_path / "csv").count() == 4


def test_what_is_there_is_an_error_stays_or_goes(session: rota.Session, tmp_path: Path) -> None:
    out = tmp_path / "out"
    session.sql(SQL).write_parquet(out)
    before = names(out)
    with refused("query.target", str(out), "part-", path="mode"):
        session.sql(SQL).write_parquet(out)
    assert names(out) == before
    session.sql(SQL).write_parquet(out, mode="append")
    assert session.read_parquet(out).count() == 8
    session.sql("select 7 as part, 1 as n").write_parquet(out, mode="overwrite")
    assert session.read_parquet(out).to_pylist() == [{"part": 7, "n": 1}]
    assert not set(names(out)) & set(before)


def test_folders_are_not_overwritten_and_nothing_is_lost(session: rota.Session, tmp_path: Path) -> None:
    out = tmp_path / "out"
    session.sql(SQL).write_parquet(out)
    (out / "year=2024").mkdir()
    before = names(out)
    with refused("query.target", "year=2024/", str(out), path="mode"):
        session.sql(SQL).write_parquet(out, mode="overwrite")
    assert names(out) == before
    target = Target(str(out), "parquet", "overwrite")
    file = FileWriter(aside(target, "run", 0, 1), pa.schema([("a", pa.int64())]), "parquet")
    file.close()
    with refused("query.target", "year=2024/", path="mode"):
        publish(target, "run", [(0, aside(target, "run", 0, 1))])
    assert [name for name in names(out) if not name.startswith("_")] == before


def test_what_csv_cannot_hold_is_refused_and_nothing_stays(session: rota.Session, tmp_path: Path) -> None:
    with refused("query.type", "'xs'", "list", "CSV"):
        session.sql("select [1, 2] as xs").write_csv(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_was_published_of_a_query_that_was_ended_is_taken_back(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "other.parquet").touch()
    target = Target(str(out), "parquet", "append")
    for task in range(2):
        Path(published_name(target, "run", task)).touch()
    retract(target, "run", 3)
    assert names(out) == ["other.parquet"]
    for task in range(3):
        Path(published_name(target, "run", task)).touch()
    retract(target, "run", 3)
    assert len(names(out)) == 4, "all of it was published, so that it is the answer"


def test_nothing_is_seen_of_a_query_that_fails(session: rota.Session, tmp_path: Path) -> None:
    def fails(values: pa.Array) -> pa.Array:
        raise ValueError("no")

    session.register_udf(fails, [pa.int64()], pa.int64(), name="fails")
    with pytest.raises(rota.Refused, match=r"query\.function_failed"):
        session.sql("select fails(v) from t").write_parquet(tmp_path / "out")
    assert not (tmp_path / "out").exists() or names(tmp_path / "out") == []


def test_statements_write_no_files_by_themselves(session: rota.Session, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    session.sql(f"create external table files (a bigint) stored as csv location '{tmp_path}/files/'")
    for statement in (
        f"copy (select 1 as a) to '{tmp_path}/x.parquet'",
        f"explain analyze copy (select 1 as a) to '{tmp_path}/x.parquet'",
        "insert into files values (1)",
    ):
        for run in (lambda frame: frame.to_arrow(), lambda frame: frame.submit().wait()):
            with pytest.raises(Refused, match=r"query\.unsupported.*write_parquet"):
                run(session.sql(statement))
    assert not (tmp_path / "x.parquet").exists()
    assert list((tmp_path / "files").iterdir()) == []


def test_tables_in_memory_are_changed_by_statements_once() -> None:
    with rota.Session() as session:
        session.sql("create table t as select 1 as a")
        session.sql("insert into t values (2)").to_arrow()
        assert session.sql("select sum(a) as n, count(*) as c from t").to_pylist() == [{"n": 3, "c": 2}]


def test_a_place_that_cannot_be_written_to_is_refused(session: rota.Session, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with refused("query.target", str(tmp_path / "file"), path="path"):
        session.sql(SQL).write_parquet(tmp_path / "file")
    with refused("query.target", "ftp://", path="path"):
        session.sql(SQL).write_parquet("ftp://host/out")
    with refused("field.value", "'upsert'", path="mode"):
        session.sql(SQL).write_parquet(tmp_path / "out", mode="upsert")  # pyright: ignore[reportArgumentType] - so it is refused


def test_publishing_goes_on_where_another_was_killed_and_may_be_done_twice(tmp_path: Path) -> None:
    target = Target(str(tmp_path / "out"), "parquet")
    files = [(task, aside(target, "run", task, 41 + task)) for task in range(3)]
    Path(files[0][1]).parent.mkdir(parents=True)
    for task, file in files:
        pq.write_table(pa.table({"task": [task]}), file)
    Path(files[0][1]).rename(published_name(target, "run", 0))
    publish(target, "run", files)
    publish(target, "run", files)
    assert pq.read_table(target.folder).column("task").to_pylist() == [0, 1, 2]
    assert len(names(tmp_path / "out")) == 3


def test_nothing_is_published_while_files_are_gone_and_all_of_them_are_named(tmp_path: Path) -> None:
    target = Target(str(tmp_path / "out"), "parquet", "append")
    files = [(task, aside(target, "run", task, 1)) for task in range(3)]
    Path(files[0][1]).parent.mkdir(parents=True)
    pq.write_table(pa.table({"task": [0]}), files[0][1])
    with pytest.raises(Unpublished, match=r"00001-1.parquet and 1 more") as lost:
        publish(target, "run", files)
    assert lost.value.tasks == (1, 2)
    assert [name for name in names(tmp_path / "out") if name.startswith("part-")] == []


def test_what_somebody_else_wrote_meanwhile_is_not_mixed_with_ours(tmp_path: Path) -> None:
    target = Target(str(tmp_path / "out"), "parquet")
    file = aside(target, "run", 0, 1)
    Path(file).parent.mkdir(parents=True)
    pq.write_table(pa.table({"task": [0]}), file)
    pq.write_table(pa.table({"task": [9]}), tmp_path / "out" / "theirs.parquet")
    with refused("query.target", str(tmp_path / "out"), "theirs.parquet", path="mode"):
        publish(target, "run", [(0, file)])
    assert pq.read_table(tmp_path / "out" / "theirs.parquet").column("task").to_pylist() == [9]
