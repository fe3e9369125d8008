"""What a file defines, queues, schedulers, pools and tenants: by the same rules as when a client puts them."""

from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct

from rota.config.lines import Unknown, Where
from rota.config.schedulers import read_schedulers
from rota.config.settings import Definitions
from rota.core.bounds import TimeLimits
from rota.core.commands import ClientCommand, PutPool, PutQueue, PutTenant
from rota.core.decide import decide
from rota.core.door import check_shape
from rota.core.errors import Refused
from rota.core.graph import check_id
from rota.core.ids import DEFAULT_TENANT, CommandId, Epoch
from rota.core.model import Pool, Queue, Tenant
from rota.core.state import State

KINDS: dict[str, type[Struct]] = {"queues": Queue, "pools": Pool, "tenants": Tenant}
SCHEDULERS = "schedulers"
# Who asked, as the audit shows it.
ACTOR = "rota.toml"


def read_definitions(tables: Mapping[str, Any], where: Where, unknown: Unknown) -> Definitions:
    """The definitions in a file's tables; `unknown` makes the refusal of a name that nobody knows."""
    found: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    seen: dict[tuple[str, str, str], str] = {}
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
                defined = _read(shape, name, content)
            except Refused as refused:
                raise _refusal(refused, path, where) from None
            _check_name(kind, defined, path, seen, where)
            found[kind].append(defined)
    schedulers, backends = read_schedulers(tables[SCHEDULERS], where, unknown) if SCHEDULERS in tables else ([], [])
    for position, queue in enumerate(schedulers):
        path = f"{SCHEDULERS}[{position}]"
        try:
            check(queue)
        except Refused as refused:
            raise _refusal(refused, path, where) from None
        _check_name("queues", queue, path, seen, where)
    queues = (*found["queues"], *schedulers)
    return Definitions(queues, tuple(found["pools"]), tuple(found["tenants"]), tuple(backends))


def _read(shape: type[Struct], name: str, content: dict[str, object]) -> Any:
    named = {"tenant": name} if shape is Tenant else {"tenant": DEFAULT_TENANT, "name": name}
    whole: dict[str, object] = {**named, **content}
    properties = whole.get("properties")
    if isinstance(properties, dict):
        # A table reads better in a file than a list of pairs.
        whole["properties"] = list(cast(dict[str, object], properties).items())
    defined = check_shape(whole, shape)
    check(defined)
    return defined


def check(defined: Queue | Pool | Tenant) -> None:
    """The rules are those of the command, so the command is asked; on a state in which nothing is."""
    decide(State(Epoch(1), TimeLimits(), 0), _command(defined, "config"), 0)


def _refusal(refused: Refused, path: str, where: Where) -> Refused:
    inner = refused.path.partition(".")[2] or refused.path
    path = f"{path}.{inner}" if inner else path
    return Refused("config.value", refused.reason, f"{refused.hint} It is at {where(path)}.".strip(), path=path)


def _check_name(
    kind: str, defined: Queue | Pool | Tenant, path: str, seen: dict[tuple[str, str, str], str], where: Where
) -> None:
    """A queue and a scheduler are one thing: they share their names."""
    if isinstance(defined, Tenant):
        return
    first = seen.setdefault((kind, defined.tenant, defined.name), path)
    if first != path:
        text = f"{defined.name!r} of tenant {defined.tenant!r} is defined twice"
        hint = f"It is at {where(first)} and at {where(path)}: remove one of the two."
        raise Refused("config.value", text, hint, path=path)


def commands_for(definitions: Definitions, start: str) -> list[ClientCommand]:
    """What a coordinator is asked when it starts. `start` names that start, so that no id is used twice."""
    defined = (*definitions.queues, *definitions.pools, *definitions.tenants)
    return [_command(each, f"config-{start}-{number}") for number, each in enumerate(defined)]


def _command(defined: Queue | Pool | Tenant, command_id: str) -> ClientCommand:
    match defined:
        case Queue():
            return PutQueue(tenant=defined.tenant, command_id=CommandId(command_id), actor=ACTOR, queue=defined)
        case Pool():
            return PutPool(tenant=defined.tenant, command_id=CommandId(command_id), actor=ACTOR, pool=defined)
        case Tenant():
            return PutTenant(
                tenant=defined.tenant, command_id=CommandId(command_id), actor=ACTOR, weight=defined.weight
            )
