"""Load on a service of real processes, whose coordinator is killed again and again: the checker finds nothing wrong."""

from pathlib import Path
from random import Random

import pytest

from rota.core.graph import graph_digest
from tests.rig.fleet import open_fleet
from tests.rig.history import judge
from tests.rig.ledger import ledger_at
from tests.rig.load import Load, definitions, job

pytestmark = pytest.mark.full

KILLS = 3
# Time enough to start a coordinator on a busy machine before workers stop their work.
LEASE_S = 20


def test_the_same_seed_asks_for_the_same():
    def asked(seed: str) -> list[str]:
        chance = Random(seed)
        return [graph_digest(job(chance, "somewhere").graph) for _ in range(20)]

    assert asked("one") == asked("one")
    assert asked("one") != asked("two")


def test_nothing_is_lost_or_doubled_when_the_coordinator_is_killed_under_load(tmp_path: Path):
    with open_fleet(tmp_path, lease_s=LEASE_S, definitions=definitions()) as fleet:
        load = Load(fleet.url, str(tmp_path), seed=1, clients=3).start()
        try:
            for _ in range(KILLS):
                load.until_acknowledged(15)
                fleet.until_leader().kill()
                fleet.restart_dead()
            load.until_acknowledged(10)
            load.finish()
            report = judge(load.history(ledger_at(fleet.url), fleet.kills())).must_hold()
        finally:
            load.close()
        assert fleet.troubles() == []
    assert report.runs >= 15 * KILLS // 2
    assert report.epochs >= KILLS
    assert report.attempts >= report.outcomes - report.runs, "the work was seen"
    assert len(report.gaps) == KILLS
    assert None not in [gap.ms for gap in report.gaps]
    assert report.rerun == 0, "a coordinator that comes back in time interrupts nothing"
