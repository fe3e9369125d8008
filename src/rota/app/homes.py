"""Whether two machines mean the same blobs: a coordinator leaves a mark there, and a worker looks for it.

A worker that stored logs and results where nobody else looks would lose them without anybody noticing.
"""

import secrets

from rota.core.errors import Refused
from rota.ports import BlobLost, Blobs

MARK = ".rota/home"
_MARK_BYTES_MAX = 200


async def mark_home(blobs: Blobs) -> str:
    """What is written there; it is written now if nothing is."""
    try:
        found = await blobs.read(MARK, 0, _MARK_BYTES_MAX)
    except BlobLost:
        found = secrets.token_hex(16).encode()
        await blobs.put(MARK, found)
    return found.decode(errors="replace")


async def check_home(blobs: Blobs, home: str, place: str) -> None:
    """Refuse blobs that are not the coordinator's."""
    try:
        found = (await blobs.read(MARK, 0, _MARK_BYTES_MAX)).decode(errors="replace")
    except BlobLost:
        found = ""
    if found != home:
        text = f"{place} is not where the coordinator keeps logs and large values, as seen from this machine"
        hint = "Let both reach one place, such as s3://bucket/prefix or a shared folder: [server] blobs there and here."
        raise Refused("blobs.elsewhere", text, hint, path="server.blobs")
