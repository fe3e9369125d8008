"""Benchmarks of agents' work: one coordinator on SQLite FULL, spoken to over HTTP, as agents do.

What asks is as cheap as it can be: sockets and bytes, so that the figures are the service's. CPU is its own.
"""

import asyncio
import json
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import rota
from bench.rig import Row
from bench.service import Service, cpu_s_of, running

ONES = 300
SINGLE = 6_000
BATCHED = 20_000
BATCH = 100
CLAIMERS = 32
SESSIONS = 1_000
IDLE_S = 30
SUBMITTERS = 64
HOLDS = 10_000


class Agent:
    """One connection, and what is asked over it."""

    def __init__(self, http: str) -> None:
        host, _, port = http.removeprefix("http://").partition(":")
        self._at = (host, int(port))

    async def open(self) -> None:
        self.reader, self.writer = await asyncio.open_connection(*self._at)

    def close(self) -> None:
        self.writer.close()

    async def post(self, path: str, body: Any) -> Any:
        content = json.dumps(body).encode()
        head = f"POST /api/v1/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        self.writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        answer = await self.reader.readuntil(b"\r\n\r\n")
        status = int(answer[9:12])
        length = next((line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
        found = await self.reader.readexactly(int(length.partition(b":")[2]))
        assert status < 300, found
        return json.loads(found) if found else None

    async def register(self, session: str, limit: int = HOLDS) -> None:
        await self.post("sessions", {"session": session, "limit": limit})

    async def listen(self, session: str) -> None:
        """Ask for wakes; the first of them is that it is open."""
        self.writer.write(f"GET /api/v1/sessions/{session}/wakes HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        await self.told(b"event: open")

    async def told(self, what: bytes) -> bytes:
        while True:
            found = await self.reader.readuntil(b"\n\n")
            if what in found:
                return found


async def connect(http: str) -> Agent:
    agent = Agent(http)
    await agent.open()
    return agent


def submit(service: Service, count: int) -> None:
    """Items that any session without a workspace may have."""
    with rota.connect(service.url) as client, ThreadPoolExecutor(SUBMITTERS) as pool:
        for _ in pool.map(client.submit_work, [f"item {number}" for number in range(count)]):
            pass


def wakes() -> Iterator[Row]:
    """From the submission of an item to its wake, and a claim, on an idle system."""
    with running(0, 0, http=True) as service:
        told, claimed = asyncio.run(_wakes(service))
    p50, p99 = statistics.median(told), statistics.quantiles(told, n=100)[98]
    yield Row("submit to wake over SSE, p50", round(p50, 2), "ms", 5, "lower", 0, f"p99 {p99:.1f} ms, over HTTP")
    p50, p99 = statistics.median(claimed), statistics.quantiles(claimed, n=100)[98]
    yield Row("claim over HTTP, p50", round(p50, 2), "ms", 2, "lower", 0, f"p99 {p99:.1f} ms")


async def _wakes(service: Service) -> tuple[list[float], list[float]]:
    listener, agent = await connect(service.http), await connect(service.http)
    await agent.register("one")
    await listener.listen("one")
    told: list[float] = []
    claimed: list[float] = []
    for number in range(ONES):
        began = time.perf_counter()
        _, _ = await asyncio.gather(agent.post("work", {"title": f"item {number}"}), _time(listener, began, told))
        began = time.perf_counter()
        found = await agent.post("sessions/one/claims", {})
        claimed.append((time.perf_counter() - began) * 1_000)
        (claim,) = found["claims"]
        body = {"fence": claim["fence"], "token": claim["token"]}
        await agent.post(f"sessions/one/claims/{claim['item']}/complete", body)
    listener.close()
    agent.close()
    return told, claimed


async def _time(listener: Agent, began: float, told: list[float]) -> None:
    await listener.told(b"event: wake")
    told.append((time.perf_counter() - began) * 1_000)


def claims() -> Iterator[Row]:
    """Claims by many sessions at once, one at a time and in batches."""
    for count, batch, name, reach in (
        (SINGLE, 1, "single claims over HTTP", 1_200),
        (BATCHED, BATCH, f"claims over HTTP, {BATCH} at a time", 5_000),
    ):
        with running(0, 0, http=True) as service:
            submit(service, count)
            per_s, cpu_us = asyncio.run(_claims(service, count, batch))
        yield Row(name, round(per_s), "/s", reach, "higher", cpu_us, f"{CLAIMERS} sessions")


async def _claims(service: Service, count: int, batch: int) -> tuple[float, float]:
    agents = [await connect(service.http) for _ in range(CLAIMERS)]
    for number, agent in enumerate(agents):
        await agent.register(f"s{number}")
    pid = service.processes[0].pid

    async def claim(number: int, agent: Agent) -> int:
        found = 0
        while some := (await agent.post(f"sessions/s{number}/claims", {"limit": batch}))["claims"]:
            found += len(some)
        return found

    before, began = cpu_s_of(pid), time.perf_counter()
    found = await asyncio.gather(*(claim(number, agent) for number, agent in enumerate(agents)))
    wall_s = time.perf_counter() - began
    assert sum(found) == count, "each was claimed once"
    for agent in agents:
        agent.close()
    return count / wall_s, (cpu_s_of(pid) - before) / count * 1e6


def idle() -> Iterator[Row]:
    """What a thousand sessions cost that are connected and wait."""
    with running(0, 0, http=True) as service:
        pid = service.processes[0].pid
        used = asyncio.run(_idle(service, pid))
    yield Row(f"{SESSIONS:,} idle sessions over SSE", round(used, 2), "% of a core", 2, "lower", 0)


async def _idle(service: Service, pid: int) -> float:
    agents = [await connect(service.http) for _ in range(SESSIONS)]
    for number, agent in enumerate(agents):
        await agent.register(f"s{number}", 1)
        await agent.listen(f"s{number}")
    await asyncio.sleep(5)
    before = cpu_s_of(pid)
    await asyncio.sleep(IDLE_S)
    used = (cpu_s_of(pid) - before) / IDLE_S * 100
    for agent in agents:
        agent.close()
    return used
