"""The service ActionCache: what became of actions that were carried out before."""

from collections.abc import Mapping

from rota.api.auth import Role
from rota.api.reapi.calls import Caller, Method
from rota.api.reapi.capabilities import Instances
from rota.api.reapi.results import Results
from rota.core.errors import Refused
from rota.wire.reapi import remote_execution_pb2 as pb
from rota.wire.reapi.digests import check_function, read_digest
from rota.wire.reapi.methods import GET_ACTION_RESULT, UPDATE_ACTION_RESULT
from rota.wire.reapi.names import check_instance


class ActionCache:
    """Gives results out to clients, and takes them from those who carry out actions themselves."""

    def __init__(self, results: Results, instances: Instances = check_instance) -> None:
        self._results = results
        self._instances = instances

    def methods(self) -> Mapping[str, Method]:
        """See `Service`. What workers do becomes a result only when their reports are accepted, and not here."""
        return {
            GET_ACTION_RESULT: Method(pb.GetActionResultRequest, self._get, Role.READER),
            UPDATE_ACTION_RESULT: Method(pb.UpdateActionResultRequest, self._update, Role.WRITER),
        }

    async def _get(self, caller: Caller, request: pb.GetActionResultRequest) -> pb.ActionResult:
        instance = self._instances(request.instance_name)
        check_function(request.digest_function)
        action = read_digest(request.action_digest, "action_digest")
        result = await self._results.find(caller.tenant, instance, action)
        if result is None:
            raise Refused("action.unknown", f"no result of {action.hash} is kept")
        await self._results.inline(
            caller.tenant,
            result,
            stdout=request.inline_stdout,
            stderr=request.inline_stderr,
            files=request.inline_output_files,
        )
        return result

    async def _update(self, caller: Caller, request: pb.UpdateActionResultRequest) -> pb.ActionResult:
        instance = self._instances(request.instance_name)
        check_function(request.digest_function)
        action = read_digest(request.action_digest, "action_digest")
        if not request.HasField("action_result"):
            raise Refused("field.type", "there is no result to keep", path="action_result")
        await self._results.keep(caller.tenant, instance, action, request.action_result)
        return request.action_result
