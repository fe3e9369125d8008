"""A thousand sessions and ten thousand items, with sessions that die, stall, lie and return."""

import pytest

from rota.sim.faults import FAST, Mix
from rota.sim.scene import Scene


def crowd(sessions: int, bursts: int) -> Mix:
    """Weather in which hardly anything stays as it is, and much to do."""
    return Mix(
        loss=20,
        duplication=20,
        delay_ms=5,
        crash=40,
        pause=20,
        vanish=10,
        lying_agents=50,
        babble=20,
        limits=FAST,
        coordinators=2,
        push_workers=1,
        pull_workers=sessions,
        runs=4,
        items=bursts,
        storm_ms=60_000,
    )


def test_a_small_crowd_gets_everything_done() -> None:
    result = Scene(7, crowd(30, 20)).run()
    assert result.broken == ""
    assert result.happened["lying_agents"] and result.happened["woken"]


@pytest.mark.long
def test_a_thousand_sessions_get_ten_thousand_items_done() -> None:
    # A burst has five items on average that are accepted: some wait for others that are not there yet.
    result = Scene(7, crowd(1_000, 2_000), check_every=20_000).run()
    assert result.broken == ""
    assert result.runs > 9_000
