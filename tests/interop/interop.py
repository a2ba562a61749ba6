"""Real servers behind the gateway, real hosts before it: every check prints a PASS or FAIL line; exit 1 when one failed.

Started by `run`, which installs what it needs. The truth is always what the same servers answer when asked directly.
With `--self-test` no gateway takes part: servers, hosts and comparisons are tried alone.
"""

import argparse
import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

import pinning
import rawjson
from session import LEGACY, MODERN, Ended, Session, gone
from world import UNSTABLE, World

HERE = pathlib.Path(__file__).resolve().parent
# Hosts and the gateway's own commands are ended after this long.
PROCESS_S = 90
# The gateway promises 1.5 s for a whole tree to be gone; the rest is for a machine that is busy with other things.
GONE_S = 3.0


class Report:
    """Counts and prints the checks."""

    def __init__(self, match):
        self.passed, self.failed, self._match = 0, [], match

    def check(self, name, function, *args):
        """Runs one check: it passes when it returns (a text is shown), fails when it raises."""
        if self._match and not re.search(self._match, name):
            return
        started = time.monotonic()
        try:
            note = function(*args)
        except (Failure, pinning.Failure, Ended, subprocess.SubprocessError, OSError, ValueError, KeyError) as error:
            self.failed.append(name)
            print(f"FAIL {name}: {error if isinstance(error, (Failure, pinning.Failure)) else f'{type(error).__name__}: {error}'}", flush=True)
            if not isinstance(error, (Failure, pinning.Failure, Ended)):
                traceback.print_exc()
            return
        self.passed += 1
        print(f"PASS {name} ({f'{note}, ' if note else ''}{time.monotonic() - started:.1f} s)", flush=True)


class Failure(Exception):
    """What was seen is not what was expected."""


def same(what, seen, expected):
    """Fails, and shows the first place where they differ, unless both are equal."""
    if seen == expected:
        return
    one, other = (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in (seen, expected))
    at = next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    cut = slice(max(0, at - 60), at + 100)
    raise Failure(f"{what}: differs at {at}: seen …{one[cut]!r}…, expected …{other[cut]!r}…")


class Truth:
    """What the seven servers say when asked directly, each by itself."""

    def __init__(self, world, logs):
        self.tools, self.era, self.answers, self.host_answers = {}, {}, {}, []
        world.reset()
        for key, tool, arguments in world.host_plan():
            with_server = self._session(world, logs, key)
            try:
                self.host_answers.append(with_server.call(tool, arguments))
            finally:
                with_server.close()
        world.reset()
        for key in world.servers():
            server = self._session(world, logs, key)
            try:
                self.era[key], self.tools[key] = server.era, server.tools()
                for tool in self.tools[key]:
                    self.answers[key, tool] = server.call(tool, world.arguments(key, tool))
            finally:
                server.close()

    @staticmethod
    def _session(world, logs, key):
        command, args, env = world.servers()[key]
        return Session([command, *args], cwd=world.root, env={**world.env(), **env}, stderr=logs / f"direct-{key}.log")

    def exposed(self):
        """Exposed name → (server, native name), in the order of the published list: keys in byte order, then their own."""
        names = {}
        for key in sorted(self.tools):
            for tool in self.tools[key]:
                name = f"{key}__{re.sub('[./: ]', '_', tool)}"
                if len(name) > 45 or re.search("[^A-Za-z0-9_-]", name):
                    raise Failure(f"{tool} of {key} would need a suffix: choose a shorter key for this test")
                names[name] = (key, tool)
        return names

    def awaited(self):
        """The exposed names that a list has when no server is missing."""
        return list(self.exposed())


def needs_tasks(definition):
    """A tool that can only be called as a task: asked directly, its server refuses a call."""
    return '"required"' in dict(definition).get("execution", "")


class Gateway:
    """The product under test."""

    def __init__(self, binary, world, logs, scratch, profile=""):
        self.binary, self.world, self.logs, self.scratch = str(binary), world, logs, scratch
        self._count, self._profile = 0, profile

    def argv(self, log=None):
        """A command line with a configuration and a state folder of its own: nothing is remembered from before."""
        self._count += 1
        path = self.scratch / f"gateway-{self._count}.toml"
        self.world.config(path, log)
        if self._profile:
            path.write_text(f"{path.read_text()}\n[profiles.default]\n{self._profile}\n")
        return [self.binary, "run", "--config", str(path)]

    def session(self, era, log=None):
        return Session(
            self.argv(log), cwd=self.world.root, env=self.world.env(), stderr=self.logs / f"gateway-{era}.log", era=era
        )

    def command(self, *words):
        """Another command of the product with all seven servers configured."""
        config = self.argv()[-1]
        done = subprocess.run(
            [self.binary, words[0], "--config", config, *words[1:]], cwd=self.world.root, env=self.world.env(),
            capture_output=True, timeout=PROCESS_S, check=False,
        )
        if done.returncode != 0:
            raise Failure(f"`onegate {' '.join(words)}` ended with {done.returncode}: {done.stderr.decode()[-1500:]}")
        return done.stdout.decode()


def check_names(truth, seen):
    """The list holds every tool, none twice, none besides, in the promised order."""
    same("the list of names", list(seen), list(truth.exposed()))


def without_more(truth, seen):
    """The names but for those that the everything server lists to hosts that declare more than the truth was asked with."""
    known = truth.exposed()
    return [name for name in seen if name in known or not name.startswith("everything__")]


def check_definitions(truth, seen):
    """Every definition is the server's own, to the byte, but for its name (and `execution`, which no list carries on)."""
    owners = truth.exposed()
    for name, definition in seen.items():
        key, tool = owners[name]
        expected = rawjson.without(truth.tools[key][tool], "name", "execution")
        same(f"the definition of {name}", rawjson.without(definition, "name"), expected)
    return f"{len(seen)} tools"


def raw_leg(report, gateway, truth, era):
    """One session of a plain host that calls every tool there is, while each server's input is written down."""
    world = gateway.world
    world.reset()
    log = gateway.scratch / f"sent-{era}"
    log.mkdir()
    owners, calls, state = truth.exposed(), [], {}

    def listed():
        state["host"] = gateway.session(era, log)
        state["tools"] = state["host"].tools()
        # A server slower than the deadline for lists comes into the list later.
        until = time.monotonic() + 30
        while not set(truth.awaited()) <= set(state["tools"]) and time.monotonic() < until:
            time.sleep(0.3)
            state["tools"] = state["host"].tools()
        check_names(truth, state["tools"])
        return f"{len(state['tools'])} tools of {len(world.servers())} servers, revision {MODERN if era == 'modern' else LEGACY}"

    report.check(f"raw {era}: lists every tool of every server", listed)
    if "tools" not in state:
        return
    host, tools = state["host"], state["tools"]
    report.check(f"raw {era}: definitions equal the servers' own", check_definitions, truth, tools)

    def answered(name):
        key, tool = owners[name]
        calls.append((key, tool))
        answer = host.call(name, world.arguments(key, tool), {"progressToken": f"token-{name}"})
        if (key, tool) in UNSTABLE or needs_tasks(truth.tools[key][tool]):
            if "error" in answer or answer["content"] is None:
                raise Failure(f"no result: {answer}")
            return
        expected = truth.answers[key, tool]
        same(f"members of {name}", list(answer), list(expected))
        for member, text in expected.items():
            same(f"{member} of {name}", answer[member], text)

    def all_answered():
        wrong = []
        for name in filter(owners.__contains__, tools):
            try:
                answered(name)
            except Failure as failure:
                wrong.append(str(failure))
        if wrong:
            raise Failure(f"{len(wrong)} of {len(calls)}:\n  " + "\n  ".join(wrong))
        return f"{len(calls)} calls"

    report.check(f"raw {era}: results equal the servers' own", all_answered)

    def progress():
        slow = "everything__trigger-long-running-operation"
        tokens = [json.loads(note)["params"]["progressToken"] for note in host.notes if "notifications/progress" in note]
        same("the tokens of progress", sorted(set(tokens)), [f"token-{slow}"])
        return f"{len(tokens)} notifications"

    report.check(f"raw {era}: progress carries the host's token", progress)

    def ended():
        family = host.family()
        if len(family) < 8:
            raise Failure(f"only {len(family)} processes: the servers were not there")
        started = time.monotonic()
        code = host.close()
        left = gone(family, GONE_S)
        if left is None or code != 0:
            raise Failure(f"exit code {code}; {'processes left' if left is None else 'all processes gone'}")
        return f"{len(family)} processes, {time.monotonic() - started:.2f} s"

    report.check(f"raw {era}: ends with its servers when the host goes", ended)

    def routed():
        for key in world.servers():
            sent = [json.loads(line) for line in (log / key).read_bytes().splitlines()]
            got = [message["params"]["name"] for message in sent if message.get("method") == "tools/call"]
            same(f"the calls that {key} got", got, [tool for server, tool in calls if server == key])
        return f"{len(calls)} calls, {len(world.servers())} owners"

    report.check(f"raw {era}: every name routes to its owner and to no other", routed)


class Host:
    """A real client, as a program that lists and calls once."""

    def __init__(self, name, argv, world, scratch):
        self.name, self._argv, self._world, self._scratch = name, argv, world, scratch

    def run(self, era, calls, awaited, target):
        """Lists, again while one of these tools is missing and its server may still be starting, then makes the calls.

        Answers the revision (or None), the names of the tools, the results.
        """
        plan = self._scratch / "plan.json"
        calls = [{"name": name, "arguments": arguments} for name, arguments in calls]
        plan.write_text(json.dumps({"calls": calls, "awaited": awaited}))
        return self._program(era, plan, target)

    def _program(self, era, plan, target):
        answer = json.loads(self._output([*self._argv, era, str(plan), *target]))
        return answer["version"], answer["tools"], answer["results"]

    def _output(self, argv):
        done = subprocess.run(
            argv, cwd=self._world.root, env=self._world.env(), capture_output=True, timeout=PROCESS_S, check=False
        )
        if done.returncode != 0:
            raise Failure(f"{self.name} ended with {done.returncode}: {done.stderr.decode(errors='replace')[-1500:]}")
        return done.stdout


class Inspector(Host):
    """The inspector's command line: each request is a process of its own."""

    def _program(self, era, plan, target):
        # Its own configuration file, as a person would write it: the target's flags would be taken for its own.
        remote = target[0].startswith("http://")
        server = {"type": "http", "url": target[0]} if remote else {"command": target[0], "args": target[1:]}
        entry = {"mcpServers": {"target": server}}
        config = plan.with_name("inspector.json")
        config.write_text(json.dumps(entry))
        start = [*self._argv, "--cli", "--config", str(config), "--server", "target",
                 "--protocol-era", era, "--format", "json", "--quiet", "--connect-timeout", "60000"]

        def method(*words):
            for left in range(5, -1, -1):
                try:
                    return json.loads(self._output([*start, *words]))["result"]
                except Failure as failure:
                    # It lists before it calls, and asks no second time when the server of the tool is late.
                    if "tool_not_found" not in str(failure) or left == 0:
                        raise

        planned = json.loads(plan.read_text())
        calls = planned["calls"]
        for _ in range(6):
            names = [tool["name"] for tool in method("--method", "tools/list")["tools"]]
            if set(planned["awaited"]) <= set(names):
                break
        if era != "legacy":
            # Seven gateways with seven servers each take their time: the modern era is shown by two.
            calls = calls[::6]
        return None, names, [
            method("--method", "tools/call", "--tool-name", call["name"], "--tool-args-json", json.dumps(call["arguments"]))
            for call in calls
        ]


def check_host(host, era, target, calls, awaited, expected, names, version):
    """A host sees these names, gets these results and (where it tells) speaks this revision."""
    got_version, got_names, results = host.run(era, calls, awaited, target)
    names(got_names)
    if isinstance(host, Inspector) and era != "legacy":
        expected = expected[::6]
    if got_version is not None:
        same("the revision", got_version, version)
    same("the number of results", len(results), len(expected))
    for result, raw in zip(results, expected):
        if "error" in result:
            raise Failure(f"an error instead of a result: {result['error']}")
        for key in ("content", "structuredContent", "isError"):
            want = None if raw[key] is None else json.loads(raw[key])
            same(f"{key} of a result", result.get(key) or None, want or None)
    return f"{len(got_names)} tools, {len(results)} calls"


def gateway_checks(report, binary, world, truth, hosts, logs, scratch):
    gateway = Gateway(binary, world, logs, scratch)
    report.check("command: check finds no fault", lambda: gateway.command("check") and None)

    def tools_command():
        shown = json.loads(gateway.command("tools", "--json"))
        tools = [item for item in shown["items"] if item["kind"] == "tool"]
        check_names(truth, [item["exposed"] for item in tools])
        owners = truth.exposed()
        for item in tools:
            same(f"the owner of {item['exposed']}", (item["server"], item["native"]), owners[item["exposed"]])
        others = len(shown["items"]) - len(tools)
        return f"{len(tools)} tools, {others} items of other kinds, {shown['tokens']} tokens"

    report.check("command: tools shows every tool with its owner", tools_command)
    report.check("command: call prints the text of the answer", lambda: same(
        "the output", gateway.command("call", "everything__echo", '{"message":"é 1"}').strip(), "Echo: é 1"))
    for era in ("legacy", "modern"):
        raw_leg(report, gateway, truth, era)

    world.reset()
    calls = [(f"{key}__{tool}", arguments) for key, tool, arguments in world.host_plan()]
    for host in hosts:
        for era, version in (("legacy", LEGACY), ("auto", MODERN)):
            report.check(
                f"host {host.name}, {era}: lists and calls seven servers at once", lambda host=host, era=era, version=version:
                check_host(host, era, gateway.argv(), calls, truth.awaited(), truth.host_answers, lambda seen: check_names(truth, without_more(truth, seen)), version))


def surface_checks(report, binary, world, truth, hosts, logs, scratch):
    """What lists cost: whole, below a ceiling, behind search. Nothing is lost, and what is not listed is called as before."""
    def gateway(profile):
        return Gateway(binary, world, logs, scratch, profile)

    def cost(profile):
        shown = json.loads(gateway(profile).command("tools", "--json"))
        tools = [item for item in shown["items"] if item["kind"] == "tool"]
        check_names(truth, [item["exposed"] for item in tools if item["server"] != "onegate"])
        listed = [item for item in tools if item["listed"]]
        return len(listed), sum(item["tokens"] for item in listed)

    def costs():
        whole = cost("")
        found = [whole]
        for profile, most in (
            ("trim = { description = 400, output_schema = false, examples = false, dialect = false }", whole[1] * 9 // 10),
            ("max_tokens = 4000", 4000),
            ('max_tokens = 4000\ntools.always = ["git/*"]', 4000),
            ('surface = "search"', 500),
        ):
            count, tokens = cost(profile)
            if tokens > most:
                raise Failure(f"{tokens} tokens are listed, and {most} may be: {profile}")
            found.append((count, tokens))
        return ", ".join(f"{count} tools of {tokens} tokens" for count, tokens in found)

    report.check("surface: ceilings and search list what fits, and nothing is lost", costs)
    world.reset()
    calls = [("onegate__call_tool", {"name": f"{key}__{tool}", "arguments": arguments})
             for key, tool, arguments in world.host_plan()]
    ours = ["onegate__call_tool", "onegate__search_tools"]
    # The inspector starts a gateway for each call and cannot see by its list whether a slow server is there yet.
    for host in (host for host in hosts if not isinstance(host, Inspector)):
        for era, version in (("legacy", LEGACY), ("auto", MODERN)):
            report.check(
                f"surface: host {host.name}, {era}: calls seven servers behind search", lambda host=host, era=era, version=version:
                check_host(host, era, gateway('surface = "search"').argv(), calls, ours, truth.host_answers,
                           lambda seen: same("the names", sorted(seen), ours), version))


@contextlib.contextmanager
def serving(report, binary, config, world, log):
    """Runs `serve`; its address. How it ends is a check."""
    with open(log, "wb") as output:
        process = subprocess.Popen([str(binary), "serve", "--config", str(config)], cwd=world.root, env=world.env(),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=output)
    try:
        until, found = time.monotonic() + 20, None
        while not found and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
            found = re.search(r"listening on (http://\S+)", log.read_text())
        if not found:
            raise Failure(f"it does not listen: {log.read_text()[-500:]}")
        yield found[1]
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
    report.check(f"{log.stem}: ends with 0", lambda: same("the exit code", process.wait(15), 0))


def served_checks(report, binary, world, truth, hosts, logs, scratch):
    """The same over HTTP: one `onegate serve` for all hosts one after the other, with one of its servers behind a URL."""
    world.reset()
    # One server for all hosts counts their thoughts together, as it should.
    plan = [(call, answer) for call, answer in zip(world.host_plan(), truth.host_answers) if call[0] != "thinking"]
    calls = [(f"{key}__{tool}", arguments) for (key, tool, arguments), _ in plan]
    answers = [answer for _, answer in plan]
    with world.remote("everything", logs / "remote-everything.log") as url:
        config = scratch / "served.toml"
        world.config(config, remotes={"everything": url})
        with serving(report, binary, config, world, logs / "served.log") as address:
            for host in hosts:
                for era, version in (("legacy", LEGACY), ("auto", MODERN)):
                    report.check(
                        f"host {host.name}, {era}, over HTTP: lists and calls seven servers at once",
                        lambda host=host, era=era, version=version: check_host(
                            host, era, [address], calls, truth.awaited(), answers,
                            lambda seen: check_names(truth, without_more(truth, seen)), version))


def asking_plan(awaited):
    """What hosts are made to do that can be asked: calls, and what comes of them."""
    calls = [
        ("everything__get-sum", {"a": 1, "b": 2}, "The sum of 1 and 2 is 3."),
        ("everything__trigger-elicitation-request", {}, "- Name: Ada"),
        ("everything__trigger-sampling-request", {"prompt": "é", "maxTokens": 9}, '"text": "sampled"'),
        ("everything__get-roots-list", {}, "file:///srv/docs"),
        ("everything__trigger-long-running-operation", {"duration": 0.4, "steps": 4}, "Long running operation completed"),
        ("rmcp-old__echo", {"text": "é"}, "é"),
        ("rmcp-old__ask", {}, "Hello, Ada"),
        ("rmcp-new__echo", {"text": "é"}, "é"),
        ("rmcp-new__ask", {}, "Hello, Ada"),
    ]
    asked = [
        ["elicitation", "[everything] Please provide inputs for the following fields:"],
        ["sampling", "Resource trigger-sampling-request context: é"],
        ["elicitation", "[rmcp-old] Who are you?"],
        ["elicitation", "[rmcp-new] Who are you?"],
    ]
    plan = {
        "calls": [{"name": name, "arguments": arguments} for name, arguments, _ in calls],
        "awaited": sorted({name for name, _, _ in calls} | set(awaited)), "asked": True,
        "slow": "everything__trigger-long-running-operation", "toggle": "everything__toggle-subscriber-updates",
        "resource": "demo://resource/dynamic/text/1",
    }
    return plan, [text for _, _, text in calls], asked


def check_asking(argv, era, target, world, scratch, version, awaited):
    """A host that can be asked is asked by servers of both eras, sees progress, cancels, and hears of a resource."""
    plan, texts, asked = asking_plan(awaited)
    path = scratch / "asking.json"
    path.write_text(json.dumps(plan))
    done = subprocess.run([*argv, era, str(path), *target], cwd=world.root, env=world.env(), capture_output=True,
                          timeout=PROCESS_S, check=False)
    if done.returncode != 0:
        raise Failure(f"it ended with {done.returncode}: {done.stderr.decode(errors='replace')[-1500:]}")
    got = json.loads(done.stdout)
    same("the revision", got["version"], version)
    missing = set(plan["awaited"]) - set(got["tools"])
    if missing:
        raise Failure(f"not in the list: {sorted(missing)}")
    for call, result, text in zip(plan["calls"], got["results"], texts, strict=True):
        if text not in json.dumps(result.get("content", result), ensure_ascii=False).replace('\\"', '"'):
            raise Failure(f"{call['name']}: {result}")
    # A server asks for roots more than once, or not again where it knows them from another session of the same host.
    said = [question for question in got["asked"] if question[0] != "roots"]
    same("what it was asked", said, asked)
    if "progress" in got:
        # One of the clients forgets a token before it has looked at all that came with it.
        same("its progress", got["progress"], [1, 2, 3, 4][: max(2, len(got["progress"]))])
        same("a call was cancelled", got["cancelled"], True)
        same("the resources that were told of", got["updated"], [plan["resource"]])
    return f"{len(got['asked'])} questions"


def asking_checks(report, binary, world, askers, rmcp_server, logs, scratch):
    """Servers that ask back, of both eras, for hosts of both eras, over stdio and HTTP; one of the servers over HTTP too."""
    world.reset()
    more = {"rmcp-old": (rmcp_server, ["legacy"], {}), "rmcp-new": (rmcp_server, ["modern"], {})}
    with world.remote("everything", logs / "asking-everything.log") as url:
        plain, served = scratch / "asking.toml", scratch / "asking-served.toml"
        world.config(plain, more=more)
        world.config(served, remotes={"everything": url}, more=more)
        with serving(report, binary, served, world, logs / "asking-served.log") as address:
            for name, argv in askers.items():
                for era, version in (("legacy", LEGACY), ("auto", MODERN)):
                    ways = [("stdio", [str(binary), "run", "--config", str(plain)]), ("HTTP", [address])]
                    for way, target in ways:
                        report.check(
                            f"asking {name}, {era}, over {way}: asked by servers of both eras",
                            lambda argv=argv, era=era, target=target, version=version: check_asking(
                                argv, era, target, world, scratch, version, []))


def self_checks(report, world, truth, hosts, logs):
    """No gateway: what would be compared is comparable, and every host can speak to both kinds of server."""
    report.check("self: a difference of one byte is seen", rawjson.self_test)

    def steady():
        again = Truth(world, logs)
        same("eras", again.era, truth.era)
        same("definitions", again.tools, truth.tools)
        for call, answer in truth.answers.items():
            if call not in UNSTABLE:
                same(f"answer of {call}", again.answers[call], answer)
        same("answers to hosts", again.host_answers, truth.host_answers)
        for call, answer in zip(world.host_plan(), truth.host_answers):
            if "error" in answer or answer["isError"] == "true":
                raise Failure(f"{call[1]} is meant to succeed: {answer}")
        return f"{len(truth.answers)} calls"

    report.check("self: the servers answer the same twice", steady)
    same("both eras are among the servers", {"legacy", "modern"}, set(truth.era.values()))
    plan = world.host_plan()
    for host in hosts:
        for index in (0, 6):
            key, tool, arguments = plan[index]
            command, args, env = world.servers()[key]
            for era in ("legacy", "auto"):
                version = MODERN if era == "auto" and truth.era[key] == "modern" else LEGACY
                report.check(
                    f"self: {host.name}, {era}, at the {key} server", lambda host=host, era=era, key=key, index=index,
                    calls=[(tool, arguments)], target=[command, *args], version=version: check_host(
                        host, era, target, calls, [], truth.host_answers[index : index + 1],
                        # The everything server lists more to a host that declares more.
                        lambda seen: same("names", [n for n in seen if n in truth.tools[key]], list(truth.tools[key])), version))


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--cache", type=pathlib.Path, required=True)
    flags.add_argument("--node", required=True)
    flags.add_argument("--rmcp", required=True)
    flags.add_argument("--binary", type=pathlib.Path)
    flags.add_argument("--self-test", action="store_true")
    flags.add_argument("--match", help="only checks whose name matches this pattern")
    flags = flags.parse_args()

    logs = flags.cache / "logs"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    report = Report(flags.match)
    with tempfile.TemporaryDirectory(prefix="interop-") as folder:
        scratch = pathlib.Path(folder).resolve()
        world = World(scratch / "world", flags.cache, flags.node)
        packages = flags.cache / "node/node_modules"
        hosts = [
            Host("python", [str(flags.cache / "venv/bin/python"), str(HERE / "host_python.py")], world, scratch),
            # ECMAScript modules look for packages from where they stand.
            Host("typescript", [flags.node, str(flags.cache / "node/host_typescript.mjs")], world, scratch),
            Host("rmcp", [flags.rmcp], world, scratch),
            Inspector("inspector", [flags.node, str(packages / "@modelcontextprotocol/inspector/clients/launcher/build/index.js")],
                      world, scratch),
        ]
        try:
            truth = Truth(world, logs)
            if flags.self_test:
                self_checks(report, world, truth, hosts, logs)
            else:
                gateway_checks(report, flags.binary.resolve(), world, truth, hosts, logs, scratch)
                surface_checks(report, flags.binary.resolve(), world, truth, hosts, logs, scratch)
                served_checks(report, flags.binary.resolve(), world, truth, hosts, logs, scratch)
                askers = {
                    "python": [str(flags.cache / "venv/bin/python"), str(HERE / "asking_python.py")],
                    "typescript": [flags.node, str(flags.cache / "node/asking_typescript.mjs")],
                    "rmcp": [flags.rmcp],
                }
                asking_checks(report, flags.binary.resolve(), world, askers, f"{flags.rmcp}-server", logs, scratch)
                pinning.checks(report, flags.binary.resolve(), world, flags.cache, scratch, logs)
        finally:
            world.close()
    print(f"interop: {report.passed} passed, {len(report.failed)} failed" + (f" (logs in {logs})" if report.failed else ""))
    sys.exit(1 if report.failed or not report.passed else 0)


if __name__ == "__main__":
    main()
