"""Test host: the Python SDK's client, which can be asked for a form, a model and roots. Prints one JSON object.

Usage: asking_python.py ERA PLAN COMMAND [ARG…] or URL, with ERA `legacy` or `auto`. Knows nothing of the gateway; run by interop.py.
"""

import asyncio
import json
import sys
import time

import mcp.types as types
from mcp import Client
from mcp.client.stdio import StdioServerParameters

ASKED, PROGRESS, UPDATED = [], [], []


async def elicit(_context, params):
    ASKED.append(["elicitation", params.message])
    return types.ElicitResult(action="accept", content={"name": "Ada"})


async def sample(_context, params):
    ASKED.append(["sampling", params.messages[0].content.text])
    text = types.TextContent(type="text", text="sampled")
    return types.CreateMessageResult(role="assistant", content=text, model="none")


async def roots(_context):
    ASKED.append(["roots", ""])
    return types.ListRootsResult(roots=[types.Root(uri="file:///srv/docs", name="docs")])


async def message(event):
    if getattr(event, "method", "") == "notifications/resources/updated":
        UPDATED.append(str(event.params.uri))


async def progress(value, _total, _message):
    PROGRESS.append(value)


async def until(what, limit=30.0):
    """Waits until something is so; whether it was in time."""
    end = time.monotonic() + limit
    while not what() and time.monotonic() < end:
        await asyncio.sleep(0.05)
    return what()


async def updates(client, plan, modern):
    """Subscribes, has the server tell, unsubscribes; the URIs that were told."""
    uri = plan["resource"]
    if modern:
        async with client.listen(resource_subscriptions=[uri]) as stream:
            await client.call_tool(plan["toggle"], {})
            event = await asyncio.wait_for(anext(aiter(stream)), 30)
            UPDATED.append(str(event.uri))
    else:
        await client.subscribe_resource(uri)
        await client.call_tool(plan["toggle"], {})
        await until(lambda: UPDATED)
        await client.unsubscribe_resource(uri)
    await client.call_tool(plan["toggle"], {})


async def main(era, plan_file, command, *args):
    with open(plan_file, encoding="utf-8") as file:
        plan = json.load(file)
    server = command if command.startswith("http://") else StdioServerParameters(command=command, args=list(args))
    async with Client(
        server, mode=era, read_timeout_seconds=60, elicitation_callback=elicit, sampling_callback=sample,
        list_roots_callback=roots, message_handler=message,
    ) as client:
        tools, end = [], time.monotonic() + 30
        while not set(plan["awaited"]) <= set(tools) and time.monotonic() < end:
            tools = [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]
            await asyncio.sleep(0.2)
        results = []
        for call in plan["calls"]:
            wanted = progress if call["name"] == plan["slow"] else None
            result = await client.call_tool(call["name"], call["arguments"], progress_callback=wanted)
            results.append(result.model_dump(mode="json", by_alias=True, exclude_none=True))
        seen = list(PROGRESS)
        # Given up in the middle: no answer, and the server is well after that.
        running = asyncio.ensure_future(client.call_tool(plan["slow"], {"duration": 60, "steps": 600}, progress_callback=progress))
        moved = await until(lambda: len(PROGRESS) > len(seen))
        running.cancel()
        await asyncio.wait([running])
        await client.call_tool(plan["calls"][0]["name"], plan["calls"][0]["arguments"])
        await updates(client, plan, client.protocol_version > "2026")
        print(json.dumps({
            "version": client.protocol_version, "tools": tools, "results": results, "asked": ASKED, "progress": seen,
            "cancelled": moved and running.cancelled(), "updated": sorted(set(UPDATED)),
        }))


asyncio.run(main(*sys.argv[1:]))
