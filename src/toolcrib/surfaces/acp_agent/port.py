"""The editor's connection as sources use it, built on the SDK's connection."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar, cast

from acp import RequestError
from acp.interfaces import Client
from acp.schema import ClientCapabilities, EnvVariable
from pydantic import ValidationError

from toolcrib.sources.acp.port import CALL_ID, ClientGone, ClientOffer, ClientRefused, TerminalExit, TerminalOutput

INTERNAL_ERROR = -32603

AnswerT = TypeVar("AnswerT")


def offer_of(capabilities: ClientCapabilities | None) -> ClientOffer:
    """Return the editor's capabilities that concern tools."""
    if capabilities is None:
        return ClientOffer()
    said = (capabilities.field_meta or {}).get("toolcrib")
    ours = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
    fs = capabilities.fs
    return ClientOffer(
        read_text_file=fs is not None and fs.read_text_file is True,
        write_text_file=fs is not None and fs.write_text_file is True,
        terminal=capabilities.terminal is True,
        discovery=ours.get("discoverTools") is True,
        previews=ours.get("previewTool") is True,
    )


class EditorPort:
    """Implements `ClientPort` with `client`, the SDK's connection."""

    def __init__(self, client: Client, offer: ClientOffer) -> None:
        self.client = client
        self._offer = offer

    @property
    def offer(self) -> ClientOffer:
        return self._offer

    async def discover_tools(self, session_id: str) -> Mapping[str, Any]:
        return await self._extension("toolcrib/discover_tools", {"sessionId": session_id})

    async def call_tool(self, session_id: str, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        params: dict[str, Any] = {"sessionId": session_id, "name": name, "arguments": dict(arguments)}
        if (call_id := CALL_ID.get()) is not None:
            params["toolCallId"] = call_id
        return await self._extension("toolcrib/call_tool", params)

    async def preview_tool(self, session_id: str, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        params = {"sessionId": session_id, "name": name, "arguments": dict(arguments)}
        return await self._extension("toolcrib/preview_tool", params)

    async def read_text_file(
        self, session_id: str, path: str, *, line: int | None = None, limit: int | None = None
    ) -> str:
        request = self.client.read_text_file(session_id=session_id, path=path, line=line, limit=limit)
        return (await _answer(request)).content

    async def write_text_file(self, session_id: str, path: str, content: str) -> None:
        await _answer(self.client.write_text_file(session_id=session_id, path=path, content=content))

    async def create_terminal(
        self,
        session_id: str,
        command: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
    ) -> str:
        request = self.client.create_terminal(
            session_id=session_id,
            command=command,
            args=list(args),
            env=[EnvVariable(name=name, value=value) for name, value in (env or {}).items()],
            cwd=cwd,
            output_byte_limit=output_byte_limit,
        )
        return (await _answer(request)).terminal_id

    async def terminal_output(self, session_id: str, terminal_id: str) -> TerminalOutput:
        answer = await _answer(self.client.terminal_output(session_id=session_id, terminal_id=terminal_id))
        ended = answer.exit_status
        return TerminalOutput(
            answer.output, answer.truncated, None if ended is None else TerminalExit(ended.exit_code, ended.signal)
        )

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str) -> TerminalExit:
        answer = await _answer(self.client.wait_for_terminal_exit(session_id=session_id, terminal_id=terminal_id))
        return TerminalExit(answer.exit_code, answer.signal)

    async def kill_terminal(self, session_id: str, terminal_id: str) -> None:
        await _answer(self.client.kill_terminal(session_id=session_id, terminal_id=terminal_id))

    async def release_terminal(self, session_id: str, terminal_id: str) -> None:
        await _answer(self.client.release_terminal(session_id=session_id, terminal_id=terminal_id))

    async def _extension(self, method: str, params: dict[str, Any]) -> Any:
        """Call an extension method, and return the answer unchecked.

        The SDK adds the leading underscore to `method`.
        """
        return await _answer(self.client.ext_method(method, params))


async def _answer(request: Awaitable[AnswerT]) -> AnswerT:
    """Return the answer to a request. Translates the SDK's errors to those of `ClientPort`."""
    try:
        return await request
    except RequestError as error:
        raise ClientRefused(error.code, str(error), error.data) from error
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise ClientRefused(INTERNAL_ERROR, f"the editor's response is invalid: {where}: {problem['msg']}") from error
    except ConnectionError as error:
        raise ClientGone(str(error)) from error
