"""For scripts and tests: `rota up` on free ports, for as long as it is needed."""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike

_READY = re.compile(r"ready: (grpc://\S+) and (http://\S+);")


@contextmanager
def serving(folder: str | PathLike[str], *options: str) -> Iterator[tuple[str, str]]:
    """`rota up`, started in a folder that has its data too: where gRPC and HTTP are. It is ended in order."""
    words = [sys.executable, "-m", "rota", "up", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *options]
    process = subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True)  # noqa: S603 - our own program
    assert process.stderr is not None
    said: list[str] = []
    # Whatever else it says must not fill the pipe.
    rest = threading.Thread(target=process.stderr.read, daemon=True)
    try:
        found = None
        while found is None:
            line = process.stderr.readline()
            assert line, f"rota up ended instead of being ready: {''.join(said)}"
            said.append(line)
            found = _READY.search(line)
        rest.start()
        yield found[1], found[2]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
        if rest.ident is not None:
            rest.join(timeout=30)
        process.stderr.close()
