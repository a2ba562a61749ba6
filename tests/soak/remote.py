"""A small MCP server over HTTP that is made to be killed: remote.py PORT ERA (PORT 0 takes a free one and prints it).

ERA is `modern` (stateless) or `legacy` (sessions, which it forgets when it ends). Tools: `echo` answers its arguments, `steps` tells
of progress first. Every second answer is a stream, the others are plain JSON. Knows nothing of the gateway.
"""

import asyncio
import itertools
import json
import random
import sys
import uuid

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "steps")]
VERSION = "io.modelcontextprotocol/protocolVersion"
count = itertools.count()
sessions = set()


def answer(era, method, params):
    """A result, or an error."""
    more = {"resultType": "complete"} if era == "modern" else {}
    hints = {**more, "ttlMs": 0, "cacheScope": "private"} if more else {}
    modern = VERSION in params.get("_meta", {})
    if modern != (era == "modern") and method != "initialize":
        return {"error": {"code": -32601 if modern else -32602, "message": "not in this era"}}
    match method:
        case "initialize" if era == "legacy":
            info = {"name": "remote", "version": "1"}
            return {"result": {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}}
        case "server/discover":
            return {"result": {**hints, "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}}
        case "tools/list":
            return {"result": {**hints, "tools": TOOLS}}
        case "tools/call":
            return {"result": {**more, "content": [], "structuredContent": params.get("arguments", {})}}
        case "ping" if era == "legacy":
            return {"result": {}}
    return {"error": {"code": -32601, "message": "Method not found"}}


async def serve(era, reader, writer):
    """One connection."""

    def head(status, length=None, **headers):
        lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
        lines.append("Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}")
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())

    def chunk(data):
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def event(message):
        chunk(b"data: " + json.dumps(message).encode() + b"\n\n")

    try:
        while True:
            verb = (await reader.readuntil(b"\r\n")).split(b" ")[0]
            headers = {}
            while (line := (await reader.readuntil(b"\r\n"))[:-2]) != b"":
                name, _, value = line.partition(b":")
                headers[name.strip().lower()] = value.strip().decode()
            body = await reader.readexactly(int(headers.get(b"content-length", 0)))
            session = headers.get(b"mcp-session-id")
            if verb == b"DELETE":
                sessions.discard(session)
                head("200 OK", 0)
                continue
            if verb != b"POST":
                head("405 Method Not Allowed", 0, Allow="POST, DELETE")
                continue
            message = json.loads(body)
            method, params = message.get("method"), message.get("params") or {}
            if era == "legacy" and method != "initialize" and session not in sessions:
                if VERSION in params.get("_meta", {}):
                    reply = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": -32600, "message": "no session"}})
                    head("400 Bad Request", len(reply), Content_Type="application/json")
                    writer.write(reply.encode())
                else:
                    head("404 Not Found", 0)
                continue
            if method is None or "id" not in message:
                head("202 Accepted", 0)
                continue
            more = {}
            if method == "initialize" and era == "legacy":
                session = uuid.uuid4().hex
                sessions.add(session)
                more = {"Mcp_Session_Id": session}
            if method == "tools/call":
                await asyncio.sleep(random.random() * 0.03)
            reply = {"jsonrpc": "2.0", "id": message["id"], **answer(era, method, params)}
            token = params.get("_meta", {}).get("progressToken")
            steps = params.get("name") == "steps" and token is not None
            if steps or next(count) % 2:
                head("200 OK", None, Content_Type="text/event-stream", **more)
                for step in range(3) if steps else ():
                    event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": step}})
                    await writer.drain()
                event(reply)
                chunk(b"")
            else:
                text = json.dumps(reply).encode()
                head("200 OK", len(text), Content_Type="application/json", **more)
                writer.write(text)
            await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def main(port, era):
    server = await asyncio.start_server(lambda r, w: serve(era, r, w), "127.0.0.1", int(port))
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main(*sys.argv[1:]))
