"""JSON5, read with the line of everything that has a name, so that whoever is told of a mistake finds it.

JSON with comments, commas at the end, names without quotation marks, single quotation marks, and numbers as JavaScript
writes them. A name that is given twice is refused, though JSON5 lets the last one count: in a file of settings it is a
mistake.
"""

import re
from typing import Any

_BLANK = re.compile(r"(?:[\s\ufeff]|//[^\n\r\u2028\u2029]*|/\*.*?\*/)*", re.DOTALL)
_NAME = re.compile(r"[^\W\d][\w$\u200c\u200d]*|\$[\w$\u200c\u200d]*")
_NUMBER = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<hex>0[xX][0-9a-fA-F]+)|(?P<word>Infinity|NaN)"
    r"|(?P<plain>(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))(?![\w$.])"
)
_WORDS: dict[str, object] = {"true": True, "false": False, "null": None}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_LINE_ENDS = "\n\r\u2028\u2029"
DEPTH_MAX = 100


class Json5Error(ValueError):
    """A text is not JSON5; says what was expected, and where."""


class Reader:
    """Reads one text. `lines` has the line of every name and element, by its path: `schedulers[0].name`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[str, int] = {}
        self._depth = 0

    def read(self) -> Any:
        """The value of the whole text."""
        self._skip()
        value = self._value("")
        self._skip()
        if self.at < len(self.text):
            raise self._error("expected the end of the file")
        return value

    def _error(self, text: str) -> Json5Error:
        before = self.text[: self.at]
        line, column = before.count("\n") + 1, self.at - before.rfind("\n")
        return Json5Error(f"{text} (at line {line}, column {column})")

    def _skip(self) -> None:
        match = _BLANK.match(self.text, self.at)
        assert match is not None, "nothing at all is blank, too"
        self.at = match.end()
        if self.text.startswith("/*", self.at):
            raise self._error("a comment has no end")

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _note(self, path: str) -> None:
        self.lines[path] = self.text.count("\n", 0, self.at) + 1

    def _value(self, path: str) -> Any:
        mark = self._peek()
        if mark in ("{", "["):
            self._depth += 1
            if self._depth > DEPTH_MAX:
                raise self._error("this is nested too deeply")
            value = self._object(path) if mark == "{" else self._array(path)
            self._depth -= 1
            return value
        if mark in ("'", '"') and mark:
            return self._string(mark)
        name = _NAME.match(self.text, self.at)
        if name is not None and name[0] in _WORDS:
            self.at = name.end()
            return _WORDS[name[0]]
        return self._number()

    def _number(self) -> int | float:
        match = _NUMBER.match(self.text, self.at)
        if match is None:
            raise self._error("expected a value")
        self.at = match.end()
        sign = -1 if match["sign"] == "-" else 1
        if match["hex"]:
            return sign * int(match["hex"], 16)
        if match["word"]:
            return sign * float(match["word"].lower())
        plain = match["plain"]
        if plain.isdigit():
            if len(plain) > 40:
                raise self._error("a number has too many digits")
            return sign * int(plain)
        return sign * float(plain)

    def _string(self, mark: str) -> str:
        self.at += 1
        parts: list[str] = []
        while True:
            letter = self._peek()
            if not letter or letter in "\n\r":
                raise self._error("a text has no end")
            self.at += 1
            if letter == mark:
                return "".join(parts)
            parts.append(self._escape() if letter == "\\" else letter)

    def _escape(self) -> str:
        letter = self._peek()
        self.at += 1
        if letter in ("x", "u"):
            size = 2 if letter == "x" else 4
            digits = self.text[self.at : self.at + size]
            if not re.fullmatch(rf"[0-9a-fA-F]{{{size}}}", digits):
                raise self._error("an escape has wrong digits")
            self.at += size
            return self._paired(chr(int(digits, 16)))
        if letter in _LINE_ENDS and letter:
            # A text may go on in the next line.
            self.at += letter == "\r" and self._peek() == "\n"
            return ""
        if letter == "0" and not self._peek().isdigit():
            return "\0"
        if not letter or letter.isdigit():
            raise self._error("an escape that JSON5 does not have")
        return _ESCAPES.get(letter, letter)

    def _paired(self, letter: str) -> str:
        """Two escapes may stand for one character."""
        low = re.compile(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})").match(self.text, self.at)
        if "\ud800" <= letter <= "\udbff" and low is not None:
            self.at = low.end()
            return (letter + chr(int(low[1], 16))).encode("utf-16", "surrogatepass").decode("utf-16")
        return letter

    def _object(self, path: str) -> dict[str, Any]:
        self.at += 1
        found: dict[str, Any] = {}
        while not self._is_over("}"):
            mark = self._peek()
            inner, start = "", self.at
            if mark in ("'", '"'):
                name = self._string(mark)
            else:
                match = _NAME.match(self.text, self.at)
                if match is None:
                    raise self._error("expected a name, or }")
                name, self.at = match[0], match.end()
            end, self.at = self.at, start
            inner = f"{path}.{name}" if path else name
            if name in found:
                raise self._error(f"{name!r} is given twice")
            self._note(inner)
            self.at = end
            self._skip()
            if self._peek() != ":":
                raise self._error("expected :")
            self.at += 1
            self._skip()
            found[name] = self._value(inner)
            self._comma("}")
        return found

    def _array(self, path: str) -> list[Any]:
        self.at += 1
        found: list[Any] = []
        while not self._is_over("]"):
            inner = f"{path}[{len(found)}]"
            self._note(inner)
            found.append(self._value(inner))
            self._comma("]")
        return found

    def _is_over(self, mark: str) -> bool:
        self._skip()
        if self._peek() == mark:
            self.at += 1
            return True
        return False

    def _comma(self, mark: str) -> None:
        """After an element: a comma, or the end, which is left for whoever looks next."""
        self._skip()
        if self._peek() == ",":
            self.at += 1
        elif self._peek() != mark:
            raise self._error(f"expected , or {mark}")


def read_json5(text: str) -> tuple[Any, dict[str, int]]:
    """The value of a text, and the lines of what is in it. Raises `Json5Error`."""
    reader = Reader(text)
    return reader.read(), reader.lines
