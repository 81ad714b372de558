#!/usr/bin/env python3
"""From a command to its effect on a running fleet. docs/benchmarks.md has a table of it.

    tests/benches/commands.py versioned.wasm SHARDMILL [ROUNDS]

`versioned.wasm` is the guest of that name in tests/guests. Two hosts with default leases share 16 shards of the
embedded stack, which get a record every 3 ms. Each round gives each command once. "Effect" is when the last host logs
that it did it, counted from the start of the command's process; "done" is when that process ends, which looks every
250 ms.
"""

import datetime
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

SHARDS = 16
APPLICATION = "versioned"
DEV = 'stream = "dev"\nplugins = "plugins"\n'
RUN = 'stream = "dev"\nplugins = "plugins"\nworker-id = "b"\n[sinks.stdout]\ntype = "stdout"\n'
STAMP = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+)Z")


def feed(process, done):
    number = 0
    while not done.is_set():
        process.stdin.write(b'{"n":%d}\n' % number)
        process.stdin.flush()
        number += 1
        time.sleep(0.003)


def at(line):
    """The time of a line of a log, in seconds since the epoch."""
    stamp = STAMP.match(line)
    if not stamp:
        return None
    parsed = datetime.datetime.fromisoformat(stamp.group(1)[:26])
    return parsed.replace(tzinfo=datetime.timezone.utc).timestamp()


class Fleet:
    def __init__(self, binary, folder, component):
        self.binary, self.folder = binary, folder
        os.mkdir(os.path.join(folder, "plugins"))
        with open(os.path.join(folder, "plugins", APPLICATION + ".wasm"), "wb") as file:
            file.write(component)
        for name, text in (("a", DEV), ("b", RUN)):
            with open(os.path.join(folder, name + ".toml"), "w") as file:
                file.write(text)
        self.done = threading.Event()
        shards = str(SHARDS)
        self.hosts = [self.start("a", ["dev", "--feed", "-", "--shards", shards, "--config", "a.toml"])]
        self.wait("the stack", lambda: os.path.exists(os.path.join(folder, "data", "endpoints.json")))
        self.feeding = threading.Thread(target=feed, args=(self.hosts[0], self.done), daemon=True)
        self.feeding.start()
        self.hosts.append(self.start("b", ["run", "--config", "b.toml", "--local"]))
        self.balanced()

    def start(self, name, arguments):
        log = open(os.path.join(self.folder, name + ".log"), "wb")
        return subprocess.Popen(
            [self.binary, *arguments], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log, cwd=self.folder
        )

    def lines(self, since, text):
        """When hosts logged this since then."""
        times = []
        for name in ("a", "b"):
            with open(os.path.join(self.folder, name + ".log"), errors="replace") as log:
                times += [at(line) for line in log if text in line]
        return sorted(time for time in times if time and time >= since)

    def wait(self, what, is_so):
        deadline = time.monotonic() + 120
        while not is_so():
            if time.monotonic() > deadline:
                sys.exit(f"never: {what}")
            time.sleep(0.05)

    def balanced(self):
        def is_so():
            shown = self.run(["leases", APPLICATION, "--local"])
            held = [sum(f" {name} " in line for line in shown.splitlines()) for name in ("dev", "b")]
            return min(held) >= SHARDS // 2

        self.wait("the hosts share the shards", is_so)

    def run(self, arguments):
        ended = subprocess.run(
            [self.binary, *arguments], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        return ended.stdout + ended.stderr

    def measure(self, arguments, text, count):
        """The seconds until the effect, and until the command ends; the effect is so many lines of the log."""
        started = time.time()
        change = ["--why", "a measurement", "--apply", "--local", "--wait", "60s"]
        command = [self.binary, *arguments, *change]
        ended = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        took = time.time() - started
        if ended.returncode != 0:
            sys.exit(f"{arguments}: {ended.stdout}{ended.stderr}")
        self.wait(text, lambda: len(self.lines(started, text)) >= count)
        return self.lines(started, text)[count - 1] - started, took

    def end(self):
        self.done.set()
        self.feeding.join()
        for host in reversed(self.hosts):
            host.terminate()
            host.wait()


def commands(fleet):
    app, shard = APPLICATION, "3"
    yield "pause, all 16 shards", ["pause", app], "the shard is paused", SHARDS
    yield "resume, all", ["resume", app], "the shard is not paused any more", SHARDS
    yield "pause, one", ["pause", app, shard], "the shard is paused", 1
    yield "resume, one", ["resume", app, shard], "the shard is not paused any more", 1
    yield "seek, one", ["seek", app, shard, "--to", "-2s"], "the shard was sent to another place", 1
    yield "release, one", ["release", app, shard], "handing the lease over", 1
    yield "reload", ["reload", app], "a reload was asked for", 2
    yield "drain", ["drain", app, "b"], "draining this host", 1
    yield "drain --undo", ["drain", app, "b", "--undo"], "this host takes leases again", 1


def at_rank(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def main():
    with open(sys.argv[1], "rb") as file:
        component = file.read()
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 50
    effects, dones = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(os.path.abspath(sys.argv[2]), folder, component)
        for _ in range(rounds):
            for name, arguments, text, count in commands(fleet):
                effect, done = fleet.measure(arguments, text, count)
                effects.setdefault(name, []).append(effect)
                dones.setdefault(name, []).append(done)
            fleet.balanced()
        fleet.end()
    print("| Command | effect, p50 | p99 | done, p50 | p99 |\n|---|---|---|---|---|")
    for name in effects:
        row = [at_rank(values[name], share) for values in (effects, dones) for share in (0.5, 0.99)]
        print(f"| {name} | " + " | ".join(f"{seconds * 1e3:.0f} ms" for seconds in row) + " |")


main()
