"""Minutes of leaders killed and stopped every few seconds, under load of chains, fan-outs and retries."""

import threading
import time
from pathlib import Path
from random import Random

import pytest

from tests.rig.backing import Backing
from tests.rig.fleet import Fleet, Server
from tests.rig.trial import on_trial

pytestmark = pytest.mark.full

CAMPAIGN_S = 180


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
    with on_trial(tmp_path, backing, seed=20, clients=3, servers=3) as trial:
        give_up_at = time.monotonic() + CAMPAIGN_S
        while time.monotonic() < give_up_at:
            trial.load.until_acknowledged(3)
            pause.wait(chance.uniform(0, 4))
            disturb(trial.fleet, chance, trial.fleet.until_leader())
        report = trial.judged(300)
    assert report.epochs >= 10
    assert report.rerun <= report.attempts // 50, "now and then a beat is missed; work is not restarted wholesale"
