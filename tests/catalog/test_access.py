"""Access rules: the first matching rule decides, and claims of an untrusted source never loosen the decision."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.catalog.strategies import ANNOTATIONS, PRINCIPALS, RULES, SET_UP, tools
from tests.catalogs import registry_of, tool
from tests.examples import examples

from toolcrib.catalog.access import (
    ALLOW_ALL,
    EVERYTHING,
    HINTS,
    Access,
    Rule,
    Rules,
    Subject,
    may_show,
    something_of,
)
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.categories import Categories, Category
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.view import View, Visible, subject_of
from toolcrib.catalog.view_cache import ViewCache
from toolcrib.core.errors import InvalidConfig, ToolNotFound
from toolcrib.core.principal import LOCAL, Principal
from toolcrib.core.tools import Tool, ToolAnnotations
from toolcrib.operations.catalog_operations import Operations
from toolcrib.sources.base import Extras
from toolcrib.testing.scripted_source import ScriptedSource

ADA = Principal("ada", frozenset({"write", "read"}))
READS = ToolAnnotations(read_only=True, destructive=False, idempotent=True, open_world=False)
PUSH = Subject("git.push", "git", (("git", "remote"), ("vcs",)), ("slow", "net"), READS, trusted=True)


def decided(rule: Rule, subject: Subject = PUSH, principal: Principal = ADA) -> bool:
    """Whether `rule` matches."""
    return Rules((rule,), Access.HIDDEN).permissions(principal).decide(subject) is rule.then


# -- conditions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conditions", "met"),
    [
        ({}, True),
        ({"principals": ("ada",)}, True),
        ({"principals": ("grace", "a*")}, True),
        ({"principals": ("Ada",)}, False),
        ({"principals": ("ad",)}, False),
        ({"scopes": ("write",)}, True),
        ({"scopes": ("write", "read")}, True),
        ({"scopes": ("write", "admin")}, False),
        ({"paths": (("git",),)}, True),
        ({"paths": (("git", "remote"),)}, True),
        ({"paths": (("x",), ("vcs",))}, True),
        ({"paths": ((),)}, True),
        ({"paths": (("git", "remote", "deep"),)}, False),
        ({"paths": (("gi",),)}, False),
        ({"tags": ("net",)}, True),
        ({"tags": ("x", "slow")}, True),
        ({"tags": ("sl*",)}, False),
        ({"sources": ("g?t",)}, True),
        ({"sources": ("github", "gi")}, False),
        ({"tools": ("git.p*",)}, True),
        ({"tools": ("*.push",)}, True),
        ({"tools": ("push",)}, False),
        ({"annotations": {"read_only": True}}, True),
        ({"annotations": {"read_only": True, "destructive": False}}, True),
        ({"annotations": {"read_only": True, "destructive": True}}, False),
        ({"sources": ("git",), "tags": ("net",), "principals": ("ada",), "scopes": ("read",)}, True),
        ({"sources": ("git",), "tags": ("none",)}, False),
    ],
    ids=str,
)
def test_a_rule_matches_when_all_its_conditions_match(conditions: dict[str, Any], met: bool) -> None:
    assert decided(Rule(Access.CALL, **conditions)) is met


def test_the_first_matching_rule_decides_and_the_default_applies_otherwise() -> None:
    rules = Rules(
        (Rule(Access.ASK, tools=("git.push",)), Rule(Access.CALL, sources=("git",)), Rule(Access.HIDDEN)), Access.SEE
    )

    assert rules.decide(PUSH) is Access.ASK
    assert rules.decide(replace(PUSH, id="git.log")) is Access.CALL
    assert rules.decide(replace(PUSH, id="fs.read", source="fs")) is Access.HIDDEN
    assert Rules((), Access.SEE).decide(PUSH) is Access.SEE


def test_rules_given_as_a_list_are_comparable_and_hashable() -> None:
    rule = Rule(Access.ASK, tools=("git.push",))
    listed = Rules([rule], Access.SEE)  # pyright: ignore[reportArgumentType]

    assert listed == Rules((rule,), Access.SEE)
    assert hash(listed) == hash(Rules((rule,), Access.SEE))


@pytest.mark.parametrize("rules", ["ask", [Rule(Access.ASK), "hide"]], ids=str)
def test_a_value_that_is_not_a_list_of_rules_is_refused(rules: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"^rules: must be a list of `Rule`$"):
        Rules(rules, Access.CALL)


def test_annotations_that_are_not_an_object_are_refused() -> None:
    claims: Any = ["read_only"]
    with pytest.raises(InvalidConfig, match=r"^annotations: must be an object$"):
        Rule(Access.CALL, annotations=claims)


def test_rules_for_other_principals_do_not_apply() -> None:
    rules = Rules((Rule(Access.HIDDEN, principals=("grace",)), Rule(Access.ASK, scopes=("admin",))), Access.CALL)

    assert rules.permissions(ADA) == Rules((), Access.CALL)
    assert rules.permissions(Principal("grace")).decide(PUSH) is Access.HIDDEN
    assert rules.permissions(Principal("eve", frozenset({"admin", "more"}))).decide(PUSH) is Access.ASK


def test_every_principal_may_call_every_tool_without_rules() -> None:
    assert ALLOW_ALL.permissions(ADA) is ALLOW_ALL.permissions(LOCAL) is EVERYTHING
    assert EVERYTHING.decide(PUSH) is Access.CALL


# -- claims -----------------------------------------------------------------------------------------------------------


def test_a_read_only_claim_grants_access_only_if_its_source_is_trusted() -> None:
    rules = Rules((Rule(Access.CALL, annotations={"read_only": True}),), Access.ASK)

    assert rules.decide(PUSH) is Access.CALL
    assert rules.decide(replace(PUSH, trusted=False)) is Access.ASK


def test_a_tag_of_an_untrusted_source_can_only_restrict_access() -> None:
    tagged = replace(PUSH, trusted=False, tags=("safe", "secret"))
    allow = Rules((Rule(Access.CALL, tags=("safe",)),), Access.HIDDEN)
    hide = Rules((Rule(Access.HIDDEN, tags=("secret",)),), Access.CALL)

    assert (allow.decide(tagged), allow.decide(replace(tagged, trusted=True))) == (Access.HIDDEN, Access.CALL)
    assert hide.decide(tagged) is Access.HIDDEN


def test_a_category_assigned_by_an_untrusted_tag_grants_no_access() -> None:
    categories = Categories([Category(("Safe",), tagged=("safe",)), Category(("Known",), tools=("git.*",))])
    lying = tool("git.wipe", tags=("safe",), category=("own",))
    allowed = {path: Rules((Rule(Access.CALL, paths=(path,)),), Access.HIDDEN) for path in [("Safe",), ("Known",)]}

    for trusted, decided in ((False, Access.HIDDEN), (True, Access.CALL)):
        subject = subject_of(lying, categories, trusted=trusted)
        assert allowed["Safe",].decide(subject) is decided
        assert allowed["Known",].decide(subject) is Access.CALL, "the owner assigned this category"


@pytest.mark.parametrize(
    "uri",
    [
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "file://localhost/etc/passwd",
        "file:///public/../etc/passwd",
        "file:///public/%2e%2e/etc/passwd",
        "file:///public/%252e%252e/etc/passwd",
        "file:///%65tc/passwd",
        "file:////etc/passwd",
    ],
)
def test_a_resource_is_hidden_under_every_spelling_of_its_uri(uri: str) -> None:
    registry = registry_of(tool("fs.read"))
    allow = Rules((Rule(Access.CALL, tools=("fs.file:///public/*",)),), Access.HIDDEN)
    hide = Rules((Rule(Access.HIDDEN, tools=("fs.file:///etc/*",)),), Access.CALL)

    for policy in (allow, hide):
        assert View.of(registry.state, ADA, policy).access_to_item("fs", uri) is Access.HIDDEN
        assert View.of(registry.state, ADA, policy).access_to_item("fs", "file:///public/a.txt") is Access.CALL


def test_an_item_without_annotations_matches_no_rule_on_annotations() -> None:
    prompt = replace(PUSH, annotations=None, trusted=False)
    for claimed in (True, False):
        allow = Rules((Rule(Access.CALL, annotations={"destructive": claimed}),), Access.HIDDEN)
        hide = Rules((Rule(Access.HIDDEN, annotations={"destructive": claimed}),), Access.CALL)
        assert allow.decide(prompt) is Access.HIDDEN
        assert hide.decide(prompt) is Access.CALL


def test_a_destructive_claim_counts_even_from_an_untrusted_source() -> None:
    rules = Rules((Rule(Access.HIDDEN, annotations={"destructive": True}),), Access.CALL)
    claims = replace(PUSH, annotations=ToolAnnotations(destructive=True))

    assert rules.decide(claims) is rules.decide(replace(claims, trusted=False)) is Access.HIDDEN
    assert rules.decide(PUSH) is Access.CALL
    assert rules.decide(replace(PUSH, trusted=False)) is Access.HIDDEN, "an untrusted claim counts as the worst case"


def test_an_untrusted_tag_alone_grants_no_access() -> None:
    rules = Rules((Rule(Access.CALL, tags=("safe",)),), Access.HIDDEN)
    here = (("git",),)
    tagged = Subject("git.push", "git", here, tags=("safe",), sure_paths=here)

    assert rules.decide(tagged) is Access.HIDDEN
    assert rules.decide(replace(tagged, sure_tags=("safe",))) is Access.CALL


def test_an_untrusted_path_alone_grants_no_access() -> None:
    rules = Rules((Rule(Access.CALL, paths=(("safe",),)),), Access.HIDDEN)
    placed = Subject("git.push", "git", (("git",), ("safe",)), sure_paths=(("git",),))

    assert rules.decide(placed) is Access.HIDDEN
    assert rules.decide(replace(placed, sure_paths=placed.paths)) is Access.CALL


SUBJECTS = st.builds(
    Subject,
    st.sampled_from(["files.a", "git.a", "git.invoice1"]),
    st.sampled_from(["files", "git"]),
    st.sampled_from([(("files",),), (("code", "lint"), ("git", "read")), (("quality",),)]),
    st.sampled_from([(), ("x",), ("x", "y")]),
    ANNOTATIONS,
)


@settings(max_examples=examples(500))
@given(RULES, SUBJECTS, st.sampled_from(PRINCIPALS))
def test_untrusted_claims_only_restrict_access_under_any_rules(
    rules: Rules, subject: Subject, principal: Principal
) -> None:
    decide = rules.permissions(principal).decide
    bare = replace(subject, tags=(), paths=((subject.source,),))
    decided = decide(replace(subject, sure_paths=bare.paths))

    assert decided <= decide(bare), "claimed tags and paths never loosen"
    for claimed in product((False, True), repeat=len(HINTS)):
        truth = ToolAnnotations(**dict(zip(HINTS, claimed, strict=True)))
        assert decided <= decide(replace(subject, annotations=truth, trusted=True)), "for any true annotations"
        assert decided == decide(replace(subject, annotations=truth, sure_paths=bare.paths)), (
            "for any claimed annotations"
        )


@given(RULES, SUBJECTS, st.sampled_from(PRINCIPALS))
def test_leaving_out_rules_for_other_principals_changes_no_decision(
    rules: Rules, subject: Subject, principal: Principal
) -> None:
    mine = rules.permissions(principal)

    assert all(rule.is_for(principal) for rule in mine.rules)
    first = next(
        (rule.then for rule in rules.rules if rule.is_for(principal) and rule.meets(subject, subject.annotations)),
        rules.otherwise,
    )
    assert mine.decide(replace(subject, trusted=True)) is first


# -- sources without visible tools ------------------------------------------------------------------------------------


def test_a_source_may_be_mentioned_unless_all_its_tools_are_hidden() -> None:
    def may_know(*rules: Rule, otherwise: Access = Access.CALL) -> bool:
        return Rules(rules, otherwise).decide(something_of("git")) is not Access.HIDDEN

    assert may_know()
    assert not may_know(otherwise=Access.HIDDEN)
    assert not may_know(Rule(Access.HIDDEN, sources=("g*",)))
    assert not may_know(Rule(Access.HIDDEN, paths=(("git",),)))
    assert may_know(Rule(Access.HIDDEN, paths=(("git", "remote"),)))
    assert may_know(Rule(Access.HIDDEN, tools=("git.push",)))
    assert not may_know(Rule(Access.HIDDEN, tools=("git.*",)))
    assert not may_know(Rule(Access.HIDDEN, annotations={"destructive": True}))
    assert may_know(Rule(Access.SEE, sources=("git",)), otherwise=Access.HIDDEN)
    assert not may_know(Rule(Access.CALL, sources=("git",), tags=("safe",)), otherwise=Access.HIDDEN)


@pytest.mark.parametrize(
    ("tools", "may_be"),
    [
        (("git.push",), True),
        (("git.remote.push",), True),
        (("git.p?s*",), True),
        (("g*.push",), True),
        (("*push",), True),
        (("*",), True),
        (("fs.read", "git.push"), True),
        (("fs.read",), False),
        (("github.push",), False),
        (("push",), False),
    ],
    ids=str,
)
def test_a_rule_can_show_a_tool_of_an_otherwise_hidden_source(tools: tuple[str, ...], may_be: bool) -> None:
    shown = Rules((Rule(Access.SEE, tools=tools),), Access.HIDDEN)
    hidden = Rules((Rule(Access.HIDDEN, tools=tools), *shown.rules), Access.HIDDEN)

    assert may_show(shown, "git") is may_be
    assert not may_show(hidden, "git")


def test_a_rule_for_a_different_source_or_path_does_not_show_a_tool() -> None:
    def shows(**conditions: Any) -> bool:
        return may_show(Rules((Rule(Access.CALL, tools=("git.push",), **conditions),), Access.HIDDEN), "git")

    assert shows(sources=("git",))
    assert shows(paths=(("git",),))
    assert not shows(sources=("fs",))
    assert not shows(paths=(("fs",),))


def test_may_show_falls_back_to_the_decision_about_the_source() -> None:
    class Nothing:
        def decide(self, subject: Subject) -> Access:
            return Access.HIDDEN

    assert may_show(EVERYTHING, "git")
    assert not may_show(Nothing(), "git")


def test_a_hidden_source_is_not_listed_as_starting_or_failed() -> None:
    registry = registry_of(tool("fs.read"))
    registry.register_source(SourceEntry(ScriptedSource("git")))
    registry.register_source(SourceEntry(ScriptedSource("slow")))
    view = View.of(registry.state, ADA, Rules((Rule(Access.HIDDEN, sources=("git",)),), Access.CALL))

    assert set(view.sources) == {"fs", "slow"}
    assert Operations().list(view).missing.starting == ("slow",)


def test_an_expansion_names_the_obstacle_to_a_call() -> None:
    state = registry_of(tool("git.push")).state

    def obstacle(access: Access) -> object:
        view = View.of(state, ADA, Rules((), access))
        return Operations().expand_tool(view, "git.push").to_wire().get("obstacle")

    assert obstacle(Access.CALL) is None
    assert obstacle(Access.ASK) == "A person must approve each call of this tool, unless it was approved permanently."
    assert obstacle(Access.SEE) == "You can see this tool, but you are not allowed to call it."
    with pytest.raises(ToolNotFound):
        obstacle(Access.HIDDEN)


# -- nodes below a hidden node ----------------------------------------------------------------------------------------


def test_hiding_a_node_hides_tools_that_are_linked_below_it() -> None:
    lint = Category(("code", "lint"), tools=("ruff.*",), also_under=(("quality",),))
    registry = registry_of(tool("ruff.check"), tool("git.log"))
    registry.set_categories(Categories([lint, Category(("quality",), also_under=(("work",),))]))

    for hidden in (("quality",), ("work",), ("code",), ("ruff",)):
        view = View.of(registry.state, ADA, Rules((Rule(Access.HIDDEN, paths=(hidden,)),), Access.CALL))
        assert set(view.tools) == {"git.log"}, hidden
        assert view.ontology.find(["quality"]) is None


# -- prompts and resources --------------------------------------------------------------------------------------------


def test_a_policy_hides_prompts_and_resources_like_tools() -> None:
    registry = ToolRegistry()
    extras = Extras(
        prompts=({"name": "plan"}, {"name": "secret"}),
        resources=({"uri": "memo://1", "name": "one"}, {"uri": "memo://2", "name": "two"}),
        templates=({"uriTemplate": "memo://{n}", "name": "any"},),
    )
    registry.register_source(SourceEntry(ScriptedSource("lib"), SourceStatus.READY, extras=extras))
    hide = Rule(Access.HIDDEN, tools=("lib.secret", "lib.memo://[{2]*"))
    look = Rule(Access.SEE, tools=("lib.plan",))
    view = View.of(registry.state, ADA, Rules((hide, look), Access.CALL))

    assert list(view.prompts_and_resources.prompts) == ["lib__plan"]
    assert list(view.prompts_and_resources.resources) == ["toolcrib://lib/memo://1"]
    assert view.prompts_and_resources.templates == {}
    assert view.prompts_and_resources.locate("toolcrib://lib/memo://2") is None
    assert view.prompts_and_resources.locate("toolcrib://lib/memo://3") == ("lib", "memo://3")
    assert view.access_to_item("lib", "plan") is Access.SEE
    assert view.access_to_item("lib", "memo://1") is Access.CALL


def test_a_source_with_only_a_visible_prompt_is_visible() -> None:
    registry = registry_of(tool("lib.lend"))
    entry = SourceEntry(ScriptedSource("lib"), SourceStatus.READY, extras=Extras(prompts=({"name": "plan"},)))
    registry.register_source(entry)

    only_plan = Rules((Rule(Access.CALL, tools=("lib.plan",)),), Access.HIDDEN)
    view = View.of(registry.state, ADA, only_plan)
    assert (set(view.tools), set(view.sources), set(view.prompts_and_resources.prompts)) == (
        set(),
        {"lib"},
        {"lib__plan"},
    )
    nothing = View.of(registry.state, ADA, Rules((), Access.HIDDEN))
    assert (dict(nothing.sources), bool(nothing.prompts_and_resources)) == ({}, False)


# -- sharing between principals ---------------------------------------------------------------------------------------


def test_principals_with_equal_permissions_share_one_set_of_visible_tools() -> None:
    registry = registry_of(tool("git.log"), tool("git.push"))
    rules = Rules((Rule(Access.HIDDEN, tools=("git.push",), principals=("g*",)),), Access.CALL)
    views = ViewCache(registry, rules)
    ada, eve, grace = (views.of(Principal(name)) for name in ("ada", "eve", "grace"))

    assert ada.visible is eve.visible is not grace.visible
    assert ada.principal != eve.principal
    assert (set(ada.tools), set(grace.tools)) == ({"git.log", "git.push"}, {"git.log"})
    assert views.of(Principal("ada")) is ada


def test_scopes_of_a_principal_decide_what_it_sees() -> None:
    rules = Rules((Rule(Access.CALL, scopes=("write",)),), Access.HIDDEN)
    views = ViewCache(registry_of(tool("git.log")), rules)

    assert set(views.of(Principal("ada", frozenset({"write"}))).tools) == {"git.log"}
    assert set(views.of(Principal("ada")).tools) == set()


def test_a_policy_set_later_applies_to_new_views_only() -> None:
    views = ViewCache(registry_of(tool("git.log")), ALLOW_ALL)
    before = views.of(ADA)
    views.policy = Rules((), Access.HIDDEN)

    assert set(before.tools) == {"git.log"}
    assert set(views.of(ADA).tools) == set()


CHANGES = st.lists(
    st.sampled_from(["register", "unregister", "replace", "trust", "categories", "source", "nothing"]), max_size=6
)


@settings(max_examples=examples(150), deadline=None)
@given(tools(), RULES, CHANGES, st.data())
def test_reused_decisions_equal_freshly_made_decisions(
    known: list[Tool], rules: Rules, changes: list[str], data: st.DataObject
) -> None:
    registry = registry_of(*known)
    views = ViewCache(registry, rules)
    for change in (*changes, "nothing"):
        principal = data.draw(st.sampled_from(PRINCIPALS))
        state = registry.state
        ids = sorted(state.tools)
        some = state.tools[data.draw(st.sampled_from(ids))] if ids else None
        match change:
            case "register":
                for new in data.draw(tools(max_size=2)):
                    registry.replace(new)
            case "unregister" if some is not None:
                registry.unregister(some.id)
            case "replace" if some is not None:
                registry.replace(replace(some, annotations=data.draw(ANNOTATIONS)))
            case "trust" if state.sources:
                entry = state.sources[data.draw(st.sampled_from(sorted(state.sources)))]
                registry.register_source(replace(entry, trusted=not entry.trusted))
            case "categories":
                registry.set_categories(Categories(data.draw(SET_UP)))
            case "source" if state.sources:
                registry.unregister_source(data.draw(st.sampled_from(sorted(state.sources))))
            case _:
                pass
        kept = views.of(principal).visible
        fresh = Visible(registry.state, rules.permissions(principal))
        assert kept.state is registry.state
        assert dict(kept.tools) == dict(fresh.tools)
        assert kept.decisions.access == fresh.decisions.access
        assert kept.fingerprint == fresh.fingerprint
        assert set(kept.sources) == set(fresh.sources)


def test_access_is_decided_again_only_for_changed_tools() -> None:
    registry = registry_of(tool("git.log"), tool("git.push"))
    asked: list[str] = []

    class Counted(Rules):
        def permissions(self, principal: Principal) -> Counted:
            return self

        def decide(self, subject: Subject) -> Access:
            asked.append(subject.id)
            return super().decide(subject)

    views = ViewCache(registry, Counted((), Access.SEE))
    assert set(views.of(ADA).tools) == {"git.log", "git.push"}
    registry.replace(tool("git.push", "Another."))
    registry.register(tool("git.tag"))
    assert set(views.of(ADA).tools) == {"git.log", "git.push", "git.tag"}

    assert sorted(asked) == ["git.log", "git.push", "git.push", "git.tag"]
