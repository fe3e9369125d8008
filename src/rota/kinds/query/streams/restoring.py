"""Whether a stream can go on from a round, and what its sources have to be told for that. It is asked before anybody is
deposed, and refuses what would give rows twice, or lose some.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rota.core.errors import Refused
from rota.kinds.query.streams.manifests import Manifest
from rota.kinds.query.streams.pipeline import SourceNode
from rota.kinds.query.streams.savepoints import remembered_in
from rota.wire.capabilities import Source

Sources = Mapping[str, SourceNode]


def check_definition(manifest: Manifest, definition: str, folder: Path, sources: Sources) -> None:
    """Refuse a round of a stream that was put together otherwise."""
    if manifest.definition != definition:
        text = f"the stream in {folder} was put together otherwise"
        raise Refused("stream.definition", text, "Register what was registered before, or use another folder.")
    endless = [name for name, node in sources.items() if Source.BOUNDED not in node.source.can]
    if manifest.is_final and endless:
        text = f"the stream in {folder} is over: no more rows could come when {endless[0]} was bounded"
        hint = "Register it as bounded, restore an older round, or use another folder."
        raise Refused("stream.definition", text, hint)


def recall(manifest: Manifest, path: Path, identity: str, sources: Sources) -> None:
    """Have sources number what they read as those did that a round of another stream was read from."""
    memories, is_ours = remembered_in(path), manifest.stream in ("", identity)
    for name, node in sources.items():
        if name in memories:
            # Also one of its own: its list of files may be gone.
            node.source.recall(memories[name])
        elif node.source.remembered() and not is_ours:
            text = f"{name} ({node.source.called}) numbers what it reads in its own folder, and this is of another"
            hint = "Restore a savepoint, which has these numbers; or move the stream with its whole folder."
            raise Refused("stream.source", text, hint, path="restore")


def shared_rounds(saved: Manifest, last: Manifest, folders: Sequence[str]) -> int:
    """Up to which round sinks have what led to a round that is restored instead of the last one.

    `folders` are sinks that would lack rows for good: those of a way that was given up when an older round was
    restored. What they have of the way since then would be read, and written, once more.
    """
    shared = saved.shared_with(last)
    if shared < saved.round and folders:
        text = (
            f"{folders[0]} has other rows than those that led to round {saved.round}; up to {shared} they are the same"
        )
        hint = "Restore one of these, or restore this one in another folder, with another sink."
        raise Refused("stream.sink", text, hint, path="restore")
    return shared
