"""Rounds that workers compute: statements are runs, part of the run that drives the stream."""

from pathlib import Path

import rota
from tests.integration.queries import stream_program as program
from tests.integration.queries.test_streams_that_are_killed import check


def test_rounds_are_computed_by_workers_as_runs_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = program.make_rows(tmp_path / "in")
    with rota.Rota.embedded(tmp_path / "data", slots=2) as here:
        tables = rota.Session.on(here, partitions=2, parent="the-stream")
        stream = program.stream(tmp_path, rows_max=600, tables=tables)
        rounds = stream.run()
        views = [view for view in here.runs() if view.parent == "the-stream"]
        assert len(rounds) >= 4
        assert len(views) >= len(rounds)
        stages = {task.id.partition("[")[0] for view in views for task in here.run(view.id).tasks()}
        assert {"stage-1", "stage-2"} <= stages, "rows are spread by their keys"
    check(tmp_path, rows)
    put_down = list((tmp_path / "stream" / "exchange").rglob("*.parquet"))
    assert len(put_down) < 10, "what was put down for workers goes again"
    program.stream(tmp_path, rows_max=600).run()
    assert not list((tmp_path / "stream" / "exchange").iterdir()), "and the rest when another one takes over"
