"""The real KCL: its libraries by Maven, our small applications by javac, and workers of them."""

import subprocess
from pathlib import Path

from fleet import FAILOVER_SECONDS
from scene import ROOT

HERE = Path(__file__).resolve().parent
CONSUMER = ROOT / "tests/kcl/consumer"
# Of each line of versions one; the nearest ones that the registry serves.
VERSIONS = ("1.14.10", "1.15.3", "2.2.11", "2.7.2", "3.5.1")
# A worker checkpoints every third batch, so that a killed one leaves something beyond its checkpoints.
CHECKPOINT_BATCHES = 3


class Kcl:
    """A version of the KCL, ready to run."""

    def __init__(self, version, folder):
        self.version, self.folder = version, folder / version
        self.is_one = version.startswith("1.")

    def build(self):
        """Maven itself knows what is up to date. Once everything is downloaded it needs no network."""
        pom = HERE / "one/pom.xml" if self.is_one else CONSUMER / "pom.xml"
        run([
            "mvn", "--batch-mode", "--quiet", "--no-transfer-progress", "package", "--file", pom,
            f"-Dkcl.version={self.version}", f"-Dbuild.to={self.folder}",
        ])
        sources = [CONSUMER / "src/Settings.java", *(HERE / "one").glob("*.java")] if self.is_one else []
        # Multi-stream mode came with 2.3.
        if not self.is_one and not self.version.startswith(("2.0.", "2.1.", "2.2.")):
            sources = [HERE / "many/Many.java"]
        if sources:
            run(["javac", "-nowarn", "-d", self.folder / "more", "-cp", f"{self.folder}/lib/*", *sources])

    def worker(self, fleet, name, table, more=()):
        """Starts a worker, in multi-stream mode where there are several streams; `more` are other settings, NAME=VALUE."""
        several = len(fleet.streams) > 1
        main = "One" if self.is_one else "Many" if several else "Consumer"
        streams = ",".join(map(fleet.identifier, fleet.streams)) if several else fleet.streams[0]
        # Started often and soon over: cheap code and a cheap collector.
        java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        java += ["-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS"]
        java += ["-cp", f"{self.folder}/more:{self.folder}/lib/*", main]
        return fleet.start(name, java + [
            f"application={table}",
            f"{'streams' if several else 'stream'}={streams}",
            f"worker={name}",
            f"output={fleet.folder / name}.ndjson",
            f"kinesis={fleet.stack.kinesis_url}",
            f"dynamodb={fleet.stack.dynamodb_url}",
            f"failover-ms={FAILOVER_SECONDS * 1000}",
            f"records-per-call={fleet.per_call}",
            f"checkpoint-batches={CHECKPOINT_BATCHES}",
            "stop-ms=5000",
            *more,
        ])


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
