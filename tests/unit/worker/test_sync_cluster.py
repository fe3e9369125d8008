"""The worker's side of the cluster id: which cluster it joins, and that it accepts nothing from another one."""

import pytest

from rota.core.bounds import TimeLimits
from rota.core.cluster import cluster_id
from rota.core.model import Capacity
from rota.worker.sync import (
    Connect,
    Disconnect,
    Disconnected,
    Send,
    StartAttempt,
    StopAttempt,
    SyncMachine,
)
from tests.unit.worker.test_sync import BEAT, LIMITS, SELF_STOP, Bench, offer

OWN, OTHER = cluster_id("own"), cluster_id("other")
NONE = ""
LATER = 7


class ClusterBench(Bench):
    """A worker that expects a cluster, or none."""

    def __init__(self, expected: str, limits: TimeLimits = LIMITS) -> None:
        super().__init__()
        self.machine = SyncMachine("t", "w", "i1", Capacity(slots=4), limits, expected)


@pytest.mark.parametrize("expected", [OWN, NONE])
def test_the_greeting_names_the_cluster_and_later_frames_do_not(expected: str):
    bench = ClusterBench(expected)
    bench.connect()
    bench.welcome(cluster=OWN)
    bench.hear()
    bench.advance(2 * BEAT)
    assert [frame.cluster for frame in bench.said[:1]] == [expected]
    assert {frame.cluster for frame in bench.said[1:]} == {NONE}


@pytest.mark.parametrize(
    ("expected", "found", "is_accepted"),
    [
        (OWN, OWN, True),
        (OWN, OTHER, False),
        (OWN, NONE, False),
        (NONE, OTHER, True),
        (NONE, NONE, True),
    ],
)
def test_which_coordinator_a_worker_accepts(expected: str, found: str, is_accepted: bool):
    bench = ClusterBench(expected)
    bench.connect()
    intents = bench.welcome(cluster=found, epoch=LATER, start=(offer(1),))
    machine = bench.machine
    assert bool(machine.session) == is_accepted
    assert (machine.epoch == LATER) == is_accepted, "an epoch of another cluster is not remembered"
    assert any(isinstance(intent, Disconnect) for intent in intents) != is_accepted
    assert machine.refused.startswith("worker.cluster") != is_accepted
    if not is_accepted:
        assert not any(isinstance(intent, StartAttempt) for intent in intents)
        assert machine.cluster == expected


def test_a_worker_that_has_joined_a_cluster_accepts_no_other_one_when_it_dials_again():
    bench = ClusterBench(NONE)
    bench.connect()
    bench.welcome(cluster=OWN)
    bench.give(Disconnected())
    bench.advance(BEAT)
    bench.connect()
    assert bench.said[-1].cluster == OWN
    assert any(isinstance(intent, Disconnect) for intent in bench.welcome("9.9", cluster=OTHER))
    assert bench.machine.session == ""


def at_work() -> ClusterBench:
    """A worker that runs one attempt of its own cluster, in epoch 5."""
    bench = ClusterBench(OWN)
    bench.connect()
    bench.welcome(cluster=OWN, epoch=5)
    bench.hear(epoch=5)
    bench.hear(epoch=5, start=(offer(1, epoch=5),))
    assert list(bench.machine.held) == [offer(1, epoch=5).fence]
    return bench


@pytest.mark.parametrize("epoch", [1, 5, 9])
@pytest.mark.parametrize("is_refused", [True, False])
def test_when_another_cluster_takes_over_the_port_only_the_lease_stops_the_work(epoch: int, is_refused: bool):
    """Whether that coordinator refuses the worker or would welcome it, and whatever its epoch."""
    bench = at_work()
    held = list(bench.machine.held)
    renewed_at = bench.machine.renewed_at
    bench.give(Disconnected())
    stopped = []
    while bench.now < renewed_at + SELF_STOP + BEAT:
        intents = bench.advance(BEAT // 2)
        stopped += [(intent.fence, bench.now) for intent in intents if isinstance(intent, StopAttempt)]
        assert not any(isinstance(intent, StartAttempt) for intent in intents)
        if any(isinstance(intent, Connect) for intent in intents):
            bench.connect()
            if is_refused:
                said = {"refused": f"worker.cluster: {OTHER}", "code": "worker.cluster"}
            else:
                said = {"cluster": OTHER, "start": (offer(2, epoch=epoch),), "stop": tuple(held)}
            intents = bench.welcome("9.9", epoch=epoch, **said)
            assert not any(isinstance(intent, StopAttempt | StartAttempt) for intent in intents)
            bench.give(Disconnected())
    assert [fence for fence, _ in stopped] == held
    assert stopped[0][1] >= renewed_at + SELF_STOP, "not before its time"
    assert bench.machine.renewed_at == renewed_at, "another cluster renews nothing"
    assert (bench.machine.epoch, bench.machine.cluster) == (5, OWN)
    assert "worker.cluster" in bench.machine.refused
    assert not any(frame.number for frame in bench.said[-5:]), "nothing but greetings was said to it"


def test_the_work_goes_on_when_the_own_coordinator_is_back_in_time():
    bench = at_work()
    bench.give(Disconnected())
    bench.advance(BEAT)
    bench.connect()
    bench.welcome("9.9", cluster=OTHER, epoch=9)
    bench.advance(BEAT)
    bench.connect()
    intents = bench.welcome("5.2", cluster=OWN, epoch=5)
    assert bench.machine.refused == ""
    assert [intent.frame.held for intent in intents if isinstance(intent, Send)] == [tuple(bench.machine.held)]
    assert len(bench.machine.held) == 1
