"""Queues, pools and tenants of rota.toml: the same structs and the same rules as when they are put by a client."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from msgspec import Struct

from rota.config.settings import Definitions
from rota.core.bounds import TimeLimits
from rota.core.commands import ClientCommand, PutPool, PutQueue, PutTenant
from rota.core.decide import decide
from rota.core.door import check_shape
from rota.core.errors import Refused
from rota.core.graph import check_id
from rota.core.ids import DEFAULT_TENANT
from rota.core.model import Pool, Queue, Tenant
from rota.core.state import State

KINDS: dict[str, type[Struct]] = {"queues": Queue, "pools": Pool, "tenants": Tenant}
# Who asked, as the audit shows it.
ACTOR = "rota.toml"

# Where something stands in the file, by its path.
Where = Callable[[str], str]
Unknown = Callable[[str, str, list[str]], Refused]


def read_definitions(tables: Mapping[str, Mapping[str, object]], where: Where, unknown: Unknown) -> Definitions:
    """The definitions in a file's tables; `unknown` makes the refusal of a name that nobody knows."""
    found: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    for kind, shape in KINDS.items():
        for name, table in tables.get(kind, {}).items():
            path = f"{kind}.{name}"
            if not isinstance(table, dict):
                hint = f"Write [{path}] on a line of its own. It is at {where(path)}."
                raise Refused("config.value", "a definition is a table", hint, path=path)
            content = cast(dict[str, object], table)
            fields = list(shape.__struct_fields__)
            for key in content:
                if key not in fields:
                    raise unknown(f"{path}.{key}", key, fields)
            try:
                check_id(name, "name")
                found[kind][name] = _read(shape, name, content)
            except Refused as refused:
                raise _refusal(refused, path, where) from None
    definitions = Definitions(*(tuple(found[kind].values()) for kind in KINDS))
    _check_names(definitions)
    return definitions


def _read(shape: type[Struct], name: str, content: dict[str, object]) -> Any:
    named = {"tenant": name} if shape is Tenant else {"tenant": DEFAULT_TENANT, "name": name}
    whole: dict[str, object] = {**named, **content}
    properties = whole.get("properties")
    if isinstance(properties, dict):
        # A table reads better in a file than a list of pairs.
        whole["properties"] = list(cast(dict[str, object], properties).items())
    defined = check_shape(whole, shape)
    # The rules are those of the command, so the command is asked; on a state in which nothing is.
    decide(State(1, TimeLimits(), 0), _command(defined, "config"), 0)
    return defined


def _refusal(refused: Refused, path: str, where: Where) -> Refused:
    inner = refused.path.partition(".")[2] or refused.path
    path = f"{path}.{inner}" if inner else path
    return Refused("config.value", refused.reason, f"{refused.hint} It is at {where(path)}.".strip(), path=path)


def _check_names(definitions: Definitions) -> None:
    for kind, defined in (("queues", definitions.queues), ("pools", definitions.pools)):
        seen: dict[tuple[str, str], None] = {}
        for each in defined:
            if (each.tenant, each.name) in seen:
                text = f"{each.name!r} of tenant {each.tenant!r} is defined twice"
                raise Refused("config.value", text, "Remove one of the two.", path=kind)
            seen[(each.tenant, each.name)] = None


def commands_for(definitions: Definitions, start: str) -> list[ClientCommand]:
    """What a coordinator is asked when it starts. `start` names that start, so that no id is used twice."""
    defined = (*definitions.queues, *definitions.pools, *definitions.tenants)
    return [_command(each, f"config-{start}-{number}") for number, each in enumerate(defined)]


def _command(defined: Queue | Pool | Tenant, command_id: str) -> ClientCommand:
    match defined:
        case Queue():
            return PutQueue(tenant=defined.tenant, command_id=command_id, actor=ACTOR, queue=defined)
        case Pool():
            return PutPool(tenant=defined.tenant, command_id=command_id, actor=ACTOR, pool=defined)
        case Tenant():
            return PutTenant(tenant=defined.tenant, command_id=command_id, actor=ACTOR, weight=defined.weight)
