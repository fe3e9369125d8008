"""A trial: a fleet under load, disturbed by a test, and judged by the history checker in the end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.rig.backing import Backing
from tests.rig.fleet import Fleet, open_fleet
from tests.rig.history import Report, judge
from tests.rig.ledger import ledger_at
from tests.rig.load import Load, definitions
from tests.servers.proxy import Proxy

# A term of 3.3 s; and one of 5 s, as by default.
LEASE_S = 20
LEASE_BY_DEFAULT_S = 30


def directly(number: int) -> None:
    """No proxy stands before the store of any server."""


class Trial:
    """The fleet, the load on it, and what came of it. Use `on_trial`."""

    def __init__(self, fleet: Fleet, load: Load) -> None:
        self.fleet = fleet
        self.load = load

    def judged(self, patience_s: float = 120, *, clocks_agree: bool = True) -> Report:
        """Let everything end that was begun. Raises if the histories disagree, or a process met an error of its own."""
        self.load.finish(patience_s)
        history = self.load.history(ledger_at(self.fleet.url), self.fleet.disturbances, clocks_agree=clocks_agree)
        report = judge(history).must_hold()
        assert self.fleet.troubles() == []
        return report


@contextmanager
def on_trial(
    folder: Path,
    backing: Backing,
    *,
    seed: int,
    clients: int = 2,
    servers: int = 2,
    lease_s: int = LEASE_S,
    proxy_of: Callable[[int], Proxy | None] = directly,
) -> Iterator[Trial]:
    """A fleet on a store of its own, and load on it from now on; `proxy_of(n)` stands before the store of server n."""
    with open_fleet(
        folder,
        servers=servers,
        lease_s=lease_s,
        definitions=definitions(),
        server_settings=lambda number: backing.settings(proxy_of(number)),
    ) as fleet:
        load = Load(fleet.url, str(folder), seed=seed, clients=clients).start()
        try:
            yield Trial(fleet, load)
        finally:
            load.close()
