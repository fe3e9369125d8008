"""Small files in a folder of Rota's own."""

import os
from pathlib import Path


def write_whole(path: Path, content: bytes, *, is_durable: bool = True) -> None:
    """Write a file that nobody ever sees half of, for this user alone. What is not durable a loss of power may undo."""
    part = path.with_name(f"{path.name}.part")
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as writer:
        writer.write(content)
        writer.flush()
        if is_durable:
            os.fsync(file)
    part.replace(path)
