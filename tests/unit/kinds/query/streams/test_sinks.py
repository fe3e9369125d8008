"""Folders as sinks: shared by streams, taken back, and closed to whoever was deposed."""

import os
import resource
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rota
from rota.core.errors import Refused
from rota.kinds.query.streams.calling import CallbackSink
from rota.kinds.query.streams.refusing import Refusals
from rota.kinds.query.streams.sinks import FolderSink, SideSink
from rota.wire.standings import read_told


def rows(value: object) -> pa.Table:
    return pa.table({"v": [value]})


def opened(sink: FolderSink, stream: str = "a" * 24) -> FolderSink:
    sink.open(stream)
    return sink


def commit(sink: FolderSink, number: int, value: object, incarnation: int = 1) -> None:
    prepared = sink.prepare("w", number, incarnation, rows(value))
    sink.commit("w", number, incarnation, prepared, lambda: rows(value))


def values(folder: Path) -> list[object]:
    return [value for path in sorted(folder.glob("part-*")) for value in pq.read_table(path)["v"].to_pylist()]


def test_another_stream_in_the_same_folder_takes_nothing_back_but_its_own(tmp_path: Path) -> None:
    one, other = opened(FolderSink(tmp_path)), opened(FolderSink(tmp_path), "b" * 24)
    commit(one, 1, "one")
    prepared = one.prepare("w", 2, 1, rows("two"))
    other.take_back("w", 0, 1)
    commit(other, 1, "of the other")
    one.commit("w", 2, 1, prepared, lambda: rows("two"))
    assert sorted(map(str, values(tmp_path))) == ["of the other", "one", "two"]
    other.take_back("w", 0, 2)
    assert values(tmp_path) == ["one", "two"]
    one.take_back("w", 1, 2)
    assert values(tmp_path) == ["one"]


def test_what_is_aside_is_removed_before_files_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = opened(FolderSink(tmp_path)), opened(FolderSink(tmp_path))
    prepared = old.prepare("w", 5, 1, rows("of a life that does not count"))
    folder: Any = new._folder
    listed = folder.names

    def names(below: str = "") -> list[str]:
        found = listed(below)
        if not below:
            # At the worst moment: the files are listed, and not removed yet.
            with pytest.raises(Refused, match=r"stream\.sink"):
                old.commit("w", 5, 1, prepared, lambda: rows(""))
        return found

    monkeypatch.setattr(folder, "names", names)
    new.take_back("w", 3, 2)
    assert values(tmp_path) == []


def test_whoever_was_deposed_writes_no_rows_to_the_side(tmp_path: Path) -> None:
    old, new = opened(SideSink(tmp_path)), opened(SideSink(tmp_path))
    old.take_back("w", 0, 1)
    commit(old, 4, "late")
    new.take_back("w", 3, 2)
    with pytest.raises(Refused, match=r"stream\.fenced"):
        commit(old, 5, "of a life that does not count")
    commit(new, 5, "late, too", 2)
    commit(new, 5, "late, too", 2)
    assert values(tmp_path) == ["late, too"]


def test_whoever_is_deposed_in_the_middle_of_writing_to_the_side_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = opened(SideSink(tmp_path)), opened(SideSink(tmp_path))
    folder: Any = old._folder
    reveal = folder.reveal

    def late(names: object) -> None:
        new.take_back("w", 3, 2)
        reveal(names)

    monkeypatch.setattr(folder, "reveal", late)
    with pytest.raises(Refused, match=r"stream\.fenced"):
        commit(old, 5, "of a life that does not count")
    assert values(tmp_path) == []


def test_the_name_of_what_was_put_aside_is_flushed_before_a_round_counts_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    fsync = os.fsync

    def noted(file: int) -> None:
        flushed.append(os.path.relpath(Path(f"/proc/self/fd/{file}").readlink(), tmp_path))
        fsync(file)

    sink = opened(FolderSink(tmp_path / "out"))
    monkeypatch.setattr(os, "fsync", noted)
    sink.prepare("w", 1, 1, rows(1))
    assert flushed[1:] == ["out/_rota-stream", "out", "."]


@pytest.mark.parametrize(("policy", "kept"), [("skip", 0), ("dead_letter", 2)])
def test_a_function_that_raises_has_refused_all_rows_of_its_round(tmp_path: Path, policy: Any, kept: int) -> None:
    def picky(table: pa.Table, number: int) -> None:
        if number == 2:
            raise ValueError("not these")

    stream = rota.StreamSession(tmp_path, rows_max=2, every_s=0)
    stream.register_rows("s", pa.table({"v": [1, 2, 3, 4, 5]}))
    stream.call("s", picky, on_refused=policy)
    stream.run()
    found = [pq.read_table(path) for path in (tmp_path / "refused" / "s").glob("part-*")]
    assert [row["row"] for table in found for row in table.to_pylist()] == ['{"v":3}', '{"v":4}'][:kept]
    told = read_told(tmp_path)
    assert told is not None
    assert told.counts == {"s.rows": 5, "s.refused": 2}


@contextmanager
def little_room(size: int = 100) -> Generator[None]:
    """No file of this process grows beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_folder_without_room_is_refused_by_its_name(tmp_path: Path) -> None:
    sink = opened(FolderSink(tmp_path / "out"))
    said = rf"stream\.sink: {tmp_path}/out cannot be written to: File too large"
    with little_room(), pytest.raises(Refused, match=said):
        sink.prepare("w", 1, 1, rows("x" * 1_000))
    commit(sink, 1, "room again")
    assert values(tmp_path / "out") == ["room again"]


@pytest.mark.parametrize("kind", [FolderSink, SideSink])
def test_a_folder_that_has_become_a_file_is_refused_whatever_is_done_with_it(tmp_path: Path, kind: Any) -> None:
    sink = opened(kind(tmp_path / "out"))
    prepared = FolderSink.prepare(sink, "w", 1, 1, rows(1))
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    (tmp_path / "out").touch()
    said = "cannot be written to: Not a directory"
    for act in (
        partial(FolderSink.prepare, sink, "w", 2, 1, rows(2)),
        partial(sink.commit, "w", 1, 1, prepared, lambda: rows(1)),
        partial(sink.take_back, "w", 0, 1),
    ):
        with pytest.raises(Refused, match=said) as refused:
            act()
        assert refused.value.code == "stream.sink"
    with pytest.raises(Refused, match="is a file"):
        sink.open("a" * 24)


INTERVALS = pa.table({"v": [1], "long": pa.array([(1, 2, 3)], pa.month_day_nano_interval())})
ODD = [
    ("parquet", INTERVALS),
    ("parquet", pa.table({"v": [1], "long": pa.array([{}], pa.struct([]))})),
    ("csv", INTERVALS),
    ("csv", pa.table({"v": [1], "long": [[1, 2]]})),
]


@pytest.mark.parametrize(("form", "table"), ODD)
def test_columns_that_a_form_cannot_hold_are_refused_when_a_sink_is_registered(
    tmp_path: Path, form: Any, table: pa.Table
) -> None:
    stream = rota.StreamSession(tmp_path / "s", every_s=0)
    stream.register_rows("c", table)
    kind = table.schema.field("long").type
    with pytest.raises(Refused, match=r"query\.type: column 'long' ") as refused:
        stream.write_files("c", tmp_path / "out", form)
    assert f" {kind}, which {form} ".lower() in refused.value.reason.lower()
    with pytest.raises(Refused, match=r"query\.type: column 'long'"):
        opened(FolderSink(tmp_path / "out", form)).prepare("c", 1, 1, table)


def test_values_that_a_form_cannot_hold_are_refused_with_their_column(tmp_path: Path) -> None:
    stream = rota.StreamSession(tmp_path / "s", every_s=0)
    stream.register_rows("c", pa.table({"v": [1, 2], "raw": [b"fine", b"\xff\xfe"]}))
    stream.write_files("c", tmp_path / "out", "csv")
    said = r"query\.type: column 'raw' is of type binary, which CSV cannot hold: Invalid UTF8"
    with pytest.raises(Refused, match=said):
        stream.run()


def test_a_stream_without_room_in_its_own_folder_is_refused(tmp_path: Path) -> None:
    stream = rota.StreamSession(tmp_path / "s", every_s=0)
    stream.register_rows("c", pa.table({"v": ["x" * 10_000]}))
    said = rf"stream\.folder: {tmp_path}/s/rounds cannot be written to: File too large"
    with stream.start(follow=False) as running, little_room(5_000), pytest.raises(Refused, match=said):
        list(running)
    assert len(stream.run()) == 1, "it goes on when there is room"


@pytest.mark.parametrize("where", ["s", "s/below", "s/far/below", "s/rounds"])
def test_a_stream_whose_folder_is_a_file_or_cannot_be_made_is_refused(tmp_path: Path, where: str) -> None:
    if where == "s/rounds":
        (tmp_path / "s").mkdir()
        (tmp_path / "s" / "rounds").touch()
    else:
        (tmp_path / "s").touch()
    folder = tmp_path / where.removesuffix("/rounds")
    stream = rota.StreamSession(folder, every_s=0)
    stream.register_rows("c", rows(1))
    with pytest.raises(Refused, match=rf"stream\.folder: {folder} .* \({tmp_path}/{where}"):
        stream.start()


def test_an_error_of_a_sink_of_ones_own_is_no_trouble_of_the_folder(tmp_path: Path) -> None:
    class Away(FolderSink):
        def open(self, stream: str) -> None:
            raise ConnectionRefusedError("nobody there")

    stream = rota.StreamSession(tmp_path / "s", every_s=0)
    stream.register_rows("c", rows(1))
    stream.register_sink("c", Away(tmp_path / "out"))
    with pytest.raises(ConnectionRefusedError, match="nobody there"):
        stream.start()


def test_functions_with_the_same_name_are_told_apart_and_keep_their_names(tmp_path: Path) -> None:
    def stream() -> tuple[rota.StreamSession, list[str]]:
        got: list[str] = []
        made = rota.StreamSession(tmp_path, every_s=0)
        made.register_rows("c", rows(1))
        functions = [lambda *_, word=word: got.append(word) for word in "abc"]
        for function in functions:
            made.call("c", function)
        with pytest.raises(Refused, match=r"goes to function .*<lambda> already"):
            made.call("c", functions[0])
        return made, got

    first, got = stream()
    sinks = [part.called for part in first.parts() if "lambda" in part.called]
    assert [each.rpartition("<lambda>")[2] for each in sinks] == [")", " (2))", " (3))"]
    first.run()
    assert got == ["a", "b", "c"]
    assert [part.called for part in stream()[0].parts()] == [part.called for part in first.parts()]


def test_a_round_that_is_taken_the_second_time_is_not_kept_as_refused(tmp_path: Path) -> None:
    moods = [ValueError("not now")]

    def moody(table: pa.Table, number: int) -> None:
        if moods:
            raise moods.pop()

    sink = CallbackSink(moody, refusals=Refusals("dead_letter", tmp_path))
    sink.open("a" * 24)
    assert sink.commit("w", 1, 1, {}, lambda: rows(1)) == 1
    assert list(tmp_path.glob("part-*"))
    assert sink.commit("w", 1, 1, {}, lambda: rows(1)) == 0
    assert not list(tmp_path.glob("part-*"))
