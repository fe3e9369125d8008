"""What pages are made with: the script, the style and the icon, each under a name that changes with its content."""

from hashlib import sha256
from pathlib import Path

from starlette.responses import Response

from rota.core.errors import Refused
from rota.ui.visits import Visit

FOLDER = Path(__file__).parent / "static"
STATIC = "/static"
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
# Whoever has one of that name has the right one for ever.
_KEPT = {"Cache-Control": "public, max-age=31536000, immutable"}


class Assets:
    """The files in the folder, read once."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._urls: dict[str, str] = {}
        self._by_name: dict[str, tuple[bytes, str]] = {}
        for path in sorted(folder.iterdir()):
            if path.suffix in _TYPES:
                content = path.read_bytes()
                name = f"{path.stem}.{sha256(content).hexdigest()[:12]}{path.suffix}"
                self._urls[path.name] = f"{STATIC}/{name}"
                self._by_name[name] = (content, _TYPES[path.suffix])

    def url(self, name: str) -> str:
        """Where a file is served."""
        return self._urls[name]

    async def serve(self, visit: Visit) -> Response:
        """One of them."""
        found = self._by_name.get(visit.path["file"])
        if found is None:
            # A page from before an upgrade may still ask for what was there then.
            raise Refused("http.path", f"there is no {visit.path['file'][:200]!r} here", "Reload the page.")
        content, sort = found
        return Response(content, headers=_KEPT, media_type=sort)
