"""A coordinator with every way in, all in this process, and a watchdog that keeps every pause of its loop.

Requests are sent as bytes, by threads that do nothing but send: only the coordinator's side computes.
"""

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rota.api.rpc import RpcServer
from rota.api.tokens import Gate
from rota.app.loop_watchdog import LoopWatchdog, Pause
from rota.core.bounds import TimeLimits
from rota.wire.channels import SYNC, TALK, fragments_of, greeting, grpc
from tests.integration.http_stage import Stage, gate_of, staged

TOKENS = ("reader", "writer", "admin", "worker", "agent", "analyst")
# A pause on a machine that others use too: several times what is promised, and of computing rather than of waiting.
PAUSE_MS_MAX = 500
# A machine that stands still for seconds deposes a leader with the usual term, as it should.
PATIENT = TimeLimits(lease_ms=300_000, term_ms=60_000, settle_ms=60_000)
ANSWER_S = 30.0


class LoopStage:
    """What was started, how to send it bytes, and what its loop did meanwhile."""

    def __init__(self, stage: Stage, grpc_port: int, folder: Path) -> None:
        self.stage = stage
        self.grpc_port = grpc_port
        self.folder = folder
        self.pauses: list[Pause] = []

    def keep(self, pause: Pause) -> None:
        """A pause was noticed."""
        self.pauses.append(pause)

    def longest(self) -> Pause:
        """The pause in which most was computed since the last call."""
        worst = max(self.pauses, key=lambda pause: pause.cpu_ms, default=Pause(pause_ms=0, cpu_ms=0, task="", cause=""))
        self.pauses.clear()
        return worst

    def http(
        self, role: str, method: str, path: str, body: bytes, media: str = "application/json"
    ) -> tuple[int, bytes]:
        """One request; its status and body, or 0 if the connection broke."""
        connection = http.client.HTTPConnection("127.0.0.1", self.stage.port, timeout=ANSWER_S)
        headers = {"Authorization": f"Bearer {token(role)}", "Content-Type": media}
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()

    def talk(self, role: str, *messages: bytes, method: str = TALK, is_split: bool = True) -> tuple[list[bytes], Any]:
        """One stream: what was answered within a moment of the last message, and the status it ended with."""
        options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        answers: list[bytes] = []
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}", options=options) as channel:
            more = threading.Event()

            def requests() -> Iterator[bytes]:
                for message in messages:
                    yield from fragments_of(message) if is_split else [message]
                more.wait(ANSWER_S)

            call: Any = channel.stream_stream(method)(requests(), ANSWER_S, greeting(token(role)))
            try:
                for answer in call:
                    answers.append(answer)
                    if method == TALK and len(answers) == len(messages):
                        break
            except grpc.RpcError:
                return answers, call.code()
            finally:
                more.set()
                call.cancel()
        return answers, None

    def sync(self, *frames: bytes) -> Any:
        """A worker's stream that says this, and then something that ends it; the status it ended with."""
        return self.talk("worker", *frames, b"\xc1", method=SYNC, is_split=False)[1]

    def unix(self, content: bytes, length: int | None = None) -> bytes:
        """One message over the socket of the data folder, and what is answered; nothing if it was hung up."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_S)
            connection.connect(str(self.folder / "rota.sock"))
            with contextlib.suppress(OSError):
                connection.sendall((len(content) if length is None else length).to_bytes(4, "big") + content)
            return _read(connection, int.from_bytes(_read(connection, 4), "big"))


def token(role: str) -> str:
    """The token of a role."""
    return f"{role}-for-the-test"


def _read(connection: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        try:
            piece = connection.recv(size - len(content))
        except OSError:
            return content
        if not piece:
            return content
        content += piece
    return content


def gate() -> Gate:
    """Accepts a token of each role."""
    return gate_of(",".join(f"{role}@default:{token(role)}" for role in TOKENS))


@contextmanager
def loop_stage(folder: Path, **options: Any) -> Iterator[LoopStage]:
    """A stage, and its end."""
    with staged(folder, gate=gate(), slots=0, limits=PATIENT, **options) as stage:
        stage.http.headers["Authorization"] = f"Bearer {token('admin')}"

        async def start() -> tuple[RpcServer, int, LoopWatchdog]:
            server = RpcServer(stage.line.desk, stage.line.driver, gate())
            watchdog = LoopWatchdog(one.keep)
            watchdog.start()
            return server, await server.start(), watchdog

        one = LoopStage(stage, 0, folder)
        server, one.grpc_port, watchdog = stage.rota._thread.call(start())
        try:
            yield one
        finally:
            watchdog.stop()
            stage.rota._thread.call(server.stop())
