"""Toolsets and agents for programs that assemble them by hand. Source: ACP tool discovery, Tasks 5 and 6."""

from __future__ import annotations

import logging
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any, Self

from pydantic_ai import Agent, RunContext
from pydantic_ai.models import Model
from pydantic_ai.tools import AgentDepsT, DeferredToolRequests
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

from toolcrib.adapters.pydantic_ai.toolset import ApproverOf, CribToolset
from toolcrib.agent.session import Session
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.crib.crib import Toolcrib
from toolcrib.sources.acp.descriptors import ToolCatalog
from toolcrib.sources.acp.editor_source import EditorSource
from toolcrib.sources.acp.port import CALL_ID, ClientOffer, ClientPort
from toolcrib.sources.acp.protocol_tools import DEFAULT_TIMEOUT_S, catalog_of
from toolcrib.sources.base import Listing

logger = logging.getLogger(__name__)

CALL_TIMEOUT_S = DEFAULT_TIMEOUT_S + 60.0
"""The time limit for one call of an editor's tool. A command has a shorter limit of its own, which ends it first."""


def create_toolset(session: Session) -> CribToolset[Any]:
    """Create the toolset of a session. The model reaches all tools of the session through its operations."""
    return CribToolset(session)


async def create_toolset_from_editor(
    client: ClientPort,
    session_id: str,
    *,
    cwd: str,
    approver: ApproverOf[Any] | None = None,
    call_timeout_s: float = CALL_TIMEOUT_S,
) -> CribToolset[Any]:
    """Create a toolset with the tools of an editor, found as `toolcrib acp` finds them.

    These are the tools that the editor lists. If it does not list tools, or lists none, they are the tools that its
    capabilities allow. The other arguments are as for `create_toolset_from_catalog`.

    Raises:
        SourceUnavailable: the editor says that it lists its tools, and listing failed. Nothing is offered then: a guess
            could offer more than the editor would.
    """
    tools_from, catalog, set_aside, warnings = await EditorSource(client, session_id, cwd=cwd).catalog()
    for warning in warnings:
        logger.warning("a warning about the editor's tools: %s", warning)
    listed = partial(EditorSource.listed, catalog=catalog, tools_from=tools_from, set_aside=set_aside)
    return _toolset(listed, client, session_id, cwd=cwd, approver=approver, call_timeout_s=call_timeout_s)


def create_toolset_from_catalog(
    catalog: ToolCatalog,
    client: ClientPort,
    session_id: str,
    *,
    cwd: str,
    approver: ApproverOf[Any] | None = None,
    call_timeout_s: float = CALL_TIMEOUT_S,
) -> CribToolset[Any]:
    """Create a toolset with the complete definitions of the tools in an editor's `catalog`.

    Tools that the editor's capabilities deny are left out. An empty catalog gives no tools, whereas
    `create_toolset_from_editor` then falls back to the capabilities.

    ACP's own methods run the protocol's tools. Other tools are called by name. `session_id` is the editor's id of the
    session, and `cwd` its absolute folder. Terminals that a run leaves open end with the run. `approver` and
    `call_timeout_s` are as for `CribToolset`.
    """
    listed = partial(EditorSource.listed, catalog=catalog)
    return _toolset(listed, client, session_id, cwd=cwd, approver=approver, call_timeout_s=call_timeout_s)


def _toolset(
    listed: Callable[[EditorSource], Listing],
    client: ClientPort,
    session_id: str,
    *,
    cwd: str,
    approver: ApproverOf[Any] | None,
    call_timeout_s: float,
) -> CribToolset[Any]:
    """Create the toolset. `listed` makes a source offer the known tools without asking the editor again."""
    crib = Toolcrib()

    def opened() -> tuple[EditorSource, Session]:
        source, session = EditorSource(client, session_id, cwd=cwd), crib.session()
        listing = listed(source)
        entry = SourceEntry(
            source,
            SourceStatus.READY,
            summary=listing.summary,
            trusted=True,
            identity=source.name,
            plain_names=True,
            set_aside=listing.set_aside,
        )
        session.own.put(entry, listing.tools)
        return source, session

    toolset = _EditorToolset(opened, approver, call_timeout_s)
    for entry in toolset.session.view().sources.values():
        for left_out in entry.set_aside:
            logger.warning("the editor's tool `%s` is ignored: %s", left_out.name, left_out.reason)
    return toolset


def create_toolset_from_capabilities(
    offer: ClientOffer,
    client: ClientPort,
    session_id: str,
    *,
    cwd: str,
    approver: ApproverOf[Any] | None = None,
    call_timeout_s: float = CALL_TIMEOUT_S,
) -> CribToolset[Any]:
    """Create a toolset with the protocol's own tools that `offer` allows, for an editor that does not list its tools.

    The other arguments are as for `create_toolset_from_catalog`.
    """
    catalog = catalog_of(offer)
    return create_toolset_from_catalog(
        catalog, client, session_id, cwd=cwd, approver=approver, call_timeout_s=call_timeout_s
    )


def create_pydantic_agent(
    model: Model | str, toolset: AbstractToolset[Any] | None = None
) -> Agent[object, str | DeferredToolRequests]:
    """Create an agent that answers with text, or with the calls that a person must approve.

    Without a `toolset`, the agent uses the toolsets that are passed to each run.
    """
    toolsets = () if toolset is None else (toolset,)
    return Agent(model, output_type=[str, DeferredToolRequests], toolsets=toolsets)


class _EditorToolset(CribToolset[AgentDepsT]):
    """Gives each run its own source and session, because the task that opens them must also close them."""

    def __init__(
        self,
        opened: Callable[[], tuple[EditorSource, Session]],
        approver: ApproverOf[AgentDepsT] | None,
        call_timeout_s: float,
    ) -> None:
        self._open = opened
        self._source, session = opened()
        tools = session.own.overlay.tools.values()
        super().__init__(session, operations=(), tools=tools, approver=approver, call_timeout_s=call_timeout_s)

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> AbstractToolset[AgentDepsT]:
        own = copy(self)
        own._source, own.session = self._open()  # noqa: SLF001  a copy of itself
        return own

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        token = CALL_ID.set(ctx.tool_call_id)  # so that the editor can match the call with one that it shows
        try:
            return await super().call_tool(name, tool_args, ctx, tool)
        finally:
            CALL_ID.reset(token)

    async def __aenter__(self) -> Self:
        await self._source.__aenter__()
        return self

    async def __aexit__(self, *args: Any) -> bool | None:
        return await self._source.__aexit__(*args)
