"""Test host: the Python SDK's client. Lists all tools, makes the planned calls, prints one JSON object.

Usage: host_python.py ERA PLAN COMMAND [ARG…] or URL, with ERA `legacy` or `auto`. Knows nothing of the gateway; run by interop.py.
"""

import asyncio
import json
import sys
import time

from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters


async def names(client: Client) -> list[str]:
    tools, cursor = [], None
    while True:
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        tools += [tool.name for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            return tools


async def main(era: str, plan_file: str, command: str, *args: str) -> None:
    with open(plan_file, encoding="utf-8") as file:
        plan = json.load(file)
    server = command if command.startswith("http://") else StdioServerParameters(command=command, args=list(args))
    async with Client(server, mode=era, read_timeout_seconds=60) as client:
        tools = await names(client)
        # A server that is slow to start comes into the list later.
        until = time.monotonic() + 30
        while not set(plan["awaited"]) <= set(tools) and time.monotonic() < until:
            await asyncio.sleep(0.3)
            tools = await names(client)
        results = []
        for call in plan["calls"]:
            try:
                result = await client.call_tool(call["name"], call["arguments"])
                results.append(result.model_dump(mode="json", by_alias=True, exclude_none=True))
            except MCPError as error:
                results.append({"error": {"code": error.error.code, "message": error.error.message}})
        print(json.dumps({"version": client.protocol_version, "tools": tools, "results": results}))


asyncio.run(main(*sys.argv[1:]))
