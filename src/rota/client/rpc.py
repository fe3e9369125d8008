"""A connection to a coordinator over gRPC: one stream, on which requests that are made together travel together."""

from collections import deque

from rota.client.conversation import Conversation
from rota.core.errors import Refused
from rota.wire.channels import TALK, fragments_of
from rota.wire.large_requests import BATCH_BYTES, REQUEST_BYTES_MAX
from rota.wire.requests import Request, pack, pack_batch, read_responses
from rota.wire.routes import Route
from rota.wire.streams import Stream


class RpcConnection(Conversation):
    """The client's end of a Talk stream."""

    def __init__(self, stream: Stream, tenant: str, pace_s: float = 0.0) -> None:
        super().__init__(tenant, self._put)
        self._stream = stream
        self._requests: deque[bytes] = deque()
        self._fragments: deque[bytes] = deque()
        stream.start(self._pull, self._hear_all, self.lose, pace_s)

    @classmethod
    async def open(
        cls, route: Route, token: str, tenant: str, otherwise: str = "", pace_s: float = 0.0
    ) -> "RpcConnection":
        """Connect. Raises Refused (a wrong token, a certificate that is not trusted) or Unavailable.

        Without a tenant it is the token's own, or `otherwise` if the token is for any. `pace_s` is the least time
        between two messages: who asks for much on behalf of many has more in each.
        """
        stream = await route.open(TALK, token, tenant)
        return cls(stream, tenant or stream.tenant or otherwise, pace_s)

    def _put(self, request: Request) -> None:
        content = pack(request)
        if len(content) > REQUEST_BYTES_MAX:
            text = f"a request of {len(content):,} bytes is too large"
            raise Refused("field.size", text, f"Send at most {REQUEST_BYTES_MAX:,} at once.")
        self._requests.append(content)
        self._stream.wake()

    def _pull(self) -> bytes | None:
        if self._fragments:
            return self._fragments.popleft()
        if not self._requests:
            return None
        batch = [self._requests.popleft()]
        size = len(batch[0])
        while self._requests and size + len(self._requests[0]) <= BATCH_BYTES:
            batch.append(self._requests.popleft())
            size += len(batch[-1])
        self._fragments.extend(fragments_of(pack_batch(batch)))
        return self._fragments.popleft()

    def _hear_all(self, content: bytes) -> None:
        for response in read_responses(content):
            self.hear(response)

    async def close(self) -> None:
        """Hang up."""
        self._stream.close()
        await self._stream.closed()
