"""Keys of buckets in the process that runs a fragment: there before the engine is, and for nobody else."""

import os

from rota.wire.plans.code import has_code
from rota.worker.runners.queries.orders import Broke, Order
from rota.worker.supervisor.confinement import hide_process

# An address that swallows what is sent to it is given up soon; the engine tries ten times by itself.
_PATIENCE = {"AWS_CONNECT_TIMEOUT": "3s", "AZURE_CONNECT_TIMEOUT": "3s"}


def unlock(order: Order, plan: bytes) -> Broke | None:
    """Put the keys of an order where the engine finds them; why not, if it must not be.

    What was said about code when the query was submitted is looked at again: a plan with functions never meets keys.
    The process gets its environment back when the attempt is over.
    """
    if order.is_keyed and has_code(plan):
        return Broke("fatal", "query.source: a plan with Python functions is not given the keys of buckets")
    if order.is_keyed:
        # Others of the same user are kept out from here on.
        hide_process()
    os.environ.update({**_PATIENCE, **order.variables})
    return None
