#!/usr/bin/env python3
"""From a new component in the plugins folder to the first output of its code. docs/benchmarks.md has a table of it.

    tests/benches/swap.py versioned.wasm SHARDMILL [SHARDMILL...]

`versioned.wasm` is the guest of that name in tests/guests. A host gets a record every 3 ms, and a new version every
half second: a file that is written in place, like `cp` does, then one that is moved there, in turn. Binaries take turns.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

SWAPS = 30
MARK = b"VERSION-000000"
CONFIG = """
stream = "dev"
[reads]
calls-per-second = 500.0
idle-every = "10ms"
idle-max = "10ms"
[batch]
window = "1ms"
"""


def feed(process, done):
    number = 0
    while not done.is_set():
        process.stdin.write(b'{"n":%d}\n' % number)
        process.stdin.flush()
        number += 1
        time.sleep(0.003)


def listen(process, first):
    """Notes when each version was seen first."""
    for line in process.stdout:
        at = time.monotonic()
        place = line.find(b"VERSION-")
        if place >= 0:
            first.setdefault(line[place : place + len(MARK)], at)


def place(component, folder, is_moved):
    """Returns when the file was whole."""
    path = os.path.join(folder, "versioned.wasm")
    written = os.path.join(folder, ".new") if is_moved else path
    with open(written, "wb") as file:
        file.write(component)
    if is_moved:
        os.rename(written, path)
    return time.monotonic()


def seen(first, version):
    deadline = time.monotonic() + 60
    while version not in first:
        if time.monotonic() > deadline:
            sys.exit(f"{version} is never seen")
        time.sleep(0.001)
    return first[version]


def swaps(binary, component):
    """Returns the seconds of each swap, by how the file came."""
    with tempfile.TemporaryDirectory() as folder:
        plugins = os.path.join(folder, "plugins")
        os.mkdir(plugins)
        place(component, plugins, True)
        with open(os.path.join(folder, "dev.toml"), "w") as config:
            config.write(CONFIG)
        arguments = [binary, "dev", "--feed", "-", "--shards", "1", "--config", "dev.toml"]
        pipe = subprocess.PIPE
        with open(os.path.join(folder, "log"), "wb") as log:
            process = subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=log, cwd=folder)
        first, done, took = {}, threading.Event(), {True: [], False: []}
        threading.Thread(target=listen, args=(process, first), daemon=True).start()
        feeding = threading.Thread(target=feed, args=(process, done), daemon=True)
        feeding.start()
        seen(first, MARK)
        for number in range(1, SWAPS + 1):
            time.sleep(0.5)
            version = b"VERSION-%06d" % number
            is_moved = number % 2 == 0
            at = place(component.replace(MARK, version), plugins, is_moved)
            took[is_moved].append(seen(first, version) - at)
        done.set()
        feeding.join()
        process.terminate()
        process.wait()
        return took


def main():
    with open(sys.argv[1], "rb") as file:
        component = file.read()
    for binary in sys.argv[2:]:
        for is_moved, took in swaps(os.path.abspath(binary), component).items():
            way = "moved" if is_moved else "written"
            median, longest = statistics.median(took) * 1e3, max(took) * 1e3
            print(f"{binary} {way:8} {median:6.0f} ms median, {longest:6.0f} ms longest", flush=True)


main()
