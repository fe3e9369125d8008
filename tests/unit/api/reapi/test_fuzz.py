"""Whatever is sent to a front end is answered with a status that means something, and the next caller is served."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from rota.wire.reapi import bytestream_pb2 as bs
from rota.wire.reapi import remote_execution_pb2 as pb
from rota.wire.reapi.digests import EMPTY, digest_of
from rota.wire.reapi.methods import (
    BATCH_READ_BLOBS,
    BATCH_UPDATE_BLOBS,
    FIND_MISSING_BLOBS,
    GET_ACTION_RESULT,
    GET_CAPABILITIES,
    GET_TREE,
    QUERY_WRITE_STATUS,
    READ,
    UPDATE_ACTION_RESULT,
    WRITE,
)
from tests.unit.api.reapi.stage import Stage, Told, file_node, folder_node, staged

pytestmark = pytest.mark.slow

ONE_ANSWER = {
    GET_CAPABILITIES: pb.GetCapabilitiesRequest,
    FIND_MISSING_BLOBS: pb.FindMissingBlobsRequest,
    BATCH_READ_BLOBS: pb.BatchReadBlobsRequest,
    BATCH_UPDATE_BLOBS: pb.BatchUpdateBlobsRequest,
    GET_ACTION_RESULT: pb.GetActionResultRequest,
    UPDATE_ACTION_RESULT: pb.UpdateActionResultRequest,
    QUERY_WRITE_STATUS: bs.QueryWriteStatusRequest,
}
MANY_ANSWERS = {GET_TREE: pb.GetTreeRequest, READ: bs.ReadRequest}
OURS_TO_SAY = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.FAILED_PRECONDITION,
)

HERE = b"here"
FILE = digest_of(HERE)
DIRECTORY = pb.Directory(files=[file_node("f", FILE)], directories=[folder_node("d", EMPTY)])
DIRECTORY_DIGEST = digest_of(DIRECTORY.SerializeToString(deterministic=True))
TREE = pb.Tree(root=DIRECTORY, children=[pb.Directory()]).SerializeToString()
HASHES = [FILE.hash, DIRECTORY_DIGEST.hash, digest_of(TREE).hash, EMPTY.hash, "a" * 64]
NAMES = [f"blobs/{digest.hash}/{digest.size}" for digest in (FILE, DIRECTORY_DIGEST, EMPTY)]
TEXTS = st.sampled_from(
    [*HASHES, *NAMES, *(f"uploads/u/{name}" for name in NAMES), "", "a", "a/b", "..", "../x", "/x", "f", "d", "3"]
) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SIZES = st.sampled_from([0, 1, len(HERE), DIRECTORY_DIGEST.size, len(TREE), -1, (1 << 31) - 1])


def value_of(field: FieldDescriptor) -> st.SearchStrategy[object]:
    """Values that a field can have, some of which mean something."""
    if field.message_type is not None:
        return st.deferred(lambda: messages(field.message_type._concrete_class))
    if field.enum_type is not None:
        return st.integers(0, 4)
    if field.type == FieldDescriptor.TYPE_STRING:
        return TEXTS
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.sampled_from([HERE, TREE, b""]) | st.binary(max_size=20)
    if field.type == FieldDescriptor.TYPE_BOOL:
        return st.booleans()
    if field.type == FieldDescriptor.TYPE_UINT32:
        return st.integers(0, (1 << 32) - 1)
    return SIZES


def messages(kind: type[Message]) -> st.SearchStrategy[Message]:
    """Messages of a kind, with some of their fields filled in."""
    fields: dict[str, st.SearchStrategy[object]] = {}
    for field in kind.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.file.package.startswith("google.protobuf"):
            continue
        value = value_of(field)
        fields[field.name] = st.lists(value, max_size=3) if field.is_repeated else value
    return st.fixed_dictionaries({}, optional=fields).map(lambda filled: kind(**filled))


class Theatre:
    """One front end for many examples."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._exits = AsyncExitStack()
        self.stage: Stage = self._loop.run_until_complete(self._exits.enter_async_context(staged()))
        self.reset()

    def reset(self) -> None:
        self.stage.shelf.kept.clear()
        self.stage.shelf.uploads.clear()
        self.stage.cabinet.kept.clear()
        for content in (HERE, TREE, DIRECTORY.SerializeToString(deterministic=True)):
            self.stage.shelf.hold(content)

    def close(self) -> None:
        self._loop.run_until_complete(self._exits.aclose())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def judge(self, method: str, content: bytes) -> None:
        """Send it, and see that what comes back is an answer or a refusal that says why."""
        self._loop.run_until_complete(self._judge(method, content))
        assert self.stage.failures == []
        for (_, digest), kept in self.stage.shelf.kept.items():
            assert digest == digest_of(kept), "whatever is kept is what it says"

    async def _judge(self, method: str, content: bytes) -> None:
        try:
            if method in ONE_ANSWER:
                await self.stage.ask(method, content)
            elif method in MANY_ANSWERS:
                await self.stage.listen(method, content)
            else:
                await self.stage.send(method, [content, content])
        except Told as told:
            assert told.code in OURS_TO_SAY, f"{told.code}: {told.text}"
            assert told.text


@pytest.fixture(scope="module")
def theatre() -> Iterator[Theatre]:
    one = Theatre()
    yield one
    one.close()


@pytest.mark.parametrize("method", [*ONE_ANSWER, *MANY_ANSWERS, WRITE])
@given(content=st.binary(max_size=200))
def test_any_bytes_are_answered(theatre: Theatre, method: str, content: bytes):
    theatre.reset()
    theatre.judge(method, content)


@pytest.mark.parametrize("method", [*ONE_ANSWER, *MANY_ANSWERS, WRITE])
@given(drawn=st.data())
def test_any_message_is_answered(theatre: Theatre, method: str, drawn: st.DataObject):
    kind = {**ONE_ANSWER, **MANY_ANSWERS, WRITE: bs.WriteRequest}[method]
    theatre.reset()
    theatre.judge(method, drawn.draw(messages(kind)).SerializeToString())


@given(drawn=st.data())
def test_any_directory_and_tree_is_walked_or_refused(theatre: Theatre, drawn: st.DataObject):
    theatre.reset()
    shelf = theatre.stage.shelf
    root = shelf.hold_directory(drawn.draw(messages(pb.Directory)))
    tree = shelf.hold(drawn.draw(messages(pb.Tree)).SerializeToString())
    kept = dict(shelf.kept)
    for method, request in (
        (GET_TREE, pb.GetTreeRequest(root_digest=pb.Digest(hash=root.hash, size_bytes=root.size))),
        (
            UPDATE_ACTION_RESULT,
            pb.UpdateActionResultRequest(
                action_digest=pb.Digest(hash="a" * 64, size_bytes=1),
                action_result=pb.ActionResult(
                    output_directories=[
                        pb.OutputDirectory(
                            path="d",
                            tree_digest=pb.Digest(hash=tree.hash, size_bytes=tree.size),
                            root_directory_digest=pb.Digest(hash=root.hash, size_bytes=root.size),
                        )
                    ]
                ),
            ),
        ),
    ):
        theatre.reset()
        shelf.kept.update(kept)
        theatre.judge(method, request.SerializeToString())
