"""From what was read to HTML: the templates, what they may use, and pages that are made of fragments."""

from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from msgspec import Struct

from rota.core.errors import headline
from rota.core.ids import show_fence
from rota.core.spans import show_span
from rota.ui import words
from rota.ui.assets import Assets
from rota.ui.holders import holders_of
from rota.ui.places import Place
from rota.wire.plain_text import show_order, show_text

# Of a form in a fragment; whoever shows it puts their own page's into it.
ONCE = 'name="once" value=""'
FOLDER = Path(__file__).parent / "templates"


def _in_order(value: Any) -> Any:
    """Whatever is put into a page: names of others may not turn around what stands after them."""
    if isinstance(value, Markup):
        # Made of what was looked at already.
        return value
    return show_order(value) if isinstance(value, str) else value


class Fragment(Struct, frozen=True):
    """A part of a page that is replaced as a whole. Its mark tells one content from another."""

    id: str
    mark: str
    html: str


class Renderer:
    """Makes HTML. What others wrote is text in it, always."""

    def __init__(self, assets: Assets, version: str) -> None:
        # What the bar leads to; known once all pages are.
        self.places: tuple[Place, ...] = ()
        # What a visitor did on the page before.
        self.told: Callable[[Any], Any] = lambda visit: None  # noqa: ARG005 - nobody acts until somebody may
        self._environment = Environment(
            loader=FileSystemLoader(FOLDER),
            autoescape=True,
            finalize=_in_order,
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        cast(dict[str, Any], self._environment.globals).update(
            asset=assets.url,
            version=version,
            places=lambda: self.places,
            told=self._told,
            # Whoever has not been let in is led nowhere.
            is_inside=True,
            command=words.command,
            run_url=words.run_url,
            runs_url=words.runs_url,
            task_url=words.task_url,
            log_url=words.log_url,
            stream_url=words.stream_url,
            worker_url=words.worker_url,
            workflow_url=words.workflow_url,
            holders_of=holders_of,
            in_order=words.in_order,
        )
        self._environment.filters.update(
            span=show_span,
            fence=show_fence,
            headline=headline,
            utc=words.show_utc,
            iso=words.show_iso,
            state=words.show_state,
            counts=words.show_counts,
            value=words.show_value,
            text=show_text,
            size=words.show_size,
        )

    def _told(self, visit: Any) -> Any:
        return self.told(visit)

    def render(self, template: str, given: Mapping[str, Any]) -> str:
        """One template."""
        return self._environment.get_template(template).render(given)

    def fragments(self, templates: Mapping[str, str], given: Mapping[str, Any]) -> list[Fragment]:
        """The fragments of a page: their templates by their ids."""
        found: list[Fragment] = []
        for id, template in templates.items():
            html = self.render(template, given).strip()
            found.append(Fragment(id, blake2b(html.encode(errors="replace"), digest_size=6).hexdigest(), html))
        return found

    def page(self, template: str, fragments: list[Fragment], given: Mapping[str, Any]) -> str:
        """A whole page; its template puts each fragment where it belongs.

        Forms in fragments are the same for everybody who looks at the same time; the page says which page it is.
        """
        visit = given.get("visit")
        once = ONCE.replace('""', f'"{visit.rights.once}"') if visit is not None else ONCE
        placed = {each.id: self._place(each, once) for each in fragments}
        return self.render(template, {**given, "fragments": placed})

    def _place(self, fragment: Fragment, once: str) -> Markup:
        # What others wrote has no such quotes: they are escaped in it.
        content = Markup(fragment.html.replace(ONCE, once))  # noqa: S704 - rendered by us
        return Markup('<div id="{}" data-mark="{}">{}</div>').format(fragment.id, fragment.mark, content)
