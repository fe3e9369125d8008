"""Agents' words as properties: what an item asks of a session, and what a session has to offer.

Everything that compares the two does so by the rules of one queue, so claims, wakes, spawning and `why` cannot
disagree. The whole mapping:

| an item has | it requires | a session has | it advertises |
|---|---|---|---|
| a workspace, or none | `workspace`, `-` for none | a workspace, or none | `workspace`, `-` for none |
| a channel | `channel` | a channel | `channel` |
| an owner: a pool of agents | `agent` | an agent name | `agent` |
| an owner: one session | `session` | its id | `session` |
| required capabilities | `capability` each | capabilities | `capability` each, |
| preferred capabilities | `prefers` each, which never excludes | | and `prefers` each |

So an item of no workspace is for sessions of none, and one that is bound to a channel is not for sessions without.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct

from rota.core.demand import Demand, Signature, read_demand
from rota.core.errors import Refused
from rota.core.ids import DEFAULT_TENANT
from rota.core.model import AGENT_PROPERTIES, AGENTS_QUEUE, CLASS_WEIGHT, Capacity, Pairs, Queue
from rota.wire.items import PRIORITY_CLASSES, Priority

AGENT_KIND = "agent"
NO_WORKSPACE = "-"
CAPABILITY_BYTES_MAX = 128
PRIORITY_WEIGHT: dict[Priority, int] = {
    priority: CLASS_WEIGHT[priority_class] for priority, priority_class in PRIORITY_CLASSES.items()
}


class OwnerKind(StrEnum):
    """Whose an item may be. Sessions can claim those of a pool of agents or of one session, and what nobody owns."""

    POOL = "pool"
    AGENT_SESSION = "agent_session"
    HUMAN = "human"
    AUTOMATION = "automation"
    EXTENSION = "extension"
    NETWORK_PEER = "network_peer"


class Owner(Struct, frozen=True, forbid_unknown_fields=True):
    """Whose an item is: `ref` is an agent's name for a pool, an id for the others."""

    kind: OwnerKind
    ref: str


OWNER_PROPERTY: dict[OwnerKind, str] = {OwnerKind.POOL: "agent", OwnerKind.AGENT_SESSION: "session"}


def is_for_sessions(owner: Owner | None) -> bool:
    """Whether any session could ever claim what this owner has."""
    return owner is None or (owner.kind in OWNER_PROPERTY and bool(owner.ref))


def requires_of(
    *,
    workspace: str = "",
    channel: str = "",
    owner: Owner | None = None,
    requires: Iterable[str] = (),
    prefers: Iterable[str] = (),
) -> Pairs:
    """What an item asks of a session. Capabilities are sorted: their order must not tell equal items apart."""
    _check_workspace(workspace)
    if not is_for_sessions(owner):
        raise Refused(
            "field.value",
            "only a pool of agents or one session can own work that sessions claim",
            "Leave the owner out, or name an agent or a session.",
            path="owner",
        )
    pairs = [("workspace", workspace or NO_WORKSPACE)]
    if channel:
        pairs.append(("channel", channel))
    if owner is not None:
        pairs.append((OWNER_PROPERTY[owner.kind], owner.ref))
    pairs += [("capability", name) for name in sorted(check_capabilities(requires, path="requires"))]
    pairs += [("prefers", name) for name in sorted(check_capabilities(prefers, path="prefers"))]
    return tuple(pairs)


def capacity_of(
    session: str,
    *,
    agent: str = "",
    workspace: str = "",
    channel: str = "",
    capabilities: Iterable[str] = (),
    slots: int = 1,
    tenants: tuple[str, ...] = (),
    silence_ms: int = 0,
    type: str = "",  # noqa: A002 - what sessions call it
) -> Capacity:
    """What a session has to offer; `slots` is how many leases it may hold at once. Its type is not compared."""
    _check_workspace(workspace)
    pairs = [("workspace", workspace or NO_WORKSPACE), ("session", session)]
    if channel:
        pairs.append(("channel", channel))
    if agent:
        pairs.append(("agent", agent))
    names = sorted(check_capabilities(capabilities, path="capabilities"))
    pairs += [(rule, name) for name in names for rule in ("capability", "prefers")]
    if type:
        pairs.append(("type", type))
    return Capacity(
        pull=True,
        slots=slots,
        queues=(AGENTS_QUEUE,),
        tenants=tenants,
        properties=tuple(pairs),
        silence_ms=silence_ms,
    )


def check_capabilities(names: Iterable[str], *, path: str = "capabilities") -> Sequence[str]:
    """Refuse what cannot be a list of capabilities: they are written with commas between, and compared byte by byte."""
    known: dict[str, None] = {}
    for place, name in enumerate(names):
        where = f"{path}[{place}]"
        if not name or "," in name or any(map(str.isspace, name)):
            hint = "Use names without spaces and commas, such as code.review."
            raise Refused("field.value", f"a capability cannot be {name[:CAPABILITY_BYTES_MAX]!r}", hint, path=where)
        if len(name.encode(errors="surrogatepass")) > CAPABILITY_BYTES_MAX:
            raise Refused(
                "field.size",
                f"a capability has at most {CAPABILITY_BYTES_MAX} bytes",
                "Use a shorter name.",
                path=where,
            )
        if name in known:
            raise Refused("field.value", f"the capability {name!r} is named twice", "Name it once.", path=where)
        known[name] = None
    return tuple(known)


def _check_workspace(workspace: str) -> None:
    if workspace == NO_WORKSPACE:
        hint = "Use another name, or none at all."
        raise Refused("field.value", f"{NO_WORKSPACE!r} stands for no workspace", hint, path="workspace")


@lru_cache
def agents_queue(tenant: str = DEFAULT_TENANT) -> Queue:
    """The queue in which a tenant's items wait for sessions."""
    return Queue(tenant=tenant, name=AGENTS_QUEUE, properties=AGENT_PROPERTIES, pull=True)


def demand_of(requires: Pairs, *, tenant: str = DEFAULT_TENANT) -> Demand:
    """An item's requirements as its queue reads them."""
    return read_demand(Signature(tenant, AGENTS_QUEUE, AGENT_KIND, requires), agents_queue(tenant))
