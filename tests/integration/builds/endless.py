"""A worker that fetches and stages for ever, to be killed: `python -m … FOLDER URL`."""

import asyncio
import sys
from pathlib import Path

from rota.wire.places import Place
from rota.wire.reapi.digests import digest_of
from rota.worker.runners.builds.cache import ContentCache
from rota.worker.runners.builds.content import Blob, ContentClient
from rota.worker.runners.builds.folder import BuildFolder
from rota.worker.runners.builds.shelf import Key, Shelf


async def main(place: str, url: str) -> None:
    folder = BuildFolder(Path(place))
    folder.open()
    shelf = Shelf(folder.cache, folder.parts)
    cache = ContentCache(shelf, 50_000_000)
    client = ContentClient(lambda url: Place(url, url.removeprefix("grpc://")), lambda _: "")
    content = client.at(url, "acme", "")
    number = 0
    while True:
        blobs = [b"%d " % (number + each) * (each * 200) for each in range(1, 40)]
        blobs.append(b"%d" % number * 400_000)
        sent = [Blob(digest_of(blob), content=blob) for blob in blobs]
        await content.send(sent)
        held = await cache.hold(content, [Key("acme", blob.digest, number % 2 == 0) for blob in sent])
        folder.make(folder.room(number))
        await held.give_back()
        number += 40
        sys.stdout.write("again\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
