"""Proxies in front of Kinesis and DynamoDB, and an HTTP endpoint for a sink: each answers until it is made to fail."""

import http.client
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# No outage lasts longer; what hangs is cut off then.
HANG_SECONDS_MAX = 300


def is_cbor(content_type):
    return "cbor" in content_type


def encoded(fields, content_type):
    """Texts by name, in the format that the request had, as AWS answers."""
    if not is_cbor(content_type):
        return json.dumps(fields).encode()
    texts = [text.encode() for pair in fields.items() for text in pair]
    # Texts with two bytes of length, in a map of few pairs (RFC 8949, 3.1).
    return bytes([0xA0 | len(fields)]) + b"".join(b"\x79" + len(text).to_bytes(2, "big") + text for text in texts)


class Request:
    """What a fault judges: an AWS operation, and the permissions and tables that it needs."""

    def __init__(self, target, content_type, body):
        self.operation = target.rsplit(".", 1)[-1]
        # Kinesis is asked in CBOR, and no fault looks into its requests.
        fields = {} if is_cbor(content_type) else json.loads(body or b"{}")
        self.rights = [(self.operation, fields.get("TableName", ""))]
        # A transaction needs the permissions of its parts, and none for itself.
        parts = fields.get("TransactItems", [])
        if parts:
            self.rights = [
                (kind.replace("Delete", "DeleteItem").replace("Put", "PutItem").replace("Update", "UpdateItem"), of["TableName"])
                for part in parts
                for kind, of in part.items()
            ]


class Answer(Exception):
    """An error that the service would answer with."""

    def __init__(self, code, message, status=400):
        super().__init__(code)
        self.code, self.message, self.status = code, message, status


class Server(ThreadingHTTPServer):
    """Cuts connections on request: a healthy one would outlive a network outage."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.open = set()
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def process_request(self, request, client_address):
        with self.lock:
            self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request):
        with self.lock:
            self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request, client_address):
        """Broken connections are expected here."""

    def cut(self):
        with self.lock:
            for connection in self.open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def down(self):
        """Stops listening."""
        self.shutdown()
        self.server_close()
        self.cut()

    def up(self):
        """Listens again, on the same port."""
        self.socket = socket.socket(self.address_family, self.socket_type)
        self.server_bind()
        self.server_activate()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def port(self):
        return self.server_address[1]


class Breakable:
    """Works until it is given a fault, and again once it is healed."""

    def __init__(self):
        self.fault, self.healed = None, threading.Event()

    def break_(self, fault):
        self.healed.clear()
        self.fault = fault

    def heal(self):
        self.fault = None
        self.healed.set()

    def hang(self):
        self.healed.wait(HANG_SECONDS_MAX)


class Proxy(Breakable):
    """In front of one service. `fault` is called with each `Request`: it returns, waits, or raises an `Answer`."""

    def __init__(self, behind):
        super().__init__()
        self.host, self.behind_port = behind.removeprefix("http://").split(":")
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                content_type = self.headers.get("content-type", "")
                try:
                    fault = proxy.fault
                    if fault:
                        fault(Request(self.headers.get("x-amz-target", ""), content_type, body))
                    status, headers, reply = proxy.forward(self, body)
                except Answer as answer:
                    status, headers = answer.status, [("content-type", content_type)]
                    reply = encoded({"__type": answer.code, "message": answer.message}, content_type)
                self.send_response(status)
                for name, value in headers:
                    if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                        self.send_header(name, value)
                self.send_header("content-length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_):
                pass

        self.server = Server(Handler)
        self.url = f"http://127.0.0.1:{self.server.port}"

    def forward(self, asked, body):
        connection = http.client.HTTPConnection(self.host, int(self.behind_port), timeout=60)
        headers = {name: value for name, value in asked.headers.items() if name.lower() not in ("host", "connection")}
        connection.request("POST", asked.path, body, headers)
        reply = connection.getresponse()
        data = reply.read()
        connection.close()
        return reply.status, reply.getheaders(), data

def denied(service, resource):
    """Refuses in the words of AWS."""

    def fault(operation):
        user = "arn:aws:sts::123456789012:assumed-role/drill/host"
        where = f"arn:aws:{service}:us-east-1:123456789012:{resource}"
        raise Answer(
            "AccessDeniedException",
            f"User: {user} is not authorized to perform: {service}:{operation} on resource: {where} because no "
            f"identity-based policy allows the {service}:{operation} action",
        )

    return fault


class Endpoint(Breakable):
    """Takes lines by HTTP. `fault` is called before each request; it waits, or returns a status to refuse with."""

    def __init__(self):
        super().__init__()
        self.lines = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                fault = endpoint.fault
                status = (fault() if fault else None) or 200
                if status == 200:
                    endpoint.lines.extend(body.decode().splitlines())
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = Server(Handler)
        self.url = f"http://127.0.0.1:{self.server.port}/in"

class Role:
    """Gives credentials that last for a short while, as the metadata service does, until it is gone."""

    SECONDS = 20

    def __init__(self):
        self.is_gone = False
        role = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                if role.is_gone:
                    return self.send_error(404)
                until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + role.SECONDS))
                given = {"AccessKeyId": "test", "SecretAccessKey": "test", "Token": "test", "Expiration": until}
                body = json.dumps(given).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = Server(Handler)
        self.url = f"http://127.0.0.1:{self.server.port}/credentials"
