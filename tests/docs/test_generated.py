"""Pages that are made from the code are what the code would make now, and leave nothing out."""

import re
from pathlib import Path

import rota
from scripts.reference_pages import openapi, public_names

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def read(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def test_the_page_of_python_is_up_to_date() -> None:
    assert read("python.md") == public_names.page(), "run scripts/reference"


def test_every_public_name_is_on_it() -> None:
    named = re.findall(r"^### rota\.(\w+)$", read("python.md"), re.MULTILINE)
    assert sorted(named) == sorted(rota.__all__)


def test_every_public_name_says_what_it_is() -> None:
    sections = re.split(r"^### ", read("python.md"), flags=re.MULTILINE)[1:]
    silent = [each.splitlines()[0] for each in sections if len(re.sub(r"```.*?```", "", each, flags=re.DOTALL)) < 60]
    assert set(silent) <= {"rota.__version__"}


def test_the_page_of_http_calls_is_up_to_date() -> None:
    assert read("openapi.md") == openapi.page(), "run scripts/reference"


def test_a_type_is_said_in_words() -> None:
    text = {"type": "string"}
    assert (
        openapi.kind({"anyOf": [{"type": "null"}, {"type": "array", "items": text}]}) == "list of string or null"
    )  # wording
    assert openapi.kind({"$ref": "#/components/schemas/Run"}) == "[Run](#run)"
    assert openapi.kind({"type": "object", "additionalProperties": text}) == "object of string"
    several = openapi.kind({"type": "array", "prefixItems": [text, {"type": "integer"}], "items": False})
    assert (several.startswith("list "), several.endswith(" string, integer")) == (True, True)
    assert openapi.default({"default": 50}) == "`50`"
