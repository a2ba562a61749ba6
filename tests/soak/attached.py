"""Hosts that start `onegate run`, which attaches to the gateway: they come, call, and leave or are killed at any moment.

Knows the gateway's configuration and the servers that never fail. Used by soak.py.
"""

import asyncio
import json
import random
import re

LOST_S = 30.0
CALM = ("calm-new", "calm-old")
HALF = re.compile(r"^onegate: \d+ faults? in the configuration$", re.M)


class Attached:
    """Hosts on pipes, one after the other."""

    def __init__(self, binary, world, configuration):
        self._binary, self._world, self._configuration = binary, world, configuration
        self.done, self.faults, self._here, self._left = 0, [], 0, asyncio.Event()

    async def gone(self):
        """Returns when no such host is there; the world is halted, so that none comes."""
        while self._here:
            self._left.clear()
            await self._left.wait()

    async def come_and_go(self):
        while True:
            await asyncio.sleep(random.uniform(0.2, 1.0))
            if self._world.halted:
                continue
            self._here += 1
            try:
                await self._host()
            except (OSError, ValueError, KeyError, TimeoutError, asyncio.IncompleteReadError) as error:
                self.faults.append(f"an attached host: {error!r}")
            finally:
                self._here -= 1
                self._left.set()

    async def _host(self):
        run = await asyncio.create_subprocess_exec(
            self._binary, "run", "--config", str(self._configuration), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, limit=1 << 24)
        told = asyncio.create_task(run.stderr.read())
        try:
            opened = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "soak", "version": "1"}}
            await self._ask(run, 0, "initialize", opened)
            run.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
            for number in range(1, random.randint(2, 20)):
                arguments = {"n": random.random(), "text": "x" * random.choice((0, 10, 20000))}
                call = {"name": f"{random.choice(CALM)}__echo", "arguments": arguments}
                answer = await self._ask(run, number, "tools/call", call)
                if answer.get("result", {}).get("structuredContent") != arguments:
                    raise ValueError(str(answer)[:300])
                self.done += 1
            if random.random() < 0.3:
                # In the middle of a call.
                self._say(run, 99, "tools/call", {"name": "calm-new__big", "arguments": {}})
                run.kill()
            else:
                run.stdin.close()
            code = await asyncio.wait_for(run.wait(), LOST_S)
            if code not in (0, -9):
                raise ValueError(f"run ended with {code}")
        except (ValueError, asyncio.IncompleteReadError) as error:
            if await self._ended(run) is None:
                run.kill()
            words = (await told).decode(errors="replace")
            # It read half a file that the gateway did not take: then there was nobody to attach as.
            if not HALF.search(words):
                raise ValueError(f"{error}; {words[-600:]}") from None
        finally:
            if await self._ended(run) is None:
                run.kill()
                await run.wait()
            words = (await told).decode(errors="replace")
            if "running alone" in words:
                self.faults.append(f"a host was not attached: {words[-300:]}")

    async def _ended(self, run):
        """How it ended by itself, if it did."""
        try:
            return await asyncio.wait_for(run.wait(), 2)
        except TimeoutError:
            return None

    def _say(self, run, number, method, params):
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        run.stdin.write(json.dumps(message).encode() + b"\n")

    async def _ask(self, run, number, method, params):
        self._say(run, number, method, params)
        while True:
            line = await asyncio.wait_for(run.stdout.readuntil(b"\n"), LOST_S)
            answer = json.loads(line)
            if answer.get("id") == number and "method" not in answer:
                return answer
