"""An embedded stack, flights in a stream, a host, and who handled which flight. Nothing in here knows a library.

    with Stack(binary, folder) as stack:
        stack.make_stream("flights", shards=4)
        put = stack.put("flights", flights(12_000))          # [Flight(number, carrier, shard, sequence)]
        ...                                                  # a library handles some of them, into library.ndjson
        print(stack.shardmill("import", "flights-app", "--stream", "flights", "--to", "flights", "--apply").stdout)
        host = Host(stack, folder / "host", stream="flights", plugin=wasm)
        until("the rest is handled", lambda: host.count() >= 6_000)
        host.stop()
        print(Balance(put, {"library": read_lines(folder / "library.ndjson"), "host": host.handled()}))

A library's program writes one line of JSON for each record, after it handled it. Of that line only these fields count:
`carrier`, `shard` and `sequence_number`; or `n`, the flight's number, if the library tells neither of the two.
"""

import base64
import gzip
import json
import os
import signal
import subprocess
import time
import urllib.error
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from embedded_aws import Aws, start_stack

ROOT = Path(__file__).resolve().parent.parent.parent
SAMPLE = ROOT / "examples/flights/sample.ndjson.gz"
REGION = "us-east-1"
# The embedded stack checks no signature, but every client needs something to sign with.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
}
# Kinesis takes no more in one call.
RECORDS_PER_PUT = 500
PATIENCE_SECONDS = 180


@dataclass(frozen=True)
class Flight:
    """A flight in the stream, and where it is."""

    number: int
    carrier: str
    shard: str
    sequence: int


class Stack(Aws):
    """An embedded Kinesis and DynamoDB, in a process of its own that runs no plugin."""

    def __init__(self, binary, folder):
        self.binary, self.folder = Path(binary).resolve(), Path(folder).resolve()
        self.numbers = 0

    def __enter__(self):
        self.process, endpoints = start_stack(self.binary, self.folder)
        super().__init__(endpoints)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def put(self, stream, lines):
        """Puts flights, each with a number of its own as `n` and as its partition key, so that all shards get some."""
        put = []
        for start in range(0, len(lines), RECORDS_PER_PUT):
            put += self.put_some(stream, lines[start : start + RECORDS_PER_PUT])
        return put

    def put_some(self, stream, lines):
        flights = []
        for line in lines:
            flights.append({"n": self.numbers, **json.loads(line)})
            self.numbers += 1
        records = [{"PartitionKey": str(it["n"]), "Data": encoded(it)} for it in flights]
        placed = []
        # Kinesis refuses single records of a call when a shard is over its limit.
        while records:
            reply = self.kinesis("PutRecords", StreamName=stream, Records=records)["Records"]
            for flight, place in zip(flights, reply):
                if "SequenceNumber" in place:
                    at = int(place["SequenceNumber"])
                    placed.append(Flight(flight["n"], flight["carrier"], place["ShardId"], at))
            refused = [index for index, place in enumerate(reply) if "SequenceNumber" not in place]
            records, flights = [records[index] for index in refused], [flights[index] for index in refused]
            if records:
                time.sleep(0.2)
        return placed

    def rows(self, table):
        """All rows of a table, as plain values; none if there is no table."""
        rows, start = [], {}
        while True:
            try:
                reply = self.dynamodb("Scan", TableName=table, ConsistentRead=True, **start)
            except urllib.error.HTTPError as error:
                if b"ResourceNotFound" in error.read():
                    return []
                raise
            rows += [{name: plain(value) for name, value in row.items()} for row in reply["Items"]]
            if "LastEvaluatedKey" not in reply:
                return rows
            start = {"ExclusiveStartKey": reply["LastEvaluatedKey"]}

    def shardmill(self, *args):
        """A command against this stack, at its end."""
        done = self.start_shardmill(*args)
        stdout, stderr = done.communicate()
        return subprocess.CompletedProcess(done.args, done.returncode, stdout, stderr)

    def start_shardmill(self, *args):
        """The same while it runs, as for `import --watch`."""
        command = [str(self.binary), *args, "--region", REGION]
        command += ["--kinesis-endpoint", self.kinesis_url, "--dynamodb-endpoint", self.dynamodb_url]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, cwd=self.folder, env=os.environ | CREDENTIALS, **streams)


class Host:
    """`shardmill run` with one plugin, whose output goes to a file. The application has the plugin's name."""

    def __init__(self, stack, folder, stream, plugin, application="flights", settings=""):
        self.folder = Path(folder).resolve()
        (self.folder / "plugins").mkdir(parents=True)
        (self.folder / "out").mkdir()
        (self.folder / f"plugins/{application}.wasm").write_bytes(Path(plugin).read_bytes())
        (self.folder / "shardmill.toml").write_text(f"""
stream = "{stream}"
worker-id = "host-1"
[aws]
region = "{REGION}"
kinesis-endpoint = "{stack.kinesis_url}"
dynamodb-endpoint = "{stack.dynamodb_url}"
[host]
admin = "127.0.0.1:0"
cache = "{stack.folder}/compiled"
[sinks.out]
type = "file"
path = "out/lines.ndjson"
[plugin.{application}.config]
destination = "out"
{settings}
""")
        log = open(self.folder / "log", "ab")
        command = [str(stack.binary), "run", "--config", "shardmill.toml"]
        streams = {"stdout": log, "stderr": log, "stdin": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, cwd=self.folder, env=os.environ | CREDENTIALS, **streams)

    def handled(self):
        """What it handled so far."""
        return [line for path in self.outputs() for line in read_lines(path)]

    def count(self):
        return sum(count_lines(path) for path in self.outputs())

    def outputs(self):
        # A long output is in several files.
        return sorted((self.folder / "out").glob("lines.ndjson*"))

    def stop(self):
        """Stops it as an operator would; its exit code."""
        return stop(self.process, signal.SIGTERM)


@dataclass
class Balance:
    """Who handled which flight, and how often."""

    put: list
    # By name: the lines that each wrote.
    outputs: dict
    times: Counter = field(init=False)

    def __post_init__(self):
        self.by_place = {(it.shard, it.sequence): it.number for it in self.put}
        self.numbers = {name: [self.number(line) for line in lines] for name, lines in self.outputs.items()}
        self.times = Counter(number for numbers in self.numbers.values() for number in numbers)

    def number(self, line):
        # Some libraries tell a processor neither its shard nor the sequence number.
        if "n" in line:
            return line["n"]
        return self.by_place[line["shard"], int(line["sequence_number"])]

    @property
    def lost(self):
        return {it.number for it in self.put if it.number not in self.times}

    @property
    def repeated(self):
        return {number for number, times in self.times.items() if times > 1}

    @property
    def is_exact(self):
        """Each flight once: none is lost, and none came twice from one or from both."""
        return not self.lost and not self.repeated and len(self.times) == len(self.put)

    def carriers(self):
        """Flights by carrier, as they were put."""
        return Counter(it.carrier for it in self.put)

    def carriers_handled(self):
        """The same as the outputs have it, in their own words."""
        return Counter(line["carrier"] for lines in self.outputs.values() for line in lines)

    def after(self, checkpoints):
        """Flights after each shard's checkpoint. Checkpoints: the last sequence number that is done, by shard."""
        return {it.number for it in self.put if it.sequence > checkpoints.get(it.shard, -1)}

    def __str__(self):
        by = ", ".join(f"{name} {len(numbers)}" for name, numbers in self.numbers.items())
        return f"{len(self.put)} put; {by}; {len(self.lost)} lost, {len(self.repeated)} repeated"


def start(stack, command, folder, log, settings):
    """Starts a program around a library: where the stack is and its settings are in variables."""
    variables = {"KINESIS_ENDPOINT": stack.kinesis_url, "DYNAMODB_ENDPOINT": stack.dynamodb_url} | settings
    variables = {name: str(value) for name, value in variables.items()}
    out = open(log, "ab")
    streams = {"stdout": out, "stderr": out, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(command, cwd=folder, env=os.environ | CREDENTIALS | variables, **streams)


def flights(count, start=0, path=None):
    """Lines of the real flights of January 2013 that the repository keeps, or of another file."""
    with gzip.open(path or os.environ.get("SHARDMILL_FLIGHTS", SAMPLE), "rt") as file:
        lines = [line for number, line in enumerate(file) if start <= number < start + count]
    assert len(lines) == count, f"the file has only {start + len(lines)} flights"
    return lines


def read_lines(path):
    """Whole lines of JSON: a program that was killed may have left half of its last one."""
    if not Path(path).exists():
        return []
    lines = Path(path).read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines if line]


def count_lines(path):
    """The same, only counted: while something waits for an output, it looks often."""
    return Path(path).read_bytes().count(b"\n") if Path(path).exists() else 0


def until(what, is_so, seconds=PATIENCE_SECONDS, alive=None):
    """Waits until it is so, and returns the seconds; fails at once if a process that is needed for it has ended."""
    began = time.monotonic()
    while not is_so():
        if alive is not None and alive.poll() is not None and not is_so():
            raise RuntimeError(f"ended with {alive.returncode} before: {what}")
        if time.monotonic() - began > seconds:
            raise RuntimeError(f"not within {seconds} s: {what}")
        time.sleep(0.05)
    return time.monotonic() - began


def stop(process, how, seconds=PATIENCE_SECONDS):
    """Sends a signal and waits for the end; the exit code."""
    if process.poll() is None:
        process.send_signal(how)
    return process.wait(seconds)


def encoded(fields):
    return base64.b64encode(json.dumps(fields).encode()).decode()


def plain(value):
    """A value of DynamoDB without its type."""
    (kind, inner), = value.items()
    if kind == "M":
        return {name: plain(it) for name, it in inner.items()}
    if kind == "L":
        return [plain(it) for it in inner]
    if kind == "N":
        return int(inner) if inner.lstrip("-").isdigit() else float(inner)
    return None if kind == "NULL" else inner
