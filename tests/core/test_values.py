"""Strings in Python code mean the same as in `mcp.json`, for every class; invalid values are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from toolcrib import (
    Access,
    Category,
    MetadataOverride,
    Optionality,
    Principal,
    Rule,
    Rules,
    Tool,
    ToolBundle,
    Toolcrib,
    ToolcribError,
    ToolMetadata,
    plain_tool,
)
from toolcrib.core.errors import InvalidConfig, InvalidTool
from toolcrib.core.principal import LOCAL


# Calls a class like a program without a type checker.
def made(cls: Callable[..., Any], *given: Any, **fields: Any) -> Any:
    return cls(*given, **fields)


LISTS = ("tags", "requires_capabilities", "aliases", "intents")


@pytest.mark.parametrize("key", LISTS)
def test_a_single_string_is_a_list_of_one(key: str) -> None:
    read = made(ToolMetadata, **{key: "docker"})

    assert getattr(read, key) == ("docker",)
    assert read == ToolMetadata.from_wire({key: "docker"}) == made(ToolMetadata, **{key: ["docker"]})
    assert (
        MetadataOverride.of("*", **{key: "docker"}).metadata
        == read
        == made(MetadataOverride, "*", read.to_wire()).metadata
    )


@pytest.mark.parametrize(
    ("given", "path"),
    [("vcs", ("vcs",)), ("code/refactoring", ("code", "refactoring")), (["CI/CD"], ("CI/CD",)), ((), ())],
)
def test_a_single_string_is_a_path_with_slashes(given: Any, path: tuple[str, ...]) -> None:
    assert ToolMetadata(category=given).category == Tool("a", "b", own_path=given).own_path == path
    if path:
        assert ToolMetadata.from_wire({"category": given}).category == Category(given).path == path
        as_paths = given if isinstance(given, str) else [given]
        assert made(Category, "a", also_under=as_paths).also_under == (path,)
        assert made(Rule, Access.SEE, paths=as_paths).paths == (path,)


def test_configuration_words_are_accepted_as_enum_members() -> None:
    assert made(ToolMetadata, optionality="required").optionality is Optionality.REQUIRED
    assert made(Rule, "hide").then is Access.HIDDEN
    assert made(Rules, [], "ask").otherwise is Access.ASK


def test_bundles_categories_and_scopes_accept_a_single_string_as_a_list() -> None:
    bundle = made(ToolBundle, "dev", required="functions.git", optional="web.*", includes="code_agent")
    category = made(Category, "Coding", tools="functions.*", tags="code", tagged="slow")

    assert (bundle.required, bundle.optional, bundle.includes) == (("functions.git",), ("web.*",), ("code_agent",))
    assert (category.tools, category.tags, category.tagged) == (("functions.*",), ("code",), ("slow",))
    assert (
        made(Principal, "ada", "admin") == made(Principal, "ada", ["admin"]) == Principal("ada", frozenset({"admin"}))
    )


REFUSED: list[tuple[Any, tuple[Any, ...], dict[str, Any], str]] = [
    (ToolMetadata, (), {"optionality": "sometimes"}, "optionality: must be one of: required, optional, conditional"),
    (ToolMetadata, (), {"optionality": "requird"}, "did you mean `required`"),
    (ToolMetadata, (), {"tags": 5}, "tags: must be a list of strings"),
    (ToolMetadata, (), {"tags": {"a": 1}}, "tags: must be a list of strings"),
    (ToolMetadata, (), {"aliases": ["a", 5]}, "aliases.1: must be a string"),
    (ToolMetadata, (), {"category": ("a", 5)}, "category.1: must be a string"),
    (ToolMetadata, (), {"usage_hint": 5}, "usage_hint: must be a string"),
    (ToolMetadata, (), {"requires_permission": 0}, "requires_permission: must be true or false"),
    (ToolMetadata, (), {"examples": [5]}, "examples.0: needs `description`"),
    (Tool, ("a", "b"), {"own_path": (7,)}, "own_path.0: must be a string"),
    (MetadataOverride, ("*", {"tagz": "x"}), {}, "tagz: unknown key (did you mean `tags`?)"),
    (MetadataOverride, (5, {}), {}, "must be a tool id or a pattern of tool ids"),
    (Rule, ("hidden",), {}, "then: must be one of: allow, ask, refuse, hide"),
    (Rule, (0,), {}, "then: must be one of: allow, ask, refuse, hide"),
    (Rule, (Access.HIDDEN,), {"tools": ()}, "tools: must not be empty; leave it out to match everything"),
    (Rule, (Access.HIDDEN,), {"tools": ("",)}, "tools: must be a non-empty string"),
    (Rule, (Access.HIDDEN,), {"tools": "git.[ab"}, "tools: `git.[ab` has a `[` without a `]`"),
    (Rule, (Access.HIDDEN,), {"sources": [5]}, "sources.0: must be a string"),
    (Rule, (Access.HIDDEN,), {"paths": ("Storage", "Buckets")}, "paths: must be a list of paths"),
    (Rule, (Access.HIDDEN,), {"principals": {"ada"}}, "principals: must be a list of strings"),
    (Rule, (Access.HIDDEN,), {"annotations": {"readonly": True}}, "did you mean `read_only`"),
    (Rule, (Access.HIDDEN,), {"annotations": {"read_only": "yes"}}, "annotations.read_only: must be true or false"),
    (Rules, (Rule(Access.HIDDEN), Access.CALL), {}, "rules: must be a list of `Rule`"),
    (Rules, ((), "everything"), {}, "otherwise: must be one of: allow, ask, refuse, hide"),
    (ToolBundle, ("dev",), {"required": 5}, "dev.required: must be a list of strings"),
    (ToolBundle, ("dev",), {"optional": [5]}, "dev.optional.0: must be a string"),
    (Category, (5,), {}, "path: must be a list of strings"),
    (Category, ("a",), {"also_under": ["b"]}, "also_under: must be a list of paths"),
    (Principal, ("ada", 5), {}, "scopes: must be a list of strings"),
]


@pytest.mark.parametrize(("cls", "given", "fields", "message"), REFUSED, ids=lambda value: str(value)[:60])
def test_invalid_values_are_refused_immediately(cls: Any, given: tuple[Any, ...], fields: Any, message: str) -> None:
    with pytest.raises(ToolcribError) as refused:
        made(cls, *given, **fields)
    assert message in refused.value.message


def test_a_rule_with_a_single_string_hides_only_that_tool() -> None:
    crib = Toolcrib(policy=made(Rules, [made(Rule, Access.HIDDEN, tools="functions.secret")], otherwise=Access.CALL))
    crib.add(plain_tool("secret", "Read the secret.", dict))
    crib.add(plain_tool("open", "Read what is open.", dict))

    assert [*crib.view(LOCAL).tools] == ["functions.open"]


def test_a_policy_may_be_given_as_a_mapping_like_in_the_configuration() -> None:
    crib = Toolcrib(policy={"rules": [{"then": "hide", "tools": "functions.secret"}], "otherwise": "allow"})
    crib.add(plain_tool("secret", "Read the secret.", dict))
    crib.add(plain_tool("open", "Read what is open.", dict))

    assert [*crib.view(LOCAL).tools] == ["functions.open"]


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"rules": []}, "`otherwise` is required"),
        ({}, "`otherwise` is required"),
        (
            {"rules": [{"then": "hid"}], "otherwise": "allow"},
            "policy.rules.0.then: must be one of: allow, ask, refuse",
        ),
        ({"rules": [Rule(Access.HIDDEN)], "otherwise": "allow"}, "policy: "),
        (Rule(Access.HIDDEN), "policy: must be `Rules`, a mapping like `toolcrib.policy`"),
        ("hide", "policy: must be `Rules`, a mapping like `toolcrib.policy`"),
        (Rules, "policy: must be `Rules`, a mapping like `toolcrib.policy`"),
    ],
    ids=str,
)
def test_an_invalid_policy_is_refused_when_the_crib_is_created(policy: Any, message: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        Toolcrib(policy=policy)

    assert message in refused.value.message


def test_the_metadata_of_a_function_may_be_a_mapping() -> None:
    crib = Toolcrib()
    crib.add(plain_tool("borrow", "Borrow.", dict), metadata={"category": "loans/open", "tags": "lending"})

    assert crib.view(LOCAL).tools["functions.borrow"].metadata == ToolMetadata(("loans", "open"), tags=("lending",))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metadata": {"categry": "x"}}, "did you mean `category`"),
        ({"metadata": "x"}, "metadata: must be a `ToolMetadata`, not `str`"),
        ({"annotations": {"read_only": True}}, "annotations: must be a `ToolAnnotations`, not `dict`"),
    ],
)
def test_a_function_with_invalid_metadata_is_refused_and_not_added(given: Any, message: str) -> None:
    crib = Toolcrib()
    with pytest.raises(InvalidTool) as refused:
        crib.add(plain_tool("borrow", "Borrow.", dict), **given)

    assert message in refused.value.message
    assert not crib.view(LOCAL).tools


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("add_category", "category: must be a `Category`"),
        ("add_capability", "capability: must be a `Capability`"),
        ("add_bundle", "bundle: must be a `ToolBundle`"),
        ("add_override", "override: must be a `MetadataOverride`"),
    ],
)
def test_a_value_of_the_wrong_type_is_not_added(method: str, expected: str) -> None:
    crib = Toolcrib()
    with pytest.raises(InvalidConfig, match=expected):
        getattr(crib, method)("Lending")

    assert not crib.list().nodes


def test_a_tool_with_string_metadata_is_listed_and_found() -> None:
    crib = Toolcrib()
    said = made(ToolMetadata, category="vcs", optionality="required")
    crib.add(plain_tool("git", "Version control.", dict), metadata=said)

    assert [tool.id for tool in crib.registry.list_by_category("vcs")] == ["functions.git"]
    assert [tool.id for tool in crib.registry.list_by_optionality("required")] == ["functions.git"]
    assert crib.search_tools("version").to_wire()["results"][0]["optionality"] == "required"
