"""Every adapter passes the published contract check, and the check reports each violation."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import orjson
import pytest

from toolcrib.adapters.anthropic import AnthropicAdapter
from toolcrib.adapters.litellm import LiteLLMAdapter
from toolcrib.adapters.openai_chat import OpenAIChatAdapter
from toolcrib.adapters.openai_responses import OpenAIResponsesAdapter
from toolcrib.adapters.scripted import ScriptedAdapter
from toolcrib.agent.conversation.messages import AssistantMessage, ModelRequest, ModelTurn, Stop, ToolCall, Usage
from toolcrib.agent.loop.provider import Delivery, TextListener
from toolcrib.core.errors import ProviderFailed
from toolcrib.testing.adapters import Play, Stage, check_adapter
from toolcrib.testing.vendors.anthropic_server import AnthropicServer
from toolcrib.testing.vendors.openai_server import OpenAIServer
from toolcrib.testing.vendors.server import Cut, Failure, Recorded, Silence, Step, Turn

pytestmark = pytest.mark.anyio

STOPS = {"done": Stop.END, "calls": Stop.CALLS, "length": Stop.LENGTH, "refused": Stop.REFUSED}


# -- the scripted adapter ---------------------------------------------------------------------------------------------


class Player:
    """Plays the steps of a vendor's fake server as a function."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self._steps = iter(steps)

    async def __call__(self, request: ModelRequest) -> ModelTurn:
        step = next(self._steps, None)
        match step:
            case None:
                raise ProviderFailed("The script has ended.")
            case Failure():
                after = step.headers.get("retry-after")
                raise ProviderFailed(
                    step.message, retryable=step.status > 400, retry_after_s=None if after is None else float(after)
                )
            case Cut():
                raise ProviderFailed("It was cut off.", retryable=True)
            case Silence():
                await anyio.sleep_forever()
                raise AssertionError
            case Turn():
                calls = tuple(
                    ToolCall(f"call-{len(request.messages)}-{at}", call.name, call.arguments)
                    for at, call in enumerate(step.calls)
                )
                return ModelTurn(AssistantMessage("".join(step.pieces), calls), STOPS[step.stopped])


def parts(*values: Any) -> bytes:
    return b"".join(map(orjson.dumps, values))


def neutral(request: ModelRequest) -> bytes:
    return parts(*(t.to_wire() for t in request.tools), request.system, *(m.to_wire() for m in request.messages))


def scripted(kind: Callable[..., ScriptedAdapter] = ScriptedAdapter, **given: Any) -> Play:
    @asynccontextmanager
    async def play(script: Iterable[Step]) -> AsyncGenerator[Stage]:
        adapter = kind(Player(script), calls_only_offered=False, **given)
        yield Stage(adapter, lambda: [*map(neutral, adapter.requests)])

    return play


@pytest.mark.parametrize(
    "given",
    [
        {"delivery": Delivery.INJECT},
        {"delivery": Delivery.DEFER},
        {"delivery": Delivery.DEFER, "reveals_unlisted": True},
        {"delivery": Delivery.PROXY},
        {"delivery": Delivery.RESTART},
    ],
    ids=lambda given: "-".join(map(str, given.values())),
)
async def test_the_scripted_adapter_passes_the_contract_check_with_every_delivery(given: dict[str, Any]) -> None:
    await check_adapter(scripted(**given))


# -- vendor adapters against fake servers -----------------------------------------------------------------------------


def responses(recorded: Recorded) -> bytes:
    body = recorded.content
    return parts(*body.get("tools", ()), body.get("instructions"), *body["input"])


def messages(recorded: Recorded) -> bytes:
    body = unmarked(recorded.content)
    return parts(*body.get("tools", ()), body.get("system"), *body["messages"])


def unmarked(value: Any) -> Any:
    """Remove cache markers, which are not part of the cache key."""
    match value:
        case dict():
            entries = cast("dict[str, Any]", value).items()
            return {key: unmarked(each) for key, each in entries if key != "cache_control"}
        case list():
            return [*map(unmarked, cast("list[Any]", value))]
        case _:
            return value


def chat(recorded: Recorded) -> bytes:
    body = recorded.content
    return parts(*body.get("tools", ()), *body["messages"])


def openai_responses(**given: Any) -> Play:
    @asynccontextmanager
    async def play(script: Iterable[Step]) -> AsyncGenerator[Stage]:
        async with OpenAIServer(script, search="read_section") as server:
            adapter = OpenAIResponsesAdapter("gpt-5.6", api_key="any", base_url=server.base_url, **given)
            yield Stage(adapter, lambda: [*map(responses, server.requests)])

    return play


def anthropic(model: str, **given: Any) -> Play:
    @asynccontextmanager
    async def play(script: Iterable[Step]) -> AsyncGenerator[Stage]:
        async with AnthropicServer(script) as server:
            adapter = AnthropicAdapter(model, api_key="any", base_url=server.url, **given)
            yield Stage(adapter, lambda: [*map(messages, server.requests)])

    return play


@asynccontextmanager
async def openai_chat(script: Iterable[Step]) -> AsyncGenerator[Stage]:
    async with OpenAIServer(script) as server:
        adapter = OpenAIChatAdapter("gpt-4.1", api_key="any", base_url=server.base_url)
        yield Stage(adapter, lambda: [*map(chat, server.requests)])


@asynccontextmanager
async def litellm(script: Iterable[Step]) -> AsyncGenerator[Stage]:
    async with OpenAIServer(script) as server:
        adapter = LiteLLMAdapter("openai/gpt-4.1", api_key="any", base_url=server.base_url)
        yield Stage(adapter, lambda: [*map(chat, server.requests)])


@pytest.mark.parametrize(
    "play",
    [
        pytest.param(openai_responses(), id="openai"),
        pytest.param(openai_responses(delivery=Delivery.INJECT), id="openai-inject"),
        pytest.param(openai_responses(delivery=Delivery.PROXY), id="openai-proxy"),
        pytest.param(openai_chat, id="openai-chat"),
        pytest.param(litellm, id="litellm", marks=pytest.mark.slow),
        pytest.param(anthropic("claude-opus-5-5"), id="anthropic"),
        pytest.param(anthropic("claude-opus-5-5", delivery=Delivery.INJECT), id="anthropic-inject"),
        pytest.param(anthropic("claude-opus-5-5", delivery=Delivery.PROXY), id="anthropic-proxy"),
        pytest.param(anthropic("claude-opus-5-5", delivery=Delivery.RESTART), id="anthropic-restart"),
    ],
)
async def test_every_vendor_adapter_passes_the_contract_check(play: Play) -> None:
    await check_adapter(play)


# -- violations -------------------------------------------------------------------------------------------------------


class WithoutStreaming(ScriptedAdapter):
    async def respond(self, request: ModelRequest, on_text: TextListener | None = None) -> ModelTurn:
        return await super().respond(request)


class WrongDynamicTools(ScriptedAdapter):
    @property
    def supports_dynamic_tools(self) -> bool:
        return True


class WrongError(ScriptedAdapter):
    async def respond(self, request: ModelRequest, on_text: TextListener | None = None) -> ModelTurn:
        try:
            return await super().respond(request, on_text)
        except ProviderFailed as error:
            raise ValueError(error.message) from error


class NegativeUsage(ScriptedAdapter):
    async def respond(self, request: ModelRequest, on_text: TextListener | None = None) -> ModelTurn:
        turn = await super().respond(request, on_text)
        return ModelTurn(turn.message, turn.stop, Usage(input=-1))


class DroppedTools(ScriptedAdapter):
    """Sends only the tools of the first request."""

    first: Sequence[Any] = ()

    async def respond(self, request: ModelRequest, on_text: TextListener | None = None) -> ModelTurn:
        self.first = self.first or request.tools
        return await super().respond(ModelRequest(request.system, tuple(self.first), request.messages), on_text)


class ChangedPrefix(ScriptedAdapter):
    async def respond(self, request: ModelRequest, on_text: TextListener | None = None) -> ModelTurn:
        system = f"{request.system} Turn {len(request.messages)}."
        return await super().respond(ModelRequest(system, request.tools, request.messages), on_text)


class AlwaysRetryable(ScriptedAdapter):
    """Reports every failure as retryable."""

    async def respond(self, request: ModelRequest, on_text: TextListener | None = None) -> ModelTurn:
        try:
            return await super().respond(request, on_text)
        except ProviderFailed as error:
            raise ProviderFailed(error.message, retryable=True) from error


class ClosesOnce(ScriptedAdapter):
    is_left = False

    async def __aexit__(self, *_: object) -> None:
        if self.is_left:
            raise RuntimeError("it was left already")
        self.is_left = True


@pytest.mark.parametrize(
    ("kind", "delivery", "complaint"),
    [
        (WithoutStreaming, Delivery.INJECT, "pieces of text do not add up"),
        (WrongDynamicTools, Delivery.RESTART, "contradicts `delivery`"),
        (WrongError, Delivery.INJECT, "raised as ValueError"),
        (NegativeUsage, Delivery.INJECT, "usage is negative"),
        (DroppedTools, Delivery.INJECT, "although its section was read"),
        (ChangedPrefix, Delivery.PROXY, "does not begin with the previous request"),
        (AlwaysRetryable, Delivery.INJECT, "a refused request is reported as retryable"),
    ],
)
async def test_an_adapter_that_violates_the_contract_is_reported(
    kind: type[ScriptedAdapter], delivery: Delivery, complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        await check_adapter(scripted(kind, delivery=delivery))


async def test_an_adapter_that_cannot_be_closed_twice_is_reported() -> None:
    with pytest.raises(AssertionError, match="second time"):
        await check_adapter(scripted(ClosesOnce))
