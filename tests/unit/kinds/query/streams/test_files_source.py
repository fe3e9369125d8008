"""A folder as a source: what is in it, which files are read in a round, and what is told of those that cannot be."""

import os
import socket
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rota
from rota.core.errors import Refused
from rota.kinds.query.streams.files import Files
from rota.kinds.query.streams.policies import Policies, Unusable
from rota.kinds.query.streams.scanning import Ahead, read_scanned
from tests.refusals import refused

VALUES = pa.schema([("v", pa.int64())])


def opened(folder: Path, form: Any = "parquet", **options: Any) -> Files:
    """A source that has looked."""
    source = Files(folder / "in", form, **({"schema": VALUES} | options))
    source.open(folder / "ledger")
    source.look(0)
    return source


def put(folder: Path, name: str, content: bytes) -> Path:
    (folder / "in").mkdir(exist_ok=True)
    path = folder / "in" / name
    path.write_bytes(content)
    return path


def put_table(folder: Path, name: str, table: pa.Table, **options: Any) -> Path:
    path = put(folder, name, b"")
    if name.endswith(".parquet"):
        pq.write_table(table, path, **options)
    else:
        with pa.ipc.new_file(str(path), table.schema) as file:
            file.write_table(table, **options)
    return path


def all_rows(source: Files, policies: Policies, refused: Unusable, rows_max: int = 100) -> list[Any]:
    """What rounds read, one after the other."""
    found: list[Any] = []
    begin = source.beginning(0)
    while (end := source.end_of_range(0, begin, rows_max)) != begin:
        found += source.read(0, begin, end, policies, refused)["v"].to_pylist()
        begin = end
    return found


# Looking.


def test_only_plain_files_are_files(tmp_path: Path) -> None:
    real = put(tmp_path, "a.csv", b"v\n1\n")
    folder = real.parent
    (folder / "b.csv").symlink_to(real)
    os.mkfifo(folder / "c.csv")
    (folder / "d.csv").symlink_to("/dev/full")
    (folder / "e.csv").symlink_to(folder / "e.csv")
    (folder / "f.csv").symlink_to(folder / "gone")
    (folder / "g.csv").mkdir()
    (folder / "g.csv" / "h.csv").write_bytes(b"v\n2\n")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(os.path.relpath(folder / "i.csv"))
        source = opened(tmp_path, "csv", schema=None)
    assert sorted(all_rows(source, Policies(), Unusable())) == [1, 1, 2]


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", b"v\n1\n")
    source = opened(tmp_path, "csv")
    with open(os.fsencode(tmp_path / "in") + b"/\xff.csv", "wb"):  # noqa: PTH123 - a name that is bytes
        pass
    source.open(tmp_path / "ledger")
    with refused("stream.source", "UTF-8", r"\xff.csv", path="path"):
        source.look(0)


@pytest.mark.parametrize("bounded", [False, True])
def test_a_session_that_is_run_again_sees_new_files(tmp_path: Path, bounded: bool) -> None:
    stream = rota.StreamSession(tmp_path / "s", every_s=0)
    put(tmp_path, "a.csv", b"v\n1\n")
    stream.register_files("c", tmp_path / "in", "csv", bounded=False)
    for number in range(1, 4):
        put(tmp_path, f"{number}.csv", b"v\n%d\n" % number)
        rows = [row["v"] for each in stream.run() if not each.is_again for row in each.rows["c"].to_pylist()]
        assert rows[-1] == number
    source = opened(tmp_path, "csv", bounded=bounded)
    put(tmp_path, "z.csv", b"v\n9\n")
    source.open(tmp_path / "ledger")
    source.look(0)
    assert 9 in all_rows(source, Policies(), Unusable())


# Ranges.


def test_small_files_share_a_round_and_large_ones_have_one_of_their_own(tmp_path: Path) -> None:
    for number in range(10):
        os.utime(put(tmp_path, f"{number}.csv", b"v\n%d\n" % number), ns=(number, number))
    os.utime(put(tmp_path, "x.csv", b"v\n" + b"77\n" * 1_000), ns=(10, 10))
    os.utime(put(tmp_path, "y.csv", b"v\n1\n"), ns=(11, 11))
    source = opened(tmp_path, "csv")
    ends = [(0, 0)]
    while (end := source.end_of_range(0, ends[-1], 6)) != ends[-1]:
        ends.append(end)
    assert ends == [(0, 0), (6, 0), (10, 0), (11, 0), (12, 0)]


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
@pytest.mark.parametrize(
    "span", [(0, 100), (0, 7), (6, 8), (7, 14), (13, 99), (98, 100), (50, 100), (100, 100), (20, 20)]
)
def test_a_part_of_a_file_is_read_by_whoever_reads_it(tmp_path: Path, name: str, span: tuple[int, int]) -> None:
    size = {"row_group_size": 7} if name == "a.parquet" else {"max_chunksize": 7}
    put_table(tmp_path, name, pa.table({"v": list(range(100))}), **size)
    source = opened(tmp_path, name.partition(".")[2])
    begin, end = ((0, each) if each < 100 else (1, 0) for each in span)
    here = source.read(0, begin, end, Policies(), Unusable())
    there = read_scanned(source.scanned(0, begin, end), source.schema, Policies(), Unusable())
    assert here["v"].to_pylist() == there["v"].to_pylist() == list(range(100))[slice(*span)]


def test_a_group_of_rows_is_read_once_for_several_rounds_and_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        put_table(tmp_path, f"{number}.parquet", pa.table({"v": list(range(100))}))
    source = opened(tmp_path, partitions=2)
    opens: list[str] = []
    real = pq.ParquetFile

    def counted(path: Path) -> Any:
        opens.append(path.name)
        return real(path)

    monkeypatch.setattr(pq, "ParquetFile", counted)
    begins = [(0, 0), (0, 0)]
    while True:
        ends = [source.end_of_range(each, begins[each], 30) for each in (0, 1)]
        if ends == begins:
            break
        for each in (0, 1):
            source.read(each, begins[each], ends[each], Policies(), Unusable())
        begins = ends
    # A range that begins in one file and ends in the next leaves nothing of the first.
    assert len(opens) <= 12


def test_what_is_read_ahead_is_never_that_of_another_file(tmp_path: Path) -> None:
    path = put_table(tmp_path, "a.parquet", pa.table({"v": list(range(10))}))
    source = opened(tmp_path)
    assert source.read(0, (0, 0), (0, 5), Policies(), Unusable()).num_rows == 5
    put_table(tmp_path, "a.parquet", pa.table({"v": list(range(20, 30))}))
    refused = Unusable()
    found = source.read(0, (0, 5), (1, 0), Policies(missing="skip"), refused)
    assert (found.num_rows, refused.skipped) == (0, 1)
    path.unlink()
    assert Ahead().take("x", source.scanned(0, (0, 0), (1, 0)).files[0], (0, 1)) is None


# What cannot be read.


def damaged_parquet(folder: Path) -> None:
    path = put_table(folder, "a.parquet", pa.table({"v": [each * 7 % 1_000 for each in range(10_000)]}))
    content = bytearray(path.read_bytes())
    content[100:2_000] = bytes(1_900)
    path.write_bytes(content)


def damaged_arrow(folder: Path) -> None:
    path = put_table(folder, "a.arrow", pa.table({"v": list(range(10_000))}))
    path.write_bytes(path.read_bytes()[:5_000])


@pytest.mark.parametrize(("form", "damage"), [("parquet", damaged_parquet), ("arrow", damaged_arrow)])
def test_a_damaged_file_is_what_the_policy_says(tmp_path: Path, form: str, damage: Any) -> None:
    damage(tmp_path)
    source, refused = opened(tmp_path, form), Unusable()
    assert all_rows(source, Policies(poison="dead_letter"), refused, 100_000) == []
    assert ["cannot be read" in each["reason"] for each in refused.dead] == [True]
    with pytest.raises(Refused, match=r"stream\.row.*cannot be read"):
        all_rows(source, Policies(poison="fail"), Unusable())


def test_a_file_that_lies_about_its_texts_is_damaged(tmp_path: Path) -> None:
    lying = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"], pa.binary()).buffers())
    put_table(tmp_path, "a.arrow", pa.table({"k": lying}))
    refused = Unusable()
    source = opened(tmp_path, "arrow", schema=pa.schema([("k", pa.string())]))
    assert source.read(0, (0, 0), (1, 0), Policies(), refused).num_rows == 0
    assert "Invalid UTF8" in refused.dead[0]["reason"]


def test_a_disk_that_does_not_answer_is_no_fault_of_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "a.csv", b"v\n1\n")
    source = opened(tmp_path, "csv")

    def fail(_path: Path) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "read_bytes", fail)
    with refused("stream.source", "/in/a.csv ", "Input/output error"):
        all_rows(source, Policies(), Unusable())


def test_a_folder_that_may_not_be_read_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "a.csv", b"v\n1\n")
    (tmp_path / "in" / "shut").mkdir()
    scandir = os.scandir

    def scanned(path: Path) -> Any:
        if path.name == "shut":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scanned)
    with refused("stream.source", "/in/shut ", "Permission denied"):
        opened(tmp_path, "csv", bounded=True)


def test_values_that_do_not_fit_are_told_of_wherever_they_are(tmp_path: Path) -> None:
    table = pa.table({"v": [*map(str, range(10)), *("x" * 10), *map(str, range(10))]})
    put_table(tmp_path, "a.parquet", table, row_group_size=10)
    refused = Unusable()
    found = all_rows(opened(tmp_path), Policies(schema="dead_letter"), refused, 5)
    assert found == [*range(10), *range(10)]
    assert len(refused.dead) == 2, "one for each range that wants some of them"


def test_doubled_columns_are_other_columns(tmp_path: Path) -> None:
    doubled = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["v", "v"])
    put_table(tmp_path, "a.parquet", doubled)
    source, refused = opened(tmp_path), Unusable()
    all_rows(source, Policies(schema="dead_letter"), refused)
    assert refused.dead[0]["reason"].endswith(" column called v")
    with pytest.raises(Refused, match=r"stream\.source: .*/a\.parquet .* column called v \(at schema\)"):
        opened(tmp_path, schema=None)
    with pytest.raises(Refused, match=r"query\.type: .* column called v \(at schema\)"):
        opened(tmp_path, schema=doubled.schema)


def test_categories_are_read_as_what_they_name(tmp_path: Path) -> None:
    for name, values in (("a.parquet", ["x", "y"]), ("b.parquet", ["z"])):
        put_table(tmp_path, name, pa.table({"k": pa.array(values).dictionary_encode(), "v": list(range(len(values)))}))
    stream = rota.StreamSession(tmp_path / "s", every_s=0)
    stream.register_files("c", tmp_path / "in", bounded=True)
    stream.register_window("w", "c", time="v", tumbling_s=1, by=["k"], aggregates={"n": "count(*)"})
    assert sorted(row["k"] for each in stream.run() for row in each.rows["w"].to_pylist()) == ["x", "y", "z"]


# The first file.

FIRST: list[tuple[str, bytes]] = [
    ("csv", b""),
    ("csv", b"a,b\n1,2\n3\n"),
    ("csv", "a,b\n1,2\n".encode("utf-16")),
    ("csv", b"a,\xff\n1,2\n"),
    ("csv", b"a,a\n1,2\n"),
    ("csv", b"a," + b"x" * 200_000 + b"\n1,2\n"),
    ("json", b""),
    ("json", b"null\n"),
    ("json", b'[{"a":1}]\n'),
    ("json", b"5\n"),
    ("json", b'{"a":1}\n{"a":'),
    ("json", b'{"a":1,"a":2}\n'),
    ("json", b'{"a":1}\n{"a":"x"}\n'),
    ("json", b'{"a":"\xff"}\n'),
    ("json", b"{}\n"),
    ("json", b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    ("json", b'{"a":' * 900 + b"1" + b"}" * 900),
    ("parquet", b""),
    ("parquet", b"PAR1xxxxxxxxPAR1"),
    ("arrow", b""),
    ("arrow", b"ARROW1\0\0xxxx"),
]


@pytest.mark.parametrize(("form", "content"), FIRST)
def test_a_first_file_that_cannot_be_read_is_refused_with_what_to_do(tmp_path: Path, form: str, content: bytes) -> None:
    put(tmp_path, f"a.{form}", content)
    with pytest.raises(Refused, match=rf"stream\.source: .*/in/a\.{form} ") as refused:
        opened(tmp_path, form, schema=None)
    assert (refused.value.path, bool(refused.value.hint)) == ("schema", True)


def test_a_stream_of_arrow_is_no_file(tmp_path: Path) -> None:
    table = pa.table({"v": [1]})
    with pa.ipc.new_stream(str(put(tmp_path, "a.arrow", b"")), table.schema) as file:
        file.write_table(table)
    with refused("stream.source", "/in/a.arrow ", path="schema"):
        opened(tmp_path, "arrow", schema=None)


@pytest.mark.parametrize(
    ("form", "kind"),
    [("csv", pa.time32("s")), ("csv", pa.list_(pa.int64())), ("json", pa.map_(pa.string(), pa.int8()))],
)
def test_a_schema_that_no_file_can_have_is_refused(tmp_path: Path, form: str, kind: pa.DataType) -> None:
    (tmp_path / "in").mkdir()
    with refused("query.type", f"{form} files", str(kind), " v ", path="schema"):
        opened(tmp_path, form, schema=pa.schema([("v", kind)]))
