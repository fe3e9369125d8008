"""An agent that a spawner starts in the tests: it joins as whom it was told to be, does one item, and leaves."""

import asyncio
import os
import sys

import rota
from rota.wire.sessions import ClaimWork, Ending, EndSession, FinishWork, RegisterSession

WAIT_MS = 30_000


async def work() -> int:
    session = os.environ["ROTA_SESSION"]
    async with await rota.AsyncRota.connect() as one:
        of_session = {"tenant": one.line.tenant, "session": session}
        await one.ask(
            RegisterSession(
                **of_session,
                agent=os.environ["ROTA_AGENT"],
                workspace=os.environ["ROTA_WORKSPACE"],
                capabilities=tuple(filter(None, os.environ["ROTA_CAPABILITIES"].split(","))),
            )
        )
        leases = await one.ask(ClaimWork(**of_session, command_id=f"claim-{session}", wait_ms=WAIT_MS))
        for lease in leases:
            done = FinishWork(
                **of_session, item=lease.item, fence=lease.fence, token=lease.token, ending=Ending.COMPLETE
            )
            await one.ask(done)
        await one.ask(EndSession(**of_session))
    return 0 if leases else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(work()))
