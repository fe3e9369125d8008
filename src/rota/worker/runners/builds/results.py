"""From how an action ended to the result that is reported: exit code, outputs, what it printed, where time went."""

import asyncio
import os
from collections.abc import Callable

from google.protobuf.timestamp_pb2 import Timestamp
from msgspec import Struct

from rota.core.ids import Digest, Millis
from rota.wire.builds import INLINE_RESULT_BYTES_MAX, MESSAGE_CHARS_MAX, BuildResult, encode_build
from rota.wire.reapi import remote_execution_pb2 as rx
from rota.wire.reapi.digests import as_message, digest_of
from rota.worker.runners.builds.actions import Command
from rota.worker.runners.builds.content import Blob, Content
from rota.worker.runners.builds.outputs import Collected
from rota.worker.runners.builds.shelf import hash_open

# What an action printed is in its result if it is short, and in the content otherwise.
PRINTED_BYTES_MAX = 16 * 1024
# Of each stream, for the log of the attempt.
LOGGED_BYTES_MAX = 1 << 20


class Ending(Struct, frozen=True):
    """How an action ended; `status` is a code of google.rpc."""

    exit_code: int
    message: str = ""
    status: int = 0


class Printed(Struct, frozen=True):
    """What an action printed: each stream as bytes or as a digest, and what its log shows of both."""

    out: bytes | Digest
    err: bytes | Digest
    text: str


class Times:
    """When each part of an action began and ended."""

    def __init__(self, now: Callable[[], Millis]) -> None:
        self._now = now
        self._marks: dict[str, Millis] = {}

    def mark(self, what: str) -> None:
        """It happens now."""
        self._marks[what] = self._now()

    def metadata(self, worker: str) -> rx.ExecutedActionMetadata:
        """Who carried it out, and when."""
        metadata = rx.ExecutedActionMetadata(worker=worker)
        for what, at in self._marks.items():
            getattr(metadata, f"{what}_timestamp").CopyFrom(_stamp(at))
        return metadata


def _stamp(at: Millis) -> Timestamp:
    return Timestamp(seconds=at // 1_000, nanos=at % 1_000 * 1_000_000)


async def read_printed(content: Content, files: tuple[int, int]) -> Printed:
    """What was printed into two open files; what is long has been sent to the content."""
    streams = await asyncio.to_thread(_read_streams, files)
    blobs = [Blob(whole, file=file) for (_, whole), file in zip(streams, files, strict=True) if whole is not None]
    if blobs:
        await content.send(blobs)
    out, err = (head if whole is None else whole for head, whole in streams)
    return Printed(out, err, "".join(_shown(head, whole) for head, whole in streams))


def _read_streams(files: tuple[int, int]) -> list[tuple[bytes, Digest | None]]:
    return [_read_stream(file) for file in files]


def _read_stream(file: int) -> tuple[bytes, Digest | None]:
    """The beginning of a stream, and its digest if it is too long for a result."""
    head = os.pread(file, LOGGED_BYTES_MAX, 0)
    return head, hash_open(file) if len(head) > PRINTED_BYTES_MAX else None


def _shown(head: bytes, whole: Digest | None) -> str:
    text = head.decode(errors="replace")
    if whole is not None and whole.size > len(head):
        text += f"\n[rota] {whole.size - len(head):,} more bytes are in the action's result\n"
    elif text and not text.endswith("\n"):
        text += "\n"
    return text


async def make_result(
    content: Content,
    worker: str,
    ending: Ending,
    command: Command,
    found: Collected,
    printed: Printed,
    times: Times,
) -> bytes:
    """What the attempt reports."""
    result = rx.ActionResult(
        output_files=found.files,
        output_directories=found.folders,
        exit_code=ending.exit_code,
        output_file_symlinks=found.file_links,
        output_directory_symlinks=found.folder_links,
    )
    if command.uses_paths:
        # Old clients read the two above, and know of no other. Those who ask with the older fields get only these.
        result.output_symlinks.extend([*found.file_links, *found.folder_links])
    if isinstance(printed.out, bytes):
        result.stdout_raw = printed.out
    else:
        result.stdout_digest.CopyFrom(as_message(printed.out))
    if isinstance(printed.err, bytes):
        result.stderr_raw = printed.err
    else:
        result.stderr_digest.CopyFrom(as_message(printed.err))
    times.mark("output_upload_completed")
    times.mark("worker_completed")
    result.execution_metadata.CopyFrom(times.metadata(worker))
    raw = result.SerializeToString()
    stored: Digest | None = None
    if len(raw) > INLINE_RESULT_BYTES_MAX:
        stored = digest_of(raw)
        await content.send([Blob(stored, content=raw)])
    return encode_build(
        BuildResult(
            result=b"" if stored else raw,
            stored=stored,
            status=ending.status,
            message=ending.message[:MESSAGE_CHARS_MAX],
            exit_code=ending.exit_code,
            worker=worker,
        )
    )
