"""What may be done about work for agents: one item, a session, or all that is claimed."""

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from rota.client.items import Item
from rota.client.scheduling import scope_of
from rota.core import commands as cm
from rota.core.backlog import SchedulerView
from rota.core.errors import Refused
from rota.core.model import Approval
from rota.core.states import ASSIGNED, BAD, NEEDS_ATTENTION, RUNNING, TERMINAL, UP_FOR_RETRY
from rota.ui.acts.acting import (
    Deed,
    DeedsAbout,
    Doing,
    Done,
    Field,
    Offer,
    Reasoned,
    Sent,
    Subject,
    line_reason,
    offers,
    why_field,
)
from rota.ui.visits import Visit
from rota.ui.words import command, run_url
from rota.wire.items import ItemView, ResolveWork

ITEM = "/items/{item}"
SCHEDULER = "/scheduler"
WORK_URL = "/work"
_HELD = (str(ASSIGNED), str(RUNNING))


class Requeueing(Sent, frozen=True, kw_only=True):
    """What a parked item asks for from now on."""

    requires: str = ""
    prefers: str = ""
    channel: str = ""
    owner: str = ""


class Pausing(Reasoned, frozen=True, kw_only=True):
    """What is paused: one workspace, or everything."""

    workspace: str = ""


class Resuming(Sent, frozen=True, kw_only=True):
    """What goes on."""

    workspace: str = ""


def item_offers(visit: Visit, view: ItemView) -> list[Offer]:
    """What may be done about an item now."""
    return offers(visit, _subject(view), ITEM_DEEDS)


def scheduler_offers(visit: Visit, view: SchedulerView, *others: Deed) -> list[Offer]:
    """What may be done about all work that is claimed."""
    return offers(visit, _scheduler_subject(view), (*others, *SCHEDULER_DEEDS))


def _subject(view: ItemView) -> Subject:
    standing = f"{view.state}, attempt {view.attempt}{', paused' if view.paused else ''}"
    if view.approval is Approval.PENDING:
        standing += ", not approved"
    at = f"/items/{quote(view.item, safe='')}"
    return Subject(name=f"item {view.item}", at=at, url=run_url(view.item), standing=standing, view=view)


async def find_item(visit: Visit) -> Subject:
    """The item in the path."""
    return _subject(await visit.client.item(visit.path["item"]).status())


def _scheduler_subject(view: SchedulerView) -> Subject:
    standing = "paused" if view.pauses else "not paused"
    return Subject(name="work that is claimed", at=SCHEDULER, url=WORK_URL, standing=standing, view=view)


async def find_scheduler(visit: Visit) -> Subject:
    """All of it."""
    return _scheduler_subject(await visit.client.scheduler())


# What stands against a deed.


def _ended(view: ItemView) -> str:
    return f"has ended already, as {view.state}" if view.state in TERMINAL else ""


def _not_asked(view: ItemView) -> str:
    return _ended(view) or ("" if view.approval is Approval.PENDING else "does not wait for approval")


def _not_held(view: ItemView) -> str:
    return "" if view.state in _HELD else "is held by nobody"


def _not_failed(view: ItemView) -> str:
    is_one = view.state in (*BAD, UP_FOR_RETRY) and bool(view.eligible_at)
    return "" if is_one else f"is {view.state}, and neither failed nor waits for another try"


def _not_parked(view: ItemView) -> str:
    return "" if view.state == NEEDS_ATTENTION else f"is {view.state}, and does not wait for attention"


def _paused(view: ItemView) -> str:
    return _ended(view) or ("is paused already" if view.paused else "")


def _not_paused(view: ItemView) -> str:
    return _ended(view) or ("" if view.paused else "is not paused")


# What is done: as `rota work` does it.

Verb = Callable[[Item, Any, str], Awaitable[None]]


def _doing(verb: Verb, said: str) -> Callable[[Doing], Awaitable[Done]]:
    async def do(doing: Doing) -> Done:
        await verb(doing.client.item(doing.subject.view.item), doing.form, doing.key)
        return Done(f"{doing.subject.name} {said}.")

    return do


async def _fail(doing: Doing) -> Done:
    await doing.client.item(doing.subject.view.item).fail(doing.form.reason, key=doing.key)
    return Done(f"{doing.subject.name} has failed.")


async def _requeue(doing: Doing) -> Done:
    form: Requeueing = doing.form
    await doing.client.item(doing.subject.view.item).requeue(
        key=doing.key,
        requires=names_in(form.requires),
        prefers=names_in(form.prefers),
        channel=form.channel.strip(),
        owner=form.owner.strip(),
    )
    return Done(f"{doing.subject.name} waits for a session again.")


async def _pause_all(doing: Doing) -> Done:
    form: Pausing = doing.form
    where = form.workspace.strip()
    await doing.ask(cm.PauseScheduler, scope=scope_of(where), paused=True, reason=form.reason)
    return Done(f"Nobody claims work {f'of workspace {where}' if where else 'any more'}; who has some goes on.")


async def _resume_all(doing: Doing) -> Done:
    where = doing.form.workspace.strip()
    view: SchedulerView = doing.subject.view
    if scope_of(where) not in [pause.scope for pause in view.pauses]:
        text = f"workspace {where} is not paused" if where else "not everything is paused"
        raise Refused("command.stale", text, "Look at it again, and decide anew.")
    await doing.ask(cm.PauseScheduler, scope=scope_of(where), paused=False)
    return Done(f"Work {f'of workspace {where} ' if where else ''}is claimed again.")


def names_in(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


# What is filled in, and the lines that say the same.


async def _needed_why(visit: Visit, subject: Subject, form: Any) -> list[Field]:
    (field,) = await why_field(visit, subject, form)
    return [Field(name=field.name, label=field.label, value=field.value, note=field.note, is_required=True)]


def _asked_of(subject: Subject, form: Any) -> Requeueing:
    view: ItemView = subject.view
    if isinstance(form, Requeueing):
        return form
    requires, prefers = ", ".join(view.requires), ", ".join(view.prefers)
    return Requeueing(requires=requires, prefers=prefers, channel=view.channel, owner=view.owner)


async def _requeue_fields(visit: Visit, subject: Subject, form: Any) -> list[Field]:
    del visit
    said = _asked_of(subject, form)
    return [
        Field(name="requires", label="Capabilities it cannot do without", value=said.requires, note="With commas."),
        Field(name="prefers", label="Capabilities that are welcome", value=said.prefers, note="With commas."),
        Field(name="channel", label="Channel", value=said.channel),
        Field(name="owner", label="Owner", value=said.owner, note="pool:AGENT, session:ID, or nothing."),
    ]


async def _pause_fields(visit: Visit, subject: Subject, form: Any) -> list[Field]:
    said = form.workspace if isinstance(form, Pausing) else ""
    where = Field(name="workspace", label="Workspace", value=said, note="Empty: all of them.")
    return [where, *await why_field(visit, subject, form)]


async def _resume_fields(visit: Visit, subject: Subject, form: Any) -> list[Field]:
    del visit, form
    view: SchedulerView = subject.view
    scopes = [pause.scope.removeprefix("workspace=") for pause in view.pauses]
    options = tuple((scope, scope or "all of them") for scope in scopes)
    return [Field(name="workspace", label="Workspace", kind="select", options=options)]


def _of_item(verb: str) -> Callable[[Subject, Any], str]:
    return lambda subject, form: command("work", verb, subject.view.item, *line_reason(form))


def _requeue_line(subject: Subject, form: Any) -> str:
    now, said = _asked_of(subject, None), _asked_of(subject, form)
    words = [
        word
        for name in ("requires", "prefers", "channel", "owner")
        if getattr(said, name) != getattr(now, name)
        for word in (f"--{name}={getattr(said, name).replace(', ', ',')}",)
    ]
    return command("work", "requeue", subject.view.item, *words)


def _of_scheduler(verb: str) -> Callable[[Subject, Any], str]:
    def line(subject: Subject, form: Any) -> str:
        del subject
        where = form.workspace.strip() if isinstance(form, Pausing | Resuming) else ""
        return command("scheduler", verb, *(("--workspace", where) if where else ()), *line_reason(form))

    return line


_deed = DeedsAbout(ITEM, find_item)
ITEM_DEEDS: tuple[Deed, ...] = (
    _deed(
        "approve",
        "Approve",
        "It may be claimed.",
        command=cm.ApproveRun,
        do=_doing(lambda item, form, key: item.approve(form.reason, key=key), "was approved"),
        line=_of_item("approve"),
        objection=_not_asked,
        form=Reasoned,
    ),
    _deed(
        "reject",
        "Reject",
        "It ends, and fails.",
        command=cm.ApproveRun,
        do=_doing(lambda item, form, key: item.reject(form.reason, key=key), "was rejected"),
        line=_of_item("reject"),
        objection=_not_asked,
        form=Reasoned,
        is_grave=True,
    ),
    _deed(
        "requeue",
        "Requeue",
        "It waits for a session again, at no cost, with what it asks for below.",
        command=ResolveWork,
        do=_requeue,
        line=_requeue_line,
        objection=_not_parked,
        form=Requeueing,
        fields=_requeue_fields,
    ),
    _deed(
        "retry",
        "Retry",
        "It is tried now, with a fresh budget if it has failed.",
        command=cm.RetryTasks,
        do=_doing(lambda item, form, key: item.retry(key=key), "is tried again"),  # noqa: ARG005 - one shape
        line=_of_item("retry"),
        objection=_not_failed,
        is_direct=True,
    ),
    _deed(
        "pause",
        "Pause",
        "Nobody may claim it; whoever has it goes on.",
        command=cm.PauseRun,
        do=_doing(lambda item, form, key: item.pause(key=key), "is paused"),  # noqa: ARG005 - one shape
        line=_of_item("pause"),
        objection=_paused,
        is_direct=True,
    ),
    _deed(
        "resume",
        "Resume",
        "It may be claimed again.",
        command=cm.PauseRun,
        do=_doing(lambda item, form, key: item.resume(key=key), "may be claimed again"),  # noqa: ARG005 - one shape
        line=_of_item("resume"),
        objection=_not_paused,
        is_direct=True,
    ),
    _deed(
        "release",
        "Take back",
        "It is taken from whoever has it, at no cost, and others may claim it.",
        command=cm.ReleaseTasks,
        do=_doing(lambda item, form, key: item.release(form.reason, key=key), "was taken back"),
        line=_of_item("release"),
        objection=_not_held,
        form=Reasoned,
        is_grave=True,
    ),
    _deed(
        "fail",
        "Fail",
        "It has failed, whatever it is doing.",
        command=cm.MarkTasks,
        do=_fail,
        line=_of_item("fail"),
        objection=_ended,
        form=Reasoned,
        fields=_needed_why,
        is_grave=True,
    ),
    _deed(
        "cancel",
        "Cancel",
        "It ends, wherever it is.",
        command=cm.CancelRun,
        do=_doing(
            lambda item, form, key: item.cancel(form.reason or "cancelled on request", key=key), "is being cancelled"
        ),
        line=_of_item("cancel"),
        objection=_ended,
        form=Reasoned,
        is_grave=True,
    ),
)
_deed = DeedsAbout(SCHEDULER, find_scheduler)
SCHEDULER_DEEDS: tuple[Deed, ...] = (
    _deed(
        "pause",
        "Pause claims",
        "Nobody may claim or is woken, in one workspace or anywhere. Whoever has something goes on.",
        command=cm.PauseScheduler,
        do=_pause_all,
        line=_of_scheduler("pause"),
        standing=lambda subject: "",  # noqa: ARG005 - another pause does not matter
        form=Pausing,
        fields=_pause_fields,
        is_grave=True,
    ),
    _deed(
        "resume",
        "Resume claims",
        "Claims and wakes go on.",
        command=cm.PauseScheduler,
        do=_resume_all,
        line=_of_scheduler("resume"),
        objection=lambda view: "" if view.pauses else "is not paused",
        form=Resuming,
        fields=_resume_fields,
    ),
)
