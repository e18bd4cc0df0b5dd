"""One run of the program, asked for one turn after the other.

It would loop by itself. Here it is held between its turns: what it streams is read as a turn of the model, and each
call that it makes of our tools waits until the loop, which runs calls in its one way, has the answers to all of them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, aclosing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self, cast

import anyio
import claude_agent_sdk as sdk

from toolcrib.adapters.claude_agent.opening import opening
from toolcrib.adapters.claude_agent.output import TOOL, OutputSchema
from toolcrib.adapters.claude_agent.serving import PREFIX, SERVER, Answers, serve
from toolcrib.adapters.claude_agent.settings import Settings
from toolcrib.adapters.failures import may_pass
from toolcrib.agent.conversation.messages import (
    NO_USAGE,
    AssistantMessage,
    ModelRequest,
    ModelTurn,
    Stop,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from toolcrib.agent.formats import anthropic
from toolcrib.agent.loop.config import InnerLoopConfig
from toolcrib.agent.loop.provider import Responder, TextListener
from toolcrib.core.errors import InvalidConfig, InvalidOutput, ProviderFailed

logger = logging.getLogger(__name__)

MAX_LINE_BYTES = 64 * 1024 * 1024
"""Of one message of the program; it repeats the answers to calls."""

PATIENCE_S = 5.0
"""For it to stop what it is doing, before it is ended."""

LAST_WORDS = 20
"""Lines of what the program writes to its stderr that are kept."""

UNKNOWN = "unknown__"
"""Stands before a name that a model called without its prefix: the program knows no such tool, so neither do we."""


@dataclass(frozen=True, slots=True)
class _Running:
    client: sdk.ClaudeSDKClient
    stream: AsyncGenerator[sdk.Message, None]


class Program(Responder):
    """Starts with the first request, and ends when it is left, whatever it is doing then."""

    def __init__(self, settings: Settings, config: InnerLoopConfig) -> None:
        self._settings = settings
        self._config = config
        self._answers = Answers()
        self._last_words: deque[str] = deque(maxlen=LAST_WORDS)
        self._ending = AsyncExitStack()
        self._running: _Running | None = None
        self._output: OutputSchema | None = None
        self._offered: frozenset[str] = frozenset()
        self._told = 0
        self._is_busy = False
        """Whether it has something to say yet of what it was asked."""
        self._events: list[dict[str, Any]] = []
        """Of the message that is being streamed."""
        self._streamed: set[str] = set()
        """The ids of all that were."""
        self._failed_for: str | None = None
        """The program's word for why it has no answer."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self._ending.aclose()

    async def respond(self, request: ModelRequest, on_text: TextListener | None = None) -> ModelTurn:
        """Go on until the loop has something to do: calls to run, or an answer to read."""
        if self._running is None:
            self._running = await self._started(request)
            await self._say(self._running, opening(request.messages))
        else:
            for message in request.messages[self._told + 1 :]:  # but for the turn that was given from here
                if isinstance(message, ToolMessage):
                    self._answers.give(message)
                elif isinstance(message, UserMessage):
                    await self._say(self._running, message.text)
        self._told = len(request.messages)
        self._is_busy = True
        return await self._turn(self._running, on_text)

    async def _started(self, request: ModelRequest) -> _Running:
        made = TemporaryDirectory(prefix="toolcrib-claude-", ignore_cleanup_errors=True)
        folder = Path(self._ending.enter_context(made))
        prompt = folder / "system.md"
        prompt.write_text(_sendable(request.system), encoding="utf-8")
        self._offered = frozenset(tool.name for tool in request.tools)
        if request.output_schema is not None:
            self._output = OutputSchema.of(request.output_schema)
        server = serve(request.tools, self._answers)
        client = sdk.ClaudeSDKClient(
            sdk.ClaudeAgentOptions(
                model=self._settings.model,
                # An argument may be no longer than 128 KiB on Linux, and others may read it.
                system_prompt={"type": "file", "path": str(prompt)},
                tools=[],
                allowed_tools=[PREFIX.removesuffix("__")],
                mcp_servers={SERVER: {"type": "sdk", "name": SERVER, "instance": server}},
                strict_mcp_config=True,
                setting_sources=[],
                include_partial_messages=True,
                verbatim_prompts=True,
                output_format=self._output and {"type": "json_schema", "schema": self._output.schema},
                cwd=self._settings.cwd or folder,
                env=self._settings.environment(folder, self._config),
                cli_path=self._settings.program,
                max_buffer_size=MAX_LINE_BYTES,
                stderr=self._last_words.append,
                extra_args={"no-session-persistence": None},
            )
        )
        with self._failing():
            await client.connect()
        self._ending.push_async_callback(client.disconnect)
        stream = _messages(client)
        self._ending.push_async_callback(stream.aclose)
        self._ending.push_async_callback(self._interrupt, client)
        return _Running(client, stream)

    async def _interrupt(self, client: sdk.ClaudeSDKClient) -> None:
        """Have it stop where it is: else it would ask the model once more, now that nobody answers its calls."""
        if not self._is_busy:
            return

        async def interrupt() -> None:
            with suppress(Exception):  # it may be gone
                await client.interrupt()

        with anyio.move_on_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(interrupt)
                with suppress(Exception):
                    async with aclosing(_messages(client)) as left:
                        async for message in left:
                            if isinstance(message, sdk.ResultMessage):
                                break
                tasks.cancel_scope.cancel()

    async def _say(self, running: _Running, text: str) -> None:
        with self._failing():
            await running.client.query(_sendable(text))

    async def _turn(self, running: _Running, on_text: TextListener | None) -> ModelTurn:
        said = ""
        usage = NO_USAGE
        while True:
            message = await self._received(running)
            if isinstance(message, sdk.ResultMessage):
                self._is_busy = False
                return self._final(message, said, usage)
            if isinstance(message, sdk.AssistantMessage):
                self._failed_for = message.error
                self._check_streamed(message)
            if not isinstance(message, sdk.StreamEvent):
                continue
            turn = self._heard(message.event, on_text)
            if turn is None:
                continue
            usage += turn.usage
            if turn.message.calls or turn.stop in {Stop.LENGTH, Stop.REFUSED}:
                # Of itself it would ask such a model to go on.
                return replace(turn, usage=usage)
            # Where this is not the end after all, for the program asks on by itself, the next one stands for it.
            said = turn.message.text

    async def _received(self, running: _Running) -> sdk.Message:
        with self._failing():
            message = await anext(running.stream, None)
        if message is None:
            raise self._lost("ended without an answer")
        return message

    def _heard(self, event: dict[str, Any], on_text: TextListener | None) -> ModelTurn | None:
        """The turn that has its end with this event."""
        match event["type"]:
            case "message_start":
                self._events = []
                self._streamed.add(event["message"]["id"])
            case "content_block_delta" if on_text is not None and (piece := anthropic.text_of(event)):
                on_text(piece)
            case _:
                pass
        self._events.append(event)
        return self._named(self._read()) if event["type"] == "message_stop" else None

    def _read(self) -> ModelTurn:
        """The turn in the events so far.

        Where the connection was lost the program itself ends the message, early, and runs the calls in it that are
        whole; without such it asks again (2.1).
        """
        whole = {event["index"] for event in self._events if event["type"] == "content_block_stop"}
        return anthropic.read_turn(anthropic.joined(e for e in self._events if e.get("index", -1) in {-1, *whole}))

    def _named(self, turn: ModelTurn) -> ModelTurn:
        """The turn in our names, without what is the program's alone."""
        calls = tuple(replace(call, name=self._name(call)) for call in turn.message.calls if call.name != TOOL)
        stop = Stop.END if turn.stop is Stop.CALLS and not calls else turn.stop
        return replace(turn, message=AssistantMessage(turn.message.text, calls), stop=stop)

    def _name(self, call: ToolCall) -> str:
        if call.name.startswith(PREFIX):
            return call.name.removeprefix(PREFIX)
        return f"{UNKNOWN}{call.name}" if call.name in self._offered else call.name

    def _final(self, result: sdk.ResultMessage, said: str, usage: Usage) -> ModelTurn:
        if result.subtype == "error_max_structured_output_retries":
            problems = [*(result.errors or ())]
            told = "; ".join(problems) or "it is none"
            raise InvalidOutput(f"The final answer is not of the type: {told}", details={"problems": problems})
        if result.is_error:
            raise self._failure(result)
        if self._output is not None and result.structured_output is not None:
            said = self._output.text(result.structured_output)
        return ModelTurn(AssistantMessage(said), Stop.END, usage)

    def _failure(self, result: sdk.ResultMessage) -> ProviderFailed:
        told = result.result or "; ".join(result.errors or ()) or result.subtype
        status = result.api_error_status
        is_stranger = self._failed_for == "authentication_failed"
        if is_stranger:
            told = f"{told.rstrip('.')}. Pass `api_key`, or set ANTHROPIC_API_KEY."
        passes = status is None or may_pass(status)
        return ProviderFailed(
            f"`{self._settings.model}` did not answer: {told}",
            retryable=result.terminal_reason == "api_error" and passes and not is_stranger,
            details={} if status is None else {"status": status},
        )

    def _check_streamed(self, message: sdk.AssistantMessage) -> None:
        """What did not come as a stream is not known by its parts, and its calls would wait for ever."""
        is_made_up = message.model == "<synthetic>"
        if not is_made_up and message.message_id is not None and message.message_id not in self._streamed:
            raise self._lost("answered without a stream")

    @contextmanager
    def _failing(self) -> Generator[None, None, None]:
        """What the SDK raises, in our words: its own errors, and the bare exceptions of its time-outs."""
        try:
            yield
        except sdk.CLINotFoundError as error:
            raise InvalidConfig(f"The program of the Claude Agent SDK is not there: {error}") from error
        except Exception as error:
            logger.debug("the program failed; its last words: %s", "\n".join(self._last_words), exc_info=True)
            raise self._lost(f"failed: {self._last_words[-1] if self._last_words else error}") from error

    def _lost(self, how: str) -> ProviderFailed:
        return ProviderFailed(f"The program of the Claude Agent SDK {how}.", retryable=self._running is not None)


def _messages(client: sdk.ClaudeSDKClient) -> AsyncGenerator[sdk.Message, None]:
    return cast("AsyncGenerator[sdk.Message, None]", client.receive_messages())


def _sendable(text: str) -> str:
    """The text with `?` for each half of a surrogate pair, which nothing can carry."""
    return text.encode("utf-8", "replace").decode("utf-8")
