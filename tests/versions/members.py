"""Hosts of either version in one fleet, and what they count."""

import json
import os
import signal
import subprocess
from collections import Counter

from scene import CREDENTIALS, REGION, until

SHARDS = 4
# Slow enough that everything happens in the middle of the flights.
SLOWLY = """
[reads]
calls-per-second = 10.0
records-per-call = 40
idle-every = "50ms"
"""
LEASES = '[leases]\nduration = "3s"\nscan-every = "200ms"'
STATEFUL = '[grants]\nstate = true\n[config]\ndestination = "out"\n'


class Member:
    """`shardmill run` of one version, as a host of a fleet. The next version in its place has the same folder."""

    def __init__(self, stack, folder, name, stream, plugins, settings=SLOWLY, cache="cache"):
        self.stack, self.name, self.folder = stack, name, folder / name
        (self.folder / "plugins").mkdir(parents=True)
        for file, content in plugins.items():
            content = content if isinstance(content, bytes) else content.encode()
            (self.folder / "plugins" / file).write_bytes(content)
        (self.folder / "shardmill.toml").write_text(f"""
stream = "{stream}"
worker-id = "{name}"
[aws]
region = "{REGION}"
kinesis-endpoint = "{stack.kinesis_url}"
dynamodb-endpoint = "{stack.dynamodb_url}"
[host]
cache = "{cache}"
{LEASES}
[checkpoint]
age = "300ms"
[sinks.out]
type = "file"
path = "lines.ndjson"
{settings}
""")
        self.process = None

    def start(self, binary):
        """Starts it; a version that runs is stopped first, as an upgrade does it."""
        if self.process:
            self.stop()
        log = open(self.folder / "log", "ab")
        log.write(f"--- {binary}\n".encode())
        log.flush()
        command = [str(binary), "run", "--config", "shardmill.toml"]
        streams = {"stdout": log, "stderr": log, "stdin": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, cwd=self.folder, env=os.environ | CREDENTIALS, **streams)
        return self

    def stop(self, how=signal.SIGTERM):
        """Stops it; what it ended with."""
        process, self.process = self.process, None
        process.send_signal(how)
        return process.wait(180)

    def log(self):
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def owns(self, application):
        rows = self.stack.rows(application)
        return [row["leaseKey"] for row in rows if row.get("leaseOwner") == self.name]


def command(stack, binary, folder, *args):
    """A command of one version against the stack; its output, or an error."""
    line = [str(binary), *args]
    if args[0] not in ("test", "check"):
        line += ["--region", REGION, "--kinesis-endpoint", stack.kinesis_url]
        line += ["--dynamodb-endpoint", stack.dynamodb_url]
    done = subprocess.run(line, cwd=folder, env=os.environ | CREDENTIALS, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(args)}: {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def counted(stack, binary, folder):
    """Flights by carrier, as the states of all shards count them."""
    counts = Counter()
    for row in stack.rows("totals"):
        if row.get("checkpoint", "").isdigit():
            state = command(stack, binary, folder, "state", "totals", "--shard", row["leaseKey"])
            counts.update({carrier: it["flights"] for carrier, it in json.loads(state).items()})
    return counts


def until_settled(stack, application, put):
    """Waits until each shard's checkpoint is at its last flight."""
    last = {}
    for flight in put:
        last[flight.shard] = max(last.get(flight.shard, 0), flight.sequence)

    def is_settled():
        rows = {row["leaseKey"]: row.get("checkpoint", "") for row in stack.rows(application)}
        places = [int(rows.get(shard, "")) if rows.get(shard, "").isdigit() else -1 for shard in last]
        return all(place >= wanted for place, wanted in zip(places, last.values()))

    return until("all flights are checkpointed", is_settled)
