"""Test host: the Python SDK's client. Lists all tools, makes the planned calls, prints one JSON object.

Usage: host_python.py ERA PLAN COMMAND [ARG…], with ERA `legacy` or `auto`. Knows nothing of the gateway; run by interop.py.
"""

import asyncio
import json
import sys

from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters


async def main(era: str, plan: str, command: str, *args: str) -> None:
    with open(plan, encoding="utf-8") as file:
        calls = json.load(file)
    server = StdioServerParameters(command=command, args=list(args))
    async with Client(server, mode=era, read_timeout_seconds=60) as client:
        tools, cursor = [], None
        while True:
            page = await client.list_tools(cursor=cursor)
            tools += [tool.name for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                break
        results = []
        for call in calls:
            try:
                result = await client.call_tool(call["name"], call["arguments"])
                results.append(result.model_dump(mode="json", by_alias=True, exclude_none=True))
            except MCPError as error:
                results.append({"error": {"code": error.error.code, "message": error.error.message}})
        print(json.dumps({"version": client.protocol_version, "tools": tools, "results": results}))


asyncio.run(main(*sys.argv[1:]))
