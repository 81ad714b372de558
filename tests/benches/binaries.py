#!/usr/bin/env python3
"""Binaries of the host beside each other: what each spends on a record, and its memory with many idle shards.

    tests/benches/binaries.py --stack STACK --component noop.wasm NAME=BINARY NAME=BINARY...
    tests/benches/binaries.py ... --records 100=4000000,1024=1000000,10240=100000 --rounds 5 --idle 1000

STACK is a binary of the variant `full`, whose embedded stack runs as a process of its own. The binaries take turns at
the same stream, each from its beginning; what counts is their processor time, and its ratio to that of the first.
docs/benchmarks.md has a table of static and dynamic ones.
"""

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
import run as peers  # noqa: E402
from consumers import ShardmillCbor  # noqa: E402

# From the last lease to the look at the memory: what the start left behind is given back meanwhile.
SETTLE_SECONDS = 20


class Given:
    """What a consumer is built from: here it was built before."""

    def __init__(self, binary, component):
        self.binary, self.the_component = binary, component

    def shardmill(self):
        return self.binary

    def component(self):
        return self.the_component


def gauge(consumer, name):
    """The sum of a metric of a running host; nothing while it does not listen yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{consumer.port}/metrics", timeout=10) as page:
            text = page.read().decode()
    except OSError:
        return 0
    return sum(float(number) for number in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))


def resident_mib(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def throughput(args, size, records):
    """Prints what a record costs each of the binaries."""
    results = {name: [] for name, _ in args.binaries}
    with tempfile.TemporaryDirectory() as folder:
        stack = peers.Stack(args.stack, Path(folder))
        try:
            stack.fill(records, size)
            for number in range(args.rounds):
                for name, binary in args.binaries:
                    measured = peers.measure(ShardmillCbor, Given(binary, args.component), stack, records)
                    results[name].append(measured)
                    shown = ", ".join(f"{key} {value:.3f}" for key, value in measured.items())
                    print(f"{size} B, round {number + 1}, {name}: {shown}", file=sys.stderr, flush=True)
        finally:
            stack.stop()
    print(f"\n{records:,} records of {size} B, {peers.SHARDS} shards, medians of {args.rounds} rounds\n")
    print("| Binary | records/s | CPU a record | times the first |\n|---|---|---|---|")
    base = None
    for name, runs in results.items():
        cpu = statistics.median(one["cpu"] for one in runs)
        base = base or cpu
        rate = statistics.median(one["rate"] for one in runs)
        print(f"| {name} | {rate / 1e3:,.0f} k | {cpu:.3f} µs | {cpu / base:.2f} |", flush=True)


def idle(args):
    """Prints the memory of each of the binaries once it owns all shards of a stream without records."""
    print(f"\n{args.idle} idle shards, medians of {args.rounds} rounds\n")
    print("| Binary | resident | all owned after |\n|---|---|---|", flush=True)
    results = {name: [] for name, _ in args.binaries}
    with tempfile.TemporaryDirectory() as folder:
        stack = peers.Stack(args.stack, Path(folder), args.idle)
        try:
            for number in range(args.rounds):
                for name, binary in args.binaries:
                    results[name].append(idle_once(args, stack, binary))
                    print(f"idle, round {number + 1}, {name}: {results[name][-1]}", file=sys.stderr, flush=True)
        finally:
            stack.stop()
    for name, runs in results.items():
        mib, seconds = (statistics.median(values) for values in zip(*runs))
        print(f"| {name} | {mib:.0f} MiB | {seconds:.1f} s |")


def idle_once(args, stack, binary):
    """Returns MiB, and the seconds until it owned all."""
    with tempfile.TemporaryDirectory() as folder:
        consumer = ShardmillCbor(Given(binary, args.component), stack, Path(folder))
        # With the default rates: this host has nothing to hurry for.
        file = consumer.folder / "shardmill.toml"
        file.write_text(re.sub(r"\[reads\]\n(?:.+\n)+?(?=\[)", "", file.read_text()))
        started = time.monotonic()
        with open(consumer.folder / "log", "wb") as log:
            process = subprocess.Popen(consumer.arguments, cwd=folder, env={**os.environ, **consumer.environment},
                                       stdout=log, stderr=log, start_new_session=True)
        try:
            while gauge(consumer, "shardmill_leases_held") < args.idle:
                if process.poll() is not None or time.monotonic() > started + peers.PATIENCE:
                    sys.exit(f"{binary} does not own all shards; the end of its log:\n{consumer.log()[-3000:]}")
                time.sleep(peers.LOOK_EVERY)
            owned = time.monotonic() - started
            time.sleep(SETTLE_SECONDS)
            return resident_mib(process.pid), owned
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", nargs="+", metavar="NAME=BINARY")
    parser.add_argument("--stack", type=Path, required=True)
    parser.add_argument("--component", type=Path, required=True)
    parser.add_argument("--records", default="100=4000000,1024=1000000", help="SIZE=RECORDS,...; empty for none")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--idle", type=int, default=1000, help="shards; 0 for none")
    args = parser.parse_args()
    args.stack, args.component = args.stack.resolve(), args.component.resolve()
    args.binaries = [(name, Path(path).resolve()) for name, _, path in (one.partition("=") for one in args.binaries)]
    for pair in filter(None, args.records.split(",")):
        throughput(args, *map(int, pair.split("=")))
    if args.idle:
        idle(args)


if __name__ == "__main__":
    main()
