"""A local fake of Anthropic's Messages API, which plays a script and refuses what the real API would refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.testing.vendors.anthropic_requests import (
    OfferedTools,
    blocks,
    check_caller,
    check_request,
    prefix,
    signature,
)
from toolcrib.testing.vendors.server import Call, RequestRefused, Script, TokenUsage, Turn, VendorServer, sse

_STOP_REASONS = MappingProxyType(
    {"done": "end_turn", "calls": "tool_use", "length": "max_tokens", "refused": "refusal"}
)

_ERROR_TYPES = MappingProxyType(
    {
        400: "invalid_request_error",
        401: "authentication_error",
        402: "billing_error",
        403: "permission_error",
        404: "not_found_error",
        409: "conflict_error",
        413: "request_too_large",
        429: "rate_limit_error",
        504: "timeout_error",
        529: "overloaded_error",
    }
)


class AnthropicServer(VendorServer):
    """Anthropic's API for its SDK, with `url` as the `base_url`, and for the program of the Claude Agent SDK.

    Any key is accepted. A script may only call tools that the model can see. It may call a deferred tool only after a
    `tool_reference` or a `tool_addition` revealed it. Thinking is signed. It must come back unchanged, at the beginning
    of the turn whose calls are answered. On the newest models it must come back under the same system prompt, tools and
    messages.
    """

    def __init__(self, script: Script = ()) -> None:
        super().__init__(script)
        self._thought_over: set[str] = set()
        """The ids of calls that thinking preceded."""

    def routes(self) -> list[Route]:
        return [
            Route("/v1/messages", self._messages, methods=["POST"]),
            Route("/v1/messages/count_tokens", self._count_tokens, methods=["POST"]),
        ]

    def error(self, refused: RequestRefused) -> bytes:
        kind = _ERROR_TYPES.get(refused.status, "invalid_request_error" if refused.status < 500 else "api_error")
        error: dict[str, Any] = {"type": kind, "message": refused.message}
        if refused.code is not None:
            error["details"] = {"error_code": refused.code}
        return orjson.dumps({"type": "error", "error": error, "request_id": f"req_{self.number()}"})

    async def _messages(self, request: Request) -> Response:
        recorded = await self.record(request)
        body = recorded.content
        offer = check_request(body, recorded.headers)
        self._check_thinking_kept(body)
        streamed = body.get("stream", False)
        return await self.play(
            recorded,
            check=lambda turn: _check_turn(turn, offer, streamed=streamed),
            events=lambda turn: self._events(turn, body),
            whole=lambda turn: self._whole(turn, body),
            streamed=streamed,
        )

    async def _count_tokens(self, request: Request) -> Response:
        recorded = await self.record(request)
        check_caller(recorded.headers)
        return Response(orjson.dumps({"input_tokens": len(recorded.body) // 4}), media_type="application/json")

    def _check_thinking_kept(self, body: Mapping[str, Any]) -> None:
        for position, message in [m for m in enumerate(body["messages"]) if m[1]["role"] == "assistant"][-1:]:
            content = blocks(message["content"])
            calls = {block.get("id") for block in content if block["type"] == "tool_use"}
            if calls & self._thought_over and "thinking" not in content[0]["type"]:
                raise RequestRefused(
                    f"messages.{position}.content.0.type: Expected `thinking` or `redacted_thinking`, but found"
                    f" `{content[0]['type']}`. When `thinking` is enabled, a final `assistant` message must start with"
                    " a thinking block (preceding the lastmost set of `tool_use` and `tool_result` blocks)."
                )

    def _whole(self, turn: Turn, body: Mapping[str, Any]) -> bytes:
        message = self._message(body, _usage(turn.usage))
        content = list(_thinking(turn, body))
        if text := "".join(turn.pieces):
            content.append({"type": "text", "text": text})
        content += [self._call(call, turn) | {"input": json.loads(call.arguments)} for call in turn.calls]
        return orjson.dumps({**message, "content": content, **_stop(turn)})

    def _events(self, turn: Turn, body: Mapping[str, Any]) -> Iterator[bytes]:
        # Output tokens are counted as they are written, so the first event only counts the input.
        start = self._message(body, {**_usage(turn.usage), "output_tokens": 1})
        yield _event("message_start", message=start)
        yield _event("ping")
        for index, (block, deltas) in enumerate(self._pieces(turn, body)):
            yield _event("content_block_start", index=index, content_block=block)
            for delta in deltas:
                yield _event("content_block_delta", index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        yield _event("message_delta", delta=_stop(turn), usage=_usage(turn.usage))
        yield _event("message_stop")

    def _pieces(self, turn: Turn, body: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """Yield each block as it begins, with the deltas that are then added to it."""
        for block in _thinking(turn, body):
            added = [{"type": f"{part}_delta", part: block[part]} for part in ("thinking", "signature")]
            yield block | {"thinking": "", "signature": ""}, added
        if pieces := [piece for piece in turn.pieces if piece]:
            yield {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces]
        for call in turn.calls:
            # As in the real API, the first piece of arguments is empty, and the rest comes in several pieces.
            half = len(call.arguments) // 2
            parts = ("", call.arguments[:half], call.arguments[half:])
            yield self._call(call, turn), [{"type": "input_json_delta", "partial_json": part} for part in parts]

    def _message(self, body: Mapping[str, Any], usage: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "id": f"msg_{self.number()}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }

    def _call(self, call: Call, turn: Turn) -> dict[str, Any]:
        made = f"toolu_{self.number()}"
        if turn.reasoning is not None:
            self._thought_over.add(made)
        return {"type": "tool_use", "id": made, "name": call.name, "input": {}}


def _thinking(turn: Turn, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if turn.reasoning is not None:
        signed = signature(turn.reasoning, prefix(body, len(body["messages"])))
        yield {"type": "thinking", "thinking": turn.reasoning, "signature": signed}


def _check_turn(turn: Turn, offer: OfferedTools, *, streamed: bool) -> None:
    """Refuse a turn that this model could not have produced."""
    if len(turn.calls) > 1 and not offer.side_by_side:
        raise RequestRefused("The script calls several tools, and the request allows one.", code="script_impossible")
    for call in turn.calls:
        if call.offered and call.name in offer.held_back:
            raise RequestRefused(
                f"The script calls `{call.name}`, a deferred tool that nothing revealed.",
                code="script_impossible",
            )
        if call.offered and call.name not in offer.callable:
            raise RequestRefused(f"The script calls `{call.name}`, which was not offered.", code="script_impossible")
        if not streamed and not _is_object(call.arguments):
            raise RequestRefused(
                f"The arguments of `{call.name}` are not a JSON object, which is only possible in a stream.",
                code="script_impossible",
            )


def _usage(usage: TokenUsage) -> dict[str, Any]:
    """Return the usage. Anthropic counts new, cached and cache-written input tokens separately."""
    told: dict[str, Any] = {
        "input_tokens": usage.input - usage.cached - usage.cache_written,
        "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": usage.cache_written,
        "output_tokens": usage.output,
    }
    if usage.reasoning:
        told["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    return told


def _stop(turn: Turn) -> dict[str, Any]:
    stop: dict[str, Any] = {"stop_reason": _STOP_REASONS[turn.stopped], "stop_sequence": None}
    if turn.stopped == "refused":
        stop["stop_details"] = {"type": "refusal", "category": None, "explanation": None}
    return stop


def _event(kind: str, **fields: Any) -> bytes:
    return sse({"type": kind, **fields}, kind)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
