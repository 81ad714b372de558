"""What a KCL in multi-stream mode does with rows of its table that somebody else wrote: prints what it sees.

Each chapter changes rows as another program would, and then tells for a while which leases changed hands, which rows
vanished, and what the KCL's log complains about. Nothing is judged here.
"""

import re
import threading
import time

from fleet import PATIENCE_SECONDS, Fleet
from kcl import Kcl
from move import SEVERAL
from scene import Stack, until

TABLE = "kcl-flights"
LOOK_EVERY_SECONDS = 0.5
RENEW_EVERY_SECONDS = 1
# The leader of a KCL 3.x assigns every two failover times; workers look for what they got a little less often.
CHAPTER_SECONDS = 45
# Attributes that hosts write on rows of leases, one of each type.
EXTRA = {
    "pluginDigest": {"S": "3f8a1c2b"},
    "millisBehindLatest": {"N": "17"},
    "directives": {"M": {"version": {"N": "1"}}},
}


class Rows:
    """The table, written to as hosts would."""

    def __init__(self, stack):
        self.stack = stack
        self.renewed, self.reporting = {}, None
        self.began = time.monotonic()
        self.said = []
        self.is_over = threading.Event()
        for loop in (self.watch, self.renew):
            threading.Thread(target=loop, daemon=True).start()

    def leases(self):
        rows = self.stack.rows(TABLE)
        return {row["leaseKey"]: row for row in rows if "checkpoint" in row}

    def are_held(self, count):
        return sum("leaseOwner" in row for row in self.leases().values()) == count

    def others(self):
        return {row["leaseKey"]: row for row in self.stack.rows(TABLE) if "checkpoint" not in row}

    def update(self, key, expression, names=(), **values):
        self.stack.dynamodb(
            "UpdateItem", TableName=TABLE, Key={"leaseKey": {"S": key}}, UpdateExpression=expression,
            ExpressionAttributeValues={f":{name}": value for name, value in values.items()},
            **({"ExpressionAttributeNames": dict(names)} if names else {}),
        )

    def give(self, key, owner, is_renewed):
        """A take: owner and counter, and no hand-off."""
        change = "SET leaseOwner = :owner ADD leaseCounter :one REMOVE checkpointOwner"
        self.update(key, change, owner={"S": owner}, one={"N": "1"})
        if is_renewed:
            self.renewed[key] = owner

    def release(self, key):
        self.renewed.pop(key, None)
        self.update(key, "REMOVE leaseOwner ADD leaseCounter :one", one={"N": "1"})

    def renew(self):
        """As the owner does: only while it is the owner."""
        while not self.is_over.wait(RENEW_EVERY_SECONDS):
            self.report()
            leases = self.leases() if self.renewed else {}
            for key, owner in list(self.renewed.items()):
                if leases.get(key, {}).get("leaseOwner") == owner:
                    self.update(key, "ADD leaseCounter :one", one={"N": "1"})
                else:
                    self.renewed.pop(key, None)

    def report(self):
        """As a worker of the KCL 3.5 reports itself, one that measures nothing; it renews what it is given."""
        if self.reporting is None:
            return
        now = {"N": str(int(time.time()))}
        row = {"entityType": {"S": "WORKER_METRIC_STATS"}, "sts": {"M": {}}, "opr": {"M": {}}, "sup": {"N": "1"}}
        self.put({"leaseKey": {"S": self.reporting}, "lut": now, "slu": now} | row)
        for key, row in self.leases().items():
            if row.get("leaseOwner") == self.reporting and "checkpointOwner" not in row:
                self.renewed[key] = self.reporting

    def put(self, row):
        self.stack.dynamodb("PutItem", TableName=TABLE, Item=row)

    def delete(self, key):
        self.stack.dynamodb("DeleteItem", TableName=TABLE, Key={"leaseKey": {"S": key}})

    def watch(self):
        before = {}
        while not self.is_over.wait(LOOK_EVERY_SECONDS):
            now = {row["leaseKey"]: owners(row) for row in self.stack.rows(TABLE)}
            for key in sorted(before.keys() | now.keys()):
                if before.get(key) != now.get(key):
                    self.said.append((time.monotonic() - self.began, short(key), before.get(key), now.get(key)))
            before = now


def owners(row):
    handed = row.get("checkpointOwner")
    owner = row.get("leaseOwner", "nobody")
    return f"{owner}, to be handed over by {handed}" if handed else owner


def short(key):
    parts = key.split(":")
    return f"{parts[1]}/{parts[3][-1]}" if len(parts) == 4 else key


class Book:
    """Tells what happened, chapter by chapter."""

    def __init__(self, rows, fleet):
        self.rows, self.fleet = rows, fleet
        self.read = {}

    def chapter(self, title, change=lambda: None, seconds=CHAPTER_SECONDS, begins=lambda: True):
        """Watches for so long after it began."""
        self.rows.began, self.rows.said[:] = time.monotonic(), []
        self.log()
        print(f"\n## {title}", flush=True)
        change()
        until(title, begins, PATIENCE_SECONDS)
        print(f"{time.monotonic() - self.rows.began:6.1f} s  it begins", flush=True)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.fleet.put(6)
            time.sleep(LOOK_EVERY_SECONDS)
        for at, key, before, now in list(self.rows.said):
            print(f"{at:6.1f} s  {key}: {before} -> {now}")
        for line, count in self.log().items():
            print(f"   log {count} x {line}")

    def log(self):
        """Distinct complaints in the logs since the last look."""
        found = {}
        for worker in self.fleet.workers:
            text = worker.log.read_text(errors="replace")
            fresh = text[self.read.get(worker.name, 0):]
            self.read[worker.name] = len(text)
            for line in fresh.splitlines():
                if re.search(r"ERROR|WARN|Exception", line) and not line.lstrip().startswith(("at ", "...")):
                    line = re.sub(r"^[\d:.]+ |\[[^]]*\] |\d{6,}", "", line)[:260]
                    found[line] = found.get(line, 0) + 1
        return found


def observe(version, folder, binary, plugin, classes):
    """The whole course with one version."""
    with Stack(binary, folder / f"rows-{version}") as stack:
        fleet, rows = Fleet(stack, plugin, SEVERAL, 2), Rows(stack)
        try:
            course(Kcl(version, classes), fleet, rows, Book(rows, fleet))
        finally:
            rows.is_over.set()
            fleet.end()


def course(kcl, fleet, rows, book):
    print(f"# KCL {kcl.version}")
    fleet.put(1_000)
    first = kcl.worker(fleet, "kcl-1", TABLE)
    book.chapter("a KCL alone, on an empty table", seconds=20, begins=lambda: rows.are_held(6))
    for key, row in rows.others().items():
        print(f"   row {key}: {row}")
    print(f"   a lease: {next(iter(rows.leases().values()))}")
    first.end("planned")
    book.chapter("it stops, as planned", seconds=3)

    leases = sorted(rows.leases())
    ewr, jfk, lga = ([key for key in leases if f":{stream}:" in key] for stream in SEVERAL)
    book.chapter("another, with ewr held by a live host, jfk by a dead one, lga by nobody; other attributes, another row",
                 lambda: beside_others(kcl, fleet, rows, ewr, jfk, lga), begins=lambda: is_at_work(fleet, "kcl-2"))
    kept = [key for key, row in rows.leases().items() if EXTRA.keys() <= row.keys()]
    print(f"   {len(kept)} of {len(leases)} rows keep the other attributes; the other row: {rows.others().get('host#1')}")

    book.chapter("the live host dies", rows.renewed.clear)
    book.chapter("a host takes jfk/0 and jfk/1 from the live KCL, and renews them",
                 lambda: [rows.give(key, "host-3", is_renewed=True) for key in jfk])
    book.chapter("a second worker of the KCL comes, while the host holds jfk", lambda: kcl.worker(fleet, "kcl-3", TABLE),
                 seconds=75, begins=lambda: is_at_work(fleet, "kcl-3"))
    book.chapter("the host releases jfk", lambda: [rows.release(key) for key in jfk])
    if kcl.version.startswith("3."):
        book.chapter("a host reports itself as a worker of the KCL 3.5 does", lambda: begin_to_report(rows, "host-4"), 75)
        rows.reporting = None
        book.chapter("it says nothing any more, and renews nothing", rows.renewed.clear)
        rows.delete("host#1")
    book.chapter("a row without entityType that is no lease", lambda: rows.put({"leaseKey": {"S": "note"}}), seconds=20)
    rows.delete("note")
    book.chapter("lga/0 loses streamName and shardId", lambda: rows.update(
        lga[0], "REMOVE streamName, shardId ADD leaseCounter :one", one={"N": "1"}))
    rows.delete(lga[0])
    book.chapter("lga/0 is gone", seconds=20)
    book.chapter("a lease of one stream, under its shard's id alone",
                 lambda: rows.put({"leaseKey": {"S": "shardId-000000000000"}} | plain_lease()), seconds=20)


def begin_to_report(rows, worker):
    rows.reporting = worker


def is_at_work(fleet, name):
    return "Starting worker loop" in (fleet.folder / f"{name}.log").read_text(errors="replace")


def beside_others(kcl, fleet, rows, ewr, jfk, lga):
    for key in ewr + jfk + lga:
        names = {f"#{name}": name for name in EXTRA}
        changes = ", ".join(f"#{name} = :{name}" for name in EXTRA)
        rows.update(key, f"SET {changes}", names, **EXTRA)
    for key in ewr:
        rows.give(key, "host-1", is_renewed=True)
    for key in jfk:
        rows.give(key, "host-2", is_renewed=False)
    for key in lga:
        rows.release(key)
    if kcl.version.startswith("3."):
        # A KCL 2.x does not even start beside a row that is no lease.
        rows.put({"leaseKey": {"S": "host#1"}, "entityType": {"S": "SHARDMILL_HOST"}, "beat": {"N": "1"}})
    kcl.worker(fleet, "kcl-2", TABLE)


def plain_lease():
    numbers = ("leaseCounter", "ownerSwitchesSinceCheckpoint", "checkpointSubSequenceNumber")
    return {name: {"N": "0"} for name in numbers} | {"checkpoint": {"S": "TRIM_HORIZON"}}
