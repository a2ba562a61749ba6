"""Many hosts, many servers, and servers that die all the time: is any answer lost, does the gateway grow?

Started by `run`. Prints a line a round and a verdict; exit 1 when an answer was wrong or missing, or something grew.
"""

import argparse
import asyncio
import collections
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from attached import Attached
from load import Load
from world import ASKER, GUEST, REMOTE, STDIO, World

HOSTS = 64
# Load, then a quiet moment in which nothing is in flight and what is held can be counted.
ROUND_S = 6.0
SETTLE_S = 4.0
# The first rounds fill caches, pools and the allocator's arenas.
WARM = 0.3
# What the later half may hold more than the earlier one: noise, not growth. A leak of one kilobyte per thousand requests
# is above it within ten minutes.
# A configuration is read beside, on threads that stay for ten seconds.
MORE_KIB, MORE_PART, MORE_SOCKETS, MORE_THREADS = 3 * 1024, 0.10, 4, 2

Sample = collections.namedtuple("Sample", "sockets kept pipes children threads rss")


def to_servers(pid, links, ports):
    """How many of its sockets are connections to remote servers: kept for half a minute, so as many as were used at once."""
    own = {link[8:-1] for link in links if link.startswith("socket:")}
    lines = pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return sum(field[9] in own and int(field[2].split(":")[1], 16) in ports for field in fields)


def sample(pid, ports):
    """What the process holds."""
    links = []
    for entry in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{pid}/fd/{entry}"))
        except OSError:
            pass
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    number = lambda name: int(re.search(rf"{name}:\s+(\d+)", status)[1])  # noqa: E731
    children = sum(len(task.read_text().split()) for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"))
    kinds = collections.Counter(link.split(":")[0] for link in links)
    remote = to_servers(pid, links, ports)
    return Sample(kinds["socket"] - remote, remote, kinds["pipe"], children, number("Threads"), number("VmRSS"))


async def settled(pid, ports):
    """The least that is held within a few seconds: connections end a moment after their hosts are gone."""
    least, until = sample(pid, ports), time.monotonic() + SETTLE_S
    while time.monotonic() < until:
        await asyncio.sleep(0.1)
        now = sample(pid, ports)
        if now.sockets == least.sockets and until - time.monotonic() < SETTLE_S - 1.5:
            return now
        least = min(least, now)
    return least


def growth(samples):
    """What grew between the earlier and the later half, after the warm-up."""
    kept = samples[max(1, int(len(samples) * WARM)) :]
    if len(kept) < 2:
        return ["too few rounds to tell growth: run longer"]
    early, late = kept[: (len(kept) + 1) // 2], kept[len(kept) // 2 :]
    middle = lambda half, name: statistics.median(getattr(one, name) for one in half)  # noqa: E731
    found = []
    allowed = {"sockets": MORE_SOCKETS, "threads": MORE_THREADS, "rss": max(MORE_KIB, MORE_PART * middle(early, "rss"))}
    for name, more in allowed.items():
        before, after = middle(early, name), middle(late, name)
        if after > before + more:
            found.append(f"{name} grew from {before} to {after}")
    # One for each host that may ask at once, the streams of those that may be asked, and what is asked of a server beside.
    if any(one.kept > (2 * HOSTS + 8) * len(REMOTE) for one in kept):
        found.append(f"connections to remote servers: {[one.kept for one in kept]}")
    # Three pipes to a child, one to the guard, a few of the runtime's own.
    if any(one.pipes > 3 * one.children + 4 for one in kept):
        found.append(f"pipes without a child: {[(one.pipes, one.children) for one in kept]}")
    return found


async def soak(binary, fake, seconds, folder, log):
    world = World(folder, fake)
    world.start()
    faults, samples = [], []
    gateway = subprocess.Popen([binary, "serve", "--config", str(world.configuration())], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=open(log, "w"))
    try:
        port = await listening(gateway, log)
        load = Load(port, HOSTS)
        load.start()
        chaos = asyncio.create_task(world.trouble())
        attached = Attached(binary, world, folder / "onegate.toml")
        guests = [asyncio.create_task(attached.come_and_go()) for _ in range(2)]
        began, until = time.monotonic(), time.monotonic() + seconds
        while time.monotonic() < until and not load.faults and gateway.poll() is None:
            await asyncio.sleep(min(ROUND_S, max(1.0, until - time.monotonic())))
            world.halted = True
            await load.pause()
            await attached.gone()
            held = await settled(gateway.pid, set(world.ports.values()))
            samples.append(held)
            print(f"soak: {time.monotonic() - began:4.0f} s  {sum(load.done.values()):7} answers, {sum(load.excused.values()):5} of dead"
                  f" servers, {world.killed:4} killed; {held.rss / 1024:.1f} MiB, {held.sockets} sockets, {held.kept} kept connections, {held.pipes} pipes,"
                  f" {held.children} children, {held.threads} threads", flush=True)
            world.halted = False
            load.resume()
        await load.stop()
        chaos.cancel()
        await attached.gone()
        for guest in guests:
            guest.cancel()
        faults += load.faults[:20] + attached.faults[:20]
        print(f"soak: {attached.done} answers to hosts that were attached, {world.hung} servers stopped, the configuration written"
              f" {world.reconfigured} times")
        if seconds >= 60 and not (attached.done and world.hung and world.reconfigured):
            faults.append("too little of that")
        wanted = {"echo", "steps", "big", "list", "unknown", "cancel", "listen", "ping", "ask"}
        if lacking := wanted - set(load.done):
            faults.append(f"never asked for: {sorted(lacking)}")
        if not load.excused or world.killed < seconds / 10:
            faults.append(f"too little trouble: {world.killed} killed, {dict(load.excused)}")
        faults += growth(samples)
        print("soak: " + ", ".join(f"{name} {count}" for name, count in sorted(load.done.items())))
    finally:
        if gateway.poll() is None:
            gateway.send_signal(signal.SIGTERM)
        try:
            # Its servers may be stopped or deaf; they are given their time.
            code = await asyncio.to_thread(gateway.wait, 20)
            if code != 0:
                faults.append(f"the gateway ended with {code}")
        except subprocess.TimeoutExpired:
            gateway.kill()
            faults.append("the gateway did not end within 20 s")
        world.close()
    faults += [f"{key} outlived the gateway" for key in (*STDIO, ASKER, GUEST) if world.pids(key)]
    return faults


async def listening(gateway, log):
    """The port, once it is told."""
    until = time.monotonic() + 20
    while time.monotonic() < until and gateway.poll() is None:
        if found := re.search(r"listening on http://127\.0\.0\.1:(\d+)/", pathlib.Path(log).read_text()):
            return int(found[1])
        await asyncio.sleep(0.05)
    raise SystemExit(f"soak: the gateway does not listen: {pathlib.Path(log).read_text()[-1000:]}")


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--binary", required=True)
    flags.add_argument("--fake", required=True)
    flags.add_argument("--log", type=pathlib.Path, required=True, help="where the gateway's own words go")
    flags.add_argument("seconds", type=float)
    flags = flags.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        faults = asyncio.run(soak(flags.binary, flags.fake, flags.seconds, pathlib.Path(folder).resolve(), flags.log))
    for fault in faults:
        print(f"soak: FAULT {fault}")
    print(f"soak: {'FAILED' if faults else 'passed'} (the gateway's log: {flags.log})")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
