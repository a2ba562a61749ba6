"""Hosts that ask for everything at once, in both eras, and check every answer.

Knows the servers by name (world.py) and the gateway by its port. Used by soak.py.
"""

import asyncio
import collections
import random
import time

import world
from wire import LEGACY, Broken, Connection, Host

# Longer than any deadline of the gateway in this configuration: what is not answered by then is lost.
LOST_S = 30.0
# What a host is told of a server that was killed under it.
EXCUSES = {"downstream-unavailable", "downstream-timeout"}
SAMPLING = {"sampling": {}}


class Load:
    """`count` hosts at work, until told to stop; `pause` and `resume` hold them between two requests."""

    def __init__(self, port, count):
        self.port, self.count = port, count
        self.done, self.excused, self.faults = collections.Counter(), collections.Counter(), []
        self._go, self._stop, self._quiet, self._busy = asyncio.Event(), False, asyncio.Event(), 0
        self._tasks, self._serial, self._asked = [], 0, 0.0
        # Some are given back a moment after their hosts have gone.
        self.listening = asyncio.Semaphore(12)

    def start(self):
        self._go.set()
        self._tasks = [asyncio.create_task(self._host(n)) for n in range(self.count)]

    async def pause(self):
        """Returns when no host is there."""
        self._go.clear()
        while self._busy:
            self._quiet.clear()
            await self._quiet.wait()

    def resume(self):
        self._go.set()

    async def stop(self):
        self._stop = True
        self._go.set()
        await asyncio.gather(*self._tasks)

    async def _host(self, number):
        """One place: a host comes, makes some requests, leaves; then the next one."""
        while not self._stop:
            await self._go.wait()
            self._busy += 1
            era = "modern" if (number + self._serial) % 2 else "legacy"
            host = Host(self.port, era, SAMPLING if random.random() < 0.3 else {})
            try:
                await asyncio.wait_for(host.enter(), LOST_S)
                for _ in range(random.randint(1, 30)):
                    if self._stop or not self._go.is_set():
                        break
                    await self._one(host)
                await asyncio.wait_for(host.leave(), LOST_S)
            except (Broken, TimeoutError) as error:
                self._fault(f"{era} host comes or goes", error)
            finally:
                host.connection.close()
                self._busy -= 1
                if not self._busy:
                    self._quiet.set()

    def _fault(self, what, error):
        self.faults.append(f"{what}: {str(error) or f'not answered within {LOST_S:.0f} s'}")

    async def _one(self, host):
        """One request of some kind; a fault ends nothing but is kept."""
        kinds = [(40, self._echo), (8, self._steps), (3, self._big), (6, self._list), (4, self._unknown), (5, self._cancel),
                 (4, self._listen), (6, self._ping)]
        # A server may ask thirty times a minute.
        if host.can_be_asked and time.monotonic() - self._asked > 3.0:
            self._asked = time.monotonic()
            kinds = [(1, self._ask)]
        kind = random.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])[0]
        self._serial += 1
        try:
            await asyncio.wait_for(kind(host), LOST_S)
            self.done[kind.__name__[1:]] += 1
        except (Broken, TimeoutError, KeyError, TypeError) as error:
            host.connection.close()
            self._fault(f"{host.era} {kind.__name__[1:]}", error if isinstance(error, (Broken, TimeoutError)) else repr(error))

    def _arguments(self):
        return {"n": self._serial, "text": "é \U0001f980 \"" + "x" * random.choice((0, 10, 1000, 20000))}

    async def _call(self, host, key, tool, arguments, token=None, **more):
        """A call; its result, or None where the server is one that dies."""
        message = host.message("tools/call", {"name": f"{key}__{tool}", "arguments": arguments}, token)
        _, answer = await host.ask(message, **more)
        if "result" in answer:
            return answer["result"]
        data = answer["error"].get("data") or {}
        if world.weak(key) and data.get("server") == key and data.get("reason") in EXCUSES:
            self.excused[key] += 1
            return None
        raise Broken(f"{key}__{tool}: {str(answer)[:400]}")

    async def _echo(self, host):
        key, arguments = random.choice([*world.STDIO, *world.REMOTE]), self._arguments()
        result = await self._call(host, key, "echo", arguments)
        if result is not None and result["structuredContent"] != arguments:
            raise Broken(f"{key} answered with {str(result)[:200]}, not with {str(arguments)[:200]}")

    async def _steps(self, host):
        key, arguments, notes = random.choice([*world.STDIO, *world.REMOTE]), self._arguments(), []
        token = f"token-{self._serial}"
        result = await self._call(host, key, "steps", arguments, token, notes=notes)
        seen = [note["params"] for note in notes if note["method"] == "notifications/progress"]
        # Progress may be left out, but what comes must be this request's and in order.
        if any(note["progressToken"] != token for note in seen) or [note["progress"] for note in seen] != sorted(
            {note["progress"] for note in seen}
        ):
            raise Broken(f"progress of {token}: {seen}")
        if result is not None and result["structuredContent"] != arguments:
            raise Broken(f"{key} answered with {str(result)[:200]}, not with {str(arguments)[:200]}")

    async def _big(self, host):
        key = random.choice(list(world.STDIO))
        result = await self._call(host, key, "big", {})
        if result is not None and len(result["content"][0]["text"]) != world.BIG:
            raise Broken(f"{key} answered with {len(result['content'][0]['text'])} bytes")

    async def _ask(self, host):
        """A legacy server asks the host back in the middle of a call."""
        words = f"answer-{self._serial}"
        reply = {"role": "assistant", "model": "soak", "content": {"type": "text", "text": words}}
        message = host.message("tools/call", {"name": "asker__ask", "arguments": {}})
        for _ in range(4):
            _, answer = await host.ask(message, lambda method: reply)
            result = answer.get("result") or {}
            if result.get("resultType") != "input_required":
                break
            answers = {name: reply for name in result.get("inputRequests") or {}}
            again = {"name": "asker__ask", "arguments": {}, "inputResponses": answers}
            if "requestState" in result:
                again["requestState"] = result["requestState"]
            message = host.message("tools/call", again)
        if words not in str(answer):
            raise Broken(f"the server was not given {words}: {str(answer)[:400]}")

    async def _list(self, host):
        _, answer = await host.ask(host.message("tools/list", {}))
        names = {tool["name"] for tool in answer["result"]["tools"]}
        missing = [key for key in (*world.STDIO, *world.REMOTE) if not world.weak(key) and f"{key}__echo" not in names]
        if missing:
            raise Broken(f"the list lacks the tools of {missing}")

    async def _unknown(self, host):
        _, answer = await host.ask(host.message("tools/call", {"name": "calm-new__nothing", "arguments": {}}))
        if answer["error"]["code"] != -32602:
            raise Broken(f"an unknown tool: {answer}")

    async def _ping(self, host):
        method = "ping" if host.era == "legacy" else "server/discover"
        _, answer = await host.ask(host.message(method, {}))
        if "result" not in answer:
            raise Broken(f"{method}: {answer}")

    async def _cancel(self, host):
        """Takes a call back: by going away in the modern era, by saying so in the legacy one."""
        key = random.choice([*world.STDIO, *world.REMOTE])
        message = host.message("tools/call", {"name": f"{key}__echo", "arguments": {}})
        if host.era == "modern":
            connection = Connection(self.port)
            asked = asyncio.create_task(connection.open("POST", host.headers("tools/call", f"{key}__echo"), message))
            await asyncio.sleep(random.random() * 0.02)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            connection.close()
            return
        asked = asyncio.create_task(host.ask(message))
        await asyncio.sleep(random.random() * 0.02)
        await host.tell({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": message["id"]}})
        try:
            await asked
        except Broken as error:
            # It may be answered all the same, or its stream ends without an answer; nothing else.
            if "no answer to" not in str(error):
                raise

    async def _listen(self, host):
        """A stream of notifications, held for a while. All hosts are one principal here, which has 16 modern ones (SUB-13)."""
        async with self.listening:
            await self._held(host)

    async def _held(self, host):
        connection = Connection(self.port)
        try:
            if host.era == "modern":
                message = host.message("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
                answer = await connection.open("POST", host.headers("subscriptions/listen"), message)
                first = await anext(answer.messages)
                if first.get("method") != "notifications/subscriptions/acknowledged":
                    raise Broken(f"a subscription began with {first}")
            else:
                headers = {name: value for name, value in host.headers().items() if name != "Content-Type"}
                answer = await connection.open("GET", headers | {"Accept": "text/event-stream", "MCP-Protocol-Version": LEGACY})
                if answer.status != 200:
                    raise Broken(f"GET was answered with {answer.status}")
            await asyncio.sleep(random.random() * 0.5)
        except StopAsyncIteration:
            raise Broken("a subscription ended at once") from None
        finally:
            connection.close()
