"""An MCP server over HTTP with faults that only a raw socket can show. It first prints its port.

Standard library only. It is the server of `faulty.py` behind streamable HTTP, and its address selects the behavior:
`/ERA/MODE/FAULT`. The era is `legacy` (2025-11-25: `initialize` and a session) or `modern` (2026-07-28:
`server/discover` and no state). The mode is `json` or `sse`, for responses without earlier messages. The fault
applies to every request except notifications, and `none` means no fault. The tool `raw` has the same faults for one
call: its argument `how` names a fault or one of `faulty.ODD_ANSWERS`. `/events/FAULT` is the transport of 2024-11-05:
there the fault applies to the request for the stream, and faults of `raw` apply to messages to the server.
"""

from __future__ import annotations

import argparse
import gzip
import json
import queue
import secrets
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.servers import faulty
from tests.servers.faulty import Json

SESSION = "Mcp-Session-Id"
KEY = "Bearer open sesame"
"""The log says for each request whether it carried this key."""

RETRY_AFTER_S = 1
RETRY_DATE_S = 2
"""Relative to the `Date` header of the server, which is wrong by one hour."""

CLOCK_IS_WRONG_BY_S = 3_600

RELEASE = "/release"
"""A GET of this path lets every held call end."""

JSON_TYPE = {"Content-Type": "application/json"}
SSE_TYPE = {"Content-Type": "text/event-stream"}


class Exchanges(faulty.Output):
    """Delivers messages of the server to the requests that wait for them."""

    def __init__(self) -> None:
        super().__init__({})
        self._waiting: dict[Any, queue.Queue[Json]] = {}

    def wait_for(self, request_id: Any) -> queue.Queue[Json]:
        """Returns a queue of all messages for this request, its response last. None receives messages of no request."""
        self._waiting[request_id] = queue.Queue()
        return self._waiting[request_id]

    def send(self, message: Json) -> None:
        params: Json = message.get("params") or {}
        meta: Json = params.get("_meta") or {}
        to = message.get("id", params.get("progressToken", meta.get("io.modelcontextprotocol/subscriptionId")))
        if (waiting := self._waiting.get(to, self._waiting.get(None))) is not None:
            waiting.put(message)


class Bench(ThreadingHTTPServer):
    """One port with a server of each protocol version."""

    daemon_threads = True
    request_queue_size = 200

    def __init__(self, port: int, log: Path | None, flag: Path | None, elsewhere: str) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.exchanges = {at: Exchanges() for at in ("legacy", "modern", "events")}
        self.servers = {
            at: faulty.Server(faulty.Options({"raw": ""}, "modern" if at == "modern" else "legacy", log), exchanges)
            for at, exchanges in self.exchanges.items()
        }
        self.flag = flag
        self.elsewhere = elsewhere
        self.sessions: set[str] = set()
        self.log = faulty.Log(log)

    @property
    def is_sick(self) -> bool:
        """Whether the fault in the address is active."""
        return self.flag is None or self.flag.exists()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors, because clients disconnect on purpose here."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Bench  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = 60
    disable_nagle_algorithm = True
    began = 0.0
    """The time when this request was read, in seconds since 1970."""
    begins_session = False

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name of the base class
        pass

    def date_time_string(self, timestamp: float | None = None) -> str:
        return formatdate(self.now(), usegmt=True)

    def now(self) -> float:
        return self.began - CLOCK_IS_WRONG_BY_S

    def do_GET(self) -> None:
        self.began = time.time()
        if self.path == RELEASE:
            for server in self.server.servers.values():
                server.release()
        self._note()
        if self.path.startswith("/events/"):
            self._stream(self.path.removeprefix("/events/"))
            return
        self._respond(405, {"Allow": "POST"}, b"")

    def do_DELETE(self) -> None:
        self.began = time.time()
        self._note()
        if self.path.endswith("/deaf-to-its-end"):
            threading.Event().wait()
        self.server.sessions.discard(self.headers.get(SESSION, ""))
        self._respond(200, {}, b"")

    def do_POST(self) -> None:
        self.began = time.time()
        message: Json = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._note(message)
        if self.path.startswith("/events/"):
            self._hear(message)
            return
        self.begins_session = message.get("method") == "initialize"
        _, self.era, self.mode, fault, *_ = (*self.path.partition("?")[0].split("/"), "", "", "", "")
        if not self.server.is_sick:
            fault = "none"
        params: Json = message.get("params") or {}
        if fault == "none" and message.get("method") == "tools/call" and params.get("name") == "raw":
            fault = str(params["arguments"]["how"])
        if "id" not in message:
            self._respond(202, {}, b"")
        elif fault in faulty.ODD_ANSWERS:
            self._answer(faulty.ODD_ANSWERS[fault](message["id"]))
        elif fault in FAULTS:
            FAULTS[fault](self, message)
        else:
            self.answer_well(message)

    def _stream(self, fault: str) -> None:
        """Serve the event stream of the older transport until the client disconnects."""
        if fault in FAULTS and self.server.is_sick:
            FAULTS[fault](self, {})
            return
        said = self.server.exchanges["events"].wait_for(None)
        self.begin(200, SSE_TYPE)
        if fault == "ends" and self.server.is_sick:
            self.chunk(b"")
            return
        to = self.server.elsewhere if fault == "speaks-elsewhere" and self.server.is_sick else ""
        self.chunk(f"event: endpoint\ndata: {to}/events/say\n\n".encode())
        while True:
            message = said.get()
            raw = message.get("raw")
            text = raw if isinstance(raw, bytes) else json.dumps(message).encode()
            self.chunk(b"event: message\ndata: " + text + b"\n\n")

    def _hear(self, message: Json) -> None:
        """Handle a message of the older transport. Its response goes to the event stream."""
        params: Json = message.get("params") or {}
        raw = message.get("method") == "tools/call" and params.get("name") == "raw"
        how = str(params["arguments"]["how"]) if raw else ""
        if how in FAULTS:
            FAULTS[how](self, message)
            return
        self._respond(202, {}, b"Accepted")
        if how in faulty.ODD_ANSWERS:
            self.server.exchanges["events"].send({"raw": faulty.ODD_ANSWERS[how](message["id"])})
        else:
            self.server.servers["events"].receive(message)

    def answer_well(self, message: Json) -> None:
        if message["method"] == "tools/call" and message["params"]["name"] == "raw":
            self._answer(faulty.plain_answer(message["id"]))
            return
        begins = message["method"] == "initialize"
        if self.era == "legacy" and not begins and self.headers.get(SESSION) not in self.server.sessions:
            self._respond(404 if SESSION in self.headers else 400, {}, b"")
            return
        waiting = self.server.exchanges[self.era].wait_for(message["id"])
        self.server.servers[self.era].receive(message)
        reports = message["method"] == "tools/call" and message["params"]["name"] == "slow"
        if self.mode == "json" and not reports:
            while (answer := waiting.get()).get("id") != message["id"]:
                pass
            self._respond(200, JSON_TYPE, json.dumps(answer).encode())
            return
        self.begin(200, SSE_TYPE)
        answer = {}
        while answer.get("id") != message["id"]:
            answer = waiting.get()
            self.chunk(b"event: message\ndata: " + json.dumps(answer).encode() + b"\n\n")
        self.chunk(b"")

    def plain(self, message: Json) -> bytes:
        """Returns a valid response to the request as JSON."""
        waiting = self.server.exchanges[self.era].wait_for(message["id"])
        if message["method"] == "tools/call" and message["params"]["name"] == "raw":
            return faulty.plain_answer(message["id"])
        self.server.servers[self.era].receive(message)
        return json.dumps(waiting.get()).encode()

    def _answer(self, body: bytes) -> None:
        """Send `body` as a complete response, as JSON or as an event stream."""
        if self.mode == "json":
            self._respond(200, JSON_TYPE, body)
        else:
            self.begin(200, SSE_TYPE)
            self.chunk(b"data: " + body + b"\n\n")
            self.chunk(b"")

    def _respond(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    respond = _respond

    def begin(self, status: int, headers: Mapping[str, str], *, length: int | None = None) -> None:
        """Send the head of a chunked response, or of one that declares `length` bytes."""
        self.send_response(status)
        ends = {"Transfer-Encoding": "chunked"} if length is None else {"Content-Length": str(length)}
        for name, value in {**headers, **ends}.items():
            self.send_header(name, value)
        self.end_headers()

    def end_headers(self) -> None:
        if self.begins_session:
            self.server.sessions.add(session := secrets.token_hex(8))
            self.send_header(SESSION, session)
        super().end_headers()

    def chunk(self, part: bytes) -> None:
        """Send one chunk. An empty chunk ends the response."""
        self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))

    def reset(self) -> None:
        """Reset the connection, as a crash does."""
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def _note(self, message: Json | None = None) -> None:
        known = self.headers.get("Authorization") == KEY
        method = None if message is None else message.get("method")
        self.server.log.write(event="request", http=self.command, path=self.path, with_key=known, method=method)


Fault = Callable[[Handler, Json], None]


def _status(code: int, body: bytes = b"<h1>No.</h1>", **headers: str) -> Fault:
    told = {"Content-Type": "text/html", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return lambda handler, _: handler.respond(code, told, body)


def _status_with_error(code: int, error_code: int, **headers: str) -> Fault:
    def meet(handler: Handler, message: Json) -> None:
        error = {"code": error_code, "message": "The vice is taken", "data": {"by": "somebody"}}
        body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
        handler.respond(code, JSON_TYPE | {name.replace("_", "-"): value for name, value in headers.items()}, body)

    return meet


def _to_discovery(handler: Handler, message: Json) -> None:
    if message["method"] == "server/discover":
        _status(502)(handler, message)
    else:
        handler.answer_well(message)


def _later(handler: Handler, _: Json) -> None:
    handler.respond(429, {"Retry-After": formatdate(handler.now() + RETRY_DATE_S, usegmt=True)}, b"")


def _elsewhere(code: int) -> Fault:
    def meet(handler: Handler, _: Json) -> None:
        to = f"{handler.server.elsewhere}{handler.path.replace('redirect', 'none')}?key=s3cret#part"
        handler.respond(code, {"Location": to}, b"")

    return meet


def _here(handler: Handler, _: Json) -> None:
    handler.respond(307, {"Location": f"/{handler.era}/{handler.mode}/redirected"}, b"")


def _around(handler: Handler, _: Json) -> None:
    handler.respond(308, {"Location": handler.path}, b"")


def _with_a_name(handler: Handler, _: Json) -> None:
    port = handler.server.server_address[1]
    handler.respond(307, {"Location": f"http://ada:lace@127.0.0.1:{port}{handler.path}"}, b"")


def _torn(handler: Handler, message: Json) -> None:
    body = handler.plain(message)
    handler.begin(200, JSON_TYPE, length=len(body))
    handler.wfile.write(body[: len(body) // 2])
    handler.close_connection = True


def _torn_chunks(handler: Handler, message: Json) -> None:
    handler.begin(200, JSON_TYPE)
    handler.chunk(handler.plain(message)[:-10])
    handler.close_connection = True


def _close(handler: Handler, _: Json) -> None:
    handler.close_connection = True


def _reset(handler: Handler, _: Json) -> None:
    handler.reset()


def _reset_inside(handler: Handler, message: Json) -> None:
    handler.begin(200, JSON_TYPE)
    handler.chunk(handler.plain(message)[:10])
    handler.reset()


def _no_http(handler: Handler, _: Json) -> None:
    handler.wfile.write(b"220 mail.example ready\r\n")
    handler.close_connection = True


def _sse(*chunks: bytes) -> Fault:
    def meet(handler: Handler, _: Json) -> None:
        handler.begin(200, SSE_TYPE)
        for chunk in chunks:
            handler.chunk(chunk)
        handler.chunk(b"")

    return meet


def _sse_torn(handler: Handler, message: Json) -> None:
    handler.begin(200, SSE_TYPE)
    handler.chunk(b"data: " + handler.plain(message)[:10])
    handler.reset()


def _sse_noise(handler: Handler, message: Json) -> None:
    handler.begin(200, SSE_TYPE)
    handler.chunk(b": a comment\n\nretry: soon\n\nevent: weather\ndata: rain\n\n")
    handler.chunk(b"data:" + handler.plain(message).replace(b',"', b',\ndata: "') + b"\r\n\r\n")
    handler.chunk(b"")


def _long(handler: Handler, message: Json) -> None:
    part = b"x" * 1_000_000
    handler.begin(200, JSON_TYPE)
    handler.chunk(b'{"jsonrpc":"2.0","id":1,"result":{"text":"')
    for _ in range(faulty.LONG_BYTES // len(part)):
        handler.chunk(part)
    handler.chunk(b'"}}')
    handler.chunk(b"")


def _sse_long(handler: Handler, message: Json) -> None:
    part = b"x" * 1_000_000
    handler.begin(200, SSE_TYPE)
    handler.chunk(b'data: {"jsonrpc":"2.0","id":1,"result":{"text":"')
    for _ in range(faulty.LONG_BYTES // len(part)):
        handler.chunk(part)
    handler.chunk(b'"}}\n\n')
    handler.chunk(b"")


def _packed(handler: Handler, message: Json) -> None:
    handler.respond(200, JSON_TYPE | {"Content-Encoding": "gzip"}, gzip.compress(handler.plain(message)))


def _bomb(handler: Handler, message: Json) -> None:
    body = gzip.compress(b" " * faulty.LONG_BYTES + handler.plain(message), compresslevel=1)
    handler.respond(200, JSON_TYPE | {"Content-Encoding": "gzip"}, body)


def _badly_packed(handler: Handler, message: Json) -> None:
    handler.respond(200, JSON_TYPE | {"Content-Encoding": "gzip"}, b"not packed at all")


def _drip(handler: Handler, message: Json) -> None:
    handler.begin(200, JSON_TYPE)
    for byte in handler.plain(message):
        handler.chunk(bytes([byte]))
        time.sleep(0.0001)
    handler.chunk(b"")


def _endless_drip(handler: Handler, _: Json) -> None:
    handler.begin(200, JSON_TYPE)
    while True:  # until the client disconnects
        handler.chunk(b" ")
        time.sleep(0.01)


def _sse_endless(handler: Handler, _: Json) -> None:
    handler.begin(200, SSE_TYPE)
    try:
        while True:
            handler.chunk(b": still here\n\n")
            time.sleep(0.01)
    finally:
        handler.server.log.write(event="left alone", path=handler.path)


def _silence(handler: Handler, _: Json) -> None:
    threading.Event().wait()


FAULTS: Mapping[str, Fault] = {
    "400": _status(400),
    "401": _status(401, WWW_Authenticate='Bearer realm="bench"'),
    "401-error": _status_with_error(401, -32001),
    "403": _status(403),
    "502-to-discovery": _to_discovery,
    "404": _status(404),
    "405": _status(405),
    "400-error": _status_with_error(400, faulty.REFUSAL_CODE),
    "429": _status(429),
    "429-seconds": _status(429, Retry_After=str(RETRY_AFTER_S)),
    "429-error": _status_with_error(429, -32000, Retry_After=str(RETRY_AFTER_S)),
    "429-date": _later,
    "429-nonsense": _status(429, Retry_After="tomorrow, perhaps"),
    "429-for-ever": _status(429, Retry_After="9" * 400),
    "500": _status(500),
    "500-error": _status_with_error(500, -32603),
    "500-long": _status(500, b"x" * 1_000_000),
    "502": _status(502),
    "503": _status(503),
    "503-seconds": _status(503, Retry_After=str(RETRY_AFTER_S)),
    "599": _status(599),
    "301-redirect": _elsewhere(301),
    "302-redirect": _elsewhere(302),
    "303-redirect": _elsewhere(303),
    "307-redirect": _elsewhere(307),
    "308-redirect": _elsewhere(308),
    "redirect-here": _here,
    "redirected": lambda handler, message: handler.answer_well(message),
    "redirect-around": _around,
    "redirect-with-a-name": _with_a_name,
    "page": _status(200),
    "no-type": lambda handler, _: handler.respond(200, {}, b"{}"),
    "accepted": lambda handler, _: handler.respond(202, {}, b""),
    "nothing": lambda handler, _: handler.respond(204, {}, b""),
    "empty": lambda handler, _: handler.respond(200, JSON_TYPE, b""),
    "torn": _torn,
    "torn-chunks": _torn_chunks,
    "close": _close,
    "reset": _reset,
    "reset-inside": _reset_inside,
    "no-http": _no_http,
    "sse-ends": _sse(b": nothing\n\n"),
    "sse-ends-with-id": _sse(b"id: 1\nretry: 10\ndata:\n\n"),
    "sse-garbage": _sse(b"data: this is no JSON\n\n"),
    "sse-torn": _sse_torn,
    "sse-noise": _sse_noise,
    "sse-long": _sse_long,
    "sse-endless": _sse_endless,
    "long-body": _long,
    "packed": _packed,
    "bomb": _bomb,
    "badly-packed": _badly_packed,
    "drip": _drip,
    "endless-drip": _endless_drip,
    "silence": _silence,
}
"""Maps the name of a fault to a function that answers a request."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path, metavar="FILE", help="append what was received, as JSON lines")
    parser.add_argument("--while", type=Path, dest="flag", metavar="FILE", help="be good where there is no such file")
    parser.add_argument("--elsewhere", default="http://127.0.0.1:9", metavar="URL", help="where redirects lead")
    given = parser.parse_args()
    with Bench(given.port, given.log, given.flag, given.elsewhere) as bench:
        print(bench.server_address[1], flush=True)
        bench.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
