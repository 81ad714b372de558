"""Fleets of both versions. A plugin with state counts flights by carrier: one that is lost, or comes twice, shows."""

import random
import signal
import time

from members import SHARDS, STATEFUL, Member, counted, until_settled
from scene import flights, until

FLIGHTS = 12_000
STEPS = 6


class Fleet:
    """Three hosts on one stream, each of either version."""

    def __init__(self, cast, stack, folder, cache="cache"):
        self.cast, self.stack, self.folder = cast, stack, folder
        stack.make_stream("flights", SHARDS)
        plugins = {"totals.toml": STATEFUL, "totals.wasm": cast.totals}
        names = [f"host-{number}" for number in range(3)]
        self.members = [Member(stack, folder, name, "flights", plugins, cache=cache) for name in names]
        self.put, self.left = [], flights(FLIGHTS)

    def more(self):
        """The next part of the flights."""
        size = FLIGHTS // STEPS
        part, self.left = self.left[:size], self.left[size:]
        self.put += self.stack.put("flights", part)

    def until_working(self, member):
        until(f"{member.name} works", lambda: member.owns("totals"), alive=member.process)

    def end(self):
        """Nothing may be lost or counted twice, as either version reads the states."""
        while self.left:
            self.more()
        until_settled(self.stack, "totals", self.put)
        for member in self.members:
            if member.process and member.stop() != 0:
                raise RuntimeError(f"{member.name} did not end well: {member.log()[-2000:]}")
        wanted = {}
        for flight in self.put:
            wanted[flight.carrier] = wanted.get(flight.carrier, 0) + 1
        wrong = []
        for version, binary in (("old", self.cast.old), ("new", self.cast.new)):
            found = dict(counted(self.stack, binary, self.folder))
            if found != wanted:
                wrong.append(f"the {version} version counts {sum(found.values())}: {found}")
        for member in self.members:
            wrong += [f"{member.name}: {line}" for line in troubles(member.log())]
        return f"{len(self.put):,} flights counted once", wrong


def troubles(log):
    """Lines that no version may write because of the other."""
    words = ("cannot be read", "panicked", "does not belong", "is not a row")
    return [line for line in log.splitlines() if any(word in line for word in words)][:3]


def forwards_and_back(cast, stack, folder):
    """One host after the other is upgraded while flights come, and then goes back."""
    fleet = Fleet(cast, stack, folder)
    for member in fleet.members:
        member.start(cast.old)
    fleet.more()
    fleet.until_working(fleet.members[0])
    for binary in (cast.new, cast.old):
        for member in fleet.members:
            member.start(binary)
            if fleet.left:
                fleet.more()
            fleet.until_working(member)
    return fleet.end()


def mixed_and_killed(cast, stack, folder):
    """Hosts of both versions beside each other are killed and come back as either."""
    # Without a cache no host remembers its deaths, and none blames the plugin for the kills.
    fleet = Fleet(cast, stack, folder, cache="off")
    dice = random.Random(7)
    for member, binary in zip(fleet.members, (cast.old, cast.new, cast.old)):
        member.start(binary)
    fleet.more()
    for turn in range(6):
        member = dice.choice(fleet.members)
        time.sleep(dice.uniform(0.5, 2))
        member.stop(signal.SIGKILL)
        if fleet.left:
            fleet.more()
        member.start((cast.new, cast.old)[turn % 2])
    said, wrong = fleet.end()
    return f"{said}, 6 kills", wrong


def new_table_old_host(cast, stack, folder):
    """The new version makes the tables, and the old one goes on alone: the way back."""
    return one_after_the_other(cast, stack, folder, cast.new, cast.old)


def old_table_new_host(cast, stack, folder):
    """The old version makes the tables, and the new one goes on alone."""
    return one_after_the_other(cast, stack, folder, cast.old, cast.new)


def one_after_the_other(cast, stack, folder, first, second):
    fleet = Fleet(cast, stack, folder)
    member = fleet.members[0].start(first)
    fleet.more()
    fleet.until_working(member)
    time.sleep(1)
    # With its cache, and what is kept beside it.
    member.start(second)
    fleet.more()
    return fleet.end()


FLEETS = {
    "forwards-and-back": forwards_and_back,
    "mixed-and-killed": mixed_and_killed,
    "old-tables-new-host": old_table_new_host,
    "new-tables-old-host": new_table_old_host,
}
