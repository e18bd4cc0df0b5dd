"""Checks of requests for OpenAI's APIs, by their types, documentation and known responses (November 2026)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from toolcrib.testing.vendors.server import Recorded, RequestRefused

Json = dict[str, Any]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FIRST_THAT_SEARCHES = (5, 4)
_FIRST_WITHOUT_CHAT_TOOLS = (5, 6)
_VERSION = re.compile(r"gpt-(\d+)(?:\.(\d+))?(.*)")

# The parameters in the types of openai 3.54. Any other parameter is refused, as the APIs do.
_BOTH = (
    "metadata model moderation parallel_tool_calls prompt_cache_key prompt_cache_options prompt_cache_retention "
    "safety_identifier service_tier store stream stream_options temperature tool_choice tools top_logprobs top_p user"
)
_CHAT = (
    "audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens messages "
    "modalities n prediction presence_penalty reasoning_effort response_format seed stop verbosity web_search_options"
)
_RESPONSES = (
    "access_programs background background_options context_management conversation image include input instructions "
    "max_output_tokens max_tool_calls previous_response_id prompt reasoning text truncation"
)
CHAT_PARAMETERS = frozenset(f"{_BOTH} {_CHAT}".split())
RESPONSES_PARAMETERS = frozenset(f"{_BOTH} {_RESPONSES}".split())

_FUNCTION_KEYS = frozenset({"name", "description", "parameters", "strict"})
_TOOL_KEYS = {
    "function": _FUNCTION_KEYS | {"type", "defer_loading", "allowed_callers", "output_schema", "async"},
    "tool_search": frozenset({"type", "execution", "description", "parameters"}),
}
_ID_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "tool_search_call": "tsc",
    "tool_search_output": "tso",
}
_OUTPUTS = {"function_call": "function_call_output", "tool_search_call": "tool_search_output"}
_SPOKEN = {"function_call": "function call", "tool_search_call": "tool search call"}


def checked_body(recorded: Recorded, known: frozenset[str], *, required: Sequence[str]) -> Json:
    if not isinstance(recorded.content, dict):
        raise RequestRefused("We could not parse the JSON body of your request.")
    body = cast(Json, recorded.content)
    for name in required:
        if body.get(name) in (None, "", []):
            raise RequestRefused(
                f"Missing required parameter: '{name}'.", code="missing_required_parameter", param=name
            )
    for name in body:
        if name not in known:
            raise _unknown(name)
    if body.get("stream_options") is not None and not body.get("stream"):
        raise RequestRefused(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.", param="stream_options"
        )
    return body


def object_in(held: Json, name: str) -> Json:
    """Return the object under this key, or an empty one. Some parameters are a string or an object."""
    value = held.get(name)
    return cast(Json, value) if isinstance(value, dict) else {}


def _objects(value: Any, where: str) -> list[Json]:
    if isinstance(value, list) and all(isinstance(one, dict) for one in cast(list[Any], value)):
        return cast(list[Json], value)
    raise RequestRefused(f"Invalid type for '{where}': expected an array of objects.", code="invalid_type", param=where)


def _unknown(name: str) -> RequestRefused:
    return RequestRefused(f"Unknown parameter: '{name}'.", code="unknown_parameter", param=name)


def _tool_list(body: Json) -> list[Json]:
    listed = _objects(body.get("tools", []), "tools")
    if len(listed) > 128:
        raise RequestRefused(
            "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with "
            f"length {len(listed)} instead.",
            code="array_above_max_length",
            param="tools",
        )
    return listed


def chat_tools(body: Json) -> list[str]:
    """Return the names of the functions that the request offers."""
    tools = _tool_list(body)
    for name in ("tool_choice", "parallel_tool_calls"):
        if name in body and not tools:
            raise RequestRefused(f"'{name}' is only allowed when 'tools' are specified.", param=name)
    if "tools" in body and not tools:
        raise RequestRefused("Invalid 'tools': empty array.", code="empty_array", param="tools")
    number, _ = _version(body["model"])
    reasons = body.get("reasoning_effort") != "none"
    if tools and reasons and number is not None and number >= _FIRST_WITHOUT_CHAT_TOOLS:
        raise RequestRefused(
            f"Function tools with reasoning_effort are not supported for {body['model']} in /v1/chat/completions. "
            "To use function tools, use /v1/responses or set reasoning_effort to 'none'.",
            param="reasoning_effort",
        )
    names: list[str] = []
    for position, tool in enumerate(tools):
        where = f"tools[{position}]"
        if tool.get("type") != "function" or not isinstance(tool.get("function"), dict):
            raise RequestRefused(f"Missing required parameter: '{where}.function'.", param=f"{where}.function")
        for key in tool:
            if key not in ("type", "function"):
                raise _unknown(f"{where}.{key}")
        names.append(_check_function(tool["function"], _FUNCTION_KEYS, f"{where}.function"))
    _check_unique(names)
    if chosen := object_in(body, "tool_choice"):
        _check_choice(object_in(chosen, "function").get("name"), names)
    _check_format(object_in(body, "response_format"), "response_format", nested=True)
    return names


def response_tools(body: Json) -> list[Json]:
    """Check and return the tools of the request."""
    tools = _check_tools(_tool_list(body), "tools")
    kinds = {tool["type"] for tool in tools}
    if "tool_search" not in kinds and any(tool.get("defer_loading") for tool in tools):
        raise RequestRefused(
            "Invalid Value: 'tools.defer_loading'. Deferred tools require tools.tool_search.", param="tools"
        )
    if "tool_search" in kinds and not _searches(body["model"]):
        raise RequestRefused(f"Tool 'tool_search' is not supported with {body['model']}.", param="tools")
    chosen = object_in(body, "tool_choice")
    if chosen.get("type") == "function":
        _check_choice(chosen.get("name"), functions(tools))
    _check_format(object_in(object_in(body, "text"), "format"), "text.format", nested=False)
    return tools


def _check_tools(tools: Sequence[Json], where: str) -> list[Json]:
    for position, tool in enumerate(tools):
        here = f"{where}[{position}]"
        kind = tool.get("type")
        known = _TOOL_KEYS.get(str(kind))
        if known is None:
            raise RequestRefused(
                f"Invalid value: '{kind}'. This server knows: {', '.join(_TOOL_KEYS)}.", param=f"{here}.type"
            )
        if kind == "function":
            _check_function(tool, known, here)
        for key in tool:
            if key not in known:
                raise _unknown(f"{here}.{key}")
    _check_unique([tool["name"] for tool in tools if tool["type"] == "function"])
    return list(tools)


def _check_function(function: Json, known: Iterable[str], where: str) -> str:
    for key in function:
        if key not in known:
            raise _unknown(f"{where}.{key}")
    name = function.get("name")
    if name is None:
        raise RequestRefused(
            f"Missing required parameter: '{where}.name'.", code="missing_required_parameter", param=f"{where}.name"
        )
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RequestRefused(
            f"Invalid '{where}.name': string does not match pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_-]+$', of 64 characters at most.",
            code="invalid_value",
            param=f"{where}.name",
        )
    schema = function.get("parameters")
    if schema is not None:
        _check_schema(schema, f"function '{name}'", strict=function.get("strict") is True)
    return name


def _check_schema(schema: Any, whose: str, *, strict: bool) -> None:
    if not isinstance(schema, dict) or cast(Json, schema).get("type") != "object":
        kind = cast(Json, schema).get("type") if isinstance(schema, dict) else type(schema).__name__
        raise RequestRefused(
            f"Invalid schema for {whose}: schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{kind}\"'.",
            code="invalid_function_parameters",
        )
    if strict:
        _check_strict(cast(Json, schema), whose)


def _check_strict(schema: Any, whose: str) -> None:
    """Check that every object of a strict schema is closed and requires all its properties."""
    if isinstance(schema, list):
        for one in cast(list[Any], schema):
            _check_strict(one, whose)
    if not isinstance(schema, dict):
        return
    node = cast(Json, schema)
    if node.get("type") == "object":
        if node.get("additionalProperties") is not False:
            raise RequestRefused(
                f"Invalid schema for {whose}: 'additionalProperties' is required to be supplied and to be false.",
                code="invalid_function_parameters",
            )
        if set(node.get("properties", {})) != set(node.get("required", [])):
            raise RequestRefused(
                f"Invalid schema for {whose}: 'required' is required to be supplied and to be an array including "
                "every key in properties.",
                code="invalid_function_parameters",
            )
    for key in ("items", "anyOf"):
        _check_strict(node.get(key), whose)
    for key in ("properties", "$defs"):
        _check_strict(list(node.get(key, {}).values()), whose)


def _check_unique(names: Sequence[str]) -> None:
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise RequestRefused(f"Duplicate function name '{twice[0]}' in 'tools'.", code="invalid_value", param="tools")


def _check_choice(name: Any, names: Iterable[str]) -> None:
    if name not in set(names):
        raise RequestRefused("Tool choice 'function' not found in 'tools' parameter.", param="tool_choice")


def _check_format(given: Json, where: str, *, nested: bool) -> None:
    """Check a response format.

    `nested`: in chat completions the schema is one level below the type; in Responses, next to it.
    """
    if given.get("type") != "json_schema":
        return
    held = object_in(given, "json_schema") if nested else given
    where = f"{where}.json_schema" if nested else where
    for key in ("name", "schema"):
        if not held.get(key):
            raise RequestRefused(
                f"Missing required parameter: '{where}.{key}'.",
                code="missing_required_parameter",
                param=f"{where}.{key}",
            )
    _check_schema(held["schema"], f"response_format '{held['name']}'", strict=held.get("strict") is True)


def _searches(model: str) -> bool:
    """Whether a model can search tools: since gpt-5.4, except its nano. Models with other names are assumed to."""
    number, rest = _version(model)
    return number is None or (
        number >= _FIRST_THAT_SEARCHES and not (number == _FIRST_THAT_SEARCHES and rest.startswith("-nano"))
    )


def _version(model: str) -> tuple[tuple[int, int] | None, str]:
    """Return the version number in a model's name, if there is one, and the rest of the name."""
    match = _VERSION.match(model)
    if match is None:
        return None, ""
    major, minor, rest = match.groups()
    return (int(major), int(minor or 0)), rest


def is_client_search(tool: Json) -> bool:
    return tool["type"] == "tool_search" and tool.get("execution") == "client"


def functions(tools: Iterable[Json]) -> list[str]:
    """Return the names of the functions among `tools` that a model can call at once."""
    return [tool["name"] for tool in tools if tool["type"] == "function" and not tool.get("defer_loading")]


def loaded_by(item: Json) -> list[Json]:
    """Return the tools that an item of the conversation loads, including deferred ones."""
    if item["type"] not in ("tool_search_output", "additional_tools"):
        return []
    return [tool | {"defer_loading": False} for tool in item["tools"]]


def check_messages(given: Any) -> None:
    messages = _objects(given, "messages")
    waiting: list[str] = []
    for position, message in enumerate(messages):
        where = f"messages[{position}]"
        role = message.get("role")
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                raise RequestRefused(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'.",
                    param=f"messages.[{position}].role",
                )
            waiting.remove(message["tool_call_id"])
            _check_content(message, where)
            continue
        _check_none_waits(waiting, position)
        if role == "assistant":
            waiting = _check_calls(message, where)
        elif role in ("system", "developer", "user"):
            _check_content(message, where)
        else:
            raise RequestRefused(f"Invalid value: '{role}'.", code="invalid_value", param=f"{where}.role")
    _check_none_waits(waiting, len(messages))


def _check_none_waits(waiting: Sequence[str], position: int) -> None:
    if waiting:
        raise RequestRefused(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}",
            param=f"messages.[{position}].role",
        )


def _check_content(message: Json, where: str) -> None:
    content = message.get("content")
    if not isinstance(content, str | list):
        raise RequestRefused(
            f"Invalid value for 'content': expected a string, got {'null' if content is None else type(content)}.",
            param=f"{where}.content",
        )


def _check_calls(message: Json, where: str) -> list[str]:
    """Return the ids of an assistant's calls. Each must be answered next."""
    if message.get("tool_calls") is None:
        if message.get("content") is None and message.get("refusal") is None:
            raise RequestRefused("Invalid value for 'content': expected a string, got null.", param=f"{where}.content")
        return []
    calls = _objects(message["tool_calls"], f"{where}.tool_calls")
    if not calls:
        raise RequestRefused(
            f"Invalid '{where}.tool_calls': empty array.", code="empty_array", param=f"{where}.tool_calls"
        )
    for position, call in enumerate(calls):
        here = f"{where}.tool_calls[{position}]"
        function = object_in(call, "function")
        if call.get("type") != "function" or not isinstance(function.get("name"), str):
            raise RequestRefused(f"Missing required parameter: '{here}.function.name'.", param=f"{here}.function.name")
        if not isinstance(function.get("arguments"), str):
            raise RequestRefused(
                f"Invalid type for '{here}.function.arguments': expected a string.", code="invalid_type"
            )
        if not isinstance(call.get("id"), str) or len(call["id"]) > 40:
            raise RequestRefused(
                f"Invalid '{here}.id': expected a string of 40 characters at most.", param=f"{here}.id"
            )
    ids = [call["id"] for call in calls]
    if len(set(ids)) < len(ids):
        raise RequestRefused("Duplicate value for 'tool_call_id'.", param=f"{where}.tool_calls")
    return ids


def items_of(given: Any) -> list[Json]:
    """Check and return the items of `input`, each with its type."""
    if isinstance(given, str):
        return []
    items = [{"type": "message"} | item for item in _objects(given, "input")]
    for position, item in enumerate(items):
        _check_item(item, f"input[{position}]")
    return items


_REQUIRED = {
    "message": {"role": str, "content": (str, list)},
    "reasoning": {"id": str, "summary": list},
    "function_call": {"call_id": str, "name": str, "arguments": str},
    "function_call_output": {"call_id": str, "output": (str, list)},
    "tool_search_call": {"call_id": str, "arguments": object},
    "tool_search_output": {"call_id": str, "tools": list},
    "additional_tools": {"role": str, "tools": list},
}


def _check_item(item: Json, where: str) -> None:
    fields = _REQUIRED.get(item["type"])
    if fields is None:
        known = ", ".join(_REQUIRED)
        raise RequestRefused(f"Invalid value: '{item['type']}'. This server knows: {known}.", param=f"{where}.type")
    for name, kind in fields.items():
        if name not in item:
            raise RequestRefused(
                f"Missing required parameter: '{where}.{name}'.",
                code="missing_required_parameter",
                param=f"{where}.{name}",
            )
        if not isinstance(item[name], kind):
            raise RequestRefused(f"Invalid type for '{where}.{name}'.", code="invalid_type", param=f"{where}.{name}")
    if len(item.get("call_id", "")) > 64:
        raise RequestRefused(f"Invalid '{where}.call_id': string too long. Expected a string with maximum length 64.")
    if "tools" in item:
        _objects(item["tools"], f"{where}.tools")
    _check_tools(loaded_by(item), f"{where}.tools")
    if item["type"] == "additional_tools" and item["role"] != "developer":
        raise RequestRefused(f"Invalid value: '{item['role']}'.", code="invalid_value", param=f"{where}.role")


def check_items(items: Sequence[Json], reasons: Mapping[str, str], *, stored: bool) -> None:
    """Refuse a conversation that the Responses API would not continue.

    `reasons` maps the id of an item to the id of the reasoning item that preceded it. `stored`: the API stores what it
    sent.
    """
    _check_answered(items)
    for position, item in enumerate(items):
        where = f"input[{position}]"
        kind, identity = item["type"], item.get("id")
        if identity is not None and (prefix := _ID_PREFIXES.get(kind)) and not str(identity).startswith(prefix):
            raise RequestRefused(
                f"Invalid '{where}.id': '{identity}'. Expected an ID that begins with '{prefix}'.",
                code="invalid_value",
                param=f"{where}.id",
            )
        if kind == "reasoning":
            _check_reasoning(item, items[position + 1 :], stored=stored)
        needed = reasons.get(str(identity))
        if needed is not None and all(before.get("id") != needed for before in items[:position]):
            raise RequestRefused(
                f"Item '{identity}' of type '{kind}' was provided without its required 'reasoning' item: '{needed}'.",
                param="input",
            )


def _check_answered(items: Sequence[Json]) -> None:
    """Check that every call has one later output, and every output has a call."""
    waiting: dict[tuple[str, str], str] = {}
    for item in items:
        kind = item["type"]
        if kind in _OUTPUTS:
            waiting[_OUTPUTS[kind], item["call_id"]] = kind
        elif kind in _OUTPUTS.values() and waiting.pop((kind, item["call_id"]), None) is None:
            call = next(call for call, output in _OUTPUTS.items() if output == kind)
            raise RequestRefused(
                f"No tool call found for {_SPOKEN[call]} output with call_id {item['call_id']}.", param="input"
            )
    for (_, call_id), kind in waiting.items():
        raise RequestRefused(f"No tool output found for {_SPOKEN[kind]} {call_id}.", param="input")


def _check_reasoning(item: Json, after: Sequence[Json], *, stored: bool) -> None:
    if not stored and not item.get("encrypted_content"):
        raise RequestRefused(
            f"Item with id '{item['id']}' not found. Items are not persisted when `store` is set to false. Try again "
            "with `store` set to true, or remove this item from your input.",
            status=404,
            param="input",
        )
    if not after or after[0]["type"] not in ("reasoning", "message", *_OUTPUTS):
        raise RequestRefused(
            f"Item '{item['id']}' of type 'reasoning' was provided without its required following item.",
            param="input",
        )
