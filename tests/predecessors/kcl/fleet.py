"""Flights in one stream or in several, workers of either side on them, and who handled which flight."""

import base64
import gzip
import json
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

from scene import CREDENTIALS, REGION, SAMPLE, flights, stop, until

# The KCL's failoverTimeMillis and the hosts' lease duration: equal, as the KCL judges hosts by it.
FAILOVER_SECONDS = 3
# A KCL 3.x leader that was killed keeps the next one waiting for two minutes.
PATIENCE_SECONDS = 240

HOST = """
{streams}
worker-id = "{name}"
[aws]
region = "{region}"
kinesis-endpoint = "{stack.kinesis_url}"
dynamodb-endpoint = "{stack.dynamodb_url}"
[host]
admin = "127.0.0.1:0"
cache = "{stack.folder}/compiled"
[leases]
duration = "{failover}s"
scan-every = "200ms"
[batch]
records = {per_call}
[reads]
calls-per-second = 5.0
records-per-call = {per_call}
idle-every = "100ms"
[checkpoint]
records = {checkpoint_records}
[sinks.out]
type = "file"
path = "{name}.ndjson"
[plugin.flights.config]
destination = "out"
{of_plugin}
"""


class Worker:
    """A worker of either side. Its log is NAME.log, its output NAME.ndjson and files whose names begin so."""

    def __init__(self, name, command, folder):
        self.name, self.folder = name, folder
        self.log = folder / f"{name}.log"
        streams = {"stdin": subprocess.DEVNULL, "stdout": open(self.log, "ab"), "stderr": subprocess.STDOUT}
        self.process = subprocess.Popen([str(word) for word in command], cwd=folder, env=os.environ | CREDENTIALS, **streams)
        # By path: how far it was read, and the lines up to there.
        self.counted = {}

    def end(self, how):
        """As an operator ends it, or as a crash does; the exit code."""
        return stop(self.process, signal.SIGKILL if how == "killed" else signal.SIGTERM)

    def files(self):
        return sorted(self.folder.glob(f"{self.name}.ndjson*"))

    def lines(self):
        """How many it wrote. Asked for all the time, so only what is new is read."""
        for path in self.files():
            at, lines = self.counted.get(path, (0, 0))
            with open(path, "rb") as file:
                file.seek(at)
                fresh = file.read()
            self.counted[path] = at + len(fresh), lines + fresh.count(b"\n")
        return sum(lines for _, lines in self.counted.values())

    def until_lines(self, count):
        until(f"{self.name} handles {count}", lambda: self.lines() >= count, PATIENCE_SECONDS, self.process)


class Fleet:
    """A stack of its own with some streams, and all that runs on it."""

    def __init__(self, stack, plugin, streams, shards):
        self.stack, self.folder, self.streams = stack, stack.folder, streams
        (self.folder / "plugins").mkdir()
        (self.folder / "plugins/flights.wasm").write_bytes(Path(plugin).read_bytes())
        for stream in streams:
            stack.make_stream(stream, shards)
        self.workers = []
        self.left = flights(count_of_flights())
        self.total = len(self.left)
        # Small replies, so that a worker can be stopped in the middle; both sides read the sample in some ten seconds.
        self.per_call = max(50, self.total // 240)
        # Carriers by (stream, shard, sequence number), and these by the number that each flight got when it was put.
        self.stored, self.place_of = {}, {}

    def identifier(self, stream):
        """The stream as the KCL's multi-stream mode names it: ACCOUNT:NAME:CREATED."""
        summary = self.stack.summary(stream)
        account = summary["StreamARN"].split(":")[4]
        return f"{account}:{stream}:{int(summary['StreamCreationTimestamp'])}"

    def stream_of(self, flight):
        """With one stream that one, else that of the airport: so a line of output shows which it was."""
        return self.streams[0] if len(self.streams) == 1 else flight["origin"].lower()

    def put(self, count):
        """Puts the next flights, and remembers where each is."""
        lines, self.left = self.left[:count], self.left[count:]
        for stream in self.streams:
            of_stream = [line for line in lines if self.stream_of(json.loads(line)) == stream]
            for flight in self.stack.put(stream, of_stream):
                place = stream, flight.shard, flight.sequence
                self.stored[place], self.place_of[flight.number] = flight.carrier, place

    def start(self, name, command):
        self.workers.append(Worker(name, command, self.folder))
        return self.workers[-1]

    def host(self, name, table_of_all=None):
        """A host of the plugin `flights`, whose application has its name, or the KCL's table of several streams."""
        several = f"[plugin.flights]\nstreams = {json.dumps(self.streams)}" if len(self.streams) > 1 else ""
        if table_of_all:
            several += f'\napplication = "{table_of_all}"\nmulti-stream-table = true'
        text = HOST.format(
            streams="" if several else f'stream = "{self.streams[0]}"',
            of_plugin=several,
            name=name,
            stack=self.stack,
            region=REGION,
            failover=FAILOVER_SECONDS,
            per_call=self.per_call,
            # As the KCL here at every third batch: a killed host leaves something beyond its checkpoints.
            checkpoint_records=3 * self.per_call,
        )
        (self.folder / f"{name}.toml").write_text(text)
        return self.start(name, [self.stack.binary, "run", "--config", f"{name}.toml"])

    def handled(self, worker):
        """The places that a worker handled, in its order, with the carrier of each."""
        places = []
        for path in worker.files():
            # A line that is being written is left out.
            places += map(self.place, path.read_bytes().split(b"\n")[:-1])
        return places

    def place(self, text):
        line = json.loads(text)
        flight = line if "carrier" in line else json.loads(base64.b64decode(line["data"]))
        # A plugin that only copies its records says no place.
        if "shard" not in line:
            return self.place_of[line["n"]], flight["carrier"]
        return (self.stream_of(flight), line["shard"], int(line["sequence_number"])), flight["carrier"]

    def times(self, workers):
        """How often each place came out at these workers."""
        return Counter(place for worker in workers for place, _ in self.handled(worker))

    def until_all_handled(self, workers):
        """Waits until each record that was put came out at one of these workers, of which the last is at work."""
        before, last = set(self.times(workers[:-1])), workers[-1]
        missing = len(self.stored.keys() - before)

        def is_done():
            # Cheap first: to read all of it takes longer than the waits between.
            return last.lines() >= missing and self.stored.keys() <= before | set(self.times([last]))

        until(f"{last.name} handles the rest", is_done, PATIENCE_SECONDS, last.process)

    def checkpoints(self, tables):
        """By (stream, shard): the text of the checkpoint."""
        # A write of a killed process may still be on its way; nobody takes over as soon as this.
        time.sleep(0.5)
        # Rows of other things than leases have no checkpoint.
        rows = [(table, row) for table in tables for row in self.stack.rows(table) if "checkpoint" in row]
        return {self.lease(table, row["leaseKey"]): row["checkpoint"] for table, row in rows}

    def lease(self, table, key):
        if ":" in key:
            _account, stream, _created, shard = key.split(":")
            return stream, shard
        # A host has a table for each of several streams.
        return table.partition(".")[2] or self.streams[0], key

    def beyond(self, workers, checkpoints):
        """What these workers handled that the checkpoints do not cover: that must come again, and nothing else."""

        def is_covered(place):
            stream, shard, sequence = place
            at = checkpoints.get((stream, shard), "TRIM_HORIZON")
            return at == "SHARD_END" or at.isdigit() and sequence <= int(at)

        return {place for place in self.times(workers) if not is_covered(place)}

    def end(self):
        for worker in self.workers:
            worker.end("killed")


def count_of_flights():
    """In the file that `flights` reads."""
    with gzip.open(os.environ.get("SHARDMILL_FLIGHTS", SAMPLE), "rt") as file:
        return sum(1 for _ in file)
