"""Folders as sinks: shared by streams, taken back, and closed to whoever was deposed."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rota
from rota.core.errors import Refused
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
