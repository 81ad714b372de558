"""The component: what the host calls. `processor.py` does the work."""

from wit_world import exports
from wit_world.imports import emit, store, types

from processor import handle
from shardmill_processor import refuse_unknown, reporting


class Processor(exports.Processor):
    # Each call gets a new `Processor`: keep in the module what must last.
    @reporting
    def init(self, context):
        global destination
        destination = store.get("destination") or "stdout"
        refuse_unknown(destination)

    @reporting
    def process(self, batch):
        failures = []
        for index, record in enumerate(batch.records):
            try:
                output = handle(record.data)
            except ValueError as error:
                failures.append(types.Failure(index, types.FailureKind.REJECT, str(error)))
                continue
            emit.put(destination, record.partition_key, output)
        return types.Outcome(failures, types.Commit_All(), None)

    @reporting
    def close(self, reason):
        pass
