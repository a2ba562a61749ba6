"""The official conformance suite of MCP, run through `onegate serve`: one line a scenario, exit 1 when one failed.

Started by `run`, which installs what it needs. The measure is the reference itself: every scenario is first run without the
gateway, and each that passes so must pass through it. There is no list of failures that are put up with.
"""

import argparse
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

from gateway import Gateway, Program, Trouble, plain_env

HERE = pathlib.Path(__file__).resolve().parent
REVISIONS = ("2025-11-25", "2026-07-28")
BEHIND = ("http", "stdio", "mixed")
# The suite's own limit for one scenario, ours for one run of the suite's server leg, and for the host of one client scenario.
SCENARIO_S, SUITE_S, HOST_S = 10, 240, 30
# Signing in to servers is not part of the gateway yet, so nothing of these can pass.
NOT_ASKED = re.compile("^auth/")


class Suite:
    """The suite as installed."""

    def __init__(self, node, package):
        self._argv = [node, str(package / "dist/index.js")]

    def run(self, *words, log, limit):
        """One run; what it writes goes to `log`. Cut off after `limit` seconds."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "w", encoding="utf-8") as output:
            try:
                subprocess.run([*self._argv, *words], env=plain_env(), stdin=subprocess.DEVNULL, stdout=output,
                               stderr=subprocess.STDOUT, timeout=limit, check=False)
            except subprocess.TimeoutExpired:
                output.write(f"\ncut off after {limit} s\n")

    def names(self, leg, revision):
        """The scenarios of a revision, in the suite's order → whether the revision requires it."""
        done = subprocess.run([*self._argv, "list", "--requirements", revision], env=plain_env(), capture_output=True, text=True,
                              timeout=60, check=True)
        names, section = {}, None
        for line in done.stdout.splitlines():
            if heading := re.match(r"(Server|Client) scenarios", line):
                section = heading[1].lower()
            elif line.startswith("Run and reported"):
                section = None
            elif entry := re.match(r"\s+- (\S+)(?: \[(\w+)\])?$", line):
                if (entry[2] or section) == leg and not NOT_ASKED.match(entry[1]):
                    names[entry[1]] = entry[2] is None
        if not names:
            raise Trouble(f"the suite names no {leg} scenario of {revision}: {done.stdout[:500]}")
        return names


class Outcome:
    """What the suite found in one scenario."""

    def __init__(self, folder, leg):
        checks = [check for file in folder.glob("**/checks.json") for check in json.loads(file.read_text(encoding="utf-8"))]
        self.ran = bool(checks)
        self.seen = {check["id"] for check in checks}
        self.good = [check for check in checks if check["status"] == "SUCCESS"]
        # A host that gets less through the gateway than without it may show as a warning only.
        wrong = ("FAILURE",) if leg == "server" else ("FAILURE", "WARNING")
        self.bad = [check for check in checks if check["status"] in wrong]
        self.ended, self.trouble = None, None

    @property
    def passed(self):
        return bool(self.good) and not self.bad

    def complaint(self):
        """The failed checks in a line."""
        def shown(check):
            return f"{check['id']}: " + re.sub(r"\s+", " ", check.get("errorMessage") or check["description"])[:300]

        return "; ".join(map(shown, self.bad))


class Report:
    """Counts and prints; `match` chooses scenarios by a pattern over the printed name."""

    def __init__(self, match):
        self.passed = self.failed = self.skipped = 0
        self._match = match

    def wanted(self, *name):
        return not self._match or re.search(self._match, " ".join(name)) is not None

    def fail(self, name, why):
        self.failed += 1
        print(f"FAIL {name}: {why}", flush=True)

    def skip(self, name, why):
        self.skipped += 1
        print(f"SKIP {name}: {why}", flush=True)

    def done(self, name, note):
        self.passed += 1
        print(f"PASS {name} ({note})", flush=True)

    def compare(self, name, required, direct, through):
        """Judges one scenario: `through` the gateway against `direct`."""
        if not direct.passed and required:
            # Without this a broken installation would skip everything and look fine.
            self.fail(name, f"the reference itself fails: {direct.complaint() or 'no check passed'}")
        elif not direct.passed:
            self.skip(name, "not required, and the reference itself does not pass it")
        elif through.trouble:
            self.fail(name, through.trouble)
        elif not through.ran:
            self.fail(name, "not run")
        elif through.bad:
            self.fail(name, through.complaint())
        elif not through.good and not required:
            self.skip(name, "not required, and no check gave a verdict")
        elif not through.good:
            self.fail(name, "no check passed")
        elif missing := {check["id"] for check in direct.good} - through.seen:
            # A scenario that stops early, at an error that is allowed, would pass without having tried anything.
            self.fail(name, f"the reference gets further: {', '.join(sorted(missing))}")
        else:
            # The suite judges what its server saw. One of its servers lists no tool, and the host calls one all the same: the
            # gateway, which knows listed names alone, refuses, and the host says so.
            ended = f"; the host ended with {through.ended}" if through.ended and not direct.ended else ""
            self.done(name, f"{len(through.good)} checks{ended}")


class Fixtures:
    """The reference server and the reference host, and what stands beside the server in the mixed run."""

    def __init__(self, cache, node):
        self._python, self._source, self._node = str(cache / "venv/bin/python"), cache / "fixtures", node
        self.host = str(self._source / ".github/actions/conformance/client.py")
        self._everything = str(cache / "node/node_modules/@modelcontextprotocol/server-everything/dist/index.js")

    def serve(self, log):
        """The reference server over HTTP: the program and its URL."""
        folder = str(self._source / "examples/servers/everything-server")
        port = free_port()
        argv = [self._python, "-W", "ignore", "-m", "mcp_everything_server", "--port", str(port)]
        program = Program(argv, log, {**plain_env(), "PYTHONPATH": folder})
        url = f"http://localhost:{port}/mcp"
        try:
            program.said("running on http", 30.0)
        except Trouble:
            program.end()
            raise
        return program, url

    def piped(self, prefix):
        """The reference server over stdio, as a table of the configuration."""
        args = ["-W", "ignore", str(HERE / "reference.py"), str(self._source)]
        return {"command": self._python, "args": args, "prefix": prefix}

    def servers(self, behind, url):
        """The downstream servers of a run, and the beginnings of the names that must be listed before it starts."""
        if behind == "stdio":
            return {"ref": self.piped("")}, ["test_simple_text"]
        reference = {"ref": {"url": url, "prefix": ""}}
        if behind == "http":
            return reference, ["test_simple_text"]
        # The same names and URIs once more, and a legacy server.
        others = {"everything": {"command": self._node, "args": [self._everything]}, "twin": self.piped("twin")}
        return {**reference, **others}, ["test_simple_text", "everything__", "twin__test_simple_text"]


def server_leg(report, suite, fixtures, binary, out, behind, revisions):
    """The suite as host, the reference server behind."""
    names = {revision: suite.names("server", revision) for revision in revisions}
    kinds = behind if binary else ["direct"]
    asked = [revision for revision, found in names.items()
             if any(report.wanted("server", kind, revision, name) for name in found for kind in kinds)]
    if not asked:
        return
    direct = {}
    reference, url = fixtures.serve(out / "reference.log")
    try:
        for revision in asked:
            direct[revision] = server_run(suite, url, revision, out / f"server-direct-{revision}")
        for kind in behind if binary else ():
            servers, awaited = fixtures.servers(kind, url)
            try:
                gateway = Gateway(binary, servers, out / f"server-{kind}")
                try:
                    listed = gateway.ready(awaited)
                    print(f"---- server {kind}: {len(servers)} servers, {len(listed)} tools", flush=True)
                    for revision in asked:
                        through = server_run(suite, gateway.url, revision, out / f"server-{kind}-{revision}")
                        for name, required in names[revision].items():
                            if report.wanted("server", kind, revision, name):
                                report.compare(f"server {kind} {revision} {name}", required, direct[revision](name), through(name))
                finally:
                    gateway.stop()
            except Trouble as trouble:
                report.fail(f"server {kind}", trouble)
        if not binary:
            for revision in asked:
                for name, required in names[revision].items():
                    if not report.wanted("server", "direct", revision, name):
                        continue
                    found = direct[revision](name)
                    report.compare(f"server direct {revision} {name}", required, found, found)
    finally:
        reference.end()


def server_run(suite, url, revision, folder):
    """All server scenarios of a revision at that URL: name → outcome."""
    suite.run("server", "--url", url, "--requirements", revision, "-o", str(folder), "--timeout", str(SCENARIO_S * 1000),
              log=folder / "suite.log", limit=SUITE_S)

    def outcome(name):
        found = [entry for entry in folder.glob("server-*") if re.fullmatch(rf"server-{re.escape(name)}-\d{{4}}-\d\d-.*", entry.name)]
        return Outcome(found[0] if found else folder / "nothing", "server")

    return outcome


def client_leg(report, suite, fixtures, binary, out, revisions):
    """The suite as server, the reference host before it."""
    for revision in revisions:
        for name, required in suite.names("client", revision).items():
            if not report.wanted("client", revision, name):
                continue
            direct = client_run(suite, fixtures, None, revision, name, out / f"client-direct-{revision}" / name)
            through = direct
            if binary and direct.passed:
                through = client_run(suite, fixtures, binary, revision, name, out / f"client-{revision}" / name)
            report.compare(f"client {revision} {name}", required, direct, through)


def client_run(suite, fixtures, binary, revision, name, folder):
    """One client scenario; `between.py` puts the gateway into the middle."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"binary": binary and str(binary), "host": fixtures.host, "limit": HOST_S, "folder": str(folder)}
    command = shlex.join([sys.executable, "-B", str(HERE / "between.py"), json.dumps(settings)])
    suite.run("client", "--command", command, "--scenario", name, "--spec-version", revision, "-o", str(folder / "result"),
              "--timeout", str((HOST_S + 30) * 1000), log=folder / "suite.log", limit=HOST_S + 60)
    outcome = Outcome(folder / "result", "client")
    ended, trouble = folder / "ended", folder / "trouble"
    outcome.ended = int(ended.read_text()) if ended.exists() else None
    outcome.trouble = trouble.read_text() if trouble.exists() else None
    if not ended.exists() and not outcome.trouble:
        outcome.trouble = "the host did not come to an end"
    return outcome


def free_port():
    """A port for the reference server, which cannot be asked which one it took."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--cache", type=pathlib.Path, required=True)
    flags.add_argument("--node", required=True)
    flags.add_argument("--binary", type=pathlib.Path)
    flags.add_argument("--direct", action="store_true", help="without the gateway: what the reference passes")
    flags.add_argument("--leg", choices=("server", "client"), help="only this leg")
    flags.add_argument("--behind", choices=BEHIND, help="only this set of servers behind the gateway")
    flags.add_argument("--revision", choices=REVISIONS, help="only this revision")
    flags.add_argument("--match", help="only scenarios whose printed name matches this pattern")
    flags = flags.parse_args()

    started = time.monotonic()
    out = flags.cache / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    binary = None if flags.direct else flags.binary.resolve()
    suite = Suite(flags.node, flags.cache / "node/node_modules/@modelcontextprotocol/conformance")
    fixtures = Fixtures(flags.cache, flags.node)
    report = Report(flags.match)
    revisions = [flags.revision] if flags.revision else REVISIONS
    if flags.leg != "client":
        server_leg(report, suite, fixtures, binary, out, [flags.behind] if flags.behind else BEHIND, revisions)
    if flags.leg != "server":
        client_leg(report, suite, fixtures, binary, out, revisions)
    print(f"conformance: {report.passed} passed, {report.failed} failed, {report.skipped} skipped,"
          f" {time.monotonic() - started:.0f} s" + (f" (what was seen: {out})" if report.failed else ""))
    sys.exit(1 if report.failed or not report.passed else 0)


if __name__ == "__main__":
    main()
