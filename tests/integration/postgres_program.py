"""A coordinator's side of the lock in a process of its own: elected, it asks whether it holds, and says so.

When it does not, it tries to commit all the same, says what became of that, and ends.
"""

import asyncio
import sys

from rota.core.errors import Unavailable
from rota.ports import Candidate, CommitUnknown, Fenced
from rota.stores.postgres import PostgresStore
from tests.integration.postgres_stage import a_batch


def say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201 - the parent reads it


async def main() -> None:
    url, schema, lock_id, term_ms = sys.argv[1:]
    store = PostgresStore(url, schema=schema, lock_id=int(lock_id), term_ms=int(term_ms))
    epoch = await store.elect(Candidate("a program"))
    assert epoch is not None
    await store.commit(epoch, a_batch())
    say("elected", epoch)
    holds = True
    while holds:
        try:
            holds = await store.holds(epoch)
        except Unavailable:
            holds = False
        say("holds", holds)
        await asyncio.sleep(int(term_ms) / 4_000)
    try:
        await store.commit(epoch, a_batch("late"))
        say("commit", "done")
    except (Fenced, CommitUnknown, Unavailable) as error:
        say("commit", type(error).__name__)
    await store.close()


asyncio.run(main())
