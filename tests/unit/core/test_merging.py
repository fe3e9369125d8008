"""Joining a run instead of making a second one, by a key; and labels, which nothing is decided by."""

import msgspec
import pytest

from rota.core import commands as cm
from rota.core.bounds import LABEL_CHARS_MAX, LABEL_NAME_CHARS_MAX, LABELS_MAX, RECEIPTS_KEPT_MS, TEXT_CHARS_MAX
from rota.core.decide import Decision
from rota.core.errors import Unavailable
from rota.core.history import HistoryQuery
from rota.core.images import all_records
from rota.core.invariants import validate
from rota.core.model import Graph
from rota.core.questions import ListRuns, RunsPage, answer
from rota.core.records import Receipt, Run
from rota.core.states import RunState
from tests.unit.core.world import TENANT, World, graph, image, task

KEY = "action/abc"
ONE = graph(task("x"), name="one")


def ask(run: str, *, key: str = KEY, tenant: str = TENANT, what: Graph = ONE, command_id: str = "", **fields: object):
    return cm.SubmitRun(tenant=tenant, command_id=command_id or f"ask-{run}", run=run, graph=what, merge=key, **fields)


def two(world: World) -> tuple[Decision, Decision]:
    return world.do(ask("first")), world.do(ask("second"))


# Joining.


def test_a_second_submission_of_a_key_is_answered_with_the_first_run():
    world = World()
    first, second = two(world)
    assert (first.answer, second.answer) == ("first", "first")
    assert list(world.state.runs) == [(TENANT, "first")]
    assert validate(world.state, world.now) == []


def test_runs_without_a_key_or_with_other_keys_are_their_own():
    world = World()
    for run, key in (("a", ""), ("b", ""), ("c", "k"), ("d", "l")):
        assert world.do(ask(run, key=key)).answer == run
    assert len(world.state.runs) == 4


def test_a_key_is_the_tenants_own():
    world = World()
    assert world.do(ask("first", tenant="t1")).answer == "first"
    assert world.do(ask("second", tenant="t2")).answer == "second"


def test_whoever_joins_needs_no_graph_that_is_known():
    world = World()
    world.do(ask("first"))
    stranger = msgspec.structs.replace(ask("second"), graph=None, digest="0" * 64)
    assert world.do(stranger).answer == "first"


def test_a_submission_that_joins_is_checked_like_any_other():
    world = World()
    world.do(ask("first"))
    assert world.refusal(ask(" ", command_id="blank")).path == "run"
    assert world.refusal(ask("first", command_id="other")).code == "run.exists"
    assert world.refusal(ask("second", params=b"x" * 300_000)).code == "field.size"
    assert world.refusal(ask("second", key="x" * (TEXT_CHARS_MAX + 1))).path == "merge"
    assert world.refusal(ask("second", share="\0")).path == "share"


def test_the_answer_to_a_submission_that_joined_is_kept_like_any_other():
    world = World()
    two(world)
    receipt = world.state.receipts[(TENANT, "ask-second")]
    assert (receipt.answer, receipt.digest != 0) == ("first", True)
    repeated = world.do(ask("second"))
    assert (repeated.answer, repeated.changes, repeated.is_repeat) == ("first", [], True)
    assert world.refusal(ask("third", command_id="ask-second")).code == "command.id_reused"
    world.advance(RECEIPTS_KEPT_MS)
    assert (TENANT, "ask-second") not in world.state.receipts


def test_a_repeated_submission_that_joined_is_answered_alike_after_the_run_has_ended():
    world = World()
    world.worker()
    two(world)
    (granted,) = world.turn()
    world.succeed(granted)
    assert world.do(ask("second")).answer == "first"
    world.advance(world.state.limits.retain_ended_ms)
    assert world.state.runs == {}
    assert world.do(ask("second")).answer == "first", "the run is in history by now"
    assert world.do(ask("first")).answer == "first"


# How long a key is taken.


@pytest.mark.parametrize("how", ["success", "failed", "cancelled"])
def test_a_key_is_free_again_once_its_run_has_ended(how: str):
    world = World()
    world.worker()
    world.do(ask("first"))
    (granted,) = world.turn()
    if how == "cancelled":
        world.client(cm.CancelRun, run="first")
        world.follow_up()
    else:
        world.report(granted, cm.Outcome(how))
    assert world.result("first") == RunState(how)
    assert world.do(ask("second")).answer == "second"
    assert validate(world.state, world.now) == []


def test_a_run_that_waits_to_start_or_is_paused_is_joined():
    world = World()
    capped = graph(task("x"), name="capped", max_active_runs=1)
    world.do(ask("running", key="other", what=capped))
    world.do(ask("first", what=capped))
    world.follow_up()
    assert world.result("first") == RunState.QUEUED
    assert world.do(ask("second", what=capped)).answer == "first"
    world.client(cm.PauseRun, run="first")
    assert world.do(ask("third", what=capped)).answer == "first"


def test_a_run_that_is_being_stopped_is_not_joined():
    """Its end would be told to somebody who asked after it was given up. A few turns later there is room."""
    world = World()
    wide = graph(task("x", width=5_000), name="wide")
    world.do(ask("first", what=wide))
    world.follow_up()
    world.client(cm.CancelRun, run="first")
    assert world.run("first").row.stopping is not None and world.result("first") == RunState.RUNNING
    before = image(world.state)
    with pytest.raises(Unavailable) as caught:
        world.do(ask("second", what=wide))
    assert caught.value.code == "run.busy" and image(world.state) == before
    world.follow_up()
    assert world.do(ask("second", what=wide)).answer == "second"


# Opened again, revived, loaded.


def ended_and_replaced() -> World:
    """A run that has ended, and another with its key that has not."""
    world = World()
    world.worker()
    world.do(ask("first"))
    (granted,) = world.turn()
    world.fail(granted)
    world.do(ask("second"))
    return world


def test_a_run_that_is_opened_again_gives_up_a_key_that_is_taken():
    world = ended_and_replaced()
    world.client(cm.ClearTasks, run="first")
    world.follow_up()
    assert world.result("first") == RunState.RUNNING
    assert (world.run("first").row.merge, world.run("second").row.merge) == ("", KEY)
    assert world.do(ask("third")).answer == "second"
    assert validate(world.state, world.now) == []
    assert world.do(ask("first")).answer == "first", "its own submission is still known"


def test_a_run_that_is_opened_again_takes_a_key_that_is_free():
    world = ended_and_replaced()
    world.client(cm.CancelRun, run="second")
    world.follow_up()
    world.client(cm.ClearTasks, run="first")
    assert world.do(ask("third")).answer == "first"
    assert validate(world.state, world.now) == []


def revived(world: World, run: str) -> None:
    live = world.run(run)
    row = next(row for row in all_records(world.state) if isinstance(row, Run) and row.id == run)
    tasks, whole = tuple(live.tasks.values()), live.graph.graph
    world.advance(world.state.limits.retain_ended_ms)
    assert (TENANT, run) not in world.state.runs
    world.state.touched.archives.clear()
    world.do(cm.ReviveRun(tenant=TENANT, row=row, tasks=tasks, growths=(), graph=whole))


def test_a_run_that_left_history_takes_its_key_only_when_it_is_opened_and_only_if_it_is_free():
    world = ended_and_replaced()
    revived(world, "first")
    assert world.run("first").row.merge == KEY
    assert world.do(ask("third")).answer == "second"
    world.client(cm.ClearTasks, run="first")
    assert world.run("first").row.merge == ""
    assert validate(world.state, world.now) == []


def test_a_key_is_taken_after_a_restart_as_before():
    world = World()
    two(world)
    after = world.restarted()
    assert after.do(ask("third")).answer == "first"
    assert after.do(ask("second")).answer == "first", "and so is the answer that was given"
    assert validate(after.state, after.now) == []


def test_who_joined_is_written_with_the_next_commit():
    world = World()
    world.do(ask("first"))
    world.state.touched.puts.clear()
    world.do(ask("second"))
    assert [record.command_id for record in world.state.touched.puts.values() if isinstance(record, Receipt)] == [
        "ask-second"
    ]


def test_a_wrong_table_of_keys_is_noticed():
    world = World()
    two(world)
    world.state.merging.clear()
    assert any("keys are" in text for text in validate(world.state, world.now))
    world = World()
    two(world)
    world.do(ask("other", key="l"))
    world.run("other").row.merge = KEY
    assert any("both have key" in text for text in validate(world.state, world.now))


# Labels.


def test_labels_are_few_short_and_each_named_once():
    world = World()
    wrong = (
        tuple((f"n{number}", "") for number in range(LABELS_MAX + 1)),
        (("", "v"),),
        (("n" * (LABEL_NAME_CHARS_MAX + 1), "v"),),
        (("n", "v" * (LABEL_CHARS_MAX + 1)),),
        (("n", "a"), ("n", "b")),
        (("n\0", "v"),),
        (("n", "\udc80"),),
    )
    for labels in wrong:
        refused = world.refusal(ask("r", labels=labels))
        assert refused.path.startswith("labels") and refused.path.isprintable()
    full = tuple((f"{number}".ljust(LABEL_NAME_CHARS_MAX, "n"), "ü" * LABEL_CHARS_MAX) for number in range(LABELS_MAX))
    world.do(ask("r", labels=full))
    assert world.run("r").row.labels == full


def test_runs_are_found_by_their_labels():
    world = World()
    for run, labels in (("a", (("target", "//x"),)), ("b", (("target", "//x"), ("kind", "test"))), ("c", ())):
        world.do(ask(run, key="", labels=labels))

    def found(*labels: tuple[str, str]) -> list[str]:
        page = answer(world.state, ListRuns(tenant=TENANT, labels=labels), world.now)
        assert isinstance(page, RunsPage)
        return [view.id for view in page.runs]

    assert found(("target", "//x")) == ["b", "a"]
    assert found(("target", "//x"), ("kind", "test")) == ["b"]
    assert found(("kind", "")) == []
    row = world.run("b").row
    assert HistoryQuery(tenant=TENANT, labels=(("kind", "test"),)).finds(row)
    assert not HistoryQuery(tenant=TENANT, labels=(("kind", "build"),)).finds(row)


def test_another_label_makes_a_repeated_submission_another_one():
    world = World()
    world.do(ask("r", labels=(("a", "1"),)))
    assert world.do(ask("r", labels=(("a", "1"),))).is_repeat
    for fields in ({"labels": (("a", "2"),)}, {"share": "s"}, {"key": "other"}):
        assert world.refusal(ask("r", **{"labels": (("a", "1"),), **fields})).code == "command.id_reused"
