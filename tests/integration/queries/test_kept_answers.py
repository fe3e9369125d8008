"""Large answers that are read once stay with their worker, and are fetched from there."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rota.app.sql import fetching
from rota.app.sql.cluster import ClusterQuery
from rota.app.sql.runtimes import ClusterRuntime
from rota.core.errors import Refused
from rota.wire.queries import KEPT, KeptAnswer, decode_kept
from rota.wire.work import Value, decode_value
from tests.integration.queries.cluster import make_table, session_on
from tests.integration.service.stage import Stage, open_stage

SQL = "select part, v, repeat('x', 100) as text from t where part >= $1 order by part, v"


def begin(stage: Stage, folder: Path) -> ClusterQuery:
    """A query whose answer is large and near."""
    session = session_on(stage)
    session.register_parquet("t", make_table(folder / "t", rows=5_000))
    assert isinstance(session.runtime, ClusterRuntime)
    handle = session.runtime._accept(session.engine, session.sql(SQL, [0]).plan(), SQL, is_kept=False)
    assert isinstance(handle, ClusterQuery)
    handle.wait(60)
    return handle


def kept_of(handle: ClusterQuery) -> KeptAnswer:
    (task,) = handle.tasks()
    assert task.result is not None
    value = decode_value(task.result)
    assert isinstance(value, Value)
    assert value.encoding == KEPT
    return decode_kept(value.content)


def check(answer: pa.Table) -> None:
    assert answer.num_rows == 20_000
    assert answer.column("v").to_pylist() == [*range(5_000)] * 4
    assert set(answer.column("text").to_pylist()) == {"x" * 100}


def test_a_large_answer_is_fetched_from_its_worker_as_often_as_one_likes(tmp_path: Path) -> None:
    with open_stage(tmp_path) as stage:
        stage.start_server()
        stage.start_worker("one")
        handle = begin(stage, tmp_path)
        kept = kept_of(handle)
        for _ in range(2):
            check(handle.to_arrow())
        assert sum(batch.num_rows for batch in fetching.FetchedAnswer(kept).batches()) == 20_000
        stranger = KeptAnswer(kept.url, kept.folder, kept.part, "0" * 64)
        with pytest.raises(fetching.AnswerGone, match="403"):
            fetching.FetchedAnswer(stranger)


def test_an_answer_that_went_with_its_worker_is_made_again(tmp_path: Path) -> None:
    with open_stage(tmp_path) as stage:
        stage.start_server()
        worker = stage.start_worker("one")
        handle = begin(stage, tmp_path)
        first = handle.id
        worker.kill()
        stage.start_worker("two")
        check(handle.to_arrow(timeout_s=60))
        assert handle.id != first


def first_batch_ends(content: bytes) -> int:
    """Where the first batch of a file is over."""
    source = pa.BufferReader(content[8:])
    pa.ipc.open_stream(source).read_next_batch()
    return 8 + source.tell()


@pytest.mark.parametrize("is_between", [True, False], ids=["between batches", "in the middle of one"])
def test_an_answer_that_is_lost_while_it_is_read_is_never_taken_for_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_between: bool
) -> None:
    with open_stage(tmp_path) as stage:
        stage.start_server()
        stage.start_worker("one")
        handle = begin(stage, tmp_path)
        kept_of(handle)

        class Broken(fetching.FetchedAnswer):
            def _ask(self, method: str) -> Any:
                connection, answer = super()._ask(method)
                if method == "HEAD":
                    return connection, answer
                content = answer.read()
                end = first_batch_ends(content) if is_between else len(content) // 2
                return connection, pa.BufferReader(content[:end])

        monkeypatch.setattr("rota.app.sql.cluster.FetchedAnswer", Broken)
        with pytest.raises(Refused, match="was lost while it was read"):
            handle.to_arrow()


def test_an_answer_that_is_kept_outlives_its_worker(tmp_path: Path) -> None:
    with open_stage(tmp_path) as stage:
        stage.start_server()
        worker = stage.start_worker("one")
        session = session_on(stage)
        session.register_parquet("t", make_table(tmp_path / "t", rows=5_000))
        handle = session.submit(SQL, [0])
        handle.wait(60)
        worker.kill()
        check(handle.to_arrow())


def test_a_little_answer_travels_with_the_report(tmp_path: Path) -> None:
    with open_stage(tmp_path) as stage:
        stage.start_server()
        worker = stage.start_worker("one")
        session = session_on(stage)
        assert session.sql("select 1 as x").to_pylist() == [{"x": 1}]
        assert isinstance(session.runtime, ClusterRuntime)
        handle = session.runtime._accept(session.engine, session.sql("select 2 as x").plan(), "", is_kept=False)
        handle.wait(60)
        worker.kill()
        assert handle.to_arrow().to_pylist() == [{"x": 2}]
