"""What people want of a stream that runs elsewhere: a file in its folder, which it looks at between rounds."""

import os
from pathlib import Path

import msgspec
from msgspec import Struct

from rota.core.errors import Refused


class Wishes(Struct, frozen=True, kw_only=True):
    """Whether to stand still, to save the next round under a name, to stop after it."""

    paused: bool = False
    savepoint: str = ""
    stop: bool = False


def read_wishes(folder: Path) -> Wishes:
    """What is wanted; nothing if nobody has said."""
    try:
        return msgspec.json.decode((folder / "wishes.json").read_bytes(), type=Wishes)
    except FileNotFoundError:
        return Wishes()
    except msgspec.DecodeError as error:
        text = f"{folder / 'wishes.json'} cannot be read: {error}"
        raise Refused("field.type", text, "Remove it.", path="wishes") from None


def write_wishes(folder: Path, wishes: Wishes) -> None:
    """Say what is wanted, as a whole."""
    aside = folder / f"_wishes-{os.getpid()}"
    aside.write_bytes(msgspec.json.encode(wishes))
    aside.replace(folder / "wishes.json")
