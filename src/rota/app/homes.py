"""Whose blobs these are: a coordinator leaves its mark there, and nobody else's is taken for it.

Two coordinators with one place would each remove what only the other knows of, and a worker that stored logs and
results where nobody else looks would lose them without anybody noticing. The mark is kept beside the records too, so
that both may be moved, and a store that was lost does not leave its blobs to the next one unasked.
"""

from pathlib import Path

from rota.app.files import write_whole
from rota.core.errors import Refused
from rota.ports import Blobs
from rota.stores.blobs import MARK, find_mark
from rota.stores.sqlite import IDENTITY_FILE, read_identity_file


def keep_mark(folder: Path, mark: str) -> None:
    """Write the mark of a data folder into its file, unless it says so already."""
    if read_identity_file(folder) != mark:
        write_whole(folder / IDENTITY_FILE, f"{mark}\n".encode())


async def mark_home(blobs: Blobs, home: str, place: str) -> None:
    """Leave a coordinator's mark at a place. Refuses one that has another's."""
    if not await find_mark(blobs):
        await blobs.put(MARK, home.encode())
    await check_own(blobs, home, place)


async def check_own(blobs: Blobs, home: str, place: str) -> None:
    """Refuse blobs that have the mark of another coordinator; without a `home`, those of any."""
    if await find_mark(blobs) != home:
        text = f"{place} has the mark of another coordinator, and each removes what it does not know of"
        hint = f"Use another prefix. If that coordinator is gone, remove the object {MARK} there to take over."
        raise Refused("blobs.elsewhere", text, hint, path="server.blobs")


async def check_home(blobs: Blobs, home: str, place: str) -> None:
    """Refuse blobs that are not those of the coordinator a worker is for."""
    if await find_mark(blobs) != home:
        raise elsewhere(f"{place} is not where the coordinator keeps logs and large values, as seen from this machine")


def elsewhere(text: str) -> Refused:
    """A worker does not see its coordinator's blobs."""
    hint = "Let both reach one place, such as s3://bucket/prefix or a shared folder: [server] blobs there and here."
    return Refused("blobs.elsewhere", text, hint, path="server.blobs")
