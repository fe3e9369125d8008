"""What tables can do is known by flags, and what cannot be sent to workers is told from them."""

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import rota
from rota.kinds.query.sources import unsent
from rota.wire.capabilities import FENCED, Sink, Source, in_words

SENT = Source.BOUNDED | Source.REWINDABLE | Source.SHIPPABLE


@pytest.fixture
def session(tmp_path: Path) -> rota.Session:
    session = rota.Session()
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("a\n1\n")
    session.register_parquet("files", tmp_path / "a.parquet")
    session.register_table("memory", pa.table({"a": [1]}))
    session.engine.context.register_dataset("dataset", ds.dataset(tmp_path / "a.parquet"))
    session.sql(f"create unbounded external table endless (a int) stored as csv location '{tmp_path}/a.csv'")
    session.sql("create view joined as select files.a from files join memory using (a)")
    return session


def test_a_table_says_what_it_is_made_of_and_what_it_can_do(session: rota.Session) -> None:
    assert session.source("files").can == SENT | Source.SPLITTABLE
    assert session.source("memory").can == SENT | Source.SPLITTABLE | Source.PINNED
    assert session.source("dataset").can == Source.BOUNDED | Source.REWINDABLE | Source.SPLITTABLE
    assert session.source("endless").can == Source(0)
    assert str(session.source("files")) == (
        "files: a table of Parquet files; bounded, rewindable, splittable, shippable"  # wording
    )


def test_of_several_tables_the_least_counts(session: rota.Session) -> None:
    found = session.source("joined")
    assert all(session.source(each).made_of in found.made_of for each in ("files", "memory"))
    assert Source.PINNED not in found.can


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select * from files join memory using (a)", ""),
        ("select * from generate_series(1, 3)", ""),
        ("select * from dataset", "a pyarrow dataset"),
        ("select * from endless", "a table without"),
        ("select * from information_schema.tables", "a stream"),
        (
            "with recursive r as (select 1 as n union all select n + 1 from r where n < 3) select * from r",
            "a recursive",
        ),
    ],
)
def test_what_cannot_be_sent_is_told_by_its_name(session: rota.Session, sql: str, said: str) -> None:
    found = unsent(session.sql(sql).inner.execution_plan())
    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_folders_and_buckets_say_what_they_promise(session: rota.Session, tmp_path: Path) -> None:
    assert session.sink(tmp_path) == session.sink("s3://lake/out") == FENCED
    assert Sink.TRANSACTIONAL not in FENCED
    assert in_words(FENCED) == "two-phase, idempotent"
    assert in_words(Sink(0)) == "nothing"
