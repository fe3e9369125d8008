"""`rota tasks`: what is said of a task in its last column."""

import pytest

from rota.cli.tasks import error_or_note
from rota.core.questions import ListTasks, answer
from tests.unit.core.world import TENANT, World, task


@pytest.mark.parametrize(
    ("error", "note", "said"),
    [
        ("", "", ""),
        ("ValueError: too small\n\nTraceback\n  …\nValueError: too small\n", "", "ValueError: too small"),
        ("exited with code 3\nall is well\n", "", "exited with code 3"),
        ("", "no worker fits", "no worker fits"),
        ("agent_lost: silent", "ask Ada", "agent_lost: silent"),
    ],
)
def test_an_error_comes_before_a_note(error: str, note: str, said: str) -> None:
    world = World()
    world.submit(task("x"))
    world.turn()
    row = world.task("x")
    row.error, row.note = error, note
    (view,) = answer(world.state, ListTasks(tenant=TENANT, run="r"), world.now).tasks
    assert error_or_note(view) == said
