"""Sessions on real workers in processes of their own, and functions that wait in the middle of a query."""

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import rota
from tests.integration.service.stage import Stage


def session_on(stage: Stage, **choices: object) -> rota.Session:
    """A session of this coordinator; it ends with the stage."""
    return rota.Session.on(stage.client(), **choices)  # pyright: ignore[reportArgumentType] - as the tests give them


def make_table(folder: Path, files: int = 4, rows: int = 100) -> Path:
    """A table of as many files, `part` saying which one a row is in, and `v` counting from 0."""
    folder.mkdir(parents=True)
    for part in range(files):
        table = pa.table({"part": [part] * rows, "v": list(range(rows))})
        pq.write_table(table, folder / f"{part}.parquet")
    return folder


class Gate:
    """Lets a function of a query wait until the test opens it."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "gate")
        self.came = folder / "came"
        os.mkfifo(self.path)

    def function(self, held: int) -> Callable[[pa.Array, pa.Array], pa.Array]:
        """Gives its second argument, and waits where the first one is `held`."""
        path, came = self.path, str(self.came)

        def waits(parts: pa.Array, values: pa.Array) -> pa.Array:
            if held in parts.to_pylist():
                with open(came, "a") as journal:  # noqa: PTH123 - pickled, and run elsewhere
                    journal.write("came\n")
                with open(path) as gate:  # noqa: PTH123 - likewise; it opens when somebody writes
                    gate.read()
            return values

        return waits

    def is_reached(self, times: int = 1) -> bool:
        """Whether somebody has waited at it as often."""
        return self.came.exists() and len(self.came.read_text().splitlines()) >= times

    def open(self) -> None:
        """Let whoever waits go on."""
        with open(self.path, "w"):  # noqa: PTH123 - a pipe, and not what is in it
            pass
