"""Requests over `wasi:http`, one at a time, for processors in Python."""

from urllib.parse import urlsplit

from componentize_py_types import Err
from wit_world.imports import outgoing_handler
from wit_world.imports import wasi_http_types as http
from wit_world.imports.streams import StreamError_Closed

METHODS = {
    "GET": http.Method_Get(),
    "HEAD": http.Method_Head(),
    "POST": http.Method_Post(),
    "PUT": http.Method_Put(),
    "DELETE": http.Method_Delete(),
    "PATCH": http.Method_Patch(),
}
# The most that a stream takes, or returns, at once.
WRITE_BYTES, READ_BYTES = 4 << 10, 64 << 10


def send(method, url, headers=(), body=b""):
    """Returns status and body; `headers` are pairs of texts. Raises an `Err` with an error code where there is no response."""
    parts = urlsplit(url)
    request = http.OutgoingRequest(http.Fields.from_list([(name, value.encode()) for name, value in headers]))
    request.set_method(METHODS[method])
    request.set_scheme(http.Scheme_Http() if parts.scheme == "http" else http.Scheme_Https())
    request.set_authority(parts.netloc)
    request.set_path_with_query((parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
    outgoing = request.body()
    future = outgoing_handler.handle(request, None)
    with outgoing.write() as stream:
        for at in range(0, len(body), WRITE_BYTES):
            stream.blocking_write_and_flush(body[at : at + WRITE_BYTES])
    http.OutgoingBody.finish(outgoing, None)
    with future.subscribe() as ready:
        ready.block()
    # The outer result only shows that the response was not taken before.
    answer = future.get().value
    if isinstance(answer, Err):
        raise answer
    with answer.value as response:
        return response.status(), read(response)


def read(response):
    data = bytearray()
    with response.consume() as incoming, incoming.stream() as stream:
        while True:
            try:
                data += stream.blocking_read(READ_BYTES)
            except Err as error:
                if isinstance(error.value, StreamError_Closed):
                    return bytes(data)
                raise
