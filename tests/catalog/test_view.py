"""What somebody may not see leaves no trace in any answer, count, hint or error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.catalogs import registry_of, tool, view_of

from toolcrib.catalog.access import Access, Rule, Rules, Subject
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.state import SourceEntry, SourceStatus
from toolcrib.catalog.view import Overlay, View
from toolcrib.core.errors import ToolcribError
from toolcrib.core.principal import CallContext, Principal
from toolcrib.core.tools import Tool
from toolcrib.disclosure.cursors import CursorSeal
from toolcrib.disclosure.operations import Operations
from toolcrib.protocol.desk import Desk
from toolcrib.testing.scripted import ScriptedSource

ADA = Principal("ada")
TRACE = f"{7:032x}"
DESK = Desk(Operations(CursorSeal(b"one key for all")))


@dataclass(frozen=True)
class Hide:
    """Hides some ids from everybody: a policy, and what it permits."""

    ids: frozenset[str]

    def permissions(self, principal: Principal) -> Hide:
        return self

    def decide(self, subject: Subject) -> Access:
        return Access.HIDDEN if subject.id in self.ids else Access.CALL


def answer(view: View, operation: str, **arguments: Any) -> dict[str, Any]:
    async def main() -> dict[str, Any]:
        try:
            told = await DESK.perform(view, CallContext(ADA, TRACE), operation, arguments)
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
    """All that can be asked with `tools` in mind, visible or not, as JSON."""
    paths = sorted({path[:depth] for t in tools for path in [(t.source, *t.metadata.category)] for depth in range(4)})
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
@settings(max_examples=40, deadline=None)
@given(TOOLS, st.data())
def test_the_answers_over_a_catalog_with_hidden_tools_are_those_over_the_catalog_without_them(
    tools: list[Tool], data: st.DataObject
) -> None:
    hidden = frozenset(t.id for t in tools if data.draw(st.booleans(), label=f"hide {t.id}"))
    visible = [t for t in tools if t.id not in hidden]

    over_all = everything(View.of(registry_of(*tools).state, ADA, Hide(hidden)), tools)

    assert over_all == everything(View.of(registry_of(*visible).state, ADA), tools)
    assert over_all == everything(View.of(registry_of(*visible).state, ADA, Hide(frozenset())), tools)


@settings(max_examples=25, deadline=None)
@given(TOOLS, st.sampled_from(SourceStatus), st.data())
def test_a_source_that_fails_tells_nothing_of_hidden_tools_either(
    tools: list[Tool], status: SourceStatus, data: st.DataObject
) -> None:
    hidden = frozenset(t.id for t in tools if data.draw(st.booleans(), label=f"hide {t.id}"))

    def over(offered: list[Tool]) -> bytes:
        registry = ToolRegistry()
        for name in sorted({t.source for t in tools}):
            entry = SourceEntry(ScriptedSource(name), status, reason="it exited")
            registry.put_source(entry, [t for t in offered if t.source == name])
        return everything(View.of(registry.state, ADA, Hide(hidden)), tools)

    assert over(tools) == over([t for t in tools if t.id not in hidden])


@settings(max_examples=25, deadline=None)
@given(TOOLS, st.data())
def test_tools_of_a_session_are_found_as_if_the_catalog_held_them(tools: list[Tool], data: st.DataObject) -> None:
    session = {t.id: t for t in tools if data.draw(st.booleans(), label=f"{t.id} is of the session")}
    hidden = frozenset(t.id for t in tools if data.draw(st.booleans(), label=f"hide {t.id}"))
    whole = registry_of(*tools).state
    rest = registry_of(*tools)
    for tool_id, own in session.items():  # the catalog has another of the same id, or none
        if data.draw(st.booleans(), label=f"the catalog has its own {tool_id}"):
            rest.replace(replace(own, description="In the shadow of another read"))
        else:
            rest.unregister(tool_id)

    over_both = everything(View.of(rest.state, ADA, Hide(hidden), overlay=Overlay(session)), tools)

    assert over_both == everything(View.of(whole, ADA, Hide(hidden)), tools)


def test_a_tool_of_the_session_stands_in_the_place_of_the_catalogs() -> None:
    own = tool("git.commit", "Only in this editor")
    state = registry_of(tool("git.commit", "Record changes"), tool("git.log")).state
    view = View.of(state, overlay=Overlay({own.id: own}))

    assert view.find("git.commit") is own
    assert view.find("git__commit") is own
    assert view.search("record", limit=5).total == 0
    assert [hit.tool_id for hit in view.search("editor", limit=5).hits] == ["git.commit"]
    assert view.ontology.root.count == 2


def test_what_policy_hides_of_the_session_is_hidden() -> None:
    own = tool("editor.open", "Open a file")
    view = View.of(registry_of().state, ADA, Hide(frozenset({own.id})), Overlay({own.id: own}))

    assert view.find(own.id) is None
    assert view.search("open", limit=5).total == 0
    assert view.ontology.root.count == 0
    assert view.ontology.nodes == {}


def test_one_principal_sees_what_another_does_not() -> None:
    only_grace = Rules((Rule(Access.CALL, principals=("grace",)),), Access.HIDDEN)
    state = registry_of(tool("git.commit")).state

    assert View.of(state, Principal("grace"), only_grace).find("git.commit") is not None
    assert View.of(state, ADA, only_grace).find("git.commit") is None
    assert View.of(state, ADA, only_grace).sources == {}


def test_a_tool_that_may_only_be_seen_is_found_and_not_callable() -> None:
    view = View.of(registry_of(tool("git.commit", "Record")).state, ADA, Rules((), Access.SEE))
    found = view.find("git.commit")

    assert found is not None
    assert view.access_to(found) is Access.SEE
    assert view.search("record", limit=1).total == 1


def test_a_name_taken_only_among_hidden_tools_is_free() -> None:
    state = registry_of(tool("git.log"), tool("git.LOG")).state

    assert View.of(state, ADA).find("git__log") is None
    assert View.of(state, ADA, Hide(frozenset({"git.LOG"}))).find("git__log") == tool("git.log")


def test_two_views_have_one_fingerprint_exactly_when_their_tools_are_the_same() -> None:
    one, other = view_of(tool("a.x"), tool("b.y")), view_of(tool("b.y"), tool("a.x"))
    hidden = View.of(registry_of(tool("a.x"), tool("b.y"), tool("c.z")).state, ADA, Hide(frozenset({"c.z"})))

    assert one.fingerprint == other.fingerprint == hidden.fingerprint
    assert one.fingerprint != view_of(tool("a.x"), tool("b.y", "Changed")).fingerprint
    assert one.fingerprint != view_of(tool("a.x")).fingerprint
    assert view_of().fingerprint != view_of(tool("a.x")).fingerprint
