"""A CloudWatch that only remembers which metrics it was given, and a Kinesis whose iterators expire now and then."""

import gzip
import http.client
import json
import struct
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# An iterator lives for five minutes, and no run lasts that long: each so many reads one is said to be older.
EXPIRES_EVERY = 25


class CloudWatch:
    """Metrics that came in: (operation, name, unit, names of all dimensions)."""

    def __init__(self):
        self.seen, self.namespaces, self.calls = set(), set(), 0
        self.url = serve(self.answer)

    def answer(self, request):
        body = request.body
        kind = request.headers.get("content-type", "")
        if "cbor" in kind:
            fields, reply = Cbor(body).value(), ("application/cbor", b"\xa0", {"smithy-protocol": "rpc-v2-cbor"})
        elif "json" in kind:
            fields, reply = json.loads(body), (kind, b"{}", {})
        else:
            fields, reply = from_query(body.decode()), ("text/xml", b"<PutMetricDataResponse/>", {})
        self.calls += 1
        self.namespaces.add(fields["Namespace"])
        for datum in fields["MetricData"]:
            dimensions = {it["Name"]: it["Value"] for it in datum.get("Dimensions", [])}
            names = tuple(sorted(dimensions))
            self.seen.add((dimensions.get("Operation", ""), datum["MetricName"], datum["Unit"], names))
        return 200, *reply


class ExpiringKinesis:
    """The same Kinesis, whose iterators expire sooner."""

    def __init__(self, url):
        self.address, self.reads = urllib.parse.urlsplit(url).netloc, 0
        self.url = serve(self.answer)

    def answer(self, request):
        if request.headers.get("x-amz-target", "").endswith(".GetRecords"):
            self.reads += 1
            if self.reads % EXPIRES_EVERY == 0:
                error = {"__type": "ExpiredIteratorException", "message": "Iterator expired."}
                return 400, "application/x-amz-json-1.1", json.dumps(error).encode(), {}
        there = http.client.HTTPConnection(self.address, timeout=60)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in ("host", "connection")}
        there.request("POST", request.path, request.body, headers)
        reply = there.getresponse()
        return reply.status, reply.headers.get("content-type", ""), reply.read(), {}


def serve(answer):
    """Answers requests on a port of its own, until the process ends; the address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            self.body = gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
            status, kind, reply, more = answer(self)
            self.send_response(status)
            for name, value in {"content-type": kind, "content-length": str(len(reply)), **more}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def from_query(text):
    """The Query protocol: `MetricData.member.1.Dimensions.member.2.Name=Operation`."""
    root = {}
    for path, value in urllib.parse.parse_qsl(text, keep_blank_values=True):
        at, parts = root, path.split(".")
        for part in parts[:-1]:
            at = at.setdefault(part, {})
        at[parts[-1]] = value
    return without_members(root)


def without_members(value):
    if not isinstance(value, dict):
        return value
    if set(value) == {"member"}:
        items = sorted(value["member"].items(), key=lambda item: int(item[0]))
        return [without_members(item) for _, item in items]
    return {name: without_members(inner) for name, inner in value.items()}


class Cbor:
    """Reads what an AWS SDK writes: maps, lists, texts, numbers, of known or of unknown length."""

    BREAK = object()

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        self.at += count
        return self.data[self.at - count : self.at]

    def length(self, low):
        if low < 24:
            return low
        return int.from_bytes(self.take(1 << (low - 24)), "big") if low < 28 else None

    def value(self):
        first = self.take(1)[0]
        major, low = first >> 5, first & 31
        if major == 7:
            return self.simple(low)
        count = self.length(low)
        if major in (0, 1):
            return count if major == 0 else -1 - count
        if major in (2, 3):
            data = self.take(count) if count is not None else b"".join(iter(self.chunk, None))
            return data.decode() if major == 3 else data
        if major == 4:
            return [self.value() for _ in range(count)] if count is not None else list(iter(self.value, self.BREAK))
        if major == 5:
            return dict(self.pairs(count))
        return self.value()

    def chunk(self):
        inner = self.value()
        if inner is self.BREAK:
            return None
        return inner.encode() if isinstance(inner, str) else inner

    def pairs(self, count):
        while count is None or count > 0:
            name = self.value()
            if name is self.BREAK:
                return
            yield name, self.value()
            count = count and count - 1

    def simple(self, low):
        if low == 31:
            return self.BREAK
        sizes = {25: ">e", 26: ">f", 27: ">d"}
        if low in sizes:
            return struct.unpack(sizes[low], self.take(1 << (low - 24)))[0]
        return {20: False, 21: True}.get(low)
