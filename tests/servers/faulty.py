"""An MCP server over stdio. Without arguments it behaves well, and each argument adds one fault.

Standard library only: an SDK would not let it misbehave. It speaks both protocol eras, chosen request by request as the
client does: the handshake (`initialize`, up to 2025-11-25), and the envelope in every request's `_meta` (2026-07-28).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

FAULTS = {
    "exit-at-start": "say why on stderr and exit with code 3 before reading anything",
    "slow-start": "wait before reading anything: slow-start=SECONDS",
    "silent": "never answer anything",
    "silent-list": "answer everything but tools/list",
    "silent-call": "answer everything but tools/call",
    "die-in-call": "add the tool `crash`: the process dies in the middle of its call; `torn` cuts its answer in half",
    "garbage": "print lines that are not JSON, lines that are not JSON-RPC, and blank lines around every message",
    "binary-garbage": "print bytes that are not UTF-8 before every message",
    "flood-stderr": "write 5 MB to stderr at the start and in every call",
    "odd-tools": "add definitions with bad names, bad schemas or no shape at all to the good ones",
    "bad-output": "add the tool `mismatch`: its structuredContent misses its outputSchema",
    "list-output": "add the tool `numbers`: its structuredContent is a list, which only the modern era allows",
    "odd-output": "add the tool `chart`: its content is of a kind nobody knows, or lacks what its kind must have",
    "pages": "list the tools on two pages",
    "endless-pages": "give a next cursor with every page, for ever",
    "odd-header": "add the tool `torch`: its `x-mcp-header` is no name of a header",
    "big-number": "add the tool `weigh`: its schema holds an integer beyond 64 bits",
    "raw": "add the tool `raw`: it answers in the way that its argument `how` names, none of which a server should",
    "never-reads": "read nothing any more once the tools are listed",
    "same-cursor": "give the same next cursor with every page",
    "many-tools": "add so many tools, a hundred on a page: many-tools=COUNT",
    "big-schema": "add the tool `catalogue`: its input schema is 5 MB long",
    "change-each-call": "announce a change of the list after every call",
    "new-each-call": "give the tool `echo` another description in every list, and announce a change after every call",
    "short-streams": "end every stream of changes as soon as it is open (modern era)",
    "error": "add the tool `refuse`: it answers with a JSON-RPC error that carries data",
    "ignore-stdin-close": "stay when stdin closes",
    "ignore-sigterm": "stay when asked to terminate",
}

LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSION = "2026-07-28"

_VALUED = frozenset({"slow-start", "many-tools"})
PAGE = 100
"""The number of tools on a page of `many-tools`."""

CANCELLED = "notifications/cancelled"

EXIT_AT_START = 3
EXIT_IN_CALL = 9
FLOOD_BYTES = 5_000_000
BEYOND_64_BITS = 2**70
REFUSAL_CODE = -32011
"""In the range that version 2026-07-28 leaves to implementations, -32000 to -32019."""

_PREFIX = "io.modelcontextprotocol/"
_SERVER_INFO = {"name": "faulty", "title": "A server with faults", "version": "1.0.0"}
_INSTRUCTIONS = "Tools that show what a server may do to its client."
_RED_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"  # PNG, 1x1

Json = dict[str, Any]


def _schema(required: Sequence[str] = (), **properties: Json) -> Json:
    schema: Json = {"type": "object", "properties": properties}
    return {**schema, "required": list(required)} if required else schema


_TEXT: Json = {"type": "string"}
_INTEGER: Json = {"type": "integer"}
_READS: Json = {"readOnlyHint": True, "openWorldHint": False}

BASE_TOOLS: tuple[Json, ...] = (
    {
        "name": "echo",
        "title": "Echo",
        "description": "Give back a text, as text and as structured content.",
        "inputSchema": _schema(["text"], text={**_TEXT, "description": "What to give back."}),
        "outputSchema": _schema(["text"], text=_TEXT),
        "annotations": {**_READS, "idempotentHint": True},
        "_meta": {"example.com/shelf": "front"},
    },
    {
        "name": "add",
        "description": "Add two integers.",
        "inputSchema": _schema(["a", "b"], a=_INTEGER, b=_INTEGER),
        "outputSchema": _schema(["sum"], sum=_INTEGER),
        "annotations": {**_READS, "idempotentHint": True},
    },
    {
        "name": "slow",
        "description": "Report progress a number of times, then answer; stops when cancelled.",
        "inputSchema": _schema(
            steps={**_INTEGER, "minimum": 0, "default": 3},
            step_s={"type": "number", "minimum": 0, "default": 0, "description": "Seconds between two reports."},
            hold={"type": "boolean", "default": False, "description": "After the last report wait for cancellation."},
        ),
    },
    {"name": "fail", "description": "Fail, as a tool reports failure.", "inputSchema": _schema()},
    {
        "name": "image",
        "description": "Answer with every kind of content, metadata, and fields nobody has heard of.",
        "inputSchema": _schema(),
    },
    {"name": "pid", "description": "The id of this server's process.", "inputSchema": _schema()},
    {
        "name": "count",
        "description": "How many tool calls this process has received, this one included.",
        "inputSchema": _schema(),
    },
    {
        "name": "env",
        "description": "The value of an environment variable of this process, and its working directory.",
        "inputSchema": _schema(["name"], name=_TEXT),
    },
    {
        "name": "change",
        "description": "Add a tool, or give the one of that name a new description, and announce the change.",
        "inputSchema": _schema(name={**_TEXT, "default": "extra"}, description=_TEXT),
    },
)

FAULT_TOOLS: Mapping[str, Json] = {
    "die-in-call": {
        "name": "crash",
        "description": "End the process.",
        "inputSchema": _schema(torn={"type": "boolean", "default": False}),
    },
    "bad-output": {
        "name": "mismatch",
        "description": "Promise a number and give a text.",
        "inputSchema": _schema(),
        "outputSchema": _schema(["total"], total=_INTEGER),
    },
    "list-output": {"name": "numbers", "description": "Give a list with a gap.", "inputSchema": _schema()},
    "odd-output": {"name": "chart", "description": "Draw a chart.", "inputSchema": _schema(broken={"type": "boolean"})},
    "odd-header": {
        "name": "torch",
        "description": "Light a shelf.",
        "inputSchema": _schema(shelf={**_TEXT, "x-mcp-header": "no header: this"}),
    },
    "big-number": {
        "name": "weigh",
        "description": "Weigh something.",
        "inputSchema": _schema(grams={**_INTEGER, "maximum": BEYOND_64_BITS}),
    },
    "raw": {
        "name": "raw",
        "description": "Answer as no server should.",
        "inputSchema": _schema(["how"], how=_TEXT),
    },
    "error": {"name": "refuse", "description": "Refuse to run.", "inputSchema": _schema()},
}

LONG_NAME = "long_" * 40
"""A name of 200 characters."""

ODD_TOOLS: tuple[Any, ...] = (
    {"name": "no_description", "inputSchema": _schema()},
    {"name": LONG_NAME, "description": "A name of 200 characters.", "inputSchema": _schema()},
    {"name": "files.read.all", "description": "Dots in the name.", "inputSchema": _schema()},
    {"name": "read the file", "description": "Spaces in the name.", "inputSchema": _schema()},
    {"name": "files/read", "description": "A slash in the name.", "inputSchema": _schema()},
    {"name": "🔧_repair", "description": "An emoji in the name.", "inputSchema": _schema()},
    {"name": "天気予報", "description": "東京の天気を調べます。", "inputSchema": _schema()},
    {"name": "", "description": "No name to speak of.", "inputSchema": _schema()},
    {"name": "twin", "description": "The first of two with one name.", "inputSchema": _schema(first=_TEXT)},
    {"name": "twin", "description": "The second of two with one name.", "inputSchema": _schema(second=_TEXT)},
    {"name": "getItem", "description": "Mixed case.", "inputSchema": _schema()},
    {"name": "GetItem", "description": "Another case.", "inputSchema": _schema()},
    {"name": "unknown_type", "description": "A type that JSON has not.", "inputSchema": {"type": "strin"}},
    {
        "name": "remote_ref",
        "description": "A schema that points elsewhere.",
        "inputSchema": {"type": "object", "properties": {"item": {"$ref": "https://example.com/item.json"}}},
    },
    {
        "name": "recursive",
        "description": "A schema that contains itself.",
        "inputSchema": {
            **_schema(["tree"], tree={"$ref": "#/$defs/node"}),
            "$defs": {"node": _schema(children={"type": "array", "items": {"$ref": "#/$defs/node"}})},
        },
    },
    {"name": "no_schema", "description": "No input schema."},
    {"name": "array_schema", "description": "Arguments as a list.", "inputSchema": {"type": "array"}},
    {"name": "list_for_schema", "description": "A list where a schema belongs.", "inputSchema": []},
    {"name": "odd_description", "description": ["not", "a", "text"], "inputSchema": _schema()},
    {"name": None, "description": "Null for a name.", "inputSchema": _schema()},
    {"description": "No name at all.", "inputSchema": _schema()},
    "not an object",
    None,
)
"""Definitions that real servers send, and a few that no server should send."""

ODD_NAMES_THAT_ANSWER = frozenset(
    name for tool in ODD_TOOLS if isinstance(tool, dict) and isinstance(name := cast(Json, tool).get("name"), str)
)
"""Every tool with a name can be called, and answers with its name."""


class JsonRpcError(Exception):
    """A request is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error: Json = {"code": code, "message": message}
        if data is not None:
            self.error["data"] = data


@dataclass(frozen=True, slots=True)
class Options:
    """The parsed command line."""

    faults: Mapping[str, str]
    """Maps each fault to its value. The value is empty if the fault takes none."""
    era: str = "both"
    log: Path | None = None
    ttl_ms: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """A request that waits for its response."""

    id: Any
    method: str
    params: Json
    modern: bool
    cancelled: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)
    """Set when a held call should end, whether it was cancelled or not."""

    @property
    def meta(self) -> Json:
        return _object(self.params.get("_meta"))


def _object(value: Any) -> Json:
    return cast(Json, value) if isinstance(value, dict) else {}


def _text(text: str, **more: Any) -> Json:
    return {"content": [{"type": "text", "text": text}], **more}


class Output:
    """Writes complete lines to stdout from any thread, with the configured noise."""

    def __init__(self, faults: Mapping[str, str]) -> None:
        self._faults = faults
        self._lock = threading.Lock()

    def send(self, message: Json) -> None:
        line = json.dumps(message, ensure_ascii=False).encode() + b"\n"
        if "garbage" in self._faults:
            line = b'INFO  ready to serve\n\n{"level": "info"}\n' + line + b"   \n[1, 2]\nTraceback: none, only noise\n"
        if "binary-garbage" in self._faults:
            line = b"\xff\xfe\x80 not a text\n" + line
        self.write(line)

    def write(self, line: bytes) -> None:
        with self._lock:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


class Log:
    """A log with one JSON object per line. Each line is flushed at once, so that a test can read it."""

    def __init__(self, path: Path | None) -> None:
        self._file = None if path is None else path.open("a", encoding="utf-8")
        self._lock = threading.Lock()

    def write(self, **entry: Any) -> None:
        if self._file is not None:
            with self._lock:
                self._file.write(json.dumps(entry, ensure_ascii=False) + "\n")
                self._file.flush()


class Server:
    """The state of one process: its tools, open calls and subscriptions."""

    def __init__(self, options: Options, output: Output | None = None) -> None:
        self._options = options
        self._faults = options.faults
        self._output = output or Output(options.faults)
        self._log = Log(options.log)
        self._tools: list[Any] = [
            *BASE_TOOLS,
            *(tool for fault, tool in FAULT_TOOLS.items() if fault in self._faults),
            *(ODD_TOOLS if "odd-tools" in self._faults else ()),
        ]
        self._tools += [_numbered(number) for number in range(int(self._faults.get("many-tools", 0)))]
        if "big-schema" in self._faults:
            self._tools.append(_catalogue())
        self._lists = 0
        self._held: list[Request] = []
        self._calls = 0
        self._handshaken = False
        self._running: dict[Any, tuple[Request, threading.Thread]] = {}
        self._subscriptions: set[Any] = set()
        self._methods: Mapping[str, Callable[[Request], Json | None]] = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": lambda _: {},
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "subscriptions/listen": self._listen,
        }
        self._answers: Mapping[str, Callable[[Json], Json]] = {
            "echo": _echo,
            "add": _add,
            "fail": lambda _: _text("This tool always fails.", isError=True),
            "image": _image,
            "pid": lambda _: _text(str(os.getpid()), structuredContent={"pid": os.getpid()}),
            "count": lambda _: _text(str(self._calls), structuredContent={"calls": self._calls}),
            "env": _env,
            "change": self._change,
            "mismatch": lambda _: _text("many", structuredContent={"total": "many"}),
            "numbers": lambda _: _text("one, nothing, three", structuredContent=[1, None, {"three": None}]),
            "chart": _chart,
            "refuse": _refuse,
        }

    def serve(self) -> None:
        """Answer until stdin closes. Running calls are then cancelled and awaited."""
        self._log.write(event="start", pid=os.getpid())
        for line in sys.stdin.buffer:
            if not line.strip():
                continue
            if "never-reads" in self._faults and self._lists:
                threading.Event().wait()
            try:
                message: Any = json.loads(line)
            except ValueError:
                self._send_error(None, JsonRpcError(-32700, "Parse error"))
                continue
            self.receive(_object(message))
        self._log.write(event="stdin closed")
        for request, thread in list(self._running.values()):
            request.cancelled.set()
            request.let_go.set()
            thread.join()
        if "ignore-stdin-close" in self._faults:
            threading.Event().wait()

    def receive(self, message: Json) -> None:
        """Handle a message. The response is sent when it is ready."""
        self._log.write(received=message)
        method = message.get("method")
        if not isinstance(method, str) or "silent" in self._faults:
            return
        params = _object(message.get("params"))
        if "id" not in message:
            if method == CANCELLED:
                self._cancel(params.get("requestId"))
            return
        enveloped = f"{_PREFIX}protocolVersion" in _object(params.get("_meta"))
        request = Request(message["id"], method, params, enveloped and self._options.era != "legacy")
        try:
            result = self._answer(request)
        except JsonRpcError as refusal:
            self._send_error(request.id, refusal)
        else:
            if result is not None:
                self._send_result(request, result)

    def _answer(self, request: Request) -> Json | None:
        """Returns the result, or None if the response is sent later or never."""
        if request.method.startswith("tools/") and request.method.replace("tools/", "silent-") in self._faults:
            return None
        if request.modern:
            asked = request.meta[f"{_PREFIX}protocolVersion"]
            if asked != MODERN_VERSION:
                raise _unsupported(asked)
        elif self._options.era == "modern":
            raise _unsupported(request.params.get("protocolVersion", "none"))
        method = self._methods.get(request.method)
        if method is None or request.method in (_ONLY_LEGACY if request.modern else _ONLY_MODERN):
            raise JsonRpcError(-32601, "Method not found", request.method)
        return method(request)

    def _initialize(self, request: Request) -> Json:
        self._handshaken = True
        asked = request.params.get("protocolVersion")
        return {
            "protocolVersion": asked if asked in LEGACY_VERSIONS else LEGACY_VERSIONS[-1],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": _SERVER_INFO,
            "instructions": _INSTRUCTIONS,
        }

    def _discover(self, request: Request) -> Json:
        return {
            "supportedVersions": [MODERN_VERSION],
            "capabilities": {"tools": {"listChanged": True}},
            "instructions": _INSTRUCTIONS,
        }

    def _list_tools(self, request: Request) -> Json:
        cursor = request.params.get("cursor")
        self._lists += 1
        if "new-each-call" in self._faults:
            self._tools[0] = {**self._tools[0], "description": f"Give back a text; list {self._lists} of this server."}
        if "many-tools" in self._faults:
            begin = int(cursor) if isinstance(cursor, str) else 0
            more = {"nextCursor": str(begin + PAGE)} if begin + PAGE < len(self._tools) else {}
            return {"tools": self._tools[begin : begin + PAGE], **more}
        if "same-cursor" in self._faults:
            return {"tools": self._tools if cursor is None else [], "nextCursor": "again"}
        if "endless-pages" in self._faults:
            page = int(cursor.removeprefix("page-")) if isinstance(cursor, str) else 1
            return {"tools": self._tools if page == 1 else [], "nextCursor": f"page-{page + 1}"}
        if "pages" not in self._faults:
            return {"tools": self._tools}
        middle = len(self._tools) // 2
        if cursor is None:
            return {"tools": self._tools[:middle], "nextCursor": "page-2"}
        if cursor != "page-2":
            raise JsonRpcError(-32602, "Unknown cursor", cursor)
        return {"tools": self._tools[middle:]}

    def _listen(self, request: Request) -> Json | None:
        wanted = _object(request.params.get("notifications")).get("toolsListChanged") is True
        if wanted:
            self._subscriptions.add(request.id)
        self._notify(
            "notifications/subscriptions/acknowledged",
            notifications={"toolsListChanged": True} if wanted else {},
            _meta={f"{_PREFIX}subscriptionId": request.id},
        )
        return {} if "short-streams" in self._faults else None

    def _call_tool(self, request: Request) -> Json | None:
        self._calls += 1
        if "flood-stderr" in self._faults:
            _flood_stderr()
        name, arguments = request.params.get("name"), _object(request.params.get("arguments"))
        listed = [_object(tool).get("name") for tool in self._tools]
        if not isinstance(name, str) or name not in listed:
            raise JsonRpcError(-32602, f"Unknown tool: {name}")
        if name == "slow":
            thread = threading.Thread(target=self._be_slow, args=(request, arguments))
            self._running[request.id] = request, thread
            thread.start()
            return None
        if name == "crash":
            self._crash(request, torn=arguments.get("torn") is True)
        if name == "raw":
            self._answer_raw(request, str(arguments.get("how")))
            return None
        answer = self._answers.get(name)
        result = answer(arguments) if answer is not None else _text(name)
        if {"change-each-call", "new-each-call"} & self._faults.keys():
            self._announce()
        return result

    def _answer_raw(self, request: Request, how: str) -> None:
        """Write the raw answer that `how` names, with or without the final line feed."""
        answer = plain_answer(request.id)
        match how:
            case "silence":
                pass
            case "hold":
                self._held.append(request)
            case "release":  # first all held calls, including cancelled ones, and then this one
                for held in self._held:
                    self._output.write(plain_answer(held.id) + b"\n")
                self._held.clear()
                self.release()
                self._output.write(answer + b"\n")
            case "twice":
                self._output.write(2 * (answer + b"\n"))
            case "progress-after":
                self._output.write(answer + b"\n")
                self._notify("notifications/progress", progressToken=request.meta.get("progressToken"), progress=9)
            case "split":
                for part in range(0, len(answer), 7):
                    self._output.write(answer[part : part + 7])
                self._output.write(b"\n")
            case "drip":
                self._drip(answer, 0.001)
            case "late-drip":
                self._drip(answer + b" " * 60, 0.005)
            case "unended":  # a complete message without the line feed
                self._output.write(answer)
                os._exit(EXIT_IN_CALL)
            case "torn":
                self._output.write(answer[: len(answer) // 2])
                os._exit(EXIT_IN_CALL)
            case "die":
                os._exit(EXIT_IN_CALL)
            case "orphan":  # exits, and leaves a child process that keeps its output open
                child = subprocess.Popen(["sleep", "1000"])
                self._log.write(event="child", pid=child.pid)
                os._exit(EXIT_IN_CALL)
            case "flood":
                self._output.write(b"INFO still going\n" * 10_000)
                self._output.write(answer + b"\n")
            case _:
                self._output.write(ODD_ANSWERS[how](request.id) + b"\n")

    def _drip(self, answer: bytes, pause_s: float) -> None:
        for byte in answer + b"\n":
            self._output.write(bytes([byte]))
            time.sleep(pause_s)

    def _be_slow(self, request: Request, arguments: Json) -> None:
        steps, step_s = int(arguments.get("steps", 3)), float(arguments.get("step_s", 0))
        token = request.meta.get("progressToken")
        for step in range(1, steps + 1):
            if request.cancelled.wait(step_s):
                break
            if token is not None:
                self._notify(
                    "notifications/progress", progressToken=token, progress=step, total=steps, message=f"step {step}"
                )
        if arguments.get("hold") is True:
            request.let_go.wait()
        if request.cancelled.is_set():
            self._log.write(event="cancelled", tool="slow", request_id=request.id)
        else:
            self._send_result(request, _text(f"done after {steps} steps"))
        self._running.pop(request.id, None)

    def _cancel(self, request_id: Any) -> None:
        self._subscriptions.discard(request_id)
        running = self._running.get(request_id)
        if running is not None:
            running[0].cancelled.set()
            running[0].let_go.set()

    def release(self) -> None:
        """Let every held call end."""
        for request, _ in [*self._running.values()]:
            request.let_go.set()

    def _change(self, arguments: Json) -> Json:
        name = str(arguments.get("name", "extra"))
        description = str(arguments.get("description", f"Tool {len(self._tools) + 1} of this server."))
        known = next((tool for tool in self._tools if _object(tool).get("name") == name), None)
        changed = {"inputSchema": _schema(), **_object(known), "name": name, "description": description}
        self._tools = [changed if tool is known else tool for tool in self._tools]
        if known is None:
            self._tools.append(changed)
        self._announce()  # before the answer, so that a client with the answer has the notification too
        return _text(f"{'added' if known is None else 'changed'} {name}")

    def _announce(self) -> None:
        if self._handshaken:
            self._notify("notifications/tools/list_changed")
        for subscription in self._subscriptions:
            self._notify("notifications/tools/list_changed", _meta={f"{_PREFIX}subscriptionId": subscription})

    def _crash(self, request: Request, *, torn: bool) -> None:
        if torn:
            answer = json.dumps({"jsonrpc": "2.0", "id": request.id, "result": _text("never whole")}).encode()
            self._output.write(answer[: len(answer) // 2])
        os._exit(EXIT_IN_CALL)  # no clean-up, as a real crash has none

    def _send_result(self, request: Request, result: Json) -> None:
        if request.modern:
            meta = {**_object(result.get("_meta")), f"{_PREFIX}serverInfo": _SERVER_INFO}
            result = {**result, "resultType": "complete", "_meta": meta}
            if request.method in _CACHEABLE:
                result |= {"ttlMs": self._options.ttl_ms, "cacheScope": "public"}
        self._output.send({"jsonrpc": "2.0", "id": request.id, "result": result})

    def _send_error(self, request_id: Any, refusal: JsonRpcError) -> None:
        self._output.send({"jsonrpc": "2.0", "id": request_id, "error": refusal.error})

    def _notify(self, method: str, **params: Any) -> None:
        message: Json = {"jsonrpc": "2.0", "method": method}
        self._output.send({**message, "params": params} if params else message)


_ONLY_LEGACY = frozenset({"initialize", "ping"})
_ONLY_MODERN = frozenset({"server/discover", "subscriptions/listen"})
_CACHEABLE = frozenset({"server/discover", "tools/list"})


def _numbered(number: int) -> Json:
    return {"name": f"tool_{number}", "description": f"Number {number} of many.", "inputSchema": _schema()}


def _catalogue() -> Json:
    entries = [f"entry {number:06} {'x' * 36}" for number in range(100_000)]
    description = "Look something up in a long list."
    return {"name": "catalogue", "description": description, "inputSchema": _schema(entry={"enum": entries})}


def plain_answer(request_id: Any) -> bytes:
    """Returns a valid response to a call, without the final line feed."""
    return _raw(request_id, result=PLAIN_RESULT)


def _raw(request_id: Any, **more: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, **more}).encode()


def _long(before: bytes, after: bytes) -> bytes:
    return before + b"x" * LONG_BYTES + after


PLAIN_RESULT: Json = {"content": [{"type": "text", "text": "plain"}], "resultType": "complete"}
LONG_BYTES = 100_000_000

ODD_ANSWERS: Mapping[str, Callable[[Any], bytes]] = {
    "wrong-version": lambda id_: json.dumps({"jsonrpc": "1.0", "id": id_, "result": PLAIN_RESULT}).encode(),
    "no-version": lambda id_: json.dumps({"id": id_, "result": PLAIN_RESULT}).encode(),
    "no-outcome": lambda id_: _raw(id_),
    "result-list": lambda id_: _raw(id_, result=[1, 2]),
    "result-null": lambda id_: _raw(id_, result=None),
    "error-text": lambda id_: _raw(id_, error="no"),
    "both": lambda id_: _raw(id_, result=PLAIN_RESULT, error={"code": REFUSAL_CODE, "message": "Both at once"}),
    "null-error": lambda id_: _raw(id_, result=PLAIN_RESULT, error=None),
    "method-number": lambda id_: _raw(id_, method=5),
    "array": lambda id_: b"[" + plain_answer(id_) + b"]",
    "empty-array": lambda _: b"[]",
    "wrong-id": lambda _: plain_answer(987_654),
    "no-id": lambda _: json.dumps({"jsonrpc": "2.0", "result": PLAIN_RESULT}).encode(),
    "null-id": lambda _: _raw(None, error={"code": -32700, "message": "Could not read that"}),
    "text-id": lambda id_: plain_answer(str(id_)),
    "float-id": lambda id_: plain_answer(float(id_)),
    "id-last": lambda id_: json.dumps({"result": PLAIN_RESULT, "jsonrpc": "2.0", "id": id_}).encode(),
    "no-json": lambda id_: f"{{'jsonrpc': '2.0', 'id': {id_}}}".encode(),
    "half": lambda id_: plain_answer(id_)[:-10],
    "deep": lambda id_: b'{"jsonrpc":"2.0","id":' + str(id_).encode() + b',"result":' + b"[" * 100_000,
    "not-utf-8": lambda id_: plain_answer(id_).replace(b"plain", b"pl\xe4in"),
    "half-a-pair": lambda id_: plain_answer(id_).replace(b"plain", b"pl\\ud83din"),
    "byte-order-mark": lambda id_: b"\xef\xbb\xbf" + plain_answer(id_),
    "not-a-number": lambda id_: _raw(id_, result={**PLAIN_RESULT, "structuredContent": {"ratio": float("nan")}}),
    "closed-code": lambda id_: _raw(id_, error={"code": -32000, "message": "The bench is closed"}),
    "timeout-code": lambda id_: _raw(id_, error={"code": -32001, "message": "The bench is slow"}),
    "long": lambda id_: _long(b'{"jsonrpc":"2.0","id":%d,"result":{"text":"' % id_, b'"}}'),
    "long-id-last": lambda id_: _long(b'{"result":{"text":"', b'"},"jsonrpc":"2.0","id":%d}' % id_),
    "long-garbage": lambda id_: _long(b"", b"") + b"\n" + plain_answer(id_),
    "deep-garbage": lambda id_: b"{" * 300_000 + b"\n" + plain_answer(id_),
}
"""Maps names to functions that return an invalid or unusual response to a request id, without the final line feed."""


def _unsupported(asked: Any) -> JsonRpcError:
    return JsonRpcError(-32022, "Unsupported protocol version", {"supported": [MODERN_VERSION], "requested": asked})


def _echo(arguments: Json) -> Json:
    text = arguments.get("text")
    if not isinstance(text, str):
        return _text("`text` must be a string", isError=True)
    return _text(text, structuredContent={"text": text})


def _add(arguments: Json) -> Json:
    numbers = [arguments.get("a"), arguments.get("b")]
    # bool is a subclass of int in Python, and no integer in JSON.
    integers = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool)]
    if len(integers) != 2:
        return _text("`a` and `b` must be integers", isError=True)
    return _text(str(sum(integers)), structuredContent={"sum": sum(integers)})


def _image(_: Json) -> Json:
    return {
        "content": [
            {"type": "text", "text": "one red pixel", "annotations": {"audience": ["user"], "priority": 0.5}},
            {"type": "image", "data": _RED_PIXEL, "mimeType": "image/png", "futureField": {"depth": 8}},
            {
                "type": "resource",
                "resource": {"uri": "memo://red", "mimeType": "text/plain", "text": "red", "_meta": {"memo": 1}},
            },
            {"type": "resource_link", "uri": "memo://palette", "name": "palette", "mimeType": "application/json"},
        ],
        "structuredContent": {"width": 1, "height": 1},
        "futureField": ["kept"],
        "_meta": {"example.com/camera": "none"},
    }


def _chart(arguments: Json) -> Json:
    if arguments.get("broken") is True:
        return {"content": "no list"}
    return {"content": [{"type": "chart", "bars": [1, None, 3]}, {"type": "text"}, {"type": "text", "text": "a chart"}]}


def _env(arguments: Json) -> Json:
    value = os.environ.get(str(arguments.get("name")))
    return _text(str(value), structuredContent={"value": value, "cwd": str(Path.cwd())})


def _refuse(_: Json) -> Json:
    raise JsonRpcError(REFUSAL_CODE, "The workbench is locked", {"locked_by": "somebody else", "since": "2026-01-01"})


def _flood_stderr() -> None:
    line = b"warning: " + b"x" * 990 + b"\n"
    for _ in range(FLOOD_BYTES // len(line)):
        sys.stderr.buffer.write(line)
    sys.stderr.buffer.flush()


def _fault(word: str) -> tuple[str, str]:
    """Parses one argument into a fault and its value."""
    name, _, value = word.partition("=")
    if name not in FAULTS:
        raise argparse.ArgumentTypeError(f"no fault {name!r}; the faults are {', '.join(FAULTS)}")
    if (name in _VALUED) != bool(value):
        raise argparse.ArgumentTypeError(f"{' and '.join(sorted(_VALUED))} take a value, and nothing else does")
    return name, value


def parse(arguments: Sequence[str]) -> Options:
    table = "\n".join(f"  {name:<20}{what}" for name, what in FAULTS.items())
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=f"faults:\n{table}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("faults", metavar="FAULT", nargs="*", type=_fault, help="one of those below")
    parser.add_argument("--era", choices=("legacy", "modern", "both"), default="both", help="which protocol to speak")
    parser.add_argument("--while", type=Path, dest="flag", metavar="FILE", help="be good where there is no such file")
    parser.add_argument("--log", type=Path, metavar="FILE", help="append what was received and seen, as JSON lines")
    parser.add_argument("--ttl-ms", type=int, default=0, help="how long the tool list may be kept (modern era)")
    given = parser.parse_args(arguments)
    faults = dict(given.faults) if given.flag is None or given.flag.exists() else {}
    return Options(faults, given.era, given.log, given.ttl_ms)


def main() -> None:
    options = parse(sys.argv[1:])
    if "exit-at-start" in options.faults:
        print("faulty: cannot start: the vice is missing", file=sys.stderr)
        sys.exit(EXIT_AT_START)
    if "ignore-sigterm" in options.faults:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "flood-stderr" in options.faults:
        _flood_stderr()
    if "slow-start" in options.faults:
        time.sleep(float(options.faults["slow-start"]))
    Server(options).serve()


if __name__ == "__main__":
    main()
