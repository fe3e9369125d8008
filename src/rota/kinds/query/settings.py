"""What the engine is told for planning and for running stages. A plan that is made otherwise may not be cut right."""

from collections.abc import Mapping
from functools import cache

import datafusion as df

from rota.core.errors import Refused
from rota.core.model import Pairs
from rota.kinds.query.sizing import BROADCAST_BYTES, BROADCAST_ROWS
from rota.wire.plans.settings import EXECUTING, is_sent

__all__ = ["EXECUTING", "PLANNING", "changed_settings"]

_OPTIMIZER = "datafusion.optimizer."

PLANNING: tuple[tuple[str, str], ...] = (
    # Rows of an exchange come in no order.
    (f"{_OPTIMIZER}prefer_existing_sort", "false"),
    # A row of an exchange is dear; sending the smaller side of a join to every task is often less.
    (f"{_OPTIMIZER}hash_join_single_partition_threshold", str(BROADCAST_BYTES)),
    (f"{_OPTIMIZER}hash_join_single_partition_threshold_rows", str(BROADCAST_ROWS)),
    *EXECUTING,
)


def changed_settings(context: df.SessionContext) -> Pairs:
    """The settings that a session has changed, and that workers have to know to give the same answers."""
    usual = _usual()
    changed = {name: value for name, value in _settings_of(context).items() if value != usual.get(name)}
    for name, value in changed.items():
        if value is None:
            text = f"workers cannot be told that {name} has no value"
            raise Refused("query.unsupported", text, "Set it to a value.", path="sql")
    return tuple((name, value) for name, value in sorted(changed.items()) if value is not None)


@cache
def _usual() -> Mapping[str, str | None]:
    config = df.SessionConfig().with_information_schema(True)
    for name, value in PLANNING:
        config = config.set(name, value)
    return _settings_of(df.SessionContext(config))


def _settings_of(context: df.SessionContext) -> Mapping[str, str | None]:
    try:
        rows = context.sql("SELECT name, value FROM information_schema.df_settings").to_pylist()
    except Exception as error:
        text = f"the settings of this session, which its workers need, cannot be read: {error}"
        hint = "Set datafusion.catalog.information_schema to true."
        raise Refused("query.unsupported", text, hint, path="sql") from error
    return {row["name"]: row["value"] for row in rows if is_sent(row["name"])}
