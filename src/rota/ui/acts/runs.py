"""What may be done about a run."""

from typing import Any

from msgspec import structs

from rota.core import commands as cm
from rota.core.errors import Refused
from rota.core.model import Approval
from rota.core.questions import RunView
from rota.core.states import BAD, RUN_TERMINAL, TERMINAL, UP_FOR_RESCHEDULE, UP_FOR_RETRY
from rota.ui.acts.acting import (
    DeedsAbout,
    Doing,
    Done,
    Field,
    Offer,
    Reasoned,
    Sent,
    Subject,
    asks,
    line_reason,
    offers,
)
from rota.ui.acts.notes import note_deed
from rota.ui.visits import Visit
from rota.ui.words import command, run_url

PATH = "/runs/{run}"
AGAIN = (*BAD, UP_FOR_RETRY, UP_FOR_RESCHEDULE)
NO_YES = (("no", "No"), ("yes", "Yes"))
_NAMED_MAX = 20


class Clearing(Sent, frozen=True, kw_only=True):
    """Which ended tasks are run again."""

    downstream: str = "yes"
    only_failed: str = "no"


class Moving(Sent, frozen=True, kw_only=True):
    """To which version; 0 is the present one."""

    version: int = 0


def run_offers(visit: Visit, view: RunView) -> list[Offer]:
    """What may be done about a run now."""
    return offers(visit, _subject(view), RUN_DEEDS)


def _subject(view: RunView) -> Subject:
    url = run_url(view.id)
    standing = f"over ({view.state})" if view.state in RUN_TERMINAL else "not over"
    paused = ", and paused" if view.paused else ""
    return Subject(name=f"run {view.id}", at=url, url=url, standing=f"{standing}{paused}", kind=view.kind, view=view)


async def find_run(visit: Visit) -> Subject:
    """The run in the path."""
    return _subject(await visit.client.run(visit.path["run"]).status())


async def with_preview(visit: Visit, subject: Subject, *tasks: str) -> Subject:
    """The same, with the names of what would be run again."""
    try:
        found = await visit.client.run(visit.path["run"]).would_clear(*tasks)
    except Refused as refused:
        return structs.replace(subject, details=(f"{refused.reason}.",))
    more = f" and {len(found) - _NAMED_MAX:,} more" if len(found) > _NAMED_MAX else ""
    names = f"{', '.join(found[:_NAMED_MAX])}{more}" if found else "none"
    return structs.replace(subject, details=(f"That is {names}.",))


async def _find_clearable(visit: Visit) -> Subject:
    return await with_preview(visit, await find_run(visit))


# What stands against a deed.


def _ended(view: RunView) -> str:
    return f"has ended already, as {view.state}" if view.state in RUN_TERMINAL else ""


def _not_running(view: RunView) -> str:
    return _ended(view) or ("is paused already" if view.paused else "")


def _not_held(view: RunView) -> str:
    return _ended(view) or ("" if view.paused or view.fault else "is not paused")


def _nothing_failed(view: RunView) -> str:
    is_some = any(view.tasks.get(state) for state in AGAIN) and bool(view.started_at)
    return "" if is_some else "has no task that failed or waits for another try"


def _nothing_ended(view: RunView) -> str:
    is_some = any(view.tasks.get(state) for state in TERMINAL) and bool(view.started_at)
    return "" if is_some else "has no task that has ended"


def _not_deployed(view: RunView) -> str:
    return _ended(view) or ("" if view.version else "is not of a deployed workflow")


def _not_asked(view: RunView) -> str:
    return _ended(view) or ("" if view.approval is Approval.PENDING else "does not wait for a person's approval")


# What is done.


async def _cancel(doing: Doing) -> Done:
    view: RunView = doing.subject.view
    await doing.ask(cm.CancelRun, run=view.id, reason=doing.form.reason or "cancelled on request")
    return Done(f"{doing.subject.name} is being cancelled.")


async def _retry(doing: Doing) -> Done:
    view: RunView = doing.subject.view
    await doing.ask(cm.RetryTasks, run=view.id)
    return Done(f"What failed or waited in {doing.subject.name} is tried again.")


async def _clear(doing: Doing) -> Done:
    form: Clearing = doing.form
    await doing.ask(cm.ClearTasks, run=doing.subject.view.id, only_failed=form.only_failed == "yes")
    return Done(f"{doing.subject.name} runs again.")


async def _move(doing: Doing) -> Done:
    await doing.ask(cm.MoveRun, run=doing.subject.view.id, version=doing.form.version)
    which = f"version {doing.form.version}" if doing.form.version else "the present version"
    return Done(f"{doing.subject.name} was moved to {which}.")


# What is filled in, and the lines that say the same.


def failed_field(form: Any) -> Field:
    """Whether only what failed is run again."""
    said = form.only_failed if isinstance(form, Clearing) else "no"
    return Field(name="only_failed", label="Only what failed", kind="select", value=said, options=NO_YES)


async def _clear_fields(visit: Visit, subject: Subject, form: Any) -> list[Field]:
    del visit, subject
    return [failed_field(form)]


async def _version_field(visit: Visit, subject: Subject, form: Any) -> list[Field]:
    view: RunView = subject.view
    workflow = (await visit.client.workflow(view.name)).workflow
    options = [
        (str(each.number), f"version {each.number}{' (present)' if each.number == workflow.version else ''}")
        for each in reversed(workflow.versions)
        if each.number != view.version
    ]
    said = str(form.version) if isinstance(form, Moving) else str(workflow.version)
    note = f"It is of version {view.version} now."
    return [Field(name="version", label="Version", kind="select", value=said, options=tuple(options), note=note)]


def _of_run(*words: str) -> Any:
    """A verb about a run; agents' items have their own."""

    def line(subject: Subject, form: Any) -> str:
        view: RunView = subject.view
        verb, *options = words
        start = ("work", verb) if view.kind == "agent" else (verb, *options)
        return command(*start, view.id, *line_reason(form))

    return line


def _clear_line(subject: Subject, form: Any) -> str:
    options = ("--failed",) if isinstance(form, Clearing) and form.only_failed == "yes" else ()
    return command("clear", subject.view.id, *options)


def _move_line(subject: Subject, form: Any) -> str:
    options = ("--version", form.version) if isinstance(form, Moving) and form.version else ()
    return command("move", subject.view.id, *options)


_deed = DeedsAbout(PATH, find_run)
RUN_DEEDS = (
    _deed(
        "approve",
        "Approve",
        "It may go on.",
        command=cm.ApproveRun,
        do=asks(cm.ApproveRun, "was approved", approved=True),
        line=_of_run("approve"),
        objection=_not_asked,
        form=Reasoned,
    ),
    _deed(
        "reject",
        "Reject",
        "It ends, and fails.",
        command=cm.ApproveRun,
        do=asks(cm.ApproveRun, "was rejected", approved=False),
        line=_of_run("reject"),
        objection=_not_asked,
        form=Reasoned,
        is_grave=True,
    ),
    _deed(
        "pause",
        "Pause",
        "Nothing new of it begins; what runs goes on.",
        command=cm.PauseRun,
        do=asks(cm.PauseRun, "is paused: what runs goes on, and nothing else begins", paused=True),
        line=_of_run("pause", "--run"),
        objection=_not_running,
        is_direct=True,
    ),
    _deed(
        "resume",
        "Resume",
        "It goes on.",
        command=cm.PauseRun,
        do=asks(cm.PauseRun, "goes on", paused=False),
        line=_of_run("resume", "--run"),
        objection=_not_held,
        is_direct=True,
    ),
    _deed(
        "retry",
        "Retry",
        "What failed or waits for another try is tried now.",
        command=cm.RetryTasks,
        do=_retry,
        line=_of_run("retry"),
        objection=_nothing_failed,
        is_direct=True,
    ),
    _deed(
        "clear",
        "Run again",
        "Its ended tasks run again, with a fresh budget of retries. What runs is left alone.",
        command=cm.ClearTasks,
        do=_clear,
        line=_clear_line,
        objection=_nothing_ended,
        find=_find_clearable,
        form=Clearing,
        fields=_clear_fields,
    ),
    _deed(
        "move",
        "Move",
        "It is given another version of its workflow; what it has done is kept.",
        command=cm.MoveRun,
        do=_move,
        line=_move_line,
        objection=_not_deployed,
        form=Moving,
        fields=_version_field,
    ),
    note_deed(_deed),
    _deed(
        "cancel",
        "Cancel",
        "It ends, and everything in it is stopped.",
        command=cm.CancelRun,
        do=_cancel,
        line=_of_run("cancel"),
        objection=_ended,
        form=Reasoned,
        is_grave=True,
    ),
)
