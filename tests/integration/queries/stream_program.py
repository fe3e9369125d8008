"""A stream over a folder of files, for tests that kill it; whoever runs it goes on where another was."""

import random
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import rota
from rota.core.errors import Refused

BASE = 1_700_000_000_000
SIZE_MS = 1_000
FILES, ROWS = 24, 100


def make_rows(folder: Path, seed: int = 5) -> pa.Table:
    """Files with rows out of order, some twice, some late; all of them as one table."""
    chance = random.Random(seed)
    tables: list[pa.Table] = []
    for number in range(FILES):
        rows: list[dict[str, object]] = []
        while len(rows) < ROWS:
            time = BASE + (number * ROWS + len(rows)) * 10 - chance.randrange(300)
            if number > 5 and chance.random() < 0.02:
                time -= 10_000
            row = {"id": number * ROWS + len(rows), "t": time, "k": chance.choice("abcde"), "v": chance.randrange(100)}
            rows += [row] * chance.choice((1, 1, 1, 2))
        tables.append(pa.Table.from_pylist(rows))
        pq.write_table(tables[-1], folder / f"_{number}")
        (folder / f"_{number}").rename(folder / f"{number:03d}.parquet")
    return pa.concat_tables(tables)


def stream(
    folder: Path,
    *,
    rows_max: int,
    parallelism: int = 1,
    state_every: int = 1,
    incarnation: int = 0,
    tables: rota.Session | None = None,
    bounded: bool = True,
) -> rota.StreamSession:
    """The stream; its output is in `out`, and what was late in `stream/late/w`."""
    found = rota.StreamSession(
        folder / "stream",
        rows_max=rows_max,
        parallelism=parallelism,
        state_every=state_every,
        every_s=0,
        keep=4,
        incarnation=incarnation,
        tables=tables,
    )
    found.register_files("rows", folder / "in", partitions=2, bounded=bounded)
    found.register_window(
        "w",
        "rows",
        time="t",
        tumbling_s=SIZE_MS / 1_000,
        by=["k"],
        aggregates={"n": "count(*)", "total": "sum(v)"},
        watermark_delay_s=0.5,
    )
    found.register_view("labelled", "select *, k || '!' as label from w")
    found.write_files("labelled", folder / "out")
    return found


def run(folder: Path, rows_max: int, parallelism: int, state_every: int, bounded: bool) -> None:
    """Run it to its end, which it has if it is bounded, or until another one takes over."""
    try:
        made = stream(folder, rows_max=rows_max, parallelism=parallelism, state_every=state_every, bounded=bounded)
        with made.start() as running:
            for _ in running:
                pass
    except Refused as refused:
        if refused.code != "stream.fenced":
            raise


@rota.task(retries=50, retry_delay=0)
def streamed(folder: str) -> int:
    """The stream as a task: its fence is the number of its incarnation."""
    made = stream(Path(folder), rows_max=6, incarnation=rota.context().fence)
    with made.start(follow=False) as running:
        for _ in running:
            pass
        assert running.last is not None
        return running.last.incarnation


@rota.task(retries=100, retry_delay=0)
def driven(folder: str, url: str, rows_max: int) -> int:
    """The stream as a task whose rounds are runs on the workers of the same coordinator."""
    this = rota.context()
    with rota.Session.connect(url, parent=this.run) as tables:
        made = stream(Path(folder), rows_max=rows_max, parallelism=2, incarnation=this.fence, tables=tables)
        with made.start() as running:
            for _ in running:
                pass
            assert running.last is not None
            return running.last.round


def main() -> None:
    """Be a coordinator and a worker, and run the stream, or go on with the run of one that was killed."""
    folder = Path(sys.argv[1])
    with rota.Rota.embedded(folder / "data", slots=1) as here:
        known = [view.id for view in here.runs()]
        run = here.run(known[0]) if known else here.submit(streamed, {"folder": str(folder)}, run="clicks")
        run.wait()


if __name__ == "__main__":
    main()
