"""A small HTTP client for MCP hosts of both eras: one connection, one request at a time, answers as JSON or as a stream.

Knows nothing of the gateway. Used by load.py.
"""

import asyncio
import json

MODERN, LEGACY = "2026-07-28", "2025-11-25"
_INFO = {"name": "soak", "version": "1"}


class Broken(Exception):
    """The peer did not keep to the protocol, or did not answer."""


class Answer:
    """What came back to one request: the status, the headers, and the JSON messages one after the other."""

    def __init__(self, status, headers, messages):
        self.status, self.headers, self.messages = status, headers, messages


class Connection:
    """A connection that is opened again when it is needed and gone."""

    def __init__(self, port, path="/mcp"):
        self._port, self._path, self._reader, self._writer = port, path, None, None

    async def open(self, verb, headers, message=None):
        """Sends; the answer, whose `messages` is an iterator that reads on."""
        body = b"" if message is None else json.dumps(message, ensure_ascii=False).encode()
        lines = [f"{verb} {self._path} HTTP/1.1", f"Host: localhost:{self._port}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        raw = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
        fresh = self._writer is None
        for last in (fresh, True):
            try:
                if self._writer is None:
                    self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
                self._writer.write(raw)
                await self._writer.drain()
                status, got = await self._head()
                return Answer(status, got, self._messages(got))
            except (OSError, asyncio.IncompleteReadError) as error:
                # A kept connection may have been closed for its age before the request reached the peer.
                self.close()
                if last:
                    raise Broken(f"the connection broke: {error}") from error

    async def _head(self):
        status = (await self._reader.readuntil(b"\r\n")).split(b" ")
        headers = {}
        while (line := (await self._reader.readuntil(b"\r\n"))[:-2]) != b"":
            name, _, value = line.partition(b":")
            headers[name.strip().lower().decode()] = value.strip().decode()
        return int(status[1]), headers

    async def _body(self, headers):
        if headers.get("transfer-encoding") == "chunked":
            while size := int(await self._reader.readuntil(b"\r\n"), 16):
                yield (await self._reader.readexactly(size + 2))[:-2]
            await self._reader.readuntil(b"\r\n")
        elif length := int(headers.get("content-length", 0)):
            yield await self._reader.readexactly(length)

    async def _messages(self, headers):
        stream = headers.get("content-type", "").startswith("text/event-stream")
        pending = b""
        async for part in self._body(headers):
            pending += part
            while stream and (cut := pending.find(b"\n\n")) >= 0:
                event, pending = pending[:cut], pending[cut + 2 :]
                data = b"\n".join(line[5:].lstrip(b" ") for line in event.split(b"\n") if line.startswith(b"data:"))
                if data:
                    yield json.loads(data)
        if pending.strip():
            if stream:
                raise Broken(f"a stream ended within an event: {pending[:200]!r}")
            yield json.loads(pending)
        if headers.get("connection", "").lower() == "close":
            self.close()

    def close(self):
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


class Host:
    """One host: stateless in the modern era, a session in the legacy one."""

    _count = 0

    def __init__(self, port, era, capabilities):
        self.era, self._port, self._capabilities = era, port, capabilities
        self.connection, self._session, self._id = Connection(port), None, 0
        Host._count += 1
        self.name = f"h{Host._count}"

    @property
    def can_be_asked(self):
        """Whether it declares that it answers questions."""
        return bool(self._capabilities)

    def headers(self, method=None, name=None):
        """Those of a request."""
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self.era == "modern":
            headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": method} | ({"Mcp-Name": name} if name else {})
        elif self._session:
            headers |= {"MCP-Protocol-Version": LEGACY, "Mcp-Session-Id": self._session}
        return headers

    def message(self, method, params, token=None):
        """A request with a new id."""
        self._id += 1
        meta = {} if token is None else {"progressToken": token}
        if self.era == "modern":
            meta |= {f"io.modelcontextprotocol/{key}": value for key, value in {
                "protocolVersion": MODERN, "clientInfo": _INFO, "clientCapabilities": self._capabilities}.items()}
        if meta:
            params = {**params, "_meta": meta}
        return {"jsonrpc": "2.0", "id": f"{self.name}-{self._id}", "method": method, "params": params}

    async def enter(self):
        """Opens the session, in the legacy era."""
        if self.era == "modern":
            return
        message = self.message("initialize", {"protocolVersion": LEGACY, "capabilities": self._capabilities, "clientInfo": _INFO})
        answer, result = await self.ask(message)
        self._session = answer.headers.get("mcp-session-id")
        if not self._session or "result" not in result:
            raise Broken(f"no session: {answer.status} {result}")
        await self.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def tell(self, message):
        """A notification or an answer of ours, on a connection of its own: the other one may be in use."""
        connection = Connection(self._port)
        try:
            answer = await connection.open("POST", self.headers(), message)
            async for _ in answer.messages:
                pass
            if answer.status != 202:
                raise Broken(f"{message.get('method', 'an answer')} was answered with {answer.status}")
        finally:
            connection.close()

    async def ask(self, message, reply=None, notes=None):
        """One request: its HTTP answer and the one JSON-RPC answer. Anything but exactly one of these is a fault.

        Requests of the server are answered by `reply`, notifications are put into `notes`.
        """
        found = None
        answer = await self.connection.open("POST", self.headers(message["method"], message["params"].get("name")), message)
        async for got in answer.messages:
            if "method" not in got:
                if got.get("id") != message["id"]:
                    raise Broken(f"the answer of another request came: {str(got)[:200]}, not of {message['id']}")
                if found is not None:
                    raise Broken(f"a second answer to {message['id']}: {str(got)[:200]}")
                found = got
            elif "id" in got:
                if found is not None or reply is None:
                    raise Broken(f"nobody expects {str(got)[:200]}")
                await self.tell({"jsonrpc": "2.0", "id": got["id"], "result": reply(got["method"])})
            elif notes is not None:
                notes.append(got)
        if found is None:
            raise Broken(f"no answer to {message['method']} {message['id']}: HTTP {answer.status}")
        return answer, found

    async def leave(self):
        """Ends the session and the connection."""
        try:
            if self._session:
                answer = await self.connection.open("DELETE", self.headers())
                async for _ in answer.messages:
                    pass
                if answer.status not in (200, 202, 204):
                    raise Broken(f"DELETE was answered with {answer.status}")
        finally:
            self.connection.close()
