"""Benchmarks of builds: content, null actions, and what a build under way does to workflows on the same service.

CPU is that of the server's processes (front end and coordinator), read from /proc.
"""

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import grpc
import grpc.aio
from google.longrunning import operations_pb2

import rota
from bench.rig import Row
from bench.service import Service, cpu_s_of, free_port, running, spec, tree_of, wait_for
from rota.core.ids import Digest
from rota.core.model import Graph
from rota.wire.reapi import bytestream_pb2 as bs
from rota.wire.reapi import methods
from rota.wire.reapi import remote_execution_pb2 as pb
from rota.wire.reapi.digests import as_message, digest_of
from rota.wire.reapi.names import blob_name, upload_name

ACTIONS = 4_000
AT_ONCE = 50
BLOB_BYTES = 256 << 20
CHUNK_BYTES = 64 << 10
DIGESTS = 1_000
ASKED = 200
CHAIN = 100
ROUNDS = 5
ACTIONS_BESIDE = 10_000


@contextmanager
def front_end(service: Service) -> Iterator[str]:
    """A front end for a service; the answer is its address."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        words = [sys.executable, "-m", "rota", "frontend", "--coordinator", service.url]
        words += ["--listen", f"127.0.0.1:{port}", "--data", folder, "--queue", "default"]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603 - our own program
        service.processes.append(process)
        try:
            wait_for(port, time.monotonic() + 30)
            yield f"127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


@contextmanager
def null_worker(url: str) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-m", "bench.null_worker", url, str(AT_ONCE)])  # noqa: S603 - our own program
    try:
        with rota.connect(url) as client:
            while not any(worker.present for worker in client.workers()):
                time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


def servers_cpu_s(service: Service) -> float:
    """What the coordinator and the front end have used."""
    return sum(cpu_s_of(pid) for process in service.processes for pid in tree_of(process.pid))


class Client:
    """The methods of the API."""

    def __init__(self, channel: Any) -> None:
        def encode(message: Any) -> bytes:
            return message.SerializeToString()

        self.batch = channel.unary_unary(methods.BATCH_UPDATE_BLOBS, encode, pb.BatchUpdateBlobsResponse.FromString)
        self.missing = channel.unary_unary(methods.FIND_MISSING_BLOBS, encode, pb.FindMissingBlobsResponse.FromString)
        self.execute = channel.unary_stream(methods.EXECUTE, encode, operations_pb2.Operation.FromString)
        self.write = channel.stream_unary(methods.WRITE, encode, bs.WriteResponse.FromString)
        self.read = channel.unary_stream(methods.READ, encode, bs.ReadResponse.FromString)

    async def put(self, *contents: bytes) -> None:
        asked = pb.BatchUpdateBlobsRequest()
        for content in contents:
            asked.requests.add(digest=as_message(digest_of(content)), data=content)
        answer = await self.batch(asked)
        assert not any(each.status.code for each in answer.responses), answer

    async def actions(self, count: int, salt: bytes) -> list[Digest]:
        """Actions that are all different, and of which nothing is kept."""
        command = pb.Command(arguments=["/bin/true"]).SerializeToString()
        await self.put(command)
        found: list[bytes] = [
            pb.Action(
                command_digest=as_message(digest_of(command)),
                input_root_digest=as_message(digest_of(b"")),
                do_not_cache=True,
                salt=salt + str(number).encode(),
            ).SerializeToString()
            for number in range(count)
        ]
        for first in range(0, count, 500):
            await self.put(*found[first : first + 500])
        return [digest_of(content) for content in found]

    async def carry_out(self, actions: list[Digest]) -> None:
        """All of them, some at once."""
        left = iter(actions)

        async def some() -> None:
            for action in left:
                asked = pb.ExecuteRequest(action_digest=as_message(action), skip_cache_lookup=True)
                told = [operation async for operation in self.execute(asked)]
                assert told[-1].done, told

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))


def _with_client(address: str, work: Callable[[Client], Coroutine[Any, Any, Any]]) -> Any:
    async def inside() -> Any:
        options = [("grpc.max_receive_message_length", -1)]
        async with grpc.aio.insecure_channel(address, options=options) as channel:
            return await work(Client(channel))

    return asyncio.run(inside())


def content() -> Iterator[Row]:
    """Content in and out through gRPC, and asking for it."""
    with running(0, 1) as service, front_end(service) as address:

        async def measure(client: Client) -> tuple[float, float, float]:
            blob = os.urandom(BLOB_BYTES)
            digest = digest_of(blob)

            async def pieces() -> Any:
                for offset in range(0, BLOB_BYTES, CHUNK_BYTES):
                    piece = blob[offset : offset + CHUNK_BYTES]
                    is_last = offset + CHUNK_BYTES >= BLOB_BYTES
                    name = upload_name("", "bench", digest) if not offset else ""
                    yield bs.WriteRequest(resource_name=name, write_offset=offset, data=piece, finish_write=is_last)

            began = time.perf_counter()
            await client.write(pieces())
            write_s = time.perf_counter() - began
            read_s = 1e9
            for _ in range(2):
                began = time.perf_counter()
                size = 0
                async for part in client.read(bs.ReadRequest(resource_name=blob_name("", digest))):
                    size += len(part.data)
                read_s = min(read_s, time.perf_counter() - began)
            assert size == BLOB_BYTES
            asked = pb.FindMissingBlobsRequest(
                blob_digests=[as_message(digest_of(str(number).encode())) for number in range(DIGESTS)]
            )
            began = time.perf_counter()
            await asyncio.gather(*(client.missing(asked) for _ in range(ASKED)))
            return write_s, read_s, time.perf_counter() - began

        write_s, read_s, ask_s = _with_client(address, measure)
        yield Row("content, upload in pieces of 64 KiB", BLOB_BYTES / write_s / 1e6, "MB/s", 250, "higher", 0)
        yield Row("content, read", BLOB_BYTES / read_s / 1e6, "MB/s", 800, "higher", 0)
        yield Row("FindMissingBlobs, digests", DIGESTS * ASKED / ask_s, "/s", 300_000, "higher", 0)


def actions() -> Iterator[Row]:
    """Null actions: submitted, made durable, carried out by a worker that does nothing, told."""
    with running(0, 1) as service, front_end(service) as address, null_worker(service.url):

        async def measure(client: Client) -> tuple[float, float]:
            await client.carry_out(await client.actions(500, b"warm"))
            found = await client.actions(ACTIONS, b"run")
            before, began = servers_cpu_s(service), time.perf_counter()
            await client.carry_out(found)
            return time.perf_counter() - began, servers_cpu_s(service) - before

        took_s, used_s = _with_client(address, measure)
        cpu_ms = used_s / ACTIONS * 1e3
        yield Row("null actions, Execute to COMPLETED, durable", ACTIONS / took_s, "/s", 800, "higher", cpu_ms * 1e3)
        yield Row("null actions, CPU of all server processes", cpu_ms, "ms", 0.9, "lower", cpu_ms * 1e3)


def beside() -> Iterator[Row]:
    """How much slower a chain of workflow tasks is while a build saturates the front end; with and without in turns."""
    with running(1, 2, "--threads") as service, front_end(service) as address, null_worker(service.url):
        with rota.connect(service.url) as client:
            _hop_ms(client)

            async def measure(builds: Client) -> list[tuple[float, float]]:
                return [await _hops_ms(client, builds, number) for number in range(ROUNDS)]

            alone, loaded = map(statistics.median, zip(*_with_client(address, measure), strict=True))
        note = f"{alone:.2f} ms alone, {loaded:.2f} ms beside a build; medians of {ROUNDS}"
        yield Row("workflow hop beside a build", loaded / alone, "×", 2, "lower", 0, note)


async def _hops_ms(client: rota.Rota, builds: Client, number: int) -> tuple[float, float]:
    """The mean hop of a chain alone, and beside a build."""
    alone = await asyncio.to_thread(_hop_ms, client)
    found = await builds.actions(ACTIONS_BESIDE, b"beside%d." % number)
    carrying = asyncio.ensure_future(builds.carry_out(found))
    try:
        return alone, await asyncio.to_thread(_hop_ms, client)
    finally:
        assert not carrying.done(), "the build ended before the chain did"
        carrying.cancel()
        await asyncio.gather(carrying, return_exceptions=True)


def _hop_ms(client: rota.Rota) -> float:
    """The mean hop of a chain."""
    tasks = tuple(spec(f"t{at}", upstream=(f"t{at - 1}",) if at else ()) for at in range(CHAIN))
    run = client.submit(Graph(name="chain", tasks=tasks))
    run.wait(120)
    ends = sorted(each.ended_at for each in run.tasks())
    return statistics.mean(after - before for before, after in pairwise(ends))
