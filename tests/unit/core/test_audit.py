"""Who asked for what: written with what it changed, and only then."""

import json

import pytest

from rota.core import commands as cm
from rota.core.bounds import AUDIT_CHARS_MAX
from rota.core.images import take_batch
from rota.core.model import Param, ParamType, Pool
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


def test_submissions_are_audited_if_they_say_who_asked_without_what_they_were_given():
    world = World()
    world.submit(task("a"))
    assert audits(world) == []
    given = graph(task("a"))
    asked = cm.SubmitRun(
        tenant=TENANT, command_id="by-hand", actor="writer@t#12", run="r2", graph=given, params=b"\x81\xa1p\xa6secret"
    )
    world.do(asked)
    world.do(asked)
    (audit,) = audits(world)
    assert (audit.actor, audit.command, audit.command_id) == ("writer@t#12", "SubmitRun", "by-hand")
    assert json.loads(audit.about)["run"] == "r2"
    assert "secret" not in audit.about


@pytest.mark.parametrize("text", ["x" * 5_000, "é" * 5_000])
def test_what_is_long_is_cut(text: str):
    world = World()
    world.submit(graph(task("a"), task("b", "a")))
    world.follow_up()
    world.client(cm.CancelRun, run="r", reason=text[:1_000])
    (audit,) = audits(world)
    assert audit.command == "CancelRun"
    assert len(audit.about) <= AUDIT_CHARS_MAX


def test_a_deployment_says_which_workflow_and_nothing_that_its_parameters_are_given():
    world = World()
    params = (Param(name="password", type=ParamType.STRING, default=b"\xa6secret"),)
    world.do(cm.DeployWorkflow(tenant=TENANT, command_id="d1", actor="w", graph=graph(task("a")), params=params))
    about = json.loads(audits(world)[0].about)
    assert (about["workflow"], about["params"]) == (graph(task("a")).name, ["password"])
