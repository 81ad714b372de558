#!/usr/bin/env python3
"""What compiling a plugin costs: at first, after a change, and unchanged. docs/benchmarks.md has a table of it.

    tests/benches/compile.py target/debug/shardmill before.wasm after.wasm [ROUNDS [THREADS]]

Runs the compiling process as a host does, in a new cache each round: the first version, the second, the first again.
*Whole* compiles without the code of single functions, as hosts did before they kept it. The time is that of the
processor, which a busy machine changes little, and the elapsed time.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

LIMITS = ["--cpu-seconds", "120", "--memory-bytes", str(2 << 30), "--code-bytes", str(256 << 20)]
# As many threads as a host on two cores gives its compiler, unless others are asked for.
THREADS = sys.argv[5] if len(sys.argv) > 5 else "1"
ENVIRONMENT = {"RAYON_NUM_THREADS": THREADS, "MALLOC_ARENA_MAX": "2"}


def compiled(binary, cache, component, *more):
    """Returns the seconds of the processor, and those that elapsed."""
    size = str(os.path.getsize(component))
    arguments = ["compile-component", "--cache", cache, "--component-bytes", size, *LIMITS, *more]
    with open(component, "rb") as code:
        began = time.monotonic()
        process = subprocess.Popen([binary, *arguments], stdin=code, env=ENVIRONMENT, cwd="/")
        _, status, usage = os.wait4(process.pid, 0)
        elapsed = time.monotonic() - began
    if status:
        sys.exit(f"{component} did not compile")
    return usage.ru_utime + usage.ru_stime, elapsed


def kept(cache):
    """Returns the bytes of single functions."""
    files = (os.path.join(folder, name) for folder, _, names in os.walk(f"{cache}/functions") for name in names)
    return sum(os.path.getsize(file) for file in files)


def main():
    binary, before, after = (os.path.abspath(path) for path in sys.argv[1:4])
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 5
    steps = ["whole, first", "whole, changed", "first", "changed", "changed back", "unchanged"]
    times, sizes = {step: [] for step in steps}, []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as cache:
            times["whole, first"].append(compiled(binary, whole, before))
            times["whole, changed"].append(compiled(binary, whole, after))
            times["first"].append(compiled(binary, cache, before, "--keep-functions"))
            sizes.append(kept(cache))
            times["changed"].append(compiled(binary, cache, after, "--keep-functions"))
            # Its code as a whole is there; without it, its functions still are.
            subprocess.run(["rm", "-rf", f"{cache}/modules"], check=True)
            times["changed back"].append(compiled(binary, cache, before, "--keep-functions"))
            times["unchanged"].append(compiled(binary, cache, before, "--keep-functions"))
    for step, measured in times.items():
        processor, elapsed = (statistics.median(values) for values in zip(*measured))
        print(f"{step:16} {processor * 1e3:9.0f} ms of the processor {elapsed * 1e3:9.0f} ms elapsed")
    print(f"{statistics.median(sizes) / 1e6:.1f} MB of functions after the first")


main()
