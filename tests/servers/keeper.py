"""Folders of servers that go with whoever made them, in whatever way that ends."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DEADLINE_S = 60.0


@contextmanager
def kept(folder: Path, script: str) -> Iterator[Path]:
    """A folder that is removed in the end by `script`, which is given its name as `$1`, with what runs in it.

    The script begins when a pipe closes that only this process holds open, so a kill does not keep it from it.
    """
    line = ["sh", "-c", f"while read -r line; do :; done\n{script}", "rota-keeper", str(folder)]
    keeper = subprocess.Popen(line, stdin=subprocess.PIPE, cwd="/", start_new_session=True)
    assert keeper.stdin is not None, "it was asked for"
    try:
        yield folder
    finally:
        keeper.stdin.close()
        keeper.wait(DEADLINE_S)
