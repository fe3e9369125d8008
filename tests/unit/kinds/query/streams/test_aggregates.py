"""Windows over columns with any names, and aggregates that cannot be computed."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rota
from rota.core.errors import Refused

# Letters that a statement could be tempted to use for itself.
LETTERS = [*"abcdefghijklmnopqrstuvwxyz", "_o", "_rows", "_state", "_merged", "_given"]
ROWS = pa.table({"at": [0, 1_000, 2_500], **{each: [1, 1, 1] for each in LETTERS}})


def stream(folder: Path) -> rota.StreamSession:
    made = rota.StreamSession(folder, every_s=0)
    made.register_rows("clicks", ROWS)
    return made


@pytest.mark.parametrize("lateness_s", [0, 1])
@pytest.mark.parametrize("shape", [{"tumbling_s": 1}, {"sliding_s": (2, 1)}, {"session_s": 1}])
def test_no_name_of_a_column_is_in_the_way(tmp_path: Path, shape: dict[str, Any], lateness_s: int) -> None:
    made = stream(tmp_path)
    given: dict[str, Any] = {"by": LETTERS, "aggregates": {"counted": "count(*)"}, "allowed_lateness_s": lateness_s}
    made.register_window("w", "clicks", time="at", **given, **shape)
    found = [row["counted"] for each in made.run() for row in each.rows["w"].to_pylist()]
    assert sum(found) == (6 if "sliding_s" in shape else 3)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ("sum(nope)", "query.column"),
        ("count(*) filter (where nope > 1)", "query.column"),
        ("sum(nope(a))", "query.function"),
    ],
)
def test_an_aggregate_that_cannot_be_computed_is_told_by_its_name_and_the_columns_of_its_source(
    tmp_path: Path, wrong: str, code: str
) -> None:
    counted = {"fine": "count(*)", "total": wrong}
    with pytest.raises(Refused) as refused:
        stream(tmp_path).register_window("w", "clicks", time="at", tumbling_s=1, aggregates=counted)
    assert (refused.value.code, refused.value.path) == (code, "aggregates.total")
    said = str(refused.value)
    assert wrong in said
    assert "clicks" in said
    assert "_rows.at" not in said
