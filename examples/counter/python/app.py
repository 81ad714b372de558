"""The component: what the host calls."""

from wit_world import exports
from wit_world.imports import emit, types

import outgoing
from shardmill_processor import reporting

# The state, which lasts from call to call, and what ends with the instance.
count = 0
failed = 0


class Processor(exports.Processor):
    @reporting
    def init(self, context):
        pass

    @reporting
    def process(self, batch):
        for record in batch.records:
            emit.put("stdout", record.partition_key, handle(record.data.decode()).encode())
        return types.Outcome([], types.Commit_All(), None)

    @reporting
    def close(self, reason):
        pass


class State(exports.State):
    @reporting
    def save(self):
        return str(count).encode()

    @reporting
    def load(self, state):
        global count
        count = int(state)


def handle(text):
    global count, failed
    if text == "fail":
        failed += 1
        raise RuntimeError(f"on purpose, {failed} times")
    if text.startswith("ask "):
        status, body = outgoing.send("GET", text.removeprefix("ask "))
        return f"{status} {body.decode()}"
    count += 1
    return f"{text} {count}"
