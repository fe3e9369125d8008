"""What may be done about a workflow: run it, hold it, make up for the past, take it away."""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from rota.client.given import backfill_id, new_id
from rota.core import commands as cm
from rota.core.bounds import BACKFILL_ACTIVE_RUNS
from rota.core.errors import Refused
from rota.core.model import PriorityClass
from rota.core.questions import BackfillView, WorkflowView
from rota.ui.acts.acting import Deed, DeedsAbout, Doing, Done, Field, Offer, Sent, Subject, offers
from rota.ui.acts.params import Given, fields_of, read_given, words_of
from rota.ui.visits import Visit
from rota.ui.words import command, run_url, workflow_url
from rota.wire.given import packed, priority_class
from rota.wire.instants import check_instants, end_of, instant

WORKFLOW = "/workflows/{workflow}"
BACKFILL = "/workflows/{workflow}/backfills/{backfill}"
SLOTS_NAMED = 3


class Running(Given, frozen=True, kw_only=True):
    """How a workflow is run by hand."""

    date: str = ""
    priority: str = PriorityClass.NORMAL


class Backfilling(Sent, frozen=True, kw_only=True):
    """Which slots of the past are made up for."""

    start: str = ""
    end: str = ""
    max_active_runs: int = BACKFILL_ACTIVE_RUNS


def workflow_offers(visit: Visit, view: WorkflowView) -> list[Offer]:
    """What may be done about a workflow now."""
    return offers(visit, subject_of(view), WORKFLOW_DEEDS)


def backfill_offers(visit: Visit, view: BackfillView) -> list[Offer]:
    """What may be done about a backfill now."""
    return offers(visit, _backfill_subject(view), BACKFILL_DEEDS)


def subject_of(view: WorkflowView) -> Subject:
    """A workflow, to be acted on."""
    workflow = view.workflow
    url = workflow_url(workflow.name)
    standing = f"{'paused' if workflow.paused else 'not paused'}, at version {workflow.version}"
    return Subject(name=f"workflow {workflow.name}", at=url, url=url, standing=standing, view=view)


async def find_workflow(visit: Visit) -> Subject:
    """The workflow in the path."""
    return subject_of(await visit.client.workflow(visit.path["workflow"]))


# Running it.


async def _run(doing: Doing) -> Done:
    view: WorkflowView = doing.subject.view
    form: Running = doing.form
    name = view.workflow.name
    params = read_given(view.workflow.params, form)
    check_instants(view.workflow.params, params, view.zone)
    # The same form again is the same run.
    run = new_id(name, doing.key)
    made = await doing.ask(
        cm.SubmitRun,
        run=run,
        workflow=name,
        logical_at=instant(form.date, view.zone, "date") if form.date else 0,
        priority=priority_class(form.priority),
        params=packed(params),
        # A submission is not audited: its run says who made it.
        labels=(("by", doing.visit.who),) if doing.visit.who else (),
    )
    return Done(f"Run {made} was made.", url=run_url(made))


async def run_fields(visit: Visit, subject: Subject, form: Any) -> list[Field]:
    """The parameters, what it is about, and how urgent it is."""
    del visit
    view: WorkflowView = subject.view
    said = form if isinstance(form, Running) else Running()
    note = f"What the run is about, in {view.zone}; empty is now."
    urgency = tuple((str(each), str(each)) for each in PriorityClass)
    return [
        *fields_of(view.workflow.params, form),
        Field(name="date", label="Logical date", kind="datetime-local", value=said.date, note=note),
        Field(name="priority", label="Priority", kind="select", value=str(said.priority), options=urgency),
    ]


def _run_line(subject: Subject, form: Any) -> str:
    view: WorkflowView = subject.view
    if not isinstance(form, Running):
        return command("run", view.workflow.name)
    try:
        words = words_of(read_given(view.workflow.params, form))
    except Refused:
        words = []
    date = ("--date", form.date) if form.date else ()
    urgency = ("--priority", form.priority) if form.priority != PriorityClass.NORMAL else ()
    return command("run", view.workflow.name, *words, *date, *urgency)


# Holding it, and taking it away.


async def _pause(doing: Doing) -> Done:
    await doing.ask(cm.PauseWorkflow, workflow=doing.subject.view.workflow.name, paused=True)
    return Done(f"{doing.subject.name} is paused: what runs goes on, and nothing else of it begins.")


async def _resume(doing: Doing) -> Done:
    await doing.ask(cm.PauseWorkflow, workflow=doing.subject.view.workflow.name, paused=False)
    return Done(f"{doing.subject.name} goes on.")


async def _undeploy(doing: Doing) -> Done:
    await doing.ask(cm.DropWorkflow, workflow=doing.subject.view.workflow.name)
    return Done(f"{doing.subject.name} was taken away.", url="/workflows")


def _of_workflow(verb: str) -> Callable[[Subject, Any], str]:
    return lambda subject, form: command(verb, subject.view.workflow.name)  # noqa: ARG005 - one shape for all


# Backfills.


async def _backfill(doing: Doing) -> Done:
    view: WorkflowView = doing.subject.view
    form: Backfilling = doing.form
    name = view.workflow.name
    id = backfill_id(name, doing.key)
    slots = await doing.client.backfill_slots(name, form.start, form.end, limit=SLOTS_NAMED)
    await doing.ask(
        cm.StartBackfill,
        backfill=id,
        workflow=name,
        start_at=instant(form.start, view.zone, "start"),
        end_at=end_of(form.end, view.zone, "end"),
        max_active_runs=form.max_active_runs,
    )
    return Done(f"Backfill {id} makes {slots.count:,} runs, {form.max_active_runs} at once.")


async def backfill_fields(visit: Visit, subject: Subject, form: Any) -> list[Field]:
    """From when to when, and how many at once."""
    del visit
    said = form if isinstance(form, Backfilling) else Backfilling()
    note = f"In {subject.view.zone}; a slot of the schedule at or after it is the first."
    most = str(said.max_active_runs)
    return [
        Field(name="start", label="From", kind="date", value=said.start, note=note, is_required=True),
        Field(name="end", label="To", kind="date", value=said.end, note="All of that day.", is_required=True),
        Field(name="max_active_runs", label="Runs at once", kind="number", value=most, least="1"),
    ]


def _backfill_line(subject: Subject, form: Any) -> str:
    said = form if isinstance(form, Backfilling) else Backfilling(start="…", end="…")
    most = ("--max-active", said.max_active_runs) if said.max_active_runs != BACKFILL_ACTIVE_RUNS else ()
    return command("backfill", subject.view.workflow.name, "--from", said.start, "--to", said.end, *most)


def _backfill_subject(view: BackfillView) -> Subject:
    url = workflow_url(view.workflow)
    at = f"{url}/backfills/{quote(view.id, safe='')}"
    return Subject(name=f"backfill {view.id}", at=at, url=url, standing="not over", view=view)


async def find_backfill(visit: Visit) -> Subject:
    """The backfill in the path."""
    name = visit.path["backfill"]
    for view in await visit.client.backfills():
        if view.id == name:
            return _backfill_subject(view)
    raise Refused("backfill.unknown", f"there is no backfill {name!r}, or it is over", path="backfill")


async def _cancel_backfill(doing: Doing) -> Done:
    await doing.ask(cm.CancelBackfill, backfill=doing.subject.view.id)
    return Done(f"{doing.subject.name} makes no more runs, and those it made are cancelled.")


_deed = DeedsAbout(WORKFLOW, find_workflow)
WORKFLOW_DEEDS: tuple[Deed, ...] = (
    _deed(
        "run",
        "Run",
        "A run is made now. The schedule does not mind.",
        command=cm.SubmitRun,
        do=_run,
        line=_run_line,
        # Whoever pauses it meanwhile does not change what is asked for.
        standing=lambda subject: f"at version {subject.view.workflow.version}",
        form=Running,
        form_bytes_max=512 * 1024,
        fields=run_fields,
    ),
    _deed(
        "backfill",
        "Backfill",
        "Runs are made for slots of the past, the oldest first, of class low.",
        command=cm.StartBackfill,
        do=_backfill,
        line=_backfill_line,
        objection=lambda view: "" if view.schedule is not None else "has no schedule",
        form=Backfilling,
        fields=backfill_fields,
    ),
    _deed(
        "pause",
        "Pause",
        "None of its runs starts, and no worker is given their tasks; what runs goes on.",
        command=cm.PauseWorkflow,
        do=_pause,
        line=_of_workflow("pause"),
        objection=lambda view: "is paused already" if view.workflow.paused else "",
        is_direct=True,
    ),
    _deed(
        "resume",
        "Resume",
        "It goes on.",
        command=cm.PauseWorkflow,
        do=_resume,
        line=_of_workflow("resume"),
        objection=lambda view: "" if view.workflow.paused else "is not paused",
        is_direct=True,
    ),
    _deed(
        "undeploy",
        "Take away",
        "It is taken away with its schedule. Its runs go on with what they were made of.",
        command=cm.DropWorkflow,
        do=_undeploy,
        line=_of_workflow("undeploy"),
        is_grave=True,
    ),
)
_deed = DeedsAbout(BACKFILL, find_backfill)
BACKFILL_DEEDS: tuple[Deed, ...] = (
    _deed(
        "cancel",
        "Cancel",
        "It makes no more runs, and those it made that have not ended are cancelled.",
        command=cm.CancelBackfill,
        do=_cancel_backfill,
        line=lambda subject, form: command("backfills", "cancel", subject.view.id),  # noqa: ARG005 - one shape
        is_grave=True,
    ),
)
