"""What people want of a stream that runs elsewhere: a file in its folder, which it looks at between two rounds.

Whoever asks writes `wishes.json`, one at a time; whoever runs the stream only reads it, and writes `heeded.json`. So
neither overwrites what the other has said. A wish has an id: it is written once and heeded once, however often it is
sent.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, structs

from rota.core.errors import Refused, Unavailable
from rota.wire.plainfiles import read_plain, write_plain

# What a round's file is called at its end, and how it begins; and the folder of those that have names.
ENDING = ".round"
SAVEPOINTS = "savepoints"
BEGINNING = b"ROTAROUND1\n"
# Digits that a round's number can have. Of very many more Python makes no number.
_DIGITS_MAX = 18
# Ids that are remembered, so that they are not taken twice; and wishes that may wait.
ASKED_KEPT_MAX = 200
PENDING_MAX = 20
# A savepoint's name, of which the name of a file is made.
NAME_BYTES_MAX = 100

Verb = Literal["pause", "resume", "savepoint", "restore"]
VERBS: dict[str, Verb] = {"pause": "pause", "resume": "resume", "savepoint": "savepoint", "restore": "restore"}


class Wish(Struct, frozen=True, kw_only=True):
    """One wish. `which`: the name of a savepoint, or the round to go on from. `stop`: end after it."""

    id: str
    verb: Verb
    which: str = ""
    stop: bool = False

    @property
    def words(self) -> str:
        """What is wanted, in words."""
        return f"{self.verb} {self.which}{' and stop' if self.stop else ''}".rstrip()


class Wishes(Struct, frozen=True, kw_only=True):
    """Whether to stand still, what else is wanted and was not done yet, and all ids that were taken lately."""

    paused: bool = False
    pending: tuple[Wish, ...] = ()
    asked: tuple[str, ...] = ()


class Heeded(Struct, frozen=True):
    """Ids of wishes that were met, or could not be."""

    ids: tuple[str, ...] = ()


_wishes = msgspec.json.Decoder(Wishes).decode
_heeded = msgspec.json.Decoder(Heeded).decode
_encode = msgspec.json.Encoder().encode


def read_wishes(folder: Path) -> Wishes:
    """What is wanted; nothing if nobody has said. Raises ValueError if that cannot be read."""
    try:
        wishes = _wishes(read_plain(folder / "wishes.json"))
    except FileNotFoundError:
        return Wishes()
    except OSError as error:
        raise ValueError(f"wishes.json cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"wishes.json cannot be read: {error}") from None
    if not wishes.pending:
        return wishes
    done = read_heeded(folder).ids
    return structs.replace(wishes, pending=tuple(each for each in wishes.pending if each.id not in done))


def read_heeded(folder: Path) -> Heeded:
    """What was heeded. What cannot be read is taken for nothing: every wish may be heeded again."""
    try:
        return _heeded(read_plain(folder / "heeded.json"))
    except (OSError, ValueError, RecursionError):
        return Heeded()


def heed(folder: Path, wish: Wish) -> None:
    """A wish was met, or cannot be; for whoever runs the stream."""
    ids = (*(each for each in read_heeded(folder).ids if each != wish.id), wish.id)
    _write(folder, "heeded.json", Heeded(ids[-ASKED_KEPT_MAX:]))


def ask(folder: Path, wish: Wish) -> None:
    """Say what is wanted. What was asked under the same id before is not asked again.

    Whether it can be met is for the caller to look at first (`check_wish`).
    """
    with _alone(folder):
        wishes = _readable(folder)
        if wish.id in wishes.asked:
            return
        asked = (*wishes.asked, wish.id)[-ASKED_KEPT_MAX:]
        if wish.verb in ("pause", "resume"):
            wishes = structs.replace(wishes, paused=wish.verb == "pause", asked=asked)
        else:
            wishes = structs.replace(wishes, pending=(*wishes.pending, wish), asked=asked)
        _write(folder, "wishes.json", wishes)


def check_wish(folder: Path, wish: Wish, restorable: tuple[int, ...]) -> None:
    """Refuse what cannot be met as things stand, unless it was asked for before and may have been met since."""
    wishes = _readable(folder)
    if wish.id in wishes.asked:
        return
    if len(wishes.pending) >= PENDING_MAX:
        text = f"{PENDING_MAX} wishes wait until somebody runs the stream in {folder}"
        raise Refused("stream.busy", text, "Start it, or remove its wishes.json.")
    if wish.verb == "savepoint":
        check_savepoint(folder, wish.which)
        if any((each.verb, each.which) == ("savepoint", wish.which) for each in wishes.pending):
            text = f"a savepoint {wish.which!r} is wanted already, and waits until somebody runs the stream"
            raise Refused("field.value", text, "Choose another name.", path="name")
    elif wish.verb == "restore":
        _check_restorable(folder, wish.which, restorable)


def check_savepoint(folder: Path, name: str) -> None:
    """Refuse a name that is none, or that is taken."""
    if not is_name(name):
        hint = "Letters, digits, - _ . and not digits alone, which are the number of a round."
        raise Refused("field.value", f"a savepoint cannot be called {name[:100]!r}", hint, path="name")
    if has_savepoint(folder, name):
        raise Refused("field.value", f"there is a savepoint {name!r} already", "Choose another name.", path="name")


def is_name(name: str) -> bool:
    """Whether a savepoint can be called so: it is part of the name of a file, and is not taken for a round."""
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    return (
        plain.isalnum()
        and not name.startswith(".")
        and not name.isdecimal()
        and len(name.encode(errors="replace")) <= NAME_BYTES_MAX
    )


def has_savepoint(folder: Path, name: str) -> bool:
    """Whether a stream has a savepoint of that name, whatever the name is."""
    return is_name(name) and (folder / SAVEPOINTS / f"{name}{ENDING}").exists()


def check_round(path: Path) -> None:
    """Refuse a file that is no round by its first bytes; whether it is whole is for whoever restores it."""
    try:
        # A pipe would wait for whoever writes to it.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            begins = file.read(len(BEGINNING))
    except FileNotFoundError:
        raise Refused("stream.unknown", f"there is no file {path}", "Name the file of a round.", path="round") from None
    except OSError as error:
        text = f"{path} cannot be read: {error.strerror}"
        raise Refused("stream.folder", text, "Name the file of a round.", path="round") from None
    if begins != BEGINNING:
        text = f"{path} does not begin like a round"
        raise Refused("stream.corrupt", text, "Name the file of a round or of a savepoint.", path="round")


def _check_restorable(folder: Path, which: str, restorable: tuple[int, ...]) -> None:
    if which.isdecimal():
        if len(which) > _DIGITS_MAX or int(which) not in restorable:
            known = ", ".join(str(each) for each in restorable) or "none"
            text = f"there is no round {which[:40]} with state in {folder}"
            raise Refused("stream.unknown", text, f"There are: {known}.", path="round")
    elif not has_savepoint(folder, which):
        hint = "`rota stream show` lists savepoints, and rounds that can be gone on from."
        raise Refused("stream.unknown", f"there is no savepoint {which[:100]!r}", hint, path="round")


def _readable(folder: Path) -> Wishes:
    try:
        return read_wishes(folder)
    except ValueError as wrong:
        raise Refused("stream.folder", f"{folder}: {wrong}", "Remove that file.", path="wishes") from None


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    """One writer at a time, of all that have this folder. Nobody is waited for: who has the lock may be stuck."""
    file = _locked(folder)
    try:
        yield
    finally:
        os.close(file)


def _locked(folder: Path) -> int:
    """The file that is locked, until it is closed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        file = os.open(folder / "wishes.lock", flags, 0o644)
    except OSError as error:
        raise _unwritable(folder, error) from None
    try:
        flock(file, LOCK_EX | LOCK_NB)
    except OSError as error:
        os.close(file)
        raise (_busy(folder) if isinstance(error, BlockingIOError) else _unwritable(folder, error)) from None
    return file


def _busy(folder: Path) -> Unavailable:
    return Unavailable("service.busy", f"somebody else is asking something of the stream in {folder}.")


def _write(folder: Path, name: str, content: Struct) -> None:
    try:
        write_plain(folder / name, _encode(content))
    except OSError as error:
        raise _unwritable(folder, error) from None


def _unwritable(folder: Path, error: OSError) -> Refused:
    text = f"{folder} cannot be written to: {error.strerror}"
    return Refused("stream.folder", text, "Let whoever asks write to the stream's folder.")
