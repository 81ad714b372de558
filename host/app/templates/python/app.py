"""The component: what the host calls. `processor.py` does the work."""

import functools
import traceback

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import emit, store, types

from processor import handle


def reporting(call):
    """Reports an exception to the host as an error. One that escapes would trap and cost the instance."""

    @functools.wraps(call)
    def wrapper(*arguments):
        try:
            return call(*arguments)
        except (Exception, SystemExit) as error:
            if isinstance(error, Err) and isinstance(error.value, types.Error):
                raise
            trace = "".join(traceback.format_tb(error.__traceback__))
            raise Err(types.Error_Other(f"{error!r}\n{trace}"))

    return wrapper


def refuse_unknown(destination):
    """Refuses what names no sink of the host before the first record needs it."""
    known = store.get("shardmill.destinations")
    if known is not None and destination not in known.split(","):
        raise Err(types.Error_Misconfigured(
            f"`destination` is {destination!r}, which names no sink of the host; there are: {known}"))


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
