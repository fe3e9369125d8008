"""The worker's stream to a coordinator elsewhere, over gRPC: one frame is one message."""

from collections import deque
from collections.abc import Callable

import msgspec

from rota.core.cluster import check_coordinator
from rota.core.errors import Refused, Unavailable
from rota.wire.channels import SYNC
from rota.wire.frames import CoordinatorFrame, WorkerFrame
from rota.wire.routes import Route
from rota.wire.streams import Stream
from rota.worker.driver import Dial, Link

Hear = Callable[[CoordinatorFrame | None], None]
# Is told why a coordinator is not reached: a word for the cause, and a sentence. It is called at every dial.
Complain = Callable[[str, str], None]

_encode = msgspec.msgpack.Encoder().encode
_frame = msgspec.msgpack.Decoder(CoordinatorFrame)


class RpcLink:
    """An open stream to a coordinator."""

    def __init__(self, stream: Stream, hear: Hear, complain: Complain) -> None:
        self._stream = stream
        self._hear_on = hear
        self._complain = complain
        self._frames: deque[WorkerFrame] = deque()
        self._is_closed = False
        self._was_refused = False
        self._cluster = ""
        stream.start(self._pull, self._hear, self._over)

    def send(self, frame: WorkerFrame) -> None:
        """Say something."""
        self._cluster = self._cluster or frame.cluster
        self._frames.append(frame)
        self._stream.wake()

    def close(self) -> None:
        """Hang up."""
        self._is_closed = True
        self._stream.close()

    def _pull(self) -> bytes | None:
        return _encode(self._frames.popleft()) if self._frames else None

    def _hear(self, content: bytes) -> None:
        if self._is_closed:
            return
        frame = _frame.decode(content)
        if frame.refused:
            self._was_refused = True
            text = f"{self._stream.place.url} turned this worker away: {frame.refused}"
            self._complain(frame.code or "refused", text)
        elif frame.number == 1:
            # The machine hangs up on a coordinator of another cluster; the operator is told which one it was.
            refused = check_coordinator(self._cluster, frame.cluster, self._stream.place.url)
            if refused is not None:
                self._was_refused = True
                self._complain(refused.code, str(refused))
        self._hear_on(frame)

    def _over(self, trouble: Refused | Unavailable) -> None:
        if self._is_closed:
            return
        if not self._was_refused:
            self._complain(trouble.code, str(trouble))
        self._hear_on(None)


def dial_to(route: Route, token: Callable[[], str], complain: Complain) -> Dial:
    """How a worker reaches whoever leads.

    The token is asked for at each dial, so that one that was replaced is used from then on. `complain` hears why the
    coordinator is not reached or does not want this worker, and bounds what becomes of it.
    """

    async def dial(hear: Hear) -> Link:
        try:
            stream = await route.open(SYNC, token())
        except (Refused, Unavailable) as trouble:
            complain(trouble.code, str(trouble))
            raise
        return RpcLink(stream, hear, complain)

    return dial
