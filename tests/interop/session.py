"""A plain MCP client over stdio that keeps every answer as the bytes it came in, for both protocol eras.

Knows nothing of the gateway or of any particular server. Used by interop.py.
"""

import json
import os
import queue
import subprocess
import threading
import time

from rawjson import items, members

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
_INFO = {"name": "interop-raw", "version": "1"}


class Ended(Exception):
    """The peer ended, or did not answer in time."""


class Session:
    """One process and one conversation with it; `era` is `legacy`, `modern` or `auto` (modern when the peer knows it)."""

    def __init__(self, argv, *, cwd, env, stderr, era="auto", limit=60.0):
        self.limit, self._id, self.notes = limit, 0, []
        self._err = open(stderr, "ab")
        self.process = subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._err
        )
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self.era = self._open(era)
        except BaseException:
            self.close()
            raise

    def _read(self):
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _open(self, era):
        if era != "legacy":
            self.era = "modern"
            answer = dict(members(self.request("server/discover", {})))
            if "result" in answer:
                return "modern"
            if era == "modern":
                raise Ended(f"server/discover was refused: {answer['error']}")
        self.era = "legacy"
        answer = dict(
            members(self.request("initialize", {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": _INFO}))
        )
        if json.loads(answer["result"])["protocolVersion"] != LEGACY:
            raise Ended(f"another revision was offered: {answer['result'][:200]}")
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return "legacy"

    def _send(self, message):
        try:
            self.process.stdin.write(json.dumps(message, ensure_ascii=False).encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise Ended(f"it reads no more: {error}") from error

    def request(self, method, params, meta=None):
        """Sends a request; its answer as text. What else arrives meanwhile is kept in `notes`."""
        self._id += 1
        meta = dict(meta or {})
        if self.era == "modern":
            meta["io.modelcontextprotocol/protocolVersion"] = MODERN
            meta["io.modelcontextprotocol/clientInfo"] = _INFO
            meta["io.modelcontextprotocol/clientCapabilities"] = {}
        if meta:
            params = {**params, "_meta": meta}
        self._send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        until = time.monotonic() + self.limit
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise Ended(f"no answer to {method} within {self.limit:.0f} s") from None
            if line is None:
                raise Ended(f"it ended before it answered {method}")
            text = line.decode()
            message = dict(members(text))
            if "method" not in message and json.loads(message.get("id", "null")) == self._id:
                return text
            self.notes.append(text)
            if "method" in message and "id" in message:
                known = json.loads(message["method"]) == "ping"
                reply = {"result": {}} if known else {"error": {"code": -32601, "message": "not offered"}}
                self._send({"jsonrpc": "2.0", "id": json.loads(message["id"]), **reply})

    def tools(self):
        """All pages of `tools/list`: name → the members of its definition, as text."""
        found, cursor = {}, None
        for _ in range(100):
            answer = dict(members(self.request("tools/list", {} if cursor is None else {"cursor": cursor})))
            if "error" in answer:
                raise Ended(f"tools/list was refused: {answer['error']}")
            result = dict(members(answer["result"]))
            for item in items(result["tools"]):
                definition = members(item)
                name = json.loads(dict(definition)["name"])
                if name in found:
                    raise Ended(f"{name} is listed twice")
                found[name] = definition
            cursor = json.loads(result.get("nextCursor", "null"))
            if cursor is None:
                return found
        raise Ended("tools/list has no end")

    def call(self, name, arguments, meta=None):
        """One `tools/call`: the members that must come through untouched, as text."""
        answer = dict(members(self.request("tools/call", {"name": name, "arguments": arguments}, meta)))
        if "error" in answer:
            error = dict(members(answer["error"]))
            return {"error": (error.get("code"), error.get("message"))}
        result = dict(members(answer["result"]))
        return {key: result.get(key) for key in ("content", "structuredContent", "isError")}

    def family(self):
        """Every process under ours, as (pid, start time), so that a reused pid is not mistaken for one of them."""
        parents = {}
        for entry in filter(str.isdigit, os.listdir("/proc")):
            found = _stat(int(entry))
            if found:
                parents[int(entry)] = found
        under, grown = {self.process.pid}, True
        while grown:
            more = {pid for pid, (parent, _) in parents.items() if parent in under} - under
            under |= more
            grown = bool(more)
        return {(pid, parents[pid][1]) for pid in under if pid in parents}

    def close(self, limit=3.0):
        """Ends the input, waits for the process; its exit code, or None when it had to be killed."""
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            code = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            code = None
        self._err.close()
        return code


def _stat(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] == "Z" else (int(fields[1]), fields[19])


def gone(family, limit):
    """Waits until none of the family is left; the seconds that took, or None."""
    started = time.monotonic()
    while time.monotonic() - started < limit:
        if not any((found := _stat(pid)) and found[1] == since for pid, since in family):
            return time.monotonic() - started
        time.sleep(0.01)
    return None
