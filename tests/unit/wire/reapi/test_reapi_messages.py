"""The .proto files agree with the API: names and numbers are what other programs were built with."""

import subprocess
import sys

import pytest
from google.protobuf.descriptor import Descriptor

from rota.wire.reapi import bytestream_pb2, remote_execution_pb2, semver_pb2

# As far as clients read and write them; from the API, not from our files.
FIELDS = {
    "Digest": "hash=1 size_bytes=2",
    "Action": "command_digest=1 input_root_digest=2 timeout=6 do_not_cache=7 salt=9 platform=10",
    "Command": "arguments=1 environment_variables=2 output_files=3 output_directories=4 platform=5 working_directory=6 "
    "output_paths=7 output_node_properties=8 output_directory_format=9",
    "Directory": "files=1 directories=2 symlinks=3 node_properties=5",
    "FileNode": "name=1 digest=2 is_executable=4 node_properties=6",
    "DirectoryNode": "name=1 digest=2",
    "SymlinkNode": "name=1 target=2 node_properties=4",
    "NodeProperties": "properties=1 mtime=2 unix_mode=3",
    "Tree": "root=1 children=2",
    "ExecuteRequest": "instance_name=1 skip_cache_lookup=3 action_digest=6 execution_policy=7 results_cache_policy=8 "
    "digest_function=9 inline_stdout=10 inline_stderr=11 inline_output_files=12",
    "WaitExecutionRequest": "name=1",
    "ExecuteOperationMetadata": "stage=1 action_digest=2 stdout_stream_name=3 stderr_stream_name=4 "
    "partial_execution_metadata=5 digest_function=6",
    "ExecuteResponse": "result=1 cached_result=2 status=3 server_logs=4 message=5",
    "LogFile": "digest=1 human_readable=2",
    "ActionResult": "output_files=2 output_directories=3 exit_code=4 stdout_raw=5 stdout_digest=6 stderr_raw=7 "
    "stderr_digest=8 execution_metadata=9 output_file_symlinks=10 output_directory_symlinks=11 output_symlinks=12",
    "OutputFile": "path=1 digest=2 is_executable=4 contents=5 node_properties=7",
    "OutputDirectory": "path=1 tree_digest=3 is_topologically_sorted=4 root_directory_digest=5",
    "OutputSymlink": "path=1 target=2 node_properties=4",
    "ExecutedActionMetadata": "worker=1 queued_timestamp=2 worker_start_timestamp=3 worker_completed_timestamp=4 "
    "input_fetch_start_timestamp=5 input_fetch_completed_timestamp=6 execution_start_timestamp=7 "
    "execution_completed_timestamp=8 output_upload_start_timestamp=9 output_upload_completed_timestamp=10 "
    "auxiliary_metadata=11 virtual_execution_duration=12",
    "GetActionResultRequest": "instance_name=1 action_digest=2 inline_stdout=3 inline_stderr=4 inline_output_files=5 "
    "digest_function=6",
    "UpdateActionResultRequest": "instance_name=1 action_digest=2 action_result=3 results_cache_policy=4 "
    "digest_function=5",
    "FindMissingBlobsRequest": "instance_name=1 blob_digests=2 digest_function=3",
    "FindMissingBlobsResponse": "missing_blob_digests=2",
    "BatchUpdateBlobsRequest": "instance_name=1 requests=2 digest_function=5",
    "BatchUpdateBlobsRequest.Request": "digest=1 data=2 compressor=3",
    "BatchUpdateBlobsResponse.Response": "digest=1 status=2",
    "BatchReadBlobsRequest": "instance_name=1 digests=2 acceptable_compressors=3 digest_function=4",
    "BatchReadBlobsResponse.Response": "digest=1 data=2 status=3 compressor=4",
    "GetTreeRequest": "instance_name=1 root_digest=2 page_size=3 page_token=4 digest_function=5",
    "GetTreeResponse": "directories=1 next_page_token=2",
    "ServerCapabilities": "cache_capabilities=1 execution_capabilities=2 deprecated_api_version=3 low_api_version=4 "
    "high_api_version=5",
    "CacheCapabilities": "digest_functions=1 action_cache_update_capabilities=2 cache_priority_capabilities=3 "
    "max_batch_total_size_bytes=4 symlink_absolute_path_strategy=5 supported_compressors=6 "
    "supported_batch_update_compressors=7 max_cas_blob_size_bytes=8",
    "ExecutionCapabilities": "digest_function=1 exec_enabled=2 execution_priority_capabilities=3 "
    "supported_node_properties=4 digest_functions=5",
    "RequestMetadata": "tool_details=1 action_id=2 tool_invocation_id=3 correlated_invocations_id=4 action_mnemonic=5 "
    "target_id=6 configuration_id=7",
}


@pytest.mark.parametrize("name", FIELDS)
def test_fields_have_the_numbers_of_the_api(name: str):
    outer, _, inner = name.partition(".")
    found: Descriptor = remote_execution_pb2.DESCRIPTOR.message_types_by_name[outer]
    if inner:
        found = found.nested_types_by_name[inner]
    assert " ".join(f"{field.name}={field.number}" for field in found.fields) == FIELDS[name]


def test_packages_are_those_of_the_api():
    assert remote_execution_pb2.DESCRIPTOR.package == "build.bazel.remote.execution.v2"
    assert bytestream_pb2.DESCRIPTOR.package == "google.bytestream"
    assert semver_pb2.DESCRIPTOR.package == "build.bazel.semver"


def test_bytes_of_a_stream_have_the_numbers_of_the_api():
    write = bytestream_pb2.WriteRequest(resource_name="r", write_offset=1, finish_write=True, data=b"d")
    assert write.SerializeToString() == b"\x0a\x01r\x10\x01\x18\x01\x52\x01d"
    assert bytestream_pb2.ReadResponse(data=b"d").SerializeToString() == b"\x52\x01d"


def test_nothing_of_it_is_imported_by_whoever_does_not_build():
    program = (
        "import sys, rota, rota.cli, rota.app, rota.api, rota.ports\n"
        "heavy = [name for name in sys.modules if name.startswith(('google.protobuf', 'rota.wire.reapi'))]\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
