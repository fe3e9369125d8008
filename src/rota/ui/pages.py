"""All pages: the table of them, and what is shown where there is trouble instead."""

from typing import Protocol
from urllib.parse import urlencode

from starlette.responses import Response

from rota.ui.assets import STATIC, Assets
from rota.ui.reading import Memory
from rota.ui.rendering import Renderer
from rota.ui.run import RunPages
from rota.ui.runs import RunsPages
from rota.ui.signing import SigningPages
from rota.ui.task import TaskPages
from rota.ui.visits import Page, go_to, show

UNAUTHORIZED = 401


class Trouble(Protocol):
    """What went wrong, as a service tells it; `leader` is where to ask instead, if that is known."""

    @property
    def status(self) -> int: ...
    @property
    def title(self) -> str: ...
    @property
    def detail(self) -> str: ...
    @property
    def code(self) -> str: ...
    @property
    def hint(self) -> str: ...
    @property
    def leader(self) -> str: ...
    @property
    def retry_after_ms(self) -> int: ...


class Pages:
    """Everything that is shown. `is_open`: nobody is asked for a token."""

    def __init__(self, *, version: str, is_open: bool) -> None:
        assets = Assets()
        memory = Memory()
        self._renderer = renderer = Renderer(assets, version)
        self.pages: tuple[Page, ...] = (
            *RunsPages(renderer, memory).pages(),
            *RunPages(renderer, memory).pages(),
            *TaskPages(renderer, memory).pages(),
            *SigningPages(renderer, is_open=is_open).pages(),
            Page(path=f"{STATIC}/{{file}}", serve=assets.serve, summary="Scripts, styles, icons", is_public=True),
        )

    def show_trouble(self, trouble: Trouble, url: str) -> Response:
        """A page for whoever asked for something that cannot be shown; who is not known yet is asked to sign in."""
        if trouble.status == UNAUTHORIZED:
            return go_to(f"/sign-in?{urlencode({'next': url})}")
        headers = {"Retry-After": str(-(-trouble.retry_after_ms // 1000))} if trouble.retry_after_ms else {}
        given = {"trouble": trouble, "url": url, "live": ""}
        return show(self._renderer.render("trouble.html", given), trouble.status, headers)
