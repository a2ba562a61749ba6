"""Starts and ends what a run needs: the gateway with a configuration of its own, and other programs.

Knows nothing of the suite. Used by conformance.py and between.py.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

MODERN = "2026-07-28"
# The gateway gives calm servers 5 s, then 3 s, before it kills them.
END_S = 12.0


class Trouble(Exception):
    """Something around the tests did not do its part."""


class Program:
    """A process whose standard error is kept in a file and may be waited on. Ended by its own number only."""

    def __init__(self, argv, log: pathlib.Path, env=None):
        log.parent.mkdir(parents=True, exist_ok=True)
        self.name, self._lines, self._changed, self._over = pathlib.Path(argv[0]).name, [], threading.Condition(), False
        self._log = open(log, "w", encoding="utf-8")
        self.process = subprocess.Popen(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            self._log.write(line)
            self._log.flush()
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def said(self, pattern, limit):
        """Waits for a line that matches; the match."""
        def look():
            return next(filter(None, (re.search(pattern, line) for line in self._lines)), None)

        with self._changed:
            self._changed.wait_for(lambda: look() or self._over, limit)
            found = look()
        if not found:
            raise Trouble(f"{self.name} did not say {pattern!r} within {limit:.0f} s; last: {''.join(self._lines[-3:])}")
        return found

    def end(self):
        """Asks it to end and waits; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Trouble(f"{self.name} did not end within {END_S:.0f} s of TERM") from None
        finally:
            self._reader.join(1.0)
            self._log.close()
        return code


class Gateway(Program):
    """`onegate serve` on a free port of loopback; `servers` are the tables of the configuration, by key."""

    def __init__(self, binary, servers, folder: pathlib.Path):
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "onegate.toml"
        config.write_text(configuration(servers, folder / "state"), encoding="utf-8")
        super().__init__([str(binary), "serve", "--config", str(config)], folder / "gateway.log")
        try:
            port = self.said(r"listening on http://127\.0\.0\.1:(\d+)/mcp", 20.0)[1]
        except Trouble:
            self.end()
            raise
        self.url = f"http://localhost:{port}/mcp"

    def tools(self):
        """The names in its list of tools, from one stateless request."""
        meta = {"protocolVersion": MODERN, "clientInfo": {"name": "conformance", "version": "1"}, "clientCapabilities": {}}
        params = {"_meta": {f"io.modelcontextprotocol/{key}": value for key, value in meta.items()}}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}).encode()
        request = urllib.request.Request(self.url, body, {
            "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list",
        })
        try:
            with _opener.open(request, timeout=30) as answer:
                text = answer.read().decode()
        except urllib.error.URLError as error:
            raise Trouble(f"tools/list of the gateway: {error}") from error
        data = [line[5:] for line in text.splitlines() if line.startswith("data:")]
        result = json.loads(data[-1] if data else text).get("result") or {}
        return [tool["name"] for tool in result.get("tools", [])]

    def ready(self, prefixes, limit=60.0):
        """Waits until each of these beginnings is that of a listed tool: a slow server comes into the list later."""
        until = time.monotonic() + limit
        while True:
            names = self.tools()
            missing = [prefix for prefix in prefixes if not any(name.startswith(prefix) for name in names)]
            if not missing:
                return names
            if time.monotonic() > until:
                raise Trouble(f"nothing of {', '.join(missing)} was listed within {limit:.0f} s")
            time.sleep(0.2)

    def stop(self):
        """Ends it; anything but a clean end is trouble."""
        code = self.end()
        if code != 0:
            raise Trouble(f"the gateway ended with {code}")


# Proxies of the environment are for the outside; all of this is loopback.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def configuration(servers, state):
    """The configuration as text. A JSON text or an array of them is TOML too."""
    lines = ["[gateway]", f"state = {json.dumps(str(state))}", "", "[http]", 'listen = "127.0.0.1:0"', "",
             "[auth]", 'mode = "none"']
    for key, table in servers.items():
        lines += ["", f"[servers.{key}]", *(f"{name} = {json.dumps(value)}" for name, value in table.items())]
    return "\n".join(lines) + "\n"


def plain_env():
    """The environment of the programs around the gateway, without proxies: nothing here leaves the machine."""
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
