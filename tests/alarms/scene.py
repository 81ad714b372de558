"""Hosts on a stream of their own, with something between them and AWS that can be broken. A scene knows no alarm."""

import base64
import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

from embedded_aws import Aws
from outage import Endpoint, Proxy

# A few records a second for each shard: enough to see what makes no progress.
PUT_EVERY_SECONDS = 0.2
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 60

CONFIG = """
stream = "{name}"
worker-id = "{host}"
[aws]
region = "us-east-1"
kinesis-endpoint = "{kinesis}"
dynamodb-endpoint = "{dynamodb}"
[host]
admin = "127.0.0.1:0"
cache = "{cache}"
{more_host}
[leases]
duration = "3s"
shard-sync-every = "3s"
{more_leases}
[sinks.out]
type = "http"
url = "{sink}"
[plugin.{name}.config]
destination = "out"
{more}
"""


class Host:
    """`shardmill run` with one plugin."""

    def __init__(self, folder, binary, plugin_name, plugin, config):
        self.folder, self.binary, self.plugin_name = folder, binary, plugin_name
        (folder / "plugins").mkdir(parents=True)
        (folder / "shardmill.toml").write_text(config)
        self.replace(plugin)
        self.start()

    def replace(self, plugin):
        """As an operator would: the whole file at once."""
        new = self.folder / "new"
        new.write_bytes(plugin)
        new.rename(self.folder / "plugins" / f"{self.plugin_name}.wasm")

    def start(self):
        environment = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        environment |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
        log = open(self.folder / "log", "wb")
        command = [str(self.binary), "run", "--config", "shardmill.toml"]
        streams = {"stdout": log, "stderr": log, "stdin": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, cwd=self.folder, env=environment, **streams)
        until(START_SECONDS_MAX, "the host serves its pages", lambda: self.address() or self.process.poll() is not None)
        if self.address() is None:
            raise RuntimeError(f"the host did not start: {self.log()}")

    def log(self):
        return (self.folder / "log").read_text(errors="replace")

    def address(self):
        found = re.search(r"http://(127\.0\.0\.1:\d+)/status", self.log())
        return found and found.group(1)

    def metrics(self):
        with urllib.request.urlopen(f"http://{self.address()}/metrics", timeout=5) as reply:
            return reply.read().decode()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Scene:
    """A stream, what stands between hosts and AWS, a sink, and records that come all the time."""

    def __init__(self, name, folder, binary, endpoints, shards=2):
        self.name, self.folder, self.binary = name, folder / name, binary
        self.aws = Aws(endpoints)
        self.kinesis, self.dynamodb = Proxy(endpoints["kinesis"]), Proxy(endpoints["dynamodb"])
        self.sink = Endpoint()
        self.hosts = []
        self.aws.make_stream(name, shards)
        self.is_over = threading.Event()
        # What is added to each record; set by a scene to change what is put.
        self.more_fields = {}
        threading.Thread(target=self.keep_putting, daemon=True).start()

    def add_host(self, plugin, more="", more_host="", more_leases=""):
        host = f"host-{len(self.hosts) + 1}"
        config = CONFIG.format(
            name=self.name, host=host, kinesis=self.kinesis.url, dynamodb=self.dynamodb.url, sink=self.sink.url,
            cache=self.folder.parent / "compiled", more=more, more_host=more_host, more_leases=more_leases,
        )
        started = Host(self.folder / host, self.binary, self.name, plugin, config)
        self.hosts.append(started)
        return started

    def keep_putting(self):
        number = 0
        while not self.is_over.wait(PUT_EVERY_SECONDS):
            records = []
            for _ in range(8):
                number += 1
                line = json.dumps({"carrier": f"R{number}", **self.more_fields}, separators=(",", ":"))
                records.append({"Data": base64.b64encode(line.encode()).decode(), "PartitionKey": f"{number}"})
            try:
                self.aws.kinesis("PutRecords", StreamName=self.name, Records=records)
            except (urllib.error.URLError, OSError):
                continue

    def until_flowing(self):
        """Until records come out: the host works."""
        begun = len(self.sink.lines)
        until(START_SECONDS_MAX, "records come out", lambda: len(self.sink.lines) > begun + 20)

    def heal(self):
        for broken in (self.kinesis, self.dynamodb, self.sink):
            broken.heal()

    def end(self):
        self.is_over.set()
        self.heal()
        for host in self.hosts:
            host.stop()


def until(seconds, what, is_so):
    """Waits until it is so; returns the seconds that it took."""
    began = time.monotonic()
    while not is_so():
        if time.monotonic() - began > seconds:
            raise RuntimeError(f"not within {seconds} s: {what}")
        time.sleep(0.1)
    return time.monotonic() - began
