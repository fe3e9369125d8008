"""What clients are told of an operation, in the messages of the API."""

from google.longrunning import operations_pb2  # pyright: ignore[reportMissingTypeStubs] - not marked as typed
from google.protobuf import any_pb2
from google.rpc import code_pb2, status_pb2  # pyright: ignore[reportMissingTypeStubs] - not marked as typed

from rota.api.reapi.backlog import ended_for_others
from rota.api.reapi.ongoing import Conclusion, Ongoing, Stage
from rota.api.reapi.statuses import TEXT_CHARS_MAX
from rota.core.ids import Digest
from rota.core.ladder import FAILED_UNSERVED, PARKED_UNSERVED
from rota.core.states import RunState
from rota.kinds.build.naming import OperationName
from rota.wire.builds import INVALID_ACTION
from rota.wire.reapi import remote_execution_pb2 as pb
from rota.wire.reapi.digests import as_message

_METADATA_URL = f"type.googleapis.com/{pb.ExecuteOperationMetadata.DESCRIPTOR.full_name}"
_STAGES = {stage: pb.ExecutionStage.Value.Name(stage.value) for stage in Stage}


def under_way(name: OperationName, ongoing: Ongoing) -> operations_pb2.Operation:
    """An operation that is not done."""
    return _operation(name, ongoing.work.action, ongoing.stage)


def done(name: OperationName, action: Digest, response: pb.ExecuteResponse) -> operations_pb2.Operation:
    """An operation that is done."""
    operation = _operation(name, action, Stage.COMPLETED)
    operation.done = True
    operation.response.Pack(response)
    return operation


def cancelled(name: OperationName, action: Digest) -> operations_pb2.Operation:
    """An operation that its own client has cancelled. Clients look into the response for that, like for all else."""
    status = status_pb2.Status(code=code_pb2.CANCELLED, message="the operation was cancelled")
    return done(name, action, pb.ExecuteResponse(status=status))


def failure(end: Conclusion) -> status_pb2.Status:
    """Why there is no result."""
    error, code = end.error, code_pb2.INTERNAL
    if ended_for_others(end):
        code = code_pb2.CANCELLED
    elif end.state is RunState.CANCELLED:
        # By a person, who does not want it asked for again, and that is what Bazel does when it hears CANCELLED.
        error, code = f"the run was cancelled: {error}", code_pb2.FAILED_PRECONDITION
    elif error.startswith(INVALID_ACTION):
        code = code_pb2.INVALID_ARGUMENT
    elif error.startswith((FAILED_UNSERVED, PARKED_UNSERVED)):
        # Nobody will ever carry it out as things are; trying again does not help.
        code = code_pb2.FAILED_PRECONDITION
    return status_pb2.Status(code=code, message=error[:TEXT_CHARS_MAX] or f"the run was {end.state}")


def _operation(name: OperationName, action: Digest, stage: Stage) -> operations_pb2.Operation:
    about = pb.ExecuteOperationMetadata(stage=_STAGES[stage], action_digest=as_message(action))
    # As `Pack` would do it, which looks up each time what it is called.
    metadata = any_pb2.Any(type_url=_METADATA_URL, value=about.SerializeToString())
    return operations_pb2.Operation(name=str(name), metadata=metadata)
