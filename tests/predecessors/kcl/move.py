"""An application moves from the KCL to hosts of shardmill, and back."""

import time
from collections import Counter

from fleet import FAILOVER_SECONDS, Fleet
from kcl import Kcl
from scene import Stack

# One stream per airport: a flight says which one it is in.
SEVERAL = ["ewr", "jfk", "lga"]
ONE = ["flights"]
FAILOVER = f"{FAILOVER_SECONDS}s"
# The KCL would handle something twice soon after it began.
SETTLED_SECONDS = 2


class Move:
    """One version, one mode, one way to end."""

    def __init__(self, version, mode, end):
        self.version, self.mode, self.end = version, mode, end
        self.is_several = mode.startswith("multi-stream")
        # Positions are imported into tables of the hosts' own, and exported again.
        self.is_copied = mode == "multi-stream"
        self.name = f"kcl-{version}-{mode}-{end}"
        # Otherwise hosts use the table in place.
        self.kcl_table = "kcl-flights" if self.is_several else "flights"
        self.tables = [f"flights.{stream}" for stream in SEVERAL] if self.is_copied else [self.kcl_table]

    def run(self, folder, binary, plugin, classes):
        streams, shards = (SEVERAL, 2) if self.is_several else (ONE, 4)
        self.kcl = Kcl(self.version, classes)
        with Stack(binary, folder / self.name) as stack:
            fleet = Fleet(stack, plugin, streams, shards)
            try:
                return {"name": self.name} | self.there_and_back(fleet)
            finally:
                fleet.end()

    def there_and_back(self, fleet):
        """The KCL ends at half of the flights, hosts handle most of the rest, the KCL the last of them."""
        fleet.put(fleet.total * 5 // 6)
        first = self.kcl.worker(fleet, "kcl-1", self.kcl_table)
        # One more than half: with the sample, exactly half is often where all shards were just checkpointed.
        first.until_lines(fleet.total // 2 + 1)
        there = Step(fleet, [first], self.end, [self.kcl_table])
        self.ask_doctor(fleet)
        self.move_there(fleet)
        host = fleet.host("host-1", self.kcl_table if self.is_several and not self.is_copied else None)
        there.until_done(host)

        # The host ends in the middle of what is new, unless it is faster than this.
        wanted = host.lines() + fleet.total // 24
        fleet.put(fleet.total // 12)
        host.until_lines(wanted)
        back = Step(fleet, [first, host], self.end, self.tables)
        fleet.put(fleet.total)
        self.move_back(fleet)
        second = self.kcl.worker(fleet, "kcl-2", self.kcl_table)
        back.until_done(second)
        second.end("planned")
        self.check_carriers(fleet, [first, host, second])
        return {"there": there.figures, "back": back.figures}

    def ask_doctor(self, fleet):
        """As the page on moving says."""
        for stream in fleet.streams:
            done = fleet.stack.shardmill("doctor", self.kcl_table, "--stream", stream, "--failover-time", FAILOVER)
            # A table of several streams needs a decision: in place, or import.
            assert (done.returncode == 0) != self.is_several, done.stdout + done.stderr

    def move_there(self, fleet):
        for stream, table in zip(SEVERAL, self.tables) if self.is_copied else ():
            command = ["import", self.kcl_table, "--stream", stream, "--to", table, "--failover-time", FAILOVER]
            done = fleet.stack.shardmill(*command, "--apply")
            assert done.returncode == 0, done.stdout + done.stderr

    def move_back(self, fleet):
        for stream, table in zip(SEVERAL, self.tables) if self.is_copied else ():
            command = ["export", table, "--as", "kcl-multi-stream", "--to", self.kcl_table, "--stream", stream]
            done = fleet.stack.shardmill(*command, "--apply")
            assert done.returncode == 0, done.stdout + done.stderr

    def check_carriers(self, fleet, workers):
        """All lines count after planned ends; after kills, each record once."""
        lines = [line for worker in workers for line in fleet.handled(worker)]
        found = Counter(carrier for _, carrier in (lines if self.end == "planned" else dict(lines).items()))
        assert found == Counter(fleet.stored.values()), f"{found}"


class Step:
    """One side ends, the other goes on."""

    def __init__(self, fleet, workers, end, tables):
        self.fleet, self.workers, is_planned = fleet, workers, end == "planned"
        code = workers[-1].end(end)
        # Java ends with 143 by SIGTERM, however well it stopped.
        assert not is_planned or code in (0, 143), f"{workers[-1].name} ended with {code}"
        self.ended = time.monotonic()
        self.seen = fleet.times(workers)
        self.beyond = fleet.beyond(workers, fleet.checkpoints(tables))
        assert not is_planned or not self.beyond, f"{len(self.beyond)} were not checkpointed by a planned end"
        self.figures = {"handled": len(self.seen), "beyond": len(self.beyond)}

    def until_done(self, successor):
        successor.until_lines(1)
        self.figures["first_seconds"] = time.monotonic() - self.ended
        self.fleet.until_all_handled([*self.workers, successor])
        self.figures["all_seconds"] = time.monotonic() - self.ended
        time.sleep(SETTLED_SECONDS)
        self.judge(successor)

    def judge(self, successor):
        """Nothing is lost, and what comes again is exactly what was not checkpointed, once."""
        times = self.fleet.times([successor])
        again = {place for place in times if place in self.seen}
        put = self.fleet.stored.keys()
        self.figures |= {
            "repeated": len(again),
            "lost": len(put - self.seen.keys() - times.keys()),
            "never put": len(times.keys() - put),
            "twice at the successor": sum(times.values()) - len(times),
        }
        assert not any(list(self.figures.values())[-3:]), self.figures
        too_many, too_few = len(again - self.beyond), len(self.beyond - again)
        assert again == self.beyond, f"{self.figures}: {too_many} too many, {too_few} too few"


def all_moves(versions):
    """One stream with each version, several streams where the KCL can have them: since 2.3."""
    for version in versions:
        is_single = version.startswith(("1.", "2.2."))
        modes = ("one-stream",) if is_single else ("one-stream", "multi-stream", "multi-stream-in-place")
        for mode in modes:
            for end in ("planned", "killed"):
                yield Move(version, mode, end)
