"""Peer to peer: a worker gives out files of exchanges over HTTP, to whoever shows a ticket for their query.

It listens in a thread with a loop of its own, so that a slow disk delays no heartbeat. It knows GET and HEAD, of whole
files or of a range, as the engine asks a bucket for them; it lists nothing and follows no link.
"""

import asyncio
import contextlib
import hmac
import os
import re
import ssl
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

from msgspec import Struct

from rota.config.addresses import Address
from rota.core.errors import Refused
from rota.wire.queries import Part
from rota.worker.runners.queries.parts import TICKET, NotAPart, Seen, open_part, part_name, read_asked

CONNECTIONS_MAX = 512
HEAD_BYTES_MAX = 16 * 1024
PIECE_BYTES = 256 * 1024
# As much as the kernel sends before it is looked whether anybody reads.
SENT_BYTES = 16 << 20
IDLE_S = 60.0
# How long whoever reads may take for the next piece.
STALLED_S = 120.0
_DOMAIN = b"rota exchange"
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_is_name = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*").fullmatch
_read_range = re.compile(r"bytes=(\d{0,18})-(\d{0,18})").fullmatch
_REASONS = {
    200: "OK",
    206: "Partial Content",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    416: "Range Not Satisfiable",
}

# Where a file is that a peer asks for: of a tenant, a run, and the steps below it.
Find = Callable[[str, str, tuple[str, ...]], str]


def ticket(token: str, tenant: str, run: str) -> str:
    """What opens the files of one query and no other. Whoever runs its code may know it, and cannot make another."""
    return hmac.digest(token.encode(), b"\0".join((_DOMAIN, tenant.encode(), run.encode())), "sha256").hex()


class Tickets:
    """The tickets that are good: of the token as it is now, and of the one before, which a reader may still have."""

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token
        self._known: list[str] = []

    def make(self, tenant: str, run: str) -> str:
        """A ticket for a query's files."""
        return ticket(self._now(), tenant, run)

    def is_good(self, shown: str, tenant: str, run: str) -> bool:
        """Whether a ticket is for that query; says nothing by how long it takes."""
        self._now()
        good = [hmac.compare_digest(ticket(token, tenant, run), shown) for token in self._known]
        return any(good)

    def _now(self) -> str:
        try:
            token = self._token()
        except Refused:
            # Its file is being written, or is gone.
            if not self._known:
                raise
            return self._known[0]
        if token not in self._known[:1]:
            self._known = [token, *self._known[:1]]
        return token


class _Request(Struct, frozen=True):
    method: str
    target: str
    headers: dict[str, str]


class _Refusal(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class ExchangeServer:
    """Serves the files of exchanges at one address."""

    def __init__(self, address: Address, find: Find, tickets: Tickets, tls: ssl.SSLContext | None = None) -> None:
        self._address = address
        self._tls = tls
        self._seen = Seen()
        self._find = find
        self._tickets = tickets
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.port = 0

    def start(self) -> None:
        """Listen. Raises OSError."""
        # Not the one that the process may have chosen: this one can send files without looking at them.
        loop = self._loop = asyncio.SelectorEventLoop()
        try:
            listening = asyncio.start_server(
                self._serve, self._address.host, self._address.port, limit=HEAD_BYTES_MAX, ssl=self._tls
            )
            server = loop.run_until_complete(listening)
        except BaseException:
            loop.close()
            self._loop = None
            raise
        self.port = server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._run, args=(loop, server), name="rota-exchange", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Hang up on everybody."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop = self._thread = None

    def _run(self, loop: asyncio.AbstractEventLoop, server: asyncio.Server) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a stream is served by a task"
        self._tasks[task] = None
        # A task that ends as cancelled would be complained about, by Python 3.11.
        ends = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError)
        try:
            with contextlib.suppress(*ends):
                is_open = len(self._tasks) <= CONNECTIONS_MAX
                while is_open:
                    async with asyncio.timeout(IDLE_S):
                        head = await reader.readuntil(b"\r\n\r\n")
                    is_open = await self._answer(_read_head(head), writer)
        finally:
            del self._tasks[task]
            writer.close()

    async def _answer(self, request: _Request | None, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether another may follow."""
        try:
            if request is None:
                raise _Refusal(400)
            if request.method not in ("GET", "HEAD"):
                raise _Refusal(405)
            path, part = self._asked(request)
            try:
                # It may be read as a whole first, to see that it is the one.
                file = os.fdopen(await asyncio.to_thread(open_part, path, part, self._seen), "rb")
            except NotAPart:
                raise _Refusal(404) from None
        except _Refusal as refusal:
            _head(writer, refusal.status, 0)
            await writer.drain()
            # What else was sent with it is not read.
            return refusal.status in (403, 404)
        with file:
            await _send(request, part, file, writer)
        return True

    def _asked(self, request: _Request) -> tuple[str, Part]:
        """The file that is asked for, if whoever asks may have it."""
        # No name that is served has anything in it that would be written otherwise in an address.
        steps = request.target.partition("?")[0].split("/")
        # Nothing, the bucket, tenant, run, stage, attempt, file.
        if len(steps) != 7 or steps[0] or not all(_is_name(step) for step in steps[2:]):
            raise _Refusal(404)
        tenant, run, stage, attempt, name = steps[2:]
        if not self._tickets.is_good(request.headers.get(TICKET, ""), tenant, run):
            raise _Refusal(403)
        part = read_asked(name)
        if part is None:
            raise _Refusal(404)
        return self._find(tenant, run, (stage, attempt, part_name(part.part))), part


def _read_head(head: bytes) -> _Request | None:
    try:
        first, *lines = head.decode("ascii").split("\r\n")
        method, target, version = first.split(" ")
    except ValueError:
        return None
    if not version.startswith("HTTP/1."):
        return None
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
        return None
    return _Request(method, target, headers)


async def _send(request: _Request, part: Part, file: BinaryIO, writer: asyncio.StreamWriter) -> None:
    found = _range_of(request.headers.get("range", ""), part.bytes)
    if found is None:
        _head(writer, 416, 0, f"Content-Range: bytes */{part.bytes}")
        await writer.drain()
        return
    start, end = found
    is_whole = "range" not in request.headers
    more = [f'ETag: "{part.checksum}"', f"Last-Modified: {_date(file)}"]
    if not is_whole:
        more.append(f"Content-Range: bytes {start}-{end - 1}/{part.bytes}")
    _head(writer, 200 if is_whole else 206, end - start, *more)
    await writer.drain()
    if request.method == "GET" and end > start:
        is_plain = writer.get_extra_info("sslcontext") is None
        step = SENT_BYTES if is_plain else PIECE_BYTES
        for at in range(start, end, step):
            async with asyncio.timeout(STALLED_S):
                if is_plain:
                    await asyncio.get_running_loop().sendfile(writer.transport, file, at, min(step, end - at))
                else:
                    # The kernel cannot, since it is encrypted here; and the loop would take 16 KB at a time.
                    writer.write(os.pread(file.fileno(), min(step, end - at), at))
                    await writer.drain()


def _date(file: BinaryIO) -> str:
    """When a file was written; without it the engine takes no answer. Names of days are those of HTTP, not ours."""
    at = time.gmtime(os.fstat(file.fileno()).st_mtime)
    return f"{_DAYS[at.tm_wday]}, {at.tm_mday:02} {_MONTHS[at.tm_mon - 1]} {time.strftime('%Y %H:%M:%S', at)} GMT"


def _head(writer: asyncio.StreamWriter, status: int, length: int, *more: str) -> None:
    lines = (f"HTTP/1.1 {status} {_REASONS[status]}", f"Content-Length: {length}", "Accept-Ranges: bytes", *more)
    writer.write("\r\n".join((*lines, "", "")).encode("ascii"))


def _range_of(text: str, size: int) -> tuple[int, int] | None:
    """The bytes that are asked for, from and to before; None if there are none such."""
    if not text:
        return 0, size
    found = _read_range(text)
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        return (max(0, size - int(found[2])), size) if int(found[2]) else None
    start, end = int(found[1]), min(int(found[2]) + 1 if found[2] else size, size)
    return (start, end) if start < end else None
