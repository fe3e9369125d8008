"""A store that does not take a commit for now: what it said, and when it is tried again."""

from rota.core.errors import Unavailable
from rota.core.ids import Millis

# After each commit in a row that the store could not take.
RETRY_COMMIT_MS = (250, 500, 1_000, 2_000, 5_000)
# What callers can do something about; everything else is that the store does not answer.
_OWN_WORDS = ("store.full", "store.corrupt")


class StoreTrouble:
    """What one reign's store is in; false while it is in none."""

    def __init__(self) -> None:
        self.retry_at: Millis = 0
        self._code = ""
        self._reason = ""
        self._retries = 0

    def __bool__(self) -> bool:
        return bool(self._code)

    def met(self, code: str, reason: str, now: Millis) -> None:
        """A commit was not written; the same one is tried again, later each time."""
        self._code = code if code in _OWN_WORDS else "store.unavailable"
        self._reason = reason
        self.retry_at = now + RETRY_COMMIT_MS[min(self._retries, len(RETRY_COMMIT_MS) - 1)]
        self._retries += 1

    @property
    def is_lasting(self) -> bool:
        """Whether it has been tried again in vain: a session that was cut is made anew at once."""
        return self._retries > 1

    def is_due(self, now: Millis) -> bool:
        """Whether to try again now; if so it is not due any more."""
        if not self.retry_at or now < self.retry_at:
            return False
        self.retry_at = 0
        return True

    def over(self) -> None:
        """The store took a commit."""
        self._code, self._reason, self._retries = "", "", 0

    def refusal(self) -> Unavailable:
        """What to say to somebody who waits for the store, or would have to."""
        return Unavailable(self._code, self._reason, retry_after_ms=RETRY_COMMIT_MS[0])
