"""The methods of the API by their full names, for who serves them and who calls them."""

from typing import Final

_V2: Final = "build.bazel.remote.execution.v2"

GET_CAPABILITIES: Final = f"/{_V2}.Capabilities/GetCapabilities"

FIND_MISSING_BLOBS: Final = f"/{_V2}.ContentAddressableStorage/FindMissingBlobs"
BATCH_UPDATE_BLOBS: Final = f"/{_V2}.ContentAddressableStorage/BatchUpdateBlobs"
BATCH_READ_BLOBS: Final = f"/{_V2}.ContentAddressableStorage/BatchReadBlobs"
GET_TREE: Final = f"/{_V2}.ContentAddressableStorage/GetTree"

READ: Final = "/google.bytestream.ByteStream/Read"
WRITE: Final = "/google.bytestream.ByteStream/Write"
QUERY_WRITE_STATUS: Final = "/google.bytestream.ByteStream/QueryWriteStatus"

GET_ACTION_RESULT: Final = f"/{_V2}.ActionCache/GetActionResult"
UPDATE_ACTION_RESULT: Final = f"/{_V2}.ActionCache/UpdateActionResult"

EXECUTE: Final = f"/{_V2}.Execution/Execute"
WAIT_EXECUTION: Final = f"/{_V2}.Execution/WaitExecution"

GET_OPERATION: Final = "/google.longrunning.Operations/GetOperation"
LIST_OPERATIONS: Final = "/google.longrunning.Operations/ListOperations"
CANCEL_OPERATION: Final = "/google.longrunning.Operations/CancelOperation"

# What a client says about itself with each call: a RequestMetadata message.
REQUEST_METADATA: Final = "build.bazel.remote.execution.v2.requestmetadata-bin"
# A google.rpc.Status with all of its details, beside the status that gRPC itself knows.
STATUS_DETAILS: Final = "grpc-status-details-bin"
