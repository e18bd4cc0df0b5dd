"""Toolsets and agents for those who assemble them by hand. Source: ACP tool discovery, Tasks 5 and 6."""

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
from toolcrib.catalog.state import SourceEntry, SourceStatus
from toolcrib.crib.crib import Toolcrib
from toolcrib.sources.acp.descriptors import ToolCatalog
from toolcrib.sources.acp.port import CALL_ID, ClientOffer, ClientPort
from toolcrib.sources.acp.protocol_tools import DEFAULT_TIMEOUT_S, catalog_of
from toolcrib.sources.acp.source import EditorSource
from toolcrib.sources.base import Listing

logger = logging.getLogger(__name__)

CALL_TIMEOUT_S = DEFAULT_TIMEOUT_S + 60.0
"""For one call of an editor's tool: a command has its own time, and is ended by that first."""


def create_toolset(session: Session) -> CribToolset[Any]:
    """The toolset of a session: its operations, behind which all of its tools stand."""
    return CribToolset(session)


async def create_toolset_from_editor(
    client: ClientPort,
    session_id: str,
    *,
    cwd: str,
    approver: ApproverOf[Any] | None = None,
    call_timeout_s: float = CALL_TIMEOUT_S,
) -> CribToolset[Any]:
    """The tools that an editor has, found as `toolcrib acp` finds them: those that it lists, or, where it does not list
    tools or lists none, those that its capabilities allow. Otherwise as `create_toolset_from_catalog`.

    Raises:
        SourceUnavailable: the editor says that it lists its tools, and failed to. Nothing is offered then: a guess
            could offer more than the editor would.
    """
    rung, catalog, set_aside, warnings = await EditorSource(client, session_id, cwd=cwd).catalog()
    for warning in warnings:
        logger.warning("the editor: %s", warning)
    listed = partial(EditorSource.listed, catalog=catalog, rung=rung, set_aside=set_aside)
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
    """The tools that an editor says it has, themselves and whole, less what its capabilities deny. An empty catalog
    gives no tools; `create_toolset_from_editor` falls back to the capabilities then.

    Those of the protocol are run by its own methods, and any other is asked for by its name. `session_id` is the
    editor's, and `cwd` the session's folder, absolute. What a run leaves open in terminals ends with it. `approver` and
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
    """`listed` has a source offer what was found, without asking the editor again."""
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
            logger.warning("`%s` is left out: %s", left_out.name, left_out.reason)
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
    """The protocol's own tools, as far as `offer` has them, for an editor that does not list its tools; otherwise as
    `create_toolset_from_catalog`.
    """
    catalog = catalog_of(offer)
    return create_toolset_from_catalog(
        catalog, client, session_id, cwd=cwd, approver=approver, call_timeout_s=call_timeout_s
    )


def create_pydantic_agent(
    model: Model | str, toolset: AbstractToolset[Any] | None = None
) -> Agent[object, str | DeferredToolRequests]:
    """An agent that answers with text, or with the calls that a person has to approve of.

    Without a `toolset` it has what each run is given.
    """
    toolsets = () if toolset is None else (toolset,)
    return Agent(model, output_type=[str, DeferredToolRequests], toolsets=toolsets)


class _EditorToolset(CribToolset[AgentDepsT]):
    """Each run has the editor's tools for itself, as each has to leave what it opened, in the task that entered it."""

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
        own._source, own.session = self._open()  # noqa: SLF001  its own
        return own

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        token = CALL_ID.set(ctx.tool_call_id)  # the editor then knows which of the calls it was shown this is
        try:
            return await super().call_tool(name, tool_args, ctx, tool)
        finally:
            CALL_ID.reset(token)

    async def __aenter__(self) -> Self:
        await self._source.__aenter__()
        return self

    async def __aexit__(self, *args: Any) -> bool | None:
        return await self._source.__aexit__(*args)
