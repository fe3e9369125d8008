"""The page about commands is what the commands say of themselves."""

from pathlib import Path

from rota.cli.reference import render

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_the_page_about_commands_is_as_it_would_be_made_now():
    made = "make it anew: .venv/bin/python -m rota.cli.reference > docs/reference/cli.md"
    assert PAGE.read_text(encoding="utf-8") == render(), made
