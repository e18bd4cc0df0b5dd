"""The server that the published conformance suite expects, made with the SDK: stdio, or streamable HTTP with `--http`.

The suite defines the tools, prompts and resources that it calls and what each must do; this file adds nothing to that.
A tool that asks the client for something follows the era: the newer era uses an `input_required` result and a second
call, the older era a separate request during the call. Over HTTP the server prints its port. `--era legacy` speaks
only the handshake era, as older servers do.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import socket
import struct
import sys
import warnings
import wave
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, cast, get_args

import anyio
import mcp_types as types
import uvicorn
from mcp.server import ServerRequestContext
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Json: TypeAlias = dict[str, Any]
Context: TypeAlias = ServerRequestContext[Json]
Answer: TypeAlias = types.CallToolResult | types.InputRequiredResult
Tool: TypeAlias = Callable[[Context, types.CallToolRequestParams], Awaitable[Answer]]

NOTHING: Json = {"type": "object", "properties": {}}


def _text(name: str) -> Json:
    return {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}


def _pixel() -> str:
    """Return a PNG of one red pixel, in base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\x00\xff\x00\x00")
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return base64.b64encode(png).decode()


def _silence() -> str:
    """Return a WAV file with a hundredth of a second of silence, in base64."""
    sound = io.BytesIO()
    with wave.open(sound, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(160))
    return base64.b64encode(sound.getvalue()).decode()


PIXEL = types.ImageContent(type="image", data=_pixel(), mime_type="image/png")
SILENCE = types.AudioContent(type="audio", data=_silence(), mime_type="audio/wav")


def _said(*words: str) -> types.CallToolResult:
    return types.CallToolResult(content=[_words(text) for text in words])


def _words(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)


def _embedded(uri: str, mime_type: str, text: str) -> types.EmbeddedResource:
    held = types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return types.EmbeddedResource(type="resource", resource=held)


# Requests to the client


def _form(message: str, **fields: Json) -> types.ElicitRequest:
    schema: Json = {"type": "object", "properties": fields, "required": list(fields)}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def _sample(prompt: str, max_tokens: int = 100) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=_words(prompt))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    )


RESULTS: dict[type[types.InputRequest], type[types.InputResponse]] = {
    types.ElicitRequest: types.ElicitResult,
    types.CreateMessageRequest: types.CreateMessageResult,
    types.ListRootsRequest: types.ListRootsResult,
}

TEXT: Json = {"type": "string"}
NAME = _form("What is your name?", name=TEXT)
OK = _form("Please confirm", ok={"type": "boolean"})


async def _ask(
    ctx: Context,
    params: types.InputResponseRequestParams,
    questions: Mapping[str, types.InputRequest],
    state: str | None = None,
) -> dict[str, types.InputResponse] | types.InputRequiredResult:
    """Return the client's answers by question key, or the result that makes the client call again with them."""
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        given = params.input_responses or {}
        if all(isinstance(given.get(key), RESULTS[type(asked)]) for key, asked in questions.items()):
            return {key: given[key] for key in questions}
        return types.InputRequiredResult(input_requests=dict(questions), request_state=state)
    here = ServerMessageMetadata(related_request_id=ctx.request_id)
    return {
        key: await ctx.session.send_request(asked, RESULTS[type(asked)], metadata=here)
        for key, asked in questions.items()
    }


# Tools

TOOLS: dict[str, types.Tool] = {}
CALLS: dict[str, Tool] = {}


def tool(name: str, description: str, schema: Json = NOTHING, **more: Any) -> Callable[[Tool], Tool]:
    def add(call: Tool) -> Tool:
        TOOLS[name] = types.Tool(name=name, description=description, input_schema=schema, **more)
        CALLS[name] = call
        return call

    return add


@tool("test_simple_text", "Answer with a text.")
async def _simple_text(_ctx: Context, _params: types.CallToolRequestParams) -> Answer:
    return _said("This is a simple text response for testing.")


@tool("test_image_content", "Answer with an image.")
async def _image(_ctx: Context, _params: types.CallToolRequestParams) -> Answer:
    return types.CallToolResult(content=[PIXEL])


@tool("test_audio_content", "Answer with a sound.")
async def _audio(_ctx: Context, _params: types.CallToolRequestParams) -> Answer:
    return types.CallToolResult(content=[SILENCE])


@tool("test_embedded_resource", "Answer with a resource in the answer itself.")
async def _embedded_resource(_ctx: Context, _params: types.CallToolRequestParams) -> Answer:
    held = _embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    return types.CallToolResult(content=[held])


@tool("test_multiple_content_types", "Answer with a text, an image and a resource.")
async def _multiple(_ctx: Context, _params: types.CallToolRequestParams) -> Answer:
    held = _embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
    return types.CallToolResult(content=[_words("Multiple content types test:"), PIXEL, held])


@tool("test_error_handling", "Fail, as tools do.")
async def _error(_ctx: Context, _params: types.CallToolRequestParams) -> Answer:
    said = _words("This tool intentionally returns an error for testing")
    return types.CallToolResult(content=[said], is_error=True)


@tool("test_tool_with_progress", "Report progress three times.")
async def _progress(ctx: Context, _params: types.CallToolRequestParams) -> Answer:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100)
    return _said("Done, in three steps.")


async def _log(ctx: Context, data: object, level: types.LoggingLevel = "info") -> None:
    await ctx.session.send_log_message(level, data, related_request_id=ctx.request_id)  # pyright: ignore[reportDeprecated]


@tool("test_tool_with_logging", "Log three messages on the way.")
async def _logging(ctx: Context, _params: types.CallToolRequestParams) -> Answer:
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await _log(ctx, text)
    return _said("Done, with three messages.")


@tool("test_logging_tool", "Log a message, which only a client that asked for messages gets.")
async def _logging_once(ctx: Context, _params: types.CallToolRequestParams) -> Answer:
    await _log(ctx, "Logged by a tool")
    return _said("Done, with a message.")


LEVELS: tuple[types.LoggingLevel, ...] = get_args(types.LoggingLevel)
levels_set: list[str] = []
"""The levels that clients have set with `logging/setLevel`."""


@tool("test_log_all_levels", "Log a message of every level, and say which levels were set so far.")
async def _logging_all(ctx: Context, _params: types.CallToolRequestParams) -> Answer:
    for level in LEVELS:
        await _log(ctx, {"level": level, "nothing": None}, level)
    return _said(" ".join(levels_set))


held: dict[str, anyio.Event] = {}


@tool("test_log_flood", "Log so many messages of so many characters; `flood` can be let go then.")
async def _logging_much(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    given = params.arguments or {}
    for number in range(given["count"]):
        await _log(ctx, f"{number} {'x' * given['chars']}")
    held["flood"] = anyio.Event()
    return _said("Done, with a flood.")


@tool("test_hold", "Log a text before and after another call lets this one go on.", _text("key"))
async def _hold(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    key = (params.arguments or {})["key"]
    held[key] = event = anyio.Event()
    await _log(ctx, f"{key} is held")
    await event.wait()
    await _log(ctx, f"{key} goes on")
    return _said(key)


@tool("test_log_and_ask", "Log, ask the user's name, log again, and greet.")
async def _logging_around(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    await _log(ctx, "before the question")
    answers = await _ask(ctx, params, {"user_name": NAME})
    if isinstance(answers, types.InputRequiredResult):
        return answers
    await _log(ctx, "after the question")
    return _said(f"Hello, {_field(answers['user_name'], 'name')}!")


@tool("test_hold_on", "The same, whatever the client says meanwhile.", _text("key"))
async def _hold_on(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    over[(params.arguments or {})["key"]] = done = anyio.Event()
    with anyio.CancelScope(shield=True):
        await _hold(ctx, params)
    done.set()
    return _said("It went on.")


over: dict[str, anyio.Event] = {}


@tool("test_let_go", "Let go on what is held; answer whether anything was.", _text("key"))
async def _let_go(_ctx: Context, params: types.CallToolRequestParams) -> Answer:
    key = (params.arguments or {})["key"]
    if (event := held.pop(key, None)) is None:
        return _said("no")
    event.set()
    if (done := over.pop(key, None)) is not None:
        await done.wait()
    return _said("yes")


@tool("test_sampling", "Ask the client's model.", _text("prompt"))
async def _sampling(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    answers = await _ask(ctx, params, {"completion": _sample((params.arguments or {})["prompt"])})
    if isinstance(answers, types.InputRequiredResult):
        return answers
    return _said(f"LLM response: {_sampled(answers['completion'])}")


def _sampled(answer: types.InputResponse) -> str:
    content = cast("types.CreateMessageResult", answer).content
    return content.text if isinstance(content, types.TextContent) else f"({content.type})"


def _elicited(answer: types.InputResponse) -> types.CallToolResult:
    given = cast("types.ElicitResult", answer)
    return _said(f"Elicitation completed: action={given.action}, content={json.dumps(given.content)}")


async def _elicit(ctx: Context, params: types.CallToolRequestParams, question: types.ElicitRequest) -> Answer:
    answers = await _ask(ctx, params, {"form": question})
    return answers if isinstance(answers, types.InputRequiredResult) else _elicited(answers["form"])


@tool("test_elicitation", "Ask the user for a name and an address.", _text("message"))
async def _elicitation(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    fields: dict[str, Json] = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    return await _elicit(ctx, params, _form((params.arguments or {})["message"], **fields))


@tool("test_elicitation_sep1034_defaults", "Ask the user, with a default for every kind of field.")
async def _elicitation_defaults(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    fields: dict[str, Json] = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return await _elicit(ctx, params, _form("Please review the defaults", **fields))


@tool("test_elicitation_sep1330_enums", "Ask the user to choose, in every form that a choice can have.")
async def _elicitation_choices(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    plain = ["option1", "option2", "option3"]
    titled = [
        {"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second", "Third"), 1)
    ]
    fields: dict[str, Json] = {
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return await _elicit(ctx, params, _form("Please choose", **fields))


@tool("test_streaming_elicitation", "Ask the user, in an answer that is a stream.")
async def _elicitation_streamed(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    await ctx.session.report_progress(0, 1)
    return await _elicit(ctx, params, OK)


@tool("test_reconnection", "Close the stream of the answer before it is given, where there is one.")
async def _reconnection(ctx: Context, _params: types.CallToolRequestParams) -> Answer:
    if ctx.close_sse_stream is not None:
        await ctx.close_sse_stream()
    return _said("The answer came after the stream was closed.")


@tool("test_missing_capability", "Do what only a client with sampling can have done.")
async def _missing_capability(ctx: Context, _params: types.CallToolRequestParams) -> Answer:
    needed = types.ClientCapabilities(sampling=types.SamplingCapability())
    if not ctx.session.check_client_capability(needed):
        lacking = types.MissingRequiredClientCapabilityErrorData(required_capabilities=needed)
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            "This tool needs sampling.",
            lacking.model_dump(by_alias=True, mode="json", exclude_none=True),
        )
    return _said("The client can sample.")


@tool(
    "json_schema_2020_12_tool",
    "A tool with JSON Schema 2020-12 features.",
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": TEXT, "city": TEXT},
            }
        },
        "properties": {
            "name": TEXT,
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": TEXT,
            "email": TEXT,
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
)
async def _json_schema(_ctx: Context, params: types.CallToolRequestParams) -> Answer:
    return _said(json.dumps(params.arguments))


@tool(
    "test_header",
    "Take an argument that HTTP also carries as a header.",
    {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        "required": ["region"],
    },
)
async def _header(_ctx: Context, params: types.CallToolRequestParams) -> Answer:
    return _said(f"region {(params.arguments or {})['region']}")


@tool("test_input_required_result_elicitation", "Ask the user's name, and greet.")
async def _greet(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    answers = await _ask(ctx, params, {"user_name": NAME})
    if isinstance(answers, types.InputRequiredResult):
        return answers
    return _said(f"Hello, {_field(answers['user_name'], 'name')}!")


def _field(answer: types.InputResponse, name: str) -> object:
    return (cast("types.ElicitResult", answer).content or {}).get(name)


@tool("test_input_required_result_sampling", "Ask the client's model for a capital.")
async def _capital(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    answers = await _ask(ctx, params, {"capital_question": _sample("What is the capital of France?")})
    if isinstance(answers, types.InputRequiredResult):
        return answers
    return _said(_sampled(answers["capital_question"]))


@tool("test_input_required_result_list_roots", "Ask for the client's roots.")
async def _roots(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    answers = await _ask(ctx, params, {"client_roots": types.ListRootsRequest()})
    if isinstance(answers, types.InputRequiredResult):
        return answers
    roots = cast("types.ListRootsResult", answers["client_roots"]).roots
    return _said(*(str(root.uri) for root in roots))


@tool("test_input_required_result_request_state", "Ask the user, and get its state back.")
async def _state(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    answers = await _ask(ctx, params, {"confirm": OK}, "waiting for a confirmation")
    if isinstance(answers, types.InputRequiredResult):
        return answers
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and params.request_state != "waiting for a confirmation":
        return types.CallToolResult(content=[_words("The state did not come back.")], is_error=True)
    return _said("state-ok")


@tool("test_input_required_result_tampered_state", "Ask the user; a state that was changed on the way is refused.")
async def _tampered(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    return await _state(ctx, params)


@tool("test_input_required_result_multiple_inputs", "Ask three things at once.")
async def _three(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    questions: dict[str, types.InputRequest] = {
        "user_name": NAME,
        "greeting": _sample("Generate a greeting", 50),
        "client_roots": types.ListRootsRequest(),
    }
    answers = await _ask(ctx, params, questions, "waiting for three answers")
    if isinstance(answers, types.InputRequiredResult):
        return answers
    roots = cast("types.ListRootsResult", answers["client_roots"]).roots
    greeting = f"{_sampled(answers['greeting'])} {_field(answers['user_name'], 'name')}"
    return _said(f"{greeting}: {len(roots)} roots")


@tool("test_input_required_result_multi_round", "Ask twice, one after the other.")
async def _twice(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    name = params.request_state
    if name is None or name == "step 1":
        answers = await _ask(ctx, params, {"step1": _form("Step 1: What is your name?", name=TEXT)}, "step 1")
        if isinstance(answers, types.InputRequiredResult):
            return answers
        name = str(_field(answers["step1"], "name"))
    color = {"step2": _form("Step 2: What is your favorite color?", color=TEXT)}
    answers = await _ask(ctx, params, color, name)
    if isinstance(answers, types.InputRequiredResult):
        return answers
    return _said(f"{name} likes {_field(answers['step2'], 'color')}")


@tool("test_input_required_result_capabilities", "Ask all that the client can answer.")
async def _capabilities(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    can = ctx.session.client_capabilities or types.ClientCapabilities()
    questions: dict[str, types.InputRequest] = {}
    if can.elicitation is not None:
        questions["user_name"] = NAME
    if can.sampling is not None:
        questions["greeting"] = _sample("Generate a greeting", 50)
    if can.roots is not None:
        questions["client_roots"] = types.ListRootsRequest()
    if not questions:
        return _said("The client can answer nothing.")
    answers = await _ask(ctx, params, questions)
    return answers if isinstance(answers, types.InputRequiredResult) else _said(f"{len(answers)} answers")


# Lists that change

COME_AND_GO_TOOL = types.Tool(name="test_comes_and_goes", description="Here every other time.", input_schema=NOTHING)
COME_AND_GO_PROMPT = types.Prompt(name="test_comes_and_goes", description="Here every other time.")

bus = InMemorySubscriptionBus()
streams = ListenHandler(bus)


@tool("test_trigger_tool_change", "Add a tool, or take it away again.")
async def _change_tools(ctx: Context, _params: types.CallToolRequestParams) -> Answer:
    if TOOLS.pop(COME_AND_GO_TOOL.name, None) is None:
        TOOLS[COME_AND_GO_TOOL.name] = COME_AND_GO_TOOL
    await bus.publish(ToolsListChanged())
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        await ctx.session.send_tool_list_changed()
    return _said("The list of tools is another.")


@tool("test_trigger_prompt_change", "Add a prompt, or take it away again.")
async def _change_prompts(ctx: Context, _params: types.CallToolRequestParams) -> Answer:
    if PROMPTS.pop(COME_AND_GO_PROMPT.name, None) is None:
        PROMPTS[COME_AND_GO_PROMPT.name] = COME_AND_GO_PROMPT
    await bus.publish(PromptsListChanged())
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        await ctx.session.send_prompt_list_changed()
    return _said("The list of prompts is another.")


CALLS[COME_AND_GO_TOOL.name] = _simple_text


async def list_tools(_ctx: Context, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return types.ListToolsResult(tools=list(TOOLS.values()))


async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    if params.name not in TOOLS:
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
    return await CALLS[params.name](ctx, params)


# Prompts


def _prompt(name: str, description: str, **arguments: str) -> types.Prompt:
    taken = [types.PromptArgument(name=key, description=text, required=True) for key, text in arguments.items()]
    return types.Prompt(name=name, description=description, arguments=taken)


PROMPTS: dict[str, types.Prompt] = {
    prompt.name: prompt
    for prompt in (
        _prompt("test_simple_prompt", "A prompt without arguments."),
        _prompt("test_prompt_with_arguments", "A prompt with two.", arg1="First test argument", arg2="Second"),
        _prompt("test_prompt_with_embedded_resource", "A prompt with a resource.", resourceUri="What to embed"),
        _prompt("test_prompt_with_image", "A prompt with an image."),
        _prompt("test_input_required_result_prompt", "A prompt that asks the user first."),
    )
}


async def list_prompts(_ctx: Context, _params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=list(PROMPTS.values()))


async def get_prompt(
    ctx: Context, params: types.GetPromptRequestParams
) -> types.GetPromptResult | types.InputRequiredResult:
    given = params.arguments or {}
    content: list[types.ContentBlock]
    match params.name:
        case "test_prompt_with_arguments":
            content = [_words(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")]
        case "test_prompt_with_embedded_resource":
            held = _embedded(given["resourceUri"], "text/plain", "Embedded resource content for testing.")
            content = [held, _words("Please process the embedded resource above.")]
        case "test_prompt_with_image":
            content = [PIXEL, _words("Please analyze the image above.")]
        case "test_input_required_result_prompt":
            asked = _form("What context should the prompt use?", context=TEXT)
            answers = await _ask(ctx, params, {"user_context": asked})
            if isinstance(answers, types.InputRequiredResult):
                return answers
            content = [_words(f"Use this context: {_field(answers['user_context'], 'context')}")]
        case name if name in PROMPTS:
            content = [_words("This is a simple prompt for testing.")]
        case name:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {name}")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=block) for block in content])


# Resources

TEMPLATE_START, TEMPLATE_END = "test://template/", "/data"

RESOURCES: dict[str, types.TextResourceContents | types.BlobResourceContents] = {
    held.uri: held
    for held in (
        types.TextResourceContents(
            uri="test://static-text",
            mime_type="text/plain",
            text="This is the content of the static text resource.",
        ),
        types.BlobResourceContents(uri="test://static-binary", mime_type="image/png", blob=PIXEL.data),
        types.TextResourceContents(uri="test://watched-resource", mime_type="text/plain", text="Watch me."),
    )
}


async def list_resources(_ctx: Context, _params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
    listed = [
        types.Resource(
            uri=uri,
            name=uri.removeprefix("test://"),
            description=f"The suite reads {uri}.",
            mime_type=held.mime_type,
        )
        for uri, held in RESOURCES.items()
    ]
    return types.ListResourcesResult(resources=listed)


async def list_templates(
    _ctx: Context, _params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(
        uri_template=f"{TEMPLATE_START}{{id}}{TEMPLATE_END}",
        name="template",
        description="Data by its id.",
        mime_type="application/json",
    )
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(_ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    uri = str(params.uri)
    if (held := RESOURCES.get(uri)) is not None:
        return types.ReadResourceResult(contents=[held])
    if uri.startswith(TEMPLATE_START) and uri.endswith(TEMPLATE_END):
        key = uri.removeprefix(TEMPLATE_START).removesuffix(TEMPLATE_END)
        text = json.dumps({"id": key, "templateTest": True, "data": f"Data for ID: {key}"})
        made = types.TextResourceContents(uri=uri, mime_type="application/json", text=text)
        return types.ReadResourceResult(contents=[made])
    raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})


watched: list[str] = []
"""The subscriptions (+) and unsubscriptions (-) of clients, in order."""


async def subscribe(_ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
    if str(params.uri) not in RESOURCES:
        raise MCPError(types.INVALID_PARAMS, "There is nothing to subscribe to", {"uri": str(params.uri)})
    watched.append(f"+{params.uri}")
    return types.EmptyResult()


async def unsubscribe(_ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
    watched.append(f"-{params.uri}")
    return types.EmptyResult()


async def listen_for_changes(
    ctx: Context, params: types.SubscriptionsListenRequestParams
) -> types.SubscriptionsListenResult:
    uris = params.notifications.resource_subscriptions or []
    watched.extend(f"+{uri}" for uri in uris)
    try:
        return await streams(ctx, params)
    finally:
        watched.extend(f"-{uri}" for uri in uris)


@tool("test_watched", "Say what clients asked to be told of.")
async def _watched(_ctx: Context, _params: types.CallToolRequestParams) -> Answer:
    return _said("\n".join(watched))


@tool("test_trigger_resource_update", "Tell whoever wants to know that a resource has changed.", _text("uri"))
async def _update(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    uri = (params.arguments or {})["uri"]
    await bus.publish(ResourceUpdated(uri))
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        await ctx.session.send_resource_updated(uri)
    return _said(f"{uri} has changed.")


@tool("test_die", "End this server.")
async def _die(_ctx: Context, _params: types.CallToolRequestParams) -> Answer:
    os._exit(1)


async def complete(_ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
    known = ["paris", "park", "party", "testing"]
    values = [word for word in known if word.startswith(params.argument.value)]
    return types.CompleteResult(completion=types.Completion(values=values, total=len(values), has_more=False))


async def set_logging_level(_ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
    levels_set.append(params.level)
    return types.EmptyResult()


# Serving


class FixtureServer(Server[Json]):
    """The SDK's server, which also declares `listChanged` to clients of the handshake era."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> Any:
        changing = notification_options or NotificationOptions(prompts_changed=True, tools_changed=True)
        return super().create_initialization_options(changing, experimental_capabilities, extensions)


def fixture(*, legacy_only: bool) -> FixtureServer:
    server = FixtureServer(
        "conformance fixture",
        version="1.0.0",
        instructions="What the conformance suite calls.",
        cache_hints={
            "tools/list": CacheHint(60_000, "public"),
            "prompts/list": CacheHint(60_000, "public"),
            "resources/list": CacheHint(60_000, "public"),
            "resources/templates/list": CacheHint(60_000, "public"),
            "resources/read": CacheHint(1_000, "private"),
        },
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=subscribe,
        on_unsubscribe_resource=unsubscribe,
        on_completion=complete,
        on_subscriptions_listen=listen_for_changes,
    )
    # The argument of the constructor would warn that this method is deprecated.
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_logging_level)
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=server.name))
    if legacy_only:
        server.middleware.insert(0, _refuse_the_newer_era)
    return server


async def _refuse_the_newer_era(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        raise MCPError(types.METHOD_NOT_FOUND, f"Method not found: {ctx.method}")
    return await call_next(ctx)


async def over_stdio(server: FixtureServer, *, legacy_only: bool) -> None:
    options = server.create_initialization_options()
    async with stdio_server() as (read, write):
        if legacy_only:  # `run` accepts a first request of the newer era permanently
            await serve_loop(server, read, write, lifespan_state={}, init_options=options)
        else:
            await server.run(read, write, options)


def over_http(server: FixtureServer, port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as listener:
        # The socket is bound before the port is printed: a client can connect, and waits in the backlog.
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(server.streamable_http_app(), log_level="error", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listener])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", action="store_true", help="serve at http://127.0.0.1:PORT/mcp, and print the port")
    parser.add_argument("--port", type=int, default=0, help="of --http; any free one by default")
    parser.add_argument("--era", choices=("both", "legacy"), default="both")
    given = parser.parse_args()
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    legacy_only = given.era == "legacy"
    server = fixture(legacy_only=legacy_only)
    if given.http:
        over_http(server, given.port)
    else:
        anyio.run(lambda: over_stdio(server, legacy_only=legacy_only))


if __name__ == "__main__":
    sys.exit(main())
