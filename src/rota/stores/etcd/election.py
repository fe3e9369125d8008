"""Who may write: a key that goes with its holder's lease, and the epoch, which decides.

The lease ends by the cluster's clock when `holds` is not asked any more, so that a coordinator that was stopped, or cut
off, makes way. That is all it is good for: what a deposed one still sends is refused because of the epoch.
"""

import asyncio
from contextlib import suppress

import msgspec
from msgspec import Struct

from rota.core.errors import Refused, Unavailable
from rota.core.ids import EPOCH_MAX, Epoch, Millis
from rota.ports import Candidate
from rota.stores.etcd import ops
from rota.stores.etcd import rpc_pb2 as rpc
from rota.stores.etcd.client import Client, Doubt
from rota.stores.etcd.failures import missing
from rota.stores.etcd.keys import Keys
from rota.stores.etcd.log import Mark, Reign
from rota.stores.etcd.opening import FORMAT_VALUE, check_format

# Between two looks at an etcd that does not answer whoever waits for a vacancy.
LOOK_AGAIN_S = 1.0


class Leader(Struct, array_like=True):
    """What the leader's key holds."""

    epoch: Epoch
    who: Candidate


_encode = msgspec.msgpack.Encoder().encode
_leader_of = msgspec.msgpack.Decoder(Leader).decode


class Election:
    """Stands for election, and proves that one was won."""

    def __init__(self, client: Client, keys: Keys, term_ms: Millis) -> None:
        self._client = client
        self._keys = keys
        self._term_ms = term_ms
        # The newest epoch that was seen here. The store's never falls below it.
        self._seen = Epoch(0)

    async def stand(self, who: Candidate, identity: str) -> Reign | None:
        """Take the lock if it is free, and raise the epoch; None if it is not, or another was faster."""
        keys = self._keys
        state = await self._client.read_all(keys.state)
        form, epoch = state.get(keys.format), state.get(keys.epoch)
        head, checkpoint = state.get(keys.head), state.get(keys.checkpoint)
        if form is None or epoch is None or head is None or checkpoint is None:
            raise missing(self._client.address.shown)
        if keys.identity not in state or state[keys.identity].value.decode() != identity:
            raise missing(self._client.address.shown)
        # A newer version may have led since we looked first.
        check_format(form.value, self._client.address.shown)
        self._check_growth(Epoch(int(epoch.value)))
        if keys.leader in state:
            return None
        return await self._take(who, epoch, head, checkpoint)

    def _check_growth(self, epoch: Epoch) -> None:
        if epoch < self._seen:
            text = f"{self._client.address.shown} is at epoch {epoch}, and it was at {self._seen} before"
            hint = f"Was a backup restored? Stop every coordinator, and put {self._seen + 1_000} at {self._shown()}."
            raise Refused("store.missing", text, hint)
        self._seen = epoch

    def _shown(self) -> str:
        return self._keys.epoch.decode()

    async def _take(
        self, who: Candidate, epoch: rpc.KeyValue, head: rpc.KeyValue, checkpoint: rpc.KeyValue
    ) -> Reign | None:
        keys, later = self._keys, int(epoch.value) + 1
        assert later <= EPOCH_MAX, "eight million elections"
        lease = await self._client.grant(-(-self._term_ms // 1_000))
        won = False
        try:
            request = ops.txn(
                [ops.is_absent(keys.leader), ops.is_value(keys.epoch, epoch.value)],
                [
                    ops.put(keys.leader, _encode(Leader(Epoch(later), who)), lease),
                    ops.put(keys.epoch, b"%d" % later),
                    # From here on an older version would not understand what is written.
                    ops.put(keys.format, FORMAT_VALUE),
                    ops.get(keys.head),
                    ops.get(keys.checkpoint),
                ],
            )
            answer = await self._client.attempt(request, self._client.timeout_s)
            if isinstance(answer, Doubt):
                # Won or not, the lease takes the lock with it.
                raise answer.trouble
            if not answer.succeeded:
                return None
            won = True
        finally:
            if not won:
                await self._give_back(lease)
        self._seen = later
        # As they are now that nobody else can move them, and not as they were before.
        newest = [kept or before for kept, before in zip(ops.found(answer), (head, checkpoint), strict=True)]
        first, second = [Mark(each.key, each.value, each.mod_revision) for each in newest]
        return Reign(Epoch(later), lease, first, second)

    async def _give_back(self, lease: int) -> None:
        # If nobody can be told, it ends by itself.
        with suppress(Refused, Unavailable):
            await self._client.revoke(lease)

    async def holds(self, reign: Reign) -> bool:
        """Whether this election's lease lives, and the lock is held with it. Asking is what keeps it alive."""
        if not reign.lease:
            return False
        # Both at once, and for as long as an answer can be of use: a slow etcd is not a lost one.
        looking = asyncio.create_task(self._client.read(self._keys.leader))
        try:
            if not await self._client.keep_alive(reign.lease):
                return False
            found = await looking
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        return bool(found.kvs) and found.kvs[0].lease == reign.lease

    async def release(self, reign: Reign) -> None:
        """Give the lock back."""
        lease, reign.lease = reign.lease, 0
        if lease:
            await self._client.revoke(lease)

    async def leader(self) -> Candidate | None:
        """Who holds the lock."""
        found = await self._client.read(self._keys.leader)
        if not found.kvs:
            return None
        try:
            return _leader_of(found.kvs[0].value).who
        except msgspec.MsgspecError:
            # A newer version may say more than we understand; it leads all the same.
            return Candidate("somebody")

    async def vacancy(self) -> None:
        """Wait until the leader's key is gone."""
        while True:
            try:
                found = await self._client.read(self._keys.leader)
                if not found.kvs:
                    return
                await self._client.deletion(self._keys.leader, found.header.revision)
            except (Refused, Unavailable):
                await asyncio.sleep(LOOK_AGAIN_S)
