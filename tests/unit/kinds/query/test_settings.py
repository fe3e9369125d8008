"""Settings of a session hold on workers: they are sent with a plan if they change answers, and only then."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rota.kinds.query.engine import SqlEngine
from rota.kinds.query.plans import PhysicalPlan, Wishes, logical_plan, physical_plan
from rota.kinds.query.settings import PLANNING, changed_settings
from rota.wire.plans.settings import is_sent
from tests.queries.staged import Stages
from tests.refusals import refused

pytestmark = pytest.mark.slow

SETTINGS = {
    "none": {},
    "time zone": {"datafusion.execution.time_zone": "+02:00"},
    "ANSI": {"datafusion.execution.enable_ansi_mode": "true"},
    "binary as text": {"datafusion.execution.parquet.binary_as_string": "true"},
    "no views": {"datafusion.execution.parquet.schema_force_view_types": "false"},
    "filters in scans": {
        "datafusion.execution.parquet.pushdown_filters": "true",
        "datafusion.execution.parquet.reorder_filters": "true",
    },
    "sort merge": {"datafusion.optimizer.prefer_hash_join": "false"},
    "views expanded": {"datafusion.optimizer.expand_views_at_output": "true"},
    "subqueries as joins": {"datafusion.optimizer.enable_physical_uncorrelated_scalar_subquery": "false"},
    "no rules": {"datafusion.optimizer.max_passes": "0"},
    "format": {"datafusion.format.date_format": "%d.%m.%Y", "datafusion.format.timestamp_format": "%d.%m.%Y"},
}
STATEMENTS = {
    "hour": "select date_part('hour', to_timestamp(s)) as x from t",
    "compared": "select cast(s as timestamptz) < timestamptz '2020-01-01 00:00:00+00:00' as x from t",
    "as text": "select cast(to_timestamp(s) as varchar) as x, cast(cast(s as timestamp) as varchar) as y from t",
    "date as text": "select cast(cast(s as date) as varchar) as x from t",
    "zoned": "select cast(cast(s as timestamp) as timestamptz) as x from t",
    "grouped": "select date_trunc('day', to_timestamp(s)) as x, count(*) as n from t group by 1",
    "planned by a worker": (
        "select last_value(b) ignore nulls over (order by s) as x, cast(to_timestamp(s) as varchar) as y from t"
    ),
    "binary": "select b, count(*) as n from t group by b",
    "filtered": "select s from t where s > '2020-01-01T00:30:00' and b is not null",
    "joined": "select l.s from t as l join t as r on l.s = r.s where l.b is not null",
    "scalar subquery": "select s from t where s = (select max(s) from t)",
}


def session(folder: Path, settings: dict[str, str]) -> SqlEngine:
    engine = SqlEngine(dict(PLANNING))
    engine.register_parquet("t", folder)
    for name, value in settings.items():
        engine.sql(f"set {name} = '{value}'")
    # Tables are made as the settings are then.
    engine.register_parquet("t", folder)
    return engine


def planned(engine: SqlEngine, sql: str) -> PhysicalPlan:
    return physical_plan(engine, logical_plan(engine, engine.sql(sql)), lambda: 2, Wishes(partitions=2))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("t")
    for number in range(2):
        texts = [f"2020-01-0{number + 1}T0{hour}:00:00" for hour in range(3)]
        table = pa.table({"s": texts, "b": pa.array([b"x", None, b"y"], pa.binary())})
        pq.write_table(table, folder / f"{number}.parquet")
    return folder


@pytest.mark.parametrize("what", SETTINGS)
def test_a_setting_holds_in_stages(folder: Path, tmp_path: Path, what: str) -> None:
    engine = session(folder, SETTINGS[what])
    for name, sql in STATEMENTS.items():
        wanted = engine.sql(sql).to_arrow_table()
        plan = planned(engine, sql)
        found = Stages(plan.stages, tmp_path / name).answer()
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist())), name
        assert found.schema.types == wanted.schema.types, name
        assert all(dict(stage.settings) == SETTINGS[what] for stage in plan.stages), name


def test_a_time_zone_that_is_not_sent_would_be_missed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rota.kinds.query.plans.changed_settings", lambda _: ())
    engine = session(folder, SETTINGS["time zone"])
    assert not _is_same(engine, STATEMENTS["as text"], tmp_path / "physical")
    assert not _is_same(engine, STATEMENTS["planned by a worker"], tmp_path / "logical")


def _is_same(engine: SqlEngine, sql: str, folder: Path) -> bool:
    wanted = engine.sql(sql).to_arrow_table().to_pylist()
    try:
        found = Stages(planned(engine, sql).stages, folder).answer().to_pylist()
    except Exception:
        # The engine may notice that types differ.
        return False
    return sorted(map(repr, found)) == sorted(map(repr, wanted))


def test_memory_and_paths_are_the_workers_own(folder: Path) -> None:
    local = {
        "datafusion.execution.batch_size": "1000",
        "datafusion.execution.sort_spill_reservation_bytes": "1000000",
        "datafusion.runtime.memory_limit": "1G",
        "datafusion.runtime.temp_directory": "/tmp",
        "datafusion.execution.target_partitions": "7",
    }
    assert changed_settings(session(folder, local).context) == ()
    assert not any(map(is_sent, local))


def test_a_session_whose_settings_cannot_be_read_is_refused(folder: Path) -> None:
    engine = session(folder, {"datafusion.catalog.information_schema": "false"})
    with refused("query.unsupported"):
        planned(engine, "select s from t")
