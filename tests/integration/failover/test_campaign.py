"""Minutes of leaders killed and stopped every few seconds, under load of chains, fan-outs and retries."""

import threading
import time
from pathlib import Path
from random import Random

import pytest

from tests.rig.backing import Backing
from tests.rig.fleet import Fleet, Server, open_fleet
from tests.rig.history import judge
from tests.rig.ledger import ledger_at
from tests.rig.load import Load, definitions

CAMPAIGN_S = 180
LEASE_S = 20


def disturb(fleet: Fleet, chance: Random, leader: Server) -> None:
    """Something happens to whoever leads; sooner or later it is back."""
    match chance.randrange(4):
        case 0 | 1:
            leader.kill()
        case 2:
            leader.terminate()
            leader.ended()
        case _:
            leader.freeze()
            fleet.until_leader(other_than=leader)
            leader.thaw()
            return
    fleet.until_leader(other_than=leader)
    fleet.restart_dead()


@pytest.mark.long
def test_minutes_of_leaders_that_come_and_go(tmp_path: Path, backing: Backing) -> None:
    chance, pause = Random(backing.name), threading.Event()
    with open_fleet(
        tmp_path,
        servers=3,
        workers=2,
        lease_s=LEASE_S,
        definitions=definitions(),
        server_settings=lambda _: backing.settings(),
    ) as fleet:
        load = Load(fleet.url, str(tmp_path), seed=20, clients=3).start()
        try:
            give_up_at = time.monotonic() + CAMPAIGN_S
            while time.monotonic() < give_up_at:
                load.until_acknowledged(3)
                pause.wait(chance.uniform(0, 4))
                disturb(fleet, chance, fleet.until_leader())
            load.finish(300)
            report = judge(load.history(ledger_at(fleet.url), fleet.kills())).must_hold()
        finally:
            load.close()
        assert fleet.troubles() == []
    assert report.epochs >= 10
    assert report.rerun <= report.attempts // 50, "now and then a beat is missed; work is not restarted wholesale"
