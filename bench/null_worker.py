"""A worker that carries out every action at once, by doing nothing: `python -m bench.null_worker URL SLOTS`."""

import asyncio
import secrets
import sys

import uvloop

from rota.app.clocks import SystemClock, wall_clock
from rota.client.rpc import RpcConnection
from rota.config.settings import ClientSide
from rota.core.bounds import TimeLimits
from rota.core.commands import Outcome
from rota.core.decide.leases import Offer
from rota.core.ids import DEFAULT_TENANT
from rota.core.model import Capacity
from rota.wire.builds import BUILD, BuildResult, encode_build
from rota.wire.places import read_places
from rota.wire.reapi import remote_execution_pb2 as pb
from rota.wire.requests import GetService
from rota.wire.routes import Route
from rota.worker.driver import WorkerDriver
from rota.worker.remote.driver import dial_to
from rota.worker.sync import AttemptOver, SyncMachine

RESULT = encode_build(BuildResult(result=pb.ActionResult(stdout_raw=b"done").SerializeToString()))


class Nothing:
    """Runs `build` work."""

    async def run(self, offer: Offer) -> AttemptOver:
        return AttemptOver(offer.fence, Outcome.SUCCESS, RESULT)

    async def close(self) -> None:
        """Nothing is kept."""


async def work(url: str, slots: int) -> None:
    route = Route(*read_places(ClientSide(coordinator=url), wall_clock()))
    capacity = Capacity(slots=slots, kinds=(BUILD,))
    connection = await RpcConnection.open(route, "", "")
    service = await connection.ask(GetService(tenant=DEFAULT_TENANT))
    await connection.close()
    machine = SyncMachine(DEFAULT_TENANT, "null", secrets.token_hex(8), capacity, TimeLimits(), service.cluster)
    dial = dial_to(route, str, lambda *_said: None)
    worker = WorkerDriver(machine, dial, {BUILD: Nothing()}, SystemClock(), failing=lambda error: sys.exit(str(error)))
    worker.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(work(sys.argv[1], int(sys.argv[2])))
