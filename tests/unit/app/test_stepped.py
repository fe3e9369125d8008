"""Steps of streams as a worker takes them: from people whom it does not know."""

import tempfile
from pathlib import Path
from typing import Any

import pytest

from rota.app.sql.stepped import _engine, check_step
from rota.core.errors import Refused
from rota.kinds.query.streams.chain import Chain
from rota.kinds.query.streams.rounds import Plan
from rota.kinds.query.streams.steps import Owning, SentView, Step
from rota.wire.plans import plan_pb2 as pb
from rota.wire.queries import Answered
from rota.worker.runners.queries.orders import Order


def step(folder: Path, aside: str = "pieces/1-1", **more: Any) -> Step:
    return Step(folder=str(folder), aside=aside, plan=Plan(round=1, planned_at_ms=0), parallelism=1, **more)


@pytest.fixture(autouse=True)
def _same_place_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step has a process for itself, and sets where the engine puts what does not fit into memory."""
    monkeypatch.setenv("TMPDIR", tempfile.gettempdir())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Chain(tmp_path / "s").make()
    return tmp_path / "s"


def reading(store: str) -> SentView:
    plan = pb.PlanNode()
    plan.arrow_scan.conf.object_store_url = f"{store}/"
    return SentView(name="v", reads="s", sql="", plan=plan.SerializeToString(), leaf="", schema=b"", on_error="fail")


def test_a_step_reads_only_buckets_that_it_has_named(folder: Path) -> None:
    views = (reading("s3://ours"),)
    check_step(step(folder, views=views), ["s3://ours"])
    with pytest.raises(Refused, match=r"query\.source.*s3://ours"):
        check_step(step(folder, views=views), [])


@pytest.mark.parametrize("aside", ["../pieces/1-1", "pieces/../../x", "/etc", "rounds", ""])
def test_a_step_writes_only_where_a_stream_has_its_pieces(folder: Path, aside: str) -> None:
    check_step(step(folder), [])
    with pytest.raises(Refused, match=r"stream\.folder"):
        check_step(step(folder, aside), [])


def test_a_step_writes_to_folders_of_streams_only(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"stream\.folder"):
        check_step(step(tmp_path), [])
    with pytest.raises(Refused, match=r"stream\.folder"):
        check_step(step(folder, owning=Owning(operator="../../x")), [])
    (folder / "pieces").symlink_to(tmp_path)
    with pytest.raises(Refused, match=r"stream\.folder"):
        check_step(step(folder), [])


def test_texts_of_a_step_reach_no_buckets_and_define_nothing(tmp_path: Path) -> None:
    engine = _engine(Order(plan=b"", output=Answered(), schema=b"", folder=str(tmp_path), result_file=""))
    engine.sql("select 'x' <> 's3://blobs-of-all/y'")
    assert not engine._stores
    with pytest.raises(Refused):
        engine.sql(f"create external table t stored as parquet location '{tmp_path}'")
