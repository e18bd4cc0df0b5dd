"""A stdio server of version 2025-11-25, without any SDK, with legal behavior that SDKs do not show.

Arguments change what it offers: `odd-schemas` adds tools with schemas that few clients accept, and with
`hanging-prompts` a request for the list of prompts is never answered.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

Json = dict[str, Any]

FORM: Json = {"message": "Go on?", "requestedSchema": {"type": "object", "properties": {}}}

_writing = threading.Lock()
_answers: dict[int, Json] = {}
_answered = threading.Condition()
_last_id = 1_000


def send(message: Json) -> None:
    with _writing:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def ask(method: str, params: Json) -> Json:
    """Sends a request to the client and returns its result or error."""
    global _last_id  # noqa: PLW0603
    with _answered:
        _last_id += 1
        asked = _last_id
    send({"id": asked, "method": method, "params": params})
    with _answered:
        _answered.wait_for(lambda: asked in _answers)
        return _answers.pop(asked)


def report(token: object, step: int) -> None:
    send({"method": "notifications/progress", "params": {"progressToken": token, "progress": step, "total": 3}})


def text(value: object) -> Json:
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


def beyond_64_bits(_token: object) -> Json:
    return {**text("ran"), "structuredContent": {"n": 2**70}}


def first_version(_token: object) -> Json:
    return {"toolResult": {**text("as it was in 2024"), "isError": True}}


def ask_for_address(_token: object) -> Json:
    asked = {"mode": "url", "message": "Go there", "url": "https://example.com/", "elicitationId": "1"}
    return text(ask("elicitation/create", asked))


def ask_then_report(token: object) -> Json:
    ask("elicitation/create", FORM)
    for step in range(3):
        report(token, step)
    return text("done")


def ask_late(token: object) -> Json:
    """Report progress, and request input once the call was cancelled. `said_late` returns the response."""
    report(token, 0)
    _cancelled.wait()
    _late.append(ask("elicitation/create", {**FORM, "message": "a secret question"}))
    _late_said.set()
    return text("nobody waits for this")


def said_late(token: object) -> Json:
    """Report progress, and return the response that `ask_late` received."""
    report(token, 0)
    _late_said.wait()
    return text(_late[0])


_late: list[Json] = []
_late_said = threading.Event()
_cancelled = threading.Event()


def ask_two(_token: object) -> Json:
    said: dict[str, Json] = {}

    def one(name: str) -> None:
        said[name] = ask("elicitation/create", {**FORM, "message": name})

    threads = [threading.Thread(target=one, args=(name,)) for name in ("left", "right")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return text(said)


CALLS = {
    each.__name__: each
    for each in (
        beyond_64_bits,
        first_version,
        ask_for_address,
        ask_then_report,
        ask_late,
        said_late,
        ask_two,
    )
}


def tools() -> list[Json]:
    plain: Json = {"type": "object", "properties": {}}
    listed: list[Json] = [{"name": name, "description": name, "inputSchema": plain} for name in CALLS]
    if "odd-schemas" in sys.argv:
        listed.append({"name": "list_output", "inputSchema": plain, "outputSchema": {"type": "array"}})
        listed.append({"name": "object_or_null", "inputSchema": {"type": ["object", "null"]}})
    return listed


def answer(request_id: object, method: str, params: Json) -> None:
    match method:
        case "initialize":
            offered: Json = {"tools": {}, "completions": {}, "prompts": {}}
            about = {"name": "peculiar", "version": "1"}
            result: Json = {"protocolVersion": "2025-11-25", "capabilities": offered, "serverInfo": about}
        case "tools/list":
            result = {"tools": tools()}
        case "tools/call":
            result = CALLS[params["name"]](params.get("_meta", {}).get("progressToken"))
        case "prompts/list" if "hanging-prompts" in sys.argv:
            return
        case "prompts/list":
            result = {"prompts": [{"name": "plan"}]}
        case "completion/complete":
            result = {"completion": {"values": [json.dumps(ask("elicitation/create", FORM))]}}
        case _:
            send({"id": request_id, "error": {"code": -32601, "message": "Method not found"}})
            return
    send({"id": request_id, "result": result})


def main() -> None:
    for line in sys.stdin:
        message: Json = json.loads(line)
        if "method" not in message:
            with _answered:
                _answers[message["id"]] = message["result"] if "result" in message else message["error"]
                _answered.notify_all()
        elif message["method"] == "notifications/cancelled":
            _cancelled.set()
        elif "id" in message:
            given = (message["id"], message["method"], message.get("params", {}))
            threading.Thread(target=answer, args=given, daemon=True).start()


if __name__ == "__main__":
    main()
