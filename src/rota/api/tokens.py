"""Tokens: who is calling. Every call on every surface asks the gate.

An accepted token is an entry `secret`, `role:secret` or `role@tenant:secret`; that of an agent says what its sessions
may offer, `agent@tenant+review+python:secret`, and may be bound to workspaces and to names of agents,
`agent+review;workspaces=docs+web;agents=reviewer:secret`. Only digests of secrets are kept, and a presented token is
compared with all of them, in the same time whichever it is. Once any source of tokens is configured no caller gets in
without one, also if all sources are empty: that is how everything is revoked.
"""

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path

from msgspec import Struct, structs

from rota.api.auth import ANY_TENANT, ANYONE, TOKEN_ROLES, Principal, Role
from rota.config import Address, Secret, fingerprint
from rota.config.settings import Auth
from rota.control.events import Tell
from rota.core.errors import Refused
from rota.core.graph import check_id
from rota.core.ids import DEFAULT_TENANT, Millis

TOKENS_MAX = 1_000
TOKEN_CHARS_MAX = 1_000
FILE_BYTES_MAX = 1 << 20
# How often the token file is looked at; a change is noticed after so long.
LOOK_EVERY_MS = 1_000

# What a bearer token may consist of (RFC 6750, 2.1); anything else could not be sent.
_SECRET = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_CAPABILITY = re.compile(r"\*|[^\s,+:;@*]{1,128}")
# Names that a token is bound to. `-` is for sessions of no workspace.
_BOUND = re.compile(r"[^\s,+:;=@#*]{1,128}")
_BINDINGS = ("workspaces", "agents")


class Entry(Struct, frozen=True):
    """One accepted token: its digest and its principal. `is_plain`: nothing was said about role and tenant."""

    digest: bytes
    principal: Principal
    is_plain: bool


def read_tokens(text: str, source: str) -> list[Entry]:
    """Entries out of text, separated by commas or lines; from `#` on a line is a remark.

    A refusal names the source and the number of the entry, and nothing of what it says.
    """
    entries: list[Entry] = []
    for line in text.splitlines():
        for part in line.partition("#")[0].split(","):
            if part.strip():
                entries.append(_read_entry(part.strip(), f"entry {len(entries) + 1} of {source}"))
    if len(entries) > TOKENS_MAX:
        raise Refused("config.value", f"{source} has {len(entries)} tokens", f"Use at most {TOKENS_MAX}.")
    return entries


def _read_entry(text: str, where: str) -> Entry:
    named, colon, secret = text.rpartition(":")
    if not colon:
        return _entry(secret, Role.ADMIN, DEFAULT_TENANT, where, is_plain=True)
    named, *bindings = named.split(";")
    named, *capabilities = named.split("+")
    word, at, tenant = named.partition("@")
    if word not in TOKEN_ROLES:
        # The word is a role that was misspelt, or else the beginning of a secret, which is not shown.
        near = get_close_matches(word, TOKEN_ROLES, 1)
        hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(TOKEN_ROLES)}."
        raise Refused("config.value", f"{where} has no role in front of its colon", hint)
    if at and tenant != ANY_TENANT:
        if not (tenant and tenant.isascii() and tenant.isprintable() and tenant == tenant.strip()):
            hint = "Write role@tenant:secret, with a tenant of letters, digits and signs that a header can hold."
            raise Refused("config.value", f"{where} names no tenant that can be sent", hint)
        check_id(tenant, "tenant")
    if capabilities and (word != Role.AGENT or not all(map(_CAPABILITY.fullmatch, capabilities))):
        hint = "Only an agent's token has capabilities: agent@tenant+review+python:secret, or agent+*:secret for all."
        raise Refused("config.value", f"{where} has capabilities that cannot be", hint)
    bound = _read_bindings(bindings, word, where)
    usual = ANY_TENANT if word == Role.WORKER else DEFAULT_TENANT
    entry = _entry(secret, Role(word), tenant if at else usual, where, is_plain=False, capabilities=tuple(capabilities))
    return structs.replace(entry, principal=structs.replace(entry.principal, **bound))


def _read_bindings(bindings: list[str], word: str, where: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for text in bindings:
        name, _, values = text.strip().partition("=")
        bound = tuple(dict.fromkeys(values.split("+")))
        if word != Role.AGENT or name not in _BINDINGS or name in found or not all(map(_BOUND.fullmatch, bound)):
            hint = "Only an agent's token is bound: agent@tenant+review;workspaces=docs+web;agents=reviewer:secret."
            raise Refused("config.value", f"{where} is bound to something that cannot be", hint)
        found[name] = bound
    return found


def _entry(
    secret: str, role: Role, tenant: str, where: str, *, is_plain: bool, capabilities: tuple[str, ...] = ()
) -> Entry:
    if not _SECRET.fullmatch(secret) or len(secret) > TOKEN_CHARS_MAX:
        hint = "A token has letters, digits and ._~+/-, such as `openssl rand -hex 32` prints."
        raise Refused("config.value", f"{where} is not a token that can be sent", hint)
    name = f"{role}@{tenant}#{fingerprint(secret)}"
    return Entry(sha256(secret.encode()).digest(), Principal(name, role, tenant, capabilities), is_plain)


def merge(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Each token once. Where it is named with a role it has that role, also if it stands elsewhere without one.

    A token of two sorts is refused: which of them its holder has would be a matter of luck.
    """
    found: dict[bytes, Entry] = {}
    for entry in entries:
        known = found.get(entry.digest)
        if known is None or (known.is_plain and not entry.is_plain):
            found[entry.digest] = entry
        elif entry.is_plain == known.is_plain and entry.principal != known.principal:
            text = f"the same token is {known.principal.name} and {entry.principal.name}"
            raise Refused("config.value", text, "Give each its own.")
    return tuple(found.values())


def find(entries: Iterable[Entry], token: str) -> Entry | None:
    """The entry of a token. Every entry is compared, whether or not one has matched."""
    given = sha256(token.encode(errors="replace")).digest()
    found: Entry | None = None
    for entry in entries:
        if compare_digest(entry.digest, given):
            found = entry
    return found


class TokenFile:
    """A file of tokens that may be changed while it is used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: list[Entry] = []
        self._stamp: tuple[int, ...] = ()
        self._read_at: Millis = 0
        self._looked_at: Millis = 0

    def read(self, now: Millis) -> None:
        """Take what the file says now. Raises `Refused` and keeps what it said before."""
        self._looked_at = self._read_at = now
        # Noted before it is read: a change in between is then seen at the next look.
        self._stamp = self._stamp_now()
        if self.path.exists() and not self.path.is_file():
            # Reading a pipe would block the loop until its writer writes.
            raise Refused("config.file", f"the token file {self.path} is not a plain file", path="auth.token_file")
        try:
            with self.path.open("rb") as file:
                content = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            text = f"the token file {self.path} cannot be read: {error.strerror}"
            raise Refused("config.file", text, path="auth.token_file") from None
        if len(content) > FILE_BYTES_MAX:
            raise Refused("config.file", f"the token file {self.path} is too large", path="auth.token_file")
        try:
            self.entries = read_tokens(content.decode(), str(self.path))
        except UnicodeDecodeError:
            raise Refused("config.file", f"the token file {self.path} is not text", path="auth.token_file") from None

    def is_due(self, now: Millis, interval_ms: Millis) -> bool:
        """Whether it should be read again: it changed, or the interval is over."""
        if now - self._read_at >= interval_ms:
            return True
        if now - self._looked_at < LOOK_EVERY_MS:
            return False
        self._looked_at = now
        return self._stamp_now() != self._stamp

    def _stamp_now(self) -> tuple[int, ...]:
        """What tells one state of the file from another without reading it; nothing if it is not there."""
        try:
            status = self.path.stat()
        except OSError:
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode


def say_nothing(said: Tell) -> None:
    """The default: the message is dropped."""


def count_nothing(cause: str) -> None:
    """The default: nothing is counted."""


class Gate:
    """The accepted tokens of one coordinator, as they are now.

    `tell` is given what an operator should know, and bounds it; `count` every refusal.
    """

    def __init__(
        self,
        auth: Auth,
        clock: Callable[[], Millis],
        *,
        tell: Callable[[Tell], None] = say_nothing,
        count: Callable[[str], None] = count_nothing,
    ) -> None:
        self._clock = clock
        self._tell = tell
        self._count = count
        self._interval_ms = auth.reload_interval_s * 1_000
        self._file = TokenFile(Path(auth.token_file)) if auth.token_file else None
        self.is_open = not auth.asks_for_tokens
        self._fixed = _fixed_entries(auth)
        self._version = 0
        if self._file is not None:
            self._file.read(clock())
        self._entries = self._merged()

    @property
    def version(self) -> int:
        """Grows when other tokens are accepted than before: long streams then admit their callers anew."""
        self._look(self._clock())
        return self._version

    @property
    def names(self) -> list[str]:
        """The principals of the accepted tokens, without the tokens."""
        return [entry.principal.name for entry in self._entries]

    def admit(self, token: str | None, tenant: str | None = None, *, peer: str = "") -> Principal:
        """Who is calling, by its token or its `Authorization` header; narrowed to the tenant it asks for, if any.

        Refuses with `auth.missing`, `auth.wrong` or `auth.tenant`. `peer` is for the log.
        """
        return self._admit(lambda: self._identify(token).principal, tenant, peer)

    def admit_digest(self, digest: bytes, tenant: str | None = None, *, peer: str = "") -> Principal:
        """Who is calling, by the digest of a token that was presented before: the token must be accepted still."""
        return self._admit(lambda: self._identify_digest(digest), tenant, peer)

    def digest_of(self, token: str) -> bytes:
        """By which a token can be known later without being kept. Refuses one that is not accepted."""
        return self._identify(token).digest

    def is_accepted(self, digest: bytes) -> bool:
        """Whether a token of this digest is accepted now."""
        self._look(self._clock())
        return any(compare_digest(entry.digest, digest) for entry in self._entries)

    def _admit(self, identify: Callable[[], Principal], tenant: str | None, peer: str) -> Principal:
        self._look(self._clock())
        if self.is_open:
            return ANYONE if tenant is None else structs.replace(ANYONE, tenant=tenant)
        try:
            principal = identify()
            if tenant is None:
                return principal
            if principal.tenant not in (ANY_TENANT, tenant):
                raise Refused("auth.tenant", f"{principal.name} may not act for tenant {tenant!r}", "Use its token.")
        except Refused as refused:
            self.refused(refused, peer=peer)
            raise
        return structs.replace(principal, tenant=tenant)

    def refused(self, refused: Refused, *, peer: str = "") -> None:
        """Count a refusal of a call and have it told; for what a surface judged by itself with `Principal.may`."""
        self._count(refused.code)
        self._tell(Tell("auth.refused", (("cause", refused.code), ("peer", peer), ("why", refused.reason))))

    def _identify_digest(self, digest: bytes) -> Principal:
        for entry in self._entries:
            if compare_digest(entry.digest, digest):
                return entry.principal
        raise Refused("auth.session", "the token of this session is not accepted any more", "Sign in again.")

    def _identify(self, token: str | None) -> Entry:
        if not token:
            hint = (
                "Send `Authorization: Bearer …`; a client takes it from ROTA_COORDINATOR_BEARER_TOKEN, "
                "a worker from ROTA_EXECUTOR_TASK_BEARER_TOKEN."
            )
            raise Refused("auth.missing", "this call carries no token", hint)
        scheme, blank, rest = token.partition(" ")
        given = rest.strip() if blank and scheme.lower() == "bearer" else token
        entry = find(self._entries, given[: TOKEN_CHARS_MAX + 1])
        if entry is None:
            raise Refused("auth.wrong", "this token is not accepted", "It may have been revoked; ask for a new one.")
        return entry

    def _look(self, now: Millis) -> None:
        """Read the file again if it is time. One that cannot be used changes nothing, and is told."""
        if self._file is None or not self._file.is_due(now, self._interval_ms):
            return
        try:
            self._file.read(now)
            entries = self._merged()
        except Refused as refused:
            self._tell(Tell("auth.reload_failed", (("error", str(refused)), ("kept", str(len(self._entries))))))
            return
        if entries != self._entries:
            self._entries = entries
            self._version += 1
            self._tell(Tell("auth.reloaded", (("tokens", str(len(entries))),)))

    def _merged(self) -> tuple[Entry, ...]:
        return merge([*self._fixed, *(self._file.entries if self._file is not None else ())])


def _fixed_entries(auth: Auth) -> list[Entry]:
    """What the environment says is accepted; it does not change while a process lives."""
    entries: list[Entry] = []
    if auth.tokens is not None:
        entries += read_tokens(auth.tokens.reveal(), "ROTA_COORDINATOR_BEARER_TOKENS")
    if auth.token is not None and auth.token.reveal().strip():
        entries.append(_presented(auth.token, Role.ADMIN, DEFAULT_TENANT, "ROTA_COORDINATOR_BEARER_TOKEN"))
    if auth.worker_token is not None and auth.worker_token.reveal().strip():
        worker = _presented(auth.worker_token, Role.WORKER, ANY_TENANT, "ROTA_EXECUTOR_TASK_BEARER_TOKEN")
        entries.append(worker)
    return entries


def _presented(secret: Secret, role: Role, tenant: str, where: str) -> Entry:
    """A token as its holder presents it. What a list says of the same token counts for more than this."""
    return _entry(secret.reveal().strip(), role, tenant, where, is_plain=True)


def check_exposure(addresses: Iterable[Address], *, is_open: bool, has_tls: bool) -> list[str]:
    """Refuse to listen where other machines can reach us without asking who calls; warn about tokens in the clear."""
    warnings: list[str] = []
    for address in addresses:
        if address.is_loopback:
            continue
        if is_open:
            hint = "Set ROTA_COORDINATOR_BEARER_TOKENS or auth.token_file, or listen on 127.0.0.1."
            raise Refused(
                "auth.exposed", f"{address} can be reached by other machines, and no tokens are configured", hint
            )
        if not has_tls:
            warnings.append(
                f"tokens travel in the clear to {address}: configure [tls], or put a proxy with TLS in front"
            )
    return warnings
