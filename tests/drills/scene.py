"""One host with its stream and its proxies, and what it and the commands report during the outage."""

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
from outage import Endpoint, Proxy, Role

SHARDS = 2
# Ten records a second and shard are enough to see what makes progress.
PUT_EVERY_SECONDS = 0.2
LOOK_EVERY_SECONDS = 0.25


class Scene:
    """A host with its own stream, tables, proxies, sink and folder."""

    def __init__(self, name, folder, binary, plugin, endpoints):
        self.name, self.folder, self.binary = name, folder, binary
        self.endpoints = endpoints
        self.aws = Aws(endpoints)
        self.kinesis, self.dynamodb = Proxy(endpoints["kinesis"]), Proxy(endpoints["dynamodb"])
        self.sink, self.role = Endpoint(), Role()
        self.out = folder / "out" / "lines.ndjson"
        self.out_stream = f"{name}-out"
        self.reads_sink = self.lines_of_file
        self.host = None
        self.admin = None
        self.put_lines = []
        self.is_putting = threading.Event()
        self.environment = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        self.wrap = []
        self.sync_every = "1m"
        self.asked_shard = "0"
        self.kinesis_url, self.dynamodb_url = self.kinesis.url, self.dynamodb.url
        # Requests that a drill refused: 0 means that the host sent none.
        self.refused = 0
        (folder / "plugins").mkdir(parents=True)
        self.out.parent.mkdir()
        (folder / "plugins" / f"{name}.wasm").write_bytes(plugin)
        self.aws.make_stream(name, SHARDS)

    def write_config(self, sink, plugin=""):
        (self.folder / "shardmill.toml").write_text(f"""
stream = "{self.name}"
worker-id = "host-1"
[aws]
region = "us-east-1"
kinesis-endpoint = "{self.kinesis_url}"
dynamodb-endpoint = "{self.dynamodb_url}"
[host]
admin = "127.0.0.1:0"
cache = "{self.folder.parent}/compiled"
[leases]
shard-sync-every = "{self.sync_every}"
[sinks.out]
{sink}
[plugin.{self.name}.config]
destination = "out"
{plugin}
""")

    def start_host(self):
        environment = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        environment |= {"AWS_EC2_METADATA_DISABLED": "true"} | self.environment
        self.log = open(self.folder / "log", "ab")
        self.host = subprocess.Popen(
            [*self.wrap, str(self.binary), "run", "--config", "shardmill.toml"],
            cwd=self.folder, env=environment, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL,
        )
        self.started = time.monotonic()
        for _ in range(600):
            found = re.search(r"http://(127\.0\.0\.1:\d+)/status", self.log_text())
            if found or self.host.poll() is not None:
                break
            time.sleep(0.1)
        self.admin = found and found.group(1)

    def log_text(self):
        return (self.folder / "log").read_text(errors="replace")

    def start_putting(self):
        self.is_putting.set()
        threading.Thread(target=self.keep_putting, daemon=True).start()

    def keep_putting(self):
        while self.is_putting.is_set():
            # Each has a different carrier, so the plugin with state counts each to one.
            lines = [json.dumps({"carrier": f"R{len(self.put_lines) + more}", "dep_delay": 0}) for more in range(4)]
            records = [
                {"Data": base64.b64encode(line.encode()).decode(), "PartitionKey": line} for line in lines
            ]
            try:
                reply = self.aws.kinesis("PutRecords", StreamName=self.name, Records=records)
            except (urllib.error.URLError, OSError):
                # The stream is away: nothing is stored, so nothing can come out.
                time.sleep(PUT_EVERY_SECONDS)
                continue
            assert reply["FailedRecordCount"] == 0
            self.put_lines += lines
            time.sleep(PUT_EVERY_SECONDS)

    def lines_of_file(self):
        lines = []
        for path in sorted(self.out.parent.glob("lines.ndjson*")):
            lines += path.read_text().splitlines()
        return lines

    def page(self, path):
        """Status code and text of an admin page; code 0 if it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=2) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except (urllib.error.URLError, OSError):
            return 0, ""

    def command(self, *args):
        """What a command says that asks the services themselves: it meets no outage."""
        done = self.run_command(args, self.aws.kinesis_url, self.aws.dynamodb_url)
        return done.stdout + ("" if done.returncode == 0 else done.stderr)

    def run_command(self, args, kinesis_url, dynamodb_url):
        local = ["--region", "us-east-1", "--kinesis-endpoint", kinesis_url, "--dynamodb-endpoint", dynamodb_url]
        environment = os.environ | {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        return subprocess.run(
            [str(self.binary), *args, *local], cwd=self.folder, env=environment, capture_output=True, text=True,
        )

    def check_status(self, words):
        """What is wrong with `status --check`, which meets the same outage as the host; `None` if nothing is."""
        done = self.run_command(("status", self.name, "--check"), self.kinesis_url, self.dynamodb_url)
        said = done.stdout + done.stderr
        if done.returncode == 1 and re.search(words, said, re.IGNORECASE):
            return None
        return f"status --check ends with {done.returncode}: {said[:300]}"

    def stop(self):
        """Stops the host as an operator would; returns its exit code, or -9 if it had to be killed."""
        self.is_putting.clear()
        if self.host and self.host.poll() is None:
            self.host.send_signal(signal.SIGTERM)
            try:
                self.host.wait(60)
            except subprocess.TimeoutExpired:
                self.host.kill()
        return self.host.wait() if self.host else None


class Signs:
    """Polls all signs; keeps what each said, and since when."""

    NAMES = ("/live", "/ready", "/status", "/metrics", "explain", "leases")

    def __init__(self, scene):
        self.scene = scene
        self.is_over = threading.Event()
        self.began = time.monotonic()
        # By sign: (seconds since the beginning, text), one for each change of the text.
        self.said = {name: [] for name in self.NAMES}
        self.threads = [threading.Thread(target=look, daemon=True) for look in (self.pages, self.explain, self.leases)]
        for thread in self.threads:
            thread.start()

    def note(self, name, text, at=None):
        said = self.said[name]
        if not said or said[-1][1] != text:
            said.append(((at or time.monotonic()) - self.began, text))

    def pages(self):
        while not self.is_over.is_set():
            for name, shown in (("/live", short), ("/ready", short), ("/status", troubles), ("/metrics", gauges)):
                status, text = self.scene.page(name)
                self.note(name, shown(status, text))
            self.is_over.wait(LOOK_EVERY_SECONDS)

    def explain(self):
        scene = self.scene
        while not self.is_over.is_set():
            asked = ("explain", scene.name, scene.asked_shard)
            text = scene.command(*asked, "--stream", scene.name)
            told = [line.split(maxsplit=1) for line in text.splitlines()]
            whys = [words[1] for words in told if words[:1] in (["why"], ["note"]) and len(words) == 2]
            self.note("explain", " | ".join(whys) or last_line(text))
            self.is_over.wait(1)

    def leases(self):
        while not self.is_over.is_set():
            text = self.scene.command("leases", self.scene.name)
            self.note("leases", text.strip() or "nothing")
            self.is_over.wait(2)

    def first(self, name, pattern):
        """When the sign first contained the words, and what it said."""
        for at, text in list(self.said[name]):
            if re.search(pattern, text, re.IGNORECASE | re.DOTALL):
                return at, text
        return None

    def end(self):
        self.is_over.set()
        for thread in self.threads:
            thread.join()


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "nothing"


def short(status, text):
    return f"{status} {' | '.join(text.split(chr(10))).strip(' |')}"


def troubles(status, text):
    """The problems on the status page."""
    if status != 200:
        return f"{status}"
    found = []
    for plugin in json.loads(text)["plugins"].values():
        for key in ("not-served", "cannot-write", "pass-error", "refused-settings"):
            if plugin.get(key):
                found.append(f"{key}: {plugin[key]}")
        if plugin.get("waits-on"):
            found.append(f"waits-on: {plugin['waits-on']['stage']}")
        for of in plugin.get("shards", {}).values():
            if of["state"] in ("released", "lost", "gave-up"):
                found.append(f"{of['state']}")
                continue
            if of.get("blocked"):
                found.append(f"blocked by {of['blocked']['why']}: {of['blocked']['reason']}")
            for key in ("read-error", "waits-for"):
                if of.get(key):
                    found.append(f"{key}: {of[key]}")
    return " | ".join(dict.fromkeys(found)) or "nothing is wrong"


def gauges(status, text):
    """The series that are above zero only while something is wrong."""
    if status != 200:
        return f"{status}"
    alarms = ("shardmill_shard_blocked{", "shardmill_shard_unreadable{")
    found = []
    for line in text.splitlines():
        is_unready = line.startswith("shardmill_ready{") and line.endswith(" 0")
        if is_unready or line.startswith(alarms) and not line.endswith(" 0"):
            name = re.sub(r',?(plugin|shard)="[^"]*",?', "", line.removeprefix("shardmill_"))
            found.append(name.replace("{}", ""))
    return " ".join(dict.fromkeys(found)) or "nothing"
