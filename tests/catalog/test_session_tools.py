"""Tools that belong to one session, overlaid on what the session sees."""

from __future__ import annotations

from tests.catalogs import registry_of, tool, view_of

from toolcrib.catalog.access import ALLOW_ALL, Access, Rule, Rules
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.session_tools import SessionTools
from toolcrib.catalog.view import Overlay, View
from toolcrib.core.principal import LOCAL, Principal
from toolcrib.core.tools import Tool
from toolcrib.testing.scripted_source import ScriptedSource

PUSH, PULL = tool("git.push", "Send commits away."), tool("git.pull", "Fetch commits.")
MAIL = tool("mail.send", "Send a mail.")
NOTE, MARK = tool("mine.note", "Note something."), tool("mine.mark", "Mark something.")


def put(own: SessionTools, *tools: Tool) -> SourceEntry:
    name = tools[0].source
    entry = SourceEntry(ScriptedSource(name, tools), SourceStatus.READY)
    own.put(entry, tools)
    return entry


def test_a_session_without_tools_of_its_own_uses_the_unchanged_view() -> None:
    view = view_of(PUSH)
    assert SessionTools().on(view) is view


def test_session_tools_are_visible_in_the_session_in_addition_to_the_catalog() -> None:
    own, view = SessionTools(), view_of(PUSH)
    entry = put(own, NOTE)
    seen = own.on(view)
    assert {*seen.tools} == {"git.push", "mine.note"}
    assert seen.find("mine.note") == NOTE
    assert {*seen.names} == {"git.push", "mine.note"}
    assert seen.sources["mine"] is entry
    assert {*view.tools} == {"git.push"}, "views outside of the session do not change"


def test_new_tools_of_a_session_source_replace_its_earlier_tools() -> None:
    own, view = SessionTools(), view_of(PUSH)
    put(own, tool("yours.do"))
    put(own, NOTE)
    put(own, NOTE, MARK)
    assert {*own.on(view).tools} == {"git.push", "yours.do", "mine.note", "mine.mark"}
    put(own, MARK)
    assert {*own.on(view).tools} == {"git.push", "yours.do", "mine.mark"}


def test_session_tools_stay_visible_when_the_catalog_changes() -> None:
    own, registry = SessionTools(), registry_of(PUSH)
    put(own, NOTE)
    assert {*own.on(View.of(registry.state, LOCAL)).tools} == {"git.push", "mine.note"}
    registry.register(PULL)
    assert {*own.on(View.of(registry.state, LOCAL)).tools} == {"git.push", "git.pull", "mine.note"}


def test_the_overlaid_view_is_cached_until_session_tools_change() -> None:
    own, view = SessionTools(), view_of(PUSH)
    put(own, NOTE)
    first = own.on(view)
    assert own.on(view).visible is first.visible
    put(own, NOTE, MARK)
    assert own.on(view).visible is not first.visible


def test_the_policy_applies_to_session_tools() -> None:
    own, registry = SessionTools(), registry_of(PUSH)
    put(own, NOTE, MARK)
    rules = Rules((Rule(Access.HIDDEN, tools=("mine.note",)), Rule(Access.SEE, tools=("mine.mark",))), Access.CALL)
    guest = Principal("guest")
    seen = own.on(View.of(registry.state, guest, rules))
    assert {*seen.tools} == {"git.push", "mine.mark"}
    assert seen.find("mine.note") is None
    assert seen.access_to(MARK) is Access.SEE


def test_a_session_source_replaces_a_catalog_source_with_the_same_name() -> None:
    own, view = SessionTools(), view_of(PUSH)
    entry = put(own, tool("git.push", "Push somebody."))
    assert own.on(view).tools["git.push"].description == "Push somebody."
    assert own.on(view).sources["git"] is entry


def test_session_tools_are_visible_in_addition_to_the_tools_of_the_principal() -> None:
    own, registry = SessionTools(), registry_of(PUSH)
    entry = put(own, NOTE)
    mail = SourceEntry(ScriptedSource("mail", [MAIL]), SourceStatus.READY)
    view = View.of(registry.state, LOCAL, ALLOW_ALL, Overlay({MAIL.id: MAIL}, {"mail": mail}))
    seen = own.on(view)
    assert {*seen.tools} == {"git.push", "mail.send", "mine.note"}
    assert (seen.sources["mail"], seen.sources["mine"]) == (mail, entry)
    assert {*view.tools} == {"git.push", "mail.send"}
