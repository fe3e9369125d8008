"""A backup of etcd and of the blobs, and what becomes of it: docs/guides/operations.md, Backups and Restoring."""

import asyncio
import shutil
from pathlib import Path

import pytest

from rota.core.errors import Refused
from rota.core.records import Batch
from rota.stores.blobs import open_blobs
from rota.stores.etcd import EtcdStore
from tests.contract.bench import batch
from tests.contract.samples import one_of_each
from tests.integration.etcd_stage import EAGER, FOREVER, ME, Model
from tests.servers.etcd import EtcdServer, etcd_server

pytestmark = pytest.mark.full


async def live(url: str, blobs: Path, written: list[Batch], models: list[Model]) -> None:
    """A coordinator's reign: it commits, makes a checkpoint after each commit but the last, and stops in order."""
    store = EtcdStore(url, open_blobs(blobs), bounds=EAGER)
    epoch = await store.elect(ME)
    assert epoch is not None
    _ = [record async for record in store.load(epoch)]
    for each in written:
        await store.commit(epoch, each)
        for model in models:
            await model.commit(each)
        while each is not written[-1] and await store.tidy(epoch, 0, FOREVER):
            pass
    await store.close()


def raise_epoch(server: EtcdServer) -> int:
    """As the guide says."""
    epoch = int(server.control("get", "--print-value-only", "rota/state/epoch")) + 1_000
    server.control("put", "rota/state/epoch", str(epoch))
    return epoch


def names(blobs: Path) -> list[str]:
    return sorted(str(path.relative_to(blobs)) for path in blobs.rglob("*") if path.is_file())


async def refusal(url: str, blobs: Path) -> Refused:
    store = EtcdStore(url, open_blobs(blobs), bounds=EAGER)
    try:
        with pytest.raises(Refused) as refused:
            await store.elect(ME)
        return refused.value
    finally:
        await store.close()


def test_both_halves_of_a_backup_are_restored_and_one_alone_is_refused_also_after_the_epoch_was_raised(
    tmp_path: Path,
) -> None:
    blobs, copy, saved = tmp_path / "blobs", tmp_path / "copy", tmp_path / "saved"
    commits = [batch(one_of_each(100_000 * number)) for number in range(1, 7)]

    async def run(server: EtcdServer) -> None:
        url, model = server.url("rota"), Model()
        await live(url, blobs, commits[:3], [model])
        server.control("snapshot", "save", str(saved))
        shutil.copytree(blobs, copy)
        await live(url, blobs, commits[3:], [])
        server.member.restore(saved)
        before = names(blobs)
        assert before != names(copy), "checkpoints came since"
        for _ in range(2):
            refused = await refusal(url, blobs)
            assert refused.code == "store.missing"
            assert "set back" in refused.reason
            assert names(blobs) == before, "nothing is removed"
            raised = raise_epoch(server)
        shutil.rmtree(blobs)
        shutil.copytree(copy, blobs)
        store = EtcdStore(url, open_blobs(blobs), bounds=EAGER)
        epoch = await store.elect(ME)
        assert epoch == raised + 1
        await model.expect(store, epoch)
        await store.close()

    with etcd_server() as server:
        asyncio.run(run(server))
