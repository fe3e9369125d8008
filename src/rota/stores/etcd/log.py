"""The log in etcd: how one writer moves its head, and what it knows when nobody answers.

Every change compares two things in its transaction: the epoch, and that nobody has moved the mark (the head, or the
pointer to the checkpoint) since this writer last did. The second is what makes doubt end. A writer that got no answer
puts the mark anew where it was. If that succeeds, the first try has not happened and never will; if it does not, the
mark itself says why.
"""

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import NoReturn

from msgspec import Struct

from rota.core.errors import Refused, Unavailable
from rota.core.ids import Epoch
from rota.ports import CommitUnknown, Fenced, StoreRefused
from rota.stores.etcd import ops
from rota.stores.etcd import rpc_pb2 as rpc
from rota.stores.etcd.client import PAUSE_S, Client, Doubt
from rota.stores.etcd.entries import PART_BYTES, Entry, Envelope, pack, seal
from rota.stores.etcd.failures import missing
from rota.stores.etcd.keys import Keys

# How often a change that has not happened is tried again before whoever asked for it is told.
TRIES = 3


class Mark(Struct):
    """A key that only the reigning writer moves: its value and its revision, as this writer left it.

    It is not certain while a change is under way, and after one whose outcome nobody told.
    """

    key: bytes
    value: bytes
    revision: int
    is_certain: bool = True


class Reign(Struct):
    """What a writer was given by its election, and how far it has come."""

    epoch: Epoch
    lease: int
    head: Mark
    checkpoint: Mark
    # Names of parts and blobs end in this, and are never used twice.
    attempts: int = 0
    # The checkpoint up to which the log has been removed.
    swept: int = -1

    @property
    def number(self) -> int:
        """The newest entry."""
        return int(self.head.value)

    def next_attempt(self) -> int:
        """A number that was not used in this reign."""
        self.attempts += 1
        return self.attempts


class Log:
    """Writes under a reign."""

    def __init__(self, client: Client, keys: Keys, timeout_s: float) -> None:
        """`timeout_s` is how long doubt may last."""
        self._client = client
        self._keys = keys
        self._timeout_s = timeout_s

    # What a reign may do.

    async def append(self, reign: Reign, entry: Entry) -> tuple[int, int]:
        """Add an entry; its number and size. Raises as `Store.commit` does."""
        content = pack(entry)
        number, attempt = reign.number + 1, reign.next_attempt()
        self._check(reign.head)
        pieces = [content[at : at + PART_BYTES] for at in range(0, len(content), PART_BYTES)]
        parts = len(pieces) if len(pieces) > 1 else 0
        for at in range(parts):
            await self._put_part(reign, self._keys.part(number, reign.epoch, attempt, at), pieces[at])
        envelope = Envelope(reign.epoch, attempt, parts, b"" if parts else content)
        key = self._keys.entry(number)
        await self._move(reign, reign.head, b"%d" % number, (key, seal(envelope)))
        return number, len(content)

    async def point(self, reign: Reign, value: bytes) -> None:
        """Name another checkpoint."""
        self._check(reign.checkpoint)
        await self._move(reign, reign.checkpoint, value)

    async def delete(self, reign: Reign, start: bytes, end: bytes) -> int:
        """Remove keys that nothing needs any more; how many that were."""
        request = ops.txn([self._reigns(reign)], [ops.delete(start, end)])
        answer = await self._client.repeat(request)
        if not answer.succeeded:
            raise Fenced(f"epoch {reign.epoch} has passed")
        return answer.responses[0].response_delete_range.deleted

    async def renew(self, reign: Reign, mark: Mark) -> None:
        """Take hold of a mark anew: what this writer sent before and has not heard of can not happen any more."""
        give_up_at = _time() + self._timeout_s
        while _time() < give_up_at:
            state = await self._client.read_all(self._keys.state)
            self._check_epoch(reign, state.get(self._keys.epoch))
            found = self._found(state.get(mark.key))
            unmoved = ops.is_unmoved(found.key, found.mod_revision)
            request = ops.txn([self._reigns(reign), unmoved], [ops.put(found.key, found.value)])
            answer = await self._client.attempt(request, self._client.patience_s)
            if not isinstance(answer, Doubt) and answer.succeeded:
                _found_at(mark, found.value, answer.header.revision)
                return
            await asyncio.sleep(PAUSE_S)
        raise Unavailable("store.unavailable", "etcd did not let the log be taken hold of in time.")

    # How a mark is moved.

    async def _put_part(self, reign: Reign, key: bytes, content: bytes) -> None:
        """A part of a large entry. Nothing refers to it before the head has moved, so it may be put twice."""
        request = ops.txn([self._reigns(reign)], [ops.put(key, content)], [ops.get(self._keys.epoch)])
        try:
            answer = await self._client.repeat(request)
        except Refused as refused:
            raise _not_taken(refused) from refused
        if not answer.succeeded:
            self._check_epoch(reign, ops.found(answer)[0])

    async def _move(self, reign: Reign, mark: Mark, value: bytes, *entry: tuple[bytes, bytes]) -> None:
        """Put a value at a mark, and an entry with it, if the reign and the mark stand."""
        mark.is_certain = False
        try:
            await self._try_to_move(reign, mark, value, entry)
        except (Fenced, Refused, StoreRefused, Unavailable):
            # It did not happen, and will not.
            mark.is_certain = True
            raise

    async def _try_to_move(self, reign: Reign, mark: Mark, value: bytes, entry: Sequence[tuple[bytes, bytes]]) -> None:
        for turn in count(1):
            try:
                request = self._request(reign, mark, value, entry)
                answer = await self._client.attempt(request, self._client.patience_s)
            except Refused as refused:
                raise _not_taken(refused) from refused
            except Unavailable as unavailable:
                trouble = unavailable
            else:
                if not isinstance(answer, Doubt):
                    if not answer.succeeded:
                        self._overtaken(reign, answer)
                    _found_at(mark, value, answer.header.revision)
                    return
                if await self._settle(reign, mark, value, entry, answer):
                    return
                trouble = answer.trouble
            if turn >= TRIES or trouble.code == "store.full":
                raise trouble

    def _request(self, reign: Reign, mark: Mark, value: bytes, entry: Sequence[tuple[bytes, bytes]]) -> rpc.TxnRequest:
        puts = [ops.put(key, content) for key, content in entry]
        reads = [ops.get(self._keys.epoch), ops.get(mark.key), *[ops.get(key) for key, _ in entry]]
        compare = [self._reigns(reign), ops.is_unmoved(mark.key, mark.revision)]
        return ops.txn(compare, [*puts, ops.put(mark.key, value)], reads)

    async def _settle(
        self, reign: Reign, mark: Mark, value: bytes, entry: Sequence[tuple[bytes, bytes]], doubt: Doubt
    ) -> bool:
        """Whether a change without an answer has happened. Afterwards it has, or never will."""
        give_up_at = _time() + self._timeout_s
        while _time() < give_up_at:
            try:
                found = await (self._look(mark, entry) if doubt.is_over else self._put_back(reign, mark, entry))
            except (Refused, Unavailable):
                # Whatever keeps us from asking says nothing about what was sent before.
                found = None
            if found == ():
                return False
            if found is not None:
                verdict = self._verdict(reign, mark, value, entry, found)
                if verdict is not None:
                    return verdict
                break
            await asyncio.sleep(PAUSE_S)
        raise CommitUnknown("etcd did not say whether it was written, and could not be asked")

    async def _put_back(
        self, reign: Reign, mark: Mark, entry: Sequence[tuple[bytes, bytes]]
    ) -> "Sequence[rpc.KeyValue | None] | None":
        """Put a mark anew where it was: nothing, if that could be done; otherwise why it could not.

        The same request with the old value and without the entry. None if it has no answer either.
        """
        request = self._request(reign, mark, mark.value, ())
        request.failure.extend(ops.get(key) for key, _ in entry)
        answer = await self._client.attempt(request, self._client.patience_s)
        if isinstance(answer, Doubt):
            return None
        if not answer.succeeded:
            return ops.found(answer)
        _found_at(mark, mark.value, answer.header.revision)
        return ()

    async def _look(self, mark: Mark, entry: Sequence[tuple[bytes, bytes]]) -> "Sequence[rpc.KeyValue | None]":
        """How things stand after a request that is over."""
        state = await self._client.read_all(self._keys.state)
        entries = [(await self._client.read(key)).kvs for key, _ in entry]
        return [state.get(self._keys.epoch), state.get(mark.key), *[one[0] if one else None for one in entries]]

    def _verdict(
        self,
        reign: Reign,
        mark: Mark,
        value: bytes,
        entry: Sequence[tuple[bytes, bytes]],
        found: Sequence[rpc.KeyValue | None],
    ) -> bool | None:
        """What the epoch, the mark and the entry say about our change; None if they do not tell."""
        epoch, moved, *entries = found
        if epoch is None or moved is None:
            raise missing(self._client.address.shown)
        if epoch.value == b"%d" % reign.epoch:
            if moved.value not in (value, mark.value):
                return None
            # Only this writer moves it: by the change itself, or by an earlier try to settle.
            has_happened = moved.value == value
            _found_at(mark, moved.value, moved.mod_revision)
            return has_happened
        if entry and entries[0] is not None:
            if entries[0].value == entry[0][1]:
                # It came just before the end of the reign. Where the mark is now is none of its business.
                _found_at(mark, value, mark.revision)
                return True
        elif entry and int(moved.value) >= int(value):
            # The entry with that number has been removed since, and nobody knows whose it was.
            return None
        raise Fenced(f"epoch {reign.epoch} has passed; {epoch.value.decode()} reigns")

    # What must be so.

    def _check(self, mark: Mark) -> None:
        if not mark.is_certain:
            raise CommitUnknown("it is not known what became of the last commit; load again")

    def _reigns(self, reign: Reign) -> rpc.Compare:
        return ops.is_value(self._keys.epoch, b"%d" % reign.epoch)

    def _check_epoch(self, reign: Reign, epoch: rpc.KeyValue | None) -> None:
        if epoch is None:
            raise missing(self._client.address.shown)
        if epoch.value != b"%d" % reign.epoch:
            raise Fenced(f"epoch {reign.epoch} has passed; {epoch.value.decode()} reigns")

    def _found(self, mark: rpc.KeyValue | None) -> rpc.KeyValue:
        if mark is None:
            raise missing(self._client.address.shown)
        return mark

    def _overtaken(self, reign: Reign, answer: rpc.TxnResponse) -> NoReturn:
        """Why a change was not made: it was sent once, and its compare failed."""
        self._check_epoch(reign, ops.found(answer)[0])
        self._found(ops.found(answer)[1])
        raise CommitUnknown("the log was written under this epoch by somebody else")


def _found_at(mark: Mark, value: bytes, revision: int) -> None:
    mark.value, mark.revision, mark.is_certain = value, revision, True


def _not_taken(refused: Refused) -> StoreRefused | Unavailable:
    """Only what is too large is the batch's own fault; a certificate or a password would stop any other as well."""
    if refused.code == "store.refused":
        return StoreRefused(str(refused))
    return Unavailable(refused.code, f"{refused.reason}. {refused.hint}")


def _time() -> float:
    return asyncio.get_running_loop().time()
