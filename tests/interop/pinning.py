"""Seven published servers are installed and locked, one is upgraded, reviewed and approved: the walk-through of docs/pins.md
with real packages and the ordinary package clients.

Knows nothing of the other checks. Used by interop.py. The clients' own caches are beside the installed servers, so that a second
run fetches nothing.
"""

import json
import os
import pathlib
import subprocess
import time

from session import Session

# Of the one that is upgraded, both published; the others as the other checks have them.
OLD, NEW = "2026.1.26", "2026.8.31"
UPGRADED = "everything"
# Resolving and installing seven servers the first time.
INSTALL_S = 600
COMMAND_S = 120


class Failure(Exception):
    """What was seen is not what was expected."""


class Walk:
    """One configuration, and the commands of the product on it."""

    def __init__(self, binary, world, cache, scratch):
        self.binary, self.world, self.cache = str(binary), world, cache
        self.root = scratch / "pinning"
        self.root.mkdir()
        self.version = OLD

    def env(self):
        caches = {
            "npm_config_cache": str(self.cache / "npm"), "npm_config_prefer_offline": "true",
            "UV_CACHE_DIR": str(self.cache / "uv"), "UV_PYTHON_DOWNLOADS": "never",
            # A machine's own certificates are those that pip takes as well.
            "UV_SYSTEM_CERTS": "true", "UV_NATIVE_TLS": "true",
        }
        passed = {name: value for name, value in os.environ.items() if name.lower().startswith(("npm_config_", "uv_", "pip_", "ssl_cert_"))}
        env = {**self.world.env(), **passed, **caches}
        # uvx and uv are where the Python servers of the other checks are.
        env["PATH"] = f"{self.cache / 'venv/bin'}:{env['PATH']}"
        return env

    def servers(self):
        npm = lambda name, version, *args: ("npx", ["-y", f"@modelcontextprotocol/server-{name}@{version}", *args])  # noqa: E731
        pypi = lambda name, version, *args: ("uvx", [f"mcp-server-{name}=={version}", *args])  # noqa: E731
        return {
            "everything": npm("everything", self.version),
            "fetch": pypi("fetch", "2026.10.24", "--allow-private-ips"),
            "files": npm("filesystem", "2026.8.31", str(self.world.repo)),
            "git": pypi("git", "2026.10.19", "--repository", str(self.world.repo)),
            "memory": npm("memory", "2026.8.31"),
            "thinking": npm("sequential-thinking", "2026.8.31"),
            "time": pypi("time", "2026.10.19", "--local-timezone", "Etc/UTC"),
        }

    def config(self):
        path = self.root / "onegate.toml"
        text = [
            '[gateway]\nstate = "state"\npass_env = ["npm_config_*", "UV_*", "PIP_*"]\n'
            '[pins]\nmode = "enforce"\n'
        ]
        for key, (command, args) in self.servers().items():
            text.append(
                f"[servers.{key}]\ncommand = {json.dumps(command)}\nargs = {json.dumps(args)}\n"
                f"env = {{ MEMORY_FILE_PATH = {json.dumps(str(self.world.graph))} }}\n"
                "pin = { min_level = 2 }\ntimeouts = { start = \"120s\" }\n"
            )
        path.write_text("\n".join(text), encoding="utf-8")
        return str(path)

    def run(self, code, *words, limit=COMMAND_S):
        """Runs a command that must end with this code; what it printed."""
        done = subprocess.run(
            [self.binary, *words, "--config", self.config()], cwd=self.world.root, env=self.env(), capture_output=True,
            timeout=limit, check=False,
        )
        if done.returncode != code:
            said = (done.stdout + done.stderr).decode()[-2500:]
            raise Failure(f"`onegate {' '.join(words)}` ended with {done.returncode}, not {code}: {said}")
        return done.stdout.decode()

    # The steps, in order.

    def lock(self):
        told = self.run(0, "lock", "--install", limit=INSTALL_S)
        bound = told.count(", level 2")
        if bound != len(self.servers()):
            raise Failure(f"{bound} of {len(self.servers())} servers are bound by their bytes: {told}")
        self.run(0, "verify")
        self.run(0, "lock", "--check")
        return f"{bound} servers at level 2"

    def serves(self, logs):
        """All of them are served, by the installed commands: no runner is among the processes."""
        host = Session([self.binary, "run", "--config", self.config()], cwd=self.world.root, env=self.env(), stderr=logs / "pinning.log")
        try:
            until = time.monotonic() + 60
            while True:
                keys = {name.split("__")[0] for name in host.tools()}
                if keys == set(self.servers()):
                    break
                if time.monotonic() > until:
                    raise Failure(f"only {sorted(keys)} are served")
                time.sleep(0.3)
            runners = [line for line in children(host.process.pid) if "npx" in line or "uvx" in line or "npm exec" in line]
            if runners:
                raise Failure(f"runners are there: {runners}")
            return f"{len(host.tools())} tools"
        finally:
            host.close()

    def upgrade(self):
        """What changed between the two versions is shown, and held until it is approved."""
        self.version = NEW
        self.run(3, "lock", "--check")
        text = self.run(3, "diff", UPGRADED, "--live")
        found = json.loads(self.run(3, "diff", UPGRADED, "--json"))["servers"][0]
        if found["quarantine"]["code"] != "launch-changed":
            raise Failure(f"the launch is not told: {found['quarantine']}")
        changes = [entry for entry in found["entries"] if entry["state"] in ("changed", "pending")]
        if not changes:
            raise Failure("nothing changed between the two versions: choose others")
        for entry in changes:
            if f"{entry['kind']} {entry['name']} is {entry['state']}" not in text or entry["new"] not in text:
                raise Failure(f"the diff does not show {entry}: {text[:2000]}")
        if "\n    +" not in text:
            raise Failure(f"the diff shows no text: {text[:2000]}")
        self.changes, self.launch = changes, found["launch"]
        self.others = [what for what, is_other in (("instructions", found["instructions"]), ("capabilities", found["new_capabilities"])) if is_other]
        absent = sum(entry["state"] == "absent" for entry in found["entries"])
        states = [entry["state"] for entry in changes]
        return f"{OLD} → {NEW}: {states.count('changed')} changed, {states.count('pending')} new, {absent} gone"

    def approve(self):
        for entry in self.changes:
            self.run(0, "approve", UPGRADED, entry["kind"], entry["name"], "--hash", entry["new"])
        text = self.run(3, "diff", UPGRADED)
        if f"`onegate lock --update {UPGRADED}`" not in text:
            raise Failure(f"the diff does not say how the new bytes are bound: {text[:2000]}")
        for line in text.splitlines():
            # As a reviewer would: what the diff says is left to approve of the server itself.
            words = line.split()
            if words[:4] == ["onegate", "approve", UPGRADED, "server"]:
                self.run(0, *words[1:])
        # By its version alone it would be bound by less than it was.
        self.run(1, "approve", UPGRADED, "server", "launch", "--hash", self.launch)
        before = self.reviewed()
        self.run(0, "lock", "--update", UPGRADED, limit=INSTALL_S)
        if before != self.reviewed():
            raise Failure("what was approved by its hash is not what was locked then")
        self.run(0, "lock", "--check")
        self.run(0, "run", "--locked")
        return "lock --check passes"

    def reviewed(self):
        """The hashes of all definitions, in the order of the lock."""
        text = (self.root / "onegate.lock").read_text(encoding="utf-8")
        return [line for line in text.splitlines() if line.startswith("hash = ")]

    def starts(self, logs):
        """How long a start takes, by the runner with a warm cache and by what is installed; told, not judged."""
        times = {}
        for name, key in (("npx", "memory"), ("uvx", "time")):
            command, args = self.servers()[key]
            installed = self.installed(key)
            env = {**self.env(), "MEMORY_FILE_PATH": str(self.world.graph)}
            for way, argv in (("runner", [command, *args]), ("installed", [installed, *args[2 if command == "npx" else 1 :]])):
                took = []
                for _ in range(5):
                    began = time.monotonic()
                    Session(argv, cwd=self.world.root, env=env, stderr=logs / f"start-{key}.log", era="legacy").close()
                    took.append(time.monotonic() - began)
                times[name, way] = sorted(took)[2]
        return ", ".join(f"{name} {times[name, 'runner']:.2f} s → {times[name, 'installed']:.2f} s" for name in ("npx", "uvx"))

    def installed(self, key):
        name = {"memory": "node_modules/.bin/mcp-server-memory", "time": "venv/bin/mcp-server-time"}[key]
        found = sorted((self.root / "state/installed").glob(f"*/{name}"))
        if not found:
            raise Failure(f"{name} is not installed")
        return str(found[0])


def children(pid):
    """The command lines of all that descends from a process."""
    parents, lines = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                lines[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
    found, more = [], [pid]
    while more:
        of = more.pop()
        more += [child for child, parent in parents.items() if parent == of]
        found.append(lines.get(of, ""))
    return found


def checks(report, binary, world, cache, scratch, logs):
    world.reset()
    walk = Walk(binary, world, cache, scratch)
    report.check("pins: seven servers are installed from lists with integrity values, and locked", walk.lock)
    report.check("pins: what is installed is served, without its runners", walk.serves, logs)
    report.check("pins: an upgrade is held, and shown", walk.upgrade)
    report.check("pins: the upgrade is approved, and the check of CI passes", walk.approve)
    report.check("pins: starts", walk.starts, logs)
