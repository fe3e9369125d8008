"""Large answers that are read once stay with their worker, and are fetched from there."""

import asyncio
import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rota.app.sql import fetching
from rota.app.sql.cluster import ClusterQuery
from rota.app.sql.runtimes import ClusterRuntime
from rota.core.states import RunState
from rota.wire.queries import KEPT, KeptAnswer, decode_kept
from rota.wire.work import Value, decode_value
from tests.integration.queries.cluster import make_table, session_on
from tests.integration.service.stage import Stage, open_stage
from tests.refusals import refused

pytestmark = pytest.mark.full

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
    """Where the first batch of a stream is over."""
    source = pa.BufferReader(content)
    pa.ipc.open_stream(source).read_next_batch()
    return source.tell()


@pytest.mark.parametrize("is_between", [True, False], ids=["between batches", "in the middle of one"])
def test_an_answer_that_is_lost_while_it_is_read_is_never_taken_for_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_between: bool
) -> None:
    with open_stage(tmp_path) as stage:
        stage.start_server()
        stage.start_worker("one")
        handle = begin(stage, tmp_path)
        kept_of(handle)

        end = 0

        class Broken(fetching.FetchedAnswer):
            def _ask(self, method: str, first: int = 0) -> Any:
                nonlocal end
                connection, answer = super()._ask(method, first)
                if method == "HEAD":
                    return connection, answer
                content = answer.read()
                end = end or first + (first_batch_ends(content) if is_between else len(content) // 2)
                return connection, io.BytesIO(content[: max(0, end - first)])

        monkeypatch.setattr("rota.app.sql.cluster.FetchedAnswer", Broken)
        with refused("query.failed", handle.id, "lost", path="sql"):
            handle.to_arrow()


def test_who_was_hung_up_on_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_stage(tmp_path) as stage:
        stage.start_server()
        stage.start_worker("one")
        handle = begin(stage, tmp_path)
        size, asked = kept_of(handle).part.bytes, 0

        class Impatient(fetching.FetchedAnswer):
            def _ask(self, method: str, first: int = 0) -> Any:
                nonlocal asked
                connection, answer = super()._ask(method, first)
                if method == "HEAD":
                    return connection, answer
                asked += 1
                return connection, io.BytesIO(answer.read(size // 5))

        monkeypatch.setattr("rota.app.sql.cluster.FetchedAnswer", Impatient)
        check(handle.to_arrow())
        assert asked == 5


def test_rows_without_columns_are_counted(tmp_path: Path) -> None:
    with open_stage(tmp_path) as stage:
        stage.start_server()
        stage.start_worker("one")
        session = session_on(stage)
        session.register_parquet("t", make_table(tmp_path / "t"))
        assert session.sql("select from t").count() == 400


def test_several_who_wait_for_a_lost_answer_have_it_made_again_once(tmp_path: Path) -> None:
    with open_stage(tmp_path) as stage:
        stage.start_server()
        worker = stage.start_worker("one")
        handle = begin(stage, tmp_path)
        worker.kill()
        stage.start_worker("two")
        with ThreadPoolExecutor(3) as threads:
            for answer in threads.map(lambda _: handle.to_arrow(timeout_s=60), range(3)):
                check(answer)
        assert len(stage.client().runs()) == 2


def test_who_stops_waiting_for_an_answer_ends_the_query(tmp_path: Path) -> None:
    with open_stage(tmp_path) as stage:
        # Nobody runs it.
        stage.start_server()
        session = session_on(stage)

        async def give_up() -> None:
            asking = asyncio.ensure_future(session.sql_async("select 1"))
            while not (runs := await asyncio.to_thread(stage.client().runs)):
                pass
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            view = await asyncio.to_thread(stage.client().run(runs[0].id).status)
            assert (view.state, "gave up" in view.reason) == (RunState.CANCELLED, True)

        asyncio.run(give_up())


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
