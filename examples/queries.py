"""SQL over files, in this process and then in stages on workers, with the same answer.

python examples/queries.py
"""

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import rota

SQL = """
select city, count(*) as trips, sum(km) as km
from trips
where km >= $least
group by city
order by km desc, city
"""


def make_trips(folder: Path) -> Path:
    """A table of three files."""
    folder.mkdir()
    cities = ["Oslo", "Rome", "Lima", "Kyiv"]
    for number in range(3):
        rows = [{"city": cities[(number + each) % 4], "km": each % 50} for each in range(1_000)]
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{number}.parquet")
    return folder


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        trips = make_trips(Path(place) / "trips")
        with rota.Session() as here:
            here.register_parquet("trips", trips)
            answer = here.sql(SQL, {"least": 10}).to_pylist()
        with rota.Rota.embedded(slots=2) as service, rota.Session.on(service, partitions=2) as there:
            there.register_parquet("trips", trips)
            frame = there.sql(SQL, {"least": 10})
            print(frame.explain())
            handle = frame.submit()
            assert handle.to_arrow().to_pylist() == answer, "the same wherever it runs"
            print(f"run {handle.id}: {handle.status()}")
        for row in answer:
            print(f"{row['city']}: {row['trips']} trips, {row['km']} km")
