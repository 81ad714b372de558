"""The consumers of the benchmark of peers: how each is built and started, and how far it is."""

import re
import shutil
import socket
import sys
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Short waits of a start on an empty table, as in the tests beside the KCL; while records flow they change nothing.
KCL_WAITS = {"failover-ms": 3000, "shard-sync-ms": 200, "dispatch-ms": 200}
SHARDMILL = """stream = "{stream}"
worker-id = "peer"
[host]
admin = "127.0.0.1:{port}"
cache = "off"
[aws]
region = "us-east-1"
kinesis-endpoint = "{kinesis}"
dynamodb-endpoint = "{dynamodb}"
wire = "{wire}"
[reads]
calls-per-second = 1000.0
bytes-per-second = "1TiB"
[plugin.noop]
application = "{application}"
"""
DAEMON = """executableName = {python} {processor} {seen}
processingLanguage = python/3
streamName = {stream}
applicationName = {application}
AwsCredentialsProvider = DefaultCredentialsProvider
regionName = us-east-1
kinesisEndpoint = {kinesis}
dynamoDBEndpoint = {dynamodb}
initialPositionInStream = TRIM_HORIZON
retrievalMode = POLLING
maxRecords = 10000
idleTimeBetweenReadsInMillis = 0
metricsLevel = NONE
failoverTimeMillis = 3000
shardSyncIntervalMillis = 200
"""


class Peer:
    """A consumer, started once: `arguments` and `environment` are what to start."""

    name, title, note = "", "", ""
    started = 0

    def __init__(self, builds, stack, folder):
        # Each start has a lease table of its own, and so begins at the beginning.
        Peer.started += 1
        self.application = f"{self.name}-{Peer.started}"
        self.folder, self.seen_in = folder, folder / "seen"
        self.seen_in.mkdir()
        # What a client needs that looks for credentials; the stack takes any.
        self.environment = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
        self.arguments = self.start(builds, stack)

    @staticmethod
    def build(builds):
        raise NotImplementedError

    def start(self, builds, stack):
        raise NotImplementedError

    def seen(self):
        """How many records it has seen. Most keep the number in a file, or in one for each shard."""
        return sum(int(file.read_text() or 0) for file in self.seen_in.iterdir())

    def log(self):
        return (self.folder / "log").read_text(errors="replace")


class Shardmill(Peer):
    wire = ""

    @staticmethod
    def build(builds):
        builds.shardmill()
        builds.component()

    def start(self, builds, stack):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        (self.folder / "plugins").mkdir()
        shutil.copy(builds.component(), self.folder / "plugins/noop.wasm")
        text = SHARDMILL.format(
            stream=stack.stream, port=self.port, kinesis=stack.kinesis, dynamodb=stack.dynamodb, wire=self.wire,
            application=self.application,
        )
        (self.folder / "shardmill.toml").write_text(text)
        return [builds.shardmill(), "run"]

    def seen(self):
        """What it has settled, which is later than seen."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as page:
                text = page.read().decode()
        except OSError:
            # Not yet listening.
            return 0
        numbers = re.findall(r"^shardmill_records_settled_total\S* (\S+)$", text, re.MULTILINE)
        return sum(int(float(number)) for number in numbers)


class ShardmillCbor(Shardmill):
    name, title, wire = "shardmill-cbor", "shardmill, CBOR", "cbor"


class ShardmillJson(Shardmill):
    name, title, wire = "shardmill-json", "shardmill, JSON", "json"


class Rust(Peer):
    program = ""

    @staticmethod
    def build(builds):
        builds.rust()

    def start(self, builds, stack):
        return [builds.rust() / self.program, stack.kinesis, stack.stream, self.seen_in / "all"]


class Raw(Rust):
    name, title, program = "raw", "loop over `aws-sdk-kinesis`, JSON", "raw"
    note = "no leases, no checkpoints, records are dropped"


class Ruststream(Rust):
    name, title, program = "ruststream", "`ruststream-kinesis` 0.7, JSON", "ruststream"
    note = "leases and checkpoints in memory; its queue of 64 records between reader and consumer cannot be set"


class Kcl(Peer):
    wire = ""

    @staticmethod
    def build(builds):
        builds.kcl()

    def start(self, builds, stack):
        settings = {
            "application": self.application,
            "stream": stack.stream,
            "worker": "peer",
            "output": self.seen_in / "all",
            "output-of": "count",
            "kinesis": stack.kinesis,
            "dynamodb": stack.dynamodb,
            "wire": self.wire,
            "records-per-call": 10000,
            "idle-ms": 0,
            **KCL_WAITS,
        }
        words = [f"{name}={value}" for name, value in settings.items()]
        return ["java", "-cp", f"{builds.kcl()}/*", "Consumer", *words]


class KclCbor(Kcl):
    name, title, wire = "kcl-cbor", "KCL 3.5 for Java, CBOR", "cbor"


class KclJson(Kcl):
    name, title, wire = "kcl-json", "KCL 3.5 for Java, JSON", "json"


class MultiLang(Peer):
    name, title = "multilang", "MultiLangDaemon 3.5 (CBOR) with `amazon_kclpy` 3.2"

    @staticmethod
    def build(builds):
        builds.multilang()
        builds.kclpy()

    def start(self, builds, stack):
        text = DAEMON.format(
            python=sys.executable, processor=HERE / "processor.py", seen=self.seen_in, stream=stack.stream,
            application=self.application, kinesis=stack.kinesis, dynamodb=stack.dynamodb,
        )
        (self.folder / "daemon.properties").write_text(text)
        self.environment["PYTHONPATH"] = str(builds.kclpy())
        daemon = "software.amazon.kinesis.multilang.MultiLangDaemon"
        return ["java", "-cp", f"{builds.multilang()}/*", daemon, "daemon.properties"]


PEERS = [ShardmillCbor, ShardmillJson, Raw, Ruststream, KclCbor, KclJson, MultiLang]
