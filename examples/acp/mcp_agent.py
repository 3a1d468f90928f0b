"""An agent with the tools of the MCP servers that are configured in the editor."""
import asyncio
import logging

from langchain.agents import create_agent
from langchain_core.runnables import RunnableConfig
from langchain_mcp_adapters.client import MultiServerMCPClient

from agent import model

LOAD_SECONDS = 10
TRANSPORTS = {"http": "streamable_http", "sse": "sse"}


async def tools_of(server: dict) -> list:
    """The server's tools. None if it does not answer: the agent then works without it."""
    connection = {
        "transport": TRANSPORTS[server["type"]],
        "url": server["url"],
        # Empty, unless `forward_mcp_secrets` is set.
        "headers": {header["name"]: header["value"] for header in server["headers"]},
    }
    # With the server's name as a prefix, tools of two servers may have one name.
    client = MultiServerMCPClient({server["name"]: connection}, tool_name_prefix=True)
    try:
        return await asyncio.wait_for(client.get_tools(), LOAD_SECONDS)
    except Exception:
        logging.exception("the MCP server %s is not used", server["name"])
        return []


# LangGraph calls this function for each run, with the run's configuration.
async def agent(config: RunnableConfig):
    servers = config.get("configurable", {}).get("mcp_servers", [])
    loaded = await asyncio.gather(*map(tools_of, servers))
    return create_agent(model(), tools=[tool for tools in loaded for tool in tools])
