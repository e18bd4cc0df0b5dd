"""After any sequence of changes, a registry equals a plain dictionary of tools and has announced every change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import examples

from toolcrib.catalog.catalog_state import CatalogState, SourceEntry, SourceStatus
from toolcrib.catalog.categories import NO_CATEGORIES, Categories, Category
from toolcrib.catalog.overrides import NO_OVERRIDES, MetadataOverride, Overrides
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.view import View
from toolcrib.core.errors import InvalidTool, ToolNotFound
from toolcrib.core.events import CatalogPublished, Event, ToolRegistered, ToolReplaced, ToolUnregistered
from toolcrib.core.metadata import Optionality, ToolMetadata
from toolcrib.core.tools import Tool
from toolcrib.testing.scripted_source import ScriptedSource

SOURCES = {name: ScriptedSource(name) for name in ("a", "A", "b")}
PATHS = [("a",), ("A",), ("b",), ("b", "deep"), ("code",), ("vcs",), ("team",)]
QUERIES = ["record", "shared read", "code", "quickly", "Workshop", "x", "also"]

METADATA = st.builds(
    ToolMetadata,
    category=st.sampled_from([(), (), ("vcs",)]),
    tags=st.sampled_from([(), ("quick",), ("slow", "quick")]),
    optionality=st.sampled_from([Optionality.OPTIONAL, Optionality.REQUIRED]),
    usage_hint=st.sampled_from([None, "Use it quickly."]),
    requires_capabilities=st.sampled_from([(), ("git",), ("git", "net"), ("git", "git")]),
    aliases=st.sampled_from([(), ("also",)]),
)
TOOLS = st.builds(
    Tool,
    source=st.sampled_from([*SOURCES]),
    name=st.sampled_from("xyXY"),
    description=st.sampled_from(["Record it", "Read what is shared", ""]),
    metadata=METADATA,
    own_path=st.sampled_from([(), (), ("deep",)]),
)
SEVERAL = st.lists(TOOLS, max_size=5, unique_by=lambda tool: tool.id)
ENTRIES = st.builds(
    SourceEntry,
    st.sampled_from([*SOURCES.values()]),
    st.sampled_from([SourceStatus.READY, SourceStatus.STARTING]),
    title=st.sampled_from([None, "Workshop"]),
    summary=st.sampled_from(["", "All that is quickly done"]),
)
SAID = [
    MetadataOverride.of("a.*", tags=["said", "quick"], usage_hint="Now."),
    MetadataOverride.of("*.x", category=["code"], optionality="required"),
    MetadataOverride.of("b.x", requires_capabilities="disk", aliases="also"),
    MetadataOverride.of("[aA].?", optionality="conditional", condition="Where it is needed."),
    MetadataOverride.of("*", optionality="optional", cost="nothing"),
]
OVERRIDES = st.lists(st.sampled_from(SAID), max_size=4).map(Overrides)
CATEGORIES = st.lists(
    st.sampled_from(
        [Category(("code",), tools=("*.y",)), Category(("vcs",), tagged=("said",)), Category(("team",), tools=("A.x",))]
    ),
    max_size=3,
    unique_by=lambda category: category.path,
).map(Categories)


@dataclass(eq=False)
class Follower:
    """Knows the catalog only from its events."""

    tools: dict[str, Tool]
    version: int
    untrue: list[Event] = field(default_factory=list[Event])
    """Events that contradict the earlier events."""

    def __call__(self, event: Event) -> None:
        match event:
            case ToolRegistered(tool):
                is_true = tool.id not in self.tools
                self.tools[tool.id] = tool
            case ToolReplaced(old, new):
                is_true = self.tools.get(new.id) == old != new
                self.tools[new.id] = new
            case ToolUnregistered(tool):
                is_true = self.tools.pop(tool.id, None) == tool
            case CatalogPublished(version):
                is_true = version == self.version + 1
                self.version = version
        if not is_true:
            self.untrue.append(event)


def with_values(metadata: ToolMetadata, values: dict[str, Any]) -> ToolMetadata:
    return replace(metadata, **values)


def with_overrides(tool: Tool, overrides: Iterable[MetadataOverride]) -> Tool:
    """`tool` after applying `overrides` one by one, in a simple and slow way."""
    metadata: ToolMetadata = tool.metadata
    for override in overrides:
        if not fnmatchcase(tool.id, override.tools):
            continue
        said = override.metadata
        for key in override.members:
            value: Any = getattr(said, key)
            if key in ("tags", "aliases", "intents", "requires_capabilities"):
                held: Any = getattr(metadata, key)
                value = tuple(dict.fromkeys([*held, *value]))
            metadata = with_values(metadata, {key: value})
        if metadata.optionality is not Optionality.CONDITIONAL:
            metadata = with_values(metadata, {"condition": None})
    return replace(tool, metadata=metadata)


def found(state: CatalogState) -> list[list[tuple[str, float]]]:
    return [[(hit.tool_id, hit.score) for hit in state.index.search(query, limit=50).hits] for query in QUERIES]


class Registry(RuleBasedStateMachine):
    """A registry, and a dictionary of the tools as their sources define them."""

    @initialize()
    def begin(self) -> None:
        self.registry = ToolRegistry()
        self.tools: dict[str, Tool] = {}
        self.entries: dict[str, SourceEntry] = {}
        self.overrides = NO_OVERRIDES
        self.categories = NO_CATEGORIES
        self.followers: list[Follower] = []
        self.clone: tuple[ToolRegistry, CatalogState] | None = None
        self.subscribe()

    # -- tools --

    @rule(tool=TOOLS)
    def register(self, tool: Tool) -> None:
        self._put((tool,), lambda: self.registry.register(tool))

    @rule(tools=SEVERAL)
    def merge(self, tools: list[Tool]) -> None:
        self._put(tools, lambda: self.registry.merge(iter(tools)))

    @rule(tool=TOOLS)
    def merge_one_twice(self, tool: Tool) -> None:
        before = self.registry.state
        with pytest.raises(InvalidTool, match="twice"):
            self.registry.merge((tool, tool))
        assert self.registry.state is before

    @rule(entry=ENTRIES, tools=SEVERAL, more=SEVERAL, overrides=OVERRIDES)
    def merge_another(self, entry: SourceEntry, tools: list[Tool], more: list[Tool], overrides: Overrides) -> None:
        other = ToolRegistry()
        other.set_overrides(overrides)
        mine = {tool.id: replace(tool, source=entry.name) for tool in tools}
        mine = {tool.id: tool for tool in mine.values()}
        other.register_source(entry, mine.values())
        rest = {tool.id: tool for tool in more if tool.source != entry.name}
        other.merge(rest.values())
        if self._put([*mine.values(), *rest.values()], lambda: self.registry.merge(other)):
            self.entries.setdefault(entry.name, entry)

    @rule(tool=TOOLS)
    def replace(self, tool: Tool) -> None:
        self.registry.replace(tool)
        self.tools[tool.id] = tool

    @rule(tool=TOOLS)
    def unregister(self, tool: Tool) -> None:
        if tool.id in self.tools:
            self.registry.unregister(tool.id)
            del self.tools[tool.id]
        else:
            before = self.registry.state
            with pytest.raises(ToolNotFound):
                self.registry.unregister(tool.id)
            assert self.registry.state is before

    def _put(self, tools: Sequence[Tool], change: Callable[[], None]) -> bool:
        if self.tools.keys().isdisjoint(tool.id for tool in tools):
            change()
            self.tools.update({tool.id: tool for tool in tools})
            return True
        before = self.registry.state
        with pytest.raises(InvalidTool, match="already registered"):
            change()
        assert self.registry.state is before
        return False

    # -- sources, overrides and categories --

    @rule(entry=ENTRIES, tools=st.none() | SEVERAL)
    def register_source(self, entry: SourceEntry, tools: list[Tool] | None) -> None:
        if tools is None:
            self.registry.register_source(entry)
        else:
            mine = {tool.id: tool for tool in (replace(tool, source=entry.name) for tool in tools)}
            self.registry.register_source(entry, iter(mine.values()))
            self.tools = {i: tool for i, tool in self.tools.items() if tool.source != entry.name} | mine
        self.entries[entry.name] = entry

    @rule(name=st.sampled_from([*SOURCES]))
    def unregister_source(self, name: str) -> None:
        self.registry.unregister_source(name)
        if self.entries.pop(name, None) is not None:
            self.tools = {tool_id: tool for tool_id, tool in self.tools.items() if tool.source != name}

    @rule(overrides=OVERRIDES)
    def set_overrides(self, overrides: Overrides) -> None:
        self.registry.set_overrides(overrides)
        self.overrides = overrides

    @rule(categories=CATEGORIES)
    def set_categories(self, categories: Categories) -> None:
        self.registry.set_categories(categories)
        self.categories = categories

    # -- listeners --

    @rule()
    def subscribe(self) -> None:
        follower = Follower(dict(self.registry.state.tools), self.registry.state.version)
        self.followers.append(follower)
        self.registry.subscribe(follower)

    @precondition(lambda self: self.followers)
    @rule()
    def unsubscribe(self) -> None:
        self.registry.unsubscribe(self.followers.pop(0))

    @rule()
    def subscribe_a_listener_that_unsubscribes_itself(self) -> None:
        def once(_: Event) -> None:
            self.registry.unsubscribe(once)

        self.registry.subscribe(once)

    @rule()
    def subscribe_a_listener_that_raises(self) -> None:
        def broken(_: Event) -> None:
            self.registry.unsubscribe(broken)
            raise RuntimeError("broken")

        self.registry.subscribe(broken)

    @rule(own=st.sampled_from("pqr"))
    def subscribe_a_listener_that_registers(self, own: str) -> None:
        def meddle(event: Event) -> None:
            if isinstance(event, CatalogPublished):
                self.registry.unsubscribe(meddle)
                meddled = Tool("meddler", own, "Record it")
                if meddled.id not in self.tools:
                    self.registry.register(meddled)
                    self.tools[meddled.id] = meddled

        self.registry.subscribe(meddle)

    # -- clones --

    @rule(tool=TOOLS)
    def change_a_clone(self, tool: Tool) -> None:
        before = self.registry.state
        clone = self.registry.clone()
        assert clone.state is before
        clone.replace(tool)
        clone.set_overrides(Overrides(SAID))
        assert self.registry.state is before
        self.clone = clone, clone.state

    @invariant()
    def a_clone_does_not_change(self) -> None:
        if self.clone is not None:
            assert self.clone[0].state is self.clone[1]

    # -- laws --

    @invariant()
    def equals_the_dictionary(self) -> None:
        state, registry = self.registry.state, self.registry
        expected = {tool_id: with_overrides(tool, self.overrides.given) for tool_id, tool in self.tools.items()}
        assert state.tools == expected
        assert [*registry.list()] == [expected[tool_id] for tool_id in sorted(expected)]
        assert registry.schemas() == {tool_id: tool.input_schema for tool_id, tool in expected.items()}
        assert [each.tool_id for each in registry.descriptions()] == sorted(expected)
        for tool_id in ("a.x", "A.x", "a.X"):
            assert registry.get(tool_id) == expected.get(tool_id)
        for optionality in Optionality:
            some = [expected[i] for i in sorted(expected) if expected[i].metadata.optionality is optionality]
            assert [*registry.list_by_optionality(optionality)] == some
        for path in PATHS:
            inside = [
                expected[i]
                for i in sorted(expected)
                if any(place[: len(path)] == path for place in self.categories.places(expected[i]))
            ]
            if inside or path[0].casefold() != "a":  # a name that is not there leads to the one in other letters
                assert [*registry.list_by_category(path)] == inside
        needing: dict[str, set[str]] = {}
        for tool in expected.values():
            for name in tool.metadata.requires_capabilities:
                needing.setdefault(name, set()).add(tool.id)
        assert state.needing == needing
        said = {i: t for i, t in self.tools.items() if any(fnmatchcase(i, o.tools) for o in self.overrides.given)}
        assert state.offered == said
        assert {name: (e.title, e.summary) for name, e in state.sources.items()} == {
            name: (e.title, e.summary) for name, e in self.entries.items()
        }

    @invariant()
    def equals_a_fresh_registry(self) -> None:
        fresh = ToolRegistry()
        fresh.set_categories(self.categories)
        fresh.set_overrides(self.overrides)
        for name, entry in self.entries.items():
            fresh.register_source(entry, [tool for tool in self.tools.values() if tool.source == name])
        fresh.merge(tool for tool in self.tools.values() if tool.source not in self.entries)
        one, other = self.registry.state, fresh.state
        assert one.fingerprint == other.fingerprint
        assert View.of(one).fingerprint == View.of(other).fingerprint
        assert found(one) == found(other)

    @invariant()
    def listeners_know_the_tools(self) -> None:
        state = self.registry.state
        for follower in self.followers:
            assert follower.untrue == []
            assert follower.tools == state.tools
            assert follower.version == state.version


Registry.TestCase.settings = settings(
    max_examples=examples(50), stateful_step_count=30, deadline=None, report_multiple_bugs=False
)
TestRegistry = Registry.TestCase
