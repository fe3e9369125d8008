"""Browser sessions: what a person has after signing in to the pages with a token.

The cookie holds a random secret that means nothing elsewhere. This process keeps the secret's digest and the digest of
the token that was used, never either of them. A session ends by sign-out, by time, with its token, and with the
process; it belongs to one coordinator.
"""

import secrets
from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest

from msgspec import Struct

from rota.core.ids import Millis

SECRET_BYTES = 32
# A session ends so long after its last request, and so long after it began.
IDLE_MS_MAX = 12 * 3_600_000
AGE_MS_MAX = 7 * 24 * 3_600_000
SESSIONS_MAX = 10_000
SESSIONS_PER_TOKEN_MAX = 100
# Longer than any secret of ours.
_SECRET_CHARS_MAX = 100


class _Session(Struct):
    token_digest: bytes
    began_at: Millis
    used_at: Millis


def _digest_of(secret: str) -> bytes:
    return sha256(secret[:_SECRET_CHARS_MAX].encode(errors="replace")).digest()


class PageSessions:
    """The browser sessions of one coordinator."""

    def __init__(self, clock: Callable[[], Millis]) -> None:
        self._clock = clock
        # By the digest of the secret, the one that was used longest ago first.
        self._sessions: dict[bytes, _Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, token_digest: bytes) -> str:
        """Starts a session for the holder of a token and returns its secret. The least recently used make room."""
        now = self._clock()
        self._drop_expired(now)
        of_token = [key for key, each in self._sessions.items() if compare_digest(each.token_digest, token_digest)]
        if len(of_token) >= SESSIONS_PER_TOKEN_MAX:
            del self._sessions[of_token[0]]
        elif len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        secret = secrets.token_urlsafe(SECRET_BYTES)
        self._sessions[_digest_of(secret)] = _Session(token_digest, now, now)
        return secret

    def find(self, secret: str, *, is_use: bool = True) -> bytes | None:
        """The digest of the token that a session stands for; None if there is no such session or it has ended.

        Secrets are looked up by their SHA-256, so the time it takes tells nothing about one. Without `is_use` the
        session does not live longer because of this.
        """
        key = _digest_of(secret)
        session = self._sessions.get(key)
        if session is None:
            return None
        now = self._clock()
        if _is_over(session, now):
            del self._sessions[key]
            return None
        if is_use:
            session.used_at = now
            # To the end: the order is that of use.
            self._sessions[key] = self._sessions.pop(key)
        return session.token_digest

    def end(self, secret: str) -> None:
        """Ends a session, if it is one."""
        self._sessions.pop(_digest_of(secret), None)

    def end_of_token(self, token_digest: bytes) -> None:
        """Ends all sessions of a token that is not accepted any more."""
        for key in [key for key, each in self._sessions.items() if each.token_digest == token_digest]:
            del self._sessions[key]

    def clear(self) -> None:
        """Ends all of them."""
        self._sessions.clear()

    def _drop_expired(self, now: Millis) -> None:
        for key in [key for key, session in self._sessions.items() if _is_over(session, now)]:
            del self._sessions[key]


def _is_over(session: _Session, now: Millis) -> bool:
    return now - session.used_at >= IDLE_MS_MAX or now - session.began_at >= AGE_MS_MAX
