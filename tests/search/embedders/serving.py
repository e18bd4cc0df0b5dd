"""A small HTTP server with the OpenAI embeddings API, which can be made to misbehave."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DIM = 4

Answer = tuple[int, Mapping[str, str], bytes]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def texts(self) -> list[str]:
        return self.body["input"]


def vector_of(text: str, dim: int = DIM) -> list[float]:
    """A different direction for each text; not of length 1."""
    return [float(len(text) + 1), *(float(ord(each) % 7) for each in f"{text:\0<{dim}}"[: dim - 1])]


def embeddings(asked: Asked) -> Answer:
    """The answer of a working endpoint; the vector of the last text is first, which the API allows."""
    dim = asked.body.get("dimensions", DIM)
    data = [{"object": "embedding", "index": at, "embedding": vector_of(t, dim)} for at, t in enumerate(asked.texts)]
    return found({"object": "list", "data": data[::-1], "model": asked.body["model"], "usage": {}})


def found(value: Any, status: int = 200, **headers: str) -> Answer:
    return status, headers, value if isinstance(value, bytes) else json.dumps(value).encode()


@dataclass
class Server:
    """`answer` may be changed at any time; None closes the connection without a response."""

    answer: Callable[[Asked], Answer | None] = embeddings
    asked: list[Asked] = field(default_factory=list[Asked])
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@contextmanager
def serving(answer: Callable[[Asked], Answer | None] = embeddings) -> Generator[Server]:
    server = Server(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            asked = Asked(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            server.asked.append(asked)
            if (given := server.answer(asked)) is None:
                self.close_connection = True
                return
            status, headers, content = given
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  overrides a method
            """Log nothing."""

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Ignore clients that have disconnected."""

    with Quiet(("127.0.0.1", 0), Handler) as http:
        server.port = http.server_address[1]
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()
