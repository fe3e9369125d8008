"""A push worker's stream: one frame is one message, both ways."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec
from msgspec import structs

from rota.api.auth import ANY_TENANT, Principal, Role
from rota.api.rpc.visits import Context, Door, Visit
from rota.control.driver import Outlet
from rota.core.cluster import check_worker
from rota.core.errors import Refused, Unavailable
from rota.core.graph import check_id
from rota.core.model import Capacity
from rota.wire.channels import FRAME_BYTES_MAX
from rota.wire.frames import CoordinatorFrame, WorkerFrame

# A worker reads what it is told, or is no worker.
UNREAD_BYTES_MAX = 256 << 20

_frame = msgspec.msgpack.Decoder(WorkerFrame)
_encode = msgspec.msgpack.Encoder().encode


class Streams(Protocol):
    """Where workers' streams end: the coordinator's driver."""

    @property
    def cluster(self) -> str:
        """The cluster id."""
        ...

    def open_stream(self, outlet: Outlet) -> int:
        """What the worker is told goes to `outlet`; None when the stream is to be closed."""
        ...

    def hear(self, stream: int, frame: WorkerFrame) -> None:
        """The worker said something."""
        ...

    def close_stream(self, stream: int) -> None:
        """The worker's stream is gone."""
        ...

    def check_leads(self) -> None:
        """Raise Unavailable if another should be asked."""
        ...

    def on_change(self, changed: Callable[[], None]) -> None:
        """Be told whenever this coordinator begins or ceases to lead."""
        ...


class Sync(Visit):
    """One worker's stream."""

    def __init__(self, door: Door, context: Context, streams: Streams) -> None:
        super().__init__(door, context, "Sync")
        self._streams = streams
        self._stream: int | None = None
        self._tenant = ""
        self._has_token = False
        self._frames: deque[bytes | None] = deque()
        self._unread_bytes = 0

    def admit(self, who: Principal) -> None:
        """See `Visit`."""
        if not who.role.covers(Role.WORKER):
            text = f"{who.name} has the role {who.role}, and a worker's stream takes the role worker"
            hint = "Use a worker's token: ROTA_EXECUTOR_TASK_BEARER_TOKEN."
            raise self.denied(Refused("auth.role", text, hint))
        self._tenant = who.tenant
        self._has_token = who.has_token
        self._stream = self._streams.open_stream(self._outlet)

    async def take(self, content: bytes) -> None:
        """See `Visit`."""
        if len(content) > FRAME_BYTES_MAX:
            raise Refused("field.size", f"a frame of {len(content):,} bytes is larger than {FRAME_BYTES_MAX:,}")
        try:
            frame = _frame.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refused("field.type", f"this is no frame of a worker: {error}") from None
        assert self._stream is not None, "whoever speaks was let in"
        self._streams.hear(self._stream, self._checked(frame))

    def _checked(self, frame: WorkerFrame) -> WorkerFrame:
        """The frame, if its worker may say all this. Who serves every tenant serves those of its token."""
        if frame.capacity is not None:
            check_id(frame.tenant, "tenant")
            self._check_names_cluster(frame)
        if self._tenant == ANY_TENANT:
            return frame
        self._check_tenant(frame.tenant, "tenant")
        for report in frame.reports:
            self._check_tenant(report.tenant, "reports")
        if frame.capacity is None:
            return frame
        for tenant in frame.capacity.tenants:
            self._check_tenant(tenant, "capacity.tenants")
        capacity: Capacity = structs.replace(frame.capacity, tenants=(self._tenant,))
        return structs.replace(frame, capacity=capacity)

    def _check_names_cluster(self, frame: WorkerFrame) -> None:
        """Refuse a worker that nothing ties to this cluster. Which cluster a worker names is for the coordinator."""
        if not frame.cluster:
            refused = check_worker("", self._streams.cluster, has_token=self._has_token)
            if refused is not None:
                raise refused

    def _check_tenant(self, tenant: str, path: str) -> None:
        if tenant != self._tenant:
            text = f"this token is for workers of tenant {self._tenant!r}, not of {tenant[:100]!r}"
            hint = "Use a token of that tenant, or one for all."
            raise self.denied(Refused("auth.tenant", text, hint, path=path))

    def _outlet(self, frame: CoordinatorFrame | None) -> None:
        if self._unread_bytes > UNREAD_BYTES_MAX:
            self.end(Unavailable("leader.none", "what this worker was told was not read, and there was too much."))
            return
        content = None if frame is None else _encode(frame)
        self._unread_bytes += len(content or b"")
        self._frames.append(content)
        self.wake()

    def pull(self) -> bytes | None:
        """See `Visit`. The last words of the coordinator are said before it hangs up."""
        if not self._frames:
            return None
        content = self._frames.popleft()
        if content is None:
            self.end(Unavailable("leader.none", "the coordinator closed the stream."))
            return None
        self._unread_bytes -= len(content)
        return content

    def close(self) -> None:
        """See `Visit`."""
        if self._stream is not None:
            self._streams.close_stream(self._stream)
        self._frames.clear()
