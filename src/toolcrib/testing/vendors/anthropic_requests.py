"""Checks of requests for the Messages API, by its types, documentation and known responses (November 2026)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

import jsonschema_rs

from toolcrib.testing.vendors.server import RequestRefused

VERSIONS = frozenset({"2023-06-01", "2026-10-21"})

TOOL_CHANGES = frozenset({"mid-conversation-tool-changes-2026-07-01", "inline-tools-2026-09-15"})
"""Betas that accept `tool_addition` and `tool_removal` in system messages.

The second also accepts whole definitions.
"""

PREFIX_BOUND = (
    "claude-fable-5-1",
    "claude-fable-5-2",
    "claude-haiku-5-5",
    "claude-mythos-5-1",
    "claude-mythos-5-2",
    "claude-opus-5-5",
    "claude-sonnet-5-5",
)
"""Models that only accept their thinking under the same system prompt, tools and messages as when it was produced."""

# The parameters in the types of anthropic 2.12, and those that only an older version of the API accepts.
_PARAMETERS = (
    "cache_control container diagnostics inference_geo max_tokens messages metadata model output_config service_tier "
    "speed stop_sequences stream system thinking tool_choice tools"
)
_SAMPLING = ("temperature", "top_k", "top_p")
_TOOL = (
    "allowed_callers cache_control defer_loading description eager_input_streaming input_examples input_schema name "
    "strict type"
)
_FIELDS = frozenset([*_PARAMETERS.split(), *_SAMPLING])
_TOOL_FIELDS = frozenset(_TOOL.split())
# The required and the optional fields of each kind of block, apart from `type`.
_BLOCKS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "text": ("text", "cache_control citations"),
        "tool_use": ("id name input", "cache_control caller toolset_name"),
        "tool_result": ("tool_use_id", "content is_error cache_control toolset_name"),
        "tool_reference": ("tool_name", "cache_control"),
        "thinking": ("thinking signature", ""),
        "redacted_thinking": ("data", ""),
    }
)
_NAME = r"^[a-zA-Z0-9_-]{1,128}$"
_PARAMETER = r"^[a-zA-Z0-9_.-]{1,64}$"
_ID = r"^[a-zA-Z0-9_-]+$"


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools at the end of the conversation: loaded ones in `callable`, deferred ones in `held_back`."""

    callable: frozenset[str]
    held_back: frozenset[str]
    side_by_side: bool


def check_request(body: Any, headers: Mapping[str, str]) -> OfferedTools:
    """Return what a request to `/v1/messages` offers the model.

    Raises:
        Refused: the API would not accept the request. The message is the API's own if it is known.
    """
    check_caller(headers)
    betas = frozenset(filter(None, headers.get("anthropic-beta", "").split(",")))
    _check_fields(body, betas, headers["anthropic-version"])
    _check_tools(body)
    _check_output(body)
    for position, message in enumerate(body["messages"]):
        _check_message(f"messages.{position}", message, betas)
    _check_order(body["messages"])
    _check_results(body["messages"])
    offer = _offered(body, betas)
    _check_cache_control(body)
    _check_thinking(body)
    return offer


def check_caller(headers: Mapping[str, str]) -> None:
    if not (headers.get("x-api-key") or headers.get("authorization", "").startswith("Bearer ")):
        raise RequestRefused("x-api-key header is required", status=401)
    if headers.get("anthropic-version") not in VERSIONS:
        raise RequestRefused("anthropic-version: header is required")


def blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def prefix(body: Mapping[str, Any], end: int) -> str:
    """Return a digest of the system prompt, loaded tools and messages before message `end`, without cache marks."""
    messages = body["messages"][:end]
    revealed = {name for message in messages for name in _references(message)}
    tools = [tool for tool in _tools(body) if not tool.get("defer_loading") or tool["name"] in revealed]
    told = [
        {**message, "content": [block for block in blocks(message["content"]) if "thinking" not in block["type"]]}
        for message in messages
    ]
    return _digest([body.get("system"), tools, told])


def signature(thinking: str, before: str) -> str:
    """Return a signature for thinking that was produced after a `prefix`."""
    return f"{_digest(thinking)}.{before}"


def _check_thinking(body: Mapping[str, Any]) -> None:
    """Refuse thinking that was changed or, if the model binds it, that comes back under a different prefix.

    Source: "Preserved thinking" and "Fix a thinking block bound to a different conversation".
    """
    binding = _part(_part(body, "thinking"), "block_binding")
    bound = body["model"].startswith(PREFIX_BOUND) and binding.get("prefix_mismatch_behavior") != "drop_block"
    for position, message in enumerate(body["messages"]):
        for number, block in enumerate(blocks(message["content"])):
            if block["type"] != "thinking":
                continue
            where = f"messages.{position}.content.{number}: Invalid `signature` in `thinking` block"
            own, _, before = block["signature"].partition(".")
            if own != _digest(block["thinking"]):
                raise RequestRefused(where)
            if bound and before != prefix(body, position):
                raise RequestRefused(f"{where}. The block is bound to a different conversation.")


def _check_fields(body: Any, betas: frozenset[str], version: str) -> None:
    if not isinstance(body, dict):
        raise RequestRefused("The request body is not a JSON object.")
    fields = cast(dict[str, Any], body)
    for name in ("model", "max_tokens", "messages"):
        if name not in fields:
            raise RequestRefused(f"{name}: Field required")
    # Betas add fields of their own, which are not listed here.
    for name in () if betas else sorted(fields.keys() - _FIELDS):
        raise RequestRefused(f"{name}: Extra inputs are not permitted")
    for name in _SAMPLING:
        if name in fields and version != "2023-06-01":
            raise RequestRefused(f"{name}: Extra inputs are not permitted")
    most = fields["max_tokens"]
    if not isinstance(most, int) or isinstance(most, bool) or most < 0:
        raise RequestRefused("max_tokens: Input should be greater than or equal to 0")
    if not fields["messages"]:
        raise RequestRefused("messages: at least one message is required")
    for number, block in enumerate(blocks(fields.get("system") or [])):
        _check_text(f"system.{number}", block)


def _check_tools(body: Mapping[str, Any]) -> None:
    tools = _tools(body)
    for position, tool in enumerate(tools):
        _check_tool(f"tools.{position}", tool)
    names = [tool["name"] for tool in tools]
    if len(set(names)) < len(names):
        raise RequestRefused("tools: Tool names must be unique.")
    if tools and all(tool.get("defer_loading") for tool in tools):
        raise RequestRefused("At least one tool must have defer_loading=false. All tools cannot be deferred.")
    choice = body.get("tool_choice")
    if choice and not tools:
        raise RequestRefused("tool_choice may only be specified while providing tools.")
    if choice and choice["type"] == "tool" and choice["name"] not in names:
        raise RequestRefused(f"Tool '{choice['name']}' not found in provided tools")


def _check_tool(where: str, tool: Mapping[str, Any]) -> None:
    if tool.get("defer_loading") and tool.get("cache_control"):
        raise RequestRefused(f"{where}: a tool with defer_loading cannot have cache_control")
    if "name" not in tool:
        raise RequestRefused(f"{where}.name: Field required")
    if tool.get("type") not in (None, "custom"):
        return
    where = f"{where}.custom"
    _check_known(where, tool, _TOOL_FIELDS)
    _check_pattern(f"{where}.name", tool["name"], _NAME)
    schema = tool.get("input_schema")
    if not isinstance(schema, dict):
        raise RequestRefused(f"{where}.input_schema: Field required")
    schema = cast(dict[str, Any], schema)
    if schema.get("type") != "object":
        raise RequestRefused(f"{where}.input_schema.type: Input should be 'object'")
    if schema.keys() & {"oneOf", "allOf", "anyOf"}:
        raise RequestRefused(
            f"{where}.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
        )
    if not jsonschema_rs.meta.is_valid(schema):
        raise RequestRefused(f"{where}.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12")
    if not all(re.match(_PARAMETER, key) for key in _part(schema, "properties")):
        raise RequestRefused(f"{where}.input_schema.properties: Property keys should match pattern '{_PARAMETER}'")
    if tool.get("strict"):
        _check_closed(f"{where}.input_schema", schema)


def _check_output(body: Mapping[str, Any]) -> None:
    output = _part(_part(body, "output_config"), "format")
    if not output:
        return
    if output.get("type") != "json_schema" or not isinstance(output.get("schema"), dict):
        raise RequestRefused("output_config.format.schema: Field required")
    _check_closed("output_config.format.schema", output["schema"])


def _check_closed(where: str, schema: Any) -> None:
    if isinstance(schema, list):
        for part in cast(list[Any], schema):
            _check_closed(where, part)
    if not isinstance(schema, dict):
        return
    schema = cast(dict[str, Any], schema)
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        raise RequestRefused(f"{where}: For 'object' type, 'additionalProperties' must be explicitly set to false")
    for part in schema.values():
        _check_closed(where, part)


def _check_message(where: str, message: Mapping[str, Any], betas: frozenset[str]) -> None:
    if message.get("role") not in ("user", "assistant", "system"):
        raise RequestRefused(f"{where}.role: Input should be 'user', 'assistant' or 'system'")
    if not betas:
        _check_known(where, message, frozenset({"role", "content"}))
    if not isinstance(message.get("content"), str | list):
        raise RequestRefused(f"{where}.content: Input should be a valid list")
    if not message["content"] and message["role"] != "system":
        raise RequestRefused(
            f"{where}: all messages must have non-empty content except for the optional final assistant message"
        )
    for number, block in enumerate(blocks(message["content"])):
        _check_block(f"{where}.content.{number}", block)


def _check_block(where: str, block: Mapping[str, Any]) -> None:
    kind = block.get("type")
    if kind is None:
        raise RequestRefused(f"{where}.type: Field required")
    where = f"{where}.{kind}"
    if kind in _BLOCKS:
        required, optional = (fields.split() for fields in _BLOCKS[kind])
        for name in required:
            if name not in block:
                raise RequestRefused(f"{where}.{name}: Field required")
        _check_known(where, block, frozenset([*required, *optional, "type"]))
    if kind == "text":
        _check_text(where, block)
    elif kind == "tool_use":
        _check_pattern(f"{where}.id", block["id"], _ID)
        _check_pattern(f"{where}.name", block["name"], _NAME)
        if not isinstance(block["input"], dict):
            raise RequestRefused(f"{where}.input: Input should be a valid dictionary")
    elif kind == "tool_result":
        content = blocks(block.get("content") or [])
        for number, part in enumerate(content):
            _check_block(f"{where}.content.{number}", part)
        if block.get("is_error") and any(part["type"] != "text" for part in content):
            raise RequestRefused(f"{where}: all content must be type `text` if `is_error` is true")
        # The API is known to refuse this; its message is not known.
        if len({part["type"] == "tool_reference" for part in content}) > 1:
            raise RequestRefused(f"{where}: `tool_reference` cannot be mixed with other content")


def _check_text(where: str, block: Mapping[str, Any]) -> None:
    if not block["text"]:
        raise RequestRefused(f"{where}: text content blocks must be non-empty")
    if not block["text"].strip():
        raise RequestRefused(f"{where}: text content blocks must contain non-whitespace text")


def _check_known(where: str, given: Mapping[str, Any], known: frozenset[str]) -> None:
    for name in sorted(given.keys() - known):
        raise RequestRefused(f"{where}.{name}: Extra inputs are not permitted")


def _check_pattern(where: str, text: Any, pattern: str) -> None:
    if not isinstance(text, str) or not re.match(pattern, text):
        raise RequestRefused(f"{where}: String should match pattern '{pattern}'")


def _check_order(messages: list[dict[str, Any]]) -> None:
    if messages[0]["role"] != "user":
        raise RequestRefused('messages: first message must use the "user" role')
    if messages[-1]["role"] == "assistant" and blocks(messages[-1]["content"])[-1]["type"] != "server_tool_use":
        raise RequestRefused(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )
    for position in range(1, len(messages)):
        before, role = messages[position - 1]["role"], messages[position]["role"]
        if role == "system" and before == "assistant":
            raise RequestRefused(f"messages.{position}: a system message must follow a user message")
        if role == "user" and before == "system":
            raise RequestRefused(
                f"messages.{position - 1}: a system message must be last or stand before an assistant message"
            )


def _check_results(messages: list[dict[str, Any]]) -> None:
    """Check that every call is answered once, at the beginning of the next turn, and that every result has a call."""
    calls: list[str] = []
    called = 0
    known: set[str] = set()
    for position, turn in _turns(messages):
        parts = turn["content"]
        results = [part["tool_use_id"] for part in parts if part["type"] == "tool_result"]
        for number, result in enumerate(results):
            if result not in calls:
                raise RequestRefused(
                    f"messages.{position}.content.{number}: unexpected `tool_use_id` found in `tool_result` blocks:"
                    f" {result}. Each `tool_result` block must have a corresponding `tool_use` block in the previous"
                    " message."
                )
            if result in results[:number]:
                raise RequestRefused(
                    f"messages.{position}.content.{number}: each tool_use must have a single result."
                    f" Found multiple `tool_result` blocks with id: {result}"
                )
        first = next((n for n, part in enumerate(parts) if part["type"] != "tool_result"), len(parts))
        _check_answered(called, [call for call in calls if call not in results[:first]])
        calls = [part["id"] for part in parts if part["type"] == "tool_use"]
        called = position
        if known & set(calls) or len(set(calls)) < len(calls):
            raise RequestRefused("messages: `tool_use` ids must be unique")
        known.update(calls)
    _check_answered(called, calls)


def _check_answered(called: int, unanswered: list[str]) -> None:
    if unanswered:
        raise RequestRefused(
            f"messages.{called}: `tool_use` ids were found without `tool_result` blocks immediately after:"
            f" {', '.join(unanswered)}. Each `tool_use` block must have a corresponding `tool_result` block in the next"
            " message."
        )


def _turns(messages: list[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield turns: consecutive messages of one role are merged, as the API does.

    Each has the position of its first one.
    """
    turn: dict[str, Any] | None = None
    start = 0
    for position, message in enumerate(messages):
        if turn is not None and turn["role"] == message["role"]:
            turn["content"] = [*turn["content"], *blocks(message["content"])]
            continue
        if turn is not None:
            yield start, turn
        turn, start = {"role": message["role"], "content": blocks(message["content"])}, position
    if turn is not None:
        yield start, turn


def _offered(body: Mapping[str, Any], betas: frozenset[str]) -> OfferedTools:
    defined = {tool["name"] for tool in _tools(body)}
    loaded = {tool["name"] for tool in _tools(body) if not tool.get("defer_loading")}
    for position, message in enumerate(body["messages"]):
        for block in blocks(message["content"]):
            if block["type"] in ("tool_addition", "tool_removal"):
                _change(f"messages.{position}", block, betas, defined, loaded)
        for name in _references(message):
            if name not in defined:
                raise RequestRefused(f"Tool reference '{name}' not found in available tools")
            loaded.add(name)
    choice = _part(body, "tool_choice")
    side_by_side = not choice.get("disable_parallel_tool_use", False)
    return OfferedTools(frozenset(loaded), frozenset(defined - loaded), side_by_side)


def _change(where: str, block: Mapping[str, Any], betas: frozenset[str], defined: set[str], loaded: set[str]) -> None:
    if not betas & TOOL_CHANGES:
        raise RequestRefused(
            f"{where}: Input tag '{block['type']}' found using 'type' does not match any of the expected tags"
        )
    tool = block["tool"]
    if tool["type"] == "tool_definition" and "inline-tools-2026-09-15" in betas:
        _check_tool(where, tool["definition"])
        defined.add(tool["definition"]["name"])
        loaded.add(tool["definition"]["name"])
        return
    name = tool.get("name")
    if name not in defined:
        raise RequestRefused(f"{where}: tool '{name}' is not defined here", code="tool_reference_unresolved")
    if block["type"] == "tool_addition":
        loaded.add(name)
    else:
        loaded.discard(name)


def _references(message: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the tools that the results in this message refer to."""
    for block in blocks(message["content"]):
        if block["type"] == "tool_result":
            for part in blocks(block.get("content") or []):
                if part["type"] == "tool_reference":
                    yield part["tool_name"]


def _check_cache_control(body: Mapping[str, Any]) -> None:
    marks = list(_marks(body))
    if len(marks) > 4:
        raise RequestRefused(f"A maximum of 4 blocks with cache_control may be provided. Found {len(marks)}.")
    for mark in marks:
        if mark.get("type") != "ephemeral" or mark.get("ttl", "5m") not in ("5m", "1h"):
            raise RequestRefused("cache_control: Input should be of type 'ephemeral', with a ttl of '5m' or '1h'")


def _marks(part: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every `cache_control`, except inside values that a tool or a model wrote."""
    if isinstance(part, list):
        for each in cast(list[Any], part):
            yield from _marks(each)
    if isinstance(part, dict):
        for key, value in cast(dict[str, Any], part).items():
            if key == "cache_control" and value:
                yield value
            elif key not in ("input_schema", "input", "schema", "input_examples"):
                yield from _marks(value)


def _part(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return body.get(name) or {}


def _tools(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    return body.get("tools") or []


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(_unmarked(value), sort_keys=True).encode()).hexdigest()[:16]


def _unmarked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unmarked(each) for each in cast(list[Any], value)]
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return {key: _unmarked(each) for key, each in items if key != "cache_control"}
    return value
