"""Pieces in files of their own: whatever happens to a byte of them is seen, and only what is named is kept."""

import random
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec import structs

from rota.core.errors import Refused
from rota.kinds.query.streams.chain import Chain
from rota.kinds.query.streams.manifests import Manifest, pieces_of, read_pieces
from rota.kinds.query.streams.pieces import Damaged, Piece, check_piece, read_piece, write_pieces
from rota.kinds.query.streams.rounds import Plan
from rota.kinds.query.streams.savepoints import Savepoints, saved_round

TABLE = pa.table({"k": [f"key-{at}" for at in range(200)], "n": list(range(200))})


def claimed(folder: Path) -> Chain:
    chain = Chain(folder)
    chain.claim(incarnation=0, holder="test", definition="d", now_ms=1)
    return chain


def publish(chain: Chain, folder: Path, number: int, follows: int = 0, same: tuple[Piece, ...] = ()) -> Manifest:
    """A round whose state tasks have written; `same` is what they have named again."""
    new = [(Piece(kind="state", node="w", table="panes", partition=at), TABLE) for at in range(len(same), 2)]
    written = write_pieces(folder, f"{chain.aside(number)}/w-0-t0-{number}.state", new, is_kept=True)
    plan = Plan(round=number, planned_at_ms=0)
    manifest = Manifest(position=0, round=number, follows=follows, definition="d", plan=plan)
    return chain.publish(manifest, (), (*same, *written))


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in (folder / "pieces").rglob("*.state"))


def test_every_byte_of_a_piece_counts(tmp_path: Path) -> None:
    chain = claimed(tmp_path)
    published = publish(chain, tmp_path, 1)
    path, chance = tmp_path / published.pieces[0].file, random.Random(3)
    whole = path.read_bytes()
    (first, place), (second, _) = pieces_of(chain.path(published.position), "state")
    assert read_piece(first, place) == TABLE
    assert second.offset == first.bytes, "both are in one file"
    for at in (0, first.bytes - 1, *(chance.randrange(first.bytes) for _ in range(100))):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(Damaged, match=r"state of w \(partition 0\) "):
            check_piece(first, place)
        with pytest.raises(Damaged):
            read_piece(first, place)
    path.write_bytes(whole[: first.bytes - 1])
    with pytest.raises(Damaged):
        check_piece(first, place)
    path.unlink()
    restored = chain.find()
    assert restored.base is None
    assert [manifest.round for manifest in restored.again] == [1], "it is made again from the beginning"
    assert "is gone" in restored.skipped[0].reason


def test_what_no_round_names_is_removed_and_what_one_names_again_stays(tmp_path: Path) -> None:
    chain = claimed(tmp_path)
    first = publish(chain, tmp_path, 1)
    last = first
    for number in range(2, 6):
        last = publish(chain, tmp_path, number, last.position, first.pieces[:1])
    in_hand = write_pieces(tmp_path, f"{chain.aside(6)}/x.state", [(first.pieces[0], TABLE)], is_kept=False)[0].file
    newer = write_pieces(
        tmp_path, "pieces/00000000000000000099-000000000001/x.state", [(first.pieces[0], TABLE)], is_kept=False
    )
    chain.keep(2, [in_hand])
    named = [first.pieces[0].file, *(f"{chain.aside(number)}/w-0-t0-{number}.state" for number in (4, 5))]
    assert files(tmp_path) == sorted([*named, in_hand, newer[0].file])


def test_a_savepoint_has_copies_of_its_pieces_and_none_of_damaged_ones(tmp_path: Path) -> None:
    chain = claimed(tmp_path)
    published = publish(chain, tmp_path, 1)
    savepoints = Savepoints(tmp_path)
    savepoints.make()
    saved = savepoints.save(chain.path(published.position), "good", {})
    path = tmp_path / published.pieces[0].file
    content = bytearray(path.read_bytes())
    content[100] ^= 4
    path.write_bytes(content)
    with pytest.raises(Refused, match=r"stream\.corrupt"):
        savepoints.save(chain.path(published.position), "bad", {})
    assert savepoints.names() == ["good"]
    assert not list(saved.parent.glob("_*"))
    path.unlink()
    assert saved_round(saved) == structs.replace(published, pieces=saved_round(saved).pieces)
    assert [table for _, table in read_pieces(saved, "state")] == [TABLE, TABLE]
    adopted = chain.adopt(saved)
    assert [piece.file for piece in adopted.pieces] == ["", ""]
    assert [table for _, table in read_pieces(chain.path(adopted.position), "state")] == [TABLE, TABLE]
