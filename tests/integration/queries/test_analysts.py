"""Analysts: queries that only read, and no code, whatever their plans say of themselves."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec import structs

import rota
from rota.core.errors import Refused
from rota.core.model import Graph, TaskSpec
from rota.kinds.query import cutting, graphs
from rota.wire.queries import decode_fragment, encode_fragment
from tests.integration.queries.cluster import make_table
from tests.integration.service.stage import Stage, open_stage
from tests.refusals import refused

TOKENS = "analyst:analyst-secret,writer:writer-secret,worker:worker-secret"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("analysts")
    make_table(folder / "t")
    with open_stage(folder) as opened:
        make_table(folder / "other")
        opened.start_server(
            env={"ROTA_COORDINATOR_BEARER_TOKENS": TOKENS, "ROTA_QUERIES_FOLDERS": f"/elsewhere,{folder}/t"}
        )
        opened.start_worker("one", env={"ROTA_EXECUTOR_TASK_BEARER_TOKEN": "worker-secret"})
        yield opened


def session_of(stage: Stage, role: str) -> rota.Session:
    session = rota.Session.connect(stage.url, remote={"token": f"{role}-secret"}, partitions=2)
    session.register_parquet("t", stage.folder / "t")
    return session


def register_spy(session: rota.Session, seen: Path) -> None:
    """A function whose pickle writes a file when it is opened."""
    path = str(seen)

    def spy(values: pa.Array) -> pa.Array:
        with open(path, "w") as file:  # noqa: PTH123 - pickled, and run elsewhere
            file.write("here")
        return values

    session.register_udf(spy, [pa.int64()], pa.int64(), name="spy")


def test_an_analyst_asks_queries_in_stages_and_cancels_them(stage: Stage) -> None:
    with session_of(stage, "analyst") as session:
        frame = session.sql("select part, sum(v) as total from t group by part order by part")
        assert frame.to_pylist() == [{"part": part, "total": 4_950} for part in range(4)]
        session.submit("select count(*) from t").cancel()


def test_an_analyst_brings_no_functions_which_a_writer_may(stage: Stage, tmp_path: Path) -> None:
    for role in ("analyst", "writer"):
        with session_of(stage, role) as session:
            register_spy(session, tmp_path / role)
            frame = session.sql("select sum(spy(v)) as total from t")
            if role == "analyst":
                with pytest.raises(Refused, match=r"auth\.role.*without Python functions"):
                    frame.to_arrow()
            else:
                assert frame.to_pylist() == [{"total": 4 * 4_950}]
            assert (tmp_path / role).exists() == (role == "writer")


def test_a_plan_that_lies_about_its_code_is_not_opened(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "has_code", lambda plan: False)
    with session_of(stage, "analyst") as session:
        register_spy(session, tmp_path / "seen")
        with pytest.raises(Refused, match="Refusing to deserialize"):
            session.sql("select sum(spy(v)) from t").to_arrow()
    assert not (tmp_path / "seen").exists()


def test_an_analyst_reads_only_what_the_settings_name(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    with session_of(stage, "analyst") as session:
        session.register_parquet("other", stage.folder / "other")
        frame = session.sql("select count(*) from other join t using (v)")
        with refused("auth.role", f"{stage.folder}/other", "queries.folders", path="graph"):
            frame.to_arrow()
        # Nor with a session of its own making, which says that it reads something else, or whatever it likes.
        monkeypatch.setattr(graphs, "places_in", lambda plan: (f"{stage.folder}/t",))
        with refused("query.source", "other/0.parquet", "(at plan)"):
            frame.to_arrow()
        monkeypatch.setattr(graphs, "places_in", lambda plan: None)
        with refused("auth.role", path="graph") as caught:
            frame.to_arrow()
        assert f"{stage.folder}/other" not in str(caught.value)
    with session_of(stage, "writer") as session:
        session.register_parquet("other", stage.folder / "other")
        assert session.table("other").count() == 400


def test_an_analyst_writes_nothing(stage: Stage, tmp_path: Path) -> None:
    with session_of(stage, "analyst") as session, pytest.raises(Refused, match=r"auth\.role.*only read"):
        session.table("t").write_parquet(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_analyst_copies_nothing_to_files_either(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.parquet"
    with session_of(stage, "analyst") as session:
        frame = session.sql(f"copy (select v from t) to '{out}'")  # noqa: S608 - a folder of ours
        with pytest.raises(Refused, match=r"query\.unsupported"):
            frame.to_arrow()
        # Nor with a session of its own making, which asks nobody.
        monkeypatch.setattr(cutting, "has_sink", lambda plan: False)
        monkeypatch.setattr(graphs, "places_in", lambda plan: (f"{stage.folder}/t",))
        with refused("query.unsupported", "rota logs"):
            frame.to_arrow()
    assert not out.exists()


def test_an_analyst_submits_and_cancels_nothing_else(stage: Stage) -> None:
    work = Graph(name="g", tasks=(TaskSpec(id="a", kind="command"),))
    with (
        rota.connect(stage.url, token="analyst-secret") as analyst,
        rota.connect(
            stage.url,
            token="writer-secret",
        ) as writer,
    ):
        for graph in (
            work,
            structs.replace(work, kind="query"),
            structs.replace(work, tasks=(TaskSpec(id="a", kind="query", work=b"\xc1"),), kind="query"),
        ):
            with pytest.raises(Refused, match=r"auth\.role|field\.value"):
                analyst.submit(graph)
        run = writer.submit(
            structs.replace(work, tasks=(TaskSpec(id="a", kind="command", requires=(("nobody", "is"),)),))
        )
        with pytest.raises(Refused, match=r"auth\.role"):
            analyst.run(run.id).cancel()
        run.cancel()


def test_a_fragment_that_says_it_has_code_is_refused_at_the_door(stage: Stage) -> None:
    with session_of(stage, "analyst") as session, rota.connect(stage.url, token="analyst-secret") as analyst:
        plan = session.runtime.plan(session.engine, session.sql("select 1").plan())
        assert plan is not None
        graph = graphs.graph_of(plan.stages)
        (task,) = graph.tasks
        claimed = structs.replace(decode_fragment(task.work), has_code=True)
        lying = structs.replace(task, work=encode_fragment(claimed))
        with pytest.raises(Refused, match=r"auth\.role"):
            analyst.submit(structs.replace(graph, tasks=(lying,)))
