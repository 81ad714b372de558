"""Moves from a library to a host and back. A library is described to these by a `Library`; they know none of them."""

import random
import re
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

from scene import Balance, Host, count_lines, flights, read_lines, start, stop, until

SHARDS = 4
FLIGHTS = 12_000
# So many of them are put while nobody is at work.
LATER = 1_000
# After every sequence number: the checkpoint of a shard that was read to its end.
FINISHED = 10**80
# Slow enough to be stopped in the middle.
SLOWLY = "[batch]\nrecords = 50\n[reads]\ncalls-per-second = 5.0\nrecords-per-call = 100"


@dataclass
class Library:
    """A library as these moves need it."""

    # As `shardmill export --as` names it.
    code: str
    version: str
    # The program around it. It ends by itself after SIGTERM, once it has stopped the library as planned.
    command: list
    # From an application's name: the name that `import` and `export` take.
    table: Callable[[str], str]
    # From a stack and an application: the last sequence number that is done, by shard, of those that have one.
    checkpoints: Callable
    # How long a silent worker counts as alive; the library's own default if empty.
    failover: str = ""
    # Further arguments of `import` and `export`, from an application's name.
    arguments: Callable[[str], list] = lambda application: []
    # Whether a planned stop must lose nothing and repeat nothing.
    stops_exactly: bool = True
    # Settings of the program, as variables.
    settings: dict = field(default_factory=dict)


@dataclass
class Move:
    """What came out."""

    library: Library
    what: str
    balance: Balance
    # Flights that must come twice, and those that must be lost, by the library's own checkpoints at its end.
    due_twice: set = field(default_factory=set)
    due_lost: set = field(default_factory=set)
    # From the library's end to the end of `import --watch`, or of `export`.
    import_seconds: float = 0
    export_seconds: float = 0
    problems: list = field(default_factory=list)

    def check(self):
        """Everything that is not as it must be."""
        balance, wrong = self.balance, list(self.problems)
        if balance.repeated != self.due_twice:
            wrong.append(f"{len(balance.repeated)} flights came again, not the {len(self.due_twice)} that had to")
        if max(balance.times.values()) > 2:
            wrong.append("a flight came more than twice")
        if balance.lost != self.due_lost:
            wrong.append(f"{len(balance.lost)} flights are lost, not the {len(self.due_lost)} that the library skipped")
        if balance.is_exact and balance.carriers_handled() != balance.carriers():
            wrong.append("the counts by carrier differ")
        return wrong


class Play:
    """One stream, an application of a library on it, and the application that continues it."""

    def __init__(self, stack, library, plugin, folder, name):
        self.stack, self.library, self.plugin = stack, library, plugin
        self.folder = Path(folder).resolve()
        self.folder.mkdir(parents=True)
        self.stream, self.old, self.new = f"{name}-stream", f"{name}-old", f"{name}-new"
        self.out = self.folder / "library.ndjson"
        self.table = library.table(self.old)
        self.put, self.problems, self.began = [], [], 0
        stack.make_stream(self.stream, SHARDS)

    def feed(self, count):
        self.put += self.stack.put(self.stream, flights(count, start=len(self.put)))

    def reshard(self):
        """Splits the first shard and merges the last two."""
        kinesis, shards = self.stack.kinesis, self.stack.kinesis("ListShards", StreamName=self.stream)["Shards"]
        start, end = (int(shards[0]["HashKeyRange"][f"{side}HashKey"]) for side in ("Starting", "Ending"))
        first, last, before = shards[0]["ShardId"], shards[-1]["ShardId"], shards[-2]["ShardId"]
        middle = str((start + end) // 2)
        kinesis("SplitShard", StreamName=self.stream, ShardToSplit=first, NewStartingHashKey=middle)
        self.until_active()
        kinesis("MergeShards", StreamName=self.stream, ShardToMerge=before, AdjacentShardToMerge=last)
        self.until_active()

    def until_active(self):
        until("the stream is active", lambda: self.stack.summary(self.stream)["StreamStatus"] == "ACTIVE")

    def start_library(self):
        settings = {"STREAM": self.stream, "APPLICATION": self.old, "OUT": self.out} | self.library.settings
        return start(self.stack, self.library.command, self.folder, self.folder / "library.log", settings)

    def until_library(self, count, program):
        until(f"the library handles {count} flights", lambda: count_lines(self.out) >= count, alive=program)

    def until_host(self, count, host):
        until(f"the host handles {count} flights", lambda: host.count() >= count, alive=host.process)

    def doctor(self):
        """Whether `doctor` says whose table it is."""
        # Its answer is about the whole table; one look is enough to recognise it.
        said = self.stack.shardmill("doctor", self.table, "--stream", self.stream, "--watch-for", "0s")
        self.note("doctor", said)
        if self.library.code not in said.stdout.lower().replace(" ", "-"):
            self.problems.append(f"doctor does not name {self.library.code}")

    def start_import(self):
        """Waits as the page on migration says: the import is started while the old fleet is still at work."""
        arguments = ["import", self.table, "--stream", self.stream, "--to", self.new, "--watch"]
        arguments += self.library.arguments(self.old)
        if self.library.failover:
            arguments += ["--failover-time", self.library.failover]
        return self.stack.start_shardmill(*arguments)

    def end_library(self, program, count, how):
        """Ends the library at so many flights, beside a waiting import; the seconds until the rows were written."""
        self.until_library(count // 2, program)
        self.doctor()
        waiting = self.start_import()
        self.until_library(count, program)
        if waiting.poll() is not None or self.stack.rows(self.new):
            self.problems.append("the import did not wait for the library's end")
        if how == signal.SIGKILL:
            # Anywhere in what the library does, and not always just after it wrote.
            time.sleep(random.random())
        code = stop(program, how)
        if code != (0 if how == signal.SIGTERM else -how):
            self.problems.append(f"the library's program ended with {code}")
        ended = time.monotonic()
        stdout, stderr = waiting.communicate()
        seconds = time.monotonic() - ended
        (self.folder / "import.txt").write_text(stdout + stderr)
        if waiting.returncode:
            self.problems.append(f"import: exit code {waiting.returncode}: {stderr.strip()}")
        return seconds

    def host(self, settings=""):
        return Host(self.stack, self.folder / "host", self.stream, self.plugin, self.new, settings)

    def finish_with_host(self, count):
        """A host handles so many flights, all that are left; what it handled."""
        host = self.host()
        self.until_host(count, host)
        # Whatever comes too often would come now.
        time.sleep(3)
        if host.stop():
            self.problems.append("the host did not end well")
        return host.handled()

    def export(self):
        """The way back; the seconds that it took."""
        began = time.monotonic()
        arguments = ["export", self.new, "--as", self.library.code, "--to", self.table, "--stream", self.stream]
        said = self.stack.shardmill(*arguments, *self.library.arguments(self.old), "--apply")
        self.note("export", said)
        if said.returncode:
            self.problems.append(f"export: exit code {said.returncode}: {said.stderr.strip()}")
        return time.monotonic() - began

    def note(self, name, said):
        (self.folder / f"{name}.txt").write_text(said.stdout + said.stderr)

    def move(self, what, host_handled, **more):
        balance = Balance(self.put, {"library": read_lines(self.out), "host": host_handled})
        return Move(self.library, what, balance, problems=self.problems, **more)


def planned(play):
    """The library is stopped in the middle, and a host does the rest, with flights that were put after the stop."""
    play.feed(FLIGHTS - LATER)
    program = play.start_library()
    seconds = play.end_library(program, FLIGHTS // 2, signal.SIGTERM)
    play.feed(LATER)
    return exactly(continued(play, "stopped as planned", seconds))


def killed(play):
    """The library is killed in the middle."""
    play.feed(FLIGHTS)
    program = play.start_library()
    return continued(play, "killed", play.end_library(program, FLIGHTS // 2, signal.SIGKILL))


def resharded(play):
    """As planned, on a stream with a split and a merge: some parents are read, some children are not begun."""
    play.feed(FLIGHTS // 2)
    play.reshard()
    play.feed(FLIGHTS // 2 - LATER)
    program = play.start_library()
    seconds = play.end_library(program, FLIGHTS // 2, signal.SIGTERM)
    play.feed(LATER)
    return exactly(continued(play, "stopped after a split and a merge", seconds))


def exactly(move):
    """What a planned stop must be."""
    if move.library.stops_exactly and not move.balance.is_exact:
        move.problems.append("a planned stop is not exact")
    return move


def continued(play, what, seconds):
    """A host does the rest. What is due follows from where the library said that it was."""
    # The library is gone, so its table does not change any more.
    after = Balance(play.put, {}).after(play.library.checkpoints(play.stack, play.old))
    move = play.move(what, play.finish_with_host(len(after)), import_seconds=seconds)
    handled = set(move.balance.numbers["library"])
    move.due_twice = handled & after
    move.due_lost = {it.number for it in play.put} - handled - after
    return move


def there_and_back(play):
    """A library does the first third, a host the second, and the library the rest."""
    play.feed(FLIGHTS - LATER)
    program = play.start_library()
    seconds = play.end_library(program, FLIGHTS // 3, signal.SIGTERM)
    host = play.host(SLOWLY)
    play.until_host(FLIGHTS // 3, host)
    if host.stop():
        play.problems.append("the host did not end well")
    export_seconds = play.export()
    play.feed(LATER)
    program = play.start_library()
    play.until_library(FLIGHTS - host.count(), program)
    time.sleep(3)
    if stop(program, signal.SIGTERM):
        play.problems.append("the library's program did not end well")
    return play.move("there and back", host.handled(), import_seconds=seconds, export_seconds=export_seconds)


HEAD = """| Library | It is | Put | By the library | By the host | Twice | Lost | Import, export |
|---|---|---|---|---|---|---|---|
"""
MOVES = {"planned": planned, "killed": killed, "resharded": resharded, "back": there_and_back}


def as_row(move):
    """A row of the table in the README."""
    balance = move.balance
    library, host = len(balance.numbers["library"]), len(balance.numbers["host"])
    seconds = f"{move.import_seconds:.1f} s" + (f", {move.export_seconds:.1f} s" if move.export_seconds else "")
    counts = f"{len(balance.put):,} | {library:,} | {host:,} | {len(balance.repeated):,} | {len(balance.lost):,}"
    return f"| {move.library.code} {move.library.version} | {move.what} | {counts} | {seconds} |"


def slug(text):
    return re.sub("[^a-z0-9]+", "-", text.lower())
