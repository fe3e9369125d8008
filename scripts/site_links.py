"""For mkdocs: links that leave the docs folder lead to pages and files of the site.

On a forge the documents link to each other and to files of the repository by where they lie. A site has only what is
under `docs`. So CHANGELOG.md and CONTRIBUTING.md become pages of it, files that a page links to come along as texts,
and a folder that is linked to is named without a link.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# Documents outside of `docs`, and the pages that they are.
PAGES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "README.md": "index.md"}

_FENCED = re.compile(r"(^(```|~~~).*?^\2[ \t]*$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def outside(origin: Path, target: str) -> Path | None:
    """What a link leads to, if that is in the repository and not under `docs`."""
    path = Path(os.path.normpath(origin.parent / target))
    return path if path.is_relative_to(ROOT) and not path.is_relative_to(DOCS) and path.exists() else None


def carried(path: Path) -> str:
    """Where a file of the repository is in the site. Browsers show a .txt, and would save a .toml."""
    return f"files/{path.relative_to(ROOT).as_posix()}.txt"


def origin_of(src_uri: str) -> Path:
    """The document that a page is made of."""
    root = {page: name for name, page in PAGES.items() if name != "README.md"}
    return ROOT / root[src_uri] if src_uri in root else DOCS / src_uri


def files_linked(document: Path) -> Iterator[Path]:
    text = _FENCED.sub("", document.read_text(encoding="utf-8"))
    for _, target, _ in _LINK.findall(text):
        path = outside(document, target)
        if path is not None and path.is_file() and path.name not in PAGES:
            yield path


def retarget(text: str, src_uri: str) -> str:
    """A page's text with links as the site needs them."""
    origin, here = origin_of(src_uri), PurePosixPath(src_uri).parent

    def replaced(match: re.Match[str]) -> str:
        label, target, fragment = match[1], match[2], match[3] or ""
        path = Path(os.path.normpath(origin.parent / target))
        if path.is_relative_to(DOCS):
            there = path.relative_to(DOCS).as_posix()
        elif outside(origin, target) is None:
            return match[0]
        elif path.is_dir():
            return label
        else:
            there = PAGES.get(path.relative_to(ROOT).as_posix()) or carried(path)
        return f"[{label}]({os.path.relpath(there, here)}{fragment})"

    parts = _FENCED.split(text)
    # Text, then a whole fenced block and its mark, and so on: only texts have links.
    return "".join(
        _LINK.sub(replaced, part) if number % 3 == 0 else part for number, part in enumerate(parts) if number % 3 < 2
    )


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Documents and files that lie elsewhere come along."""
    for name, page in PAGES.items():
        if page != "index.md":
            files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    linked = {path for file in files.documentation_pages() for path in files_linked(origin_of(file.src_uri))}
    for path in sorted(linked):
        files.append(File.generated(config, carried(path), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    return retarget(markdown, page.file.src_uri)
