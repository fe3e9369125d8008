"""A worker that is killed, or frozen past its lease: its work goes to another, and its late word changes nothing."""

import asyncio
import time
from pathlib import Path

import pytest

import rota
from rota.core.commands import Outcome, Report
from rota.core.model import Capacity
from rota.core.questions import TaskView
from rota.wire.frames import CoordinatorFrame, WorkerFrame
from rota.wire.routes import Route
from rota.worker.remote.driver import dial_to
from tests.integration.deadlines import is_running, until
from tests.integration.service import tasks
from tests.integration.service.stage import (
    SHORT_LEASE_S,
    Process,
    Stage,
    open_stage,
    until_present,
    until_task,
    worker_named,
)
from tests.unit.client.ways import place_at

pytestmark = pytest.mark.full

# How much later than it should something may be on a machine that is busy with other tests.
SLACK_MS = 3_000


def begun_again(stage: Stage, client: rota.Rota) -> TaskView:
    """The task, once another worker runs it."""
    until(lambda: len(tasks.lines(stage.folder, tasks.BEGAN)) == 2, "the task to begin again")
    return until_task(client, "one", "held", "running")


def begin(stage: Stage) -> tuple[rota.Rota, TaskView, Process, Process]:
    """A coordinator and two workers, one of which runs the task: a client, the task, who has it, and the other."""
    stage.start_server()
    workers = {name: stage.start_worker(name, slots=1) for name in ("left", "right")}
    client = stage.client()
    until_present(client, *workers)
    client.submit(tasks.held, {"folder": str(stage.folder)}, run="one")
    until(lambda: tasks.lines(stage.folder, tasks.BEGAN), "the task to begin")
    view = until_task(client, "one", "held", "running")
    holder = workers.pop(view.worker)
    return client, view, holder, *workers.values()


def test_what_a_killed_worker_ran_is_granted_to_another_within_its_lease_and_costs_no_retry(tmp_path: Path):
    with open_stage(tmp_path, lease_s=SHORT_LEASE_S) as stage:
        client, first, holder, other = begin(stage)
        holder.kill()
        killed_at = time.time_ns() // 1_000_000
        second = begun_again(stage, client)
        assert second.worker == other.name
        assert second.fence > first.fence
        assert (first.attempt, second.attempt, second.interruptions) == (1, 1, 1)
        assert second.assigned_at - killed_at <= stage.lease_ms + 1_000 + SLACK_MS
        assert sum(stage.metric("rota_interruptions_total").values()) == 1
        (tmp_path / "go").touch()
        assert client.run("one").result(timeout_s=30) == second.fence
        assert [line.fence for line in tasks.lines(tmp_path, tasks.DONE)] == [second.fence]


def test_a_worker_that_was_killed_and_started_again_need_not_wait_for_its_own_lease(tmp_path: Path):
    with open_stage(tmp_path, lease_s=600) as stage:
        stage.start_server()
        worker = stage.start_worker("only", slots=1)
        client = stage.client()
        client.submit(tasks.held, {"folder": str(tmp_path)}, run="one")
        until_task(client, "one", "held", "running")
        until(lambda: tasks.lines(tmp_path, tasks.BEGAN), "the task to begin")
        worker.kill()
        stage.start_worker("only", slots=1)
        again = begun_again(stage, client)
        assert (again.attempt, again.interruptions) == (1, 1)
        assert any("its worker restarted" in line for line in client.run("one").story())


def test_a_late_report_in_the_name_of_a_killed_worker_is_refused_and_counted(tmp_path: Path):
    with open_stage(tmp_path, lease_s=SHORT_LEASE_S) as stage:
        client, first, holder, _ = begin(stage)
        known = worker_named(client, holder.name)
        assert known is not None
        holder.kill()
        running = begun_again(stage, client)
        report = Report(
            tenant="default",
            run="one",
            task=first.idx,
            worker_tenant="default",
            worker=holder.name,
            incarnation=known.incarnation,
            fence=first.fence,
            outcome=Outcome.SUCCESS,
        )
        cluster = (holder.folder / "cluster").read_text().strip()
        stage.call(say_late(stage, report, cluster))
        assert stage.metric("rota_stale_reports_total") == {'cause="old_fence"': 1}
        assert client.run("one").tasks() == [running]
        told = [event for event in client.run("one").story() if "ReportRefused" in event]
        assert len(told) == 1
        (tmp_path / "go").touch()
        assert client.run("one").result(timeout_s=30) == running.fence


async def say_late(stage: Stage, report: Report, cluster: str) -> None:
    """Greet as the dead worker in its own incarnation, and report; returns when that is durable."""
    heard: asyncio.Queue[CoordinatorFrame | None] = asyncio.Queue()
    link = await dial_to(Route(place_at(stage.url)), lambda: stage.token, pytest.fail)(heard.put_nowait)
    whom = {"tenant": "default", "worker": report.worker, "incarnation": report.incarnation}
    link.send(WorkerFrame(**whom, epoch=0, number=0, capacity=Capacity(slots=1, kinds=("none",)), cluster=cluster))
    welcome = await asyncio.wait_for(heard.get(), 20)
    assert welcome is not None
    assert not welcome.refused
    words = {"epoch": welcome.epoch, "session": welcome.session, "ack": welcome.number}
    link.send(WorkerFrame(**whom, **words, number=1, complete=True, reports=(report,)))
    while True:
        frame = await asyncio.wait_for(heard.get(), 20)
        assert frame is not None, "the coordinator hung up"
        if frame.ack >= 1:
            break
    link.close()


def test_a_worker_that_was_frozen_past_its_lease_kills_its_own_work_when_it_wakes(tmp_path: Path):
    with open_stage(tmp_path, lease_s=SHORT_LEASE_S) as stage:
        client, _, holder, other = begin(stage)
        (began,) = tasks.lines(tmp_path, tasks.BEGAN)
        holder.freeze()
        second = begun_again(stage, client)
        assert is_running(began.pid), "its worker is frozen, and nobody else can end it"
        holder.thaw()
        until(lambda: not is_running(began.pid), "the worker that woke to kill its own work")
        until_present(client, holder.name)
        assert (second.worker, second.attempt, second.interruptions) == (other.name, 1, 1)
        (tmp_path / "go").touch()
        assert client.run("one").result(timeout_s=30) == second.fence
        assert [line.fence for line in tasks.lines(tmp_path, tasks.DONE)] == [second.fence]
        assert accepted(client) == 1
        known = worker_named(client, holder.name)
        assert known is not None
        assert known.leases == 0


def test_what_was_finished_while_its_worker_was_frozen_past_its_lease_does_not_count(tmp_path: Path):
    with open_stage(tmp_path, lease_s=SHORT_LEASE_S) as stage:
        client, first, holder, other = begin(stage)
        holder.freeze()
        running = begun_again(stage, client)
        (tmp_path / f"go.{first.fence}").touch()
        until(lambda: tasks.lines(tmp_path, tasks.DONE), "the first attempt to be done, with nobody to hear of it")
        holder.thaw()
        until_present(client, holder.name)
        assert running.worker == other.name
        assert client.run("one").tasks() == [running]
        (tmp_path / "go").touch()
        assert client.run("one").result(timeout_s=30) == running.fence
        assert accepted(client) == 1


def accepted(client: rota.Rota) -> int:
    """How many outcomes were recorded for the tasks of the run."""
    return [event.what for event in client.run("one").events()].count("AttemptEnded")
