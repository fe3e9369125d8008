"""Every rule a checker cites is defined in the protocol, once; and every rule defined there is watched by a checker."""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "rota"
PROTOCOL = ROOT / "docs" / "protocol.md"

_LABEL = re.compile(r"\bP-[A-Z]+\b")
_DEFINITION = re.compile(r"^\*\*(P-[A-Z]+)\*\*", re.MULTILINE)


def labels(text: str) -> list[str]:
    return sorted(set(_LABEL.findall(text)))


def definitions(text: str) -> list[str]:
    """Labels in bold at the start of a paragraph; a label anywhere else only refers."""
    return _DEFINITION.findall(text)


def cited(folder: Path) -> list[str]:
    return labels("\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))))


def test_every_rule_is_defined_once() -> None:
    counted = Counter(definitions(PROTOCOL.read_text(encoding="utf-8")))
    assert counted, "the protocol has rules"
    assert [label for label, times in counted.items() if times > 1] == []


def test_the_simulator_cites_the_rules_of_the_protocol_and_all_of_them() -> None:
    assert cited(SRC / "sim") == sorted(definitions(PROTOCOL.read_text(encoding="utf-8")))


def test_nobody_refers_to_a_rule_that_is_not_defined() -> None:
    text = PROTOCOL.read_text(encoding="utf-8")
    defined = definitions(text)
    pages = [page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").rglob("*.md"))]
    referred = labels("\n".join([text, *pages, *cited(SRC)]))
    assert [label for label in referred if label not in defined] == []


def test_a_label_in_the_middle_of_a_sentence_defines_nothing() -> None:
    text = "**P-ONE** One answer.\nAs **P-TWO** says, P-THREE.\n\n**P-TWO** Two.\n"
    assert definitions(text) == ["P-ONE", "P-TWO"]
    assert labels(text) == ["P-ONE", "P-THREE", "P-TWO"]
