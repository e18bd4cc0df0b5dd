"""Runs commands in terminals of an editor, with the protocol's own methods. Releases every terminal at the end."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import anyio
from anyio.abc import TaskGroup

from toolcrib.core.results import ToolResult
from toolcrib.sources.acp.editor_files import absolute, writable
from toolcrib.sources.acp.port import CALL_ID, ClientGone, ClientPort, ClientRefused, TerminalExit, TerminalOutput
from toolcrib.sources.acp.protocol_tools import DEFAULT_OUTPUT_BYTES, DEFAULT_TIMEOUT_S, MAX_OUTPUT_BYTES

logger = logging.getLogger(__name__)

GRACE_S = 5.0
"""How long the editor may take to kill a command, and to release a terminal, when no call waits for it, in seconds."""

TerminalListener = Callable[[str | None, str], Awaitable[None]]
"""Called for each terminal as soon as it is open, with the tool call it belongs to (`CALL_ID`) and its id."""


async def ignore_terminal(call_id: str | None, terminal_id: str) -> None:
    """Ignore a new terminal."""


@dataclass(frozen=True, slots=True)
class Command:
    """What runs in a terminal."""

    program: str
    args: Sequence[str] = ()
    cwd: str | None = None
    """An absolute path."""
    env: Mapping[str, str] | None = None
    output_byte_limit: int | None = None


@dataclass(eq=False)
class _Terminal:
    """An open terminal."""

    id: str
    has_exited: bool = False
    """Whether its command is known to have ended."""


@dataclass(eq=False)
class _TerminalRequest:
    """A request for a terminal. Once sent it may create one, so it is not cancelled together with its caller."""

    scope: anyio.CancelScope = field(default_factory=lambda: anyio.CancelScope(shield=True))
    settled: anyio.Event = field(default_factory=anyio.Event)
    terminal: _Terminal | None = None
    error: Exception | None = None
    is_unwanted: bool = False


class Terminals:
    """The terminals of one session. Leaving it releases them. The methods raise `ClientRefused` and `ClientGone`."""

    def __init__(
        self,
        port: ClientPort,
        session_id: str,
        on_open: TerminalListener = ignore_terminal,
        *,
        grace_s: float = GRACE_S,
    ) -> None:
        self._port = port
        self._session_id = session_id
        self._on_open = on_open
        self._grace_s = grace_s
        self._open: dict[str, _Terminal] = {}
        self._openings: set[_TerminalRequest] = set()
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._tasks = None
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as waiting:
                for opening in self._openings:
                    opening.is_unwanted = True
                    opening.scope.deadline = anyio.current_time() + self._grace_s
                    waiting.start_soon(opening.settled.wait)
            async with anyio.create_task_group() as ending:
                for terminal in [*self._open.values()]:
                    ending.start_soon(self._end, terminal)
        await self._stack.aclose()

    @property
    def open_ids(self) -> frozenset[str]:
        """The ids of the terminals that were opened and not released."""
        return frozenset(self._open)

    @asynccontextmanager
    async def opened(self, command: Command, *, keeps_open: bool = False) -> AsyncGenerator[_Terminal]:
        """Open a terminal that runs `command`, for the block. At its end the command is killed if it still runs, and
        the terminal is released. With `keeps_open`, this happens only if the block fails."""
        terminal = await self._requested(command)
        try:
            await self._on_open(CALL_ID.get(), terminal.id)
            yield terminal
        except BaseException:
            await self._end(terminal)
            raise
        if not keeps_open:
            await self._end(terminal)

    async def output(self, terminal_id: str) -> TerminalOutput:
        output = await self._port.terminal_output(self._session_id, terminal_id)
        if output.exit is not None:
            self._note_exit(terminal_id)
        return output

    async def exit(self, terminal_id: str) -> TerminalExit:
        """Wait until the command has ended."""
        ended = await self._port.wait_for_terminal_exit(self._session_id, terminal_id)
        self._note_exit(terminal_id)
        return ended

    async def kill(self, terminal_id: str) -> None:
        await self._port.kill_terminal(self._session_id, terminal_id)

    async def release(self, terminal_id: str) -> None:
        await self._port.release_terminal(self._session_id, terminal_id)
        self._open.pop(terminal_id, None)

    async def stopped(self, terminal: _Terminal) -> TerminalOutput | None:
        """Kill a command and return what it wrote; None if the editor does not answer in time."""
        output = None
        with anyio.move_on_after(self._grace_s):
            with suppress(ClientRefused):  # the command may have ended by itself
                await self.kill(terminal.id)
            with suppress(ClientRefused):
                output = await self.output(terminal.id)
        return output

    def _note_exit(self, terminal_id: str) -> None:
        if terminal_id in self._open:
            self._open[terminal_id].has_exited = True

    async def _requested(self, command: Command) -> _Terminal:
        if self._tasks is None:
            raise ClientGone("the session has ended")
        opening = _TerminalRequest()
        self._openings.add(opening)
        self._tasks.start_soon(self._request, command, opening)
        try:
            await opening.settled.wait()
        except BaseException:
            opening.is_unwanted = True
            if opening.terminal is not None:  # the terminal arrived in the very moment in which its caller left
                await self._end(opening.terminal)
            raise
        if opening.terminal is None:
            raise opening.error or ClientGone("the session has ended")
        return opening.terminal

    async def _request(self, command: Command, opening: _TerminalRequest) -> None:
        try:
            with opening.scope:
                terminal_id = await self._port.create_terminal(
                    self._session_id,
                    command.program,
                    command.args,
                    env=command.env,
                    cwd=command.cwd,
                    output_byte_limit=command.output_byte_limit,
                )
                terminal = self._open[terminal_id] = _Terminal(terminal_id)
                if opening.is_unwanted:
                    await self._end(terminal)
                else:
                    opening.terminal = terminal
        except Exception as error:  # noqa: BLE001  raised again in the waiting task
            opening.error = error
        finally:
            self._openings.discard(opening)
            opening.settled.set()

    async def _end(self, terminal: _Terminal) -> None:
        """Kill the command if it still runs, and release its terminal. This is shielded from cancellation and limited
        in time.

        If the editor did not release the terminal in time, leaving the session tries again.
        """
        with anyio.CancelScope(shield=True):
            if not terminal.has_exited:
                with anyio.move_on_after(self._grace_s), suppress(ClientRefused, ClientGone):
                    await self.kill(terminal.id)
            with anyio.move_on_after(self._grace_s) as patience:
                try:
                    await self.release(terminal.id)
                except (ClientRefused, ClientGone) as error:
                    logger.info("terminal %s was not released: %s", terminal.id, error)
                    self._open.pop(terminal.id, None)
            if patience.cancelled_caught:
                logger.warning("the editor did not release terminal %s within %g s", terminal.id, self._grace_s)


class Commands:
    """The commands of one session. The methods raise `ClientRefused` and `ClientGone`.

    An answer has `is_error` if the command ends with an exit code other than 0, by a signal, or because of its time
    limit.
    """

    def __init__(self, terminals: Terminals, cwd: str) -> None:
        """`cwd` is an absolute path. Commands run there by default."""
        self._terminals = terminals
        self._cwd = cwd

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Run a command. `arguments` match `RUN_COMMAND`."""
        limit_bytes: int = arguments.get("output_byte_limit", DEFAULT_OUTPUT_BYTES)
        command = Command(
            arguments["command"],
            tuple(arguments.get("args", ())),
            absolute(arguments.get("cwd", "."), self._cwd),
            arguments.get("env"),
            limit_bytes,
        )
        if arguments.get("background"):
            async with self._terminals.opened(command, keeps_open=True) as terminal:
                text = f"The command runs in terminal {terminal.id}. Release it when you no longer need its output."
                return ToolResult.of({"terminal_id": terminal.id}, text=text)
        timeout_s = arguments.get("timeout_s", DEFAULT_TIMEOUT_S)
        async with self._terminals.opened(command) as terminal:
            with anyio.move_on_after(timeout_s):
                ended = await self._terminals.exit(terminal.id)
                return _answer(ended, await self._terminals.output(terminal.id), limit_bytes)
            output = await self._terminals.stopped(terminal)
            return _late(output, timeout_s, limit_bytes)
        raise AssertionError("the block returns")  # pragma: no cover

    async def output(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Return the output so far. `arguments` match `GET_TERMINAL_OUTPUT`."""
        output = await self._terminals.output(arguments["terminal_id"])
        return _answer(output.exit, output, MAX_OUTPUT_BYTES)

    async def wait(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Wait for the end of a command. `arguments` match `WAIT_FOR_TERMINAL_EXIT`."""
        ended = None
        with anyio.move_on_after(arguments.get("timeout_s", DEFAULT_TIMEOUT_S)):
            ended = await self._terminals.exit(arguments["terminal_id"])
        return _answer(ended)

    async def kill(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Kill a command. `arguments` match `KILL_TERMINAL`."""
        await self._terminals.kill(arguments["terminal_id"])
        return ToolResult.of(None, text=f"The command in terminal {arguments['terminal_id']} was killed.")

    async def release(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Release a terminal. `arguments` match `RELEASE_TERMINAL`."""
        await self._terminals.release(arguments["terminal_id"])
        return ToolResult.of(None, text=f"Terminal {arguments['terminal_id']} was released.")


def _answer(
    ended: TerminalExit | None, output: TerminalOutput | None = None, limit_bytes: int = MAX_OUTPUT_BYTES
) -> ToolResult:
    """Return the answer. `ended` is None while the command runs."""
    value: dict[str, Any] = {"is_running": ended is None}
    if ended is not None:
        value |= {"exit_code": ended.code, "signal": ended.signal}
    is_error = ended is not None and (ended.code not in (0, None) or ended.signal is not None)
    return _result(_how_it_ended(ended), value, output, limit_bytes, is_error=is_error)


def _late(output: TerminalOutput | None, timeout_s: float, limit_bytes: int) -> ToolResult:
    value = {"is_running": False, "exit_code": None, "signal": None, "timed_out": True}
    told = f"The command was killed, because it did not end within {timeout_s:g} s."
    return _result(told, value, output, limit_bytes, is_error=True)


def _how_it_ended(ended: TerminalExit | None) -> str:
    if ended is None:
        return "The command is still running."
    if ended.signal is not None:
        return f"The command was ended by signal {ended.signal}."
    return "The command has ended." if ended.code is None else f"The command ended with exit code {ended.code}."


def _result(
    told: str, value: dict[str, Any], output: TerminalOutput | None, limit_bytes: int, *, is_error: bool
) -> ToolResult:
    texts = [told]
    if output is not None:
        text, is_cut = _end_of(output.text, limit_bytes)
        is_cut = is_cut or output.is_truncated
        value |= {"output": text, "is_cut": is_cut}
        texts += filter(None, ["[the beginning of its output was left out]" if is_cut else "", text])
    wire = {"content": [{"type": "text", "text": text} for text in texts], "structuredContent": value}
    return ToolResult({**wire, "isError": True} if is_error else wire)


def _end_of(text: str, limit_bytes: int) -> tuple[str, bool]:
    """Return the end of `text`, and whether its beginning was cut. An editor need not respect the limit that it was
    given."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit_bytes:
        return writable(text), False
    return data[-limit_bytes:].decode("utf-8", "ignore"), True
