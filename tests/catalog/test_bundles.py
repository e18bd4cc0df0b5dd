"""Bundles: which tools they contain, how they restrict a catalog, and how missing tools are reported."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import anyio
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.catalog.test_hidden import WORLDS, World, answers_about_items, everything, requests, view_of_items
from tests.catalogs import registry_of, tool, view_of
from tests.examples import examples
from tests.operations.calling.test_approver import saying_after

from toolcrib import BLOG_AGENT, CODE_AGENT, ToolBundle, Toolcrib
from toolcrib.catalog.access import ALLOW_ALL, Access, Rule, Rules, something_of
from toolcrib.catalog.bundles import Absence, Bundles, Contents, Resolution
from toolcrib.catalog.capabilities import Findings
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.view import View, Visible
from toolcrib.catalog.view_cache import ViewCache
from toolcrib.core.errors import (
    BundleIncomplete,
    ErrorCode,
    InvalidConfig,
    InvalidCursor,
    SourceUnavailable,
    ToolNotFound,
    UnknownBundle,
)
from toolcrib.core.metadata import ToolMetadata
from toolcrib.core.principal import LOCAL, CallContext, Principal
from toolcrib.core.tools import Tool
from toolcrib.testing.scripted_source import ScriptedSource

ADA, EVE = Principal("ada"), Principal("eve")

HIDES_PUSH = Rules((Rule(Access.HIDDEN, tools=("git.push",)),), Access.CALL)


def held(bundle: ToolBundle, *tools: Tool) -> set[str]:
    """Ids of the tools that the bundle shows."""
    contents = Bundles([bundle]).contents(bundle.name)
    return {*View(Visible(registry_of(*tools).state, contents.around(ALLOW_ALL.permissions(LOCAL)))).tools}


def known_as(tool_id: str, *aliases: str, **more: Any) -> Tool:
    return replace(tool(tool_id), metadata=ToolMetadata(aliases=aliases, **more))


# -- contents ---------------------------------------------------------------------------------------------------------


def test_an_entry_matches_tools_by_id_pattern_name_or_alias() -> None:
    tools = (known_as("git.log"), known_as("git.push"), known_as("hg.log"), known_as("svn.show", "history"))

    assert held(ToolBundle("b", required=("git.log",)), *tools) == {"git.log"}
    assert held(ToolBundle("b", optional=("git.*",)), *tools) == {"git.log", "git.push"}
    assert held(ToolBundle("b", optional=("*.[lp]*",)), *tools) == {"git.log", "git.push", "hg.log"}
    assert held(ToolBundle("b", required=("log",), optional=("history",)), *tools) == {"git.log", "hg.log", "svn.show"}
    assert held(ToolBundle("b", optional=("Log", "git", "lo", "git.lo")), *tools) == set()


def test_an_empty_bundle_shows_no_tools_and_lacks_none() -> None:
    crib = crib_of(tool("git.log"))
    crib.add_bundle(ToolBundle("none"))
    session = crib.session(bundle="none")

    assert dict(session.view().tools) == {}
    assert session.list().to_wire()["nodes"] == []
    assert session.resolve() == Resolution("none", (), (), (), ())


def test_a_bundle_contains_the_entries_of_all_included_bundles() -> None:
    bundles = Bundles(
        [
            ToolBundle("all", optional=("web.fetch",), includes=("both",)),
            ToolBundle("both", includes=("one", "other")),
            ToolBundle("one", required=("git.log",)),
            ToolBundle("other", required=("web.fetch",), optional=("git.log", "git.*")),
        ]
    )

    assert bundles.contents("all") == Contents(required=("git.log", "web.fetch"), optional=("git.*",))


@pytest.mark.parametrize(
    ("bundles", "problem"),
    [
        ([ToolBundle("a", includes=("a",))], r"include itself: a > a$"),
        (
            [
                ToolBundle("start", includes=("a",)),
                ToolBundle("a", includes=("b",)),
                ToolBundle("b", includes=("c",)),
                ToolBundle("c", includes=("a",)),
            ],
            r"include itself: a > b > c > a$",
        ),
        ([ToolBundle("coding"), ToolBundle("a", includes=("codin",))], r"`codin` .*mean `coding`"),
        ([ToolBundle("a"), ToolBundle("a")], r"duplicate bundle name `a`"),
    ],
)
def test_invalid_bundle_definitions_are_refused(bundles: list[ToolBundle], problem: str) -> None:
    with pytest.raises(InvalidConfig, match=problem):
        Bundles(bundles)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a.b", "ä", "a\n"])
def test_a_bundle_name_that_is_not_valid_in_a_url_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfig, match="is not a valid bundle name"):
        ToolBundle(name)


def test_a_blank_entry_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="an entry must be a tool id"):
        ToolBundle("a", required=(" ",))


def test_an_unknown_bundle_is_an_error_that_suggests_the_closest_name() -> None:
    bundles = Bundles([CODE_AGENT, BLOG_AGENT])
    with pytest.raises(UnknownBundle) as error:
        bundles.contents("code-agents")
    assert error.value.code is ErrorCode.NOT_FOUND
    assert error.value.hints == ("Did you mean `code_agent`?",)
    with pytest.raises(UnknownBundle) as error:
        _ = bundles["xyz"]
    assert error.value.hints == ("Known bundles: `blog_agent`, `code_agent`",)


# -- a catalog restricted to a bundle ---------------------------------------------------------------------------------

ENTRIES = st.lists(
    st.sampled_from(
        [
            "a",
            "b",
            "B",
            "nick",
            "invoice1",
            "git.*",
            "files.a",
            "[Ff]iles.?",
            "*.c",
            "git.invoice*",
            "g?t.[a-c]",
            "no.*",
        ]
    ),
    max_size=3,
    unique=True,
).map(tuple)

CONTENTS = st.builds(Contents, ENTRIES, ENTRIES)


@st.composite
def with_aliases(draw: st.DrawFn) -> World:
    world = draw(WORLDS)
    known = draw(st.lists(st.sampled_from(world.tools), max_size=2) if world.tools else st.just(list[Tool]()))
    named = [
        replace(each, metadata=replace(each.metadata, aliases=("nick",))) if each in known else each
        for each in world.tools
    ]
    return replace(world, tools=named)


def within(view: View, contents: Contents) -> View:
    visible = view.visible
    return View(Visible(visible.state, contents.around(visible.permissions)), view.principal)


def is_meant(entry: str, each: Tool) -> bool:
    """Whether `entry` matches the tool, as the docstring of `ToolBundle` defines it."""
    if entry.isalnum():
        return entry in (each.name, *each.metadata.aliases)
    return fnmatchcase(each.id, entry)


@settings(max_examples=examples(150), deadline=None)
@given(with_aliases(), CONTENTS)
def test_answers_within_a_bundle_equal_answers_over_a_catalog_with_only_its_tools(
    world: World, contents: Contents
) -> None:
    entries = (*contents.required, *contents.optional)
    mine = [each for each in world.tools if any(is_meant(entry, each) for entry in entries)]
    assume(len(mine) < len(world.tools))
    others = [each for each in world.tools if each not in mine]
    asked = [*world.requests, *requests([*others[:3], *mine[:3]])]

    inside = within(world.view(world.tools), contents)
    alone = replace(world, entries={name: entry for name, entry in world.entries.items() if name in inside.sources})

    assert anyio.run(everything, inside, asked) == anyio.run(everything, alone.view(mine), asked)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.sampled_from(["a", "b", ".", "*", "?", "[ab]", "[!a]"]), min_size=1, max_size=6).map("".join),
    st.sampled_from(["a", "ab", "ba"]),
)
def test_a_source_without_tools_is_visible_if_an_entry_could_match_it(entry: str, source: str) -> None:
    assume("." in entry or not entry.isalpha())
    names = ("".join(letters) for length in range(6) for letters in itertools.product("ab.", repeat=length))
    could = any(fnmatchcase(f"{source}.{name}", entry) for name in names)

    assert Contents(optional=(entry,)).holds(something_of(source)) == could


def test_an_entry_that_is_a_plain_name_could_match_any_source() -> None:
    assert Contents(required=("log",)).holds(something_of("git"))
    assert not Contents().holds(something_of("git"))


OFFERED = st.fixed_dictionaries(
    dict.fromkeys(("name", "uri", "uriTemplate"), st.lists(st.sampled_from("abcdA"), unique=True))
)


@settings(max_examples=examples(60), deadline=None)
@given(OFFERED, st.lists(st.sampled_from(["a", "A", "*.[b-d]", "*.a"]), max_size=3).map(tuple), st.booleans())
def test_a_bundle_matches_prompts_and_resources_by_name_or_id(
    offered: Mapping[str, list[str]], entries: tuple[str, ...], plain: bool
) -> None:
    rules = Rules((), Access.CALL)

    def is_held(own: str) -> bool:
        return any(own == entry or fnmatchcase(f"git.{own}", entry) for entry in entries)

    inside = within(view_of_items(offered, LOCAL, rules, plain=plain), Contents(optional=entries))
    only = {key: [own for own in owns if is_held(own)] for key, owns in offered.items()}
    alone = view_of_items(only, LOCAL, rules, plain=plain)
    assume({*inside.sources} == {*alone.sources})

    assert {key: [*items] for key, items in _items_of(inside).items()} == {k: [*i] for k, i in _items_of(alone).items()}
    if {*offered["uri"]} | {*offered["name"]} <= {own for own in "abcdA" if is_held(own)}:
        assert anyio.run(answers_about_items, inside)


def _items_of(view: View) -> dict[str, Mapping[str, object]]:
    return {
        "prompts": view.prompts_and_resources.prompts,
        "resources": view.prompts_and_resources.resources,
        "templates": view.prompts_and_resources.templates,
    }


def test_equal_permissions_and_equal_bundles_share_one_set_of_visible_tools() -> None:
    views = ViewCache(registry_of(tool("git.log"), tool("git.push")), HIDES_PUSH)
    one, same, other = (Bundles([ToolBundle(name, optional=("git.*",))]).contents(name) for name in ("a", "b", "c"))

    assert views.of(ADA, within=(one,)).visible is views.of(EVE, within=(same,)).visible
    assert views.of(ADA, within=(one,)) is views.of(ADA, within=(other,))
    assert {*views.of(ADA, within=(one,)).tools} == {"git.log"}
    assert views.of(ADA, within=(one,)).visible is not views.of(ADA).visible
    assert {*views.of(ADA, within=(one, Contents())).tools} == set()


# -- present and missing tools ----------------------------------------------------------------------------------------


def look(bundle: ToolBundle, view: View, whole: View | None = None) -> Resolution:
    return Bundles([bundle]).contents(bundle.name).resolve(bundle.name, view, whole)


def incomplete(resolution: Resolution) -> BundleIncomplete:
    with pytest.raises(BundleIncomplete) as error:
        resolution.check()
    return error.value


def test_a_complete_bundle_resolves_its_tools_by_id_without_error() -> None:
    view = view_of(tool("git.push"), tool("git.log"), tool("web.fetch"), tool("web.post"))
    found = look(ToolBundle("b", required=("git.*",), optional=("fetch", "git.log", "telnet")), view)

    found.check()
    assert [each.id for each in found.required] == ["git.log", "git.push"]
    assert [each.id for each in found.optional] == ["web.fetch"]
    assert [each.entry for each in found.absent] == ["telnet"]


def test_one_error_lists_every_missing_entry_with_its_reason() -> None:
    registry = registry_of(tool("git.log"), known_as("vm.start", requires_capabilities=("kvm",)))
    registry.set_findings(Findings(lacking={"kvm": "No virtual machines here."}))
    down = SourceEntry(ScriptedSource("web"), SourceStatus.FAILED, reason="It exited.", diagnosis="/secret")
    registry.register_source(down)
    bundle = ToolBundle("b", required=("git.log", "git.push", "web.*", "start", "nothing-*.x"))
    error = incomplete(look(bundle, View.of(registry.state)))

    assert error.code is ErrorCode.BUNDLE_INCOMPLETE
    assert error.details["missing"] == [
        {"entry": "git.push", "absence": "unknown", "why": "not found"},
        {"entry": "web.*", "absence": "unavailable", "why": "`web` is unavailable: It exited"},
        {"entry": "start", "absence": "unavailable", "why": "It needs `kvm`: No virtual machines here"},
        {"entry": "nothing-*.x", "absence": "unknown", "why": "not found"},
    ]
    for told in ("`b`", "`git.push`: not found", "`web.*`: `web` is unavailable", "`start`: It needs `kvm`"):
        assert told in error.message
    assert "git.log" not in str(error.to_wire())
    assert "/secret" not in str(error.to_wire())


def test_a_misspelt_entry_suggests_the_closest_tool_unless_it_is_hidden() -> None:
    registry = registry_of(tool("time.get_current_time"), tool("git.log"))
    bundle = ToolBundle("b", required=("time.get_curent_time",))
    meant = "not found (did you mean `time.get_current_time`?)"

    (shown,) = look(bundle, View.of(registry.state)).missing
    hidden_by = Rules((Rule(Access.HIDDEN, tools=("time.*",)),), Access.CALL)
    (hidden,) = look(bundle, View.of(registry.state, policy=hidden_by), View.of(registry.state)).missing

    assert (shown.why, shown.diagnosis) == (meant, meant)
    assert (hidden.why, hidden.diagnosis) == ("not found", meant)


def test_a_tool_of_a_failed_source_is_missing_unless_others_have_its_name() -> None:
    registry = registry_of(tool("git.log"), tool("hg.log"))
    lost = replace(registry.state.sources["git"], status=SourceStatus.FAILED, reason="Gone.", is_lasting=True)
    registry.register_source(lost)
    view = View.of(registry.state)

    found = look(ToolBundle("b", required=("git.log", "log")), view)
    assert [(each.entry, each.absence) for each in found.missing] == [("git.log", Absence.UNAVAILABLE)]
    assert [each.id for each in found.required] == ["hg.log"]


@pytest.mark.parametrize("entry", ["slow.log", "slow.*", "s*", "log"])
def test_a_tool_of_a_starting_source_is_reported_as_starting_and_retryable(entry: str) -> None:
    registry = registry_of(tool("git.push"))
    registry.register_source(SourceEntry(ScriptedSource("slow")))
    error = incomplete(look(ToolBundle("b", required=(entry,)), View.of(registry.state)))

    assert error.retryable
    assert error.details["missing"] == [{"entry": entry, "absence": "starting", "why": "still starting: `slow`"}]
    error = incomplete(look(ToolBundle("b", required=(entry, "git.log")), View.of(registry.state)))
    assert not error.retryable, "`git.log` will not become available by itself"


def test_an_unknown_name_is_reported_with_the_unavailable_sources() -> None:
    registry = registry_of(tool("git.push"))
    registry.register_source(SourceEntry(ScriptedSource("web"), SourceStatus.FAILED, reason="It exited."))
    (missing,) = look(ToolBundle("b", required=("log",)), View.of(registry.state)).missing

    assert missing.absence is Absence.UNKNOWN
    assert missing.why == "not found, but some sources are unavailable: `web` is unavailable: It exited"


@pytest.mark.parametrize("entry", ["git.push", "git.p*", "push", "away"])
def test_a_hidden_tool_reads_as_unknown_except_in_the_diagnosis(entry: str) -> None:
    bundle = ToolBundle("b", required=(entry,))
    push, log = known_as("git.push", "away"), tool("git.log")
    hides = Rules((Rule(Access.HIDDEN, tools=("git.push",)),), Access.CALL)

    def told(*tools: Tool) -> BundleIncomplete:
        state = registry_of(*tools).state
        return incomplete(look(bundle, View.of(state, ADA, hides), View.of(state)))

    hidden, unknown = told(push, log), told(log)
    assert hidden.to_wire() == unknown.to_wire()
    assert str(hidden) == str(unknown)
    assert unknown.diagnosis == f"`{entry}`: not found"
    assert hidden.diagnosis == f"`{entry}`: hidden from `ada`"


def test_a_hidden_source_is_not_mentioned_when_it_fails_or_starts() -> None:
    hides = Rules((Rule(Access.HIDDEN, sources=("web", "slow")),), Access.CALL)
    registry = registry_of(tool("git.log"))
    registry.register_source(SourceEntry(ScriptedSource("web"), SourceStatus.FAILED, reason="It exited."))
    registry.register_source(SourceEntry(ScriptedSource("slow")))
    state = registry.state
    error = incomplete(look(ToolBundle("b", required=("web.get", "x")), View.of(state, ADA, hides), View.of(state)))

    assert [each["why"] for each in error.details["missing"]] == ["not found", "not found"]
    assert not error.retryable
    assert error.diagnosis == "`web.get`: `web` is unavailable: It exited; `x`: still starting: `slow`"


# -- sessions ---------------------------------------------------------------------------------------------------------


def crib_of(*tools: Tool, **more: Any) -> Toolcrib:
    crib = Toolcrib(**more)
    for name in dict.fromkeys(each.source for each in tools):
        mine = [each for each in tools if each.source == name]
        crib.registry.register_source(SourceEntry(ScriptedSource(name, mine), SourceStatus.READY), mine)
    return crib


@pytest.mark.anyio
async def test_a_session_with_a_bundle_only_gives_access_to_tools_of_the_bundle() -> None:
    crib = crib_of(tool("git.log", "Show commits."), tool("git.push", "Send commits."), tool("web.get", "Fetch it."))
    crib.add_bundle(ToolBundle("history", required=("log",)))
    session = crib.session(bundle="history", principal=ADA)

    assert [(node.node.name, node.tool_count) for node in session.list().nodes] == [("git", 1)]
    assert [each.tool_id for each in session.search_tools("commits").results] == ["git.log"]
    assert "git.log" in session.describe().text
    assert "push" not in session.describe().text
    handle = session.expand_tool("git.log").handle
    assert (await session.call_tool(handle, {"n": 1})).structured_content == {"n": 1}
    assert [each.id for each in session.resolve().required] == ["git.log"]

    outside = crib.expand_tool("git.push").handle
    for attempt in ("git.push", outside):
        with pytest.raises(ToolNotFound) as error:
            session.expand_tool(attempt)
        assert "push`" not in str(error.value.hints)
    with pytest.raises(ToolNotFound):
        await session.call_tool(outside, {})
    with pytest.raises(ToolNotFound):
        await session.perform("call_tool", {"tool_id": outside})
    assert "git.push" in crib.view(ADA).tools


def test_a_session_without_a_bundle_is_unrestricted_and_an_unknown_one_is_refused() -> None:
    crib = crib_of(tool("git.log"))
    crib.add_bundle(ToolBundle("history"))

    assert {*crib.session().view().tools} == {"git.log"}
    for ask in (
        lambda: crib.session(bundle="histori"),
        lambda: crib.list(context=CallContext(bundle="histori")),
        lambda: crib.view(LOCAL, "histori"),
        lambda: crib.resolve("histori"),
        lambda: crib.confine("histori"),
    ):
        with pytest.raises(UnknownBundle) as error:
            ask()
        assert error.value.hints == ("Did you mean `history`?",)
    assert dict(crib.peek(LOCAL, "histori").tools) == {}


def test_a_session_reports_required_tools_that_are_hidden_from_its_principal() -> None:
    crib = crib_of(tool("git.log"), tool("git.push"), policy=HIDES_PUSH)
    crib.add_bundle(ToolBundle("all", required=("git.log", "git.push")))

    with pytest.raises(BundleIncomplete) as error:
        crib.session(bundle="all", principal=ADA).resolve()
    assert [each["entry"] for each in error.value.details["missing"]] == ["git.push"]
    assert "hidden from `ada`" in error.value.diagnosis
    assert not crib.resolve("all", None).missing, "without a principal, nothing is hidden"


def test_a_cursor_is_refused_in_a_session_with_a_different_bundle() -> None:
    crib = crib_of(*(tool(f"git.t{number}", "Do it.") for number in range(5)))
    crib.add_bundle(ToolBundle("few", optional=("git.t[0-3]",)))
    cursor = crib.list(("git",), limit=2).next_cursor
    assert cursor is not None

    with pytest.raises(InvalidCursor):
        crib.session(bundle="few").list(("git",), limit=2, cursor=cursor)


def test_a_confined_crib_shows_only_tools_that_both_bundles_contain() -> None:
    crib = crib_of(tool("git.log"), tool("git.push"), tool("web.get"))
    crib.add_bundle(ToolBundle("git", optional=("git.*",)))
    crib.add_bundle(ToolBundle("reading", optional=("log", "get")))
    crib.confine("git")

    assert {*crib.view().tools} == {"git.log", "git.push"}
    assert {*crib.session(bundle="git").view().tools} == {"git.log", "git.push"}
    assert {*crib.session(bundle="reading").view().tools} == {"git.log"}
    assert {each.id for each in crib.resolve("reading").optional} == {"git.log"}


def test_adding_an_invalid_bundle_changes_nothing() -> None:
    crib = Toolcrib()
    crib.add_bundle(CODE_AGENT)
    for wrong in (CODE_AGENT, ToolBundle("mine", includes=("code-agent",))):
        with pytest.raises(InvalidConfig):
            crib.add_bundle(wrong)
    crib.add_bundle(ToolBundle("mine", required=("deploy",), includes=("code_agent",)))
    assert [bundle.name for bundle in crib.bundles] == ["code_agent", "mine"]
    assert crib.bundles.contents("mine").required == ("deploy", *CODE_AGENT.required)


@pytest.mark.anyio
async def test_an_approval_does_not_count_if_the_tool_left_the_bundle_meanwhile() -> None:
    registry = registry_of(tool("git.push", "Send commits.", properties={}))
    crib = Toolcrib(policy=Rules((), Access.ASK))
    crib.registry.merge(registry)
    crib.add_bundle(ToolBundle("work", optional=("send",)))
    aliased = replace(tool("git.push", "Send commits.", properties={}), metadata=ToolMetadata(aliases=("send",)))
    crib.registry.replace(aliased)

    def leaves() -> None:
        crib.registry.replace(tool("git.push", "Send commits.", properties={}))

    context = CallContext(bundle="work", client=saying_after(leaves))
    handle = crib.expand_tool("git.push", context=context).handle
    with pytest.raises(ToolNotFound):
        await crib.call_tool(handle, {}, context=context)
    source = crib.registry.state.sources["git"].source
    assert isinstance(source, ScriptedSource)
    assert source.calls == []


@pytest.mark.anyio
async def test_tools_of_a_failing_source_are_missing_with_the_reason_of_the_failure() -> None:
    crib, source = Toolcrib(), ScriptedSource("git", [tool("git.log")])
    source.failure = SourceUnavailable("No disk.", retryable=True)
    crib.add_source(source)
    crib.add_bundle(ToolBundle("history", required=("git.log",)))
    session = crib.session(bundle="history")

    with pytest.raises(BundleIncomplete, match="starting"):
        session.resolve()
    async with crib:
        await crib.ready()
        with pytest.raises(BundleIncomplete, match="No disk") as error:
            session.resolve()
        assert error.value.retryable


def test_shipped_bundles_are_available_and_an_added_bundle_replaces_one_by_name() -> None:
    crib = Toolcrib()
    crib.add(lambda: "read", name="read", metadata=ToolMetadata(aliases=("file",)))
    assert [*crib.bundles] == []
    assert [tool.id for tool in crib.resolve("code_agent").required] == ["functions.read"]
    crib.add_bundle(ToolBundle("mine", includes=("blog_agent",)))
    assert crib.bundles.contents("mine").optional == BLOG_AGENT.optional
    crib.add_bundle(ToolBundle("code_agent", required=("read",)))
    assert crib.bundles.contents("code_agent").required == ("read",)
