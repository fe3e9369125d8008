"""The service Capabilities: what this front end can do."""

from collections.abc import Callable, Mapping

from rota.api.auth import Role
from rota.api.reapi.calls import Caller, Method
from rota.wire.reapi import remote_execution_pb2 as pb
from rota.wire.reapi.limits import BATCH_BYTES_MAX, BLOB_BYTES_MAX, PRIORITY_MAX
from rota.wire.reapi.methods import GET_CAPABILITIES
from rota.wire.reapi.names import check_instance
from rota.wire.reapi.semver_pb2 import SemVer

# Bazel 4 knows 2.0 only, and refuses whoever begins later.
LOW = SemVer(major=2, minor=0)
HIGH = SemVer(major=2, minor=3)

# Refuses an instance that is not served; the answer is its name as it is used.
Instances = Callable[[str], str]


class Capabilities:
    """Answers what every client asks first."""

    def __init__(self, *, can_execute: bool, instances: Instances = check_instance) -> None:
        self._can_execute = can_execute
        self._instances = instances

    def methods(self) -> Mapping[str, Method]:
        """See `Service`."""
        return {GET_CAPABILITIES: Method(pb.GetCapabilitiesRequest, self._get, Role.READER, is_for_workers=True)}

    async def _get(self, caller: Caller, request: pb.GetCapabilitiesRequest) -> pb.ServerCapabilities:
        self._instances(request.instance_name)
        sha256 = pb.DigestFunction.SHA256
        priorities = pb.PriorityCapabilities()
        priorities.priorities.add(min_priority=-PRIORITY_MAX, max_priority=PRIORITY_MAX)
        execution = pb.ExecutionCapabilities(
            # Older clients read the first of these, newer ones the second.
            digest_function=sha256,
            digest_functions=[sha256],
            exec_enabled=self._can_execute,
            execution_priority_capabilities=priorities,
        )
        cache = pb.CacheCapabilities(
            digest_functions=[sha256],
            action_cache_update_capabilities=pb.ActionCacheUpdateCapabilities(
                update_enabled=caller.who.role.covers(Role.WRITER)
            ),
            max_batch_total_size_bytes=BATCH_BYTES_MAX,
            max_cas_blob_size_bytes=BLOB_BYTES_MAX,
            symlink_absolute_path_strategy=pb.SymlinkAbsolutePathStrategy.DISALLOWED,
        )
        return pb.ServerCapabilities(
            cache_capabilities=cache, execution_capabilities=execution, low_api_version=LOW, high_api_version=HIGH
        )
