"""The embedded Kinesis and DynamoDB, for scripts: drills, alarms, moves from other libraries."""

import base64
import json
import subprocess
import time
import urllib.request

START_SECONDS_MAX = 60


class Aws:
    """Calls the embedded stack as an SDK does; it checks no signature."""

    def __init__(self, endpoints):
        self.kinesis_url, self.dynamodb_url = endpoints["kinesis"], endpoints["dynamodb"]

    def kinesis(self, operation, **fields):
        return call(self.kinesis_url, f"Kinesis_20131202.{operation}", "1.1", fields)

    def dynamodb(self, operation, **fields):
        return call(self.dynamodb_url, f"DynamoDB_20120810.{operation}", "1.0", fields)

    def make_stream(self, name, shards):
        self.kinesis("CreateStream", StreamName=name, ShardCount=shards)
        while self.summary(name)["StreamStatus"] != "ACTIVE":
            time.sleep(0.1)

    def summary(self, name):
        return self.kinesis("DescribeStreamSummary", StreamName=name)["StreamDescriptionSummary"]

    def lines_in(self, name):
        """The data of all records of a stream."""
        lines = []
        for shard in self.kinesis("ListShards", StreamName=name)["Shards"]:
            start = {"StreamName": name, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
            at = self.kinesis("GetShardIterator", **start)["ShardIterator"]
            while True:
                reply = self.kinesis("GetRecords", ShardIterator=at)
                lines += [base64.b64decode(record["Data"]).decode() for record in reply["Records"]]
                at = reply.get("NextShardIterator")
                if not at or not reply["Records"]:
                    break
        return lines


def call(url, target, version, fields):
    signature = "AWS4-HMAC-SHA256 Credential=a/20260131/us-east-1/x/aws4_request, SignedHeaders=host, Signature=b"
    headers = {
        "content-type": f"application/x-amz-json-{version}",
        "x-amz-target": target,
        "x-amz-date": "20260131T000000Z",
        "authorization": signature,
    }
    request = urllib.request.Request(url, json.dumps(fields).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.loads(reply.read() or b"{}")


def start_stack(binary, folder):
    """An embedded stack in a process of its own that runs no plugin; the process, and where the services are."""
    (folder / "none").mkdir(parents=True, exist_ok=True)
    log = open(folder / "stack.log", "ab")
    command = [binary, "dev", "--data", "data", "--plugins", "none"]
    process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    endpoints = folder / "data/endpoints.json"
    began = time.monotonic()
    while not endpoints.exists():
        if process.poll() is not None or time.monotonic() - began > START_SECONDS_MAX:
            process.kill()
            raise RuntimeError("the embedded stack did not start: " + (folder / "stack.log").read_text())
        time.sleep(0.05)
    return process, json.loads(endpoints.read_text())
