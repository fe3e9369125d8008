"""What may be done about a task: run it again, say what it came to, note something, let it out of attention."""

from collections.abc import Awaitable, Callable
from typing import Any

from rota.core import commands as cm
from rota.core.errors import Refused
from rota.core.questions import RunView, TaskView
from rota.core.states import LEASED, NEEDS_ATTENTION, TERMINAL
from rota.ui.acts.acting import DeedsAbout, Doing, Done, Field, Offer, Reasoned, Subject, offers, why_field
from rota.ui.acts.notes import note_deed
from rota.ui.acts.runs import AGAIN, NO_YES, Clearing, failed_field, with_preview
from rota.ui.visits import Visit
from rota.ui.words import command, task_url

PATH = "/runs/{run}/tasks/{task}"


class Marking(Reasoned, frozen=True, kw_only=True):
    """What a task came to."""

    to: str = cm.Mark.SUCCESS


def task_offers(visit: Visit, view: RunView, task: TaskView) -> list[Offer]:
    """What may be done about a task now."""
    return offers(visit, _subject(view, task), TASK_DEEDS)


def _subject(view: RunView, task: TaskView) -> Subject:
    url = task_url(view.id, task.id)
    word = str(task.state)
    if task.state in LEASED:
        word = "at work"
    elif task.state not in TERMINAL and task.state is not NEEDS_ATTENTION:
        word = "waiting"
    name = f"task {task.id} of run {view.id}"
    return Subject(name=name, at=url, url=url, standing=f"{word}, attempt {task.attempt}", view=task)


async def find_task(visit: Visit) -> Subject:
    """The task in the path."""
    run = visit.client.run(visit.path["run"])
    return _subject(await run.status(), await run.task(visit.path["task"]))


async def _find_clearable(visit: Visit) -> Subject:
    return await with_preview(visit, await find_task(visit), visit.path["task"])


# What stands against a deed.


def _task_not_failed(task: TaskView) -> str:
    return "" if task.state in AGAIN else f"is {task.state}, and neither failed nor waits for another try"


def _task_not_ended(task: TaskView) -> str:
    return "" if task.state in TERMINAL else f"is {task.state}, and has not ended"


def _not_parked(task: TaskView) -> str:
    return "" if task.state is NEEDS_ATTENTION else f"is {task.state}, and does not wait for attention"


# What is done.


async def _retry_task(doing: Doing) -> Done:
    task: TaskView = doing.subject.view
    await doing.ask(cm.RetryTasks, run=task.run, tasks=(task.id,))
    return Done(f"{doing.subject.name} is tried again.")


async def _mark(doing: Doing) -> Done:
    task: TaskView = doing.subject.view
    form: Marking = doing.form
    if form.to not in list(cm.Mark):
        raise Refused("field.value", f"a task cannot be marked as {form.to!r}", f"Use one of {', '.join(cm.Mark)}.")
    await doing.ask(cm.MarkTasks, run=task.run, tasks=(task.id,), to=cm.Mark(form.to), reason=form.reason)
    return Done(f"{doing.subject.name} was marked as {form.to}.")


def _leave(way_out: cm.Exit, said: str) -> Callable[[Doing], Awaitable[Done]]:
    async def leave(doing: Doing) -> Done:
        task: TaskView = doing.subject.view
        await doing.ask(cm.ResolveTask, run=task.run, task=task.id, exit=way_out)
        return Done(f"{doing.subject.name} {said}.")

    return leave


async def _clear(doing: Doing) -> Done:
    task: TaskView = doing.subject.view
    form: Clearing = doing.form
    is_only = form.downstream == "no"
    await doing.ask(
        cm.ClearTasks, run=task.run, tasks=(task.id,), downstream=not is_only, only_failed=form.only_failed == "yes"
    )
    return Done(f"{doing.subject.name} runs again.")


# What is filled in, and the lines that say the same.


async def _clear_fields(visit: Visit, subject: Subject, form: Any) -> list[Field]:
    del visit, subject
    said = form.downstream if isinstance(form, Clearing) else "yes"
    label = "With what comes after it"
    after = Field(name="downstream", label=label, kind="select", value=said, options=NO_YES[::-1])
    return [after, failed_field(form)]


async def _mark_fields(visit: Visit, subject: Subject, form: Any) -> list[Field]:
    said = form.to if isinstance(form, Marking) else cm.Mark.SUCCESS
    options = tuple((str(mark), str(mark)) for mark in cm.Mark)
    came = Field(name="to", label="It came to", kind="select", value=str(said), options=options)
    return [came, *await why_field(visit, subject, form)]


def _of_task(*words: str) -> Any:
    def line(subject: Subject, form: Any) -> str:
        del form
        task: TaskView = subject.view
        verb, *options = words
        return command(verb, task.run, task.id, *options)

    return line


def _clear_line(subject: Subject, form: Any) -> str:
    said = form if isinstance(form, Clearing) else Clearing()
    options = ["--only"] if said.downstream == "no" else []
    options += ["--failed"] if said.only_failed == "yes" else []
    return command("clear", subject.view.run, subject.view.id, *options)


def _mark_line(subject: Subject, form: Any) -> str:
    to = form.to if isinstance(form, Marking) else cm.Mark.SUCCESS
    return command("mark", subject.view.run, subject.view.id, f"--{to}")


_deed = DeedsAbout(PATH, find_task)
TASK_DEEDS = (
    _deed(
        "requeue",
        "Requeue",
        "It waits for a worker again, at no cost.",
        command=cm.ResolveTask,
        do=_leave(cm.Exit.REQUEUE, "waits for a worker again"),
        line=_of_task("resolve", "--requeue"),
        objection=_not_parked,
        is_direct=True,
    ),
    _deed(
        "fail",
        "Fail",
        "It has failed, and what depends on it is judged.",
        command=cm.ResolveTask,
        do=_leave(cm.Exit.FAIL, "has failed"),
        line=_of_task("resolve", "--fail"),
        objection=_not_parked,
        is_grave=True,
    ),
    _deed(
        "cancel",
        "Cancel",
        "It is cancelled, which counts as failed for what depends on it.",
        command=cm.ResolveTask,
        do=_leave(cm.Exit.CANCEL, "was cancelled"),
        line=_of_task("resolve", "--cancel"),
        objection=_not_parked,
        is_grave=True,
    ),
    _deed(
        "retry",
        "Retry",
        "It is tried now, with what failed because of it.",
        command=cm.RetryTasks,
        do=_retry_task,
        line=_of_task("retry"),
        objection=_task_not_failed,
        is_direct=True,
    ),
    _deed(
        "clear",
        "Run again",
        "It runs again, with a fresh budget of retries, and so does what comes after it.",
        command=cm.ClearTasks,
        do=_clear,
        line=_clear_line,
        objection=_task_not_ended,
        find=_find_clearable,
        form=Clearing,
        fields=_clear_fields,
    ),
    _deed(
        "mark",
        "Mark",
        "It counts as what you say, whatever it is doing; what depends on it is judged again.",
        command=cm.MarkTasks,
        do=_mark,
        line=_mark_line,
        form=Marking,
        fields=_mark_fields,
    ),
    note_deed(_deed),
)
