"""Deploying to a coordinator and running what was deployed, embedded and with a server and a worker of their own."""

import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

import rota
from rota.core.calendar import ScheduleSpec
from rota.core.commands import PutSchedule
from rota.core.errors import Refused
from rota.core.ids import BlobRef
from rota.core.model import Graph, TaskSpec
from rota.core.states import RunState
from rota.wire.bundles import BundleFile, bundle_name, pack_bundle
from rota.wire.deployments import Compiled
from tests.integration.deadlines import until
from tests.integration.service.pair import Pair

FLOW = """
import rota
from lib import words

@rota.task
def first(folder, number):
    return [words.WORD, number]

@rota.task
def second(folder, got):
    import pathlib, time
    (pathlib.Path(folder) / "began").touch()
    while not (pathlib.Path(folder) / "go").exists():
        time.sleep(0.01)
    return [words.late(), got]

@rota.workflow(schedule="0 6 * * *", timezone="Europe/Berlin")
def flow(folder: str = "", number: int = 1):
    second(folder, first(folder, number))
"""
WORDS = "WORD = {word!r}\n\ndef late():\n    from lib.later import WORD\n    return WORD\n"


def put(root: Path, word: str, flow: str = FLOW) -> Path:
    (root / "lib").mkdir(parents=True, exist_ok=True)
    (root / "flow.py").write_text(flow)
    (root / "lib" / "__init__.py").touch()
    (root / "lib" / "words.py").write_text(WORDS.format(word=word))
    (root / "lib" / "later.py").write_text(f"WORD = {word + ' later'!r}\n")
    return root


@pytest.fixture(params=[pytest.param("embedded", marks=pytest.mark.full), "remote"])
def one(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[rota.Rota]:
    """A client, embedded and remote; its tasks run in processes of their own."""
    remote = request.param == "remote"
    with request.getfixturevalue("pair").connect() if remote else rota.Rota.embedded(tmp_path / "data") as client:
        yield client


def test_a_folder_is_deployed_and_run_and_its_runs_keep_the_version_they_began_with(one: rota.Rota, tmp_path: Path):
    root = put(tmp_path / "root", "old")
    (deployed,) = one.deploy(root)
    assert (deployed.name, deployed.version, deployed.is_new, deployed.tasks) == ("flow", 1, True, 2)
    folder = tmp_path / "old"
    folder.mkdir()
    run = one.trigger("flow", {"folder": str(folder), "number": 7})
    until((folder / "began").exists, "the second task to begin")
    # Half of the first run is over when the code changes, and the worker has the other half under way.
    put(root, "new")
    (again,) = one.deploy(root)
    assert (again.version, again.is_new) == (2, True)
    (tmp_path / "go").touch()
    newer = one.trigger("flow", {"folder": str(tmp_path)})
    assert newer.result(timeout_s=60) == ["new later", ["new", 1]]
    (folder / "go").touch()
    assert run.result(timeout_s=60) == ["old later", ["old", 7]]
    assert (run.status().version, newer.status().version) == (1, 2)
    older = one.trigger("flow", {"folder": str(tmp_path)}, version=1)
    assert older.result(timeout_s=60) == ["old later", ["old", 1]]


def test_the_same_content_is_the_same_version_wherever_it_lies(one: rota.Rota, tmp_path: Path):
    assert [each.version for each in one.deploy(put(tmp_path / "a", "x"))] == [1]
    (same,) = one.deploy(put(tmp_path / "b", "x"))
    assert (same.version, same.is_new) == (1, False)
    (other,) = one.deploy(put(tmp_path / "a", "y"))
    assert (other.version, other.is_new) == (2, True)
    # Back again: what it was then.
    (back,) = one.deploy(put(tmp_path / "a", "x"))
    assert (back.version, back.is_new) == (1, False)
    assert one.workflow("flow").workflow.version == 1
    assert [version.number for version in one.workflow("flow").workflow.versions] == [1, 2]


def test_a_fix_in_one_file_is_a_new_version_of_what_imports_it_and_of_nothing_else(one: rota.Rota, tmp_path: Path):
    """`uses` imports it only when its task runs; `spared` does not, and `commands` may use any file."""
    flow = "import rota\n\n@rota.task\ndef say():\n    {body}\n\n@rota.workflow\ndef {name}():\n    say()\n"
    texts = {
        "uses.py": flow.format(name="uses", body="from lib.words import WORD; return WORD"),
        "spared.py": flow.format(name="spared", body="return 'as ever'"),
        "commands.py": "import rota\n\n@rota.workflow\ndef commands():\n    rota.command('cat lib/words.py')\n",
        "lib/words.py": "WORD = 'old'",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    first = {each.name: each for each in one.deploy(tmp_path)}
    (tmp_path / "lib" / "words.py").write_text("WORD = 'new'")
    again = {each.name: each for each in one.deploy(tmp_path)}
    assert {name: each.is_new for name, each in again.items()} == {"uses": True, "spared": False, "commands": True}
    assert {each.bundle for each in first.values()} == {again["spared"].bundle}
    results = {name: one.trigger(name).result(timeout_s=60) for name in again}
    assert results == {"uses": "new", "spared": "as ever", "commands": "WORD = 'new'"}
    assert one.trigger("uses", version=first["uses"].version).result(timeout_s=60) == "old"


def test_a_single_file_brings_what_it_imports(one: rota.Rota, tmp_path: Path):
    one.deploy(put(tmp_path / "root", "file") / "flow.py")
    (tmp_path / "go").touch()
    assert one.trigger("flow", {"folder": str(tmp_path)}).result(timeout_s=60) == ["file later", ["file", 1]]


def test_functions_inside_a_workflow_are_found_by_workers(one: rota.Rota, tmp_path: Path):
    text = """
    from rota import task, workflow

    @workflow
    def nested(start: int = 1):
        more = 10

        @task
        def add(number):
            return number + more

        @task.branch
        def choose(number):
            return "large" if number > 5 else "small"

        @task
        def large():
            return "large"

        @task
        def small():
            return "small"

        choose(add(start)) >> [large(), small()]
    """
    (tmp_path / "nested.py").write_text(textwrap.dedent(text))
    one.deploy(tmp_path / "nested.py")
    run = one.trigger("nested", {"start": 2})
    assert run.wait(60).state is RunState.SUCCESS
    assert {view.id: str(view.state) for view in run.tasks()} == {
        "add": "success",
        "choose": "success",
        "large": "success",
        "small": "skipped",
    }
    assert run.result("add") == 12


def test_commands_of_a_bundle_find_its_files(one: rota.Rota, tmp_path: Path):
    text = "import rota\n@rota.workflow\ndef shell():\n    rota.command('./say.sh', id='say')\n"
    (tmp_path / "shell.py").write_text(text)
    (tmp_path / "say.sh").write_text("#!/bin/sh\ncat words.txt\n")
    (tmp_path / "say.sh").chmod(0o755)
    (tmp_path / "words.txt").write_text("from the bundle")
    one.deploy(tmp_path)
    assert one.trigger("shell").result(timeout_s=60) == "from the bundle"


def test_what_is_broken_is_told_and_the_rest_is_deployed_unless_it_is_all_or_nothing(one: rota.Rota, tmp_path: Path):
    put(tmp_path, "x")
    (tmp_path / "bad.py").write_text("import rota\n\nraise ValueError('no')\n")
    with pytest.raises(rota.DeployFailed) as caught:
        one.deploy(tmp_path, strict=True)
    assert (caught.value.code, caught.value.deployed) == ("deploy.broken", [])
    assert one.workflows() == ()
    with pytest.raises(rota.DeployFailed, match=r"bad\.py:3: ValueError: no") as caught:
        one.deploy(tmp_path)
    assert [each.name for each in caught.value.deployed] == ["flow"]
    assert [view.workflow.name for view in one.workflows()] == ["flow"]


def test_what_the_coordinator_refuses_is_told_with_its_line(one: rota.Rota, tmp_path: Path):
    text = FLOW.replace("folder: str = ", "folder: str, other: str = ")
    with pytest.raises(rota.DeployFailed, match=r"flow\.py:17: .*\bschedule\b.*'folder'"):
        one.deploy(put(tmp_path, "x", text))
    assert one.workflows() == ()


def test_triggering_checks_parameters_and_reads_dates_in_the_workflows_zone(one: rota.Rota, tmp_path: Path):
    one.deploy(put(tmp_path, "x"))
    (tmp_path / "go").touch()
    for params in ({"number": "seven"}, {"nummer": 7}):
        with pytest.raises(Refused) as caught:
            one.trigger("flow", params)
        assert caught.value.code == "field.value"
    for date in ("2026-02-30", "yesterday", "2026-03-29T02:30"):
        with pytest.raises(Refused, match=r"field\.value"):
            one.trigger("flow", logical_date=date)
    with pytest.raises(Refused, match=r"workflow\.unknown"):
        one.trigger("flew")
    run = one.trigger("flow", {"folder": str(tmp_path)}, logical_date="2026-07-01T06:00")
    # As they are given to a workflow that is not deployed.
    text = FLOW.replace("import rota\n", "import rota\nfrom datetime import datetime\n")
    one.deploy(put(tmp_path, "x", text.replace("number: int = 1", "number: int = 1, at: datetime | None = None")))
    about = one.trigger("flow", {"folder": str(tmp_path), "at": datetime(2026, 7, 1, tzinfo=UTC)}).status().params
    assert msgspec.msgpack.decode(about)["at"] == "2026-07-01T00:00:00+00:00"
    with pytest.raises(Refused, match=r"there is no 2026-03-29T02:30:00 in Europe/Berlin: .*params\.at"):
        one.trigger("flow", {"at": "2026-03-29T02:30:00"})
    assert run.status().slot_at == datetime(2026, 7, 1, 4, tzinfo=UTC).timestamp() * 1000
    assert one.workflow("flow").last_slot_at is None or one.workflow("flow").last_slot_at > run.status().slot_at


def test_a_workflow_is_paused_resumed_and_taken_away(one: rota.Rota, tmp_path: Path):
    one.deploy(put(tmp_path, "x"))
    (tmp_path / "go").touch()
    one.pause_workflow("flow")
    run = one.trigger("flow", {"folder": str(tmp_path)})
    assert one.workflow("flow").workflow.paused
    assert run.status().started_at == 0
    # Deploying anew leaves that as it is.
    one.deploy(put(tmp_path, "y"))
    assert one.workflow("flow").workflow.paused
    one.resume_workflow("flow")
    assert run.result(timeout_s=60) == ["x later", ["x", 1]]
    one.drop_workflow("flow")
    assert one.workflows() == ()
    with pytest.raises(Refused, match=r"workflow\.unknown"):
        one.trigger("flow")


def test_a_backfill_makes_a_run_for_each_slot_and_can_be_cancelled(one: rota.Rota, tmp_path: Path):
    one.deploy(put(tmp_path, "x"))
    slots = one.backfill_slots("flow", "2026-03-28", "2026-03-30")
    first = [datetime.fromtimestamp(at / 1000, UTC).isoformat() for at in slots.first]
    # Across the night in which the clocks are put forward.
    assert first == [f"2026-03-{day}:00:00+00:00" for day in ("28T05", "29T04", "30T04")]
    assert slots.count == 3
    backfill = one.backfill("flow", "2026-03-28", "2026-03-30", max_active_runs=2, params={"folder": str(tmp_path)})
    until(lambda: len(one.runs(name="flow")) == 2, "two runs to be made")
    (view,) = one.backfills()
    assert (view.id, view.workflow, view.made, view.left) == (backfill, "flow", 2, 1)
    one.cancel_backfill(backfill)
    for run in one.runs(name="flow"):
        assert one.run(run.id).wait(60).state is RunState.CANCELLED
    until(lambda: one.backfills() == (), "the backfill to be over")
    with pytest.raises(Refused, match=r"backfill\.unknown"):
        one.cancel_backfill(backfill)


def test_a_backfill_of_a_workflow_with_a_long_name_has_an_id_that_fits(one: rota.Rota, tmp_path: Path):
    name = "n" * 200
    one.deploy(put(tmp_path, "x", FLOW.replace("timezone=", f"name={name!r}, timezone=")))
    backfill = one.backfill(name, "2026-03-28", "2026-03-28", params={"folder": str(tmp_path)})
    assert len(backfill) == 200
    until(lambda: len(one.runs(name=name)) == 1, "its run to be made")
    one.cancel_backfill(backfill)


def test_what_a_person_does_about_a_run(one: rota.Rota, tmp_path: Path):
    one.deploy(put(tmp_path, "x", FLOW.replace("return [words.late(), got]", "raise ValueError('no')")))
    (tmp_path / "go").touch()
    run = one.trigger("flow", {"folder": str(tmp_path)})
    assert run.wait(60).state is RunState.FAILED
    assert run.would_clear(only_failed=True) == ("second",)
    assert run.would_clear("first") == ("first", "second")
    assert run.would_clear("first", downstream=False) == ("first",)
    run.note("second", "source down")
    assert run.tasks("second")[0].note == "source down"
    with pytest.raises(Refused, match=r"field\.value"):
        run.mark("second", to="done")
    # With code that works, from where it failed.
    one.deploy(put(tmp_path, "y"))
    run.move()
    run.clear(only_failed=True)
    assert run.result(timeout_s=60) == ["y later", ["x", 1]]
    assert run.status().version == 2
    run.mark("second", to="failed")
    assert run.wait(60).state is RunState.FAILED


def test_a_bundle_that_was_damaged_is_mended_by_deploying_again(tmp_path: Path):
    with rota.Rota.embedded(tmp_path / "data") as one:
        (deployed,) = one.deploy(put(tmp_path / "root", "x"))
        (stored,) = (tmp_path / "data" / "blobs").rglob(f"{deployed.bundle}.zip")
        stored.write_bytes(stored.read_bytes()[:-1] + b"!")
        (tmp_path / "go").touch()
        run = one.trigger("flow", {"folder": str(tmp_path)})
        until(lambda: run.tasks("first")[0].error, "the bundle to be missed")
        assert "SHA-256" in run.tasks("first")[0].error
        assert run.tasks("first")[0].failure == "internal"
        (again,) = one.deploy(tmp_path / "root")
        assert not again.is_new
        assert run.result(timeout_s=60) == ["x later", ["x", 1]]


def test_a_worker_fetches_a_bundle_once(tmp_path: Path):
    with rota.Rota.embedded(tmp_path / "data", slots=2) as one:
        (deployed,) = one.deploy(put(tmp_path / "root", "x"))
        (stored,) = (tmp_path / "data" / "blobs").rglob(f"{deployed.bundle}.zip")
        (tmp_path / "go").touch()
        assert one.trigger("flow", {"folder": str(tmp_path)}).wait(60).state is RunState.SUCCESS
        stored.unlink()
        runs = [one.trigger("flow", {"folder": str(tmp_path)}) for _ in range(5)]
        assert {run.wait(60).state for run in runs} == {RunState.SUCCESS}
        kept = tmp_path / "data" / "bundles"
        assert [each.name for each in kept.iterdir()] == [deployed.bundle]


YEARLY = ScheduleSpec(cron="@yearly")


def _graph(bundle: BlobRef | None) -> Graph:
    work = msgspec.msgpack.encode({"shell": "true"})
    return Graph(name="w", tasks=(TaskSpec(id="t", kind="command", work=work),), bundle=bundle)


def test_nobody_deploys_or_runs_with_a_bundle_that_is_not_there_or_not_theirs(pair: Pair):
    content = pack_bundle((BundleFile("a.py", b"x = 1\n"),))
    with pair.connect() as mine, pair.connect() as other:
        ref = mine._thread.call(mine._rota.put_bundle(content))
        digest = sha256(content).hexdigest()
        missing = BlobRef(bundle_name(other._rota.line.tenant, digest), len(content), digest)
        for bundle in (ref, missing):
            with pytest.raises(Refused, match=r"bundle\.unknown"):
                other.submit(_graph(bundle))
            with pytest.raises(Refused, match=r"bundle\.unknown"):
                work = other._rota.deploy_workflow(Compiled(graph=_graph(None), source="a.py:1"), bundle)
                other._thread.call(work)
            with pytest.raises(Refused, match=r"bundle\.unknown"):
                other._thread.call(other._rota._change(PutSchedule, schedule="w", graph=_graph(bundle), spec=YEARLY))
        assert other.workflows() == ()
        assert mine.submit(_graph(ref)).wait(60).state is RunState.SUCCESS
