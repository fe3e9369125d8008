"""What clients are told of an operation, in the messages of the API."""

from collections.abc import Iterable

from google.longrunning import operations_pb2
from google.protobuf import any_pb2, message
from google.rpc import code_pb2, error_details_pb2, status_pb2

from rota.api.reapi.ongoing import Ongoing, Stage
from rota.core.ids import Digest
from rota.kinds.build.naming import OperationName
from rota.wire.reapi import remote_execution_pb2 as re

# More are not told at once; who uploads these is told the next ones.
MISSING_TOLD_MAX = 1_000
MISSING = "MISSING"


def digest_message(digest: Digest) -> re.Digest:
    """A digest as it travels."""
    return re.Digest(hash=digest.hash, size_bytes=digest.size)


def queued_or_running(name: OperationName, ongoing: Ongoing) -> operations_pb2.Operation:
    """An operation that is not done."""
    return _operation(name, ongoing.work.action, ongoing.stage)


def done(name: OperationName, action: Digest, response: re.ExecuteResponse) -> operations_pb2.Operation:
    """An operation that is done."""
    operation = _operation(name, action, Stage.COMPLETED)
    operation.done = True
    operation.response.Pack(response)
    return operation


def cancelled(name: OperationName, action: Digest) -> operations_pb2.Operation:
    """An operation that its own client has cancelled."""
    operation = _operation(name, action, Stage.COMPLETED)
    operation.done = True
    operation.error.code = code_pb2.CANCELLED
    operation.error.message = "the operation was cancelled"
    return operation


def trouble(code: int, text: str, *details: message.Message) -> status_pb2.Status:
    """A status with what goes with it."""
    packed: list[any_pb2.Any] = []
    for detail in details:
        packed.append(any_pb2.Any())
        packed[-1].Pack(detail)
    return status_pb2.Status(code=code, message=text, details=packed)


def missing_status(missing: Iterable[Digest]) -> status_pb2.Status:
    """That content has to be uploaded first, in the form from which clients know what."""
    names = [f"blobs/{digest.hash}/{digest.size}" for digest in missing]
    failure = error_details_pb2.PreconditionFailure(
        violations=[
            error_details_pb2.PreconditionFailure.Violation(type=MISSING, subject=name)
            for name in names[:MISSING_TOLD_MAX]
        ]
    )
    more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    text = f"content is missing that the action needs: {names[0] if names else 'unknown'}{more}"
    return trouble(code_pb2.FAILED_PRECONDITION, text, failure)


def _operation(name: OperationName, action: Digest, stage: Stage) -> operations_pb2.Operation:
    operation = operations_pb2.Operation(name=str(name))
    about = re.ExecuteOperationMetadata(stage=stage.value, action_digest=digest_message(action))
    operation.metadata.Pack(about)
    return operation
