"""The asyncio end of a channel: sends without waiting, hands over whole messages."""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence

from rota.worker.channel import READ_BYTES, Frames, framed, send_some

# Nothing that is said to a worker is large; user code that finds the connection must not fill the worker's memory.
HEARD_BYTES_MAX = 1024 * 1024


class Stream:
    """Messages to and from another process of this machine."""

    def __init__(self, sock: socket.socket, heard: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._heard = heard
        self._lost = lost
        self._frames = Frames(HEARD_BYTES_MAX)
        self._loop = asyncio.get_running_loop()
        # What the socket would not take yet, with copies of the files that go along.
        self._unsent: deque[tuple[bytes, list[int]]] = deque()
        self.is_open = True
        self._loop.add_reader(sock, self._read)

    def send(self, message: bytes, files: Sequence[int] = ()) -> None:
        """Say something; the caller may close the files at once. If the other process is gone, nothing happens here."""
        if not self.is_open:
            return
        piece = framed(message)
        if not self._unsent:
            sent = self._try(piece, files)
            if sent == len(piece):
                return
            if sent:
                piece, files = piece[sent:], ()
            self._loop.add_writer(self._sock, self._write)
        self._unsent.append((piece, [os.dup(file) for file in files]))

    def close(self) -> None:
        """Stop; the other side sees the end."""
        if self.is_open:
            self.is_open = False
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()
            while self._unsent:
                self._close_files(self._unsent.popleft()[1])

    def _try(self, piece: bytes, files: Sequence[int]) -> int:
        try:
            return send_some(self._sock, piece, files)
        except BlockingIOError:
            return 0
        except ConnectionError:
            # The reader sees the same, and what the other side said before.
            return len(piece)

    def _write(self) -> None:
        while self._unsent:
            piece, files = self._unsent[0]
            sent = self._try(piece, files)
            if sent == 0:
                return
            self._close_files(files)
            if sent < len(piece):
                self._unsent[0] = (piece[sent:], [])
                return
            self._unsent.popleft()
        self._loop.remove_writer(self._sock)

    def _close_files(self, files: list[int]) -> None:
        for file in files:
            os.close(file)

    def finish(self) -> None:
        """Hand over what has arrived, then stop: for a process that is known to be dead."""
        self._read()
        if self.is_open:
            self.close()
            self._lost()

    def _read(self) -> None:
        if not self.is_open:
            return
        try:
            piece = self._sock.recv(READ_BYTES)
            frames = self._frames.feed(piece)
        except BlockingIOError:
            return
        except OSError:
            piece, frames = b"", []
        for frame in frames:
            self._heard(frame)
        if not piece and self.is_open:
            self.close()
            self._lost()
