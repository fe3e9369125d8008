"""The bundles of a worker: fetched once for all who need one, kept while there is room, and never removed in use."""

import asyncio
from pathlib import Path

from rota.core.decide.leases import Offer
from rota.core.errors import Refused
from rota.core.ids import BlobRef
from rota.ports import BlobLost, Blobs
from rota.wire.bundles import check_ref
from rota.worker.accounts import Account
from rota.worker.bundles.folder import BundleFolder, Unusable

KEPT_BYTES_MAX = 1 << 30


class NoBundle(Exception):
    """The code of an attempt could not be had; nobody's fault, and worth another try."""


class BundleCache:
    """What was fetched, and who uses it."""

    def __init__(
        self, blobs: Blobs, place: Path, run_as: Account | None = None, *, bytes_max: int = KEPT_BYTES_MAX
    ) -> None:
        """`place` is the folder for it, `run_as` who will read it."""
        self._blobs = blobs
        self._folder = BundleFolder(place, run_as)
        self._bytes_max = bytes_max
        # The one that was used last is at the end.
        self._sizes: dict[str, int] | None = None
        self._users: dict[str, int] = {}
        self._fetching: dict[str, asyncio.Task[None]] = {}
        self._one_by_one = asyncio.Lock()

    async def take(self, offer: Offer) -> str:
        """The folder with an attempt's code, empty if it needs none; it stays there until it is given back."""
        ref = offer.bundle
        if ref is None:
            return ""
        digest = ref.sha256
        self._users[digest] = self._users.get(digest, 0) + 1
        try:
            # Also of what is here already: another tenant's code may be.
            check_ref(offer.tenant, ref)
            if self._sizes is None or digest not in self._sizes:
                await self._fetch_once(ref)
            else:
                self._sizes[digest] = self._sizes.pop(digest)
            return str(self._folder.path(digest))
        except BaseException as error:
            self.give_back(offer)
            if isinstance(error, Refused | BlobLost | Unusable | OSError):
                raise NoBundle(f"the bundle {digest[:12]} with its code could not be had: {error}") from error
            raise

    def give_back(self, offer: Offer) -> None:
        """An attempt has ended, or has none of it."""
        if offer.bundle is not None:
            digest = offer.bundle.sha256
            self._users[digest] -= 1
            if not self._users[digest]:
                del self._users[digest]

    async def close(self) -> None:
        """Fetch no more."""
        for task in self._fetching.values():
            task.cancel()
        await asyncio.gather(*self._fetching.values(), return_exceptions=True)
        await asyncio.to_thread(self._folder.close)

    async def _fetch_once(self, ref: BlobRef) -> None:
        """Have it fetched, or wait for whoever has; one who gives up does not stop it for the others."""
        task = self._fetching.get(ref.sha256)
        if task is None:
            task = self._fetching[ref.sha256] = asyncio.ensure_future(self._fetch(ref))
            task.add_done_callback(lambda done: self._fetched(ref.sha256, done))
        await asyncio.shield(task)

    def _fetched(self, digest: str, task: "asyncio.Task[None]") -> None:
        del self._fetching[digest]
        if not task.cancelled():
            # Whoever still waits is told; if nobody does, nobody minds.
            task.exception()

    async def _fetch(self, ref: BlobRef) -> None:
        async with self._one_by_one:
            if self._sizes is None:
                self._sizes = await asyncio.to_thread(self._folder.open)
            if ref.sha256 in self._sizes:
                # Of an earlier worker in the same folder.
                self._sizes[ref.sha256] = self._sizes.pop(ref.sha256)
                self._folder.touch(ref.sha256)
                return
            packed = self._folder.packed(ref.sha256)
            try:
                await self._blobs.fetch(ref, packed)
                size = await asyncio.to_thread(self._folder.unpack, ref.sha256)
            finally:
                packed.unlink(missing_ok=True)
            self._sizes[ref.sha256] = size
            await self._make_room(self._sizes)

    async def _make_room(self, sizes: dict[str, int]) -> None:
        total = sum(sizes.values())
        for digest in list(sizes):
            if total <= self._bytes_max:
                return
            if digest not in self._users:
                total -= sizes.pop(digest)
                await asyncio.to_thread(self._folder.remove, digest)
