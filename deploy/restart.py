#!/usr/bin/env python3
"""Restarts the pods of a Deployment as Kubernetes does, on real hosts, while records flow.

    deploy/restart.py MANIFESTS SHARDMILL PLUGINS

The manifests decide: how many pods there are, what is in their environment, when they count as ready, and how long they may
take to end. A new pod is started; once its probes say that it is ready, an old one gets SIGTERM, and SIGKILL when its grace
period is over. PLUGINS is the folder of the built test plugins. Needs PyYAML.

It is an error (exit code 1) if a record is lost or comes out twice, or if a pod has to be killed, be it one whose plugin does not
return.
"""

import base64
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
sys.dont_write_bytecode = True

from embedded_aws import Aws, start_stack  # noqa: E402

SHARDS = 8
RECORDS_A_SECOND = 500
# Kubernetes gives up a rollout that does not go on for so long (progressDeadlineSeconds).
READY_SECONDS_MAX = 600
# From the last record that is put; a lease that is given up is taken within two renewals.
OUT_SECONDS_MAX = 120
# For the hosts to share the shards out evenly.
SHARES_SECONDS = 15
TOKEN = "a-token-for-this-restart"


class Deployment:
    """What Kubernetes reads from the manifests."""

    def __init__(self, manifests):
        objects = {one["kind"]: one for one in yaml.safe_load_all(manifests.read_text()) if one}
        spec = objects["Deployment"]["spec"]
        update = spec["strategy"]["rollingUpdate"]
        if (update["maxSurge"], update["maxUnavailable"]) != (1, 0):
            sys.exit(f"not played here: a rolling update with {update}")
        pod = spec["template"]["spec"]
        self.pods = spec["replicas"]
        self.grace_seconds = pod["terminationGracePeriodSeconds"]
        self.container = pod["containers"][0]
        self.configuration = objects["ConfigMap"]["data"]["shardmill.toml"]


class Pod:
    """One host in a folder of its own that stands for its mounts, at an address of its own."""

    def __init__(self, deployment, number, folder, binary, plugin, endpoints, manifest=""):
        self.deployment, self.name = deployment, f"shardmill-{number}"
        self.folder = folder / self.name
        self.address = f"127.0.0.{10 + number}"
        self.is_ready, self.is_over = threading.Event(), threading.Event()
        self.is_killed = False
        self.mounts = {
            "/etc/shardmill": self.folder / "etc",
            "/plugins/plugins": self.folder / "plugins",
            "/run/secrets/shardmill": self.folder / "secrets",
            "/var/lib/shardmill": self.folder / "data",
        }
        for path in self.mounts.values():
            path.mkdir(parents=True)
        (self.folder / "etc/shardmill.toml").write_text(deployment.configuration)
        (self.folder / "plugins" / plugin.name).write_bytes(plugin.read_bytes())
        (self.folder / "plugins" / f"{plugin.stem}.toml").write_text(manifest)
        token = self.folder / "secrets/admin/token"
        token.parent.mkdir()
        token.write_text(TOKEN)
        self.output, self.log = self.folder / "stdout", self.folder / "stderr"
        self.start([str(binary), *deployment.container["args"]], self.environment(endpoints))

    def environment(self, endpoints):
        variables = {one["name"]: one.get("value", self.name) for one in self.deployment.container["env"]}
        for name, value in variables.items():
            for mounted, folder in self.mounts.items():
                value = value.replace(mounted, str(folder))
            variables[name] = value.replace("0.0.0.0", self.address)
        return variables | {
            "SHARDMILL_AWS__KINESIS_ENDPOINT": endpoints["kinesis"],
            "SHARDMILL_AWS__DYNAMODB_ENDPOINT": endpoints["dynamodb"],
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_EC2_METADATA_DISABLED": "true",
            "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
        }

    def start(self, command, environment):
        with open(self.output, "ab") as output, open(self.log, "ab") as log:
            streams = {"stdout": output, "stderr": log, "stdin": subprocess.DEVNULL}
            self.process = subprocess.Popen(command, cwd=self.folder, env=environment, **streams)
        threading.Thread(target=self.probe, daemon=True).start()

    def probe(self):
        """Asks the startup probe until it succeeds, then whether the pod is ready; it is killed if it never starts."""
        container = self.deployment.container
        if not self.comes_up(container["startupProbe"]):
            self.kill()
            return
        threading.Thread(target=self.keep_alive, args=[container["livenessProbe"]], daemon=True).start()
        self.keep_ready(container["readinessProbe"])

    def kill(self):
        self.is_killed = True
        self.process.kill()

    def comes_up(self, probe):
        for _ in range(probe["failureThreshold"]):
            if self.answers(probe):
                return True
            time.sleep(probe["periodSeconds"])
        return False

    def keep_alive(self, probe):
        failures = 0
        while not self.is_over.wait(probe["periodSeconds"]):
            failures = 0 if self.answers(probe) else failures + 1
            if failures >= probe["failureThreshold"] and not self.is_over.is_set():
                self.kill()
                return

    def keep_ready(self, probe):
        failures = 0
        while not self.is_over.is_set():
            if self.answers(probe):
                failures = 0
                self.is_ready.set()
            else:
                failures += 1
            if failures >= probe["failureThreshold"]:
                self.is_ready.clear()
            self.is_over.wait(probe["periodSeconds"])

    def answers(self, probe):
        try:
            # A probe without a time has a second.
            self.page(probe["httpGet"]["path"], probe.get("timeoutSeconds", 1))
            return True
        except (urllib.error.URLError, OSError):
            return False

    def page(self, path, seconds=10):
        """The text of an admin page; an error if its status is not below 400, as for a probe."""
        url = f"http://{self.address}:{self.deployment.container['ports'][0]['containerPort']}{path}"
        request = urllib.request.Request(url, headers={"authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, timeout=seconds) as reply:
            return reply.read()

    def until_ready(self):
        """How long it took."""
        began = time.monotonic()
        while not self.is_ready.wait(0.1):
            if self.process.poll() is not None or time.monotonic() - began > READY_SECONDS_MAX:
                sys.exit(f"{self.name} does not become ready:\n{self.log.read_text()[-4000:]}")
        return time.monotonic() - began

    def until_in_the_plugin(self):
        """Until a call of the plugin has lasted for a second on each shard."""
        began = time.monotonic()
        while time.monotonic() - began < OUT_SECONDS_MAX:
            plugins = json.loads(self.page("/status"))["plugins"].values()
            shards = [shard for plugin in plugins for shard in plugin["shards"].values()]
            if len(shards) == SHARDS and all(shard["stage"] == "in the plugin" and shard["stage-seconds"] > 1 for shard in shards):
                return
            time.sleep(0.2)
        sys.exit(f"{self.name} does not call its plugin:\n{self.log.read_text()[-4000:]}")

    def terminate(self):
        """As Kubernetes ends a pod: how long it took, and whether it ended by itself."""
        self.is_over.set()
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(self.deployment.grace_seconds)
            return time.monotonic() - began, True
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return time.monotonic() - began, False

    def lines(self):
        return self.output.read_text().splitlines()


class Feed:
    """Puts records that are all different, at a steady rate, until it is stopped."""

    def __init__(self, aws, stream):
        self.aws, self.stream, self.put = aws, stream, []
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.is_over.wait(0.1):
            first = len(self.put)
            lines = [json.dumps({"order": first + more}) for more in range(RECORDS_A_SECOND // 10)]
            records = [{"Data": base64.b64encode(line.encode()).decode(), "PartitionKey": line} for line in lines]
            reply = self.aws.kinesis("PutRecords", StreamName=self.stream, Records=records)
            assert reply["FailedRecordCount"] == 0, reply
            self.put += lines

    def stop(self):
        self.is_over.set()
        self.thread.join()
        return self.put


class Cluster:
    """The pods of one Deployment, those that have ended too."""

    def __init__(self, deployment, folder, binary, plugins, endpoints):
        self.deployment, self.folder, self.binary = deployment, folder, binary
        self.plugins, self.endpoints = plugins, endpoints
        self.pods = []

    def new_pod(self, plugin, manifest=""):
        component = self.plugins / f"{plugin}.wasm"
        pod = Pod(self.deployment, len(self.pods), self.folder, self.binary, component, self.endpoints, manifest)
        self.pods.append(pod)
        return pod

    def roll(self, running):
        """A rolling update with one pod more at a time: the new pods, and for each how long it took to be ready and its
        predecessor to end."""
        new, ready, ended = [], [], []
        for old in running:
            new.append(self.new_pod("echo"))
            ready.append(new[-1].until_ready())
            seconds, by_itself = old.terminate()
            ended.append(seconds)
            if not by_itself:
                sys.exit(f"{old.name} had to be killed after {seconds:.0f} s:\n{old.log.read_text()[-4000:]}")
        return new, ready, ended

    def came_out(self, put):
        """How often each line came out, once all are out or the time is over."""
        began = time.monotonic()
        while True:
            came = Counter(line for pod in self.pods for line in pod.lines())
            if len(came) >= len(put) or time.monotonic() - began > OUT_SECONDS_MAX:
                return came
            time.sleep(0.5)

    def end(self):
        for pod in self.pods:
            pod.is_over.set()
            pod.process.kill()
            pod.process.wait()


def loses_nothing(cluster):
    """Two rolling updates while records flow: one while shards still move to their hosts, one when each has its share."""
    running = [cluster.new_pod("echo") for _ in range(cluster.deployment.pods)]
    for pod in running:
        pod.until_ready()
    feed = Feed(Aws(cluster.endpoints), "orders")
    ready, ended = [], []
    for pause in (0, SHARES_SECONDS):
        time.sleep(pause)
        running, were_ready, had_ended = cluster.roll(running)
        ready, ended = ready + were_ready, ended + had_ended
    put = feed.stop()
    came = cluster.came_out(put)
    for pod in running:
        pod.terminate()
    lost, repeated = set(put) - set(came), [line for line, times in came.items() if times > 1]
    print(
        f"{len(ready)} pods replaced one by one, ready after {shown(ready)}, the old ones ended after {shown(ended)} of"
        f" {cluster.deployment.grace_seconds} s; {len(put)} records, {len(lost)} lost, {len(repeated)} repeated,"
        f" on {sum(bool(pod.lines()) for pod in cluster.pods)} pods"
    )
    killed = [pod.name for pod in cluster.pods if pod.is_killed]
    if killed:
        print(f"killed by a probe: {killed}")
    return not (lost or repeated or killed)


def ends_with_a_plugin_that_does_not_return(cluster):
    """What is between the drain limit and the grace period is enough."""
    stuck = cluster.new_pod("evil", '[limits]\nprocess-deadline = "1m"\n[config]\nmisbehave = "sleep"\n')
    stuck.until_ready()
    stuck.until_in_the_plugin()
    seconds, by_itself = stuck.terminate()
    how = "by itself" if by_itself else "KILLED"
    print(f"a pod whose plugin does not return ended {how} after {seconds:.1f} of {cluster.deployment.grace_seconds} s")
    return by_itself


def shown(seconds):
    return f"{min(seconds):.1f} to {max(seconds):.1f} s"


def main(manifests, binary, plugins):
    deployment = Deployment(pathlib.Path(manifests))
    binary, plugins = pathlib.Path(binary).resolve(), pathlib.Path(plugins).resolve()
    with tempfile.TemporaryDirectory(prefix="restart-") as folder:
        folder = pathlib.Path(folder)
        stack, endpoints = start_stack(str(binary), folder)
        cluster = Cluster(deployment, folder, binary, plugins, endpoints)
        try:
            Aws(endpoints).make_stream("orders", SHARDS)
            done = loses_nothing(cluster)
            done &= ends_with_a_plugin_that_does_not_return(cluster)
        finally:
            cluster.end()
            stack.kill()
            stack.wait()
    sys.exit(not done)


if __name__ == "__main__":
    main(*sys.argv[1:])
