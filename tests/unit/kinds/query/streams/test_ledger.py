"""The ledger of files: agreed on by rivals, in few files however often somebody looks, and never with a gap."""

from pathlib import Path
from typing import Any

import pytest

from rota.core.errors import Refused
from rota.kinds.query.streams.ledger import Entry, Ledger

pytestmark = pytest.mark.slow


def entry(number: int, of: str = "a") -> Entry:
    return Entry(f"{of}{number}.csv", 10, number, -1, 0)


def names(ledger: Ledger) -> list[str]:
    return [each.name for each in ledger.of(0)]


def looked(folder: Path, looks: int) -> Ledger:
    ledger = Ledger(folder, 1)
    for number in range(len(ledger.of(0)), looks):
        ledger.add([entry(number)])
    return ledger


@pytest.mark.parametrize("looks", [1, 7, 8, 9, 63, 64, 65, 300])
def test_however_often_somebody_looks_there_are_few_files_with_all_names_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    monkeypatch.setattr("rota.kinds.query.streams.ledger._PARTS_MAX", 8)
    ledger = looked(tmp_path, looks)
    wanted = [f"a{number}.csv" for number in range(looks)]
    assert names(ledger) == wanted
    assert names(Ledger(tmp_path, 1)) == wanted
    assert len(list(tmp_path.iterdir())) <= 2 * 8


def test_a_rival_that_fell_behind_finds_what_was_put_together(tmp_path: Path) -> None:
    behind = looked(tmp_path, 10)
    ahead = looked(tmp_path, 150)
    behind.read()
    assert names(behind) == names(ahead)


def test_a_rival_that_fell_behind_adds_nothing_where_others_have_put_files_together(tmp_path: Path) -> None:
    behind = looked(tmp_path, 10)
    ahead = looked(tmp_path, 150)
    behind.add([entry(7, "z")])
    assert names(behind) == names(ahead) == names(Ledger(tmp_path, 1))
    behind.add([entry(7, "z")])
    ahead.read()
    assert names(ahead)[-1] == "z7.csv"


def test_a_name_that_is_freed_just_before_it_is_taken_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind, ahead = looked(tmp_path, 10), looked(tmp_path, 63)
    write = behind._write

    def late(*given: Any) -> Any:
        # At the worst moment: the name is looked at next, and was given up just now.
        ahead.add([entry(63)])
        return write(*given)

    monkeypatch.setattr(behind, "_write", late)
    behind.add([entry(7, "z")])
    assert names(behind) == names(ahead) == names(Ledger(tmp_path, 1))
    assert len(names(ahead)) == 64


def test_one_that_was_killed_while_putting_files_together_leaves_nothing_that_counts_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = Path.unlink

    def killed(path: Path, **options: Any) -> None:
        if not path.name.startswith("_"):
            raise KeyboardInterrupt
        unlink(path, **options)

    ledger = looked(tmp_path, 63)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            ledger.add([entry(63)])
    assert len(names(Ledger(tmp_path, 1))) == 64
    again = looked(tmp_path, 140)
    assert names(again) == [f"a{number}.csv" for number in range(140)]
    assert names(Ledger(tmp_path, 1)) == names(again)


@pytest.mark.parametrize("damage", ["cut", "gone", "short"])
def test_a_ledger_that_is_damaged_is_refused(tmp_path: Path, damage: str) -> None:
    looked(tmp_path, 70)
    whole = tmp_path / "000000000000-000000000064.json"
    match damage:
        case "cut":
            whole.write_bytes(whole.read_bytes()[:-20])
        case "gone":
            whole.unlink()
        case _:
            whole.write_bytes(b'[["a",1,1,1,0]]')
    with pytest.raises(Refused, match=r"stream\.corrupt"):
        Ledger(tmp_path, 1)


def test_what_a_rival_adds_before_files_are_put_together_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = looked(tmp_path, 63), looked(tmp_path, 63)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "_put_together", lambda _: None)
        one.add([entry(63)])
        other.read()
        other.add([entry(64, "z")])
    # It lists what the other has added, and does not know it.
    one._put_together()
    assert names(Ledger(tmp_path, 1))[-2:] == ["a63.csv", "z64.csv"]


def test_a_ledger_that_has_lost_its_end_takes_it_back_from_a_copy(tmp_path: Path) -> None:
    whole = looked(tmp_path / "whole", 5)
    part = looked(tmp_path / "part", 2)
    assert part.recall(whole.packed())
    assert names(part) == names(whole) == names(Ledger(tmp_path / "part", 1))
    assert whole.recall(looked(tmp_path / "other", 3).packed()), "it knows more"
    strange = Ledger(tmp_path / "strange", 1)
    strange.add([entry(7, "z")])
    assert not strange.recall(whole.packed())
