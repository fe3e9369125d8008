"""The proxy passes what it should, holds back what it should, and says nothing of what it lost."""

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.integration.deadlines import PATIENCE_S, until
from tests.servers.proxy import CHUNK_BYTES, CHUNKS_HELD_MAX, Proxy

pytestmark = pytest.mark.slow

# How long nothing must come before we believe that nothing comes. Only a proxy that leaks can fail this, and only now
# and then; one that holds back never does.
SILENCE_S = 0.1


class Echo:
    """A server that sends back what it hears, and counts it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.heard = 0
        self.ended = 0
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(one)
            threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one: socket.socket) -> None:
        try:
            while content := one.recv(1 << 16):
                self.heard += len(content)
                one.sendall(content)
        except OSError:
            pass
        self.ended += 1

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE_S)
        for one in self._open:
            one.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy(echo.address) as one:
        yield one


@pytest.fixture
def line(proxy: Proxy) -> Iterator[socket.socket]:
    with dial(proxy) as one:
        yield one


def dial(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S)


def say(line: socket.socket, content: bytes) -> bytes:
    line.sendall(content)
    return hear(line, len(content))


def hear(line: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count and (piece := line.recv(count - len(got))):
        got += piece
    return got


def is_silent(line: socket.socket) -> bool:
    line.settimeout(SILENCE_S)
    try:
        line.recv(1)
    except TimeoutError:
        return True
    finally:
        line.settimeout(PATIENCE_S)
    return False


def test_what_is_said_arrives_and_so_does_the_end(proxy: Proxy, echo: Echo, line: socket.socket):
    large = bytes(range(256)) * 4_000
    threading.Thread(target=line.sendall, args=(large,), daemon=True).start()
    assert hear(line, len(large)) == large
    line.shutdown(socket.SHUT_WR)
    until(lambda: echo.ended == 1, "the server to hear of the end")


def test_a_server_that_is_not_there_resets_whoever_asks():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{nobody.getsockname()[1]}"
        # It may be told while it still dials.
        with Proxy(where) as proxy, pytest.raises(ConnectionResetError), dial(proxy) as line:
            line.recv(1)


def test_a_cut_resets_connections_and_refuses_new_ones_until_it_is_healed(
    proxy: Proxy, echo: Echo, line: socket.socket
):
    assert say(line, b"before") == b"before"
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        line.recv(1)
    with pytest.raises(ConnectionRefusedError):
        dial(proxy)
    assert proxy.connections == 0
    until(lambda: echo.ended == 1, "the server to lose its connection too")
    proxy.heal()
    with dial(proxy) as another:
        assert say(another, b"after") == b"after"


def test_nothing_passes_while_it_hangs_and_all_of_it_does_afterwards(proxy: Proxy, echo: Echo, line: socket.socket):
    assert say(line, b"before") == b"before"
    proxy.hang()
    line.sendall(b"meanwhile")
    with dial(proxy) as another:
        another.sendall(b"unheard")
        assert is_silent(line)
        assert is_silent(another)
        assert echo.heard == len(b"before")
        proxy.heal()
        assert hear(line, 9) == b"meanwhile"
        assert hear(another, 7) == b"unheard"


def test_what_cannot_reach_the_target_is_lost_and_what_comes_from_it_is_not(proxy: Proxy, line: socket.socket):
    assert say(line, b"before") == b"before"
    proxy.hang_up_to_target()
    line.sendall(b"lost")
    assert is_silent(line)
    proxy.heal()
    assert hear(line, 4) == b"lost"


def test_what_comes_from_the_target_is_lost_though_it_hears(proxy: Proxy, echo: Echo, line: socket.socket):
    assert say(line, b"before") == b"before"
    proxy.hang_from_target()
    line.sendall(b"heard")
    until(lambda: echo.heard == len(b"beforeheard"), "the server to hear")
    assert is_silent(line)
    proxy.heal()
    assert hear(line, 5) == b"heard"


def test_nobody_learns_of_an_end_while_it_hangs(proxy: Proxy, echo: Echo):
    line = dial(proxy)
    assert say(line, b"before") == b"before"
    proxy.hang()
    line.close()
    threading.Event().wait(SILENCE_S)
    assert echo.ended == 0
    proxy.heal()
    until(lambda: echo.ended == 1, "the server to hear of the end")


def test_a_slow_way_takes_its_time_in_each_direction_and_keeps_the_order(proxy: Proxy, line: socket.socket):
    proxy.slow(150)
    assert is_silent(line)
    sent = [b"%03d" % number for number in range(20)]
    line.settimeout(0.15)
    for piece in sent:
        line.sendall(piece)
    with pytest.raises(TimeoutError):
        line.recv(1)
    line.settimeout(PATIENCE_S)
    assert hear(line, 60) == b"".join(sent)
    proxy.heal()
    assert say(line, b"quick") == b"quick"


def test_what_is_held_back_is_bounded(proxy: Proxy, line: socket.socket):
    proxy.hang_up_to_target()
    line.settimeout(SILENCE_S)
    sent = 0
    with pytest.raises(TimeoutError):
        while sent < 1 << 30:
            sent += line.send(bytes(1 << 20))
    # Sockets have buffers of their own, on both sides of the proxy.
    assert sent < CHUNK_BYTES * CHUNKS_HELD_MAX + (64 << 20)


def test_its_port_stays_its_own_and_closing_twice_is_closing_once(echo: Echo):
    proxy = Proxy(echo.address)
    proxy.cut()
    with pytest.raises(OSError, match="in use"):
        socket.create_server(("127.0.0.1", proxy.port))
    proxy.close()
    proxy.close()
    socket.create_server(("127.0.0.1", proxy.port)).close()
