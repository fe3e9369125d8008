"""Folders of streams as they are written in settings: a path, or `TENANT=PATH` for those of another tenant."""

import os
from collections.abc import Sequence
from pathlib import Path

from rota.core.errors import Refused
from rota.core.graph import check_id
from rota.core.ids import DEFAULT_TENANT


def folders_by_tenant(words: Sequence[str], path: str = "streams.folders") -> dict[str, tuple[Path, ...]]:
    """The folders of each tenant; what is none is refused, by the setting at `path`."""
    found: dict[str, tuple[Path, ...]] = {}
    for word in words:
        tenant, folder = _split(word, path)
        if not folder or "://" in folder:
            hint = "Name folders of this machine, or ones that it has mounted, by their paths."
            raise Refused("config.value", f"{word!r} is not a folder of streams", hint, path=path)
        if any(Path(folder) in known for known in found.values()):
            raise Refused("config.value", f"{folder!r} is named twice", path=path)
        found[tenant] = (*found.get(tenant, ()), Path(folder))
    return found


def _split(word: str, path: str) -> tuple[str, str]:
    tenant, is_named, folder = word.partition("=")
    # A path may have the sign, too, behind its first folder.
    if not is_named or os.sep in tenant:
        return DEFAULT_TENANT, word
    check_id(tenant, path)
    return tenant, folder
