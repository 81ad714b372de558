"""The component: what the host calls. `carriers.py` does the work.

Configuration: `destination` (default `stdout`).
"""

import functools
import traceback

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import emit, store, types

from carriers import summarize


def reporting(call):
    """Reports an exception to the host as an error. One that escapes would trap and cost the instance."""

    @functools.wraps(call)
    def wrapper(*arguments):
        try:
            return call(*arguments)
        except Exception as error:
            if isinstance(error, Err) and isinstance(error.value, types.Error):
                raise
            trace = "".join(traceback.format_tb(error.__traceback__))
            raise Err(types.Error_Other(f"{error!r}\n{trace}"))

    return wrapper


class Processor(exports.Processor):
    # Each call gets a new `Processor`: keep in the module what must last.
    @reporting
    def init(self, context):
        global destination
        destination = store.get("destination") or "stdout"

    @reporting
    def process(self, batch):
        lines, rejects = summarize(record.data for record in batch.records)
        for carrier, line in lines.items():
            emit.put(destination, carrier, line)
        failures = [types.Failure(index, types.FailureKind.REJECT, reason) for index, reason in rejects]
        return types.Outcome(failures, types.Commit_All(), None)

    @reporting
    def close(self, reason):
        pass
