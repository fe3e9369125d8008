"""The queue in which actions wait unless settings name others."""

from collections.abc import Iterable, Mapping

from rota.core.errors import Refused
from rota.core.model import DEFAULT_QUEUE_PROPERTIES, PropertyRule, Queue, Unservable
from rota.wire.builds import SANDBOX

BUILDS_QUEUE = "builds"
# An action that names an image, or a sandbox, runs on a worker that says it has it, and on no other.
BUILD_PROPERTIES = (
    *DEFAULT_QUEUE_PROPERTIES,
    ("container-image", PropertyRule.EXACT),
    (SANDBOX, PropertyRule.EXACT),
)
WORKER_TIMEOUT_MS = 5_000


def builds_queue(tenant: str) -> Queue:
    """Actions that no worker could ever carry out fail, and those of a silent worker are soon granted to another."""
    return Queue(
        tenant=tenant,
        name=BUILDS_QUEUE,
        properties=BUILD_PROPERTIES,
        unservable=Unservable.FAIL,
        worker_timeout_ms=WORKER_TIMEOUT_MS,
    )


def check_queues(queue: str, instances: Mapping[str, str], there: Iterable[Queue]) -> None:
    """Refuse a queue for actions that is not defined: a misspelt one has no rules, and no worker may serve it.

    The one that is meant if nothing is said is made by the coordinator.
    """
    known = {BUILDS_QUEUE, "default", *(each.name for each in there)}
    named = {"builds.queue": queue, **{f"builds.instances.{name}": one for name, one in instances.items()}}
    for path, name in named.items():
        if name not in known:
            text = f"actions are to wait in queue {name!r}, which is not defined"
            hint = f"Define it in [queues.{name}], or name one of {', '.join(sorted(known))}."
            raise Refused("queue.unknown", text, hint, path=path)
