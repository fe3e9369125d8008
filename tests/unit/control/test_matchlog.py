"""The match log: one bounded line for each queue in which tasks wait that nobody takes, as often as it says."""

import re

from rota.control.events import Tell
from rota.control.matchlog import LINE_CHARS_MAX, MatchLog
from rota.core.model import PropertyRule
from rota.core.why import explain
from tests.unit.core.world import TENANT, World, graph, task

RULES = (("cpu_count", PropertyRule.MINIMUM),)
NEEDS = (("cpu_count", "64"),)


def stuck(interval_ms: int = 10_000, width: int = 12) -> World:
    world = World()
    world.queue("builds", properties=RULES, worker_match_logging_interval_ms=interval_ms)
    world.worker("near", properties=(("cpu_count", "16"),))
    world.submit(graph(task("x", queue="builds", requires=NEEDS, width=width)))
    world.turn()
    return world


def lines(log: MatchLog, world: World, after_ms: int) -> list[Tell]:
    """What is told while so much time passes, if somebody looks every second."""
    found: list[Tell] = []
    for _ in range(after_ms // 1_000):
        world.advance(1_000)
        found += log.lines(world.state, world.now)
    return found


def test_a_line_says_how_many_wait_the_oldest_five_and_the_reason_that_why_gives():
    world = stuck()
    (line,) = lines(MatchLog(), world, 10_000)
    about = dict(line.about)
    (why,) = explain(world.state, world.run(), 0, world.now)
    assert (line.what, about["tenant"], about["queue"], about["waiting"]) == ("match", TENANT, "builds", "12")
    assert about["oldest"] == f"{', '.join(f'r/x[{n}] (10 s)' for n in range(5))}: {why.code}: {why.text}"
    assert (why.code, dict(why.about)["worker"]) == ("worker.none_match", "near")
    assert re.search(r"\bnear\b.*\bcpu_count\b.*\b16\b.*\b64\b", about["oldest"])


def test_it_is_told_once_in_an_interval():
    assert len(lines(MatchLog(), stuck(10_000), 60_000)) == 6
    assert len(lines(MatchLog(), stuck(3_000), 60_000)) == 20


def test_minus_one_turns_it_off():
    assert lines(MatchLog(), stuck(-1), 600_000) == []


def test_what_has_not_waited_for_an_interval_is_not_told_of():
    world = stuck()
    assert lines(MatchLog(), world, 9_000) == []


def test_it_ends_when_somebody_takes_the_work():
    world, log = stuck(), MatchLog()
    assert len(lines(log, world, 10_000)) == 1
    world.worker("large", slots=20, properties=(("cpu_count", "64000"),))
    for granted in world.turn():
        world.start(granted)
    assert lines(log, world, 60_000) == []


def test_each_queue_has_a_line_of_its_own_and_tasks_with_other_needs_their_own_reason():
    world = stuck(width=1)
    world.submit(graph(task("y", queue="builds", requires=(("cpu_count", "32"),))), run="s")
    world.submit(graph(task("z", requires=(("gpu_count", "1"),))), run="t")
    world.turn()
    found = lines(MatchLog(), world, 60_000)
    assert {dict(line.about)["queue"] for line in found} == {"builds", "default"}
    told = dict(found[0].about)["oldest"]
    assert told.count(" | ") == 1 and "r/x" in told and "s/y" in told


def test_waiting_behind_busy_workers_is_told_as_such():
    world = World()
    world.queue("builds", worker_match_logging_interval_ms=1_000)
    world.worker()
    world.submit(graph(task("x", queue="builds", width=2)))
    world.turn()
    (line, *_) = lines(MatchLog(), world, 2_000)
    assert "worker.busy" in dict(line.about)["oldest"]


def test_a_line_is_bounded_however_long_names_are():
    world = stuck(width=1)
    for number in range(20):
        needs = (("cpu_count", "64"), ("k" * 200 + str(number), "v" * 200))
        world.submit(graph(task("t" * 200, queue="builds", requires=needs)), run=f"{'r' * 200}{number}")
    world.turn()
    (line, *_) = lines(MatchLog(), world, 10_000)
    assert len(dict(line.about)["oldest"]) <= LINE_CHARS_MAX
