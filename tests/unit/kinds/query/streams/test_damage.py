"""Files of a stream that are damaged, gone, or not its own: noticed, and never the cause of another answer."""

import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rota
from rota.core.errors import Refused
from rota.kinds.query.streams.chain import Chain
from rota.kinds.query.streams.generated import Tables
from rota.kinds.query.streams.manifests import Manifest
from rota.wire.capabilities import Source
from tests.refusals import refused

pytestmark = pytest.mark.slow

NOW = 10_000_000


def filled(folder: Path) -> Path:
    (folder / "in").mkdir()
    for number in range(6):
        pq.write_table(
            pa.table({"v": list(range(number * 10, number * 10 + 10))}), folder / "in" / f"f{number}.parquet"
        )
    return folder


def stream(folder: Path, **options: Any) -> rota.StreamSession:
    made = rota.StreamSession(folder / "s", rows_max=15, every_s=0, **options)
    made.register_files("f", folder / "in")
    made.write_files("f", folder / "out")
    return made


def written(folder: Path) -> list[int]:
    return sorted(value for path in (folder / "out").glob("part-*") for value in pq.read_table(path)["v"].to_pylist())


def killed(folder: Path, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make so many rounds, and be gone when the next one is planned and not published."""

    def gone(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with stream(folder).start(follow=False) as running, monkeypatch.context() as patch:
        for each in running:
            if each.number == rounds:
                patch.setattr(Chain, "publish", gone)
                running._stream._plans.clear()
                with pytest.raises(KeyboardInterrupt):
                    next(iter(running))
                return


@pytest.mark.parametrize("digit", range(0, 120, 7))
def test_a_plan_that_is_damaged_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digit: int) -> None:
    killed(filled(tmp_path), 1, monkeypatch)
    for journal in (tmp_path / "s" / "plans").iterdir():
        content = journal.read_bytes()
        places = [found.start() for found in re.finditer(rb"[0-9]", content)]
        at = places[digit % len(places)]
        journal.write_bytes(content[:at] + (b"7" if content[at : at + 1] != b"7" else b"0") + content[at + 1 :])
    stream(tmp_path).run()
    assert written(tmp_path) == list(range(60))


@pytest.mark.parametrize("old", [b"f2.parquet", b"f0.parquet", b"],["])
def test_a_ledger_that_is_damaged_is_refused(tmp_path: Path, old: bytes) -> None:
    with stream(filled(tmp_path)).start(follow=False) as running:
        next(iter(running))
    (ledger,) = (tmp_path / "s" / "sources" / "f").iterdir()
    ledger.write_bytes(ledger.read_bytes().replace(old, old[:-1] + b"x", 1))
    with pytest.raises(Refused, match=r"stream\.corrupt.*another checksum"):
        stream(tmp_path).run()


def test_a_ledger_that_is_gone_is_noticed_when_a_plan_wants_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(filled(tmp_path), 1, monkeypatch)
    for path in (tmp_path / "s" / "sources" / "f").iterdir():
        path.unlink()
    for path in (tmp_path / "in").iterdir():
        if path.name != "f0.parquet":
            path.unlink()
    with pytest.raises(Refused, match=r"stream\.corrupt.*fewer are noted"):
        stream(tmp_path).run()


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"\0" * 24, b"0" * 24])
def test_an_identity_that_is_damaged_is_put_back(tmp_path: Path, content: bytes | None) -> None:
    with stream(filled(tmp_path)).start(follow=False) as running:
        next(iter(running))
    path = tmp_path / "s" / "identity"
    whole = path.read_text()
    path.unlink() if content is None else path.write_bytes(content)
    stream(tmp_path).run()
    assert path.read_text() == whole
    assert written(tmp_path) == list(range(60))


def iterated(folder: Path, **options: Any) -> rota.StreamSession:
    made = rota.StreamSession(folder / "s", rows_max=2, every_s=0, **options)
    made.register_rows("r", pa.table({"v": [1, 2, 3, 4, 5, 6]}))
    return made


def damage_rows(folder: Path, round_: Manifest) -> None:
    path = Chain(folder / "s").path(round_.position)
    (piece,) = (each for each in round_.pieces if each.kind == "rows")
    content = bytearray(path.read_bytes())
    content[-sum(each.bytes for each in round_.pieces) + piece.offset + 300] ^= 8
    path.write_bytes(content)


def test_a_round_whose_rows_are_damaged_is_made_again_and_handed_over(tmp_path: Path) -> None:
    with iterated(tmp_path).start(follow=False) as running:
        rounds = iter(running)
        next(rounds)
        damaged = next(rounds).manifest
    damage_rows(tmp_path, damaged)
    with iterated(tmp_path).start(follow=False) as running:
        ((position, reason),) = running.skipped
        assert (position, "rows of r (partition 0)" in reason) == (damaged.position, True)
        assert [(each.number, each.rows["r"]["v"].to_pylist()) for each in running] == [
            (1, [1, 2]),
            (2, [3, 4]),
            (3, [5, 6]),
        ]


def test_files_that_are_not_the_streams_own_are_left_alone(tmp_path: Path) -> None:
    with stream(filled(tmp_path)).start(follow=False) as running:
        next(iter(running))
    foreign = ["rounds/1x.round", "rounds/_x", "rounds/_1-x", "rounds/notes", "plans/x.jsonl", "sources/f/1x.json"]
    for name in foreign:
        (tmp_path / "s" / name).write_text("?")
    (tmp_path / "s" / "rounds" / "000000000099.round").mkdir()
    stream(tmp_path).run()
    assert written(tmp_path) == list(range(60))
    assert all((tmp_path / "s" / name).exists() for name in foreign)


def test_claims_do_not_pile_up_where_nothing_is_read(tmp_path: Path) -> None:
    stream(filled(tmp_path)).run()
    before = len(list((tmp_path / "s" / "rounds").iterdir()))
    for _ in range(30):
        stream(tmp_path).run()
    assert len(list((tmp_path / "s" / "rounds").iterdir())) <= before + 1
    pq.write_table(pa.table({"v": [60]}), tmp_path / "in" / "f6.parquet")
    stream(tmp_path).run()
    assert written(tmp_path) == list(range(61))


def test_whoever_iterates_gets_a_round_again_although_it_was_saved_before_that(tmp_path: Path) -> None:
    with iterated(tmp_path, state_every=5).start(follow=False) as running:
        assert next(iter(running)).number == 1
        running.savepoint("x")
    for _ in range(2):
        with iterated(tmp_path, state_every=5).start(follow=False, restore="x") as running:
            again = next(iter(running))
            assert (again.number, again.is_again, again.rows["r"]["v"].to_pylist()) == (1, True, [1, 2])


def test_a_round_whose_rows_are_damaged_is_not_saved_and_made_again_at_the_next_start(tmp_path: Path) -> None:
    with iterated(tmp_path, state_every=5).start(follow=False) as running:
        damage_rows(tmp_path, next(iter(running)).manifest)
        with refused("stream.corrupt", "round 1 ", "rows of r (partition 0)"):
            running.savepoint("x")
        assert not list((tmp_path / "s" / "savepoints").iterdir())
    with iterated(tmp_path, state_every=5).start(follow=False) as running:
        assert [(each.number, each.rows["r"]["v"].to_pylist()) for each in running] == [
            (1, [1, 2]),
            (2, [3, 4]),
            (3, [5, 6]),
        ]


def test_a_stream_that_is_over_is_not_gone_on_with_as_one_without_end(tmp_path: Path) -> None:
    def bounded(*, is_bounded: bool) -> rota.StreamSession:
        made = rota.StreamSession(tmp_path / "s", every_s=0)
        made.register_files("f", tmp_path / "in", bounded=is_bounded)
        return made

    filled(tmp_path)
    bounded(is_bounded=True).run()
    with pytest.raises(Refused, match=r"stream\.definition.*is over"):
        bounded(is_bounded=False).run()


def test_time_does_not_wait_for_a_partition_of_which_a_view_lets_nothing_through(tmp_path: Path) -> None:
    now = [NOW]
    keys = [("a", range(0, 9_000, 1_000)), ("b", range(0, 9_000, 1_000))]
    tables = [pa.table({"at": list(times), "k": [key] * 9}) for key, times in keys]
    made = rota.StreamSession(tmp_path, rows_max=2, every_s=0)
    made.register_source("r", Endless(*tables), idle_s=30)
    made.register_view("v", "select * from r where k = 'a'")
    made.register_window("w", "v", time="at", tumbling_s=1, aggregates={"n": "count(*)"})
    given: list[tuple[int, int]] = []
    with made.start(follow=False, now_ms=lambda: now[0]) as running:
        for each in running:
            now[0] += 10_000
            given += ((each.number, row["window_start"]) for row in each.rows.get("w", pa.table({})).to_pylist())
    # Ten seconds a round, each planned with the one before: from the fifth on nobody waits for the other partition.
    assert [number for number, _ in given] == [5, 5, 5, 5, 6, 7, 8, 9]
    assert sorted(start for _, start in given) == list(range(0, 8_000, 1_000))


class Endless(Tables):
    """Tables to which rows could still come."""

    can = Source.REWINDABLE

    def is_over(self, partition: int, begin: tuple[int, ...]) -> bool:
        return False


def test_a_ledger_that_is_gone_is_noticed_before_files_are_numbered_anew(tmp_path: Path) -> None:
    stream(filled(tmp_path)).run()
    for path in (tmp_path / "s" / "sources" / "f").iterdir():
        path.unlink()
    with pytest.raises(Refused, match=r"stream\.corrupt.*6 files of partition 0"):
        stream(tmp_path).run()
    assert written(tmp_path) == list(range(60))


class Lying(Endless):
    """A source that gives other columns than it has."""

    def read(self, *given: Any) -> pa.Table:
        return super().read(*given).drop_columns(["v"])


def test_a_source_that_gives_other_columns_than_it_has_is_refused(tmp_path: Path) -> None:
    made = rota.StreamSession(tmp_path, every_s=0)
    made.register_source("r", Lying(pa.table({"v": [1], "k": [2]})))
    with refused("stream.source", " r (", '"v"'):
        made.run()


def test_a_ledger_that_is_gone_comes_back_with_a_savepoint_of_the_stream_itself(tmp_path: Path) -> None:
    with stream(filled(tmp_path)).start(follow=False) as running:
        for each in running:
            if each.number == 2:
                running.stop(savepoint="two")
    for path in (tmp_path / "s" / "sources" / "f").iterdir():
        path.unlink()
    with stream(tmp_path).start(follow=False, restore="two") as running:
        list(running)
    assert written(tmp_path) == list(range(60))


def test_rows_for_a_sink_that_is_none_any_more_are_told_of(tmp_path: Path) -> None:
    with stream(filled(tmp_path)).start(follow=False) as running:
        next(iter(running))
    made = rota.StreamSession(tmp_path / "s", rows_max=15, every_s=0)
    made.register_files("f", tmp_path / "in")
    made.write_files("f", tmp_path / "elsewhere")
    with made.start(follow=False) as running:
        ((_, reason),) = running.skipped
    assert re.match(rf"15 .*\bf\b.* {tmp_path / 'out'}\b", reason)


def test_a_claim_that_is_damaged_gives_nobody_a_number_twice(tmp_path: Path) -> None:
    incarnations: list[int] = []
    filled(tmp_path)
    for number in range(8):
        with stream(tmp_path).start(follow=False) as running:
            list(running)
            incarnations.append(running._stream.incarnation)
        if number > 3:
            newest = max((tmp_path / "s" / "rounds").glob("[0-9]*.round"))
            newest.write_bytes(newest.read_bytes()[:-5])
    assert incarnations == sorted(dict.fromkeys(incarnations)), "each is newer than all before"


def test_a_folder_of_which_only_savepoints_are_left_goes_on_as_the_stream_that_it_was(tmp_path: Path) -> None:
    with stream(filled(tmp_path)).start(follow=False) as running:
        for each in running:
            if each.number == 2:
                running.savepoint("two")
    for name in ("rounds", "plans", "sources", "identity"):
        path = tmp_path / "s" / name
        path.unlink() if path.is_file() else shutil.rmtree(path)
    with stream(tmp_path).start(follow=False, restore="two") as running:
        list(running)
    assert written(tmp_path) == list(range(60))


def test_rows_of_a_round_are_looked_after_although_the_rounds_behind_it_are_damaged(tmp_path: Path) -> None:
    with iterated(tmp_path).start(follow=False) as running:
        rounds = {each.number: each.manifest for each in running}
    chain = Chain(tmp_path / "s")
    path = chain.path(rounds[1].position)
    content = bytearray(path.read_bytes())
    (piece,) = (each for each in rounds[1].pieces if each.kind == "rows")
    content[-sum(each.bytes for each in rounds[1].pieces) + piece.offset + 300] ^= 8
    path.write_bytes(content)
    chain.path(rounds[2].position).write_bytes(b"junk")
    path = chain.path(rounds[3].position)
    path.write_bytes(path.read_bytes()[:-1])
    with iterated(tmp_path).start(follow=False) as running:
        assert [(each.number, each.rows["r"]["v"].to_pylist()) for each in running] == [
            (1, [1, 2]),
            (2, [3, 4]),
            (3, [5, 6]),
        ]


def test_slices_in_which_nothing_comes_publish_nothing(tmp_path: Path) -> None:
    now = [NOW]
    (tmp_path / "in").mkdir()

    def slice_of_it() -> list[int]:
        now[0] += 60_000
        made = rota.StreamSession(tmp_path / "s", every_s=0)
        made.register_files("f", tmp_path / "in", schema=pa.schema([("at", pa.int64())]))
        made.register_window("w", "f", time="at", tumbling_s=1, aggregates={"n": "count(*)"})
        with made.start(follow=False, now_ms=lambda: now[0]) as running:
            return [each.number for each in running if not each.is_again]

    pq.write_table(pa.table({"at": [0]}), tmp_path / "in" / "0.parquet")
    made = [slice_of_it() for _ in range(6)]
    assert made[0] == [1]
    assert made[2:] == [[], [], [], []], "after one that has noticed the silence"
