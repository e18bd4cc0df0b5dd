"""The registry: the only module that changes the catalog. Changes are atomic, numbered and announced in order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import anyio
import pytest
from tests.catalogs import registry_of, tool

from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.categories import Categories, Category
from toolcrib.catalog.overrides import NO_OVERRIDES, MetadataOverride, Overrides
from toolcrib.catalog.registry import MAX_LISTED, ToolRegistry
from toolcrib.catalog.view import View
from toolcrib.core.errors import InvalidTool, StaleExpansion, ToolNotFound
from toolcrib.core.events import CatalogPublished, Event, ToolRegistered, ToolReplaced, ToolUnregistered
from toolcrib.core.metadata import Optionality, ToolExample, ToolMetadata
from toolcrib.core.tools import Tool
from toolcrib.crib.crib import Toolcrib
from toolcrib.search.index.index import Index
from toolcrib.search.index.weights import WEIGHTS
from toolcrib.testing.scripted_source import ScriptedSource

ENTRY = SourceEntry(ScriptedSource("git"), SourceStatus.READY)


def found(registry: ToolRegistry, query: str) -> list[str]:
    return by_words(registry.state.index, query)


def by_words(index: Index, query: str) -> list[str]:
    """Return the tools that contain a word of `query`, without tools that are only close in meaning."""
    return [hit.tool_id for hit in index.weighted(WEIGHTS.without("meaning")).search(query, limit=50).hits]


# -- publication ------------------------------------------------------------------------------------------------------


def test_a_registered_tool_is_available_and_found_immediately() -> None:
    registry = ToolRegistry()

    registry.register(tool("git.commit", "Record changes"))

    assert registry.state.version == 1
    assert found(registry, "record") == ["git.commit"]


def test_registering_a_taken_id_is_refused_and_nothing_is_published() -> None:
    registry = registry_of(tool("git.commit"))
    before = registry.state

    with pytest.raises(InvalidTool, match=r"git\.commit"):
        registry.register(tool("git.commit", "Another"))

    assert registry.state is before


def test_unregistering_an_unknown_tool_is_an_error_and_nothing_is_published() -> None:
    registry = registry_of(tool("git.commit"))
    before = registry.state

    with pytest.raises(ToolNotFound):
        registry.unregister("git.log")

    assert registry.state is before


def test_replacing_a_tool_replaces_its_definition_in_the_search_index() -> None:
    registry = registry_of(tool("git.commit", "Record changes"))

    registry.replace(tool("git.commit", "Save everything"))
    registry.replace(tool("git.log", "History"))

    assert found(registry, "record") == []
    assert found(registry, "save everything") == ["git.commit"]
    assert found(registry, "history") == ["git.log"]


def test_a_state_held_by_a_reader_never_changes() -> None:
    registry = registry_of(tool("git.commit", "Record changes"), tool("git.log", "Read history"))
    held = registry.state
    ontology = held.ontology

    registry.unregister("git.commit")
    registry.register(tool("fs.read", "Read a file"))
    registry.unregister_source("git")

    assert set(held.tools) == {"git.commit", "git.log"}
    assert by_words(held.index, "record") == ["git.commit"]
    assert held.ontology is ontology
    assert ontology.root.count == 2
    assert {path: branch.count for path, branch in ontology.nodes.items()} == {("git",): 2}
    assert set(held.sources) == {"git"}


def test_a_conflict_in_one_of_a_thousand_tools_registers_none_of_them() -> None:
    registry = registry_of(tool("git.commit"))
    told: list[Event] = []
    registry.subscribe(told.append)
    before = registry.state
    other = registry_of(*(tool(f"new.t{number}") for number in range(999)), tool("git.commit", "Another"))

    with pytest.raises(InvalidTool, match=r"`git\.commit` is already registered"):
        registry.merge([*(tool(f"new.t{number}") for number in range(999)), tool("git.commit", "Another")])
    with pytest.raises(
        InvalidTool, match=r"`git\.commit` is already registered; a different source is already named `git`"
    ):
        registry.merge(other)

    assert registry.state is before
    assert told == []


def test_a_merge_lists_conflicts_up_to_a_limit() -> None:
    taken = [tool(f"git.t{number}") for number in range(MAX_LISTED + 5)]

    with pytest.raises(InvalidTool) as refused:
        registry_of(*taken).merge(taken)

    assert refused.value.message.count("already registered") == MAX_LISTED
    assert refused.value.message.endswith("; and 5 more")


def test_an_empty_merge_is_not_published() -> None:
    registry = registry_of(tool("git.commit"))
    before = registry.state

    registry.merge(())
    registry.merge(ToolRegistry())

    assert registry.state is before


def test_a_registry_is_merged_with_its_sources_and_without_its_overrides() -> None:
    registry, other = ToolRegistry(), registry_of(tool("git.commit", "Record"))
    other.register_source(replace(ENTRY, title="Versioning"), [tool("git.commit", "Record")])
    other.set_overrides(Overrides([MetadataOverride.of("git.*", aliases="save", requires_capabilities="disk")]))
    registry.register(tool("git.log", "History"))

    registry.merge(other)

    assert registry.state.tools == {"git.log": tool("git.log", "History"), "git.commit": tool("git.commit", "Record")}
    assert registry.state.needing == {}
    assert registry.state.sources["git"].title == "Versioning"
    assert found(registry, "versioning") == ["git.commit", "git.log"]
    assert found(registry, "save") == []


def bad_example() -> Tool:
    wrong = ToolExample("Record", {"mesage": "x"})
    plain = tool("git.commit", properties={"message": {"type": "string"}}, required=("message",))
    return replace(plain, metadata=ToolMetadata(examples=(ToolExample("Well", {"message": "x"}), wrong)))


DOORS: dict[str, Callable[[ToolRegistry, Tool], None]] = {
    "register": ToolRegistry.register,
    "replace": ToolRegistry.replace,
    "merge": lambda registry, tool: registry.merge([tool]),
    "merge of a registry": lambda registry, tool: registry.merge(registry_of(tool)),
}


@pytest.mark.parametrize("door", DOORS)
def test_an_example_that_does_not_match_its_schema_is_refused(door: str) -> None:
    registry = ToolRegistry()
    before = registry.state

    with pytest.raises(InvalidTool) as refused:
        DOORS[door](registry, bad_example())

    assert refused.value.message.startswith("`git.commit`: example 2 (Record) does not match its schema: ")
    assert "`mesage`" in refused.value.message
    assert registry.state is before


@pytest.mark.parametrize("door", ["register", "replace", "merge"])
def test_a_schema_that_cannot_be_serialized_is_refused(door: str) -> None:
    registry = ToolRegistry()
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(900):
        schema = {"properties": {"a": schema}}

    with pytest.raises(InvalidTool) as refused:
        DOORS[door](registry, replace(tool("git.commit"), output_schema=schema))

    assert refused.value.message == "`git.commit`: its schema is nested too deeply"
    assert not registry.state.tools


def test_a_schema_that_contains_itself_is_refused() -> None:
    schema: dict[str, Any] = {}
    schema["anyOf"] = [schema, {"not": schema}]

    with pytest.raises(InvalidTool, match="nested too deeply"):
        ToolRegistry().register(replace(tool("git.commit"), input_schema=schema))


def test_adding_a_function_with_an_invalid_example_is_refused() -> None:
    crib = Toolcrib()

    def commit(message: str) -> None: ...

    with pytest.raises(
        InvalidTool, match=r"`functions\.commit`: example 2 \(Record\) does not match its schema: .*`mesage`"
    ):
        crib.add(commit, metadata=bad_example().metadata)

    assert crib.registry.list() == ()
    assert crib.tool_of(crib.add(commit)).name == "commit", "the name is still available"


# -- lookups ----------------------------------------------------------------------------------------------------------


def test_tools_are_listed_by_id_by_category_and_by_optionality() -> None:
    required = ToolMetadata(("vcs",), optionality=Optionality.REQUIRED)
    commit = replace(tool("git.commit", "Record", category=("write",), properties={"m": {}}), metadata=required)
    registry = registry_of(tool("git.log", "History"), commit, tool("fs.read", "Read"))

    assert [each.id for each in registry.list()] == ["fs.read", "git.commit", "git.log"]
    assert [each.id for each in registry.list_by_category("git")] == ["git.commit", "git.log"]
    assert registry.list_by_category("vcs") == registry.list_by_category(("git", "write")) == (commit,)
    assert registry.list_by_category("nowhere") == ()
    assert registry.list_by_optionality(Optionality.REQUIRED) == (commit,)
    assert [each.id for each in registry.list_by_optionality(Optionality.OPTIONAL)] == ["fs.read", "git.log"]
    assert registry.get("git.commit") is commit
    assert registry.get("git.Commit") is None


def test_descriptions_and_schemas_are_listed_by_tool_id() -> None:
    registry = registry_of(tool("git.log", "History"), tool("fs.read", "Read", properties={"path": {}}))
    registry.set_categories(Categories([Category(("code",), tools=("git.*",))]))

    told = [(each.tool_id, each.description, each.path) for each in registry.descriptions()]
    assert told == [("fs.read", "Read", ("fs",)), ("git.log", "History", ("code",))]
    assert [*registry.schemas()] == ["fs.read", "git.log"]
    assert registry.schemas()["fs.read"]["properties"] == {"path": {}}


def test_tool_ids_that_differ_only_in_case_are_different_tools() -> None:
    calls: list[str] = []
    crib = Toolcrib()
    crib.add(lambda: calls.append("low"), name="read", description="The low one")
    crib.add(lambda: calls.append("high"), name="READ", description="The high one")

    async def use() -> None:
        for name in ("read", "READ"):
            await crib.call_tool(crib.expand_tool(f"functions.{name}").handle)

    anyio.run(use)

    assert calls == ["low", "high"]
    assert [each.id for each in crib.registry.list()] == ["functions.READ", "functions.read"]
    for name, words in (("read", "The low one"), ("READ", "The high one")):
        tool = crib.registry.get(f"functions.{name}")
        assert tool is not None
        assert tool.description == crib.expand_tool(tool.id).description == words
        assert crib.view().find(crib.view().names[tool.id]) is tool
        assert [pointer.tool_id for pointer in crib.search_tools(words.split()[1]).results] == [tool.id]
    names = {name.casefold() for name in crib.view().names.values()}
    assert len(names) == 2, "clients may ignore case"

    crib.registry.unregister("functions.read")
    assert [pointer.tool_id for pointer in crib.search_tools("one").results] == ["functions.READ"]


# -- categories and overrides -----------------------------------------------------------------------------------------


def test_overrides_can_be_removed_after_categories_changed() -> None:
    registry = registry_of(tool("git.log", "History", tags=("own",)))
    registry.set_overrides(Overrides([MetadataOverride.of("git.*", tags=["said"])]))
    registry.set_categories(Categories([Category(("code",), tools=("git.log",))]))

    registry.set_overrides(NO_OVERRIDES)

    assert registry.state.tools["git.log"].metadata.tags == ("own",)
    assert registry.state.offered == {}


def test_setting_equal_overrides_and_categories_again_is_not_published() -> None:
    registry = registry_of(tool("git.log"))

    def arrange() -> None:
        registry.set_overrides(Overrides([MetadataOverride.of("git.*", tags=["said"])]))
        registry.set_categories(Categories([Category(("code",), tools=("git.log",))]))

    arrange()
    before = registry.state
    arrange()

    assert registry.state is before


# -- sources ----------------------------------------------------------------------------------------------------------


def test_a_source_has_exactly_the_tools_of_its_last_listing() -> None:
    registry = registry_of(tool("fs.read", "Read a file"))

    registry.register_source(ENTRY, [tool("git.commit", "Record"), tool("git.log", "History")])
    registry.register_source(ENTRY, [tool("git.log", "The past"), tool("git.tag", "Name a commit")])

    assert set(registry.state.tools) == {"fs.read", "git.log", "git.tag"}
    assert found(registry, "record") == []
    assert found(registry, "history") == []
    assert found(registry, "past") == ["git.log"]


def test_a_source_entry_can_change_without_its_tools() -> None:
    registry = registry_of(tool("git.commit"))

    registry.register_source(replace(ENTRY, status=SourceStatus.FAILED, reason="it exited"))

    assert set(registry.state.tools) == {"git.commit"}
    assert registry.state.sources["git"].reason == "it exited"


def test_unregistering_a_source_removes_only_its_tools() -> None:
    registry = registry_of(tool("git.commit"), tool("github.issue"))

    registry.unregister_source("git")
    before = registry.state
    registry.unregister_source("git")

    assert set(registry.state.tools) == {"github.issue"}
    assert set(registry.state.sources) == {"github"}
    assert registry.state is before


def test_tools_are_found_by_the_new_title_of_their_source() -> None:
    registry = registry_of(tool("git.commit"))

    registry.register_source(replace(ENTRY, title="Versioning"), [tool("git.commit")])

    assert found(registry, "versioning") == ["git.commit"]


def test_tools_are_found_by_a_source_title_set_before_the_listing() -> None:
    registry = registry_of(tool("git.commit"))

    registry.register_source(replace(ENTRY, title="Versioning"))
    assert found(registry, "versioning") == ["git.commit"]
    registry.register_source(replace(ENTRY, title="Versioning", summary="History"), [tool("git.commit")])
    assert found(registry, "history") == ["git.commit"]


def test_tools_are_found_by_the_title_of_a_source_that_was_registered_later() -> None:
    registry = ToolRegistry()
    registry.register(tool("git.commit"))

    registry.register_source(replace(ENTRY, title="Versioning"))

    assert found(registry, "versioning") == ["git.commit"]


def test_a_definition_with_one_instead_of_true_counts_as_changed() -> None:
    """Python considers them equal; JSON and the senders of arguments do not."""
    old, new = (tool("git.log", properties={"all": {"enum": [value]}}) for value in (True, 1))
    assert old == new
    registry = ToolRegistry()
    registry.register_source(ENTRY, [old])
    told: list[Event] = []
    registry.subscribe(told.append)

    registry.register_source(ENTRY, [new])

    assert registry.state.tools["git.log"].input_schema["properties"]["all"]["enum"][0] is not True
    assert [type(event) for event in told] == [ToolReplaced, CatalogPublished]
    assert registry.state.tools["git.log"].handle != old.handle


def test_the_tools_of_a_source_may_be_an_iterator() -> None:
    registry = ToolRegistry()

    registry.register_source(ENTRY, iter([tool("git.commit"), tool("git.log")]))

    assert set(registry.state.tools) == {"git.commit", "git.log"}


# -- listeners --------------------------------------------------------------------------------------------------------


def test_listeners_receive_every_change_and_finally_the_publication() -> None:
    registry = registry_of(tool("git.commit", "Record"), tool("git.log"), tool("git.tag"))
    told: list[Event] = []
    registry.subscribe(told.append)

    kept, changed, new = tool("git.tag"), tool("git.commit", "Save"), tool("git.add")
    registry.register_source(ENTRY, [kept, changed, new])

    assert told[-1] == CatalogPublished(registry.state.version)
    assert len(told) == 4
    assert ToolUnregistered(tool("git.log")) in told
    assert ToolReplaced(tool("git.commit", "Record"), changed) in told
    assert ToolRegistered(new) in told


class Watched(Tool):
    """Records comparisons and reads of its fingerprint."""

    looked_at: ClassVar[list[str]] = []

    def __eq__(self, other: object) -> bool:
        self.looked_at.append(self.name)
        return super().__eq__(other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]  as in every class that defines `__eq__`

    @property
    def fingerprint(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.looked_at.append(self.name)
        return hash(self.name)


def test_announcing_a_change_of_one_tool_does_not_read_the_other_tools() -> None:
    registry = ToolRegistry()
    registry.register_source(ENTRY, [Watched("git", f"old-{number}") for number in range(1_000)])
    told: list[Event] = []
    registry.subscribe(told.append)
    Watched.looked_at.clear()

    registry.register(new := Watched("git", "new"))

    assert told == [ToolRegistered(new), CatalogPublished(registry.state.version)]
    assert set(Watched.looked_at) <= {"new"}


def test_a_new_source_title_is_not_announced_as_a_change_of_tools() -> None:
    registry = registry_of(tool("git.commit"))
    told: list[Event] = []
    registry.subscribe(told.append)

    registry.register_source(replace(ENTRY, title="Versioning"), [tool("git.commit")])

    assert told == [CatalogPublished(registry.state.version)]


def test_a_listener_sees_the_announced_state_and_may_change_the_registry() -> None:
    registry = ToolRegistry()
    versions: list[tuple[str, int]] = []

    def follow(event: Event) -> None:
        if isinstance(event, ToolRegistered):
            assert event.tool.id in registry.state.tools
            if event.tool.id == "a.first":
                registry.register(tool("a.second"))
        elif isinstance(event, CatalogPublished):
            versions.append(("published", event.version))

    registry.subscribe(follow)
    registry.register(tool("a.first"))

    assert versions == [("published", 1), ("published", 2)]
    assert set(registry.state.tools) == {"a.first", "a.second"}


def test_events_of_a_change_by_a_listener_follow_the_current_events() -> None:
    registry = ToolRegistry()
    told: list[str] = []

    def answer(event: Event) -> None:
        if event == ToolRegistered(tool("a.first")):
            registry.register(tool("a.second"))

    registry.subscribe(answer)
    registry.subscribe(lambda event: told.append(event.tool.id if isinstance(event, ToolRegistered) else "published"))
    registry.register(tool("a.first"))

    assert told == ["a.first", "published", "a.second", "published"]


def test_a_different_thread_may_write_while_a_listener_runs() -> None:
    registry = ToolRegistry()

    def wait_for_another(event: Event) -> None:
        if event == ToolRegistered(tool("a.first")):
            writer = threading.Thread(target=registry.register, args=(tool("b.other"),))
            writer.start()
            writer.join(timeout=30)
            assert not writer.is_alive(), "the writer waits for the listener"

    registry.subscribe(wait_for_another)
    registry.register(tool("a.first"))

    assert set(registry.state.tools) == {"a.first", "b.other"}


def test_a_listener_that_raises_does_not_affect_other_listeners(caplog: pytest.LogCaptureFixture) -> None:
    registry = ToolRegistry()
    told: list[Event] = []

    def broken(event: Event) -> None:
        raise RuntimeError("broken")

    registry.subscribe(broken)
    registry.subscribe(told.append)
    registry.register(tool("a.first"))

    assert told == [ToolRegistered(tool("a.first")), CatalogPublished(1)]
    assert "a catalog listener failed on ToolRegistered" in caplog.text


def test_a_listener_that_unsubscribes_itself_receives_no_further_events() -> None:
    registry = ToolRegistry()
    heard: list[Event] = []
    told: list[Event] = []

    def once(event: Event) -> None:
        heard.append(event)
        registry.unsubscribe(once)

    registry.subscribe(once)
    registry.subscribe(told.append)
    registry.register(tool("a.first"))

    assert heard == [ToolRegistered(tool("a.first"))]
    assert told == [ToolRegistered(tool("a.first")), CatalogPublished(1)]


def test_a_listener_unsubscribed_by_a_different_listener_receives_no_further_events() -> None:
    registry = ToolRegistry()
    told: list[Event] = []
    listener: Callable[[Event], None] = told.append

    registry.subscribe(lambda _: registry.unsubscribe(listener))
    registry.subscribe(listener)
    registry.register(tool("a.first"))

    assert told == []


def test_a_bound_method_can_be_unsubscribed() -> None:
    class Follower:
        def __init__(self) -> None:
            self.told: list[Event] = []

        def follow(self, event: Event) -> None:
            self.told.append(event)

    registry, follower = ToolRegistry(), Follower()
    registry.subscribe(follower.follow)
    registry.unsubscribe(follower.follow)
    registry.unsubscribe(follower.follow)

    registry.register(tool("a.first"))

    assert follower.told == []


def test_a_listener_subscribed_during_an_event_starts_with_the_next_publication() -> None:
    registry = ToolRegistry()
    told: list[Event] = []

    def bring_another(event: Event) -> None:
        if isinstance(event, ToolRegistered) and event.tool.id == "a.first":
            registry.subscribe(told.append)

    registry.subscribe(bring_another)
    registry.register(tool("a.first"))
    registry.register(tool("a.second"))

    assert told == [ToolRegistered(tool("a.second")), CatalogPublished(2)]


# -- many threads -----------------------------------------------------------------------------------------------------


def test_a_hundred_writing_threads_lose_no_update_and_see_no_partial_state() -> None:
    registry = registry_of(tool("base.tool", "shared words"))
    told: list[Event] = []
    registry.subscribe(told.append)
    torn: list[str] = []
    start = threading.Barrier(100)
    before = registry.state.version

    def write(number: int) -> None:
        start.wait()
        for turn in range(3):
            registry.register(tool(f"s{number}.t{turn}", "shared words"))
            state = registry.state
            hits = state.index.weighted(WEIGHTS.without("meaning")).search("shared words", limit=1_000)
            torn.extend(hit.tool_id for hit in hits.hits if hit.tool_id not in state.tools)
            if not len(state.tools) == len(state.index) == hits.total == state.ontology.root.count:
                torn.append(f"version {state.version}")
        registry.unregister(f"s{number}.t1")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    expected = {"base.tool"} | {f"s{number}.t{turn}" for number in range(100) for turn in (0, 2)}
    assert torn == []
    assert set(registry.state.tools) == set(registry.state.index) == expected
    assert registry.state.version == before + 400
    published = [event.version for event in told if isinstance(event, CatalogPublished)]
    assert published == list(range(before + 1, before + 401))
    replayed = {"base.tool"}
    for event in told:
        if isinstance(event, ToolRegistered):
            replayed.add(event.tool.id)
        elif isinstance(event, ToolUnregistered):
            replayed.remove(event.tool.id)
    assert replayed == expected


def test_concurrently_changing_sources_are_complete_in_every_state() -> None:
    registry = ToolRegistry()
    torn: list[str] = []
    done = threading.Event()

    def flicker(name: str) -> None:
        entry = SourceEntry(ScriptedSource(name), SourceStatus.READY)
        for turn in range(20):
            registry.register_source(entry, [tool(f"{name}.a{turn}"), tool(f"{name}.b{turn}")])
            if turn % 5 == 4:
                registry.unregister_source(name)

    def watch() -> None:
        while not done.is_set():
            state = registry.state
            for name in ("x", "y", "z"):
                mine = sorted(tool.name for tool in state.tools.values() if tool.source == name)
                if (name in state.sources) != bool(mine) or (mine and mine[0][1:] != mine[1][1:]) or len(mine) > 2:
                    torn.append(f"{name}: {mine}")

    watcher = threading.Thread(target=watch)
    writers = [threading.Thread(target=flicker, args=(name,)) for name in ("x", "y", "z")]
    for thread in (watcher, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    watcher.join()

    assert torn == []
    assert registry.state.tools == {}
    assert len(registry.state.index) == 0


def test_concurrent_registrations_and_listings_see_no_partial_state() -> None:
    registry = registry_of(tool("base.tool", "shared words"))
    registry.set_overrides(Overrides([MetadataOverride.of("*.here", optionality="required", aliases="wanted")]))
    torn: list[object] = []
    start = threading.Barrier(100)

    def turn(number: int) -> None:
        mine = (tool(f"s{number}.here", "shared words"), tool(f"s{number}.there", "shared words"))
        start.wait()
        registry.merge(mine)
        listed = {each.id for each in registry.list()}
        state = registry.state
        required = {tool.source for tool in state.tools.values() if tool.metadata.optionality is Optionality.REQUIRED}
        found = {hit.tool_id for hit in View.of(state).search("wanted", limit=500).hits}
        torn.extend({one.id for one in mine} - listed)
        torn.extend({f"{source}.here" for source in required} ^ found)
        torn.extend(state.offered.keys() ^ found)
        torn.extend(f"{source}.there" for source in required if f"{source}.there" not in state.tools)
        if number % 2:
            registry.unregister(mine[1].id)
            registry.unregister(mine[0].id)

    threads = [threading.Thread(target=turn, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    # A thread unregisters `there` first, so only `there` may be missing, and only for an odd number.
    assert {str(each) for each in torn} <= {f"s{number}.there" for number in range(1, 100, 2)}
    assert {each.id for each in registry.list()} == {
        "base.tool",
        *(f"s{number}.{name}" for number in range(0, 100, 2) for name in ("here", "there")),
    }


@pytest.mark.anyio
async def test_a_running_call_finishes_with_the_old_tool_after_a_replacement() -> None:
    began, may_end = anyio.Event(), anyio.Event()

    async def answer() -> str:
        """The old one."""
        began.set()
        await may_end.wait()
        return "old"

    def newer() -> str:
        """The new one."""
        return "new"

    crib, answers = Toolcrib(), list[Any]()
    old = crib.tool_of(crib.add(answer))
    handle = crib.expand_tool(old.id).handle

    async def call() -> None:
        answers.append(await crib.call_tool(handle))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await began.wait()
        crib.remove(old)
        crib.add(newer, name="answer")
        may_end.set()

    assert [result.text for result in answers] == ["old"]
    with pytest.raises(StaleExpansion) as stale:
        await crib.call_tool(handle)
    assert stale.value.next_action is not None
    assert (await crib.call_tool(crib.expand_tool(old.id).handle)).text == "new"

    crib.registry.replace(replace(old, description="Said otherwise"))
    with pytest.raises(StaleExpansion):
        await crib.call_tool(handle)


# -- the registry of a crib ----------------------------------------------------------------------------------------


def file(path: str) -> str:
    """Read a file."""
    return path


@pytest.mark.parametrize("put", ["register", "replace"])
@pytest.mark.parametrize(
    ("definition", "why"),
    [
        (Tool("mine", "hello", "Says hello"), "`mine.hello`: no source `mine` exists that could run it"),
        (Tool("functions", "other", "Is no function"), "`functions.other`: `functions` has no such function"),
    ],
)
def test_a_definition_without_a_source_that_runs_it_is_refused(put: str, definition: Tool, why: str) -> None:
    crib = Toolcrib()
    crib.add(file)
    with pytest.raises(InvalidTool) as refused:
        getattr(crib.registry, put)(definition)
    assert refused.value.message.startswith(why)
    assert "use `crib.add`" in refused.value.message
    assert [tool.id for tool in crib.registry.list()] == ["functions.file"]


def test_definitions_are_merged_together_with_their_source() -> None:
    crib = Toolcrib()
    crib.registry.merge(registry_of(tool("git.push")))
    crib.registry.register(tool("git.tag"))
    assert [each.id for each in crib.registry.list()] == ["git.push", "git.tag"]


@pytest.mark.anyio
async def test_an_unregistered_function_can_be_added_again() -> None:
    crib = Toolcrib()
    crib.add(file)
    crib.registry.unregister("functions.file")
    crib.add(file)
    handle = crib.expand_tool("functions.file").handle
    assert (await crib.call_tool(handle, {"path": "a"})).text == "a"

    other = crib.registry.clone()
    other.unregister("functions.file")
    assert (await crib.call_tool(handle, {"path": "b"})).text == "b", "a clone is independent"
