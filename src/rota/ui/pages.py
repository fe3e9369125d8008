"""All pages: the table of them, and what is shown where there is trouble instead."""

from collections.abc import Mapping
from typing import Protocol
from urllib.parse import unquote, urlencode

from starlette.responses import Response

from rota.ui.acts.acting import Acting
from rota.ui.acts.fleet import POOL_DEEDS, WORKER_DEEDS
from rota.ui.acts.items import ITEM_DEEDS, SCHEDULER_DEEDS
from rota.ui.acts.runs import RUN_DEEDS
from rota.ui.acts.streams import STREAM_DEEDS
from rota.ui.acts.submitting import SUBMIT_DEED
from rota.ui.acts.tasks import TASK_DEEDS
from rota.ui.acts.workflows import BACKFILL_DEEDS, WORKFLOW_DEEDS
from rota.ui.assets import STATIC, Assets
from rota.ui.home import HomePages
from rota.ui.lists.audit import AUDIT
from rota.ui.lists.builds import Builds
from rota.ui.lists.queries import Queries
from rota.ui.lists.queues import DEFINE, QUEUES
from rota.ui.lists.streams import STREAM, STREAMS
from rota.ui.lists.work import Work
from rota.ui.lists.workers import WORKER, WORKERS
from rota.ui.lists.workflows import WORKFLOW, WORKFLOWS
from rota.ui.log_lines import LOG_LINE_PAGES
from rota.ui.missing import NEAR
from rota.ui.places import shown
from rota.ui.reading import Memory
from rota.ui.rendering import Renderer
from rota.ui.run import RunPages
from rota.ui.run_logs import RunLogPages
from rota.ui.runs import RunsPages
from rota.ui.signing import SigningPages
from rota.ui.task import TaskPages
from rota.ui.visits import Page, go_to, show

UNAUTHORIZED = 401
# How much of what was asked for is said again.
WORDS_CHARS_MAX = 250
DETAIL_CHARS_MAX = 1_000
LISTED = (WORKFLOWS, WORKFLOW, STREAMS, STREAM, WORKERS, WORKER, QUEUES, AUDIT)
DEEDS = (
    *RUN_DEEDS,
    *TASK_DEEDS,
    *WORKFLOW_DEEDS,
    *BACKFILL_DEEDS,
    *STREAM_DEEDS,
    *WORKER_DEEDS,
    *POOL_DEEDS,
    *ITEM_DEEDS,
    *SCHEDULER_DEEDS,
    SUBMIT_DEED,
)


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
    """Everything that is shown. `is_open`: nobody is asked for a token. `tables`: those that queries may name."""

    def __init__(self, *, version: str, is_open: bool, tables: Mapping[str, str] | None = None) -> None:
        assets = Assets()
        self.memory = memory = Memory()
        self._renderer = renderer = Renderer(assets, version)
        acting = Acting(renderer)
        renderer.told = acting.told
        self.pages: tuple[Page, ...] = (
            *HomePages(renderer, memory).pages(),
            *RunsPages(renderer, memory).pages(),
            *RunPages(renderer, memory).pages(),
            *RunLogPages(renderer, memory).pages(),
            *TaskPages(renderer, memory).pages(),
            *LOG_LINE_PAGES,
            *acting.pages(DEEDS),
            *(
                page
                for listed in (*LISTED, *Builds(memory).pages(), *Work(memory).pages())
                for page in listed.pages(renderer)
            ),
            DEFINE,
            *Queries(renderer, memory, acting, tables or {}).pages(),
            *SigningPages(renderer, is_open=is_open).pages(),
            Page(path=f"{STATIC}/{{file}}", serve=assets.serve, summary="Scripts, styles, icons", is_public=True),
        )
        renderer.places = shown(self.pages)

    def show_trouble(self, trouble: Trouble, url: str) -> Response:
        """A page for whoever asked for something that cannot be shown; who is not known yet is asked to sign in."""
        if trouble.status == UNAUTHORIZED:
            return go_to(f"/sign-in?{urlencode({'next': url})}")
        path, mark, query = url.partition("?")
        if trouble.code == "http.path" and path.endswith("/"):
            # With a slash too many; one slash in front, so that nobody is led to another host.
            return go_to(f"/{path.strip('/')}{mark}{query}")
        headers = {"Retry-After": str(-(-trouble.retry_after_ms // 1000))} if trouble.retry_after_ms else {}
        words = unquote(url.removeprefix("/runs/").partition("/")[0].partition("?")[0])[:WORDS_CHARS_MAX]
        given = {
            "trouble": trouble,
            "url": url,
            "live": "",
            "near": NEAR.get(),
            "detail_most": DETAIL_CHARS_MAX,
            "words": words if trouble.code == "run.unknown" else "",
            "run": words if trouble.code == "task.unknown" else "",
        }
        return show(self._renderer.render("trouble.html", given), trouble.status, headers)
