"""kill -9 at any moment: content that was acknowledged is there, and nothing wrong is."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.content_writer import MANY_AT_ONCE, content_of, opened
from tests.unit.stores.cas.stage import ACME, digest_of

pytestmark = pytest.mark.full

ROUNDS = 5


def killed_after(folder: Path, first: int, count: int, spin: int, bytes_max: int) -> list[int]:
    """Let a process write, and kill it some moments after that many contents; those that it acknowledged."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.content_writer", str(folder), str(first), str(bytes_max)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    lines: list[str] = []
    while len(lines) < count:
        line = process.stdout.readline()
        assert line, "the writer ended by itself"
        lines.append(line)
    sum(range(spin))  # some microseconds more, so that the end comes at another moment each time
    os.kill(process.pid, signal.SIGKILL)
    lines += process.stdout.read().splitlines(keepends=True)
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL
    return [int(line) for line in lines if line.endswith("\n")]


def look(folder: Path, bytes_max: int, last: int) -> tuple[list[int], int]:
    """Which contents are there, each of them read and right; and how many files there are of which nobody knows."""

    async def whole() -> tuple[list[int], int]:
        content = await opened(folder, bytes_max)
        try:
            there: list[int] = []
            for number in range(last):
                one = content_of(number)
                if not content.missing(ACME, [digest_of(one)]):
                    assert b"".join([piece async for piece in content.read(ACME, digest_of(one))]) == one
                    there.append(number)
            assert (await content.check()).damaged == 0
            files = len(list(folder.glob("blobs/.rota/cas/*/large/*/*")))
            return there, files - sum(len(content_of(number)) > 64 * 1024 for number in there)
        finally:
            await content.close()

    return asyncio.run(whole())


@pytest.mark.parametrize("bytes_max", [1_000_000_000, 3_000_000])
def test_content_that_was_acknowledged_outlives_its_process(tmp_path: Path, bytes_max: int) -> None:
    chance = random.Random(bytes_max)
    first = 0
    acknowledged: list[int] = []
    for round_number in range(ROUNDS):
        count = chance.randrange(1, 150)
        acknowledged += killed_after(tmp_path, first, count, chance.randrange(200_000), bytes_max)
        first = max(acknowledged) + 2 * MANY_AT_ONCE
        if round_number == ROUNDS - 1:
            for path in tmp_path.glob("journal.db*"):
                path.unlink()
        there, unknown = look(tmp_path, bytes_max, first)
        assert unknown == 0
        if bytes_max > 500_000_000:
            missing = [number for number in acknowledged if number not in there]
            assert missing == []
        else:
            assert there, "not everything had to go"
