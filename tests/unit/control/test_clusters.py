"""A worker of another cluster: it is refused before it is registered, granted anything, or believed anything."""

import pytest

from rota.control.events import CloseStream, FrameCame, Send, Tell
from rota.core.cluster import cluster_id
from rota.core.ids import make_fence
from rota.core.states import TaskState
from rota.stores.memory import MemoryDisk
from tests.unit.control.stage import TENANT, Speaker, Stage

OWN, OTHER = cluster_id("own"), cluster_id("other")
OVER = 5


def leading() -> Stage:
    stage = Stage(disk=MemoryDisk("own"))
    stage.rest()
    return stage


@pytest.mark.parametrize("named", [OWN, ""])
def test_the_welcome_names_the_cluster_and_later_frames_do_not(named: str):
    stage = leading()
    worker = Speaker(stage, cluster=named).greet()
    (welcome,) = worker.hear()
    assert (welcome.cluster, welcome.refused) == (OWN, "")
    worker.present()
    assert {frame.cluster for frame in stage.frames[1][1:]} == {""}


@pytest.mark.parametrize("epoch", [0, 1, OVER])
def test_a_worker_of_another_cluster_is_refused_whatever_its_epoch(epoch: int):
    stage = leading()
    stage.submit("r")
    Speaker(stage, epoch=epoch, cluster=OTHER).greet()
    stage.advance(1_000)
    sent = [intent for intent in stage.log if isinstance(intent, Send | CloseStream)]
    assert [type(intent) for intent in sent] == [Send, CloseStream]
    (frame,) = stage.frames[1]
    assert (frame.code, frame.session, frame.cluster, frame.start) == ("worker.cluster", "", "", ())
    assert OTHER in frame.refused
    assert OWN in frame.refused
    assert stage.states() == [TaskState.QUEUED]
    assert stage.loop.state.workers == {}
    told = [intent for intent in stage.log if isinstance(intent, Tell) and intent.what == "worker.refused"]
    assert [dict(tell.about) for tell in told] == [
        {"cause": "worker.cluster", "worker": "w", "named": OTHER, "cluster": OWN}
    ]
    # The epoch of another cluster says nothing about this one's leader.
    assert [intent for intent in stage.log if isinstance(intent, Tell) and intent.what == "epoch.overtaken"] == []


def test_what_a_refused_worker_reports_and_lists_counts_for_nothing():
    """Two clusters may have granted the same fence to workers of the same name."""
    stage = leading()
    own = Speaker(stage, cluster=OWN).join()
    stage.submit("r")
    offer = own.take()
    own.start(offer)
    stranger = Speaker(stage, stream=2, cluster=OTHER, incarnation="i2")
    stranger.held = dict(own.held)
    stranger.greet()
    stage.give(FrameCame(2, stranger.frame(complete=True, held=(make_fence(1, 1),))))
    stage.rest()
    assert [frame.code for frame in stage.frames[2]] == ["worker.cluster"]
    assert stage.states() == [TaskState.RUNNING]
    assert stage.loop.state.workers[TENANT, "w"].row.incarnation == "i1"


def test_a_refused_greeting_does_not_disturb_the_session_on_its_stream():
    stage = leading()
    worker = Speaker(stage, cluster=OWN).join()
    Speaker(stage, cluster=OTHER).greet()
    stage.submit("r")
    assert worker.take().fence in worker.held
