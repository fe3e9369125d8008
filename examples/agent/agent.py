"""A small agent: it joins as a session, waits to be told of work, claims it, counts words, and says how it went.

Start a coordinator, the agent, and give it something to do:

    rota up
    python examples/agent/agent.py --capability count --idle 60
    python examples/agent/ask.py "the quick brown fox"

It uses nothing but the client of `rota`. What to take from it for an agent of your own:

- A wake is advice. Others are told, too, and some wakes are missed: so claim until there is nothing, and before you
  wait for the first time.
- What was claimed is nobody else's until the lease ends. Long work renews it; whoever is refused with a code that
  begins with `lease.` has lost the item, and throws away what it has.
- A failure is a result: say what went wrong. What only you cannot do is released, which costs nothing.
- Leave the session when you leave. What you hold is then with somebody else at once.

A spawner says in the environment who the agent is to be (docs/guides/spawning-and-mcp.md), and it ends when there has
been nothing to do for a while. So this file can stand in `command` of `[spawners.NAME]` as it is.
"""

import argparse
import asyncio
import os
from collections import Counter
from typing import Any

import rota


def count(payload: Any) -> dict[str, int]:
    """The work. A real agent would think for a while."""
    if not isinstance(payload, dict) or not isinstance(payload.get("text"), str):
        raise ValueError("the payload has no text")
    return dict(Counter(payload["text"].split()))


async def do(claim: Any) -> None:
    """One item, from its claim to its end."""
    try:
        await claim.renew(note="counting")
        try:
            result = count(claim.payload)
        except ValueError as error:
            await claim.fail(str(error))
            print(f"{claim.item}: failed, {error}", flush=True)
        else:
            await claim.complete(result)
            print(f"{claim.item}: done, {sum(result.values())} words", flush=True)
    except rota.Refused as refused:
        if not refused.code.startswith("lease."):
            raise
        print(f"{claim.item}: lost, {refused}", flush=True)


async def serve(session: Any, idle_s: float) -> None:
    """Do what there is, and wait for more; until there has been nothing for so long."""
    wakes = session.wakes()
    while True:
        while claims := await session.claim():
            for claim in claims:
                await do(claim)
        try:
            async with asyncio.timeout(idle_s or None):
                await anext(wakes)
        except TimeoutError:
            return


async def main(options: argparse.Namespace) -> None:
    async with await rota.AsyncRota.connect(options.coordinator) as client:
        session = client.agent_session(
            options.session,
            agent=options.agent,
            workspace=options.workspace,
            channel=options.channel,
            capabilities=options.capability,
        )
        async with session:
            print(f"{session.id}: here", flush=True)
            await serve(session, options.idle)


def options() -> argparse.Namespace:
    """What was said on the command line, and else in the environment."""
    env = os.environ.get
    parser = argparse.ArgumentParser(description="An agent that counts words.")
    parser.add_argument("--coordinator", default=env("ROTA_COORDINATOR", "grpc://127.0.0.1:7433"))
    parser.add_argument("--session", default=env("ROTA_SESSION", ""))
    parser.add_argument("--agent", default=env("ROTA_AGENT", "counter"))
    parser.add_argument("--workspace", default=env("ROTA_WORKSPACE", ""))
    parser.add_argument("--channel", default=env("ROTA_CHANNEL", ""))
    parser.add_argument("--capability", action="append")
    parser.add_argument("--idle", type=float, default=0, help="end after so many seconds without work (default: never)")
    said = parser.parse_args()
    if said.capability is None:
        said.capability = [name for name in env("ROTA_CAPABILITIES", "").split(",") if name]
    return said


if __name__ == "__main__":
    asyncio.run(main(options()))
