"""Signing in with a token, and out."""

import re

from msgspec import Struct
from starlette.responses import Response

from rota.core.errors import Refused
from rota.ui.rendering import Renderer
from rota.ui.visits import Page, Visit, go_to, show

# On this host, and nowhere else.
_HERE = re.compile(r"/(?![/\\])[!-~]*")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")


class Aim(Struct, frozen=True, kw_only=True):
    """Where to go afterwards."""

    next: str = ""


class SignIn(Struct, frozen=True, kw_only=True):
    """What the form sends."""

    token: str = ""
    next: str = ""


class Empty(Struct, frozen=True):
    """A form with nothing to fill in."""


class SigningPages:
    """The form, and what comes of it."""

    def __init__(self, renderer: Renderer, *, is_open: bool) -> None:
        """`is_open`: nobody is asked for a token."""
        self._renderer = renderer
        self._is_open = is_open

    def pages(self) -> tuple[Page, ...]:
        """Where they are."""
        return (
            Page(path="/sign-in", serve=self.ask, summary="Ask for a token", query=Aim, is_public=True),
            Page(
                path="/sign-in",
                method="POST",
                serve=self.sign_in,
                summary="Take a token",
                form=SignIn,
                is_public=True,
            ),
            Page(
                path="/sign-out",
                method="POST",
                serve=self.sign_out,
                summary="Forget the token",
                form=Empty,
                is_public=True,
            ),
        )

    async def ask(self, visit: Visit) -> Response:
        """The form."""
        if self._is_open:
            return go_to("/")
        return self._form(visit.query.next)

    async def sign_in(self, visit: Visit) -> Response:
        """Let them in, or say why not."""
        form: SignIn = visit.form
        token = form.token.strip()
        try:
            if not _TOKEN.fullmatch(token):
                raise Refused("auth.wrong", "this is not a token", "Paste it whole, and nothing else.")
            headers = visit.sign_in(token)
        except Refused as refused:
            return self._form(form.next, refused)
        return go_to(aim(form.next), headers)

    async def sign_out(self, visit: Visit) -> Response:
        """Forget who it was."""
        return go_to("/sign-in", visit.sign_out())

    def _form(self, wanted: str, refused: Refused | None = None) -> Response:
        given = {"next": aim(wanted), "refused": refused, "live": "", "is_inside": False}
        return show(self._renderer.render("sign_in.html", given), 200 if refused is None else 403)


def aim(wanted: str) -> str:
    """Where to go afterwards; home if that would lead elsewhere."""
    return wanted if _HERE.fullmatch(wanted) else "/"
