"""The law of the hidden: over a catalog with hidden tools, every answer is the one over the catalog without them.

Under any rules, for any principal, in any categories, for every operation with all that it takes; byte by byte, and in
what is recorded of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.catalog.strategies import PRINCIPALS, RULES, SET_UP, SOURCES, TAGS, many_tools, tools

from toolcrib.calling import complete, get_prompt, read_resource
from toolcrib.catalog.access import Rules
from toolcrib.catalog.categories import Categories, Category
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.state import SourceEntry, SourceStatus
from toolcrib.catalog.view import View
from toolcrib.core.errors import ToolcribError
from toolcrib.core.events import OperationPerformed
from toolcrib.core.principal import CallContext, Principal
from toolcrib.core.tools import Tool
from toolcrib.disclosure.cursors import CursorSeal
from toolcrib.disclosure.operations import Operations
from toolcrib.protocol.desk import Desk
from toolcrib.sources.base import Extras
from toolcrib.testing.scripted import ScriptedSource

Request = tuple[str, Mapping[str, Any]]

TRACE = f"{7:032x}"


@dataclass
class Asker:
    """Asks one view, and remembers every answer, and what was recorded of it."""

    view: View
    answers: list[Any] = field(default_factory=list[Any])

    def __post_init__(self) -> None:
        self.desk = Desk(Operations(CursorSeal(b"one key for all")), recorders=[self._record])

    def _record(self, event: OperationPerformed) -> None:
        told = (event.operation, event.outcome, event.answer_bytes, event.query, event.path, event.tool_ids)
        self.answers.append([*told, event.input_schema, event.trace_id])

    async def ask(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            answer = (await self.desk.perform(self.view, self.context, name, arguments)).to_wire()
        except ToolcribError as error:
            answer = error.to_wire()
        self.answers.append(answer)
        return dict(answer)

    async def walk(self, name: str, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        """All pages; the cursor of each is tried on other requests as well."""
        pages = [await self.ask(name, arguments)]
        while cursor := pages[-1].get("next_cursor"):
            await self.ask("list", {"cursor": cursor})
            await self.ask("search_tools", {"query": "shared", "cursor": cursor})
            pages.append(await self.ask(name, {**arguments, "cursor": cursor}))
        return pages

    async def walk_down(self) -> None:
        """Every page of every node that is shown, groups included, from the top."""
        waiting, seen = [()], {()}
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
    """What somebody asks who has all of `known` in mind, visible or not."""
    known = [*known]
    for each in known:
        handle, name = each.handle, f"{each.source}__{each.name}"
        for reference in (each.id, f"{each.id}x", handle, name, f"{handle}.{5:x}"):
            yield "expand_tool", {"tool_id": reference}
            yield "call_tool", {"tool_id": reference, "arguments": {}}
        yield "call_read_only_tool", {"tool_id": handle, "arguments": {}}
        yield "call_tool", {"tool_id": handle, "arguments": {"path": 5}}
        yield "call_tool", {"tool_id": handle, "Path": "."}
        path = [each.source, *each.metadata.category]
        yield "list", {"path": [*path, each.name]}
        yield "search_tool_by_category", {"query": each.name, "category_path": path}
    yield "expand_tool", {"tool_ids": [each.id for each in known[:10]] or ["x"]}


PATHS = st.lists(
    st.sampled_from([*SOURCES, "read", "deep", "code", "lint", "quality", "team", "FILE", "invoice"]), max_size=3
)
QUERIES = st.sampled_from(
    ["", " ", "shared", "read file", "file", "beta", "change invoice", "code", "y", "nothing", "a"]
)
OPTIONS: Mapping[str, st.SearchStrategy[Any]] = {
    "tags": st.lists(st.sampled_from([*TAGS, "none"]), max_size=2),
    "limit": st.integers(1, 7),
    "cursor": st.sampled_from(["", "AAAA"]),
}
REQUESTS: st.SearchStrategy[list[Request]] = st.lists(
    st.one_of(
        st.tuples(st.just("list"), st.fixed_dictionaries({}, optional={**OPTIONS, "path": PATHS, "query": QUERIES})),
        st.tuples(
            st.just("search_tools"),
            st.fixed_dictionaries(
                {"query": QUERIES},
                optional={
                    **OPTIONS,
                    "category": PATHS,
                    "detail_level": st.sampled_from(["name", "summary", "full"]),
                    "include_unavailable": st.booleans(),
                },
            ),
        ),
        st.tuples(
            st.just("search_tool_by_category"),
            st.fixed_dictionaries(
                {"query": QUERIES, "category_path": PATHS},
                optional={"limit": OPTIONS["limit"], "cursor": OPTIONS["cursor"]},
            ),
        ),
        st.tuples(
            st.just("search_nodes"), st.fixed_dictionaries({"query": QUERIES}, optional={"limit": OPTIONS["limit"]})
        ),
    ),
    min_size=1,
    max_size=12,
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


def view_of(
    offered: Iterable[Tool],
    entries: Mapping[str, SourceEntry],
    categories: list[Category],
    rules: Rules,
    principal: Principal,
) -> View:
    registry = ToolRegistry()
    registry.set_categories(Categories(categories))
    offered = [*offered]
    for name, entry in entries.items():
        mine = [each for each in offered if each.source == name]
        source = ScriptedSource(name, mine)
        source.failure = None
        registry.put_source(replace(entry, source=source), mine)
    return View.of(registry.state, principal, rules)


async def everything(view: View, asked: Iterable[Request]) -> bytes:
    asker = Asker(view)
    await asker.walk_down()
    for name, arguments in asked:
        await asker.walk(name, arguments)
    return json.dumps([*asker.answers, view.fingerprint, sorted(view.sources), dict(view.names)]).encode()


@settings(max_examples=120, deadline=None)
@given(tools() | many_tools(), ENTRIES, SET_UP, RULES, st.sampled_from(PRINCIPALS), REQUESTS)
def test_what_the_rules_hide_leaves_no_trace_in_any_answer(
    known: list[Tool],
    entries: Mapping[str, SourceEntry],
    categories: list[Category],
    rules: Rules,
    principal: Principal,
    more: list[Request],
) -> None:
    over_all = view_of(known, entries, categories, rules, principal)
    without = view_of(over_all.tools.values(), entries, categories, rules, principal)
    assume(len(over_all.tools) < len(known))
    asked = [*more, *requests(known)]

    assert anyio.run(everything, over_all, asked) == anyio.run(everything, without, asked)


@settings(max_examples=30, deadline=None)
@given(tools(), ENTRIES, SET_UP, RULES, st.sampled_from(PRINCIPALS), REQUESTS, st.randoms())
def test_the_order_in_which_tools_came_shows_in_no_answer(
    known: list[Tool],
    entries: Mapping[str, SourceEntry],
    categories: list[Category],
    rules: Rules,
    principal: Principal,
    more: list[Request],
    random: Any,
) -> None:
    shuffled = random.sample(known, len(known))
    one = view_of(known, entries, categories, rules, principal)
    other = view_of(shuffled, entries, categories, rules, principal)

    assert anyio.run(everything, one, more) == anyio.run(everything, other, more)


NAMES = st.lists(st.sampled_from("abcdA"), unique=True).map(tuple)


@settings(max_examples=100, deadline=None)
@given(NAMES, NAMES, NAMES, st.booleans(), RULES, st.sampled_from(PRINCIPALS))
def test_prompts_and_resources_that_the_rules_hide_leave_no_trace_either(
    prompts: tuple[str, ...],
    resources: tuple[str, ...],
    templates: tuple[str, ...],
    plain: bool,
    rules: Rules,
    principal: Principal,
) -> None:
    async def over(extras: Extras) -> bytes:
        registry = ToolRegistry()
        for name in ("files", "git"):
            source = ScriptedSource(name)
            registry.put_source(SourceEntry(source, SourceStatus.READY, extras=extras, plain_names=plain))
        view = View.of(registry.state, principal, rules)
        shelf = view.shelf
        told: list[object] = [sorted(view.sources), [*shelf.prompts], [*shelf.resources], [*shelf.templates]]
        asker = Asker(view)
        context, runner = asker.context, asker.desk.runner
        for own in "abcdA":
            for source in ("files", "git"):
                uri = f"toolcrib://{source}/{own}"
                for asking in (
                    get_prompt(view, f"{source}__{own}", None, context, runner=runner),
                    read_resource(view, uri, context, runner=runner),
                    read_resource(view, own, context, runner=runner),
                    complete(view, {"ref": {"type": "ref/resource", "uri": uri}}, context, runner=runner),
                ):
                    try:
                        await asking
                    except ToolcribError as error:
                        told.append(error.to_wire())
        told += [await asker.ask("list", {}), await asker.ask("expand_tool", {"tool_id": "git.a"})]
        return json.dumps(told).encode()

    def offered(seen: View | None) -> Extras:
        def kept(names: tuple[str, ...], key: str) -> tuple[Mapping[str, Any], ...]:
            return tuple({key: name, "name": name} for name in names if seen is None or seen_in_all(seen, name))

        return Extras(kept(prompts, "name"), kept(resources, "uri"), kept(templates, "uriTemplate"))

    def seen_in_all(view: View, own: str) -> bool:
        return any(view.access_to_item(source, own) > 0 for source in ("files", "git"))

    registry = ToolRegistry()
    for name in ("files", "git"):
        registry.put_source(SourceEntry(ScriptedSource(name), SourceStatus.READY))
    view = View.of(registry.state, principal, rules)

    assert anyio.run(over, offered(None)) == anyio.run(over, offered(view))
