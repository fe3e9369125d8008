"""From PostgreSQL's errors to ours: what happened, whether anything was written, what to do."""

import re
import struct

import msgspec

from rota.core.errors import Refused, Unavailable
from rota.ports import Fenced, StoreRefused
from rota.stores.postgres.address import Address
from rota.stores.postgres.wire import Lost, Said

# Raised by our own routines: the epoch that was given does not reign.
FENCED = "RT001"
LOCK_NOT_AVAILABLE = "55P03"
UNDEFINED_COLUMN = "42703"
_IN_THE_WAY = ("42P07", "42710", "42723")
# A value that no column can hold, a part without its run, a key that no index can hold: whoever sent it is at fault.
_UNSTORABLE = ("21", "22", "23", "54")
_CORRUPT = ("XX001", "XX002")
# A routine or table that is not what it was: somebody with another version leads, or everything is gone.
CHANGED = ("42883", "42P01", "42703", "3F000")
_GONE = ("3D000", "3F000", "42P01")
# What a value may do that cannot even be written as JSON.
UNSTORABLE = (AttributeError, OverflowError, TypeError, ValueError)
# What a row may do to whoever turns it into a record, if it is not what was written.
UNREADABLE = (KeyError, TypeError, ValueError, struct.error, msgspec.MsgspecError)

_READ_ONLY_HINT = (
    "Name the primary. With several hosts in the address, add target_session_attrs=read-write; otherwise look at"
    " default_transaction_read_only."
)
_RESTORE_HINT = "Restore a backup, or name another database."


# libpq has only words for why there is no connection, and no codes. Words it does not know are the server's trouble.
_NOT_CONNECTED = (
    (
        r"password authentication failed|no password supplied|no pg_hba\.conf entry|not permitted to log in"
        r"|role \S+ does not exist|permission denied for database",
        "store.denied",
        "Correct the user and password in server.store, or let the user in (pg_hba.conf, GRANT CONNECT).",
    ),
    (
        r"database \S+ does not exist",
        "store.missing",
        "Create the database (createdb), or name another in server.store.",
    ),
    (
        r"server certificate for|certificate verify failed|root certificate|does not support SSL",
        "tls.handshake",
        "Name the host as its certificate does, name its authority with sslrootcert, or ask for less with sslmode.",
    ),
    (r"session is read-only|server is in hot standby mode", "store.read_only", _READ_ONLY_HINT),
    (
        r"invalid (sslmode|port|connection option|integer|channel_binding|target_session)",
        "config.value",
        "Correct server.store.",
    ),
)


def not_connected(text: str, address: Address) -> Refused | Unavailable:
    """What to raise when no connection can be had."""
    said = " ".join(text.split())
    for words, code, hint in _NOT_CONNECTED:
        if re.search(words, said):
            return Refused(code, f"{address}: {said}.", hint)
    return Unavailable("store.unavailable", f"{address}: {said}.")


def read_only(address: Address) -> Refused:
    """What to say of a server that only lets itself be read."""
    return Refused("store.read_only", f"{address} can only be read: it is a replica, or set so.", _READ_ONLY_HINT)


def refusal(error: Said | Lost, address: Address) -> Exception:
    """What to raise when something could not be read or settled, and nothing was written."""
    if isinstance(error, Lost):
        return Unavailable("store.unavailable", f"{address}: {error}.")
    state = error.sqlstate
    if state == FENCED:
        return Fenced(error.message)
    if state == "25006":
        return read_only(address)
    if state == "53100":
        return Unavailable("store.full", f"no space left on {address}; nothing was written.")
    if state in ("42501", "28000", "28P01"):
        hint = (
            "Let the user of server.store create schemas: GRANT CREATE ON DATABASE … TO …; or give it one of its own."
        )
        return Refused("store.denied", f"{address}: {error}.", hint)
    if state in _IN_THE_WAY:
        text = f"{address}: {error}. What is there is not Rota's."
        return Refused("store.foreign", text, "Name another database.")
    if state == "2BP01":
        text = f"{address}: something of yours depends on a view of Rota's that a new version replaces: {error}."
        return Refused("store.refused", text, "Drop it, start Rota, and make it again.")
    if state in _GONE:
        return Refused("store.missing", f"{address}: what Rota kept there is gone: {error}.", _RESTORE_HINT)
    if state in _CORRUPT:
        return Refused("store.corrupt", f"{address} is damaged: {error}.", _RESTORE_HINT)
    return Unavailable("store.unavailable", f"{address}: {error}.")


def not_written(error: Said, address: Address) -> Exception:
    """What to raise when a batch was not written. Only these families are known to whoever commits."""
    if error.sqlstate[:2] in _UNSTORABLE:
        return StoreRefused(str(error))
    return as_unavailable(refusal(error, address))


def as_unavailable(error: Exception) -> Exception:
    """Whoever is in the middle of work can do nothing but wait until somebody has changed what is refused."""
    if isinstance(error, Refused):
        return Unavailable(error.code, f"{error.reason} {error.hint}")
    return error


def unreadable(error: Exception, address: Address) -> Unavailable:
    """What to raise when a row is not what was written."""
    text = f"{address} has a row that cannot be read: {type(error).__name__}: {error}. {_RESTORE_HINT}"
    return Unavailable("store.corrupt", text)
