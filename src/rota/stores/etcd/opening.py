"""The first look at a store: make it if nothing is there, and refuse what is not ours to use."""

import secrets

from msgspec import Struct

from rota.core.errors import Refused
from rota.core.ids import Epoch
from rota.ports import Blobs
from rota.stores.blobs import MARK, find_mark
from rota.stores.etcd import ops
from rota.stores.etcd.client import Client
from rota.stores.etcd.failures import missing
from rota.stores.etcd.keys import SNAPSHOTS, Keys, after, entry_of, epoch_of

# What this code writes. It grows when older code could misunderstand what is written, and not for new fields: 2 has
# workflows, and runs that leave history, which 1 would show there and lose among the living; 3 has pauses, and
# runs that wait for others or for a person, which 2 would start.
FORMAT = 3
_FORMAT = b"rota-etcd "
FORMAT_VALUE = _FORMAT + b"%d" % FORMAT


class Found(Struct, frozen=True):
    """What stands at the prefix."""

    identity: str
    epoch: Epoch
    is_marked: bool


async def open_store(client: Client, keys: Keys, blobs: Blobs) -> str:
    """The name of the store, which is made if nothing is there. Refuses what cannot be used."""
    found = await look(client, keys)
    if found is None:
        mark = await find_mark(blobs)
        if not mark:
            await _found(client, keys)
        found = await look(client, keys)
        if found is None and mark:
            raise _begun_elsewhere(client.address.shown, mark)
    if found is None:
        raise missing(client.address.shown)
    await _check_mark(client, keys, blobs, found)
    await _check_age(client, keys, blobs)
    return found.identity


async def look(client: Client, keys: Keys) -> Found | None:
    """What is at the prefix; None if there is nothing."""
    state = await client.read_all(keys.state)
    form = state.get(keys.format)
    if form is None:
        others = await client.read(keys.prefix, after(keys.prefix), limit=1, keys_only=True)
        if not others.kvs:
            return None
        if (await client.read(keys.format)).kvs:
            # Somebody made the store between the two looks.
            return await look(client, keys)
        example = others.kvs[0].key.decode(errors="replace")
        text = f"there are keys at {client.address.shown} that are not Rota's, such as {example!r}"
        hint = "Choose another prefix: etcd://host/prefix."
        raise Refused("store.foreign", text, hint, path="server.store")
    check_format(form.value, client.address.shown)
    if keys.identity not in state or keys.epoch not in state:
        raise missing(client.address.shown)
    return Found(state[keys.identity].value.decode(), Epoch(int(state[keys.epoch].value)), keys.marked in state)


def check_format(value: bytes, shown: str) -> None:
    """Refuse what was written by something else, or by a version that knows more."""
    said = value.removeprefix(_FORMAT)
    if not value.startswith(_FORMAT) or not said.isdigit():
        text = f"what is at {shown} was not written by Rota"
        raise Refused("store.foreign", text, "Choose another prefix: etcd://host/prefix.", path="server.store")
    if int(said) > FORMAT:
        text = (
            f"what is at {shown} was written by a newer version of Rota (format {int(said)}; this one knows {FORMAT})"
        )
        raise Refused("store.newer", text, "Upgrade this coordinator.")


async def _found(client: Client, keys: Keys) -> None:
    """Make an empty store, unless somebody else just did."""
    puts = [
        ops.put(keys.format, FORMAT_VALUE),
        ops.put(keys.identity, secrets.token_hex(16).encode()),
        ops.put(keys.epoch, b"0"),
        ops.put(keys.head, b"0"),
        ops.put(keys.checkpoint, b""),
    ]
    await client.repeat(ops.txn([ops.is_absent(keys.format)], puts))


def _begun_elsewhere(shown: str, mark: str) -> Refused:
    """Never begin anew where a store has been: its fences would be issued again."""
    text = f"there is nothing at {shown}, but the blobs are those of a store that was ({mark})"
    hint = (
        "Is it the right etcd and the right prefix? Restore it from its backup; or, to begin anew, use another place"
        " for blobs."
    )
    return Refused("store.missing", text, hint)


async def _check_mark(client: Client, keys: Keys, blobs: Blobs, found: Found) -> None:
    """The blobs must be this store's: history and snapshots are nowhere else."""
    mark = await find_mark(blobs)
    if not mark and not found.is_marked:
        await blobs.put(MARK, found.identity.encode())
        mark = await find_mark(blobs)
    if mark == found.identity and not found.is_marked:
        await client.repeat(ops.txn(then=[ops.put(keys.marked, b"yes")]))
    if mark != found.identity:
        whose = f"those of another store ({mark})" if mark else "not those of this store"
        text = f"the blobs are {whose}; {client.address.shown} is {found.identity}"
        hint = "Name the place for blobs that this store has always had: [server] blobs."
        raise Refused("blobs.elsewhere", text, hint, path="server.blobs")


async def _check_age(client: Client, keys: Keys, blobs: Blobs) -> None:
    """An etcd that is behind its blobs would issue fences again, and remove what it does not know of."""
    # The blobs first: what is read of etcd afterwards can only be further on.
    names = [each.name for each in await blobs.list(SNAPSHOTS)]
    newest = max((epoch_of(name) for name in names), default=0)
    number = max((entry_of(name) for name in names), default=0)
    state = await client.read_all(keys.state)
    if keys.epoch not in state or keys.head not in state:
        raise missing(client.address.shown)
    epoch, head = int(state[keys.epoch].value), int(state[keys.head].value)
    text = ""
    if newest > epoch:
        text = f"{client.address.shown} is at epoch {epoch}, and the blobs at {newest}"
    elif number > head:
        # The epoch does not tell when it was raised by hand, as it is after a restore.
        text = f"{client.address.shown} has {head} commits, and the blobs a checkpoint of {number}"
    if text:
        hint = "Stop every coordinator, and restore etcd and the blobs from backups of the same time."
        raise Refused("store.missing", f"{text}: etcd was set back", hint)
