"""A real Prometheus with the alarms of deploy/alerts, in which a minute is a second."""

import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

from scene import until

RULES = "deploy/alerts/shardmill.rules.yaml"
# An age of records in seconds, as the rules have it.
LAG_SECONDS = 300
SECONDS = {"s": 1, "m": 60, "h": 60 * 60, "d": 24 * 60 * 60}
START_SECONDS_MAX = 30

CONFIG = """
global: { scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }
rule_files: [rules.yaml]
scrape_configs:
  - job_name: shardmill
    file_sd_configs: [{ files: [targets.json], refresh_interval: 1s }]
"""


def in_seconds(rules):
    """The same rules with a second for each minute: nobody waits 20 minutes for a test."""

    def shorter(duration):
        before, count, unit = duration.groups()
        return f"{before}{int(count) * SECONDS[unit] * 1000 // 60}ms"

    shortened = re.sub(r"(\[|offset |for: )(\d+)([smhd])\b", shorter, rules)
    has_another_form = re.search(r"\b\d+[smhd]\b", re.sub(r"#.*", "", shortened))
    assert f"> {LAG_SECONDS}" in shortened and not has_another_form, "a rule has another form"
    return shortened.replace(f"> {LAG_SECONDS}", f"> {LAG_SECONDS // 60}")


def find(folder):
    """The one that is installed, or Debian's package, unpacked and not installed."""
    installed = shutil.which("prometheus")
    if installed:
        return installed
    if not shutil.which("apt-get"):
        sys.exit("no prometheus: install it, or run this on Debian")
    subprocess.run(["apt-get", "download", "prometheus"], cwd=folder, check=True, capture_output=True)
    package = next(folder.glob("prometheus_*.deb"))
    subprocess.run(["dpkg-deb", "-x", package, "prometheus"], cwd=folder, check=True)
    return folder / "prometheus/usr/bin/prometheus"


class Prometheus:
    """Scrapes hosts each second and says which alarms fire."""

    def __init__(self, folder, root):
        self.folder = folder / "prometheus-data"
        self.folder.mkdir(parents=True)
        self.targets, self.lock, self.started = {}, threading.Lock(), time.time()
        (self.folder / "rules.yaml").write_text(in_seconds((Path(root) / RULES).read_text()))
        (self.folder / "prometheus.yml").write_text(CONFIG)
        self.write_targets()
        self.port = free_port()
        log = open(self.folder / "log", "wb")
        command = [find(folder), "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        until(START_SECONDS_MAX, "Prometheus answers", self.is_up)

    def is_up(self):
        try:
            return self.get("/-/ready") is not None
        except OSError:
            return False

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as reply:
            return reply.read().decode()

    def add(self, address, namespace):
        """Scrapes a host, of the fleet in that namespace: as operators of Prometheus name fleets."""
        with self.lock:
            self.targets[address] = namespace
            self.write_targets()

    def write_targets(self):
        groups = [{"targets": [address], "labels": {"namespace": of}} for address, of in sorted(self.targets.items())]
        new = self.folder / "targets.new"
        new.write_text(json.dumps(groups))
        new.rename(self.folder / "targets.json")

    def firing(self):
        """Labels of each alarm that fires now."""
        alerts = json.loads(self.get("/api/v1/alerts"))["data"]["alerts"]
        return [alert["labels"] for alert in alerts if alert["state"] == "firing"]

    def series(self, query):
        """How many series a query has had since the start."""
        times = {"start": self.started, "end": time.time(), "step": "2s"}
        reply = self.get("/api/v1/query_range?" + urllib.parse.urlencode({"query": query, **times}))
        return len(json.loads(reply)["data"]["result"])

    def stop(self):
        self.process.kill()
        self.process.wait()


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]
