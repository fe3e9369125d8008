"""An MCP server over the standard streams: tools for one session, which lives as long as the server does."""

from collections.abc import Callable
from typing import Any

from mcp.server.mcpserver import MCPServer

from rota.api.mcp.holding import Holding
from rota.api.mcp.tools import Tools
from rota.client.items import Items
from rota.client.sessions import AgentSession
from rota.core.ids import Millis

INSTRUCTIONS = """Rota keeps work for agents. Claim an item with claim_work before you work on it; then nobody else has
it until its lease ends. Report progress every few minutes, and end with complete_work, fail_work or release_work. A
refusal begins with a code: lease.* means that the item is not yours any more, so stop and discard; leader.none and
store.unavailable mean that nobody can answer now, so try again in a moment."""


def make_server(
    client: Items, session: AgentSession, workspace: str, clock: Callable[[], Millis], version: str
) -> "MCPServer[Any]":
    """A server with every tool. The session is registered by whoever calls this."""
    server: MCPServer[Any] = MCPServer(
        name="rota", title="Rota", version=version, instructions=INSTRUCTIONS, log_level="WARNING"
    )
    for tool in Tools(client, Holding(session), workspace, clock).all:
        server.add_tool(tool)
    return server
