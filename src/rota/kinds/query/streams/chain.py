"""The chain of rounds in a stream's folder: claimed, published, kept for a while, restored from.

    rounds/<position>.round    manifests with their pieces, in the order of their names
    plans/                     plans of rounds that were not published yet (`journal`)
    savepoints/<name>.round    rounds that are kept until somebody removes them (`savepoints`)
    pieces/<incarnation>-<round>/    what tasks of a round on workers have written; what no round names is removed

A name in the chain is taken with `link`, which fails if somebody else took it. That alone decides who may publish: an
incarnation that was deposed has its next name taken by the claim of another (decision 0017).
"""

import os
import re
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from msgspec import Struct, structs

from rota.core.errors import Refused
from rota.kinds.query.streams.flushing import write_flushed
from rota.kinds.query.streams.journal import Journal
from rota.kinds.query.streams.manifests import (
    Manifest,
    Skipped,
    copied,
    packed,
    pieces_of,
    read_manifest,
    read_pieces,
)
from rota.kinds.query.streams.pieces import PIECES, Damaged, Piece, PieceKind, check_piece
from rota.kinds.query.streams.rounds import Plan
from rota.kinds.query.streams.savepoints import Savepoints, aside_name, saved_round
from rota.wire.flushing import flush
from rota.wire.wishes import ENDING as _ENDING

_IDENTITY = re.compile(r"[0-9a-f]{24}", re.ASCII)
# So that the number of an incarnation is known although a claim is damaged.
_CLAIMS_KEPT = 2
# Claims that were overtaken by rounds of an incarnation that was still at it.
_CLAIMS_TRIED_MAX = 1_000


class Restored(Struct, frozen=True):
    """Where a stream goes on: a round with state, the rounds after it that have to be read again, and plans beyond.

    `base` is None at the very beginning; `position` is the newest name in the chain.
    """

    position: int
    base: Manifest | None
    again: tuple[Manifest, ...]
    plans: dict[int, Plan]
    skipped: tuple[Skipped, ...]

    @property
    def last(self) -> Manifest | None:
        """The newest round that counts."""
        return self.again[-1] if self.again else self.base


class Taken(Exception):
    """Somebody else has taken the next name of the chain."""


class Chain:
    """The rounds of one stream, as one incarnation sees them. Nothing is made for those who only read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rounds = folder / "rounds"
        self._journal = Journal(folder)
        self._pieces = folder / PIECES
        self._position = 0
        self._incarnation = 0
        self._identity = ""

    def make(self, identity: str = "") -> None:
        """Have all folders there, for whoever is about to take over. `identity`: what it was called, if all is gone."""
        self._rounds.mkdir(parents=True, exist_ok=True)
        self._journal.make()
        self._make_identity(identity)

    def _make_identity(self, former: str) -> None:
        """What the stream is called where others must not be taken for it; it stays when the folder is moved.

        Its manifests have it, too: a file that is gone or damaged is put back from the newest one.
        """
        path, known = self._folder / "identity", self._newest().stream or former
        try:
            found = path.read_text(errors="replace")
        except FileNotFoundError:
            found = ""
        if _IDENTITY.fullmatch(found) and known in ("", found):
            return
        aside = self._folder / aside_name("identity")
        write_flushed(aside, [(known or secrets.token_hex(12)).encode()])
        if known or found:
            aside.replace(path)
        else:
            # Whoever makes the same stream at this moment has it made once.
            with suppress(FileExistsError):
                os.link(aside, path)
            aside.unlink()
        flush(self._folder)

    @property
    def identity(self) -> str:
        """What the stream is called, once its folders were made."""
        if not self._identity:
            self._identity = (self._folder / "identity").read_text()
        return self._identity

    # Reading.

    def positions(self) -> list[int]:
        """All names in the chain that are taken, in their order."""
        return sorted(int(path.stem) for path in self._rounds.glob(f"[0-9]*{_ENDING}") if path.stem.isdecimal())

    def path(self, position: int) -> Path:
        """The file of a name in the chain."""
        return self._rounds / f"{position:012d}{_ENDING}"

    def manifest(self, position: int) -> Manifest:
        """One of the chain, or Damaged."""
        try:
            return read_manifest(self.path(position))
        except FileNotFoundError:
            raise Damaged("it is gone") from None

    def rows(self, position: int) -> list[tuple[Piece, pa.Table]]:
        """Rows that a round has kept for sinks, checked; or Damaged."""
        return read_pieces(self.path(position), "rows")

    def last_round(self) -> Manifest | None:
        """The newest round whose manifest can be read, whatever its state is."""
        for at in reversed(self.positions()):
            with suppress(Damaged):
                if (manifest := self.manifest(at)).kind == "round":
                    return manifest
        return None

    def find(self) -> Restored:
        """Where to go on: from the newest round whose state is what was written. Others are skipped with a reason."""
        taken = self.positions()
        skipped: list[Skipped] = []
        again: list[Manifest] = []
        beyond: list[Manifest] = []
        at, is_known = (taken[-1] if taken else 0), not taken
        while at > 0:
            try:
                manifest = self.manifest(at)
            except Damaged as damage:
                skipped.append(Skipped(at, str(damage)))
                # What came after it cannot be computed without it; what was read then is known all the same.
                beyond, again = [*again, *beyond], []
                at = max((each for each in taken if each < at), default=0)
                continue
            if manifest.kind == "round" and (lost := self._lost_rows(manifest, again)):
                # Nobody knows whether they arrived: it is made once more, as a round that was not published.
                skipped.append(Skipped(at, lost))
                beyond, at, is_known = [manifest, *beyond], manifest.follows, manifest.follows == 0
                continue
            if manifest.kind == "round":
                wrong = self._damage(at) if manifest.has_state else "it has no state"
                if not wrong:
                    return self._restored(taken, manifest, again, beyond, skipped)
                if manifest.has_state:
                    skipped.append(Skipped(at, wrong))
                if manifest.plan is None and not manifest.follows:
                    # It was restored from elsewhere, and there is nothing to make it from again.
                    break
                if manifest.plan is not None:
                    again.insert(0, manifest)
            at, is_known = manifest.follows, manifest.follows == 0
        if not is_known:
            reasons = "; ".join(f"{each.position}: {each.reason}" for each in skipped)
            raise Refused("stream.corrupt", f"no round can be gone on from ({reasons})", "Restore a savepoint.")
        return self._restored(taken, None, again, beyond, skipped)

    def _lost_rows(self, manifest: Manifest, newer: Sequence[Manifest]) -> str:
        """What is wrong with rows that sinks have to be handed again: those of the newest round; "" if nothing is."""
        is_handed = any(each.is_kept_here for each in manifest.transactions)
        return self._damage(manifest.position, "rows") if is_handed and not newer else ""

    def _damage(self, position: int, kind: PieceKind = "state") -> str:
        """What is wrong with pieces of a round; "" if nothing is."""
        try:
            for piece, place in pieces_of(self.path(position), kind):
                check_piece(piece, place)
        except Damaged as damage:
            return str(damage)
        return ""

    def _restored(
        self,
        taken: Sequence[int],
        base: Manifest | None,
        again: Sequence[Manifest],
        beyond: Sequence[Manifest],
        skipped: Sequence[Skipped],
    ) -> Restored:
        last = again[-1] if again else base
        done = last.round if last else 0
        # What was planned ahead is the oldest: it may have been planned anew, for want of room.
        plans = {last.next.round: last.next} if last is not None and last.next is not None else {}
        plans |= {plan.round: plan for plan in self._journal.plans()}
        plans |= {each.next.round: each.next for each in beyond if each.next is not None}
        plans |= {each.plan.round: each.plan for each in beyond if each.plan is not None}
        wanted = {number: plan for number, plan in plans.items() if number > done}
        return Restored(taken[-1] if taken else 0, base, tuple(again), wanted, tuple(skipped))

    # Writing.

    def claim(self, *, incarnation: int, holder: str, definition: str, now_ms: int) -> Restored:
        """Take over: from now on nobody else can publish. Gives where to go on.

        With an `incarnation` of 0 it is the next one; otherwise it must not be older than any before.
        """
        self.make()
        self._take_over(incarnation, holder, definition, now_ms)
        # Only now, since it takes a while: a rival that keeps publishing is out already.
        restored = self.find()
        if restored.plans:
            self.note(*restored.plans.values())
        return restored

    def _take_over(self, incarnation: int, holder: str, definition: str, now_ms: int) -> None:
        for _ in range(_CLAIMS_TRIED_MAX):
            newest, self._position = self._newest(), max(self.positions(), default=0)
            if incarnation and incarnation < newest.incarnation:
                text = f"incarnation {newest.incarnation} has taken over from {incarnation}"
                raise Refused("stream.fenced", text, "Stop; another one is at it.")
            # Each name that cannot be read may be the claim of another one.
            unread = sum(at > newest.position for at in self.positions())
            self._incarnation = incarnation or newest.incarnation + unread + 1
            claim = Manifest(
                kind="claim",
                position=0,
                follows=self._round_before(),
                round=newest.round,
                holder=holder,
                definition=definition,
                published_at_ms=now_ms,
            )
            # If a round was published meanwhile, it counts.
            with suppress(Taken):
                self.publish(claim, ())
                return
        raise Refused("stream.fenced", "others keep publishing", "See who is at it: `rota stream show`.")

    def _round_before(self) -> int:
        """Where to look for a round from the newest name on: not at claims, of which there may be any number."""
        with suppress(Damaged):
            newest = self.manifest(self._position)
            return newest.follows if newest.kind == "claim" else self._position
        return self._position

    def _newest(self) -> Manifest:
        """The newest manifest that can be read: it says who holds the chain."""
        for at in reversed(self.positions()):
            with suppress(Damaged):
                return self.manifest(at)
        return Manifest(position=0)

    def publish(
        self, manifest: Manifest, tables: Sequence[tuple[Piece, pa.Table]], elsewhere: Sequence[Piece] = ()
    ) -> Manifest:
        """Give a round the next name of the chain. Taken if somebody else has it: then this incarnation is over.

        `elsewhere` are pieces that tasks have written to files of their own.
        """
        whole, contents = packed(self._next(manifest), tables, elsewhere)
        self._take_name(contents)
        return whole

    def _next(self, manifest: Manifest) -> Manifest:
        return structs.replace(
            manifest, position=self._position + 1, incarnation=self._incarnation, stream=self.identity
        )

    def _take_name(self, contents: Iterable[bytes | pa.Buffer]) -> None:
        position = self._position + 1
        aside = self._rounds / aside_name(f"{position:012d}-{self._incarnation}")
        try:
            write_flushed(aside, contents)
            os.link(aside, self.path(position))
        except FileExistsError:
            raise self._taken(position) from None
        except FileNotFoundError:
            # Whoever took over also cleans up.
            if self._rounds.is_dir():
                raise self._taken(position) from None
            raise Refused("stream.folder", f"{self._rounds} is gone", "Bring the stream's folder back.") from None
        finally:
            aside.unlink(missing_ok=True)
        if max(self.positions()) > position:
            # The name was free because whoever took over has removed its oldest rounds since.
            self.path(position).unlink(missing_ok=True)
            raise self._taken(position)
        flush(self._rounds)
        self._position = position

    def _taken(self, position: int) -> Taken:
        return Taken(f"position {position} was taken from incarnation {self._incarnation}")

    @property
    def is_taken(self) -> bool:
        """Whether somebody else goes on with the chain, so that nothing can be published from here any more."""
        return max(self.positions(), default=0) > self._position

    def note(self, *plans: Plan) -> None:
        """Write down what rounds will read, before they do."""
        self._journal.note(plans, position=self._position, incarnation=self._incarnation)

    @property
    def incarnation(self) -> int:
        """The number of this incarnation, once it has claimed."""
        return self._incarnation

    def keep(self, count: int, in_hand: Sequence[str] = ()) -> None:
        """Remove all but the newest `count` rounds with state, and what was left aside by others.

        `in_hand` are files of pieces that the next round will be made from, whether or not one has named them yet.
        """
        found = claims = 0
        for at in reversed(self.positions()):
            try:
                manifest = self.manifest(at)
            except Damaged:
                continue
            claims += manifest.kind == "claim"
            if manifest.kind == "claim" and claims > _CLAIMS_KEPT:
                # It has deposed whom it had to, and nothing follows it.
                self.path(at).unlink(missing_ok=True)
            found += manifest.has_state
            if found == count:
                self._forget(at)
                break
        self._sweep(in_hand)
        self._journal.close()

    def _forget(self, oldest: int) -> None:
        """Remove rounds from before a position, and what is not needed without them."""
        for at in self.positions():
            if at < oldest:
                self.path(at).unlink(missing_ok=True)
        self._journal.forget(oldest)
        for path in self._rounds.glob("_*-*-*"):
            incarnation = path.name.split("-")[1]
            if incarnation.isdecimal() and int(incarnation) < self._incarnation:
                path.unlink(missing_ok=True)

    def _sweep(self, in_hand: Sequence[str]) -> None:
        """Remove files of pieces that no round names: of rounds that went, and of attempts that came to nothing.

        Those of newer incarnations are theirs to remove.
        """
        if not self._pieces.is_dir():
            return
        named: dict[str, None] = dict.fromkeys(in_hand)
        for at in self.positions():
            with suppress(Damaged):
                named |= {piece.file: None for piece in self.manifest(at).pieces}
        for folder in self._pieces.glob("[0-9]*-[0-9]*"):
            if int(folder.name.partition("-")[0]) > self._incarnation:
                continue
            left = [path for path in folder.iterdir() if f"{PIECES}/{folder.name}/{path.name}" not in named]
            for path in left:
                path.unlink(missing_ok=True)
            with suppress(OSError):
                # Not empty, or somebody who was deposed is still writing there.
                folder.rmdir()

    def aside(self, number: int) -> str:
        """Where tasks of a round put their pieces, seen from the stream's folder."""
        return f"{PIECES}/{self._incarnation:020d}-{number:012d}"

    def adopt(self, path: Path) -> Manifest:
        """Go on from another round, here or of another folder: it becomes the newest one. `claim` comes first."""
        manifest = saved_round(path)
        branches = manifest.branched(self._position + 1)
        copy = structs.replace(manifest, plan=None, next=None, follows=0, transactions=(), branches=branches)
        try:
            whole, contents = copied(self._next(copy), pieces_of(path, "state"))
            self._take_name(contents)
        except Damaged as damage:
            raise Refused("stream.corrupt", f"{path} cannot be restored: {damage}", "Choose another one.") from None
        except Taken as taken:
            raise Refused("stream.fenced", str(taken), "Another one took over; try again.") from None
        self._journal.forget_all()
        return whole

    def close(self) -> None:
        """Let go of the journal."""
        self._journal.close()


def file_of(folder: Path, which: str | int) -> Path:
    """The file of a round by its number, or of a savepoint by its name or path."""
    if isinstance(which, str) and not which.isdecimal():
        return Path(which) if os.sep in which else Savepoints(folder).find(which)
    number, chain = int(which), Chain(folder)
    known = [manifest for manifest in rounds_in(folder) if manifest.has_state]
    for manifest in reversed(known):
        if manifest.round == number:
            return chain.path(manifest.position)
    text = f"there is no round {number} with state in {folder}"
    hint = f"There are {known[0].round} to {known[-1].round}." if known else ""
    raise Refused("stream.unknown", text, hint, path="round")


def rounds_in(folder: Path) -> list[Manifest]:
    """All rounds that are kept and can be read, the oldest first."""
    chain = Chain(folder)
    found: list[Manifest] = []
    for position in chain.positions():
        with suppress(Damaged):
            found.append(chain.manifest(position))
    return [each for each in found if each.kind == "round"]
