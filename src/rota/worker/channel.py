"""Messages over a Unix socket: a length, then that many bytes; open files may travel along.

Used by three processes of which two must start fast, so it knows nothing but sockets. Files arrive in the order in
which they were sent and never later than the first byte of their message, so the receiver keeps them in a queue and
each message says how many are its own.
"""

import array
import socket
from collections.abc import Sequence
from struct import Struct

HEADER = Struct(">I")
FRAME_BYTES_MAX = 1 << 30
FILES_PER_FRAME_MAX = 8
READ_BYTES = 256 * 1024
# How a process ends whose socket is of no use any more.
CONNECTION_LOST = 70

_ROOM_FOR_FILES = socket.CMSG_SPACE(FILES_PER_FRAME_MAX * array.array("i").itemsize)


class Frames:
    """The receiving end: bytes in, whole messages out."""

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._held = bytearray()
        self.files: list[int] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """The messages that are complete now."""
        held = self._held
        held += piece
        frames: list[bytes] = []
        at = 0
        while len(held) - at >= HEADER.size:
            (size,) = HEADER.unpack_from(held, at)
            if size > self._bytes_max:
                raise ConnectionError(f"a message of {size} bytes was announced; the other side is not one of ours")
            end = at + HEADER.size + size
            if len(held) < end:
                break
            frames.append(bytes(held[at + HEADER.size : end]))
            at = end
        if at:
            del held[:at]
        return frames

    def receive(self, sock: socket.socket) -> list[bytes] | None:
        """Read once, with files; None when the other side is gone."""
        piece, ancillary, _, _ = sock.recvmsg(READ_BYTES, _ROOM_FOR_FILES, socket.MSG_CMSG_CLOEXEC)
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                files = array.array("i")
                files.frombytes(content[: len(content) - len(content) % files.itemsize])
                self.files.extend(files)
        return self.feed(piece) if piece else None

    def take_files(self, count: int) -> list[int]:
        """The next open files; the caller closes them."""
        taken, self.files = self.files[:count], self.files[count:]
        if len(taken) != count:
            raise ConnectionError("a message came without the files it speaks of")
        return taken


def framed(message: bytes) -> bytes:
    """A message as it goes over the socket."""
    return HEADER.pack(len(message)) + message


def send_some(sock: socket.socket, piece: bytes, files: Sequence[int] = ()) -> int:
    """Send as much as the socket takes at once; how much that was. The files go with the first byte."""
    if not files:
        return sock.send(piece)
    return sock.sendmsg([piece], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])


def send(sock: socket.socket, message: bytes, files: Sequence[int] = ()) -> None:
    """Send a whole message on a blocking socket."""
    piece = framed(message)
    sent = send_some(sock, piece, files)
    if sent < len(piece):
        sock.sendall(piece[sent:])
