"""A folder of content that can be closed, opened again and looked at."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path

from rota.core.ids import Digest
from rota.ports import Blobs
from rota.stores.blobs import open_blobs
from rota.stores.cas import ContentBounds, DiskContent, open_content

MB = 1024 * 1024
ACME, OTHER = "acme", "other"
NOW = 1_700_000_000_000


def digest_of(content: bytes) -> Digest:
    return Digest(sha256(content).hexdigest(), len(content))


def some_bytes(size: int, seed: int = 0) -> bytes:
    return random.Random(f"{size} {seed}").randbytes(size)


class Stage:
    """Content on a folder, or on blobs that are no files; the clock stands unless it is moved."""

    def __init__(self, folder: Path, blobs: Blobs | None = None, **bounds: int) -> None:
        self.folder = folder
        self.blobs = blobs or open_blobs(folder / "blobs")
        self.now = NOW
        self.bounds = ContentBounds(**{"bytes_max": 64 * MB, **bounds})
        self.content: DiskContent

    async def open(self) -> DiskContent:
        self.content = await open_content(self.folder, self.blobs, clock=lambda: self.now, bounds=self.bounds)
        return self.content

    async def reopen(self) -> DiskContent:
        await self.content.close()
        return await self.open()

    async def put(self, content: bytes, tenant: str = ACME) -> Digest:
        digest = digest_of(content)
        await self.content.put(tenant, digest, content)
        return digest

    async def has(self, content: bytes, tenant: str = ACME) -> bool:
        """Whether it is there; what is said to be there must also be right."""
        digest = digest_of(content)
        if self.content.missing(tenant, [digest]):
            return False
        pieces = [piece async for piece in self.content.read(tenant, digest)]
        assert b"".join(pieces) == content
        return True

    def packs(self) -> list[Path]:
        """The files of all packs, in their order."""
        found = [*self.folder.glob("packs/*/*"), *self.folder.glob("blobs/.rota/cas/*/packs/*")]
        return sorted(found, key=lambda path: path.name)

    def files(self) -> list[Path]:
        """The files of large contents."""
        return sorted(self.folder.glob("blobs/.rota/cas/*/large/*/*"))

    def litter(self) -> list[Path]:
        """What uploads left behind."""
        return list(self.folder.glob("uploads/*"))

    def lose_journal(self) -> None:
        for path in self.folder.glob("journal.db*"):
            path.unlink()


def play(stage: Stage, test: Callable[[], Awaitable[None]]) -> None:
    """Run a test with the content open, and close it whatever happens."""

    async def whole() -> None:
        await stage.open()
        try:
            await asyncio.wait_for(test(), 60)
        finally:
            await stage.content.close()

    asyncio.run(whole())
