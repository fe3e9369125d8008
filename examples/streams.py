"""Windows over files that keep appearing; the stream is stopped half-way, and goes on where it was.

python examples/streams.py
"""

import csv
import tempfile
from pathlib import Path

import rota

MINUTE_MS = 60_000


def put_clicks(folder: Path, first: int, count: int) -> None:
    """One more file of clicks, each ten seconds after the one before; some of them come out of order."""
    # Under a name that is passed over until all of it is there.
    aside = folder / f"_{first}.csv"
    with aside.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["at", "city"])
        for number in range(first, first + count):
            late_ms = 15_000 if number % 5 == 0 else 0
            rows.writerow([number * 10_000 - late_ms, ["Oslo", "Rome"][number % 2]])
    aside.rename(folder / f"{first}.csv")


def open_stream(place: Path) -> rota.StreamSession:
    """Clicks for each city and minute, into files."""
    stream = rota.StreamSession(place / "stream")
    stream.register_files("clicks", place / "clicks", "csv")
    stream.register_window(
        "per_minute",
        "clicks",
        time="at",
        tumbling_s=60,
        by=["city"],
        aggregates={"n": "count(*)"},
        watermark_delay_s=20,
    )
    stream.write_files("per_minute", place / "counts")
    return stream


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "clicks").mkdir()
        put_clicks(place / "clicks", first=2, count=20)
        stream = open_stream(place)
        print(f"a row counts {stream.guarantee()}")
        print(f"rounds at first: {[each.number for each in stream.run()]}")
        put_clicks(place / "clicks", first=22, count=20)
        # Another program could do this, or the same one after a crash.
        print(f"rounds after that: {[each.number for each in open_stream(place).run()]}")
        with rota.Session() as session:
            session.register_parquet("counts", place / "counts")
            for row in session.sql("select * from counts order by window_start, city").to_pylist():
                print(f"{row['city']} in minute {row['window_start'] // MINUTE_MS}: {row['n']} clicks")
