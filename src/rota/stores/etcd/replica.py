"""A mirror that is kept up to date: from the newest checkpoint, then entry by entry from the log.

The writer's is fed by its own commits, and reads from etcd only what it has not seen. Everybody else's reads what is
missing when it is asked.
"""

import asyncio

import msgspec
from msgspec import Struct

from rota.core.ids import Epoch
from rota.ports import BlobLost, Blobs
from rota.stores.etcd import rpc_pb2 as rpc
from rota.stores.etcd.client import PAUSE_S, Client
from rota.stores.etcd.entries import Entry, unpack, unseal
from rota.stores.etcd.failures import corrupt, missing
from rota.stores.etcd.keys import Keys
from rota.stores.etcd.mirror import Mirror
from rota.stores.etcd.snapshots import Pointer, read_pointer, read_snapshot

# How often a reader begins again because what it read was tidied away under it.
TRIES = 10
# Entries per request: more while answers are small, fewer while they are large.
_ENTRIES, _ENTRIES_MAX = 32, 4_096
_ANSWER_BYTES = 4 * 1024 * 1024


class Standing(Struct, frozen=True):
    """How far the store has come."""

    epoch: Epoch
    number: int
    pointer: Pointer | None


class Replica:
    """One mirror and where it comes from."""

    def __init__(self, client: Client, keys: Keys, blobs: Blobs) -> None:
        self._client = client
        self._keys = keys
        self._blobs = blobs
        self.mirror = Mirror()
        self._catching_up = asyncio.Lock()

    async def standing(self) -> Standing:
        """What etcd says now."""
        state = await self._client.read_all(self._keys.state)
        epoch, head, checkpoint = [state.get(key) for key in (self._keys.epoch, self._keys.head, self._keys.checkpoint)]
        if epoch is None or head is None or checkpoint is None:
            raise missing(self._client.address.shown)
        return Standing(Epoch(int(epoch.value)), int(head.value), read_pointer(checkpoint.value))

    def forget(self) -> None:
        """Begin anew with the checkpoint, whatever was known."""
        self.mirror = Mirror()

    async def current(self) -> tuple[Standing, Mirror]:
        """A mirror that has everything that was committed when this was called."""
        async with self._catching_up:
            for _ in range(TRIES):
                standing = await self.standing()
                if self.mirror.number > standing.number:
                    # Our own commit came in between, or etcd was set back.
                    standing = await self.standing()
                    if self.mirror.number > standing.number:
                        self.forget()
                try:
                    if await self._catch_up(standing):
                        return standing, self.mirror
                except BlobLost:
                    # Perhaps there is a newer checkpoint, and this one has been removed.
                    self.forget()
                await asyncio.sleep(PAUSE_S)
        raise corrupt(f"the checkpoint or the log of {self._client.address.shown} has gaps")

    async def _catch_up(self, standing: Standing) -> bool:
        """Apply what is missing; False if some of it has been tidied away meanwhile."""
        at = standing.pointer.number if standing.pointer is not None else 0
        if self.mirror.number < at:
            self.mirror = Mirror() if standing.pointer is None else await read_snapshot(self._blobs, standing.pointer)
        limit = _ENTRIES
        while self.mirror.number < standing.number:
            mirror, size = self.mirror, 0
            start, end = self._keys.entry(mirror.number + 1), self._keys.entry(standing.number + 1)
            answer = await self._client.read(start, end, limit=limit)
            if not answer.kvs or self._keys.number_of(answer.kvs[0].key) > mirror.number + 1:
                # Unless the writer itself has come this far meanwhile.
                return mirror.number >= standing.number
            for found in answer.kvs:
                entry, entry_size = await self._read(found)
                mirror.apply(self._keys.number_of(found.key), entry, entry_size)
                size += entry_size
            limit = min(limit * 2, _ENTRIES_MAX) if size < _ANSWER_BYTES else max(1, limit // 2)
            await asyncio.sleep(0)
        return True

    async def _read(self, found: rpc.KeyValue) -> tuple[Entry, int]:
        number = self._keys.number_of(found.key)
        try:
            envelope = unseal(found.value)
            content = envelope.content
            if envelope.parts:
                place = (number, envelope.epoch, envelope.attempt)
                content = b"".join([await self._part(*place, part) for part in range(envelope.parts)])
            return unpack(content), len(content)
        except (msgspec.MsgspecError, ValueError) as error:
            raise corrupt(f"entry {number} of the log is damaged: {type(error).__name__}: {error}") from error

    async def _part(self, number: int, epoch: Epoch, attempt: int, part: int) -> bytes:
        found = await self._client.read(self._keys.part(number, epoch, attempt, part))
        if not found.kvs:
            raise BlobLost(f"a part of entry {number} is gone")
        return found.kvs[0].value
