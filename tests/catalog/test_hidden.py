"""Hidden tools: every answer over a catalog with hidden tools equals the answer over the catalog without them.

This holds for any rules, principal and categories, and for every operation with all its arguments. The answers are
equal byte by byte, and so are the recorded events.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import anyio
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.catalog.strategies import PRINCIPALS, RULES, SET_UP, SOURCES, TAGS, many_tools, tools
from tests.examples import examples
from tests.knowing import FAR, NEAR, NEARER, Knowing, past_of, vectors_of

from toolcrib.catalog.access import Rules
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.categories import Categories, Category
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.view import View
from toolcrib.core.errors import ToolcribError
from toolcrib.core.events import OperationPerformed
from toolcrib.core.principal import CallContext, Principal
from toolcrib.core.tools import Path, Tool
from toolcrib.operations.calling import complete, get_prompt, read_resource
from toolcrib.operations.catalog_operations import Operations
from toolcrib.operations.cursors import CursorSeal
from toolcrib.operations.dispatcher import Dispatcher
from toolcrib.sources.base import Extras
from toolcrib.testing.scripted_source import ScriptedSource

Request = tuple[str, Mapping[str, Any]]

TRACE = f"{7:032x}"


@dataclass
class Requester:
    """Sends requests to one view, and collects every answer and every recorded event."""

    view: View
    answers: list[Any] = field(default_factory=list[Any])

    def __post_init__(self) -> None:
        self.dispatcher = Dispatcher(Operations(CursorSeal(b"one key for all")), recorders=[self._record])

    def _record(self, event: OperationPerformed) -> None:
        told = (event.operation, event.outcome, event.answer_bytes, event.query, event.path, event.tool_ids)
        self.answers.append([*told, event.input_schema, event.trace_id])

    async def ask(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            answer = (await self.dispatcher.perform(self.view, self.context, name, arguments)).to_wire()
        except ToolcribError as error:
            answer = error.to_wire()
        self.answers.append(answer)
        return dict(answer)

    async def walk(self, name: str, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        """All pages. The cursor of each page is also tried on other requests."""
        pages = [await self.ask(name, arguments)]
        while cursor := pages[-1].get("next_cursor"):
            await self.ask("list", {"cursor": cursor})
            await self.ask("search_tools", {"query": "shared", "cursor": cursor})
            pages.append(await self.ask(name, {**arguments, "cursor": cursor}))
        return pages

    async def walk_down(self) -> None:
        """Every page of every visible node, including groups, starting at the root."""
        waiting, seen = list[Path]([()]), set[Path]()
        while waiting:
            path = waiting.pop()
            for page in await self.walk("list", {"path": list(path), "limit": 3}):
                found = [tuple(node["path"]) for node in page.get("nodes", ())]
                waiting += [each for each in found if each not in seen]
                seen.update(found)

    @property
    def context(self) -> CallContext:
        return CallContext(self.view.principal, TRACE)


def requests(known: Iterable[Tool]) -> Iterable[Request]:
    """Requests of a caller who guesses every tool in `known`, visible or not."""
    known = [*known]
    for each in known:
        handle, name = each.handle, f"{each.source}__{each.name}"
        for reference in (each.id, f"{each.id}x", handle, name, f"{handle}.{5:x}"):
            yield "expand_tool", {"tool_id": reference}
            yield "call_tool", {"tool_id": reference, "arguments": {}}
        yield "call_read_only_tool", {"tool_id": handle, "arguments": {}}
        yield "call_tool", {"tool_id": handle, "arguments": {"path": 5}}
        yield "call_tool", {"tool_id": handle, "Path": "."}
        path = [each.source, *each.own_path]
        yield "list", {"path": [*path, each.name]}
        yield "search_tool_by_category", {"query": each.name, "category_path": path}
    yield "expand_tool", {"tool_ids": [each.id for each in known[:10]] or ["x"]}


PATHS = st.lists(
    st.sampled_from([*SOURCES, "read", "deep", "code", "lint", "quality", "team", "FILE", "invoice"]), max_size=3
)
QUERIES = st.sampled_from(
    ["", " ", "shared", "read file", "file", "beta", "change invoice", "code", "y", "nothing", "a"]
)
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "tags": st.lists(st.sampled_from([*TAGS, "none"]), max_size=2),
    "limit": st.integers(1, 7),
    "cursor": st.sampled_from(["", "AAAA"]),
}
LIMIT = {"limit": OPTIONS["limit"]}


def request(name: str, needed: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[Request]:
    return st.fixed_dictionaries(needed, optional=optional).map(lambda arguments: (name, arguments))


SEARCH_OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    **OPTIONS,
    "category": PATHS,
    "detail_level": st.sampled_from(["name", "summary", "full"]),
    "include_unavailable": st.booleans(),
}
REQUESTS = st.lists(
    st.one_of(
        request("list", {}, {**OPTIONS, "path": PATHS, "query": QUERIES}),
        request("search_tools", {}, {"query": QUERIES, **SEARCH_OPTIONS}),
        request("search_tool_by_category", {"query": QUERIES, "category_path": PATHS}, LIMIT),
        request("search_nodes", {"query": QUERIES}, LIMIT),
        request("list_categories", {}, {"limit": OPTIONS["limit"], "cursor": OPTIONS["cursor"]}),
    ),
    min_size=1,
    max_size=8,
)

ENTRIES = st.fixed_dictionaries(
    {
        name: st.builds(
            SourceEntry,
            st.builds(ScriptedSource, st.just(name)),
            st.sampled_from([SourceStatus.READY, SourceStatus.READY, *SourceStatus]),
            reason=st.just("it exited"),
            is_lasting=st.booleans(),
            trusted=st.booleans(),
            plain_names=st.booleans(),
        )
        for name in SOURCES
    }
)


@dataclass(frozen=True)
class World:
    """A catalog, a principal, the rules of the policy, and a list of requests."""

    tools: list[Tool]
    entries: Mapping[str, SourceEntry]
    categories: list[Category]
    rules: Rules
    principal: Principal
    requests: list[Request]

    def view(self, offered: Iterable[Tool]) -> View:
        """The view of this world with only these tools."""
        registry, offered = ToolRegistry(), [*offered]
        registry.set_categories(Categories(self.categories))
        for name, entry in self.entries.items():
            mine = [each for each in offered if each.source == name]
            registry.register_source(replace(entry, source=ScriptedSource(name, mine)), mine)
        return View.of(registry.state, self.principal, self.rules)


WORLDS = st.builds(World, tools() | many_tools(), ENTRIES, SET_UP, RULES, st.sampled_from(PRINCIPALS), REQUESTS)


async def everything(view: View, asked: Iterable[Request]) -> bytes:
    asker = Requester(view)
    await asker.walk_down()
    for name, arguments in asked:
        await asker.walk(name, arguments)
    told = [*asker.answers, view.fingerprint, sorted(view.sources), sorted(view.names.items())]
    return json.dumps(told).encode()


@pytest.mark.holds("errors.leak-nothing")
@settings(max_examples=examples(150), deadline=None)
@given(WORLDS)
def test_hidden_tools_leave_no_trace_in_any_answer(world: World) -> None:
    over_all = world.view(world.tools)
    without = world.view(over_all.tools.values())
    hidden = [each for each in world.tools if each.id not in over_all.tools]
    assume(hidden)
    asked = [*world.requests, *requests([*hidden[:3], *[*over_all.tools.values()][:3]])]

    assert anyio.run(everything, over_all, asked) == anyio.run(everything, without, asked)


def knowing(view: View) -> View:
    """`view` with vectors and past calls of some tools in its catalog."""
    known = sorted(view.visible.state.tools)
    directions = (NEAR, NEARER, FAR, None)
    # Derived from the id, so that a tool has the same vector in every catalog.
    vectors = {tool_id: way for tool_id in known if (way := directions[sum(tool_id.encode()) % 4]) is not None}
    calls = [
        (query, tool_id)
        for tool_id in known
        for number, query in enumerate(("shared file", "read file", "change the invoice", "code"))
        if sum(tool_id.encode()) % 5 > number
    ]
    return replace(view, knowledge=Knowing(vectors_of(view, vectors), past_of(calls)))


@pytest.mark.holds("errors.leak-nothing")
@settings(max_examples=examples(100), deadline=None)
@given(WORLDS)
def test_vectors_and_past_calls_of_hidden_tools_leave_no_trace(world: World) -> None:
    over_all = knowing(world.view(world.tools))
    without = knowing(world.view(over_all.tools.values()))
    assume(len(over_all.tools) < len(world.tools))
    asked = [*world.requests, ("search_tools", {"query": "shared file", "limit": 2}), ("list", {"query": "read file"})]

    assert anyio.run(everything, over_all, asked) == anyio.run(everything, without, asked)
    for query in ("shared file", "nothing that was asked"):
        assert over_all.mark(query) == without.mark(query) != ""


@settings(max_examples=examples(30), deadline=None)
@given(WORLDS, st.randoms())
def test_the_order_of_the_tools_does_not_affect_any_answer(world: World, random: Random) -> None:
    one, other = world.view(world.tools), world.view(random.sample(world.tools, len(world.tools)))

    assert anyio.run(everything, one, world.requests) == anyio.run(everything, other, world.requests)


NAMES = st.lists(st.sampled_from("abcdA"), unique=True)
EXTRAS = st.fixed_dictionaries(dict.fromkeys(("name", "uri", "uriTemplate"), NAMES))


def view_of_items(offered: Mapping[str, list[str]], principal: Principal, rules: Rules, *, plain: bool) -> View:
    """A catalog of two sources with these prompts, resources and templates."""

    def wires(key: str) -> tuple[Mapping[str, Any], ...]:
        return tuple({key: own, "name": own} for own in offered[key])

    extras = Extras(wires("name"), wires("uri"), wires("uriTemplate"))
    registry = ToolRegistry()
    for name in ("files", "git"):
        registry.register_source(
            SourceEntry(ScriptedSource(name), SourceStatus.READY, extras=extras, plain_names=plain)
        )
    return View.of(registry.state, principal, rules)


async def answers_about_items(view: View) -> bytes:
    shelf, asker = view.prompts_and_resources, Requester(view)
    told: list[object] = [sorted(view.sources), shelf.prompts, shelf.resources, shelf.templates]
    context, runner = asker.context, asker.dispatcher.runner
    for own in "abcdA":
        for uri in (own, f"toolcrib://files/{own}", f"toolcrib://git/{own}"):
            for asking in (
                get_prompt(view, f"git__{own}", None, context, runner=runner),
                read_resource(view, uri, context, runner=runner),
                complete(view, {"ref": {"type": "ref/resource", "uri": uri}}, context, runner=runner),
            ):
                with pytest.raises(ToolcribError) as error:  # these sources have nothing to give
                    await asking
                told.append(error.value.to_wire())
    told += [await asker.ask("list", {}), await asker.ask("expand_tool", {"tool_id": "git.a"})]
    return json.dumps(told, default=repr).encode()


@settings(max_examples=examples(60), deadline=None)
@given(EXTRAS, st.sampled_from(PRINCIPALS), RULES, st.booleans())
def test_hidden_prompts_and_resources_leave_no_trace(
    offered: Mapping[str, list[str]], principal: Principal, rules: Rules, plain: bool
) -> None:
    # Both sources offer the same items, so an item can only be left out if it is hidden in both.
    over_all = view_of_items(offered, principal, rules, plain=plain)
    seen = {
        key: [own for own in owns if any(over_all.access_to_item(source, own) for source in ("files", "git"))]
        for key, owns in offered.items()
    }

    without = view_of_items(seen, principal, rules, plain=plain)
    assert anyio.run(answers_about_items, over_all) == anyio.run(answers_about_items, without)
