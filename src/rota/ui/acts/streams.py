"""What may be done about a stream: it is asked of whoever runs it, who heeds it between two rounds."""

from collections.abc import Awaitable, Callable
from typing import Any

from rota.core.commands import SteerStream
from rota.ui.acts.acting import Deed, DeedsAbout, Doing, Done, Field, Offer, Sent, Subject, offers
from rota.ui.visits import Visit
from rota.ui.words import command, stream_url
from rota.wire.standings import StreamView
from rota.wire.wishes import NAME_BYTES_MAX

STREAM = "/streams/{stream}"
# How many rounds one may choose from, the newest first.
ROUNDS_OFFERED_MAX = 50


class Saving(Sent, frozen=True, kw_only=True):
    """What a savepoint is called, and whether the stream stops after it."""

    name: str = ""
    stop: str = ""


class Restoring(Sent, frozen=True, kw_only=True):
    """The round or the savepoint to go on from."""

    round: str = ""


def stream_offers(visit: Visit, view: StreamView) -> list[Offer]:
    """What may be done about a stream now."""
    return offers(visit, _subject(view), STREAM_DEEDS)


async def find_stream(visit: Visit) -> Subject:
    """The stream in the path."""
    return _subject(await visit.client.stream(visit.path["stream"]))


def _subject(view: StreamView) -> Subject:
    url = stream_url(view.name)
    standing = "paused" if view.paused else "not paused"
    return Subject(name=f"stream {view.name}", at=url, url=url, standing=standing, view=view)


def _wanted(subject: Subject) -> str:
    """Whoever asks for more knows what others have asked for and is not done yet."""
    wanted: tuple[str, ...] = subject.view.wanted
    return f"asked to {', '.join(wanted)}" if wanted else "asked for nothing"


async def _steer(doing: Doing, verb: str, which: str = "", *, stop: bool = False) -> None:
    await doing.ask(SteerStream, stream=doing.subject.view.name, verb=verb, which=which, stop=stop)


def _doing(verb: str, words: str) -> Callable[[Doing], Awaitable[Done]]:
    async def do(doing: Doing) -> Done:
        await _steer(doing, verb)
        return Done(f"{doing.subject.name} {words}.")

    return do


async def _save(doing: Doing) -> Done:
    form: Saving = doing.form
    name = form.name.strip()
    await _steer(doing, "savepoint", name, stop=form.stop == "stop")
    after = ", and stops then" if form.stop == "stop" else ""
    return Done(f"{doing.subject.name} is asked to keep its last round as {name}{after}.")


async def _restore(doing: Doing) -> Done:
    form: Restoring = doing.form
    await _steer(doing, "restore", form.round)
    return Done(f"{doing.subject.name} is asked to go on from {form.round}.")


async def _save_fields(visit: Visit, subject: Subject, form: Any) -> list[Field]:
    del visit, subject
    said = form if isinstance(form, Saving) else Saving()
    return [
        Field(
            name="name",
            label="Name",
            value=said.name,
            note="Letters, digits, - _ . It is kept until somebody removes its file.",
            is_required=True,
            chars_max=NAME_BYTES_MAX,
        ),
        Field(
            name="stop",
            label="And then",
            kind="select",
            value=said.stop,
            options=(("", "it goes on"), ("stop", "it stops")),
        ),
    ]


async def _restore_fields(visit: Visit, subject: Subject, form: Any) -> list[Field]:
    del visit
    view: StreamView = subject.view
    rounds = [str(each) for each in view.restorable[::-1][:ROUNDS_OFFERED_MAX]]
    options = (
        *((name, f"savepoint {name}") for name in view.savepoints),
        *((each, f"round {each}") for each in rounds),
    )
    said = form.round if isinstance(form, Restoring) else ""
    note = "What was published after it is made again."
    return [Field(name="round", label="Go on from", kind="select", value=said, options=options, note=note)]


def _line(verb: str) -> Callable[[Subject, Any], str]:
    return lambda subject, form: command("stream", verb, subject.view.name)  # noqa: ARG005 - one shape for all


def _save_line(subject: Subject, form: Any) -> str:
    said = form if isinstance(form, Saving) else Saving()
    stop = "--stop" if said.stop == "stop" else ""
    return command("stream", "savepoint", subject.view.name, said.name.strip() or "NAME", stop)


def _restore_line(subject: Subject, form: Any) -> str:
    said = form.round if isinstance(form, Restoring) else ""
    return command("stream", "restore", subject.view.name, said or "ROUND")


def _against_pausing(view: StreamView) -> str:
    return _against(view) or ("is paused already" if view.paused else "")


def _against_resuming(view: StreamView) -> str:
    return _against(view) or ("" if view.paused else "is not paused")


def _against_restoring(view: StreamView) -> str:
    return _against(view) or ("" if view.restorable or view.savepoints else "has no round to go on from")


def _against(view: StreamView) -> str:
    return "cannot be read" if view.state == "broken" else ""


_deed = DeedsAbout(STREAM, find_stream)
STREAM_DEEDS: tuple[Deed, ...] = (
    _deed(
        "pause",
        "Pause",
        "It stands still after its round, and reads nothing until it is resumed.",
        command=SteerStream,
        do=_doing("pause", "stands still after its round"),
        line=_line("pause"),
        objection=_against_pausing,
        is_direct=True,
    ),
    _deed(
        "resume",
        "Resume",
        "It goes on where it stands.",
        command=SteerStream,
        do=_doing("resume", "goes on"),
        line=_line("resume"),
        objection=_against_resuming,
        is_direct=True,
    ),
    _deed(
        "savepoint",
        "Savepoint",
        "Its last round is kept under a name, to go on from later.",
        command=SteerStream,
        do=_save,
        line=_save_line,
        objection=_against,
        standing=_wanted,
        form=Saving,
        fields=_save_fields,
    ),
    _deed(
        "restore",
        "Restore",
        "It goes on from an older round: files that were written for later ones are removed, rows of tables are "
        "written again, and what functions were told they are told again.",
        command=SteerStream,
        do=_restore,
        line=_restore_line,
        objection=_against_restoring,
        standing=_wanted,
        form=Restoring,
        fields=_restore_fields,
        is_grave=True,
    ),
)
