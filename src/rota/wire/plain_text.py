"""Output of programs as text that is safe to show: without what only a terminal obeys, in the order it is written."""

import re

SHOWN_INSTEAD = "\N{REPLACEMENT CHARACTER}"

# Colours, movements and titles are for terminals. No sequence reaches over the end of its line.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# Characters that reverse the text after them, so that a name or a line reads as another one.
_REVERSALS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_PRINTABLE = bytes(range(0x20, 0x7F)) + b"\n\r\t"


def output_text(content: bytes) -> str:
    """Bytes that a program wrote, as text with as many newlines. Carriage returns stay."""
    if not content.translate(None, _PRINTABLE):
        return content.decode("ascii")
    text = content.decode(errors="replace")
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return show_order(_CONTROLS.sub(SHOWN_INSTEAD, text))


def show_text(text: str) -> str:
    """Text that a program wrote; a carriage return ends a line, too."""
    plain = show_order(_CONTROLS.sub(SHOWN_INSTEAD, _ESCAPES.sub("", text)))
    return plain.replace("\r\n", "\n").replace("\r", "\n")


def show_order(text: str) -> str:
    """Text in the order in which it is written; a character that would reverse it is replaced."""
    return _REVERSALS.sub(SHOWN_INSTEAD, text) if not text.isascii() else text
