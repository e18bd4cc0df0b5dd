"""The tools of a model in a conversation, and the delivery of tools that it opens."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from toolcrib.agent.conversation.conversation import ConversationState
from toolcrib.agent.conversation.events import NameCollided, Offer
from toolcrib.agent.conversation.messages import Message, ToolMessage, ToolSpec
from toolcrib.agent.loop.provider import Delivery
from toolcrib.agent.sections import (
    READ_SECTION,
    CatalogSection,
    Prompt,
    PromptTemplate,
    SectionState,
    SectionTool,
    dotted,
)
from toolcrib.agent.session import Session
from toolcrib.core.errors import InvalidPrompt, InvalidTool, UnknownPath
from toolcrib.core.handles import Handle
from toolcrib.core.names import model_names
from toolcrib.core.tools import Path, Tool, ToolPointer
from toolcrib.operations.briefing import operation_tools
from toolcrib.operations.catalog_operations import MAX_LIMIT
from toolcrib.operations.operation_table import CALLS, OPERATIONS
from toolcrib.operations.protocol_messages import Expansion

logger = logging.getLogger(__name__)

MAX_POINTERS = 200
"""How many tools of one category a section shows. For larger categories, give the model a search."""


@dataclass(frozen=True)
class SessionCatalog:
    """A `CatalogReader` for the tools that a session may see."""

    session: Session

    def summary(self, category: Path) -> str:
        ontology = self.session.view().ontology
        branch = ontology.find(category)
        if branch is None:
            raise UnknownPath(f"Category {'/'.join(category)} not found.")
        return ontology.node(branch).summary

    def pointers(self, category: Path) -> Sequence[ToolPointer]:
        found: list[ToolPointer] = []
        cursor = None
        while len(found) < MAX_POINTERS:
            # `list` is not used, because it shows a large category as groups.
            page = self.session.search_tools(category=category, limit=MAX_LIMIT, cursor=cursor)
            found += page.results
            cursor = page.next_cursor
            if cursor is None:
                break
        return found[:MAX_POINTERS]


_SHOWING = ("search_tools", "expand_tool")
"""Operations whose answers contain definitions. The shown tools must be callable."""


@dataclass(frozen=True, slots=True)
class ToolDelivery:
    """Tools that a call opened, on their way to the model."""

    offers: tuple[Offer, ...] = ()
    """The tools to add to those of the model."""
    revealed: tuple[ToolSpec, ...] = ()
    """The tools that the answer to the call reveals."""
    text: str = ""
    """The text to include in that answer."""
    collided: tuple[NameCollided, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools that can now be called by their own names."""
        return tuple(dict.fromkeys((*(offer.name for offer in self.offers), *(tool.name for tool in self.revealed))))


NO_DELIVERY = ToolDelivery()


@dataclass(frozen=True)
class Toolbox:
    """The tools of one prompt in one session, and the way to deliver more of them."""

    session: Session
    delivery: Delivery
    reveals_unlisted: bool = False

    @property
    def delivery_key(self) -> str:
        """The delivery, and whether the list of tools contains all tools from the start."""
        return f"{self.delivery}, unlisted" if self.reveals_unlisted else self.delivery.value

    def register_tools(self, prompt: Prompt[Any], sections: SectionState) -> None:
        """Make the functions of all sections tools of the session, and show those of open sections.

        A saved conversation may name any of them. Functions of closed sections are read too, so an unusable function is
        reported before a model is asked, and not in the middle of the conversation.

        Raises:
            InvalidTool: a function cannot be a tool. The message names its section.
        """
        for path, section in prompt.template.walk():
            for tool in section.tools:
                try:
                    self._tool(SectionTool(path, tool))
                except InvalidTool as error:
                    raise InvalidTool(f"Section `{dotted(path)}`: {error.message}") from error
        for each in prompt.tools(sections):
            self._show(each)

    def initial_offers(
        self, prompt: Prompt[Any], tools: Sequence[SectionTool], operations: Iterable[str]
    ) -> tuple[tuple[Offer, ...], tuple[NameCollided, ...]]:
        """Return the tools for the rendered prompt. `tools` are those of the open sections.

        The list does not change, because some providers cache it. `read_section` is in the list even if there is
        nothing to read now.
        """
        sections = [section for _, section in prompt.template.walk()]
        has_catalog = any(isinstance(section, CatalogSection) for section in sections)
        wanted = dict.fromkeys(operations)
        if has_catalog:
            wanted["expand_tool"] = None
        is_proxied = self.delivery is Delivery.PROXY and any(section.tools for section in sections)
        shows = not wanted.keys().isdisjoint(_SHOWING)
        if is_proxied or (shows and self._proxies and wanted.keys().isdisjoint(CALLS)):
            wanted["call_tool"] = None
        names = [name for name in OPERATIONS if name in wanted]
        own = [Offer(ToolSpec(each.name, each.description, each.input_schema)) for each in operation_tools(names)]
        can_open = any(section.has_summary for section in sections)
        if can_open:
            reading = ToolSpec(READ_SECTION.name, READ_SECTION.description, READ_SECTION.input_schema)
            own.insert(0, Offer(reading))
        offers = {offer.name: offer for offer in own}
        for each in tools:
            self._show(each)
        collided = [*self._add(offers, tools)]
        if can_open and self.delivery is Delivery.DEFER and not self.reveals_unlisted:
            # Includes disabled sections, because a list that grows is no longer cached.
            every = (SectionTool(path, tool) for path, section in prompt.template.walk() for tool in section.tools)
            collided += self._add(offers, [each for each in every if each not in tools], deferred=True)
        return tuple(offers.values()), tuple(collided)

    def listed(self, state: ConversationState) -> tuple[ToolSpec, ...]:
        """Return the tools for the list of a request."""
        is_hidden = self.delivery is Delivery.DEFER and self.reveals_unlisted
        return tuple(offer.spec for offer in state.offers if not (is_hidden and offer.spec.is_deferred))

    def deliver(self, tools: Sequence[SectionTool], state: ConversationState) -> ToolDelivery:
        """Return how `tools` of a section reach the model."""
        if not tools:
            return NO_DELIVERY
        for each in tools:
            self._show(each)
        held = {offer.name: offer for offer in state.offers}
        offers = dict(held)
        collided = tuple(self._add(offers, tools, deferred=self.delivery is Delivery.DEFER))
        new = tuple(offer for name, offer in offers.items() if name not in held)
        ours = {offer.handle for offer in map(self._offer_of, tools) if offer is not None}
        match self.delivery:
            case Delivery.INJECT | Delivery.RESTART:
                return ToolDelivery(offers=new, collided=collided)
            case Delivery.DEFER if self.reveals_unlisted:
                fresh = tuple(offer.spec for offer in new)
                return ToolDelivery(new, fresh, collided=collided)
            case Delivery.DEFER:
                listed = tuple(offer.spec for offer in state.offers if offer.handle in ours and offer.spec.is_deferred)
                text = self._definitions(offer.handle for offer in new) if "call_tool" in held else ""
                return ToolDelivery(revealed=listed, text=text, collided=collided)
            case Delivery.PROXY:
                return ToolDelivery(text=self._definitions(offer.handle for offer in new), collided=collided)

    def expanded(self, expansions: Sequence[Expansion], state: ConversationState) -> ToolDelivery:
        """Return how tools that `expand_tool` expanded reach the model. With some deliveries, only by their handles."""
        if self._proxies:
            return NO_DELIVERY
        tools = self.session.view().tools
        chosen = [SectionTool((), tools[each.tool_id]) for each in expansions if each.tool_id in tools]
        return self.deliver(chosen, state)

    @property
    def _proxies(self) -> bool:
        """Whether some tools reach the model only by their handles."""
        return self.delivery in {Delivery.PROXY, Delivery.RESTART} or (
            self.delivery is Delivery.DEFER and not self.reveals_unlisted
        )

    def _add(
        self, offers: dict[str, Offer], tools: Iterable[SectionTool], *, deferred: bool = False
    ) -> Iterable[NameCollided]:
        """Add offers for `tools` to `offers`, and yield those whose name is taken."""
        for each in tools:
            offer = self._offer_of(each)
            if offer is None:
                continue
            known = offers.get(offer.name)
            if known is None:
                offers[offer.name] = replace(offer, spec=replace(offer.spec, is_deferred=deferred))
            elif known.handle != offer.handle:
                logger.warning("`%s` of section `%s` is not offered: its name is taken", offer.name, dotted(each.path))
                yield NameCollided(offer.name, dotted(each.path))

    def _offer_of(self, given: SectionTool) -> Offer | None:
        """Return the offer of a tool. None if the tool does not exist or may not be seen."""
        tool = self._tool(given)
        if tool is None:
            name = getattr(given.tool, "id", None) or getattr(given.tool, "__name__", None) or given.tool
            logger.warning("`%s` of section `%s` is not in the catalog, so it is not offered", name, dotted(given.path))
            return None
        if isinstance(given.tool, Tool | str):
            name = self.session.view().names[tool.id]
        else:
            name = model_names((tool,), {tool.source})[tool.id]
        return Offer(ToolSpec(name, tool.description.strip(), tool.input_schema), tool.handle)

    def _tool(self, given: SectionTool) -> Tool | None:
        view = self.session.view()
        match given.tool:
            case Tool():
                return view.tools.get(given.tool.id)
            case str():
                return view.find(given.tool)
            case function:
                tool = self.session.take(function, group=dotted(given.path))
                return tool if view.may_see(tool) else None

    def _show(self, given: SectionTool) -> None:
        """Let a tool of an open section exist. Operations must not reveal tools of closed sections."""
        if (tool := self._tool(given)) is not None:
            self.session.show(tool)

    def _definitions(self, handles: Iterable[str | None]) -> str:
        """Return the definitions of these tools, for calls through `call_tool`."""
        parsed = (Handle.parse(handle) for handle in handles if handle is not None)
        expanded = [self.session.expand_tool(handle.tool_id) for handle in parsed if handle is not None]
        if not expanded:
            return ""
        tools = [orjson.dumps(each.to_wire()).decode() for each in expanded]
        return "\n".join(("Tools of this section. Call each one with `call_tool` and its handle:", *tools))


def usable(state: ConversationState) -> Mapping[str, Offer]:
    """Return the tools that calls of the last turn may name: all that the model had, without hidden ones."""
    return _usable(state.offers[: state.known_offers], state.messages)


def usable_from_now(state: ConversationState) -> Mapping[str, Offer]:
    """Return the tools that calls of the next turn may name."""
    return _usable(state.offers, (*state.messages, *state.answered))


def _usable(offers: Iterable[Offer], messages: Iterable[Message]) -> Mapping[str, Offer]:
    revealed = {tool.name for message in messages if isinstance(message, ToolMessage) for tool in message.revealed}
    return {offer.name: offer for offer in offers if not offer.spec.is_deferred or offer.name in revealed}


def check_bound(prompt: object) -> None:
    """Raise unless `prompt` is a prompt with parameters.

    Raises:
        InvalidPrompt: it is something else, such as a template that was not bound.
    """
    if isinstance(prompt, PromptTemplate):
        raise InvalidPrompt(
            f"`{prompt.ns}/{prompt.key}` is a template. Bind it first with `template.bind()` and a value for each type "
            "of parameters that its sections take."
        )
    if not isinstance(prompt, Prompt):
        raise InvalidPrompt(f"Pass a `Prompt`, not `{type(prompt).__name__}`.")


def check_operations(names: Iterable[str]) -> None:
    """Raise unless all `names` are operations.

    Raises:
        InvalidPrompt: one of them is not an operation.
    """
    for name in names:
        if name not in OPERATIONS:
            raise InvalidPrompt(f"unknown operation `{name}`. Use one of: {', '.join(OPERATIONS)}")
