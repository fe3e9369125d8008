"""Making a work item from a page, as `rota work submit` does."""

import json
from typing import Any

from rota.client.given import new_id
from rota.client.sessions import priority_of
from rota.core.errors import Refused
from rota.ui.acts.acting import DeedsAbout, Doing, Done, Field, Sent, Subject
from rota.ui.acts.items import SCHEDULER, find_scheduler, names_in
from rota.ui.visits import Visit
from rota.ui.words import command, run_url
from rota.wire.items import (
    ATTEMPTS,
    ATTEMPTS_MAX,
    PAYLOAD_BYTES_MAX,
    TITLE_CHARS_MAX,
    WORK,
    ApprovalPolicy,
    Priority,
    SubmitWork,
    WorkItem,
    pack_plain,
)

_NAMES = "With commas between them."


class Submitting(Sent, frozen=True, kw_only=True):
    """What somebody wants done."""

    title: str = ""
    payload: str = ""
    requires: str = ""
    prefers: str = ""
    workspace: str = ""
    channel: str = ""
    owner: str = ""
    priority: str = Priority.MEDIUM
    approval: str = ApprovalPolicy.NONE
    max_attempts: int = ATTEMPTS


async def _submit(doing: Doing) -> Done:
    form: Submitting = doing.form
    if form.approval not in list(ApprovalPolicy):
        raise Refused("field.value", f"{form.approval!r} is no policy of approval", path="approval")
    work = WorkItem(
        title=form.title.strip(),
        payload=pack_plain(_payload(form.payload), "payload"),
        requires=names_in(form.requires),
        prefers=names_in(form.prefers),
        priority=priority_of(form.priority),
        workspace=form.workspace.strip(),
        channel=form.channel.strip(),
        owner=form.owner.strip(),
        approval=ApprovalPolicy(form.approval),
        max_attempts=form.max_attempts,
        labels=(("by", doing.visit.who),) if doing.visit.who else (),
    )
    item = new_id(WORK, doing.key)
    tenant = doing.client.line.tenant
    made = await doing.client.ask(SubmitWork(tenant=tenant, command_id=doing.key, item=item, work=work))
    return Done(f"Item {made} was made.", url=run_url(made))


def _payload(text: str) -> Any:
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise Refused("field.value", f"the payload is not JSON: {error}", "Write JSON, or nothing.") from None


async def _fields(visit: Visit, subject: Subject, form: Any) -> list[Field]:
    del visit, subject
    said = form if isinstance(form, Submitting) else Submitting()
    urgency = tuple((str(each), str(each)) for each in Priority)
    approval = ((ApprovalPolicy.NONE.value, "nobody"), (ApprovalPolicy.MANUAL.value, "a person"))
    most = str(said.max_attempts)
    return [
        Field(name="title", label="Title", value=said.title, is_required=True, chars_max=TITLE_CHARS_MAX),
        Field(name="payload", label="Payload", kind="textarea", value=said.payload, note="JSON, or nothing."),
        Field(name="requires", label="Capabilities it cannot do without", value=said.requires, note=_NAMES),
        Field(name="prefers", label="Capabilities that are welcome", value=said.prefers, note=_NAMES),
        Field(name="workspace", label="Workspace", value=said.workspace),
        Field(name="channel", label="Channel", value=said.channel),
        Field(name="owner", label="Owner", value=said.owner, note="pool:AGENT, session:ID, or nothing."),
        Field(name="priority", label="Priority", kind="select", value=str(said.priority), options=urgency),
        Field(name="approval", label="Approved by", kind="select", value=str(said.approval), options=approval),
        Field(name="max_attempts", label="Attempts", kind="number", value=most, least="1", most=str(ATTEMPTS_MAX)),
    ]


def _line(subject: Subject, form: Any) -> str:
    del subject
    if not isinstance(form, Submitting):
        return "rota work submit TITLE"
    usual = Submitting()
    words: list[str] = []
    for name in form.__struct_fields__:
        value = getattr(form, name)
        if name not in ("seal", "once", "seen", "title") and value != getattr(usual, name):
            words += (f"--{name.replace('_', '-')}", str(value))
    return command("work", "submit", form.title, *words)


_deed = DeedsAbout(SCHEDULER, find_scheduler)
SUBMIT_DEED = _deed(
    "submit",
    "Submit work",
    "Sessions that could have it are told, and one of them claims it.",
    command=SubmitWork,
    do=_submit,
    line=_line,
    # Whatever else was paused or asked for meanwhile.
    standing=lambda subject: "",  # noqa: ARG005 - one shape for all
    form=Submitting,
    form_bytes_max=4 * PAYLOAD_BYTES_MAX,
    fields=_fields,
)
