"""Buckets in plans."""

import re

from rota.wire.plans import plan_pb2 as pb

# A scan names its store in a field of its own: the field's tag, the length of what follows, and that.
_TAG = bytes([pb.ScanConf.OBJECT_STORE_URL_FIELD_NUMBER << 3 | 2])
_STORE = re.compile(re.escape(_TAG) + rb"([\x01-\x7f])((?:s3|gs|az)://[A-Za-z0-9][\w.-]*)/", re.DOTALL)


def stores_in(plan: bytes) -> tuple[str, ...]:
    """The stores that a plan reads, as `s3://bucket`; also of a plan with nodes that we do not know."""
    found = (match.group(2) for match in _STORE.finditer(plan) if match.group(1)[0] == len(match.group(2)) + 1)
    return tuple(sorted({store.decode("ascii") for store in found}))
