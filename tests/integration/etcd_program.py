"""A coordinator's store in a process of its own: elected, it writes until it is deposed, and says what happens.

`python -m tests.integration.etcd_program URL BLOBS TERM_MS`
"""

import asyncio
import sys

from rota.core.records import Receipt
from rota.ports import CommitUnknown, Fenced
from rota.stores.blobs import open_blobs
from rota.stores.etcd import EtcdStore
from tests.contract.bench import batch
from tests.integration.etcd_stage import ME


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def hold(store: EtcdStore, epoch: int, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        try:
            if not await store.holds(epoch):
                say("lost", epoch)
                return
        except Exception as error:  # counts as not proven, and is tried again
            say("unproven", type(error).__name__)


async def main(url: str, blobs: str, term_ms: int) -> None:
    store = EtcdStore(url, open_blobs(blobs), term_ms=term_ms)
    epoch = await store.elect(ME)
    assert epoch is not None, "nobody else is there"
    _ = [record async for record in store.load(epoch)]
    say("elected", epoch)
    holding = asyncio.create_task(hold(store, epoch, term_ms / 4_000))
    number = 0
    while True:
        number += 1
        try:
            await store.commit(epoch, batch([Receipt("t", f"c{number}", 0, "", number)]))
        except (Fenced, CommitUnknown) as over:
            say(type(over).__name__, number)
            break
        say("committed", number)
    await holding
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
