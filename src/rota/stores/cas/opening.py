"""Opening a folder of content: from the journal, as far as it goes, and from the packs beyond that.

One process has a folder, and one folder has its place among the blobs. What was on its way in when the last process
died is gone; what was acknowledged is there.
"""

import asyncio
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from rota.core.errors import Refused
from rota.core.ids import Millis
from rota.ports import BlobLost, Blobs
from rota.stores.cas.appending import Appender, Tail
from rota.stores.cas.content import ContentBounds, DiskContent
from rota.stores.cas.index import KEY_BYTES, NO_PACK, Index, Row, Slot
from rota.stores.cas.journal import Arriving, Journal, Journalled, complete, open_journal
from rota.stores.cas.packs import ITEM_BYTES, Pack, end_of, read_head, scan
from rota.stores.cas.reading import read_pack
from rota.stores.cas.stock import ROOT, Stock, blob_name_of_large, blob_name_of_pack
from rota.stores.sqlite.connection import Connection
from rota.stores.sqlite.lock import FolderLock, held
from rota.wire.names import safe_name

_PACKS, _UPLOADS, _HOME = "packs", "uploads", "home"
# Whose content lies among the blobs; not beside the tenants, one of whom may be called anything.
MARK = f"{ROOT}-home"
_MARK_BYTES_MAX = 200


async def open_content(
    folder: Path, blobs: Blobs, *, clock: Callable[[], Millis], bounds: ContentBounds
) -> DiskContent:
    """The content of a folder. Raises `Refused` if another process has it, or another folder has these blobs."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = FolderLock(folder)
    if not lock.take("content"):
        raise held(folder)
    journal: Journal | None = None
    try:
        await _check_home(folder, blobs)
        await asyncio.to_thread(_clear, folder / _UPLOADS)
        connection, known = await asyncio.to_thread(open_journal, folder)
        journal = Journal(folder, connection)
        opening = _Opening(folder, blobs, known, Stock(Index(), journal, blobs, clock, bounds.recent_bytes_max))
        await opening.load()
        await opening.settle(connection)
        appender = Appender(
            folder / _PACKS, bounds.pack_bytes_max, opening.tails(bounds.pack_bytes_max), opening.next_number
        )
    except BaseException:
        if journal is not None:
            await journal.close()
        lock.free()
        raise
    return DiskContent(opening.stock, appender, lock, folder / _UPLOADS, clock, bounds)


async def _check_home(folder: Path, blobs: Blobs) -> None:
    """Leave this folder's mark among the blobs. Refuses those with another's: each drops what it does not know of."""
    path = folder / _HOME
    own = path.read_text(encoding="utf-8").strip() if path.exists() else ""
    try:
        there = (await blobs.read(MARK, 0, _MARK_BYTES_MAX)).decode(errors="replace").strip()
    except BlobLost:
        there = ""
    if there and there != own:
        raise Refused(
            "blobs.elsewhere",
            f"the content among these blobs belongs to another folder than {folder}",
            f"Use another place. If that folder is gone, remove the object {MARK} there to take over.",
        )
    if not own:
        own = secrets.token_hex(16)
        path.write_text(f"{own}\n", encoding="utf-8")
    if not there:
        await blobs.put(MARK, own.encode())


def _clear(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, exist_ok=True)


class _Opening:
    """What is found while a folder is opened."""

    def __init__(self, folder: Path, blobs: Blobs, known: Journalled, stock: Stock) -> None:
        self.stock = stock
        self.next_number = 1
        self._folder = folder
        self._blobs = blobs
        self._known = known
        self._loop = asyncio.get_running_loop()
        # Packs that can be written to, with their ends.
        self._ends: dict[int, int] = {}
        # Slots of entries whose packs are not there.
        self._gone: list[Slot] = []

    async def load(self) -> None:
        """Find the packs, believe the journal as far as it goes, and read on from there."""
        for tenant in self._known.tenants:
            self.stock.index.add_shelf(tenant)
        tenants = {safe_name(tenant): tenant for tenant in self._known.tenants}
        homes = [each.name for each in await self._blobs.list(ROOT) if each.is_folder]
        local = await asyncio.to_thread(self._local_packs)
        for home in sorted({*homes, *local}):
            await self._find_packs(home, tenants, local.get(home, {}))
        await asyncio.to_thread(self._load_rows, self._known.rows)
        self.stock.go_on_from(self.stock.index.newest)
        for number in sorted(self.stock.packs):
            await self._read_on(self.stock.packs[number])
        if self._known.is_new:
            for home in homes:
                await self._find_large(home, tenants.get(home) or _tenant_of(home))

    def _local_packs(self) -> dict[str, dict[int, tuple[Path, int]]]:
        """The packs in the folder with their sizes, by the names of their tenants."""
        found: dict[str, dict[int, tuple[Path, int]]] = {}
        for path in sorted((self._folder / _PACKS).glob("*/*")):
            if path.name.isdecimal():
                found.setdefault(path.parent.name, {})[int(path.name)] = (path, path.stat().st_size)
        return found

    async def _find_packs(self, home: str, tenants: dict[str, str], local: dict[int, tuple[Path, int]]) -> None:
        """All packs of one tenant, of which only the name for files is known so far."""
        root = f"{ROOT}/{home}/packs"
        packs = {int(each.name): each.size for each in await self._blobs.list(root) if each.name.isdecimal()}
        for number in sorted({*packs, *local}):
            path, size = local.get(number, (None, packs.get(number, 0)))
            pack = Pack(number, -1, f"{root}/{number:010d}", path, size)
            self.next_number = max(self.next_number, number + 1)
            if home not in tenants:
                said = await asyncio.to_thread(self._whose, pack)
                if said is None or safe_name(said) != home:
                    continue
                tenants[home] = said
            shelf = self.stock.shelf(tenants[home])
            assert pack.name == blob_name_of_pack(shelf.tenant, number), "one name for a pack"
            pack.shelf = shelf.number
            self.stock.add_pack(pack)

    def _whose(self, pack: Pack) -> str | None:
        found = read_head(read_pack(pack, self._blobs, self._loop))
        return None if found is None else found[0]

    def _load_rows(self, rows: list[Row]) -> None:
        """What the journal knows of, as far as its packs are there."""
        packs = self.stock.packs
        kept: list[Row] = []
        for row in rows:
            size, number = row[3], row[4]
            if number == NO_PACK:
                self.stock.disk_bytes += size
            else:
                pack = packs.get(number)
                if pack is None or row[5] + size > pack.size:
                    self._gone.append(row[0])
                    continue
                pack.live += ITEM_BYTES + size
            kept.append(row)
        self.stock.index.load(kept)

    async def _read_on(self, pack: Pack) -> None:
        """Read a pack from where the journal ends."""
        start = self._known.packs.get(pack.number, 0)
        if start > pack.size:
            # It has lost its end with a loss of power, and nothing more is written to it.
            return
        end = start
        if start < pack.size:
            found, end = await asyncio.to_thread(self._scan, pack, start)
            shelf = self.stock.index.shelves[pack.shelf]
            for key, place, size in found:
                if key not in shelf.slots:
                    self.stock.add_small(shelf, key, size, pack.number, place)
            if pack.path is not None:
                await self._cut(pack, end)
            self.stock.journal.pack(pack.number, end)
        if pack.path is not None and end:
            self._ends[pack.number] = end

    async def _cut(self, pack: Pack, end: int) -> None:
        """Take off the end that was torn; what does not even begin well goes whole."""
        path = pack.path
        assert path is not None, "only what is being written can be torn"
        self.stock.disk_bytes -= pack.size - end
        pack.size = end
        if end:
            await asyncio.to_thread(os.truncate, path, end)
        else:
            del self.stock.packs[pack.number]
            await asyncio.to_thread(path.unlink)

    def _scan(self, pack: Pack, start: int) -> tuple[list[tuple[bytes, int, int]], int]:
        return end_of(scan(read_pack(pack, self._blobs, self._loop), start, pack.size), start)

    async def _find_large(self, home: str, tenant: str) -> None:
        """All large contents of a tenant, by their names."""
        if safe_name(tenant) != home:
            # Whose it is cannot be told from a name that was too long.
            return
        root = f"{ROOT}/{home}/large"
        shelf = self.stock.shelf(tenant)
        for folder in await self._blobs.list(root):
            for each in await self._blobs.list(f"{root}/{folder.name}"):
                key = _key(each.name)
                if key is not None and key not in shelf.slots:
                    self.stock.add_large(shelf, key, each.size)

    async def settle(self, connection: Connection) -> None:
        """Finish what the last process had begun, and have all of it in the journal."""
        journal = self.stock.journal
        for slot in self._gone:
            journal.forget(slot)
        await self._blobs.drop(self._known.leaving)
        for name in self._known.leaving:
            journal.left(name)
        for arriving in self._known.arriving:
            await self._settle(arriving)
        await journal.flush()
        if self._known.is_new:
            await asyncio.to_thread(complete, connection)

    async def _settle(self, arriving: Arriving) -> None:
        """A large content has its name, or has not."""
        shelf = self.stock.index.shelves[arriving.shelf]
        folder, _, last = blob_name_of_large(shelf.tenant, arriving.key).rpartition("/")
        if arriving.key not in shelf.slots:
            for each in await self._blobs.list(folder):
                if (each.name, each.size) == (last, arriving.size):
                    self.stock.add_large(shelf, arriving.key, arriving.size)
        self.stock.journal.arrived(arriving.name)

    def tails(self, pack_bytes_max: int) -> dict[int, Tail]:
        """The packs that are gone on with, by the numbers of their shelves: the newest of each tenant."""
        tails: dict[int, Tail] = {}
        for number, end in sorted(self._ends.items()):
            pack = self.stock.packs[number]
            if pack.path is not None and end < pack_bytes_max:
                tails[pack.shelf] = Tail(number, pack.path, end)
        return tails


def _tenant_of(home: str) -> str:
    """The tenant whose name for files this is, unless that name was too long for files."""
    return "" if home == "%" else unquote(home, errors="surrogateescape")


def _key(name: str) -> bytes | None:
    try:
        key = bytes.fromhex(name)
    except ValueError:
        return None
    return key if len(key) == KEY_BYTES and key.hex() == name else None
