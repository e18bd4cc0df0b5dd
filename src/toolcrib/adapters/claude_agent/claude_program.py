"""One run of the Claude Agent SDK's program, held between its turns so that the inner loop can run the calls.

The program would loop by itself. Here each streamed message is read as one turn of the model. Each call of our tools
waits until the inner loop, which runs all calls, has the answers to all of them.
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

from toolcrib.adapters.claude_agent.answer_schema import TOOL, OutputSchema
from toolcrib.adapters.claude_agent.program_start import ProgramSettings, first_request
from toolcrib.adapters.claude_agent.tool_server import PREFIX, SERVER, Answers, serve
from toolcrib.adapters.vendor_requests import may_pass
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
from toolcrib.agent.formats import anthropic_format
from toolcrib.agent.loop.provider import InnerLoopConfig, Responder, TextListener
from toolcrib.core.errors import InvalidConfig, InvalidOutput, ProviderFailed

logger = logging.getLogger(__name__)

MAX_LINE_BYTES = 64 * 1024 * 1024
"""The maximum length of one message of the program, in bytes. Messages repeat the answers to calls."""

PATIENCE_S = 5.0
"""How long the program may take to stop its work before it is ended, in seconds."""

STDERR_LINES = 20
"""How many of the last lines of the program's standard error are stored."""

UNKNOWN = "unknown__"
"""The prefix for a tool that the model called without the program's prefix.

Neither the program nor we know such a tool.
"""


@dataclass(frozen=True, slots=True)
class _Running:
    client: sdk.ClaudeSDKClient
    stream: AsyncGenerator[sdk.Message, None]


class Program(Responder):
    """Starts the program at the first request. Leaving the object ends the program, whatever it is doing."""

    def __init__(self, settings: ProgramSettings, config: InnerLoopConfig) -> None:
        self._settings = settings
        self._config = config
        self._answers = Answers()
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        self._ending = AsyncExitStack()
        self._running: _Running | None = None
        self._output: OutputSchema | None = None
        self._offered: frozenset[str] = frozenset()
        self._message_count = 0
        self._is_busy = False
        """Whether the program still owes output for what it was asked."""
        self._events: list[dict[str, Any]] = []
        """The events of the message that is being streamed."""
        self._streamed: set[str] = set()
        """The ids of all messages that were streamed."""
        self._failed_for: str | None = None
        """The program's error code for a failed answer."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self._ending.aclose()

    async def respond(self, request: ModelRequest, on_text: TextListener | None = None) -> ModelTurn:
        """Continue until the loop has something to do: calls to run, or an answer to read."""
        if self._running is None:
            self._running = await self._started(request)
            await self._send_text(self._running, first_request(request.messages))
        else:
            # Without the turn that this method returned last.
            for message in request.messages[self._message_count + 1 :]:
                if isinstance(message, ToolMessage):
                    self._answers.give(message)
                elif isinstance(message, UserMessage):
                    await self._send_text(self._running, message.text)
        self._message_count = len(request.messages)
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
                # As an argument it could be at most 128 KiB long on Linux, and other users could read it.
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
                stderr=self._stderr.append,
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
        """Stop the program's work. Otherwise it asks the model once more, and its calls would never be answered."""
        if not self._is_busy:
            return

        async def interrupt() -> None:
            with suppress(Exception):  # the program may have ended
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

    async def _send_text(self, running: _Running, text: str) -> None:
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
            turn = self._handle_event(message.event, on_text)
            if turn is None:
                continue
            usage += turn.usage
            if turn.message.calls or turn.stop in {Stop.LENGTH, Stop.REFUSED}:
                # The program itself would ask the model to continue.
                return replace(turn, usage=usage)
            # The program may ask on by itself. Then a later turn replaces this text.
            said = turn.message.text

    async def _received(self, running: _Running) -> sdk.Message:
        with self._failing():
            message = await anext(running.stream, None)
        if message is None:
            raise self._lost("ended without an answer")
        return message

    def _handle_event(self, event: dict[str, Any], on_text: TextListener | None) -> ModelTurn | None:
        """Handle one event. Returns the turn that ends with this event, if one does."""
        match event["type"]:
            case "message_start":
                self._events = []
                self._streamed.add(event["message"]["id"])
            case "content_block_delta" if on_text is not None and (piece := anthropic_format.text_of(event)):
                on_text(piece)
            case _:
                pass
        self._events.append(event)
        return self._named(self._read()) if event["type"] == "message_stop" else None

    def _read(self) -> ModelTurn:
        """Read the turn from the events so far.

        If the connection is lost, the program itself ends the message early and runs its complete calls. Without a
        complete call it asks again (2.1). So only complete blocks are read.
        """
        whole = {event["index"] for event in self._events if event["type"] == "content_block_stop"}
        return anthropic_format.read_turn(
            anthropic_format.joined(e for e in self._events if e.get("index", -1) in {-1, *whole})
        )

    def _named(self, turn: ModelTurn) -> ModelTurn:
        """Return the turn with our names of tools, and without calls of the program's own tool."""
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
            told = "; ".join(problems) or "the program gives no reason"
            raise InvalidOutput(f"The final answer does not match its type: {told}", details={"problems": problems})
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
        """Refuse a message that was not streamed. Its calls were not read as a turn, so they would wait forever."""
        is_made_up = message.model == "<synthetic>"
        if not is_made_up and message.message_id is not None and message.message_id not in self._streamed:
            raise self._lost("answered without a stream")

    @contextmanager
    def _failing(self) -> Generator[None, None, None]:
        """Convert what the SDK raises: its own errors, and the bare exceptions of its timeouts."""
        try:
            yield
        except sdk.CLINotFoundError as error:
            raise InvalidConfig(f"The program of the Claude Agent SDK was not found: {error}") from error
        except Exception as error:
            logger.debug(
                "the program failed; last lines of its standard error: %s", "\n".join(self._stderr), exc_info=True
            )
            raise self._lost(f"failed: {self._stderr[-1] if self._stderr else error}") from error

    def _lost(self, how: str) -> ProviderFailed:
        return ProviderFailed(f"The program of the Claude Agent SDK {how}.", retryable=self._running is not None)


def _messages(client: sdk.ClaudeSDKClient) -> AsyncGenerator[sdk.Message, None]:
    return cast("AsyncGenerator[sdk.Message, None]", client.receive_messages())


def _sendable(text: str) -> str:
    """Return `text` with `?` for each lone surrogate, which cannot be sent."""
    return text.encode("utf-8", "replace").decode("utf-8")
