"""A local fake of OpenAI's HTTP APIs, chat completions and Responses, which plays a script instead of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.testing.vendors.openai_requests import (
    CHAT_PARAMETERS,
    RESPONSES_PARAMETERS,
    Json,
    chat_tools,
    check_items,
    check_messages,
    checked_body,
    functions,
    is_client_search,
    items_of,
    loaded_by,
    object_in,
    response_tools,
)
from toolcrib.testing.vendors.server import Call, RequestRefused, Script, TokenUsage, Turn, VendorServer, sse

CREATED = 1_790_000_000
"""The creation time of all answers, in seconds since 1970. It is fixed, so equal runs produce equal bytes."""

_PIECE = 8  # characters of arguments per streamed event, few enough that readers must join them


class OpenAIServer(VendorServer):
    """OpenAI's API for its SDK, at `base_url`. Keys are not checked.

    A scripted call with the name `search` becomes a `tool_search_call` if the request to the Responses API has a tool
    search that the client executes. So one script works with and without tool search.
    """

    def __init__(self, script: Script = (), *, search: str = "tool_search") -> None:
        super().__init__(script)
        self._search = search
        self._reasons: dict[str, str] = {}

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def routes(self) -> list[Route]:
        return [
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/v1/responses", self._respond, methods=["POST"]),
        ]

    def error(self, refused: RequestRefused) -> bytes:
        kind = "server_error" if refused.status >= 500 else "invalid_request_error"
        if refused.status == 429:
            kind = refused.code or "rate_limit_exceeded"
        return orjson.dumps(
            {"error": {"message": refused.message, "type": kind, "param": refused.param, "code": refused.code}}
        )

    async def _chat(self, request: Request) -> Response:
        recorded = await self.record(request)
        body = checked_body(recorded, CHAT_PARAMETERS, required=("model", "messages"))
        offered = chat_tools(body)
        check_messages(body["messages"])
        return await self.play(
            recorded,
            check=lambda turn: _check_turn(turn, offered, body),
            events=lambda turn: self._chunks(turn, body),
            whole=lambda turn: self._completion(turn, body),
            streamed=bool(body.get("stream")),
        )

    async def _respond(self, request: Request) -> Response:
        recorded = await self.record(request)
        body = checked_body(recorded, RESPONSES_PARAMETERS, required=("model", "input"))
        tools = response_tools(body)
        items = items_of(body["input"])
        check_items(items, self._reasons, stored=body.get("store") is not False)
        offered = {*functions(tools), *(name for item in items for name in functions(loaded_by(item)))}
        client_searches = any(is_client_search(tool) for tool in tools) and self._search not in offered
        search = self._search if client_searches else None
        return await self.play(
            recorded,
            check=lambda turn: _check_turn(turn, offered | ({self._search} if client_searches else set()), body),
            events=lambda turn: self._response_events(turn, body, search),
            whole=lambda turn: orjson.dumps(self._response(turn, body, search)),
            streamed=bool(body.get("stream")),
        )

    # Chat completions

    def _completion(self, turn: Turn, body: Json) -> bytes:
        said = "".join(turn.pieces)
        refused = turn.stopped == "refused"
        message: Json = {"role": "assistant", "content": None if refused else said or None}
        message["refusal"] = said if refused else None
        if calls := self._calls(turn):
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(turn)}
        head = self._head(body) | {"object": "chat.completion"}
        return orjson.dumps(head | {"choices": [choice], "usage": _completion_usage(turn.usage)})

    def _chunks(self, turn: Turn, body: Json) -> Iterator[bytes]:
        head = self._head(body) | {"object": "chat.completion.chunk"}
        counts = bool(object_in(body, "stream_options").get("include_usage"))

        def chunk(delta: Json, finish_reason: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
            return sse(head | {"choices": [choice]} | ({"usage": None} if counts else {}))

        field = "refusal" if turn.stopped == "refused" else "content"
        yield chunk({"role": "assistant", field: ""})
        for piece in turn.pieces:
            yield chunk({field: piece})
        for index, call in enumerate(self._calls(turn)):
            function = call["function"]
            yield chunk({"tool_calls": [call | {"index": index, "function": function | {"arguments": ""}}]})
            for piece in _pieces(function["arguments"]):
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        yield chunk({}, _finish_reason(turn))
        if counts:
            yield sse(head | {"choices": [], "usage": _completion_usage(turn.usage)})
        yield b"data: [DONE]\n\n"

    def _head(self, body: Json) -> Json:
        return {"id": f"chatcmpl-{self.number()}", "created": CREATED, "model": body["model"]}

    def _calls(self, turn: Turn) -> list[Json]:
        return [
            {"id": f"call_{self.number()}", "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in turn.calls
        ]

    # Responses

    def _response_events(self, turn: Turn, body: Json, search: str | None) -> Iterator[bytes]:
        for number, event in enumerate(_response_events(self._response(turn, body, search), turn)):
            yield sse({**event, "sequence_number": number}, event["type"])

    def _response(self, turn: Turn, body: Json, search: str | None) -> Json:
        """Return the response.

        `search` is the name of calls that become tool searches, if the client executes searches.
        """
        incomplete = turn.stopped == "length"
        return {
            "id": f"resp_{self.number()}",
            "object": "response",
            "created_at": CREATED,
            "status": "incomplete" if incomplete else "completed",
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if incomplete else None,
            "instructions": body.get("instructions"),
            "model": body["model"],
            "output": list(self._output(turn, search)),
            "parallel_tool_calls": body.get("parallel_tool_calls", True),
            "tool_choice": body.get("tool_choice", "auto"),
            "tools": body.get("tools", []),
            "usage": _response_usage(turn.usage),
        }

    def _output(self, turn: Turn, search: str | None) -> Iterator[Json]:
        """Yield the items of an answer. Items that follow reasoning can only be sent back together with it."""
        reasoning: str | None = None
        if turn.reasoning is not None:
            reasoning = f"rs_{self.number()}"
            summary = [{"type": "summary_text", "text": turn.reasoning}]
            yield {"type": "reasoning", "id": reasoning, "summary": summary, "encrypted_content": f"sealed-{reasoning}"}
        for item in self._said_and_called(turn, search):
            if reasoning is not None:
                self._reasons[item["id"]] = reasoning
            yield item

    def _said_and_called(self, turn: Turn, search: str | None) -> Iterator[Json]:
        said = "".join(turn.pieces)
        state = {"status": "incomplete" if turn.stopped == "length" else "completed"}
        if said:
            text: Json = {"type": "output_text", "text": said, "annotations": [], "logprobs": []}
            part: Json = {"type": "refusal", "refusal": said} if turn.stopped == "refused" else text
            yield {"type": "message", "id": f"msg_{self.number()}", "role": "assistant", "content": [part], **state}
        for call in turn.calls:
            number = self.number()
            if call.name == search:
                yield {
                    "type": "tool_search_call",
                    "id": f"tsc_{number}",
                    "call_id": f"call_{number}",
                    "execution": "client",
                    "arguments": _search_arguments(call),
                    **state,
                }
            else:
                yield {
                    "type": "function_call",
                    "id": f"fc_{number}",
                    "call_id": f"call_{number}",
                    "name": call.name,
                    "arguments": call.arguments,
                    **state,
                }


def _completion_usage(usage: TokenUsage) -> Json:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_written},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def _response_usage(usage: TokenUsage) -> Json:
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_written},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }


def _finish_reason(turn: Turn) -> str:
    return {"done": "stop", "calls": "tool_calls", "length": "length", "refused": "stop"}[turn.stopped]


def _response_events(response: Json, turn: Turn) -> Iterator[Json]:
    begun: Json = response | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(response["output"]):
        empty: dict[str, Json] = {
            "message": {"content": []},
            "function_call": {"arguments": ""},
            "reasoning": {"summary": []},
        }
        added = item | {"status": "in_progress"} | empty.get(item["type"], {})
        yield {"type": "response.output_item.added", "output_index": index, "item": added}
        place = {"item_id": item["id"], "output_index": index}
        if item["type"] == "message":
            yield from _message_events(item["content"][0], turn.pieces, place | {"content_index": 0})
        elif item["type"] == "function_call":
            arguments = item["arguments"]
            for piece in _pieces(arguments):
                yield {"type": "response.function_call_arguments.delta", "delta": piece, **place}
            done = {"arguments": arguments, "name": item["name"], **place}
            yield {"type": "response.function_call_arguments.done", **done}
        elif item["type"] == "reasoning":
            yield from _reasoning_events(item["summary"][0], place | {"summary_index": 0})
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{response['status']}", "response": response}


def _message_events(part: Json, pieces: Sequence[str], place: Json) -> Iterator[Json]:
    field = "refusal" if part["type"] == "refusal" else "text"
    name = "response.refusal" if part["type"] == "refusal" else "response.output_text"
    extra: Json = {} if part["type"] == "refusal" else {"logprobs": []}
    yield {"type": "response.content_part.added", "part": part | {field: ""}, **place}
    for piece in pieces:
        yield {"type": f"{name}.delta", "delta": piece, **extra, **place}
    yield {"type": f"{name}.done", field: part[field], **extra, **place}
    yield {"type": "response.content_part.done", "part": part, **place}


def _reasoning_events(part: Json, place: Json) -> Iterator[Json]:
    yield {"type": "response.reasoning_summary_part.added", "part": part | {"text": ""}, **place}
    yield {"type": "response.reasoning_summary_text.delta", "delta": part["text"], **place}
    yield {"type": "response.reasoning_summary_text.done", "text": part["text"], **place}
    yield {"type": "response.reasoning_summary_part.done", "part": part, **place}


def _pieces(text: str) -> list[str]:
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]


def _search_arguments(call: Call) -> Any:
    """Return the arguments of a search, which are JSON on the wire. Invalid JSON stays a string."""
    try:
        return orjson.loads(call.arguments)
    except orjson.JSONDecodeError:
        return call.arguments


def _check_turn(turn: Turn, offered: Iterable[str], body: Json) -> None:
    """Refuse a turn that no model would produce for this request."""
    names = set(offered)
    missing = [call.name for call in turn.calls if call.offered and call.name not in names]
    if missing:
        raise RequestRefused(
            f"The script calls `{missing[0]}`, which this request does not offer. It offers: "
            f"{', '.join(sorted(names)) or 'nothing'}.",
            code="script_calls_what_is_not_offered",
        )
    if len(turn.calls) > 1 and body.get("parallel_tool_calls") is False:
        raise RequestRefused(
            "The script calls in parallel, which this request forbids.", code="script_calls_in_parallel"
        )
