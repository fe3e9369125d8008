"""What a transaction of etcd is made of: what must be so, and what is then read, put or deleted."""

from collections.abc import Iterable, Sequence

from rota.stores.etcd import rpc_pb2 as rpc


def is_absent(key: bytes) -> rpc.Compare:
    """Nobody has put the key."""
    return rpc.Compare(key=key, target=rpc.Compare.CREATE, create_revision=0)


def is_value(key: bytes, value: bytes) -> rpc.Compare:
    """The key has this very value."""
    return rpc.Compare(key=key, target=rpc.Compare.VALUE, value=value)


def is_unmoved(key: bytes, revision: int) -> rpc.Compare:
    """Nobody has put the key since that revision, not even with the same value."""
    return rpc.Compare(key=key, target=rpc.Compare.MOD, mod_revision=revision)


def get(key: bytes) -> rpc.RequestOp:
    """Read a key."""
    return rpc.RequestOp(request_range=rpc.RangeRequest(key=key))


def put(key: bytes, value: bytes, lease: int = 0) -> rpc.RequestOp:
    """Put a key; with a lease it goes when the lease does."""
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value, lease=lease))


def delete(key: bytes, end: bytes) -> rpc.RequestOp:
    """Delete the keys from one up to and without another."""
    return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key, range_end=end))


def txn(
    compare: Iterable[rpc.Compare] = (), then: Iterable[rpc.RequestOp] = (), otherwise: Iterable[rpc.RequestOp] = ()
) -> rpc.TxnRequest:
    """If all of that is so, do this, and otherwise the other; in one step either way."""
    return rpc.TxnRequest(compare=compare, success=then, failure=otherwise)


def found(answer: rpc.TxnResponse) -> Sequence[rpc.KeyValue | None]:
    """What each `get` of a transaction found, in their order."""
    ranges = [each.response_range for each in answer.responses if each.WhichOneof("response") == "response_range"]
    return [one.kvs[0] if one.kvs else None for one in ranges]
