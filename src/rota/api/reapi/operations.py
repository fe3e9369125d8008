"""The service Operations: actions under way, for those who ask about them instead of listening."""

from collections.abc import Mapping

from google.longrunning import operations_pb2  # pyright: ignore[reportMissingTypeStubs] - not marked as typed
from google.protobuf import empty_pb2

from rota.api.auth import Role
from rota.api.reapi import answers
from rota.api.reapi.calls import Caller, Method
from rota.api.reapi.desks import Desks
from rota.api.reapi.driver import BacklogDriver
from rota.api.reapi.execution import Execution, unknown
from rota.api.reapi.ongoing import Ongoing, Operation
from rota.core.errors import Refused
from rota.kinds.build.naming import OperationName, read_name
from rota.wire.reapi.methods import CANCEL_OPERATION, GET_OPERATION, LIST_OPERATIONS

PAGE = 100
PAGE_MAX = 1_000


class Operations:
    """Asking about operations, and cancelling them."""

    def __init__(self, desks: Desks, execution: Execution) -> None:
        self._desks = desks
        self._execution = execution

    def methods(self) -> Mapping[str, Method]:
        """See `Service`."""
        return {
            GET_OPERATION: Method(operations_pb2.GetOperationRequest, self._get, Role.READER),
            LIST_OPERATIONS: Method(operations_pb2.ListOperationsRequest, self._list, Role.READER),
            CANCEL_OPERATION: Method(operations_pb2.CancelOperationRequest, self._cancel, Role.WRITER),
        }

    async def _get(self, caller: Caller, request: operations_pb2.GetOperationRequest) -> operations_pb2.Operation:
        name = read_name(request.name)
        if name is not None and name.cached is not None:
            return await self._execution.cached(caller, name, name.cached)
        backlog, ongoing, operation = await self._find(caller, name, request.name)
        ongoing = await self._execution.again(caller, backlog, ongoing, operation)
        return await self._show(caller, ongoing, operation)

    async def _list(
        self, caller: Caller, request: operations_pb2.ListOperationsRequest
    ) -> operations_pb2.ListOperationsResponse:
        # Some clients name the collection, some its parent.
        instance = self._desks.instances(request.name.strip("/").removesuffix("operations"))
        if request.page_token and not (request.page_token.isascii() and request.page_token.isdigit()):
            raise Refused("field.value", "this is no token of a page", path="page_token")
        first = int(request.page_token or 0)
        size = min(request.page_size if request.page_size > 0 else PAGE, PAGE_MAX)
        backlog = await self._desks.backlog(caller)
        await backlog.ready()
        names = [
            (ongoing, each)
            for ongoing in backlog.under_way()
            if ongoing.work.instance == instance
            for each in ongoing.listed()
        ]
        shown = [await self._show(caller, ongoing, each) for ongoing, each in names[first : first + size]]
        following = str(first + size) if len(names) > first + size else ""
        return operations_pb2.ListOperationsResponse(operations=shown, next_page_token=following)

    async def _cancel(self, caller: Caller, request: operations_pb2.CancelOperationRequest) -> empty_pb2.Empty:
        name = read_name(request.name)
        if name is None or name.cached is None:
            backlog, ongoing, operation = await self._find(caller, name, request.name)
            await backlog.cancel(ongoing, operation)
        return empty_pb2.Empty()

    async def _find(
        self, caller: Caller, name: OperationName | None, text: str
    ) -> tuple[BacklogDriver, Ongoing, Operation]:
        backlog = await self._desks.backlog(caller)
        found = await backlog.find(name) if name is not None else None
        if found is None:
            raise unknown(text)
        return backlog, *found

    async def _show(self, caller: Caller, ongoing: Ongoing, operation: Operation) -> operations_pb2.Operation:
        if operation.is_cancelled:
            return answers.cancelled(operation.name, ongoing.work.action)
        if ongoing.conclusion is not None:
            return await self._execution.conclude(caller.tenant, ongoing, ongoing.conclusion, operation.name)
        return answers.under_way(operation.name, ongoing)
