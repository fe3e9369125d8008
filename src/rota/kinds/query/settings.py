"""What the engine is told for planning and for running stages. A plan that is made otherwise may not be cut right."""

from rota.kinds.query.sizing import BROADCAST_BYTES, BROADCAST_ROWS
from rota.wire.plans.settings import EXECUTING

__all__ = ["EXECUTING", "PLANNING"]

_OPTIMIZER = "datafusion.optimizer."

PLANNING: tuple[tuple[str, str], ...] = (
    # An expression that refers to a plan cannot be sent without it; joins can.
    (f"{_OPTIMIZER}enable_physical_uncorrelated_scalar_subquery", "false"),
    # Rows of an exchange come in no order.
    (f"{_OPTIMIZER}prefer_existing_sort", "false"),
    # A row of an exchange is dear; sending the smaller side of a join to every task is often less.
    (f"{_OPTIMIZER}hash_join_single_partition_threshold", str(BROADCAST_BYTES)),
    (f"{_OPTIMIZER}hash_join_single_partition_threshold_rows", str(BROADCAST_ROWS)),
    *EXECUTING,
)
