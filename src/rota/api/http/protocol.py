"""HTTP/1.1 on one connection, with an end to everybody's slowness: uvicorn's protocol waits for ever.

A client has so long to send the head of a request, to go on with a body, and to take what it asked for. None of them
costs others anything but one connection, and for these there is a room.
"""

import asyncio
import logging
import socket
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from rota.api.http import room as rooms
from rota.api.http.problems import problem_of, respond
from rota.api.http.room import Room, Speaker
from rota.core.errors import Refused, Unavailable

# The request line, all headers and the empty line after them.
HEAD_BYTES_MAX = 32 * 1024
KEEP_ALIVE_S = 75
# For the head of a request, for each piece of a body, and for each piece of an answer to be taken.
PATIENCE_S = 20.0

# What uvicorn has to say about a connection is nobody's business but its client's; errors of ours are told elsewhere.
_quiet = logging.Logger("rota.http", logging.CRITICAL + 1)


class StrictConnection(h11.Connection):
    """Refuses what h11 lets pass: a complete head of any size, and two statements about where a body ends.

    h11 counts the bytes of a head only while it is incomplete. A request with `Content-Length` and `Transfer-Encoding`
    may end in different places for a proxy and for us, so that its body is read as another request.
    """

    def __init__(self) -> None:
        super().__init__(h11.SERVER, HEAD_BYTES_MAX)
        self.refusal: Refused | None = None
        self.is_head_request = False

    def next_event(self) -> Any:
        """Raises RemoteProtocolError and sets `refusal` where a request is not accepted."""
        before = len(self.trailing_data[0]) if self.their_state is h11.IDLE else 0
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
                self.refusal = _head_too_large()
            raise
        if isinstance(event, h11.Request):
            self.is_head_request = event.method == b"HEAD"
            is_too_large = before - len(self.trailing_data[0]) > HEAD_BYTES_MAX
            self.refusal = _head_too_large() if is_too_large else _check_framing(event)
            if self.refusal is not None:
                raise h11.RemoteProtocolError(self.refusal.reason)
        return event


def _head_too_large() -> Refused:
    hint = "Send fewer or shorter headers, or a shorter path."
    return Refused("http.head_size", f"the head of the request has more than {HEAD_BYTES_MAX} bytes", hint)


def _check_framing(request: h11.Request) -> Refused | None:
    names = [name for name, _ in request.headers]
    if b"transfer-encoding" not in names:
        return None
    if b"content-length" in names:
        text = "the request has both Content-Length and Transfer-Encoding"
    elif request.http_version < b"1.1":
        text = "the request is HTTP/1.0 and has Transfer-Encoding"
    else:
        return None
    return Refused("http.header", text, "Send exactly one of them.", path="Transfer-Encoding")


class PatientProtocol(H11Protocol, Speaker):
    """One connection."""

    def __init__(self, *args: Any, room: Room, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._strict = self.conn = StrictConnection()
        self._room = room
        self._connection: socket.socket | None = None
        self.logger = self.access_logger = _quiet
        self.access_log = False
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None

    def arrive(self, connection: socket.socket) -> bool:
        """See `Speaker`."""
        self._connection = connection
        return self._room.enter(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - as in uvicorn
        """Somebody connects."""
        super().connection_made(transport)
        if not self._room.enter(self):
            self._say(Unavailable("service.busy", f"there are {rooms.CONNECTIONS_MAX} connections already."))
            self.loop.call_later(rooms.SHUTDOWN_S, transport.abort)
            return
        self._expect_more()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        super().data_received(data)
        if self._is_answering:
            self._room.work(self)
        self._expect_more()

    def on_response_complete(self) -> None:
        """A request was answered."""
        super().on_response_complete()
        if not self._is_answering:
            self._room.rest(self)
        self._stop_expecting()
        if self.conn.their_state is not h11.IDLE or self.conn.trailing_data[0]:
            # The next one has begun to come; otherwise it is the time of an idle connection that counts.
            self._expect_more()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._room.leave(self)
        self._stop_expecting()
        self.resume_writing()
        super().connection_lost(exc)

    def hang_up(self) -> None:
        """See `Guest`."""
        if self.transport is not None:  # pyright: ignore[reportUnnecessaryComparison] - uvicorn's is None at first
            self.transport.abort()
        elif self._connection is not None:
            # Whoever shakes hands on it notices.
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison] - uvicorn's is None at first

    def pause_writing(self) -> None:
        """The client does not take what it asked for."""
        super().pause_writing()
        if self._writing is None:
            self._writing = self.loop.call_later(PATIENCE_S, self.transport.abort)

    def resume_writing(self) -> None:
        """It does again."""
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def send_400_response(self, msg: str) -> None:
        """Refuses a request that is not valid HTTP, or that `StrictConnection` does not accept."""
        self._say(self._strict.refusal or Refused("http.request", "the request is not valid HTTP/1.1"))

    def _expect_more(self) -> None:
        """Give the client time for the rest of a head or a body, anew with each piece of a body."""
        state = self.conn.their_state
        if state is h11.IDLE and self._reading is not None:
            # A head that comes byte by byte gets no more time for each of them.
            return
        self._stop_expecting()
        if state is h11.IDLE or (state is h11.SEND_BODY and not self.flow.read_paused):
            self._reading = self.loop.call_later(PATIENCE_S, self._too_slow)

    def _stop_expecting(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _too_slow(self) -> None:
        self._reading = None
        if self.conn.their_state is h11.SEND_BODY and self.flow.read_paused:
            # It is we who do not read.
            return
        if self.conn.their_state is not h11.IDLE:
            # Whoever reads the body hears that its sender is gone.
            self.transport.abort()
        elif not self.transport.is_closing():
            self._say(Refused("http.slow", f"no request came within {PATIENCE_S:.0f} s"))

    def _say(self, trouble: Refused | Unavailable) -> None:
        """Answer without a request, and hang up."""
        response = respond(problem_of(trouble), {"Connection": "close"})
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            head = h11.Response(status_code=response.status_code, headers=list(response.raw_headers))
            body = [] if self._strict.is_head_request else [h11.Data(data=bytes(response.body))]
            for event in (head, *body, h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
