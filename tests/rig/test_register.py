"""Rota as a register, on a service of real processes whose coordinator is killed: what clients saw has an order."""

from pathlib import Path

import pytest

from tests.rig.fleet import open_fleet
from tests.rig.register import RegisterLoad

pytestmark = pytest.mark.full

KILLS = 2


def test_what_clients_wrote_and_read_across_restarts_has_an_order(tmp_path: Path):
    with open_fleet(tmp_path, workers=0) as fleet:
        load = RegisterLoad([fleet.url], seed=1).start()
        try:
            for _ in range(KILLS):
                load.until_answered(100)
                fleet.until_leader().kill()
                fleet.restart_dead()
            load.until_answered(100)
        finally:
            ops = load.stop()
        verdicts = load.verdicts()
        assert [str(verdict) for verdict in verdicts.values() if not verdict.is_linearizable] == []
        assert set(verdicts) == set(load.names)
        assert len(ops) > 100 * KILLS
        gaps = load.gaps(fleet.kills())
    assert len(gaps) == KILLS
    assert all(gap.ms is not None for gap in gaps)
    assert load.notebook.codes(), "clients were told of it"
