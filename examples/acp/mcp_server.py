"""A small MCP server to try the agent `mcp` with, at http://127.0.0.1:8000/mcp."""
import os
import random

from mcp.server.fastmcp import FastMCP

server = FastMCP("dice", port=int(os.environ.get("PORT", "8000")))


@server.tool()
def roll(sides: int) -> str:
    """Roll a die."""
    return f"It shows {random.randint(1, sides)} of {sides}"


server.run("streamable-http")
