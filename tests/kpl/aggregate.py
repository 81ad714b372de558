"""Packs records into KPL aggregates with AWS' own library for Python, which shares no code with ours.

    python3 -m venv VENV && VENV/bin/pip install aws-kinesis-agg==1.2.3 six

    VENV/bin/python tests/kpl/aggregate.py vectors examples/earthquakes/sample.ndjson > tests/kpl/vectors.ndjson.gz
        what tests/kpl/main.rs expects of single aggregates

    VENV/bin/python tests/kpl/aggregate.py lines --key-field flight examples/flights/sample.ndjson.gz > tests/kpl/flights.gz
        a whole file, plain or gzip, a record a line, for tests/scenarios/aggregates.rs (SHARDMILL_AGGREGATES names another)

The second form is gzip of, again and again: two big-endian numbers of 32 bits, the lengths of the partition key and of the
aggregate, then both.
"""

import argparse
import base64
import gzip
import hashlib
import json
import random
import struct
import sys

from aws_kinesis_agg import MAGIC
from aws_kinesis_agg.aggregator import AggRecord, RecordAggregator

# Numbers that are drawn are the same in every run.
RANDOM = random.Random(1947)
HASH_KEY_MAX = str(2**128 - 1)


def packed(records):
    """One aggregate of (key, hash key or None, data)."""
    aggregate = AggRecord()
    for key, hash_key, data in records:
        assert aggregate.add_user_record(key, data, hash_key), "too large for one aggregate"
    return aggregate._serialize_to_bytes()


def drawn_bytes(length):
    return bytes(RANDOM.getrandbits(8) for _ in range(length))


def single_aggregates(lines):
    """Names and user records."""
    def earthquakes(count, start=0):
        for line in lines[start:start + count]:
            yield json.loads(line)["properties"]["net"], None, line

    yield "one record", [("key", None, b"data")]
    yield "one empty record", [("key", None, b"")]
    yield "one byte", [("k", None, b"\0")]
    yield "two records under one key", [("key", None, b"first"), ("key", None, b"second")]
    yield "the same record twice", [("key", None, b"same"), ("key", None, b"same")]
    yield "keys that come again", [(key, None, key.encode()) for key in "abcabcaab"]
    yield "only empty records", [(str(number), None, b"") for number in range(20)]
    yield "explicit hash keys", [("a", "0", b"low"), ("b", HASH_KEY_MAX, b"high"), ("c", str(2**127), b"middle")]
    yield "some with an explicit hash key", [("a", None, b"1"), ("a", "7", b"2"), ("b", None, b"3"), ("b", "7", b"4")]
    yield "one hash key under many keys", [(f"key-{number}", "12345", b"x") for number in range(30)]
    yield "keys of every alphabet", [(key, None, key.encode()) for key in ["Ключ", "鍵", "مفتاح", "🔑", "naïve", "\u0301a"]]
    yield "a key of 256 characters", [("k" * 256, None, b"ascii"), ("鍵" * 256, None, b"three bytes each"), ("🔑" * 256, None, b"four")]
    yield "a key with NUL and line ends", [("a\0b\r\nc", None, b"data")]
    yield "an empty key", [("", None, b"data")]
    yield "data that is an aggregate", [("outer", None, packed([("inner", None, b"data")]))]
    yield "data that begins like one", [("key", None, MAGIC), ("key", None, MAGIC + b"\0" * 16)]
    yield "data of all bytes", [("key", None, bytes(range(256)))]
    yield "data that looks like a digest", [("key", None, hashlib.md5(b"").digest())]
    yield "lengths around 128", [("key", None, b"x" * length) for length in (126, 127, 128, 129)]
    yield "lengths around 16384", [("key", None, b"y" * length) for length in (16_382, 16_383, 16_384, 16_385)]
    yield "indexes above 127", [(f"{number:x}", str(number), b"") for number in range(300)]
    yield "gzip", [("key", None, gzip.compress(b"data" * 100, mtime=0))]
    yield "drawn bytes", [(f"key-{number}", None, drawn_bytes(number)) for number in range(60)]
    yield "drawn keys and hash keys", [
        (drawn_bytes(8).hex(), RANDOM.choice([None, str(RANDOM.getrandbits(128))]), drawn_bytes(5)) for _ in range(50)
    ]
    yield "ten thousand", [(str(number % 7), None, str(number).encode()) for number in range(10_000)]
    yield "nearly 1 MiB in one record", [("key", None, b"z" * (2**20 - 64))]
    yield "nearly 1 MiB in many", [("key", None, b"0123456789abcdef" * 64) for _ in range(1_000)]
    yield "one earthquake", list(earthquakes(1))
    yield "earthquakes", list(earthquakes(40))
    yield "more earthquakes", list(earthquakes(60, start=100))


def vectors(arguments):
    with open(arguments.earthquakes, "rb") as file:
        lines = [line.rstrip(b"\r\n") for line in file]
    encode = lambda data: base64.b64encode(data).decode()
    with gzip.GzipFile(fileobj=sys.stdout.buffer, mode="wb", mtime=0) as out:
        for name, records in single_aggregates(lines):
            vector = {
                "name": name,
                "aggregate": encode(packed(records)),
                "records": [[key, hash_key, encode(data)] for key, hash_key, data in records],
            }
            out.write(json.dumps(vector).encode() + b"\n")


def lines(arguments):
    def key_of(line):
        value = json.loads(line)
        for field in arguments.key_field.split("."):
            value = value[field]
        return str(value)

    # By shard, as the KPL does: an aggregate only holds records of one.
    aggregators = [RecordAggregator(arguments.bytes) for _ in range(arguments.shards)]
    opener = gzip.open if arguments.file.endswith(".gz") else open
    with opener(arguments.file, "rb") as file, gzip.GzipFile(fileobj=sys.stdout.buffer, mode="wb", mtime=0) as out:
        def put(aggregate):
            if aggregate is None:
                return
            key, _, data = aggregate.get_contents()
            key = key.encode()
            out.write(struct.pack(">II", len(key), len(data)) + key + data)

        for line in (line.rstrip(b"\r\n") for line in file):
            if line:
                key = key_of(line)
                hash_key = int.from_bytes(hashlib.md5(key.encode()).digest(), "big")
                put(aggregators[hash_key * arguments.shards >> 128].add_user_record(key, line))
        for aggregator in aggregators:
            put(aggregator.clear_and_get())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("vectors")
    command.add_argument("earthquakes", help="real lines to take some from")
    command.set_defaults(run=vectors)
    command = commands.add_parser("lines")
    command.add_argument("file")
    command.add_argument("--key-field", required=True, help="the field of a line that is its partition key; dots lead into objects")
    command.add_argument("--shards", type=int, default=4, help="equal shards of the stream it will be put to")
    command.add_argument("--bytes", type=int, default=50 << 10, help="largest aggregate; the KPL's default is 50 KiB")
    command.set_defaults(run=lines)
    arguments = parser.parse_args()
    arguments.run(arguments)


main()
