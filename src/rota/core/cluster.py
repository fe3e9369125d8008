"""The cluster id: which scheduler a worker belongs to.

All coordinators of one store have the same cluster id, which is derived from the store's identity, and no other store
has it. A worker names its cluster in its greeting. A coordinator refuses a worker of another cluster, and a worker
refuses a coordinator of another cluster: an address alone does not say which scheduler listens there.
"""

from hashlib import sha256

from rota.core.errors import Refused

CLUSTER_PATTERN = "^[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}$"
CODE = "worker.cluster"


def cluster_id(identity: str) -> str:
    """The cluster id of a store, such as `3f9c-1a7b-e204`."""
    digest = sha256(identity.encode()).hexdigest()
    return f"{digest[:4]}-{digest[4:8]}-{digest[8:12]}"


def check_worker(named: str, own: str, *, has_token: bool) -> Refused | None:
    """Why a coordinator of the cluster `own` refuses a worker that names the cluster `named`, or None.

    A worker that names no cluster needs a token: only the operator of this cluster could have given it one.
    """
    if named:
        return wrong_cluster(named, own) if named != own else None
    if has_token:
        return None
    text = f"the worker names no cluster and shows no token; this is cluster {own}"
    return Refused(CODE, text, f"Start it with --cluster {own} if it is meant for this cluster.")


def check_coordinator(expected: str, found: str, address: str = "") -> Refused | None:
    """Why a worker of the cluster `expected` refuses a coordinator that says it is of the cluster `found`, or None.

    A worker that expects no cluster accepts any. A coordinator of an older version says no cluster: then nothing
    proves that it is the expected one.
    """
    return wrong_cluster(expected, found, address) if expected and found != expected else None


def wrong_cluster(worker: str, coordinator: str, address: str = "", memory: str = "", path: str = "") -> Refused:
    """The refusal itself. `memory` is the file with the worker's cluster id, or `path` the setting that names it."""
    where = f" at {address}" if address else ""
    said = f"cluster {coordinator}" if coordinator else "a coordinator that does not say its cluster"
    text = f"the worker belongs to cluster {worker}, and {said} answered{where}"
    if not coordinator:
        return Refused(CODE, text, "Upgrade that coordinator first.", path=path)
    ways = f"start it once with --cluster {coordinator}" + (f", or remove {memory}" if memory else "")
    hint = f"Correct the address of the coordinator. To move the worker to cluster {coordinator}, {ways}."
    return Refused(CODE, text, hint, path=path)
