"""The service ContentAddressableStorage: what is there, and small content in batches."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from functools import partial

from rota.api.auth import Role
from rota.api.reapi.calls import Caller, Method, Sort
from rota.api.reapi.capabilities import Instances
from rota.api.reapi.statuses import as_status, refusal_of
from rota.api.reapi.together import each
from rota.api.reapi.trees import SLICE as DIGESTS_SLICE
from rota.api.reapi.trees import Trees
from rota.core.errors import Refused, Unavailable
from rota.ports import Content, ContentFull, ContentLost, WrongContent
from rota.wire.reapi import remote_execution_pb2 as pb
from rota.wire.reapi.digests import as_message, check_function, read_digest, read_digests
from rota.wire.reapi.limits import BATCH_BLOBS_MAX, BATCH_BYTES_MAX, TREE_PAGE_MAX
from rota.wire.reapi.methods import BATCH_READ_BLOBS, BATCH_UPDATE_BLOBS, FIND_MISSING_BLOBS, GET_TREE
from rota.wire.reapi.names import check_instance

# Of one batch, at once; and how many before others have a turn.
TOGETHER = 64
SLICE = 500
# Directories go out as soon as there are so many bytes of them.
PAGE_BYTES = 1 << 20
_TOKEN_CHARS_MAX = 9


class ContentStorage:
    """Answers for the content of each tenant."""

    def __init__(self, content: Content, trees: Trees, instances: Instances = check_instance) -> None:
        self._content = content
        self._trees = trees
        self._instances = instances

    def methods(self) -> Mapping[str, Method]:
        """See `Service`."""
        read, written = Role.READER, Role.WRITER
        return {
            FIND_MISSING_BLOBS: Method(pb.FindMissingBlobsRequest, self._find_missing, read, is_for_workers=True),
            BATCH_READ_BLOBS: Method(pb.BatchReadBlobsRequest, self._read, read, is_for_workers=True),
            BATCH_UPDATE_BLOBS: Method(pb.BatchUpdateBlobsRequest, self._update, written, is_for_workers=True),
            GET_TREE: Method(pb.GetTreeRequest, self._get_tree, read, Sort.MANY_ANSWERS, is_for_workers=True),
        }

    async def _find_missing(self, caller: Caller, request: pb.FindMissingBlobsRequest) -> pb.FindMissingBlobsResponse:
        self._instances(request.instance_name)
        check_function(request.digest_function)
        answer = pb.FindMissingBlobsResponse()
        asked = request.blob_digests
        for start in range(0, len(asked), DIGESTS_SLICE):
            if start:
                await asyncio.sleep(0)
            # A part of a list is a copy.
            part = asked if len(asked) <= DIGESTS_SLICE else asked[start : start + DIGESTS_SLICE]
            digests = read_digests(part, "blob_digests", start)
            missing = self._content.missing(caller.tenant, digests)
            if len(missing) == len(digests):
                # A first build has nothing: its digests go back as they came.
                answer.missing_blob_digests.extend(part)
            else:
                answer.missing_blob_digests.extend(map(as_message, missing))
        return answer

    async def _update(self, caller: Caller, request: pb.BatchUpdateBlobsRequest) -> pb.BatchUpdateBlobsResponse:
        self._instances(request.instance_name)
        check_function(request.digest_function)
        _check_batch(len(request.requests), sum(len(one.data) for one in request.requests))
        answer = pb.BatchUpdateBlobsResponse()
        for start in range(0, len(request.requests), SLICE):
            part = request.requests[start : start + SLICE]
            troubles = await each(partial(self._put, caller.tenant), part, TOGETHER)
            for one, trouble in zip(part, troubles, strict=True):
                answer.responses.add(digest=one.digest, status=None if trouble is None else as_status(trouble))
        return answer

    async def _put(self, tenant: str, request: pb.BatchUpdateBlobsRequest.Request) -> Refused | Unavailable | None:
        """Keep one of a batch; what is wrong with it does not concern the others."""
        try:
            digest = read_digest(request.digest)
            if request.compressor != pb.Compressor.IDENTITY:
                raise Refused("content.digest", "compressed content is not taken", "Send content as it is.")
            await self._content.put(tenant, digest, request.data)
        except (Refused, Unavailable) as trouble:
            return trouble
        except (WrongContent, ContentFull) as error:
            return refusal_of(error, request.digest.hash)
        return None

    async def _read(self, caller: Caller, request: pb.BatchReadBlobsRequest) -> pb.BatchReadBlobsResponse:
        self._instances(request.instance_name)
        check_function(request.digest_function)
        # As they say they are: what is there has the size that its digest says.
        _check_batch(len(request.digests), sum(max(digest.size_bytes, 0) for digest in request.digests))
        answer = pb.BatchReadBlobsResponse()
        for start in range(0, len(request.digests), SLICE):
            part = request.digests[start : start + SLICE]
            for message, found in zip(part, await each(partial(self._get, caller.tenant), part, TOGETHER), strict=True):
                if isinstance(found, bytes):
                    answer.responses.add(digest=message, data=found)
                else:
                    answer.responses.add(digest=message, status=as_status(found))
        return answer

    async def _get(self, tenant: str, message: pb.Digest) -> bytes | Refused | Unavailable:
        try:
            return await self._content.get(tenant, read_digest(message))
        except (Refused, Unavailable) as trouble:
            return trouble
        except ContentLost as error:
            return refusal_of(error, message.hash)

    async def _get_tree(self, caller: Caller, request: pb.GetTreeRequest) -> AsyncIterator[pb.GetTreeResponse]:
        """In pages, one after the other. A token says how many directories came before its page."""
        self._instances(request.instance_name)
        check_function(request.digest_function)
        root = read_digest(request.root_digest, "root_digest")
        skipped = _read_token(request.page_token)
        if request.page_size < 0:
            raise Refused("field.value", f"a page cannot have {request.page_size} directories", path="page_size")
        page_max = min(request.page_size or TREE_PAGE_MAX, TREE_PAGE_MAX)
        if self._content.missing(caller.tenant, [root]):
            raise Refused("content.missing", f"the directory {root.hash} is not here", path="root_digest")
        page = pb.GetTreeResponse()
        number = size = 0
        async for content in self._trees.walk(caller.tenant, root):
            number += 1
            if number <= skipped:
                continue
            if len(page.directories) >= page_max or (page.directories and size + len(content) > PAGE_BYTES):
                page.next_page_token = str(number - 1)
                yield page
                page, size = pb.GetTreeResponse(), 0
            page.directories.add().ParseFromString(content)
            size += len(content)
        yield page


def _check_batch(blobs: int, size: int) -> None:
    """A batch is an argument like any other, and so is its size: no quota is exhausted by it."""
    if blobs > BATCH_BLOBS_MAX or size > BATCH_BYTES_MAX:
        text = f"a batch of {blobs:,} blobs with {size:,} bytes is too large"
        hint = f"Use at most {BATCH_BLOBS_MAX:,} with {BATCH_BYTES_MAX:,} bytes, or read and write one at a time."
        raise Refused("field.value", text, hint)


def _read_token(token: str) -> int:
    if not token:
        return 0
    if not (token.isascii() and token.isdecimal() and len(token) <= _TOKEN_CHARS_MAX):
        raise Refused("field.value", f"{token[:40]!r} is not a token of a page", path="page_token")
    return int(token)
