"""Workers and services that are killed under workflows: work comes back, and each slot is made once.

Nothing here looks at a clock: instants are read from the records.
"""

import os
import signal
import textwrap
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

import rota
from rota.client.blocking import BlockingRun
from rota.core.questions import RunView
from rota.core.states import RunState
from tests.integration.deadlines import is_running, until
from tests.integration.service.stage import SHORT_LEASE_S, open_stage, until_present, worker_named
from tests.integration.workflows.place import WAIT_S, Place, open_place, until_state

pytestmark = pytest.mark.full

SECOND_MS = 1_000
MINUTE_MS = 60_000
MAPPED = """
    import os, pathlib, time

    import rota
    from rota import task, workflow


    @task
    def numbers(width):
        return list(range(width))


    @task
    def square(number, folder, ctx: rota.Context):
        with open(pathlib.Path(folder) / "begun", "a") as file:
            file.write(f"{number} {ctx.fence} {os.getpid()}\\n")
        while number % 10 == 0 and not (pathlib.Path(folder) / "go").exists():
            time.sleep(0.01)
        return [number * number, ctx.fence]


    @task
    def add_up(squares):
        return sum(square for square, _ in squares)


    @workflow
    def mapped(folder: str = "", width: int = 60):
        add_up(square.partial(folder=folder).expand(number=numbers(width)))
    """
SLOTTED = """
    import rota

    @rota.task
    def tick():
        return "{{{{ ts }}}}"

    @rota.workflow(schedule={every}, catchup=True, paused={paused}, max_active_runs=16)
    def {name}():
        tick()
    """
# What only calendars with slots can have.
UNBOUND = ", catchup=True, paused=False, max_active_runs=16"


def begun(folder: Path) -> list[list[int]]:
    """Number, fence and process of each call that began."""
    file = folder / "begun"
    return [[int(word) for word in line.split()] for line in file.read_text().splitlines()] if file.exists() else []


def check_each_ended_once(run: BlockingRun, width: int) -> None:
    """Each task has one outcome, under the fence that was granted last."""
    ended = Counter(happened.task for happened in run.events() if happened.what == "AttemptEnded")
    assert set(ended.values()) == {1}
    assert len(ended) == width + 2
    fences = {view.id: view.fence for view in run.tasks("square")}
    results = run.result("square")
    assert {f"square[{number}]": fence for number, (_, fence) in enumerate(results)} == fences
    assert run.result("add_up") == sum(number * number for number in range(width))


def test_what_a_killed_worker_had_of_a_mapped_task_comes_back_and_counts_once(tmp_path: Path):
    with open_stage(tmp_path, lease_s=SHORT_LEASE_S) as stage:
        stage.start_server()
        workers = {name: stage.start_worker(name, slots=2) for name in ("left", "right")}
        client = stage.client()
        until_present(client, *workers)
        file = tmp_path / "flow.py"
        file.write_text(textwrap.dedent(MAPPED))
        client.deploy(file)
        run = client.trigger("mapped", {"folder": str(tmp_path)})
        # Four of them are held: all slots are taken, two of them on each worker.
        until(lambda: len([one for one in begun(tmp_path) if one[0] % 10 == 0]) == 4, "all slots to be taken")
        # What has begun is told with the next frame.
        until(lambda: len(run.tasks("square", states=["running"])) == 4, "the coordinator to hear of them")
        held = {view.id: view for view in run.tasks("square", states=["running"])}
        lost = [task for task, view in held.items() if view.worker == "left"]
        assert len(lost) == 2
        pids = [pid for number, _, pid in begun(tmp_path) if f"square[{number}]" in lost]
        workers["left"].kill()
        until(lambda: not any(map(is_running, pids)), "its tasks to be gone with it")
        (tmp_path / "go").touch()
        assert run.wait(WAIT_S).state is RunState.SUCCESS
        check_each_ended_once(run, 60)
        returned = [happened.task for happened in run.events() if happened.what == "LeaseReturned"]
        assert sorted(returned) == sorted(lost)
        again = {view.id: view for view in run.tasks(*lost)}
        assert {view.attempt for view in again.values()} == {1}
        assert all(view.fence > held[task].fence for task, view in again.items())
        calls = Counter(number for number, _, _ in begun(tmp_path))
        assert [f"square[{number}]" for number, count in sorted(calls.items()) if count == 2] == sorted(
            lost, key=lambda task: int(task[7:-1])
        )
        gone = worker_named(client, "left")
        assert gone is None or not gone.present


def test_a_service_that_is_killed_under_a_mapped_run_goes_on_with_it(tmp_path: Path):
    with open_place(tmp_path) as place:
        place.deploy("mapped", MAPPED)
        run = place.client.trigger("mapped", {"folder": str(tmp_path)})
        until(lambda: len([one for one in begun(tmp_path) if one[0] % 10 == 0]) == 4, "all slots to be taken")
        pids = [pid for number, _, pid in begun(tmp_path) if number % 10 == 0]
        place.up.kill()
        until(lambda: not any(map(is_running, pids)), "its tasks to be gone with it")
        (tmp_path / "go").touch()
        place.start()
        assert run.wait(WAIT_S).state is RunState.SUCCESS
        check_each_ended_once(run, 60)
        assert {view.attempt for view in run.tasks()} == {1}


def slots(place: Place, name: str) -> list[RunView]:
    """The runs of a schedule, by what they are about."""
    found = [view for view in place.client.runs(name=name, limit=10_000) if view.schedule]
    return sorted(found, key=lambda view: view.slot_at)


def check_slots(views: list[RunView], every_ms: int) -> None:
    """Each slot once, without a gap."""
    about = [view.slot_at for view in views]
    assert about == list(range(about[0], about[-1] + 1, every_ms))


def test_a_workflow_of_every_second_has_each_slot_once_across_restarts(tmp_path: Path):
    with open_place(tmp_path) as place:
        place.deploy("ticking", SLOTTED.format(name="ticking", every=1, paused=False))
        place.deploy("once", SLOTTED.format(name="once", every="'@once'", paused=False).replace(UNBOUND, ""))
        place.deploy("always", SLOTTED.format(name="always", every="'@continuous'", paused=False).replace(UNBOUND, ""))
        for how in (signal.SIGKILL, signal.SIGTERM):
            before = len(slots(place, "ticking"))
            until(lambda before=before: len(slots(place, "ticking")) >= before + 2, "two more slots")
            place.up.signal(how)
            place.up.ended()
            place.start()
        before = slots(place, "ticking")[-1].slot_at
        until(lambda: slots(place, "ticking")[-1].slot_at > before, "a slot after the last start")
        views = slots(place, "ticking")
        for view in views:
            assert place.client.run(view.id).wait(WAIT_S).state is RunState.SUCCESS
        # Nothing of the stretch without a service is missing, and nobody is ahead of time.
        check_slots(views, SECOND_MS)
        assert all(view.created_at >= view.slot_at for view in views)
        assert [view.state for view in slots(place, "once")] == [RunState.SUCCESS]
        always = sorted(slots(place, "always"), key=lambda view: view.created_at)
        assert len(always) > 3
        assert all(0 < before.ended_at <= after.created_at for before, after in pairwise(always))


def test_a_backfill_goes_on_after_its_service_was_killed_and_makes_each_slot_once(tmp_path: Path):
    with open_place(tmp_path) as place:
        place.deploy("minutely", SLOTTED.format(name="minutely", every="'* * * * *'", paused=False))
        start, end = "2026-03-28T23:30", "2026-03-29T00:29"
        place.client.backfill("minutely", start, end, max_active_runs=5, backfill="again")

        def made() -> list[RunView]:
            return [view for view in slots(place, "minutely") if view.backfill]

        for least in (5, 20):
            until(lambda least=least: len(made()) >= least, f"{least} runs to be made")
            place.up.kill()
            place.start()
        until(lambda: place.client.backfills() == (), "the backfill to be over", WAIT_S)
        views = made()
        assert len(views) == 60
        check_slots(views, MINUTE_MS)
        assert {view.state for view in views} == {RunState.SUCCESS}
        # The calendar of the day went its own way.
        daily = [view for view in slots(place, "minutely") if not view.backfill]
        assert len({view.slot_at for view in daily}) == len(daily)


def test_a_process_of_a_task_that_is_killed_from_outside_is_the_attempts_failure(tmp_path: Path):
    with open_place(tmp_path) as place:
        place.deploy("mapped", MAPPED)
        run = place.client.trigger("mapped", {"folder": str(tmp_path), "width": 1})
        until(lambda: begun(tmp_path), "it to begin")
        until_state(run, "square[0]", "running")
        ((_, _, pid),) = begun(tmp_path)
        os.kill(pid, signal.SIGKILL)
        assert run.wait(WAIT_S).state is RunState.FAILED
        (view,) = run.tasks("square[0]")
        assert (view.failure, "killed by SIGKILL" in view.error) == ("user", True)
        with pytest.raises(rota.Refused, match=r"task\.no_result"):
            run.result("square")
        place.check_health()
