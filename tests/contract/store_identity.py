"""What a store promises about its identity, from which the cluster id is derived."""

import asyncio

from rota.core.cluster import cluster_id
from rota.ports import Candidate
from tests.contract.bench import Bench, Promises

promise = Promises()


@promise
async def all_processes_on_a_disk_read_the_same_identity(bench: Bench) -> None:
    identity = await bench.store.identity()
    assert identity, "an empty identity"
    epoch = await bench.elect(bench.store)
    rival = await bench.join()
    assert await rival.identity() == await bench.store.identity() == identity
    again = await bench.reopen(bench.store, epoch)
    assert await again.identity() == identity, "another identity after a restart"


@promise
async def those_that_ask_at_once_read_the_same_identity(bench: Bench) -> None:
    """Several processes are started together on an empty disk."""
    stores = [bench.store, *[await bench.join() for _ in range(3)]]
    found = await asyncio.gather(*[store.identity() for store in stores])
    assert len(set(found)) == 1, f"one disk with several identities: {found}"


@promise
async def those_that_stand_for_the_first_election_at_once_are_of_one_cluster(bench: Bench) -> None:
    stores = [bench.store, *[await bench.join() for _ in range(2)]]
    epochs = await asyncio.gather(*[store.elect(Candidate(f"number {n}")) for n, store in enumerate(stores)])
    assert sum(epoch is not None for epoch in epochs) == 1
    found = await asyncio.gather(*[store.identity() for store in stores])
    assert len({cluster_id(identity) for identity in found}) == 1, f"one disk with several identities: {found}"


@promise
async def elections_and_loads_leave_the_identity_alone(bench: Bench) -> None:
    identity = await bench.store.identity()
    for _ in range(3):
        epoch = await bench.elect(bench.store)
        _ = [record async for record in bench.store.load(epoch)]
        assert await bench.store.identity() == identity
        await bench.store.release(epoch)
    assert await (await bench.join()).identity() == identity


@promise
async def no_two_disks_have_one_identity(bench: Bench) -> None:
    other = await bench.adapter.make_store()
    try:
        assert await bench.store.identity() != await other.identity()
    finally:
        await bench.adapter.close([other])
