"""The supervisor's loop: requests of the worker, output of attempts, deaths of children."""

import contextlib
import json
import os
import select
import signal
import socket
from typing import Any

from rota.worker.channel import Frames, send
from rota.worker.supervisor import trees
from rota.worker.supervisor.drains import Drain
from rota.worker.supervisor.spawn import NotStarted, Program, spawn

_PIECES_PER_TURN = 4


class Tree:
    """An attempt's processes, by the first of them."""

    def __init__(self, id: int, pid: int) -> None:
        self.id = id
        self.pid = pid
        self.status: int | None = None
        self.is_struck = False
        self.out_of_memory = False


class Server:
    """One supervisor, for one worker."""

    def __init__(self, link: socket.socket, watched: list[int]) -> None:
        """`watched` are descriptors of processes without which there is nothing to supervise."""
        self._link = link
        self._watched = watched
        self._frames = Frames()
        self._trees: dict[int, Tree] = {}
        self._by_id: dict[int, Tree] = {}
        self._dead: list[Tree] = []
        self._drains: dict[int, Drain] = {}
        self._of_pipe: dict[int, tuple[int, Drain]] = {}
        self._oom_kills = trees.out_of_memory_kills()
        self._poll = select.poll()

    def serve(self) -> None:
        """Until the worker is gone; then nothing that it asked for is left."""
        woken, wake = os.pipe()
        for end in (woken, wake):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for fd in (self._link.fileno(), woken, *self._watched):
            self._poll.register(fd, select.POLLIN)
        while True:
            for fd, _ in self._poll.poll():
                if fd in self._of_pipe:
                    self._output(fd)
                elif fd == woken:
                    os.read(woken, 4_096)
                    self._reap()
                elif fd == self._link.fileno():
                    if not self._hear():
                        return
                elif fd in self._watched:
                    return

    def stop(self) -> None:
        """Kill everything, and keep what it wrote."""
        trees.end_all_children()
        for drain in list(self._drains.values()):
            drain.close()

    # Requests.

    def _hear(self) -> bool:
        try:
            frames = self._frames.receive(self._link)
        except ConnectionError:
            return False
        if frames is None:
            return False
        for frame in frames:
            message = json.loads(frame)
            match message["do"]:
                case "start":
                    self._start(message)
                case "log":
                    self._log(message)
                case "close":
                    self._close(message["id"])
                case "ask":
                    self._ask(message["id"])
                case "kill":
                    self._kill(message["id"])
                case other:
                    raise AssertionError(f"the worker asked for {other!r}, which only a newer supervisor knows")
        return True

    def _tell(self, **message: Any) -> None:
        # If the worker is gone, the next look at the link says so too.
        with contextlib.suppress(OSError):
            send(self._link, json.dumps(message).encode())

    def _start(self, message: dict[str, Any]) -> None:
        files = self._frames.take_files(message["files"])
        self._oom_kills = trees.out_of_memory_kills()
        try:
            pid = spawn(Program(**message["program"]), files)
        except (NotStarted, OSError) as error:
            self._tell(id=message["id"], said="refused", error=str(error))
            return
        finally:
            for file in files:
                os.close(file)
        tree = Tree(message["id"], pid)
        self._trees[pid] = self._by_id[tree.id] = tree
        self._tell(id=tree.id, said="started", pid=pid)

    def _ask(self, id: int) -> None:
        tree = self._by_id.get(id)
        if tree is not None and tree.status is None:
            # It was not waited for yet, so the number is still its own.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(tree.pid, signal.SIGTERM)

    def _kill(self, id: int) -> None:
        # First who died by itself: that is not our doing, and the worker is told so.
        self._reap()
        tree = self._by_id.get(id)
        if tree is not None and tree.status is None:
            tree.is_struck = True
            trees.strike(tree.pid)

    # Deaths.

    def _reap(self) -> None:
        """Take in who died, kill whom they left behind, and say of which trees nothing is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            tree = self._trees.pop(pid, None)
            if tree is not None:
                tree.status = status
                self._dead.append(tree)
                tree.out_of_memory = not tree.is_struck and self._was_out_of_memory(status)
        if not self._dead:
            return
        strays = [pid for pid in trees.children() if pid not in self._trees]
        for pid in strays:
            trees.strike(pid)
        if strays:
            # Each of them is our child now: its death wakes us again.
            return
        dead, self._dead = self._dead, []
        for tree in dead:
            del self._by_id[tree.id]
            self._tell(id=tree.id, said="ended", status=tree.status, oom=tree.out_of_memory, struck=tree.is_struck)

    def _was_out_of_memory(self, status: int) -> bool:
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            return False
        return trees.out_of_memory_kills() > self._oom_kills

    # Output.

    def _log(self, message: dict[str, Any]) -> None:
        pipes = self._frames.take_files(message["files"])
        drain = Drain(message["path"], pipes, message["bytes_max"])
        self._drains[message["id"]] = drain
        self._oom_kills = trees.out_of_memory_kills()
        for pipe in pipes:
            self._of_pipe[pipe] = (message["id"], drain)
            self._poll.register(pipe, select.POLLIN)

    def _output(self, pipe: int) -> None:
        id, drain = self._of_pipe[pipe]
        if drain.empty(pipe, _PIECES_PER_TURN):
            self._forget(pipe)
            if not drain.pipes:
                self._close(id)

    def _forget(self, pipe: int) -> None:
        del self._of_pipe[pipe]
        self._poll.unregister(pipe)

    def _close(self, id: int) -> None:
        drain = self._drains.pop(id, None)
        if drain is None:
            return
        for pipe in list(drain.pipes):
            self._forget(pipe)
        drain.close()
        tails = [tail.decode(errors="replace") for tail in drain.tails]
        self._tell(id=id, said="logged", written=drain.written, dropped=drain.dropped, tails=tails)
