"""The servers of the soak: their scenarios, the gateway's configuration, and who is killed when.

Stdio servers are the tests' own `fake-server`, started by the gateway; remote ones are `remote.py`, started here. Knows nothing of
hosts. Used by soak.py.
"""

import asyncio
import json
import os
import pathlib
import random
import signal
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# stdio: key → (era, whether it is killed); the first two are there all the time.
STDIO = {
    "calm-new": ("modern", False), "calm-old": ("legacy", False), "weak-a": ("legacy", True), "weak-b": ("modern", True),
    "weak-c": ("dual", True), "weak-d": ("legacy", True), "doomed": ("modern", True),
}
# Asks its host back in the middle of a call. On a pipe nothing says which of several calls a question belongs to, so it gets
# one at a time.
ASKER = "asker"
REMOTE = {
    "far-calm": ("modern", False), "far-old": ("legacy", False), "far-weak": ("modern", True), "far-lost": ("legacy", True),
}
# As it is by default, five ends within two minutes open a server's breaker for a minute: that of `doomed`, which is then open for
# most of the time. The others come back fast, and what hangs is found out fast.
RESTART = 'restart = { first = "50ms", longest = "500ms", failures = 1000, per_minute = 1000 }'
HEALTH = 'ping = "1s"'
# Comes and goes with the configuration.
GUEST = "guest"
BIG = 200_000


class World:
    """Servers and their state on disk."""

    def __init__(self, folder: pathlib.Path, fake):
        self.folder, self._fake, self._remotes, self.ports = folder, str(fake), {}, {}
        self.killed, self.hung, self.reconfigured, self.halted = 0, 0, 0, False
        for key, era in [*((key, era) for key, (era, _) in STDIO.items()), (ASKER, "legacy"), (GUEST, "modern")]:
            (folder / f"{key}.json").write_text(json.dumps(scenario(key, era)))
            # What each was sent is of no interest here, and much.
            (folder / f"{key}.json.received").symlink_to("/dev/null")

    def start(self):
        """Starts the remote servers."""
        for key in REMOTE:
            self._remotes[key] = self._remote(key)

    def _remote(self, key):
        process = subprocess.Popen(
            [sys.executable, "-B", str(HERE / "remote.py"), str(self.ports.get(key, 0)), REMOTE[key][0]],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        )
        # It says so once it listens.
        self.ports[key] = int(process.stdout.readline())
        return process

    def configuration(self, other=False):
        """Writes it; the path. `other`: with something that is not as it was, all of it about servers that may fail."""
        lines = ["[gateway]", f"state = {json.dumps(str(self.folder / 'state'))}", "[http]", 'listen = "127.0.0.1:0"',
                 "[auth]", 'mode = "none"', "[admin]", 'attach = "auto"', "[policy]", 'default = "allow"']
        if other and random.random() < 0.5:
            lines += ["[[policy.rule]]", 'effect = "deny"', f'target = ["{GUEST}/*/*"]']
        again = random.choice([key for key, (_, weak) in STDIO.items() if weak]) if other else None
        for key in (*STDIO, ASKER, *([GUEST] if other and random.random() < 0.5 else [])):
            # A deadline that is another has its server started anew.
            probe = random.randint(2000, 3000) if key == again else 3000
            lines += [f"[servers.{key}]", f"command = {json.dumps(self._fake)}",
                      f"args = {json.dumps(['--scenario', str(self.folder / f'{key}.json')])}",
                      f'timeouts = {{ start = "10s", probe = "{probe}ms", call = "10s", ping = "1s" }}']
            if key == ASKER:
                lines.append("limits = { concurrency = 1 }")
            if key in STDIO and STDIO[key][1]:
                lines += [HEALTH, *([RESTART] if key != "doomed" else [])]
        for key in REMOTE:
            lines += [f"[servers.{key}]", f'url = "http://127.0.0.1:{self.ports[key]}/mcp"',
                      'timeouts = { start = "10s", probe = "3s", call = "10s" }']
        text = "\n".join(lines) + "\n"
        if other and random.random() < 0.2:
            # Half of it: what was in force stays.
            text = text[: len(text) // 2] + "["
        path = self.folder / "onegate.toml"
        # As editors do: another file in its place.
        part = path.with_suffix(".part")
        part.write_text(text)
        part.replace(path)
        return path

    def pids(self, key):
        """The living processes of a stdio server: it writes its number down when it starts."""
        try:
            started = (self.folder / f"{key}.json.starts").read_text().split()
        except OSError:
            return []
        # A number may be somebody else's by now.
        return [int(pid) for pid in started[-4:] if f"{key}.json" in _command(pid)]

    async def trouble(self):
        """Kills, stops and starts servers again, one after the other, for ever."""
        while True:
            await asyncio.sleep(random.uniform(0.2, 1.2))
            if self.halted:
                continue
            if random.random() < 0.2:
                self.configuration(other=True)
                self.reconfigured += 1
                continue
            if random.random() < 0.5:
                key = random.choice([key for key, (_, weak) in REMOTE.items() if weak])
                self._remotes[key].kill()
                self._remotes[key].wait()
                self.killed += 1
                await asyncio.sleep(random.choice((0.0, 0.0, 0.7)))
                self._remotes[key] = await asyncio.to_thread(self._remote, key)
                continue
            key = random.choice([key for key, (_, weak) in STDIO.items() if weak])
            for pid in self.pids(key)[-1:]:
                if random.random() < 0.3:
                    # It hangs for a while, or for good, until that is found out: nobody else may notice.
                    _signal(pid, signal.SIGSTOP)
                    self.hung += 1
                    await asyncio.sleep(random.uniform(0.1, 1.5))
                    if random.random() < 0.7:
                        _signal(pid, signal.SIGCONT)
                else:
                    _signal(pid, random.choice((signal.SIGKILL, signal.SIGTERM)))
                    self.killed += 1

    def close(self):
        """Ends the remote servers."""
        for process in self._remotes.values():
            process.kill()
            process.wait()


def weak(key):
    """Whether this server is killed now and then."""
    return (STDIO | REMOTE)[key][1]


def scenario(key, era):
    """What a stdio server does: see tests/fake/scenario.rs."""
    kind = "" if era == "legacy" else '"resultType":"complete",'
    note = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":@TOKEN@,"progress":%d}}'
    tools = ["echo", "big", "steps", *(["ask"] if key == ASKER else [])]
    return {
        "label": key, "era": era, "shuffle_ms": 30,
        # Of two that may fail, one floods us with what is no message, the other on stderr.
        **({"noise": ["no message", "{\"level\":\"info\"}", "7"]} if key == "weak-a" else {}),
        **({"stderr_per_answer_kib": 256} if key == "weak-d" else {}),
        "tools": [json.dumps({"name": tool, "inputSchema": {"type": "object"}}) for tool in tools],
        "acts": {
            "echo": {"do": "arguments"}, "big": {"do": "big", "bytes": BIG},
            "steps": {"do": "lines", "lines": [note % 0, note % 1, note % 2, '{"jsonrpc":"2.0","id":@ID@,"result":{' + kind
                                               + '"content":[],"structuredContent":@ARGS@}}']},
            "ask": {"do": "ask", "method": "sampling/createMessage",
                    "params": '{"messages":[{"role":"user","content":{"type":"text","text":"?"}}],"maxTokens":9}'},
        },
    }


def _command(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _signal(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
