"""A PostgreSQL that takes seconds to answer: as long as proofs come within their term, the leader leads on."""

from pathlib import Path

import pytest

from tests.rig.backing import Backing
from tests.rig.fleet import open_fleet
from tests.rig.history import Report, judge
from tests.rig.ledger import ledger_at
from tests.rig.load import Load, definitions
from tests.servers.proxy import Proxy

# Long enough for a whole term of 5 s.
LEASE_S = 30
SLOW_S = 10


def slowed(tmp_path: Path, backing: Backing, answer_s: float, servers: int) -> Report:
    """Work under load with a store that takes so long for an answer, for ten seconds; what there is to say of it."""
    with (
        Proxy(backing.target) as proxy,
        open_fleet(
            tmp_path,
            servers=servers,
            lease_s=LEASE_S,
            definitions=definitions(),
            server_settings=lambda _: backing.settings(proxy),
        ) as fleet,
    ):
        load = Load(fleet.url, str(tmp_path), seed=12, clients=2).start()
        try:
            load.until_acknowledged(5)
            fleet.disturb(f"the store takes {answer_s:g} s to answer")
            proxy.slow(answer_s * 500)
            load.giving_up.wait(SLOW_S)
            proxy.heal()
            fleet.until_leader()
            load.until_acknowledged(5)
            load.finish()
            report = judge(load.history(ledger_at(fleet.url), fleet.disturbances)).must_hold()
            assert fleet.troubles() == []
        finally:
            load.close()
    return report


@pytest.mark.long
def test_answers_that_take_two_seconds_cost_no_reign(tmp_path: Path, postgres: Backing) -> None:
    assert slowed(tmp_path, postgres, 2.0, servers=1).epochs == 1


@pytest.mark.long
def test_answers_that_take_nearly_a_term_cost_time_only(tmp_path: Path, postgres: Backing) -> None:
    slowed(tmp_path, postgres, 4.0, servers=2)
