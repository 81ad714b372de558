"""Files of each version, read by the other."""

import base64
import json

from members import SHARDS, STATEFUL, Member, command, until_settled
from scene import Flight, flights, until

FLIGHTS = 2_000
POISONED = 20
FAILURE = """
[config]
destination = "out"
[failure]
attempts = 2
on-exhausted = "dead-letter"
dead-letter = "dead"
"""
SINKS = '[sinks.dead]\ntype = "file"\npath = "dead.ndjson"\n'
# What every line of such a file has.
LETTER, CAPTURED = "shardmill-dead-letter", "shardmill-record"


def both_ways(cast, play):
    """Plays it with each version as the writer, and puts the answers together."""
    said, wrong = [], []
    for name, writer, reader in (("old to new", cast.old, cast.new), ("new to old", cast.new, cast.old)):
        answer, problems = play(name.replace(" ", "-"), writer, reader)
        said.append(f"{name}: {answer}")
        wrong += [f"{name}: {problem}" for problem in problems]
    return "; ".join(said), wrong


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def put_poison(stack, stream):
    """Records that the plugin dies of."""
    data = base64.b64encode(b'{"bad":"trap"}').decode()
    records = [{"PartitionKey": str(number), "Data": data} for number in range(POISONED)]
    places = stack.kinesis("PutRecords", StreamName=stream, Records=records)["Records"]
    return [Flight(0, "", place["ShardId"], int(place["SequenceNumber"])) for place in places]


def dead_letters(cast, stack, folder):
    """A host gives records up; the other version lists them and replays them into a stream."""

    def play(name, writer, reader):
        stream, back = f"poison-{name}", f"back-{name}"
        for made in (stream, back):
            stack.make_stream(made, SHARDS)
        plugins = {f"{stream}.toml": FAILURE, f"{stream}.wasm": cast.poison}
        member = Member(stack, folder, name, stream, plugins, SINKS).start(writer)
        until_settled(stack, stream, put_poison(stack, stream))
        member.stop()
        dead = member.folder / "dead.ndjson"
        listed = command(stack, reader, member.folder, "replay", "--list", str(dead))
        command(stack, reader, member.folder, "replay", "--to-stream", back, str(dead))
        came, letters = stack.lines_in(back), lines(dead)
        versions = {letter[LETTER] for letter in letters}
        wrong = [] if len(came) == len(letters) > 0 else [f"{len(letters)} letters, {len(came)} came back"]
        if "error" in listed:
            wrong.append(listed)
        return f"{len(letters)} letters of version {versions}", wrong

    return both_ways(cast, play)


def captures(cast, stack, folder):
    """Records that one version captured, in a dry run of the other."""
    stack.make_stream("captured", SHARDS)
    put = stack.put("captured", flights(FLIGHTS))

    def play(name, writer, reader):
        (folder / f"{name}.wasm").write_bytes(cast.flights)
        args = ("capture", "--stream", "captured", "--count", str(FLIGHTS))
        captured = folder / f"{name}.ndjson"
        captured.write_text(command(stack, writer, folder, *args))
        versions = {line[CAPTURED] for line in lines(captured)}
        out = command(stack, reader, folder, "test", f"{name}.wasm", "--captured", captured.name, "--json")
        summary = json.loads(out.splitlines()[-1])
        handled = json.dumps(summary)
        wrong = [] if len(lines(captured)) == len(put) else [f"{len(lines(captured))} captured of {len(put)}"]
        return f"{len(put):,} records of version {versions}, {len(handled)} bytes of summary", wrong

    return both_ways(cast, play)


def states(cast, stack, folder):
    """States that one version exported, taken over by hosts of the other, and where operators paused."""

    def play(name, writer, reader):
        stream = f"totals-{name}"
        stack.make_stream(stream, SHARDS)
        plugins = {f"{stream}.toml": STATEFUL, f"{stream}.wasm": cast.totals}
        member = Member(stack, folder, name, stream, plugins, "").start(writer)
        put = stack.put(stream, flights(FLIGHTS))
        until_settled(stack, stream, put)
        member.stop()
        exported = folder / f"{name}.states"
        command(stack, writer, folder, "state", "export", stream, "--out", str(exported))
        member.start(reader)
        until("it works", lambda: len(member.owns(stream)) == SHARDS, alive=member.process)
        args = ("state", "import", stream, str(exported), "--go-back", "--why", "a test", "--apply")
        command(stack, reader, folder, *args)
        member.stop()
        return f"{len(lines(exported))} states", []

    return both_ways(cast, play)


FILES = {"dead-letters": dead_letters, "captures": captures, "states": states}
