"""Who asked for what: written with what it changed, and only then."""

import json

import pytest

from rota.core import commands as cm
from rota.core.bounds import AUDIT_CHARS_MAX
from rota.core.images import take_batch
from rota.core.model import Pool
from rota.core.records import Audit
from tests.unit.core.world import TENANT, World, graph, task


def audits(world: World) -> list[Audit]:
    return take_batch(world.state, world.now).audits


def test_a_command_that_changed_something_is_audited_once():
    world = World()
    pool = Pool(tenant=TENANT, name="db", slots=3)
    world.do(cm.PutPool(tenant=TENANT, command_id="c1", actor="writer@t#12", pool=pool))
    world.do(cm.PutPool(tenant=TENANT, command_id="c1", actor="somebody else", pool=pool))
    world.do(cm.PutPool(tenant=TENANT, command_id="c2", actor="writer@t#12", pool=pool))
    (audit,) = audits(world)
    assert (audit.tenant, audit.actor, audit.command, audit.command_id) == (TENANT, "writer@t#12", "PutPool", "c1")
    assert json.loads(audit.about)["pool"]["slots"] == 3
    assert audits(world) == []


def test_submissions_are_told_by_their_runs_and_not_audited():
    world = World()
    world.submit(task("a"))
    assert audits(world) == []


@pytest.mark.parametrize("text", ["x" * 5_000, "é" * 5_000])
def test_what_is_long_is_cut(text: str):
    world = World()
    world.submit(graph(task("a"), task("b", "a")))
    world.follow_up()
    world.client(cm.CancelRun, run="r", reason=text[:1_000])
    (audit,) = audits(world)
    assert audit.command == "CancelRun"
    assert len(audit.about) <= AUDIT_CHARS_MAX
