#!/usr/bin/env python3
"""Shardmill beside its peers: what each spends on a record. docs/benchmarks.md has a table of it.

    tests/benches/peers/run.py [--rounds 3] [--records 100=4000000,1024=1000000] [--only raw,kcl-cbor]

Builds everything in release mode, starts the embedded stack as a process of its own, and lets each consumer in turn read
the same stream of four shards from its beginning. The processor time is that of a consumer's processes alone. What a
peer needs and this machine lacks is said, and that peer left out. Needs cargo with the target wasm32-wasip2; for the
KCL, Java 11 or newer and Maven; for the MultiLangDaemon also pip.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from builds import Builds, Missing
from consumers import PEERS

STREAM = "peers"
SHARDS = 4
LOOK_EVERY = 0.05
# Without a new record. A KCL takes up to half a minute to own the shards of an empty table, and machines are shared.
PATIENCE = 120
TICKS = os.sysconf("SC_CLK_TCK")


class Stack:
    """The embedded stack with its stream."""

    def __init__(self, binary, folder, shards=SHARDS):
        (folder / "plugins").mkdir()
        self.binary, self.folder = binary, folder
        self.log = open(folder / "log", "wb")
        arguments = [binary, "dev", "--stream", STREAM, "--shards", str(shards)]
        self.process = subprocess.Popen(arguments, cwd=folder, stdout=self.log, stderr=self.log)
        endpoints = folder / "data/endpoints.json"
        deadline = time.monotonic() + 60
        while not endpoints.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"the embedded stack does not start:\n{(folder / 'log').read_text()}")
            time.sleep(LOOK_EVERY)
        told = json.loads(endpoints.read_text())
        self.kinesis, self.dynamodb, self.stream = told["kinesis"], told["dynamodb"], STREAM

    def fill(self, records, size):
        arguments = [self.binary, "put", "-", "--stream", STREAM, "--local=data"]
        with subprocess.Popen(arguments, cwd=self.folder, stdin=subprocess.PIPE, stdout=self.log, stderr=self.log) as put:
            line = b"x" * size + b"\n"
            for first in range(0, records, 1000):
                put.stdin.write(line * min(1000, records - first))
        if put.returncode:
            sys.exit(f"the stream was not filled:\n{(self.folder / 'log').read_text()[-2000:]}")

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


def processes(root):
    """The process and all below it."""
    found = [root]
    for pid in found:
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                children = Path(f"/proc/{pid}/task/{thread}/children").read_text()
                found += [int(child) for child in children.split()]
        except OSError:
            # It ended meanwhile; its time is in its parent's sum now.
            continue
    return found


def processor_seconds(root):
    """User and system time of the process, of those below it, and of those below it that have ended."""
    ticks = 0
    for pid in processes(root):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / TICKS


def has_ended(pid):
    """Whether it has, leaving its times readable."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def watch(process, run, records):
    """Returns what was seen, the processor time and the clock, from the first record to the last."""
    samples, latest, deadline = [], 0, time.monotonic() + PATIENCE
    while True:
        ended = has_ended(process.pid)
        seen = run.seen()
        sample = seen, processor_seconds(process.pid), time.monotonic()
        if seen > latest:
            latest, deadline = seen, time.monotonic() + PATIENCE
        if seen:
            samples.append(sample)
        if seen >= records:
            return samples
        if ended or time.monotonic() > deadline:
            sys.exit(f"{run.name} saw {seen} of {records} records; the end of its log:\n{run.log()[-3000:]}")
        time.sleep(LOOK_EVERY)


def measure(peer, builds, stack, records):
    """One consumer reads all that there is."""
    with tempfile.TemporaryDirectory() as folder:
        run = peer(builds, stack, Path(folder))
        with open(run.folder / "log", "wb") as log:
            process = subprocess.Popen(
                run.arguments, cwd=folder, env={**os.environ, **run.environment},
                stdout=log, stderr=log, start_new_session=True,
            )
        try:
            samples = watch(process, run, records)
        finally:
            # With its children: nothing that it would do at its end is of interest.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    first, last = samples[0], samples[-1]
    half = next(sample for sample in samples if sample[0] * 2 >= records)

    def each(since):
        return (last[1] - since[1]) / (records - since[0]) * 1e6 if records > since[0] else float("nan")

    return {
        "rate": (records - first[0]) / max(last[2] - first[2], LOOK_EVERY),
        "cpu": each(first),
        "half": each(half),
        "whole": last[1] / records * 1e6,
    }


def table(size, records, results):
    results = {name: runs for name, runs in results.items() if runs}
    if not results:
        return
    rounds = min(len(runs) for runs in results.values())
    print(f"\n{records:,} records of {size} B, {SHARDS} shards, medians of {rounds} rounds\n")
    print("| Consumer | records/s | CPU a record, from the first seen | of the second half | with the start "
          "| times shardmill's | of the second half |")
    print("|---|---|---|---|---|---|---|")
    medians = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]} for name, runs in results.items()
    }
    base = medians.get("shardmill-cbor") or next(iter(medians.values()))
    for name, of in medians.items():
        title = next(peer.title for peer in PEERS if peer.name == name)
        print(f"| {title} | {of['rate'] / 1e3:,.0f} k | {of['cpu']:.2f} µs | {of['half']:.2f} µs "
              f"| {of['whole']:.2f} µs | {of['cpu'] / base['cpu']:.2f} | {of['half'] / base['half']:.2f} |")
    for name in medians:
        if note := next(peer.note for peer in PEERS if peer.name == name):
            print(f"\n{name}: {note}")


def ready(peers, builds):
    """Builds what they need; those that cannot be built are told and left out."""
    found = []
    for peer in peers:
        try:
            peer.build(builds)
            found.append(peer)
        except Missing as missing:
            print(f"{peer.name} is left out: {missing}", file=sys.stderr)
    return found


def turns(peers, builds, stream, rounds, results):
    """Fills a stream of so many records of a size, and lets the peers take turns; adds to `results`."""
    size, records = stream
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(builds.shardmill(), Path(folder))
        try:
            stack.fill(records, size)
            for number in range(rounds):
                for peer in peers:
                    run = measure(peer, builds, stack, records)
                    results[peer.name].append(run)
                    told = ", ".join(f"{key} {value:.2f}" for key, value in run.items())
                    print(f"{size} B, round {number + 1}, {peer.name}: {told}", file=sys.stderr, flush=True)
        finally:
            stack.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", default="100=4000000,1024=1000000", help="SIZE=RECORDS,...")
    names = [peer.name for peer in PEERS]
    parser.add_argument("--only", default=",".join(names), help="NAME,... of " + ", ".join(names))
    arguments = parser.parse_args()
    wanted = arguments.only.split(",")
    if unknown := [name for name in wanted if name not in names]:
        parser.error(f"no such consumer: {', '.join(unknown)}; there are {', '.join(names)}")
    builds = Builds()
    peers = ready([peer for peer in PEERS if peer.name in wanted], builds)
    if not peers:
        sys.exit("none of the consumers can be built")
    for size, records in (map(int, pair.split("=")) for pair in arguments.records.split(",")):
        results = {peer.name: [] for peer in peers}
        try:
            turns(peers, builds, (size, records), arguments.rounds, results)
        except KeyboardInterrupt:
            table(size, records, results)
            sys.exit("interrupted: the table has the rounds that were done")
        table(size, records, results)


if __name__ == "__main__":
    main()
