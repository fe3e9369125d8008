"""A client of our own for what no client at hand does: it asks for single actions, and hears every word of each."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

import grpc
from google.longrunning import operations_pb2 as ops
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import PreconditionFailure

from rota.wire.reapi import methods
from rota.wire.reapi import remote_execution_pb2 as rx
from tests.integration.builds.front_end import message_of

PATIENCE_S = 180
STAGES = {2: "queued", 3: "executing", 4: "completed"}
M = TypeVar("M", bound=Message)


class Heard:
    """What a client was told of one operation, as it comes."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._words: SimpleQueue[ops.Operation | grpc.RpcError] = SimpleQueue()
        self.name = ""
        self.stages: list[str] = []
        Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            for operation in self._call:
                self._words.put(operation)
        except grpc.RpcError as error:
            self._words.put(error)

    def next(self) -> ops.Operation:
        """The next word; raises what the call ended with instead."""
        word = self._words.get(timeout=PATIENCE_S)
        if isinstance(word, grpc.RpcError):
            raise word
        self.name = word.name
        self.stages.append(stage_of(word))
        return word

    def until(self, stage: str) -> "Heard":
        while stage not in self.stages:
            self.next()
        return self

    def end(self) -> ops.Operation:
        """The last word."""
        while not (word := self.next()).done:
            pass
        return word

    def response(self) -> rx.ExecuteResponse:
        return response_of(self.end())

    def hang_up(self) -> None:
        """Listen no more."""
        self._call.cancel()


class Remote:
    """A channel to a front end, and actions by it."""

    def __init__(self, port: int, instance: str = "") -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)])
        self.instance = instance

    def close(self) -> None:
        self._channel.close()

    def ask(self, method: str, request: Message, kind: type[M]) -> M:
        call = self._channel.unary_unary(method, type(request).SerializeToString, kind.FromString)
        return call(request, timeout=PATIENCE_S)

    def put(self, *contents: bytes | Message) -> list[rx.Digest]:
        """Have this content there."""
        raw = [each if isinstance(each, bytes) else each.SerializeToString() for each in contents]
        request = rx.BatchUpdateBlobsRequest(instance_name=self.instance)
        for each in raw:
            request.requests.add(digest=message_of(each), data=each)
        answer = self.ask(methods.BATCH_UPDATE_BLOBS, request, rx.BatchUpdateBlobsResponse)
        assert all(not each.status.code for each in answer.responses)
        return [message_of(each) for each in raw]

    def action(
        self,
        line: str,
        *,
        timeout_s: int = 0,
        do_not_cache: bool = False,
        properties: Mapping[str, str] | None = None,
        outputs: tuple[str, ...] = (),
        inputs: Mapping[str, bytes] | None = None,
    ) -> rx.Digest:
        """An action that runs a line in a shell, with all that it needs."""
        command = rx.Command(arguments=["/bin/sh", "-c", line], output_paths=outputs)
        command.environment_variables.add(name="PATH", value="/usr/bin:/bin")
        root = rx.Directory()
        for name, content in (inputs or {}).items():
            root.files.add(name=name, digest=self.put(content)[0])
        command_digest, root_digest = self.put(command, root)
        action = rx.Action(command_digest=command_digest, input_root_digest=root_digest, do_not_cache=do_not_cache)
        if timeout_s:
            action.timeout.CopyFrom(Duration(seconds=timeout_s))
        for name, value in (properties or {}).items():
            action.platform.properties.add(name=name, value=value)
        return self.put(action)[0]

    def execute(self, action: rx.Digest, *, skip_cache_lookup: bool = False, priority: int = 0) -> Heard:
        request = rx.ExecuteRequest(
            instance_name=self.instance, action_digest=action, skip_cache_lookup=skip_cache_lookup
        )
        request.execution_policy.priority = priority
        return self._hear(methods.EXECUTE, request)

    def wait(self, name: str) -> Heard:
        return self._hear(methods.WAIT_EXECUTION, rx.WaitExecutionRequest(name=name))

    def get(self, name: str) -> ops.Operation:
        return self.ask(methods.GET_OPERATION, ops.GetOperationRequest(name=name), ops.Operation)

    def cancel(self, name: str) -> None:
        self.ask(methods.CANCEL_OPERATION, ops.CancelOperationRequest(name=name), ops.Operation)

    def result(self, action: rx.Digest) -> rx.ActionResult:
        request = rx.GetActionResultRequest(instance_name=self.instance, action_digest=action)
        return self.ask(methods.GET_ACTION_RESULT, request, rx.ActionResult)

    def _hear(self, method: str, request: Message) -> Heard:
        call = self._channel.unary_stream(method, type(request).SerializeToString, ops.Operation.FromString)
        return Heard(call(request, timeout=PATIENCE_S))


def stage_of(operation: ops.Operation) -> str:
    about = rx.ExecuteOperationMetadata()
    assert operation.metadata.Unpack(about)
    return STAGES[about.stage]


def response_of(operation: ops.Operation) -> rx.ExecuteResponse:
    response = rx.ExecuteResponse()
    assert operation.done
    assert operation.response.Unpack(response), operation
    return response


def missing_of(response: rx.ExecuteResponse) -> set[str]:
    """What a response says is missing."""
    subjects: set[str] = set()
    for detail in response.status.details:
        failure = PreconditionFailure()
        assert detail.Unpack(failure)
        assert all(violation.type == "MISSING" for violation in failure.violations)
        subjects |= {violation.subject for violation in failure.violations}
    return subjects


def name_of(digest: rx.Digest) -> str:
    """A digest as such a detail names it."""
    return f"blobs/{digest.hash}/{digest.size_bytes}"


@contextmanager
def open_remote(port: int, instance: str = "") -> Iterator[Remote]:
    """A client that hangs up in the end."""
    remote = Remote(port, instance)
    try:
        yield remote
    finally:
        remote.close()
