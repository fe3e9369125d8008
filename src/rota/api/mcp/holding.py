"""What the session behind an MCP server holds. Tools name items; tokens and fences are remembered here.

An agent that never sees a token cannot leak one, and cannot mix two up.
"""

from rota.client.sessions import AgentSession, WorkClaim
from rota.core.errors import Refused

# After these the lease is over, whatever the agent would like.
OVER = ("lease.ended", "lease.expired", "lease.foreign", "lease.lost", "lease.none")


class Holding:
    """One session and its claims, by item."""

    def __init__(self, session: AgentSession) -> None:
        self.session = session
        self._claims: dict[str, WorkClaim] = {}

    async def claim(self, *, wait_s: float, lease_s: float, priority: str, channel: str, item: str) -> WorkClaim | None:
        """The best item that it may have, or the one that is named; None if there is nothing."""
        if self.session.lost is not None:
            # It was silent for too long, say while the machine slept. What it held is with others.
            self._claims.clear()
            await self.session.register()
        found = await self.session.claim(wait_s=wait_s, lease_s=lease_s, priority=priority, channel=channel, item=item)
        for claim in found:
            self._claims[claim.item] = claim
        return found[0] if found else None

    def find(self, item: str) -> WorkClaim:
        """The claim of an item. Raises Refused if this session never had it, or has given it away."""
        claim = self._claims.get(item)
        if claim is None:
            held = ", ".join(self._claims) or "nothing"
            hint = f"It holds {held}. Claim an item before you report on it."
            raise Refused("lease.none", f"this session does not hold {item[:100]!r}", hint, path="item")
        return claim

    async def held(self) -> list[WorkClaim]:
        """What it holds by the coordinator's word. What was lost meanwhile is forgotten."""
        fences = await self.session.beat()
        self._claims = {item: claim for item, claim in self._claims.items() if claim.fence in fences}
        return list(self._claims.values())

    def forget(self, item: str) -> None:
        """It is not this session's any more."""
        self._claims.pop(item, None)
