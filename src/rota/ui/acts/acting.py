"""Acting from a page: what may be done about something, how it is asked for, and what comes of it.

Every deed is a form that is sent to us and answered with another page. A form is taken only from a page that was made
for the same visitor (its seal), and done once however often it is sent (its key). It says how its subject stood when
the page was made: who decides about something that somebody else has changed meanwhile is told so, and nothing is done.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from hashlib import sha256
from hmac import compare_digest
from typing import Any, Required, TypedDict, Unpack

import msgspec
from msgspec import Struct
from starlette.responses import Response

from rota.client.runs import Client
from rota.core.commands import ClientCommand
from rota.core.errors import Refused
from rota.ui.reading import Kept
from rota.ui.rendering import Renderer
from rota.ui.visits import Page, Visit, go_to, show

DONE_KEPT_MAX = 2_000
_ONCE = re.compile(r"[0-9a-f]{32}")
_OF_EVERY_FORM = ("seal", "once", "seen")


class Sent(Struct, frozen=True, kw_only=True):
    """What every form has: whose it is, which page it is from, and how its subject stood then."""

    seal: str = ""
    once: str = ""
    seen: str = ""


class Reasoned(Sent, frozen=True, kw_only=True):
    """A form that asks why."""

    reason: str = ""


class Field(Struct, frozen=True, kw_only=True):
    """What is filled in. `param`: it is that parameter of a run, whose names and values are sent in two lists."""

    name: str
    label: str
    kind: str = "text"
    value: str = ""
    # What may be chosen: each value with its words.
    options: tuple[tuple[str, str], ...] = ()
    note: str = ""
    is_required: bool = False
    least: str = ""
    most: str = ""
    pattern: str = ""
    chars_max: int = 0
    param: str = ""


class Subject(Struct, frozen=True, kw_only=True):
    """Whom a deed is about, as they stand now. `at` is where deeds about them are sent, `url` their own page."""

    name: str
    at: str
    url: str
    standing: str
    # Of which kind the run is that they are, if they are one.
    kind: str = ""
    view: Any = None
    # What else to say before it is done, such as which tasks it concerns.
    details: tuple[str, ...] = ()


class Done(Struct, frozen=True):
    """What was done, the line that does the same, and where to go now; to the subject's page if nowhere is said."""

    text: str
    line: str = ""
    url: str = ""


class KeptDone(Struct, frozen=True):
    """What came of a form: whose it was, and how its subject stood then."""

    seal: str
    done: Done
    standing: str = ""


class Doing(Struct, frozen=True):
    """One deed while it is done, under a key that makes it happen once."""

    visit: Visit
    subject: Subject
    form: Any
    key: str

    @property
    def client(self) -> Client:
        """Who asks."""
        return self.visit.client

    async def ask(self, kind: Callable[..., ClientCommand], **fields: Any) -> Any:
        """Carry out a command."""
        return await self.client.ask(kind(tenant=self.client.line.tenant, command_id=self.key, **fields))


async def no_fields(visit: Visit, subject: Subject, form: Any) -> list[Field]:
    """Nothing is filled in."""
    del visit, subject, form
    return []


async def why_field(visit: Visit, subject: Subject, form: Any) -> list[Field]:
    """The reason, which the audit keeps."""
    del visit, subject
    said = form.reason if isinstance(form, Reasoned) else ""
    return [Field(name="reason", label="Why", value=said, note="Kept in the audit, and told to whoever asks.")]


def line_reason(form: Any) -> tuple[str, ...]:
    """The reason, as a command has it."""
    return ("--reason", form.reason) if isinstance(form, Reasoned) and form.reason else ()


def never(_: Any) -> str:
    """Nothing is against it."""
    return ""


class Deed(Struct, frozen=True, kw_only=True):
    """One thing that may be done about subjects of one sort.

    `objection` says what is against it as its subject stands, empty if nothing is. A `direct` one needs nothing filled
    in and undoes easily: its button does it. All others have a page that asks first.
    """

    name: str
    title: str
    # What its button says once more is asked; and what happens then, in a sentence.
    question: str
    path: str
    command: type
    find: Callable[[Visit], Awaitable[Subject]]
    do: Callable[[Doing], Awaitable[Done]]
    line: Callable[[Subject, Any], str]
    objection: Callable[[Any], str] = never
    standing: Callable[[Subject], str] = lambda subject: subject.standing
    form: type[Sent] = Sent
    form_bytes_max: int = 16 * 1024
    fields: Callable[[Visit, Subject, Any], Awaitable[list[Field]]] = no_fields
    is_direct: bool = False
    is_grave: bool = False


Find = Callable[[Visit], Awaitable[Subject]]


class DeedWords(TypedDict, total=False):
    """What is said of a deed; see there."""

    command: Required[type]
    do: Required["Do"]
    line: Required[Callable[[Subject, Any], str]]
    objection: Callable[[Any], str]
    standing: Callable[[Subject], str]
    form: type[Sent]
    form_bytes_max: int
    fields: Callable[[Visit, Subject, Any], Awaitable[list[Field]]]
    is_direct: bool
    is_grave: bool


class DeedsAbout:
    """Makes deeds about subjects of one sort: where they are, and how they are found unless a deed says otherwise."""

    def __init__(self, path: str, find: Find) -> None:
        self._path = path
        self._find = find

    def __call__(
        self, name: str, title: str, question: str, *, find: Find | None = None, **words: Unpack[DeedWords]
    ) -> Deed:
        """One of them. One whose form asks why, and nothing else, has the field for that."""
        path = f"{self._path}/{name}"
        if words.get("form") is Reasoned:
            words.setdefault("fields", why_field)
        return Deed(name=name, title=title, question=question, path=path, find=find or self._find, **words)


Do = Callable[[Doing], Awaitable[Done]]


def asks(kind: Callable[..., ClientCommand], said: str, **fields: Any) -> Do:
    """Ask for a command about a run, with its reason if the form asks why; `said` is what its subject does then."""

    async def do(doing: Doing) -> Done:
        reason = {"reason": doing.form.reason} if isinstance(doing.form, Reasoned) else {}
        await doing.ask(kind, run=doing.subject.view.id, **reason, **fields)
        return Done(f"{doing.subject.name} {said}.")

    return do


class Offer(Struct, frozen=True):
    """A button."""

    title: str
    url: str
    seen: str
    line: str
    is_direct: bool
    is_grave: bool
    seal: str


def offers(visit: Visit, subject: Subject, deeds: Iterable[Deed]) -> list[Offer]:
    """What this visitor may do about it now."""
    return [
        Offer(
            deed.title,
            f"{subject.at}/{deed.name}",
            deed.standing(subject),
            deed.line(subject, None),
            deed.is_direct,
            deed.is_grave,
            visit.rights.seal,
        )
        for deed in deeds
        if visit.rights.may(deed.command, subject.kind) and not deed.objection(subject.view)
    ]


def check_sent(visit: Visit, sent: Sent) -> None:
    """Refuse a form that is not from a page which was made for this visitor."""
    if not compare_digest(sent.seal.encode(), visit.rights.seal.encode()) or not _ONCE.fullmatch(sent.once):
        text = "this form is not from a page that was made for you, or from before the service was started again"
        raise Refused("http.form", text, "Look at the page again, and decide anew.", path="seal")


def check_may(visit: Visit, command: type, about: str = "") -> None:
    """Refuse what is not this visitor's to do, before they fill in anything."""
    if not visit.rights.may(command, about):
        who = visit.who or "this visitor"
        raise Refused("auth.role", f"{who} may look, and not do this", "Sign in with a token of another role.")


def key_of(visit: Visit, sent: Sent) -> str:
    """The id of the command that a form asks for: the same for the same form, however often it is sent."""
    said = {name: getattr(sent, name) for name in sent.__struct_fields__ if name not in _OF_EVERY_FORM}
    content = msgspec.json.encode([visit.url.partition("?")[0], said])
    return f"page-{sent.once}-{sha256(content).hexdigest()[:16]}"


class Acting:
    """Carries out deeds, and tells what came of them on the page after."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._done: Kept[str, KeptDone] = Kept(DONE_KEPT_MAX)

    def pages(self, deeds: Sequence[Deed]) -> tuple[Page, ...]:
        """Where deeds are asked about, and done."""
        found: list[Page] = []
        for deed in deeds:
            ask, act = self._asking(deed), self._acting(deed)
            found += (
                Page(path=deed.path, serve=ask, summary=f"Ask before: {deed.title}"),
                Page(
                    path=deed.path,
                    method="POST",
                    serve=act,
                    summary=deed.title,
                    form=deed.form,
                    form_bytes_max=deed.form_bytes_max,
                ),
            )
        return tuple(found)

    def told(self, visit: Visit) -> Done | None:
        """What this visitor did on the page before, if it is to be told here."""
        found = self._done.get(visit.rights.said) if visit.rights.said else None
        return found.done if found is not None and found.seal == visit.rights.seal else None

    def known(self, visit: Visit, key: str) -> KeptDone | None:
        """What came of a form that was sent before."""
        found = self._done.get(key)
        return found if found is not None and found.seal == visit.rights.seal else None

    def keep(self, visit: Visit, key: str, done: Done, standing: str = "") -> Response:
        """Go on, where it is told what was done; `standing` is how its subject stood after that."""
        self._done.put(key, KeptDone(visit.rights.seal, done, standing))
        return go_to(done.url, visit.rights.say(key))

    def _asking(self, deed: Deed) -> Callable[[Visit], Awaitable[Response]]:
        async def ask(visit: Visit) -> Response:
            subject = await deed.find(visit)
            check_may(visit, deed.command, subject.kind)
            refused = _objection(deed, subject)
            return await self._show(visit, deed, subject, None, refused)

        return ask

    def _acting(self, deed: Deed) -> Callable[[Visit], Awaitable[Response]]:
        async def act(visit: Visit) -> Response:
            check_sent(visit, visit.form)
            key = key_of(visit, visit.form)
            known = self.known(visit, key)
            if known is not None and not await _went_back(deed, visit, known):
                return self.keep(visit, key, known.done, known.standing)
            subject = await deed.find(visit)
            check_may(visit, deed.command, subject.kind)
            try:
                if known is not None:
                    text = f"{subject.name} is {deed.standing(subject)} again: this was done, and undone since"
                    raise Refused("command.stale", text, "Look again, and decide anew.")
                _check_stands(deed, subject, visit.form)
                done = await deed.do(Doing(visit, subject, visit.form, key))
            except Refused as refused:
                if refused.code.startswith("auth."):
                    raise
                return await self._show(visit, deed, subject, visit.form, refused)
            line = done.line or deed.line(subject, visit.form)
            told = Done(done.text, line, done.url or subject.url)
            return self.keep(visit, key, told, await _standing(deed, visit))

        return act

    async def _show(self, visit: Visit, deed: Deed, subject: Subject, form: Any, refused: Refused | None) -> Response:
        is_over = refused is not None and (bool(deed.objection(subject.view)) or refused.code == "command.stale")
        given = {
            "visit": visit,
            "live": "",
            "deed": deed,
            "subject": subject,
            "seen": deed.standing(subject),
            "line": deed.line(subject, form),
            "refused": refused,
            # Somebody was faster: there is nothing to fill in any more.
            "is_over": is_over,
            "fields": [] if is_over else await deed.fields(visit, subject, form),
        }
        status = 200 if refused is None else visit.rights.status_of(refused)
        return show(self._renderer.render("act.html", given), status)


async def _standing(deed: Deed, visit: Visit) -> str:
    """How the subject of a deed stands; nothing if it is gone."""
    try:
        return deed.standing(await deed.find(visit))
    except Refused:
        return ""


async def _went_back(deed: Deed, visit: Visit, known: KeptDone) -> bool:
    """Whether a form that was carried out is sent once more when its subject is as it was before that."""
    seen: str = visit.form.seen
    return bool(known.standing) and known.standing != seen and await _standing(deed, visit) == seen


def _objection(deed: Deed, subject: Subject) -> Refused | None:
    against = deed.objection(subject.view)
    if not against:
        return None
    return Refused("command.stale", f"{subject.name} {against}", "Look at it again, and decide anew.")


def _check_stands(deed: Deed, subject: Subject, form: Sent) -> None:
    """Refuse to do what somebody decided about something that is not as they saw it."""
    refused = _objection(deed, subject)
    if refused is not None:
        raise refused
    now = deed.standing(subject)
    if form.seen != now:
        was = f"was {form.seen[:100]} when you looked" if form.seen else "the form does not say how it was"
        text = f"{subject.name} is {now} now, and {was}"
        raise Refused("command.stale", text, "Somebody or something else was faster. Look again, and decide anew.")
