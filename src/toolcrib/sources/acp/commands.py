"""Runs commands in an editor's terminals, with the protocol's own methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio

from toolcrib.core.results import ToolResult
from toolcrib.sources.acp.files import writable
from toolcrib.sources.acp.paths import absolute
from toolcrib.sources.acp.port import TerminalExit, TerminalOutput
from toolcrib.sources.acp.protocol_tools import DEFAULT_OUTPUT_BYTES, DEFAULT_TIMEOUT_S, MAX_OUTPUT_BYTES
from toolcrib.sources.acp.terminals import Command, Terminals


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
            async with self._terminals.opened(command, stays=True) as terminal:
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
