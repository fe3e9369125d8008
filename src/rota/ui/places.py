"""The places that the bar of every page leads to, and which of them there are.

A place is one line here. It is shown once a page is registered at its path, so that nothing leads to what is not there.
"""

from collections.abc import Iterable

from msgspec import Struct

from rota.core.history import ListAudits
from rota.ui.visits import Page


class Place(Struct, frozen=True):
    """A page that is led to from everywhere. `key`: what is pressed after `g` to go there.

    `needs`: what has to be allowed to whoever is led there.
    """

    title: str
    path: str
    key: str
    needs: type | None = None

    def has(self, url: str) -> bool:
        """Whether what is shown at this URL belongs there."""
        path = url.partition("?")[0]
        return path == self.path or (self.path != "/" and path.startswith(f"{self.path}/"))


PLACES = (
    Place("Home", "/", "h"),
    Place("Runs", "/runs", "r"),
    Place("Workflows", "/workflows", "w"),
    Place("Queries", "/queries", "q"),
    Place("Streams", "/streams", "s"),
    Place("Builds", "/builds", "b"),
    Place("Agents", "/work", "a"),
    Place("Workers", "/workers", "k"),
    Place("Queues", "/queues", "u"),
    Place("Audit", "/audit", "l", ListAudits),
)


def shown(pages: Iterable[Page]) -> tuple[Place, ...]:
    """The places there are, in their order."""
    paths = {page.path for page in pages if page.method == "GET"}
    return tuple(place for place in PLACES if place.path in paths)
