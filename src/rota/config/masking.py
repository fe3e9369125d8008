"""Secrets in texts: what looks like one is taken out of whatever is shown, written down or sent to somebody."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from rota.config.secret import Secret

GONE = "…"
_USER_IN_URL = re.compile(r"://[^\s\"']*@")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=:-]{4,}")
_WORDS = (
    r"pass(?:word|wd|phrase)?|secret|token|credential|authorization|cookie|signature"
    r"|(?:api|access|account|private|sas)[_-]?key"
)
_NAMED = re.compile(rf"(?i)([\w-]*(?:{_WORDS})[\w-]*[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s&,;}}\]]+)")
# What the value of something is called that has a name.
_VALUES = ("default", "value")
_NAME = re.compile(rf"(?i)(?:{_WORDS})")


def mask_text(text: str) -> str:
    """A text without what looks like a secret: users in URLs, tokens of callers, and values that are named so."""
    return _NAMED.sub(rf"\1{GONE}", _BEARER.sub(rf"\1 {GONE}", _USER_IN_URL.sub(f"://{GONE}@", text)))


def mask(value: Any) -> Any:
    """The same of anything that JSON can hold: by what it looks like, and by the name it has."""
    if isinstance(value, Secret):
        return "(set)" if value else "(set, and empty)"
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, Mapping):
        named = cast("Mapping[Any, Any]", value)
        # Something that has its name in a field of its own, such as a parameter.
        is_secret = is_named_secret(str(named.get("name", "")))
        return {
            name: GONE if is_secret and name in _VALUES and each else _masked(str(name), each)
            for name, each in named.items()
        }
    if isinstance(value, list | tuple):
        return [mask(each) for each in cast("Iterable[Any]", value)]
    return value


def is_named_secret(name: str) -> bool:
    """Whether what has this name is probably a secret."""
    return _NAME.search(name) is not None


def _masked(name: str, value: Any) -> Any:
    """Of what is named like a secret only that it is there; a number or a yes is none."""
    if is_named_secret(name) and value and not isinstance(value, bool | int | float):
        return GONE
    return mask(value)
