"""Views: a hidden tool leaves no trace in any answer, count, hint or error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.catalogs import registry_of, tool, view_of
from tests.examples import examples

from toolcrib.catalog.access import Access, Everything, Rule, Rules, Subject
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.categories import Categories, Category
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.view import Overlay, View, Visible
from toolcrib.catalog.view_cache import ViewCache
from toolcrib.core.errors import ToolcribError
from toolcrib.core.principal import CallContext, Principal
from toolcrib.core.tools import Node, Tool
from toolcrib.operations.catalog_operations import Operations
from toolcrib.operations.cursors import CursorSeal
from toolcrib.operations.dispatcher import Dispatcher
from toolcrib.search.index.index import Selection
from toolcrib.search.index.weights import WEIGHTS
from toolcrib.testing.scripted_source import ScriptedSource

ADA = Principal("ada")
TRACE = f"{7:032x}"
DISPATCHER = Dispatcher(Operations(CursorSeal(b"one key for all")))


@dataclass(frozen=True)
class Hide:
    """Hides some ids from every principal: a policy and its permissions in one."""

    ids: frozenset[str]

    def permissions(self, principal: Principal) -> Hide:
        return self

    def decide(self, subject: Subject) -> Access:
        return Access.HIDDEN if subject.id in self.ids else Access.CALL


def answer(view: View, operation: str, **arguments: Any) -> dict[str, Any]:
    async def main() -> dict[str, Any]:
        try:
            told = await DISPATCHER.perform(view, CallContext(ADA, TRACE), operation, arguments)
        except ToolcribError as error:
            return error.to_wire()
        return dict(told.to_wire())

    return anyio.run(main)


def pages(view: View, operation: str, **arguments: Any) -> Iterator[dict[str, Any]]:
    cursor: str | None = None
    while True:
        page = answer(view, operation, cursor=cursor, **arguments)
        yield page
        cursor = page.get("next_cursor")
        if cursor is None:
            return


def everything(view: View, tools: list[Tool]) -> bytes:
    """The answers to all requests about `tools`, visible or not, as JSON."""
    paths = sorted({path[:depth] for t in tools for path in [(t.source, *t.own_path)] for depth in range(4)})
    queries = ["read a file", "shared", "alpha beta", *(t.name for t in tools[:3])]
    told: list[object] = []
    for path in paths:
        told += pages(view, "list", path=list(path), limit=2)
        told += pages(view, "search_tools", query="shared read", category=list(path), limit=2)
        told.append(answer(view, "list", path=[*path, "nowhere"]))
        told.append(answer(view, "list", path=list(path), query="shared", tags=["x"]))
    for query in queries:
        told += pages(view, "search_tools", query=query, limit=1)
    for t in tools:
        plain_name = f"{t.source}__{t.name}"
        for reference in (t.id, f"{t.id}x", t.handle, plain_name, f"{plain_name}@123456789012"):
            told.append(answer(view, "expand_tool", tool_id=reference))
            told.append(answer(view, "call_tool", tool_id=reference))
        told.append(answer(view, "call_tool", tool_id=t.handle, args={"path": "."}))
    told.append(answer(view, "expand_tool", tool_ids=[t.id for t in tools[:5]] or ["x"]))
    return json.dumps(told).encode()


IDS = st.builds("{}.{}".format, st.sampled_from(["files", "Files", "git"]), st.sampled_from("abcdefAB"))
TOOLS = st.lists(
    st.builds(
        tool,
        IDS,
        st.sampled_from(["Read a file", "Write a shared file", "shared alpha", "beta", ""]),
        category=st.sampled_from([(), ("read",), ("Read",), ("read", "deep")]),
        tags=st.sampled_from([(), ("x",)]),
        properties=st.sampled_from([{}, {"path": {"type": "string"}}]),
    ),
    max_size=10,
    unique_by=lambda t: t.id,
)


@pytest.mark.holds("errors.leak-nothing")
@settings(max_examples=examples(40), deadline=None)
@given(TOOLS, st.data())
def test_answers_over_a_catalog_with_hidden_tools_equal_answers_without_them(
    tools: list[Tool], data: st.DataObject
) -> None:
    hidden = frozenset(t.id for t in tools if data.draw(st.booleans(), label=f"hide {t.id}"))
    visible = [t for t in tools if t.id not in hidden]

    over_all = everything(View.of(registry_of(*tools).state, ADA, Hide(hidden)), tools)

    assert over_all == everything(View.of(registry_of(*visible).state, ADA), tools)
    assert over_all == everything(View.of(registry_of(*visible).state, ADA, Hide(frozenset())), tools)


@settings(max_examples=examples(25), deadline=None)
@given(TOOLS, st.sampled_from(SourceStatus), st.data())
def test_a_failing_source_reveals_nothing_about_hidden_tools(
    tools: list[Tool], status: SourceStatus, data: st.DataObject
) -> None:
    hidden = frozenset(t.id for t in tools if data.draw(st.booleans(), label=f"hide {t.id}"))

    def over(offered: list[Tool]) -> bytes:
        registry = ToolRegistry()
        for name in sorted({t.source for t in tools}):
            entry = SourceEntry(ScriptedSource(name), status, reason="it exited")
            registry.register_source(entry, [t for t in offered if t.source == name])
        return everything(View.of(registry.state, ADA, Hide(hidden)), tools)

    assert over(tools) == over([t for t in tools if t.id not in hidden])


@settings(max_examples=examples(25), deadline=None)
@given(TOOLS, st.data())
def test_session_tools_are_found_as_if_they_were_in_the_catalog(tools: list[Tool], data: st.DataObject) -> None:
    session = {t.id: t for t in tools if data.draw(st.booleans(), label=f"{t.id} is of the session")}
    hidden = frozenset(t.id for t in tools if data.draw(st.booleans(), label=f"hide {t.id}"))
    whole = registry_of(*tools).state
    rest = registry_of(*tools)
    for tool_id, own in session.items():  # the catalog has a different tool with the same id, or no such tool
        if data.draw(st.booleans(), label=f"the catalog has its own {tool_id}"):
            rest.replace(replace(own, description="In the shadow of another read"))
        else:
            rest.unregister(tool_id)

    over_both = everything(View.of(rest.state, ADA, Hide(hidden), overlay=Overlay(session)), tools)

    assert over_both == everything(View.of(whole, ADA, Hide(hidden)), tools)


@dataclass(frozen=True)
class Noted(Hide):
    """Records which subjects it decided about."""

    asked: list[str] = field(default_factory=list[str], compare=False)

    def decide(self, subject: Subject) -> Access:
        self.asked.append(subject.id)
        return super().decide(subject)


def test_sessions_share_decisions_about_the_catalog_and_give_the_same_answers() -> None:
    registry = registry_of(*(tool(f"git.t{number}", "Read it.", tags=("x",)) for number in range(20)))
    registry.set_weights(WEIGHTS.without("meaning"))
    permissions = Noted(frozenset({"git.t3", "mine.hidden"}))
    own = {each.id: each for each in (tool("mine.open", "Read a file", tags=("x", "y")), tool("mine.hidden"))}
    overlay = Overlay(own, {"mine": SourceEntry(ScriptedSource("mine"), SourceStatus.READY)})
    base = Visible(registry.state, permissions)
    shared, alone = (Visible(registry.state, permissions, overlay, base=each) for each in (base, None))
    assert len(base.tools) == 19
    permissions.asked.clear()

    assert (len(shared.tools), "mine.open" in shared.tools, "mine.hidden" in shared.tools) == (20, True, False)
    assert dict(shared.tagged) == {"x": base.tagged["x"] | {"mine.open"}, "y": {"mine.open"}}
    assert View(shared, ADA).search("read", limit=50).total == 20
    assert {*permissions.asked} == {*own}

    assert dict(shared.tools) == dict(alone.tools)
    assert (shared.sources, shared.fingerprint) == (alone.sources, alone.fingerprint)
    assert everything(View(shared, ADA), [*own.values()]) == everything(View(alone, ADA), [*own.values()])


def test_principals_with_tools_of_their_own_share_decisions_about_the_catalog() -> None:
    @dataclass(frozen=True)
    class One:
        whose: Noted

        def permissions(self, principal: Principal) -> Noted:
            return self.whose

    noted = Noted(frozenset({"git.t3"}))
    views = ViewCache(registry_of(*(tool(f"git.t{number}") for number in range(20))), One(noted))
    for name in ("ada", "eve", "grace"):
        own = tool(f"own.{name}")
        assert len(views.of(Principal(name), Overlay({own.id: own})).tools) == 20

    assert sorted(noted.asked) == sorted(
        [*(f"git.t{number}" for number in range(20)), "own.ada", "own.eve", "own.grace"]
    )


def test_a_session_without_hidden_tools_makes_no_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Access:
        raise AssertionError("it was decided on")

    monkeypatch.setattr(Everything, "decide", refuse)
    view = View.of(registry_of(tool("git.log", "Read.")).state, overlay=Overlay({"mine.x": tool("mine.x", "Read.")}))

    assert view.search("read", limit=5).total == 2
    assert view.access_to(view.tools["mine.x"]) is Access.CALL
    assert view.ontology.root.count == 2


def test_a_session_tool_replaces_a_catalog_tool_with_the_same_id() -> None:
    own = tool("git.commit", "Only in this editor")
    state = registry_of(tool("git.commit", "Record changes"), tool("git.log")).state
    view = View.of(state, overlay=Overlay({own.id: own}))

    assert view.find("git.commit") is own
    assert view.find("git__commit") is own
    assert view.search("record", limit=5).total == 0
    assert [hit.tool_id for hit in view.search("editor", limit=5).hits] == ["git.commit"]
    assert view.ontology.root.count == 2


def test_a_session_tool_hidden_by_the_policy_is_hidden() -> None:
    own = tool("editor.open", "Open a file")
    view = View.of(registry_of().state, ADA, Hide(frozenset({own.id})), Overlay({own.id: own}))

    assert view.find(own.id) is None
    assert view.search("open", limit=5).total == 0
    assert view.ontology.root.count == 0
    assert view.ontology.nodes == {}


def test_two_principals_can_see_different_tools() -> None:
    only_grace = Rules((Rule(Access.CALL, principals=("grace",)),), Access.HIDDEN)
    state = registry_of(tool("git.commit")).state

    assert View.of(state, Principal("grace"), only_grace).find("git.commit") is not None
    assert View.of(state, ADA, only_grace).find("git.commit") is None
    assert View.of(state, ADA, only_grace).sources == {}


def test_a_tool_with_access_see_is_found_and_not_callable() -> None:
    view = View.of(registry_of(tool("git.commit", "Record")).state, ADA, Rules((), Access.SEE))
    found = view.find("git.commit")

    assert found is not None
    assert view.access_to(found) is Access.SEE
    assert view.search("record", limit=1).total == 1


def test_a_name_used_only_by_hidden_tools_is_available() -> None:
    state = registry_of(tool("git.log"), tool("git.LOG")).state

    assert View.of(state, ADA).find("git__log") is None
    assert View.of(state, ADA, Hide(frozenset({"git.LOG"}))).find("git__log") == tool("git.log")


def test_two_views_have_equal_fingerprints_exactly_if_their_tools_are_equal() -> None:
    one, other = view_of(tool("a.x"), tool("b.y")), view_of(tool("b.y"), tool("a.x"))
    hidden = View.of(registry_of(tool("a.x"), tool("b.y"), tool("c.z")).state, ADA, Hide(frozenset({"c.z"})))

    assert one.fingerprint == other.fingerprint == hidden.fingerprint
    assert one.fingerprint != view_of(tool("a.x"), tool("b.y", "Changed")).fingerprint
    assert one.fingerprint != view_of(tool("a.x")).fingerprint
    assert view_of().fingerprint != view_of(tool("a.x")).fingerprint


def test_a_fingerprint_includes_only_categories_with_visible_tools() -> None:
    registry = registry_of(tool("pay.refund", tags=("late",)), tool("git.log"), tool("git.secret"))
    hide = Hide(frozenset({"pay.refund", "git.secret"}))

    def fingerprint(*categories: Category) -> str:
        registry.set_categories(Categories(categories))
        return View.of(registry.state, ADA, hide).fingerprint

    money = Category(("Money",), summary="Secret", tools=("pay.*",))
    vcs = Category(("vcs",), tools=("git.log",), also_under=(("team",),))
    assert fingerprint() == fingerprint(money)
    assert fingerprint(vcs) == fingerprint(money, vcs) == fingerprint(replace(money, summary="Other"), vcs)
    assert fingerprint(vcs) == fingerprint(replace(vcs, tools=("git.*",)))
    others = [(), (replace(vcs, summary="Other"),), (replace(vcs, also_under=()),), (replace(vcs, path=("hg",)),)]
    team = Category(("team",), summary="Us")
    assert len({fingerprint(vcs), fingerprint(vcs, team), *(fingerprint(*each) for each in others)}) == 6


def test_a_fingerprint_includes_only_described_nodes_with_visible_tools() -> None:
    def fingerprint(*nodes: Node) -> str:
        registry = registry_of(tool("git.log", category=("read",)), tool("git.push", category=("write",)))
        registry.register_source(replace(registry.state.sources["git"], nodes=nodes))
        return View.of(registry.state, ADA, Hide(frozenset({"git.push"}))).fingerprint

    read, write = Node(("git", "read"), summary="Look"), Node(("git", "write"), summary="Change")
    assert fingerprint(read) == fingerprint(read, write) != fingerprint(write) == fingerprint()


def test_a_search_leaves_out_unavailable_tools_without_iterating_over_all_tools(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = registry_of(tool("git.log", "Read.", tags=("x",)), tool("hg.log", "Read.", tags=("x",)), tool("hg.y"))
    registry.register_source(SourceEntry(ScriptedSource("hg"), SourceStatus.FAILED, reason="gone", is_lasting=True))
    hidden = View.of(registry.state, ADA, Hide(frozenset({"git.log"})))
    view = View.of(registry.state, ADA)
    assert view.available is not None
    assert view.available is view.available

    def refuse(_: Selection) -> Iterator[str]:
        raise AssertionError("all ids were iterated")

    monkeypatch.setattr(Selection, "__iter__", refuse)
    assert [hit.tool_id for hit in view.search("read", limit=5, scope=view.available).hits] == ["git.log"]
    assert hidden.search("read", limit=5, scope=hidden.available).total == 0
    assert hidden.search("read", limit=5).total == 1
    for operation in ("search_tools", "search_nodes"):
        assert answer(view, operation, query="read")["results"]


def test_a_search_is_empty_if_no_visible_tool_is_available() -> None:
    registry = registry_of(tool("git.log", "Read."), tool("hg.log", "Read."))
    registry.register_source(SourceEntry(ScriptedSource("hg"), SourceStatus.FAILED, reason="gone", is_lasting=True))
    view = View.of(registry.state, ADA, Hide(frozenset({"git.log"})))

    for query in ("read", ""):
        assert answer(view, "search_tools", query=query)["results"] == []


def test_the_tools_of_each_tag_are_computed_once() -> None:
    view = View.of(registry_of(tool("a.x", tags=("t", "u")), tool("a.y", tags=("t",)), tool("a.z")).state, ADA)

    assert dict(view.tagged) == {"t": {"a.x", "a.y"}, "u": {"a.x"}}
    assert view.tagged is view.tagged
    for tags, found in {("t",): 2, ("t", "u"): 1, ("u", "u"): 1, ("t", "none"): 0, (): 3}.items():
        assert len(answer(view, "search_tools", query="", tags=tags)["results"]) == found
