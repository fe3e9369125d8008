"""What somebody has to say about a run or a task: one form for both."""

from hashlib import sha256
from typing import Any

from rota.core import commands as cm
from rota.core.bounds import LABEL_CHARS_MAX, NOTE_CHARS_MAX
from rota.core.model import NOTE
from rota.core.questions import RunView, TaskView
from rota.ui.acts.acting import Deed, DeedsAbout, Doing, Done, Field, Sent, Subject
from rota.ui.visits import Visit
from rota.ui.words import command


class Noting(Sent, frozen=True, kw_only=True):
    """What is said."""

    note: str = ""


def note_deed(about: DeedsAbout) -> Deed:
    """Say something about subjects of this sort."""
    return about(
        "note",
        "Note",
        "It is shown to whoever looks.",
        command=cm.NoteTask,
        do=_note,
        line=_line,
        standing=_standing,
        form=Noting,
        fields=_fields,
    )


def _place(subject: Subject) -> tuple[str, str]:
    """The run, and the task if it is about one."""
    view: RunView | TaskView = subject.view
    return (view.run, view.id) if isinstance(view, TaskView) else (view.id, "")


def _said(subject: Subject) -> str:
    view: RunView | TaskView = subject.view
    return view.note if isinstance(view, TaskView) else dict(view.labels).get(NOTE, "")


async def _note(doing: Doing) -> Done:
    run, task = _place(doing.subject)
    await doing.ask(cm.NoteTask, run=run, task=task, note=doing.form.note.strip())
    return Done(f"Noted on {doing.subject.name}.")


async def _fields(visit: Visit, subject: Subject, form: Any) -> list[Field]:
    del visit
    said = form.note if isinstance(form, Noting) else _said(subject)
    most = NOTE_CHARS_MAX if _place(subject)[1] else LABEL_CHARS_MAX
    note = "An empty one takes the note away."
    return [Field(name="note", label="Note", kind="textarea", value=said, note=note, chars_max=most)]


def _standing(subject: Subject) -> str:
    """Whoever writes over a note has read it."""
    said = _said(subject)
    return f"noted ({sha256(said.encode()).hexdigest()[:8]})" if said else "without a note"


def _line(subject: Subject, form: Any) -> str:
    said = form.note if isinstance(form, Noting) else "…"
    # An empty word is left out of a line, and has to be seen in this one.
    return f"{command('note', *_place(subject))} {command(said or chr(39) * 2).partition(' ')[2]}"
