"""A secret that cannot be shown by mistake, and the fingerprint by which people may speak of it."""

from hashlib import sha256


def fingerprint(secret: str | bytes) -> str:
    """Eight hexadecimal digits that tell secrets apart without telling what they are."""
    content = secret.encode() if isinstance(secret, str) else secret
    return sha256(content).hexdigest()[:8]


class Secret:
    """Text that no message, record or trace may hold. `reveal` is the one way to it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for whoever sends or compares it."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __repr__(self) -> str:
        return f"Secret(#{fingerprint(self._text)})" if self._text else "Secret(empty)"

    __str__ = __repr__

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a secret is not written down")
