"""Which files a plan reads, and within which places they are."""

from pathlib import Path

import datafusion as df
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rota.wire.plans import plan_pb2 as pb
from rota.wire.plans.files import files_in, places_in
from rota.wire.queries import is_within


@pytest.fixture
def context(tmp_path: Path) -> df.SessionContext:
    context = df.SessionContext(df.SessionConfig().with_target_partitions(2))
    for name in ("many/0", "many/1", "one"):
        path = tmp_path / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"a": [1, 2, 3]}), path)
    context.register_parquet("many", f"{tmp_path}/many/")
    context.register_parquet("one", f"{tmp_path}/one.parquet")
    return context


def plan_of(context: df.SessionContext, sql: str) -> bytes:
    return context.sql(sql).execution_plan().to_bytes()


def test_files_are_named_with_what_they_were_when_it_was_planned(context: df.SessionContext, tmp_path: Path) -> None:
    (found,) = set(files_in(plan_of(context, "select sum(a) from one")))
    status = (tmp_path / "one.parquet").stat()
    assert found.name == f"{tmp_path}/one.parquet"
    assert (found.bytes, found.modified_ns) == (status.st_size, status.st_mtime_ns)


def test_a_table_is_one_place_and_a_file_is_itself(context: df.SessionContext, tmp_path: Path) -> None:
    assert places_in(plan_of(context, "select * from many")) == (f"{tmp_path}/many",)
    assert places_in(plan_of(context, "select * from one")) == (f"{tmp_path}/one.parquet",)
    both = places_in(plan_of(context, "select * from many join one using (a)"))
    assert both == (f"{tmp_path}/many", f"{tmp_path}/one.parquet")
    assert places_in(plan_of(context, "select 1")) == ()


def test_places_in_buckets_are_urls() -> None:
    files = [pb.File(path="t/a/1.parquet"), pb.File(path="t/b/2.parquet")]
    conf = pb.ScanConf(object_store_url="s3://lake/", file_groups=[pb.FileGroup(files=files)])
    plan = pb.PlanNode(parquet_scan=pb.FileScan(conf=conf)).SerializeToString()
    assert [file.name for file in files_in(plan)] == ["s3://lake/t/a/1.parquet", "s3://lake/t/b/2.parquet"]
    assert places_in(plan) == ("s3://lake/t",)


def test_of_a_plan_with_unknown_nodes_nothing_is_said(context: df.SessionContext) -> None:
    # The number of a kind of node that is not ours.
    assert places_in(b"\xfa\x07\x00") is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("/data/t", True),
        ("/data/t/x.parquet", True),
        ("/data/tt/x.parquet", False),
        ("/data", False),
        ("/data/t/../../etc/passwd", False),
        ("/data/t/..", False),
        ("s3://lake/public/x", True),
        ("s3://lake/publicity/x", False),
        ("s3://lake", False),
    ],
)
def test_a_place_is_within_another_by_whole_names(name: str, *, expected: bool) -> None:
    assert is_within(name, ("/data/t", "s3://lake/public/")) is expected
