"""Configured categories: which tools they claim, how they are named, and which are refused."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from fnmatch import fnmatchcase
from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.catalogs import registry_of, tool

from toolcrib.catalog.catalog_state import CatalogState
from toolcrib.catalog.categories import STANDARD, Categories, Category
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.tools import Node, Path
from toolcrib.crib.crib import Toolcrib

COMMIT = tool("git.commit", category=("history",), tags=("vcs", "write"))


@pytest.mark.parametrize(
    ("category", "holds"),
    [
        (Category(("x",), tools=("git.commit",)), True),
        (Category(("x",), tools=("git.*",)), True),
        (Category(("x",), tools=("*.c?mmit", "none")), True),
        (Category(("x",), tools=("git.[ab]*",)), False),
        (Category(("x",), tools=("git",)), False),
        (Category(("x",), tools=("GIT.*",)), False),
        (Category(("x",), tagged=("write", "other")), True),
        (Category(("x",), tagged=("Write",)), False),
        (Category(("x",), tools=("fs.*",), tagged=("vcs",)), True),
        (Category(("x",)), False),
    ],
    ids=lambda each: f"{'+'.join((*each.tools, *each.tagged)) or 'nothing'}" if isinstance(each, Category) else "",
)
def test_a_category_claims_tools_by_id_patterns_and_by_tags(category: Category, holds: bool) -> None:
    claimed = (("x",),) if holds else ()
    assert Categories([category]).places(COMMIT) == (*claimed, ("git", "history"))


GLOBS = st.sampled_from(["git.commit", "git.*", "*.commit", "g?t.log", "[gf]*", "*", "git.[cl]*", "git", "fs.*", "["])


@given(
    st.lists(st.tuples(st.sets(GLOBS, max_size=3), st.sets(st.sampled_from("xyz"), max_size=2)), max_size=6),
    st.sampled_from(["git.commit", "git.log", "fs.commit", "fs.git.log"]),
    st.sets(st.sampled_from("xyz"), max_size=2),
)
def test_the_paths_of_a_tool_are_in_the_order_of_the_categories(
    claims: list[tuple[set[str], set[str]]], tool_id: str, tags: set[str]
) -> None:
    made = [
        Category((f"c{number}",), tools=tuple(globs), tagged=tuple(tagged))
        for number, (globs, tagged) in enumerate(claims)
    ]
    claiming = [
        (f"c{number}",)
        for number, (globs, tagged) in enumerate(claims)
        if tags & tagged or any(fnmatchcase(tool_id, glob) for glob in globs)
    ]
    *places, _ = Categories(made).places(tool(tool_id, tags=tuple(tags)))
    assert places == claiming


def test_two_tools_with_one_id_do_not_evict_each_other_from_the_cache() -> None:
    categories = Categories([Category(("x",), tools=("git.*",))])
    mine, yours = tool("git.commit"), tool("git.commit")
    places = categories.places(mine)

    assert categories.places(yours) == places
    assert categories.places(mine) is places


def test_the_cache_does_not_retain_tools_that_were_removed() -> None:
    categories = Categories([Category(("x",), tools=("git.*",))])
    alive = [tool(f"git.t{number}") for number in range(10)]
    gone = ref(passing := tool("git.passing"))
    categories.places(passing)
    del passing
    assert gone() is None

    def place_some(count: int) -> None:
        for number in range(count):
            categories.places(tool(f"git.passing{number}"))
            categories.places(alive[number % 10])

    tracemalloc.start()
    try:
        place_some(3_000)
        before, _ = tracemalloc.get_traced_memory()
        place_some(12_000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 500_000


def test_a_changed_tool_is_assigned_to_categories_again() -> None:
    categories = Categories([Category(("x",), tagged=("vcs",))])
    untagged = replace(COMMIT, metadata=replace(COMMIT.metadata, tags=()))

    assert categories.places(COMMIT) == (("x",), ("git", "history"))
    assert categories.places(untagged) == (("git", "history"),)
    assert categories.places(COMMIT) == (("x",), ("git", "history"))


def test_paths_above_a_tool_include_those_through_links() -> None:
    lint = Category(("code", "lint"), tools=("git.*",), also_under=(("quality", "style"),))
    quality = Category(("quality",), also_under=(("team",),))

    assert {*Categories([lint, quality]).reaches(COMMIT)} == {
        ("code", "lint"),
        ("git", "history"),
        ("quality", "style"),
        ("team",),
    }
    assert Categories([Category(("code",), tools=("git.*",))]).reaches(COMMIT) == (("code",), ("git", "history"))


def test_a_path_through_a_link_resolves_to_the_primary_path() -> None:
    lint = Category(("code", "lint"), also_under=(("quality",),))
    taken = Category(("team", "lint"))
    both = Categories([lint, taken, Category(("code", "lint", "strict"), also_under=(("team",),))])

    assert both.primary(("quality", "lint")) == ("code", "lint")
    assert both.primary(("quality", "lint", "deep", "er")) == ("code", "lint", "deep", "er")
    assert both.primary(("team", "lint")) == ("team", "lint")
    assert both.primary(("team", "strict")) == ("code", "lint", "strict")
    assert both.primary(("nowhere", "lint")) == ("nowhere", "lint")
    assert both.primary(()) == ()


@pytest.mark.parametrize("is_reversed", [False, True])
def test_also_under_may_name_a_path_through_other_links(is_reversed: bool) -> None:
    made = [
        Category(("code", "lint"), also_under=(("quality",),)),
        Category(("deep", "strict"), also_under=(("quality", "lint"),)),
        Category(("far", "pedantic"), tools=("git.*",), also_under=(("quality", "lint", "strict"),)),
    ]
    categories = Categories(reversed(made) if is_reversed else made)

    assert categories.above(("far", "pedantic")) == (("deep", "strict"),)
    assert categories.primary(("quality", "lint", "strict", "pedantic")) == ("far", "pedantic")
    assert {*categories.reaches(COMMIT)} == {
        ("far", "pedantic"),
        ("deep", "strict"),
        ("code", "lint"),
        ("quality",),
        ("git", "history"),
    }


# -- invalid categories -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("links", "cycle"),
    [
        ({("a",): [("a",)]}, "a > a"),
        ({("a",): [("b",)], ("b",): [("a",)]}, "a > b > a"),
        ({("a",): [("a", "b")]}, "a > a/b > a"),
        ({("a",): [("a", "b", "c")]}, "a > a/b > a/b/c > a"),
        ({("a",): [("b", "x")], ("b",): [("a", "y")]}, "a > a/y > b > b/x > a"),
        ({("a",): [("b",)], ("b",): [("c",)], ("c",): [("z",), ("a",)]}, "a > c > b > a"),
        ({("a", "b"): [("z",)], ("a",): [("z", "b")]}, "a/b > a > a/b"),
    ],
    ids=["itself", "two", "below itself", "far below itself", "through prefixes", "three", "through a link"],
)
def test_a_cycle_of_categories_is_refused_and_named(links: dict[Path, list[Path]], cycle: str) -> None:
    with pytest.raises(InvalidConfig, match="a category cannot be below itself") as refused:
        Categories(Category(path, also_under=tuple(above)) for path, above in links.items())

    assert refused.value.message == f"a category cannot be below itself: {cycle}"


def test_duplicate_paths_and_empty_names_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="duplicate category code/lint"):
        Categories([Category(("code", "lint")), Category(("code", "lint"), title="Again")])
    for nameless in ((), ("",), ("code", "")):
        with pytest.raises(InvalidConfig, match="must have a name"):
            Categories([Category(nameless)])


PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=2).map(tuple)


ABOVE = PATHS | st.sampled_from([(), ("x",), ("x", "y")])


def straight(links: dict[Path, list[Path]]) -> dict[Path, list[Path]]:
    """Remove links that could lead through other links: links to paths that are not categories."""
    return {path: [up for up in uppers if up in links or not up or "x" in up] for path, uppers in links.items()}


@given(st.dictionaries(PATHS, st.lists(ABOVE, max_size=2), max_size=6).map(straight))
def test_categories_are_refused_exactly_if_they_contain_a_cycle(links: dict[Path, list[Path]]) -> None:
    uppers = {path: {path[:-1], *links.get(path, ())} for path in [*links, *(p for up in links.values() for p in up)]}

    def is_above(path: Path, start: Path, seen: frozenset[Path] = frozenset()) -> bool:
        above = uppers.get(path, {path[:-1]}) if path else set[Path]()
        return start in above or any(is_above(each, start, seen | above) for each in above - seen)

    made = [Category(path, also_under=tuple(above)) for path, above in links.items()]
    if any(is_above(path, path) for path in links):
        with pytest.raises(InvalidConfig):
            Categories(made)
    else:
        assert Categories(made).given == tuple(made)


# -- names and summaries ----------------------------------------------------------------------------------------------


def test_a_standard_category_at_the_top_level_has_a_default_description() -> None:
    assert Category(("vcs",)).node == STANDARD["vcs"]
    assert Category(("vcs",), summary="Ours").node == Node(("vcs",), "Version control", "Ours", ("vcs",))
    assert Category(("team", "vcs")).node == Node(("team", "vcs"))
    assert set(STANDARD) == {"code", "vcs", "build", "research", "publish", "utility"}


def test_equal_categories_have_equal_digests_and_different_ones_differ() -> None:
    a, b = Category(("a",)), Category(("b",))
    others = [
        replace(a, tools=("x",)),
        replace(a, tagged=("x",)),
        replace(a, also_under=(("x",),)),
        replace(a, title="x"),
    ]

    assert Categories([a, b]).digest == Categories([replace(a), replace(b)]).digest
    assert len({Categories([each, b]).digest for each in [a, *others]} | {Categories([b, a]).digest}) == 6


def test_a_digest_of_some_nodes_does_not_depend_on_other_nodes() -> None:
    a, b = Category(("a",), tools=("x.*",)), Category(("b",), also_under=(("a",),))
    of_a = Categories([a, b]).digest_of({("a",)})

    assert of_a == Categories([replace(b, summary="Another"), replace(a, tools=("y.*",))]).digest_of({("a",)})
    assert of_a != Categories([replace(a, summary="Another"), b]).digest_of({("a",)})
    assert of_a != Categories([a, b]).digest_of({("a",), ("b",)})


def test_changing_categories_of_few_tools_keeps_the_search_index_of_the_others() -> None:
    registry = registry_of(*(tool(f"git.t{number}") for number in range(50)))
    before = registry.state.index.parts[0].segment
    registry.set_categories(Categories([Category(("linting",), tools=("git.t7",))]))
    registry.set_categories(Categories([Category(("linting",), "Lint", tools=("git.t7",)), Category(("empty",))]))

    state = registry.state
    assert state.index.parts[0].segment is before
    assert [hit.tool_id for hit in state.index.search("linting", limit=5).hits] == ["git.t7"]
    assert ("empty",) in state.categories


def test_a_search_for_the_name_of_a_category_finds_its_tools() -> None:
    registry = registry_of(tool("ruff.check", "Look for mistakes."), tool("git.log", "Show history."))
    before = registry.state

    def found(state: CatalogState) -> list[str]:
        return [hit.tool_id for hit in state.index.search("linting", limit=5).hits]

    registry.set_categories(Categories([Category(("linting",), tools=("ruff.*",))]))
    assert (found(before), found(registry.state)) == ([], ["ruff.check"])
    with_them = registry.state
    registry.set_categories(Categories([Category(("linting",), tools=("ruff.*",))]))
    assert registry.state is with_them
    registry.set_categories(Categories())
    assert found(registry.state) == []


def test_a_crib_adds_categories_one_by_one_and_refuses_invalid_ones() -> None:
    def check() -> None:
        """Look for mistakes."""

    crib = Toolcrib()
    crib.add(check)
    crib.add_category(Category(("code",)))
    crib.add_category(Category(("code", "lint"), tools=("functions.check",), also_under=(("quality",),)))

    assert [node.node.name for node in crib.list().nodes] == ["code", "quality"]
    assert crib.expand_tool("functions.check").path == ("code", "lint")
    with pytest.raises(InvalidConfig, match="duplicate category"):
        crib.add_category(Category(("code",)))
    with pytest.raises(InvalidConfig, match="below itself"):
        crib.add_category(Category(("quality",), also_under=(("code", "lint"),)))
    assert [node.node.name for node in crib.list(["quality"]).nodes] == ["lint"]
