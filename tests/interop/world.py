"""The seven real servers, the small world they look at, and the calls that are made to them.

Knows nothing of the gateway but the shape of its configuration. Used by interop.py.
"""

import contextlib
import http.server
import json
import os
import pathlib
import shutil
import socket
import subprocess
import threading
import time

PAGE = "A page for the fetch server: é, \U0001f980, \"quoted\", back\\slash.\n"


class World:
    """A folder with a git repository, some files and a knowledge graph; `reset` makes it anew, the same to the byte."""

    def __init__(self, root: pathlib.Path, cache: pathlib.Path, node: str):
        self.root, self.cache, self.node = root, cache, node
        self.repo, self.graph, self.home = root / "repo", root / "graph.jsonl", root / "home"
        self._pages = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Pages)
        threading.Thread(target=self._pages.serve_forever, daemon=True).start()
        self.page = f"http://127.0.0.1:{self._pages.server_address[1]}/page.txt"

    def close(self):
        self._pages.shutdown()

    def reset(self):
        shutil.rmtree(self.root, ignore_errors=True)
        self.home.mkdir(parents=True)
        (self.repo / "docs").mkdir(parents=True)
        (self.repo / "README.md").write_text("# A small repository\n\nWith é and \U0001f980.\n", encoding="utf-8")
        (self.repo / "docs" / "notes.txt").write_text("one\ntwo\nthree\n")
        git = lambda *args: subprocess.run(  # noqa: E731
            ["git", *args], cwd=self.repo, env=self._git_env(), check=True, stdout=subprocess.DEVNULL
        )
        git("init", "-q", "-b", "main")
        git("add", ".")
        git("commit", "-q", "-m", "first: a start with é and \"quotes\"")
        (self.repo / "docs" / "notes.txt").write_text("one\n2\nthree\n")
        git("commit", "-q", "-am", "second")
        (self.repo / "README.md").write_text("# A changed repository\n", encoding="utf-8")
        lines = [
            {"type": "entity", "name": "Ada", "entityType": "person", "observations": ["wrote \"notes\"", "é \U0001f980"]},
            {"type": "entity", "name": "Engine", "entityType": "machine", "observations": []},
            {"type": "relation", "from": "Ada", "to": "Engine", "relationType": "describes"},
        ]
        self.graph.write_text("\n".join(map(json.dumps, lines)))

    def _git_env(self):
        at = "2026-01-02T03:04:05+00:00"
        who = {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER")
               for part, value in (("NAME", "Ada"), ("EMAIL", "ada@example.org"), ("DATE", at))}
        return {**self.env(), **who, "GIT_CONFIG_NOSYSTEM": "1"}

    def env(self):
        """What every process gets: nothing of the person who runs this but the search path."""
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8"}

    def servers(self):
        """key → (command, arguments, environment), by their installed entry points."""
        def npm(name, *args, **env):
            script = self.cache / "node/node_modules/@modelcontextprotocol" / name / "dist/index.js"
            return self.node, [str(script), *args], env

        def pypi(name, *args):
            return str(self.cache / "venv/bin" / name), list(args), {}

        return {
            "everything": npm("server-everything"),
            "fetch": pypi("mcp-server-fetch", "--allow-private-ips"),
            "files": npm("server-filesystem", str(self.repo)),
            "git": pypi("mcp-server-git", "--repository", str(self.repo)),
            "memory": npm("server-memory", MEMORY_FILE_PATH=str(self.graph)),
            "thinking": npm("server-sequential-thinking", DISABLE_THOUGHT_LOGGING="true"),
            "time": pypi("mcp-server-time", "--local-timezone", "Etc/UTC"),
        }

    @contextlib.contextmanager
    def remote(self, key, log: pathlib.Path):
        """Runs this server over HTTP, on a free port; its URL."""
        command, args, env = self.servers()[key]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        with open(log, "wb") as output:
            process = subprocess.Popen([command, *args, "streamableHttp"], cwd=self.root, env={**self.env(), **env, "PORT": str(port)},
                                       stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            until = time.monotonic() + 30
            while process.poll() is None and time.monotonic() < until:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()
            process.wait()

    def config(self, path: pathlib.Path, log=None, remotes=None, more=None):
        """Writes a gateway configuration with all of them; with `log`, what each server is sent is copied to `log/<key>`.

        With `remotes`, those servers are reached by their URLs, and the gateway serves over HTTP. `more` are further servers.
        """
        state = path.with_suffix(".state")
        text = [f"[gateway]\nstate = {_toml(str(state))}\n"]
        if remotes is not None:
            text.append('[http]\nlisten = "127.0.0.1:0"\n[auth]\nmode = "none"\n')
        for key, (command, args, env) in {**self.servers(), **(more or {})}.items():
            if key in (remotes or {}):
                text.append(f"[servers.{key}]\nurl = {_toml(remotes[key])}\n")
                continue
            if log:
                # `tee` shows what reached this server; ending the input ends both.
                copy = 'log=$1; shift; tee -a "$log" | exec "$@"'
                command, args = "sh", ["-c", copy, "sh", str(log / key), command, *args]
            text.append(
                f"[servers.{key}]\ncommand = {_toml(command)}\nargs = {_toml(args)}\n"
                f"env = {{ {', '.join(f'{name} = {_toml(value)}' for name, value in env.items())} }}\n"
                f"cwd = {_toml(str(self.root))}\n"
            )
        path.write_text("\n".join(text), encoding="utf-8")

    def host_plan(self):
        """One call to each server that changes nothing and always answers the same: what every host makes."""
        return [
            ("everything", "get-structured-content", {"location": "Chicago"}),
            ("fetch", "fetch", {"url": self.page, "max_length": 500}),
            ("files", "list_directory", {"path": str(self.repo)}),
            ("git", "git_log", {"repo_path": str(self.repo), "max_count": 5}),
            ("memory", "read_graph", {}),
            ("thinking", "sequentialthinking",
             {"thought": "é \U0001f980", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}),
            ("time", "convert_time",
             {"source_timezone": "Etc/UTC", "time": "12:30", "target_timezone": "Asia/Kathmandu"}),
        ]

    def arguments(self, key, tool):
        """Arguments for every tool there is; a tool not named here is called with none, which is refused by most."""
        repo, notes = str(self.repo), str(self.repo / "docs/notes.txt")
        planned = {(server, name): arguments for server, name, arguments in self.host_plan()}
        planned |= {
            ("everything", "echo"): {"message": "é \U0001f980 \"quoted\" \\ \u2028 1.0"},
            ("everything", "get-annotated-message"): {"messageType": "error", "includeImage": True},
            ("everything", "get-resource-links"): {"count": 3},
            ("everything", "get-sum"): {"a": 1.5, "b": 1e21},
            ("everything", "gzip-file-as-resource"): {"data": "data:text/plain;base64,aGVsbG8="},
            ("everything", "simulate-research-query"): {"topic": "tides"},
            ("everything", "trigger-long-running-operation"): {"duration": 0.4, "steps": 2},
            ("files", "read_file"): {"path": notes},
            ("files", "read_text_file"): {"path": str(self.repo / "README.md"), "head": 2},
            ("files", "read_multiple_files"): {"paths": [notes, str(self.repo / "missing")]},
            ("files", "write_file"): {"path": str(self.repo / "new.txt"), "content": "é\n"},
            ("files", "edit_file"): {"path": notes, "edits": [{"oldText": "three", "newText": "3"}]},
            ("files", "create_directory"): {"path": str(self.repo / "made")},
            ("files", "list_directory_with_sizes"): {"path": str(self.repo / "docs")},
            ("files", "directory_tree"): {"path": repo, "excludePatterns": [".git"]},
            ("files", "move_file"): {"source": str(self.repo / "new.txt"), "destination": str(self.repo / "old.txt")},
            ("files", "search_files"): {"path": repo, "pattern": "**/*.txt"},
            ("git", "git_status"): {"repo_path": repo},
            ("git", "git_diff_unstaged"): {"repo_path": repo},
            ("git", "git_diff"): {"repo_path": repo, "target": "HEAD~1"},
            ("git", "git_show"): {"repo_path": repo, "revision": "HEAD"},
            ("git", "git_branch"): {"repo_path": repo, "branch_type": "local"},
            ("git", "git_create_branch"): {"repo_path": repo, "branch_name": "side"},
            ("git", "git_checkout"): {"repo_path": repo, "branch_name": "no-such-branch"},
            ("memory", "create_entities"):
                {"entities": [{"name": "Note", "entityType": "text", "observations": ["\u00e9"]}]},
            ("memory", "create_relations"):
                {"relations": [{"from": "Note", "to": "Ada", "relationType": "by"}]},
            ("memory", "add_observations"):
                {"observations": [{"entityName": "Ada", "contents": ["again"]}]},
            ("memory", "search_nodes"): {"query": "ada"},
            ("memory", "open_nodes"): {"names": ["Ada", "Nobody"]},
            ("time", "get_current_time"): {"timezone": "Etc/UTC"},
        }
        return planned.get((key, tool), {})


# Answers that name the moment or the process: called and answered, but never the same twice.
UNSTABLE = {
    ("everything", "get-env"), ("everything", "get-resource-reference"), ("time", "get_current_time"),
}


def _toml(value):
    # A JSON string without \u escapes, or an array of them, is TOML too.
    return json.dumps(value, ensure_ascii=False)


class _Pages(http.server.BaseHTTPRequestHandler):
    """Serves one plain text page; everything else, robots.txt among it, is not found."""

    def do_GET(self):
        body = PAGE.encode() if self.path == "/page.txt" else b""
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass
