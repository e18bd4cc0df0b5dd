"""The SDK callbacks that answer the requests of a server of the handshake era."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict, TypeVar

import mcp_types
from mcp.client.session import ClientRequestContext, ClientSession, ElicitationFnT, ListRootsFnT, SamplingFnT
from pydantic import BaseModel, ValidationError


class Ask(Protocol):
    """Asks the client that a server's request is for. Returns the answer in the form of MCP, or the error."""

    def __call__(
        self, method: str, params: Mapping[str, Any]
    ) -> Awaitable[Mapping[str, Any] | mcp_types.ErrorData]: ...


class _Callbacks(TypedDict, total=False):
    """Keyword arguments of `mcp.ClientSession`. The session does not declare the capabilities that are left out."""

    elicitation_callback: ElicitationFnT
    list_roots_callback: ListRootsFnT
    sampling_callback: SamplingFnT
    sampling_capabilities: mcp_types.SamplingCapability


class AskedSession(ClientSession):
    """The SDK's session, changed so that it declares exactly the capabilities of the client behind it.

    The SDK itself declares more: both modes of elicitation whenever elicitation is answered, and notifications about
    changed roots.
    """

    def __init__(self, asking: RequestHandlers, **given: Any) -> None:
        super().__init__(**given, **asking.callbacks())
        self._declared = mcp_types.ClientCapabilities.model_validate(_to_declare(asking.capabilities))

    def _build_capabilities(self, version: str) -> mcp_types.ClientCapabilities:
        return self._declared


def _to_declare(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    declared = {kind: capabilities[kind] for kind in ("elicitation", "sampling") if kind in capabilities}
    return declared | ({"roots": {}} if "roots" in capabilities else {})  # without `listChanged`


_Answer = TypeVar("_Answer", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class RequestHandlers:
    """Which capabilities to declare to a server, and what answers its requests."""

    capabilities: Mapping[str, Any]
    """The capabilities in the form of MCP's `ClientCapabilities`."""
    ask: Ask

    def callbacks(self) -> _Callbacks:
        """Return callbacks for the declared capabilities, and for no others."""
        callbacks = _Callbacks()
        if "elicitation" in self.capabilities:
            callbacks["elicitation_callback"] = self._elicit
        if "roots" in self.capabilities:
            callbacks["list_roots_callback"] = self._list_roots
        if "sampling" in self.capabilities:
            callbacks["sampling_callback"] = self._sample
            callbacks["sampling_capabilities"] = mcp_types.SamplingCapability.model_validate(
                self.capabilities["sampling"] or {}
            )
        return callbacks

    async def _elicit(
        self, context: ClientRequestContext, params: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult | mcp_types.ErrorData:
        return await self._answer("elicitation/create", params, mcp_types.ElicitResult.model_validate)

    async def _list_roots(self, context: ClientRequestContext) -> mcp_types.ListRootsResult | mcp_types.ErrorData:
        return await self._answer("roots/list", None, mcp_types.ListRootsResult.model_validate)

    async def _sample(
        self, context: ClientRequestContext, params: mcp_types.CreateMessageRequestParams
    ) -> mcp_types.CreateMessageResult | mcp_types.CreateMessageResultWithTools | mcp_types.ErrorData:
        return await self._answer("sampling/createMessage", params, _sampled)

    async def _answer(
        self, method: str, params: BaseModel | None, read: Callable[[Any], _Answer]
    ) -> _Answer | mcp_types.ErrorData:
        wire = {} if params is None else params.model_dump(by_alias=True, mode="json", exclude_none=True)
        answer = await self.ask(method, wire)
        if isinstance(answer, mcp_types.ErrorData):
            return answer
        try:
            return read(dict(answer))
        except ValidationError:
            return mcp_types.ErrorData(
                code=mcp_types.INTERNAL_ERROR, message=f"The client's answer to {method} is invalid."
            )


def _sampled(wire: Any) -> mcp_types.CreateMessageResult | mcp_types.CreateMessageResultWithTools:
    if isinstance(wire.get("content"), list):
        return mcp_types.CreateMessageResultWithTools.model_validate(wire)
    return mcp_types.CreateMessageResult.model_validate(wire)
