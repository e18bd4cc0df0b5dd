"""Which tools a model has in a conversation, and how those that it opens reach it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from toolcrib.agent.conversation.events import NameCollided, Offer
from toolcrib.agent.conversation.messages import Message, ToolMessage, ToolSpec
from toolcrib.agent.conversation.state import ConversationState
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
from toolcrib.core.errors import InvalidPrompt, InvalidTool
from toolcrib.core.handles import Handle
from toolcrib.core.names import model_names
from toolcrib.core.tools import Tool
from toolcrib.operations.messages import Expansion
from toolcrib.operations.tools import CALLS, OPERATIONS, operation_tools

logger = logging.getLogger(__name__)

_SHOWING = ("search_tools", "expand_tool")
"""Operations whose answers hold definitions: what they show has to be callable."""


@dataclass(frozen=True, slots=True)
class Brought:
    """Tools that a call opened, on their way to the model."""

    offers: tuple[Offer, ...] = ()
    """To be added to what the model has."""
    revealed: tuple[ToolSpec, ...] = ()
    """To be revealed by the answer to the call."""
    text: str = ""
    """To stand in that answer."""
    collided: tuple[NameCollided, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Of the tools that can be called by now under a name of their own."""
        return tuple(dict.fromkeys((*(offer.name for offer in self.offers), *(tool.name for tool in self.revealed))))


NOTHING_BROUGHT = Brought()


@dataclass(frozen=True)
class Toolbox:
    """The tools of one prompt in one session, and the way in which more of them are brought in."""

    session: Session
    delivery: Delivery
    reveals_unlisted: bool = False

    @property
    def way(self) -> str:
        """The delivery, and whether the list holds what it will bring."""
        return f"{self.delivery}, unlisted" if self.reveals_unlisted else self.delivery.value

    def take_in(self, prompt: Prompt[Any], sections: SectionState) -> None:
        """Make the functions of all sections tools of the session, and show those of sections that are open by now: a
        saved conversation may name any of them.

        Those of closed sections are read as well, so that a function that cannot be a tool is reported before a model
        is asked, and not in the middle of the conversation.

        Raises:
            InvalidTool: one cannot be a tool; the message names its section.
        """
        for path, section in prompt.template.walk():
            for tool in section.tools:
                try:
                    self._tool(SectionTool(path, tool))
                except InvalidTool as error:
                    raise InvalidTool(f"Section `{dotted(path)}`: {error.message}") from error
        for each in prompt.tools(sections):
            self._shown(each)

    def at_first(
        self, prompt: Prompt[Any], tools: Sequence[SectionTool], operations: Iterable[str]
    ) -> tuple[tuple[Offer, ...], tuple[NameCollided, ...]]:
        """What the model is given with the prompt as it is rendered, of which `tools` are the tools that are open.

        The list stays as it is for a provider that caches it: `read_section` is there whether or not there is something
        to read by now.
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
            self._shown(each)
        collided = [*self._add(offers, tools)]
        if can_open and self.delivery is Delivery.DEFER and not self.reveals_unlisted:
            # Of all sections, enabled or not: a list that grows is no longer cached.
            every = (SectionTool(path, tool) for path, section in prompt.template.walk() for tool in section.tools)
            collided += self._add(offers, [each for each in every if each not in tools], deferred=True)
        return tuple(offers.values()), tuple(collided)

    def listed(self, state: ConversationState) -> tuple[ToolSpec, ...]:
        """What of it stands in the list of a request."""
        is_hidden = self.delivery is Delivery.DEFER and self.reveals_unlisted
        return tuple(offer.spec for offer in state.offers if not (is_hidden and offer.spec.is_deferred))

    def brought(self, tools: Sequence[SectionTool], state: ConversationState) -> Brought:
        """How `tools`, which a section brought, reach the model."""
        if not tools:
            return NOTHING_BROUGHT
        for each in tools:
            self._shown(each)
        held = {offer.name: offer for offer in state.offers}
        offers = dict(held)
        collided = tuple(self._add(offers, tools, deferred=self.delivery is Delivery.DEFER))
        new = tuple(offer for name, offer in offers.items() if name not in held)
        ours = {offer.handle for offer in map(self._offer_of, tools) if offer is not None}
        match self.delivery:
            case Delivery.INJECT | Delivery.RESTART:
                return Brought(offers=new, collided=collided)
            case Delivery.DEFER if self.reveals_unlisted:
                fresh = tuple(offer.spec for offer in new)
                return Brought(new, fresh, collided=collided)
            case Delivery.DEFER:
                listed = tuple(offer.spec for offer in state.offers if offer.handle in ours and offer.spec.is_deferred)
                text = self._told(offer.handle for offer in new) if "call_tool" in held else ""
                return Brought(revealed=listed, text=text, collided=collided)
            case Delivery.PROXY:
                return Brought(text=self._told(offer.handle for offer in new), collided=collided)

    def expanded(self, expansions: Sequence[Expansion], state: ConversationState) -> Brought:
        """How tools that `expand_tool` expanded reach the model; without a name of their own, by their handles."""
        if self._proxies:
            return NOTHING_BROUGHT
        tools = self.session.view().tools
        chosen = [SectionTool((), tools[each.tool_id]) for each in expansions if each.tool_id in tools]
        return self.brought(chosen, state)

    @property
    def _proxies(self) -> bool:
        """Whether there are tools that reach the model by their handles alone."""
        return self.delivery in {Delivery.PROXY, Delivery.RESTART} or (
            self.delivery is Delivery.DEFER and not self.reveals_unlisted
        )

    def _add(
        self, offers: dict[str, Offer], tools: Iterable[SectionTool], *, deferred: bool = False
    ) -> Iterable[NameCollided]:
        """Put the offers of `tools` into `offers`; what cannot be is given."""
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
        """None for a tool that is not there, or may not be seen."""
        tool = self._tool(given)
        if tool is None:
            name = getattr(given.tool, "id", None) or getattr(given.tool, "__name__", None) or given.tool
            logger.warning("`%s` of section `%s` is not there, and not offered", name, dotted(given.path))
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

    def _shown(self, given: SectionTool) -> None:
        """Have a tool of an open section exist; operations are not to tell of those of closed ones."""
        if (tool := self._tool(given)) is not None:
            self.session.show(tool)

    def _told(self, handles: Iterable[str | None]) -> str:
        """The tools of these handles as a model can call them through `call_tool`."""
        parsed = (Handle.parse(handle) for handle in handles if handle is not None)
        expanded = [self.session.expand_tool(handle.tool_id) for handle in parsed if handle is not None]
        if not expanded:
            return ""
        tools = [orjson.dumps(each.to_wire()).decode() for each in expanded]
        return "\n".join(("Tools of this section, each to be called by its handle with `call_tool`:", *tools))


def usable(state: ConversationState) -> Mapping[str, Offer]:
    """What the calls of the last turn may name: all that the model had, but for what was held back and not revealed."""
    return _usable(state.offers[: state.known_offers], state.messages)


def usable_from_now(state: ConversationState) -> Mapping[str, Offer]:
    """What the calls of the next turn may name."""
    return _usable(state.offers, (*state.messages, *state.answered))


def _usable(offers: Iterable[Offer], messages: Iterable[Message]) -> Mapping[str, Offer]:
    revealed = {tool.name for message in messages if isinstance(message, ToolMessage) for tool in message.revealed}
    return {offer.name: offer for offer in offers if not offer.spec.is_deferred or offer.name in revealed}


def check_bound(prompt: object) -> None:
    """Pass for a prompt whose parameters are known.

    Raises:
        InvalidPrompt: it is something else, a template that was not bound for instance.
    """
    if isinstance(prompt, PromptTemplate):
        raise InvalidPrompt(
            f"`{prompt.ns}/{prompt.key}` is a template. Bind it first: `template.bind()`, with a value for each type "
            "of parameters that its sections take."
        )
    if not isinstance(prompt, Prompt):
        raise InvalidPrompt(f"A `Prompt` is expected here, not `{type(prompt).__name__}`.")


def check_operations(names: Iterable[str]) -> None:
    """Pass where all of these are operations.

    Raises:
        InvalidPrompt: one is not.
    """
    for name in names:
        if name not in OPERATIONS:
            raise InvalidPrompt(f"`{name}` is no operation; there are: {', '.join(OPERATIONS)}")
