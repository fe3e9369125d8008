"""A process that puts one content after the other into a folder and says so, until it is killed."""

import asyncio
import sys
import time
from pathlib import Path

from rota.stores.blobs import open_blobs
from rota.stores.cas import ContentBounds, DiskContent, open_content
from tests.unit.stores.cas.stage import ACME, digest_of, some_bytes

MANY_AT_ONCE = 4


def content_of(number: int) -> bytes:
    """Mostly small ones, and each time some large ones."""
    return some_bytes(300_000 if number % 7 == 0 else 50 + number % 5_000, number)


async def opened(folder: Path, bytes_max: int) -> DiskContent:
    bounds = ContentBounds(bytes_max, pack_bytes_max=200_000)
    return await open_content(
        folder, open_blobs(folder / "blobs"), clock=lambda: time.time_ns() // 1_000_000, bounds=bounds
    )


async def write(folder: Path, first: int, bytes_max: int) -> None:
    content = await opened(folder, bytes_max)

    async def keep_writing(number: int) -> None:
        while True:
            one = content_of(number)
            digest = digest_of(one)
            if number % 3:
                await content.put(ACME, digest, one)
            else:
                upload = content.upload(ACME, digest, "u")
                for offset in range(0, len(one), 64 * 1024):
                    await upload.write(offset, one[offset : offset + 64 * 1024])
                await upload.finish()
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()
            number += MANY_AT_ONCE
            if number % 50 == 0:
                await content.tidy()

    await asyncio.gather(*(keep_writing(first + number) for number in range(MANY_AT_ONCE)))


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
