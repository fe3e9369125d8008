"""The chain of rounds: taken over, fenced, damaged, kept for a while."""

import os
import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from rota.core.errors import Refused
from rota.kinds.query.streams.chain import Chain, Taken, file_of, rounds_in
from rota.kinds.query.streams.flushing import write_flushed
from rota.kinds.query.streams.journal import Journal
from rota.kinds.query.streams.ledger import Entry, Ledger
from rota.kinds.query.streams.manifests import Manifest
from rota.kinds.query.streams.pieces import Piece
from rota.kinds.query.streams.rounds import Plan, Range
from rota.kinds.query.streams.savepoints import Savepoints
from tests.refusals import refused


def claimed(folder: Path, incarnation: int = 0) -> Chain:
    chain = Chain(folder)
    chain.claim(incarnation=incarnation, holder="test", definition="d", now_ms=1)
    return chain


def publish(chain: Chain, number: int, follows: int, *, state: bool = True) -> Manifest:
    plan = Plan(round=number, planned_at_ms=0, ranges=(Range("s", 0, (number,), (number + 1,)),))
    pieces = [(Piece(kind="state", node="w", table="panes"), pa.table({"x": [number] * 500}))] if state else []
    return chain.publish(Manifest(position=0, round=number, follows=follows, definition="d", plan=plan), pieces)


def filled(folder: Path, rounds: int) -> tuple[Chain, list[Manifest]]:
    chain = claimed(folder)
    found: list[Manifest] = []
    for number in range(1, rounds + 1):
        found.append(publish(chain, number, found[-1].position if found else 0))
    return chain, found


def test_whoever_claims_deposes_whoever_was_at_it(tmp_path: Path) -> None:
    old = claimed(tmp_path)
    publish(old, 1, 0)
    new = claimed(tmp_path)
    assert new.incarnation == old.incarnation + 1
    with pytest.raises(Taken):
        publish(old, 2, 2)
    assert publish(new, 2, 2).incarnation == new.incarnation
    assert [chain.round for chain in map(new.manifest, new.positions())] == [0, 1, 1, 2]


def test_an_older_fence_cannot_take_over_from_a_newer_one(tmp_path: Path) -> None:
    claimed(tmp_path, incarnation=40)
    with pytest.raises(Refused, match=r"stream\.fenced"):
        claimed(tmp_path, incarnation=39)
    assert claimed(tmp_path, incarnation=41).incarnation == 41


def test_state_that_is_damaged_is_skipped_with_a_reason_and_made_again(tmp_path: Path) -> None:
    chain, rounds = filled(tmp_path, 3)
    path = chain.path(rounds[2].position)
    content = bytearray(path.read_bytes())
    content[-600] ^= 1
    path.write_bytes(content)
    restored = chain.find()
    assert restored.base is not None
    assert (restored.base.round, [each.round for each in restored.again]) == (2, [3])
    (skipped,) = restored.skipped
    assert (skipped.position, "state of w (partition 0)" in skipped.reason) == (rounds[2].position, True)


def test_damage_at_any_byte_is_noticed(tmp_path: Path) -> None:
    chain, rounds = filled(tmp_path, 2)
    path = chain.path(rounds[1].position)
    whole = path.read_bytes()
    chance = random.Random(11)
    places = [0, 5, 12, 40, len(whole) - 1, *(chance.randrange(len(whole)) for _ in range(60))]
    for place in places:
        broken = bytearray(whole)
        broken[place] ^= 1 << chance.randrange(8)
        path.write_bytes(broken)
        restored = chain.find()
        assert restored.skipped, f"byte {place} was changed"
        assert restored.base is not None
        assert restored.base.round == 1
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert chain.find().skipped, f"only {size} bytes are left"
    path.write_bytes(whole)
    assert not chain.find().skipped


def test_a_round_whose_manifest_is_damaged_is_read_again_as_it_was_planned(tmp_path: Path) -> None:
    chain = claimed(tmp_path)
    first = publish(chain, 1, 0)
    plan = Plan(round=2, planned_at_ms=5, ranges=(Range("s", 0, (2,), (7,)),))
    chain.note(plan)
    second = publish(chain, 2, first.position)
    chain.path(second.position).write_bytes(b"nothing")
    restored = Chain(tmp_path).find()
    assert restored.base is not None
    assert restored.base.round == 1
    assert restored.plans[2] == plan
    assert restored.position == second.position, "its name in the chain stays taken"


def test_a_plan_that_was_being_written_when_the_lights_went_out_is_no_plan(tmp_path: Path) -> None:
    chain = claimed(tmp_path)
    chain.note(Plan(round=1, planned_at_ms=5))
    (journal,) = (tmp_path / "plans").iterdir()
    journal.write_bytes(journal.read_bytes() + b'\n{"round":2,"plan')
    assert list(Chain(tmp_path).find().plans) == [1]


def test_if_nothing_can_be_read_nobody_begins_from_the_beginning(tmp_path: Path) -> None:
    chain, rounds = filled(tmp_path, 12)
    chain.keep(2)
    for each in chain.positions():
        chain.path(each).write_bytes(b"gone")
    with refused("stream.corrupt", *(f"{each}: " for each in chain.positions())):
        chain.find()
    assert rounds


def test_rounds_without_state_are_read_again_from_the_last_one_that_has_it(tmp_path: Path) -> None:
    chain = claimed(tmp_path)
    last = 0
    for number in range(1, 8):
        last = publish(chain, number, last, state=number in (1, 5)).position
    restored = chain.find()
    assert restored.base is not None
    assert (restored.base.round, [each.round for each in restored.again]) == (5, [6, 7])
    assert restored.skipped == ()


def test_only_so_many_rounds_are_kept_and_savepoints_stay(tmp_path: Path) -> None:
    chain, rounds = filled(tmp_path, 9)
    saved = Savepoints(tmp_path)
    saved.make()
    saved.save(chain.path(rounds[0].position), "first", {})
    chain.keep(3)
    assert [chain.manifest(each).round for each in chain.positions()] == [7, 8, 9]
    assert saved.names() == ["first"]
    assert saved.find("first").stat().st_size > 0
    with pytest.raises(Refused, match=r"stream\.unknown"):
        saved.find("second")
    with pytest.raises(Refused, match=r"field\.value"):
        saved.save(chain.path(rounds[8].position), "../x", {})
    with pytest.raises(Refused, match=r"already"):
        saved.save(chain.path(rounds[8].position), "first", {})


def test_whoever_only_reads_makes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "a-typo"
    assert rounds_in(folder) == []
    for which in (7, "saved"):
        with pytest.raises(Refused, match=r"stream\.unknown"):
            file_of(folder, which)
    assert Chain(folder).find().last is None
    assert not folder.exists()


def test_a_rival_that_keeps_publishing_is_deposed_before_state_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, rounds = filled(tmp_path, 3)
    new, tried = Chain(tmp_path), []
    find = new.find

    def slow() -> object:
        tried.append(len(tried))
        with pytest.raises(Taken):
            publish(old, 4, rounds[-1].position)
        return find()

    monkeypatch.setattr(new, "find", slow)
    restored = new.claim(incarnation=0, holder="test", definition="d", now_ms=1)
    assert (restored.last, tried) == (rounds[-1], [0])
    assert publish(new, 4, rounds[-1].position).incarnation == new.incarnation


def test_a_claim_after_a_damaged_round_leads_to_the_one_before(tmp_path: Path) -> None:
    chain, rounds = filled(tmp_path, 3)
    chain.path(rounds[2].position).write_bytes(b"nothing")
    restored = Chain(tmp_path).claim(incarnation=0, holder="test", definition="d", now_ms=1)
    assert restored.last == rounds[1]
    assert [each.position for each in restored.skipped] == [rounds[2].position]


def test_whoever_was_deposed_long_ago_cannot_take_a_name_that_was_removed_since(tmp_path: Path) -> None:
    old, rounds = filled(tmp_path, 2)
    new, last = claimed(tmp_path), rounds[-1]
    for number in range(3, 9):
        last = publish(new, number, last.position)
    new.keep(2)
    before = new.positions()
    assert old.is_taken
    with pytest.raises(Taken):
        publish(old, 3, rounds[-1].position)
    assert new.positions() == before


def test_a_folder_that_is_gone_was_not_taken_by_anybody(tmp_path: Path) -> None:
    chain, rounds = filled(tmp_path / "s", 1)
    shutil.rmtree(tmp_path / "s")
    with pytest.raises(Refused, match=r"stream\.folder"):
        publish(chain, 2, rounds[0].position)


def test_what_is_damaged_is_refused_by_whoever_saves_or_restores_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, rounds = filled(tmp_path, 2)
    path = chain.path(rounds[1].position)
    savepoints = Savepoints(tmp_path)
    savepoints.make()
    saved = savepoints.save(chain.path(rounds[0].position), "first", {})
    whole = saved.read_bytes()
    path.write_bytes(b"nothing")
    with pytest.raises(Refused, match=r"stream\.corrupt"):
        savepoints.save(path, "second", {})
    # Damaged after it was looked at.
    monkeypatch.setattr("rota.kinds.query.streams.chain.saved_round", lambda _: rounds[0])
    saved.write_bytes(whole[:-1])
    with pytest.raises(Refused, match=r"stream\.corrupt"):
        chain.adopt(saved)
    assert not list((tmp_path / "rounds").glob("_*"))


def test_rivals_with_the_same_number_of_a_process_write_to_different_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    link = os.link

    def noted(aside: Path, path: Path) -> None:
        names.append(Path(aside).name)
        link(aside, path)

    monkeypatch.setattr(os, "link", noted)
    for rival in (claimed(tmp_path / "one", 5), claimed(tmp_path / "two", 5)):
        publish(rival, 1, 0)
    for folder in ("three", "four"):
        Ledger(tmp_path / folder, 1).add([Entry("f", 1, 1, 1, 0)])
    names = [name for name in names if "identity" not in name]
    assert len({name.rpartition("-")[0] for name in names}) == 3, "two claims, two rounds and two of a ledger"
    assert len(set(names)) == 6
    (tmp_path / "there").touch()
    with pytest.raises(FileExistsError):
        write_flushed(tmp_path / "there", [b""])


def test_plans_are_forgotten_with_the_rounds_that_they_were_for(tmp_path: Path) -> None:
    chain = claimed(tmp_path)
    last = 0
    for number in range(1, 61):
        chain.note(Plan(round=number, planned_at_ms=number))
        last = publish(chain, number, last).position
        if number % 5 == 0:
            chain.keep(5)
    journals = list((tmp_path / "plans").iterdir())
    kept = [chain.manifest(at).round for at in chain.positions()]
    noted = [plan.round for plan in Journal(tmp_path).plans()]
    assert len(journals) <= 3
    assert len(noted) <= 15
    assert set(kept[1:]) <= set(noted), "what is kept can be read again as it was planned"


def test_plans_of_a_life_that_was_given_up_are_forgotten(tmp_path: Path) -> None:
    chain, rounds = filled(tmp_path, 3)
    chain.note(Plan(round=4, planned_at_ms=1))
    chain.adopt(chain.path(rounds[0].position))
    assert chain.find().plans == {}
    chain.note(Plan(round=2, planned_at_ms=2))
    assert list(chain.find().plans) == [2]


def test_whoever_takes_over_writes_plans_down_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = claimed(tmp_path)
    chain.note(*(Plan(round=number, planned_at_ms=1) for number in range(1, 9)))
    flushes: list[int] = []
    monkeypatch.setattr(os, "fdatasync", flushes.append)
    assert list(Chain(tmp_path).claim(incarnation=0, holder="", definition="d", now_ms=1).plans) == list(range(1, 9))
    assert len(flushes) == 1


def test_savepoints_that_were_being_written_go_and_those_that_are_there_stay(tmp_path: Path) -> None:
    chain, rounds = filled(tmp_path, 1)
    saved = Savepoints(tmp_path)
    saved.make()
    saved.save(chain.path(rounds[0].position), "_first", {})
    (tmp_path / "savepoints" / "_second-0123456789abcdef").touch()
    saved.remove_half_saved()
    assert [path.name for path in (tmp_path / "savepoints").iterdir()] == ["_first.round"]
