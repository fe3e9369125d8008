"""Whatever is asked to be carried out is carried out or refused for a reason, and the next client is served.

The coordinator is not the one that is tried here: it takes every run, and each of them ends at once.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest
from google.longrunning import operations_pb2 as ops
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from rota.api.reapi.desks import Desks
from rota.api.reapi.execution import Execution
from rota.api.reapi.ongoing import Conclusion, Ongoing
from rota.api.reapi.operations import Operations
from rota.api.reapi.results import Results
from rota.api.reapi.trees import Trees
from rota.client.line import FarLine
from rota.core import changes as ch
from rota.core.states import SUCCESS, RunState
from rota.wire.builds import BuildResult, encode_build
from rota.wire.reapi import remote_execution_pb2 as pb
from rota.wire.reapi.digests import as_message, digest_of
from rota.wire.reapi.methods import CANCEL_OPERATION, EXECUTE, GET_OPERATION, LIST_OPERATIONS, WAIT_EXECUTION
from tests.unit.api.reapi.stage import Cabinet, Shelf, Stage, Told, staged
from tests.unit.api.reapi.test_fuzz import HERE, OURS_TO_SAY, TEXTS, messages
from tests.unit.api.reapi.wire import Wire

pytestmark = pytest.mark.slow

NAMES = st.sampled_from(
    [
        "operations/build-0123456789ab-0123456789abcdef.1",
        f"a/operations/cached-{'a' * 64}-3",
        f"operations/cached-{'a' * 64}-{'9' * 18}",
        "operations",
    ]
)
ONE_ANSWER = {
    GET_OPERATION: ops.GetOperationRequest,
    LIST_OPERATIONS: ops.ListOperationsRequest,
    CANCEL_OPERATION: ops.CancelOperationRequest,
}
MANY_ANSWERS = {EXECUTE: pb.ExecuteRequest, WAIT_EXECUTION: pb.WaitExecutionRequest}


class Theatre:
    """One front end with a line to a coordinator, for many examples."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._exits = AsyncExitStack()
        self.shelf = Shelf()
        self._loop.run_until_complete(self._open())

    async def _open(self) -> None:
        trees = Trees(self.shelf)
        results = Results(self.shelf, Cabinet(), trees)
        desks = Desks(self._line, self.shelf, int, print, where=lambda: "grpc://here:1", queues={}, queue="builds")
        desks.keep = self._keep
        execution = Execution(desks, self.shelf, results, trees)
        services = (execution, Operations(desks, execution))
        self.stage: Stage = await self._exits.enter_async_context(staged(services=services, content=self.shelf))
        self._exits.push_async_callback(desks.close)

    async def _line(self, token: str, tenant: str) -> FarLine:
        wire = Wire()
        over = ch.AttemptEnded("t", "", 0, 7, SUCCESS, 1, encode_build(BuildResult()), None, "", 0)
        wire.outcome = (over, ch.RunEnded("t", "", RunState.SUCCESS, 1, ""))
        return wire  # type: ignore[return-value] - as far as it is needed

    async def _keep(self, tenant: str, ongoing: Ongoing, end: Conclusion) -> None:
        """Nothing is cached."""

    def close(self) -> None:
        self._loop.run_until_complete(self._exits.aclose())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def judge(self, method: str, content: bytes) -> None:
        """Send it, and see that what comes back is an answer or a refusal that says why."""
        self._loop.run_until_complete(self._judge(method, content))
        assert self.stage.failures == []

    async def _judge(self, method: str, content: bytes) -> None:
        try:
            if method in ONE_ANSWER:
                await self.stage.ask(method, content)
            else:
                last = (await self.stage.listen(method, content, ops.Operation))[-1]
                response = pb.ExecuteResponse()
                assert last.done
                assert last.response.Unpack(response)
        except Told as told:
            assert told.code in OURS_TO_SAY, f"{told.code}: {told.text}"
            assert told.text

    def execute(self, action: bytes) -> None:
        self.shelf.kept["default", digest_of(action)] = action
        self.judge(EXECUTE, pb.ExecuteRequest(action_digest=as_message(digest_of(action))).SerializeToString())


@pytest.fixture(scope="module")
def theatre() -> Iterator[Theatre]:
    one = Theatre()
    yield one
    one.close()


@pytest.mark.parametrize("method", [*ONE_ANSWER, *MANY_ANSWERS])
@given(content=st.binary(max_size=200))
def test_any_bytes_are_answered(theatre: Theatre, method: str, content: bytes):
    theatre.judge(method, content)


@pytest.mark.parametrize("method", [*ONE_ANSWER, *MANY_ANSWERS])
@given(drawn=st.data())
def test_any_message_is_answered(theatre: Theatre, method: str, drawn: st.DataObject):
    message: Message = drawn.draw(messages({**ONE_ANSWER, **MANY_ANSWERS}[method]))
    if "name" in message.DESCRIPTOR.fields_by_name:
        message.name = drawn.draw(NAMES | TEXTS)  # type: ignore[attr-defined] - it has one
    theatre.judge(method, message.SerializeToString())


@given(drawn=st.data())
def test_any_action_is_carried_out_or_refused(theatre: Theatre, drawn: st.DataObject):
    """One of which everything is there, whatever it is; and one that is only bytes."""
    theatre.shelf.kept.clear()
    theatre.shelf.hold(HERE)
    command = theatre.shelf.hold(drawn.draw(messages(pb.Command)).SerializeToString())
    root = theatre.shelf.hold(drawn.draw(messages(pb.Directory)).SerializeToString())
    action = drawn.draw(messages(pb.Action))
    action.command_digest.CopyFrom(as_message(command))  # type: ignore[attr-defined] - an Action has both
    action.input_root_digest.CopyFrom(as_message(root))  # type: ignore[attr-defined] - likewise
    action.timeout.seconds = drawn.draw(st.integers(-(1 << 63), (1 << 63) - 1))  # type: ignore[attr-defined] - it has one
    theatre.execute(action.SerializeToString())
    theatre.execute(drawn.draw(st.binary(min_size=1, max_size=50)))
