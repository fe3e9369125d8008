"""From what was read to HTML: the templates, what they may use, and pages that are made of fragments."""

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from msgspec import Struct

from rota.core.ids import show_fence
from rota.core.spans import show_span
from rota.ui import words
from rota.ui.assets import Assets

FOLDER = Path(__file__).parent / "templates"


class Fragment(Struct, frozen=True):
    """A part of a page that is replaced as a whole. Its mark tells one content from another."""

    id: str
    mark: str
    html: str


class Renderer:
    """Makes HTML. What others wrote is text in it, always."""

    def __init__(self, assets: Assets, version: str) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(FOLDER),
            autoescape=True,
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        cast(dict[str, Any], self._environment.globals).update(
            asset=assets.url,
            version=version,
            command=words.command,
            run_url=words.run_url,
            runs_url=words.runs_url,
            task_url=words.task_url,
            log_url=words.log_url,
            in_order=words.in_order,
        )
        self._environment.filters.update(
            span=show_span,
            fence=show_fence,
            utc=words.show_utc,
            iso=words.show_iso,
            state=words.show_state,
            counts=words.show_counts,
            value=words.show_value,
            text=words.show_text,
        )

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
        """A whole page; its template puts each fragment where it belongs."""
        placed = {each.id: self._place(each) for each in fragments}
        return self.render(template, {**given, "fragments": placed})

    def _place(self, fragment: Fragment) -> Markup:
        content = Markup(fragment.html)  # noqa: S704 - rendered by us, and what others wrote is escaped in it
        return Markup('<div id="{}" data-mark="{}">{}</div>').format(fragment.id, fragment.mark, content)
