"""Nodes, counted and described from their tools: each tool counts once, under any number of paths."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.catalogs import tool
from tests.examples import examples

from toolcrib.catalog.categories import NO_CATEGORIES, Categories, Category
from toolcrib.catalog.ontology import Branch, Ontology
from toolcrib.core.metadata import ToolMetadata
from toolcrib.core.tools import ROOT, Node, Path, Tool


def ontology(*tools: Tool, described: dict[Path, Node] | None = None, categories: Iterable[Category] = ()) -> Ontology:
    of = Categories(categories) if categories else NO_CATEGORIES
    return Ontology({tool.id: tool for tool in tools}, {**(described or {}), **of.nodes}, of)


def at(of: Ontology, *path: str) -> Branch:
    branch = of.find(path)
    assert branch is not None, path
    return branch


def counts(of: Ontology) -> dict[Path, int]:
    return {ROOT: of.root.count} | {path: branch.count for path, branch in of.nodes.items()}


def below(of: Ontology, *path: str) -> list[Path]:
    return [child.path for child in of.children(at(of, *path))]


# -- tools below their source -----------------------------------------------------------------------------------------


def test_a_tool_is_below_its_source_in_its_category() -> None:
    commit = tool("git.commit", category=("history", "write"))
    of = ontology(commit)

    assert of.places(tool("git.commit")) == (("git",),)
    assert of.places(commit) == (("git", "history", "write"),)
    assert [branch.path for branch in of.holders(commit.id)] == [("git", "history", "write")]
    assert of.holders("git.none") == ()


def test_every_node_counts_the_tools_at_and_below_it() -> None:
    of = ontology(
        tool("git.commit", category=("history",)), tool("git.log", category=("history", "read")), tool("fs.read")
    )

    assert counts(of) == {ROOT: 3, ("git",): 2, ("git", "history"): 2, ("git", "history", "read"): 1, ("fs",): 1}


def test_an_empty_catalog_has_only_its_root() -> None:
    empty = ontology(described={("git",): Node(("git",))}, categories=[Category(("code",), also_under=(("git",),))])

    assert counts(empty) == {ROOT: 0}
    assert empty.find(["git"]) is None
    assert empty.find([]) is empty.root
    assert (empty.children(empty.root), empty.tool_ids(empty.root), empty.search("git", limit=5)) == ((), (), [])


def test_children_are_sorted_by_name_ignoring_case() -> None:
    assert below(ontology(tool("b.x"), tool("C.x"), tool("a.x"), tool("c.x"))) == [("a",), ("b",), ("C",), ("c",)]


def test_a_described_node_returns_its_description() -> None:
    git = Node(("git",), "Git", "Version control.", ("vcs",))
    of = ontology(tool("git.commit"), described={("git",): git})

    assert of.node(at(of, "git")) == git


def test_a_node_without_a_summary_gets_one_from_its_tools() -> None:
    of = ontology(tool("git.commit"), tool("git.add"), described={("git",): Node(("git",), "Git", tags=("vcs",))})
    told = of.node(at(of, "git"))

    assert (told.path, told.title, told.tags) == (("git",), "Git", ("vcs",))
    assert "add" in told.summary
    assert "commit" in told.summary


def test_a_path_does_not_include_nodes_that_only_share_a_prefix() -> None:
    of = ontology(tool("git.commit"), tool("github.issue"))

    assert of.within(at(of, "git")) == {"git.commit"}


# -- tools under several paths ----------------------------------------------------------------------------------------

CODE, LINT, QUALITY = Category(("code",)), Category(("code", "lint"), tools=("ruff.*",)), Category(("quality",))


def test_a_tool_is_in_all_its_categories_and_the_first_is_primary() -> None:
    check = tool("ruff.check", tags=("style",))
    of = ontology(check, categories=[LINT, Category(("quality",), tagged=("style", "x"))])

    assert of.places(check) == (("code", "lint"), ("quality",), ("ruff",))
    assert [branch.path for branch in of.holders(check.id)] == [("code", "lint"), ("quality",), ("ruff",)]
    for path in (["code"], ["code", "lint"], ["quality"], ["ruff"]):
        assert of.within(at(of, *path)) == {"ruff.check"}
    assert counts(of)[ROOT] == 1


def test_the_deepest_of_nested_categories_holds_a_tool_that_both_claim() -> None:
    git = Category(("git", "write"), tools=("git.commit",))
    every = Category(("git",), tools=("git.*",))
    of = ontology(tool("git.commit"), tool("git.log"), categories=[every, git])

    assert of.places(of.tools["git.commit"]) == (("git", "write"),)
    assert of.tool_ids(at(of, "git")) == ("git.log",)
    assert counts(of) == {ROOT: 2, ("git",): 2, ("git", "write"): 1}


@pytest.mark.holds("goals.ontology")
def test_a_linked_node_is_the_same_node_under_every_parent() -> None:
    lint = Category(("code", "lint"), tools=("ruff.*",), also_under=(("quality",), ("team", "daily")))
    of = ontology(tool("ruff.check"), tool("daily.plan"), categories=[CODE, lint, QUALITY])
    here = at(of, "code", "lint")

    for way in (["quality", "lint"], ["team", "daily", "lint"], ["QUALITY", "Lint"]):
        assert of.find(way) is here
    assert here.path == ("code", "lint")
    assert below(of, "quality") == below(of, "team", "daily") == [("code", "lint")]
    assert below(of) == [("code",), ("daily",), ("quality",), ("team",)]


def test_a_tool_in_a_diamond_of_nodes_counts_once_at_every_level() -> None:
    #        a         tools hang in d; d hangs under b and c, and both of these under a
    #      b   c
    #        d
    of = ontology(
        tool("s.x"),
        tool("s.y"),
        categories=[
            Category(("a",)),
            Category(("a", "b")),
            Category(("a", "c")),
            Category(("a", "b", "d"), tools=("s.*",), also_under=(("a", "c"),)),
        ],
    )

    told = counts(of)
    assert set(told.values()) == {2}
    assert of.within(at(of, "a")) == {"s.x", "s.y"}
    assert at(of, "a", "c", "d") is at(of, "a", "b", "d")


def test_a_source_with_all_tools_in_categories_is_not_shown_at_the_top() -> None:
    of = ontology(tool("ruff.check"), tool("git.log"), categories=[LINT])

    assert below(of) == [("code",), ("git",)]
    assert of.tool_ids(at(of, "ruff")) == ("ruff.check",)


def test_a_source_with_a_tool_outside_categories_is_shown_with_all_its_tools() -> None:
    of = ontology(tool("ruff.check"), tool("ruff.format"), categories=[Category(("code",), tools=("ruff.check",))])

    assert below(of) == [("code",), ("ruff",)]
    assert of.tool_ids(at(of, "ruff")) == ("ruff.check", "ruff.format")


def test_a_category_without_tools_is_absent() -> None:
    of = ontology(tool("git.log"), categories=[CODE, LINT, Category(("quality",), also_under=(("git",),))])

    assert below(of) == [("git",)]
    assert below(of, "git") == []
    assert of.find(["quality"]) is None


def test_a_link_to_the_existing_parent_changes_nothing() -> None:
    lint = Category(("code", "lint"), tools=("ruff.*",), also_under=(("code",),))
    of = ontology(tool("ruff.check"), categories=[lint])

    assert below(of, "code") == [("code", "lint")]
    assert of.find(["CODE", "LINT"]) is at(of, "code", "lint")
    assert at(of, "code").count == 1


def test_a_node_may_be_linked_at_the_top() -> None:
    deep = Category(("code", "lint"), tools=("ruff.*",), also_under=(ROOT,))
    of = ontology(tool("ruff.check"), categories=[deep])

    assert below(of) == [("code",), ("code", "lint")]
    assert of.find(["lint"]) is at(of, "code", "lint")


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_node_with_only_links_is_reachable_in_any_order_of_definition(is_reversed: bool) -> None:
    made = [
        Category(("Top",), also_under=(("Roof", "Ridge"),)),
        Category(("Quality",), also_under=(("Top",),)),
        Category(("Coding",), tools=("ide.*",), also_under=(("Quality",), ("Top", "Inner"))),
    ]
    of = ontology(tool("ide.rename"), categories=made[::-1] if is_reversed else made)

    assert counts(of) == dict.fromkeys([ROOT, *of.nodes], 1)
    assert {("Top",), ("Top", "Inner"), ("Quality",), ("Roof",), ("Roof", "Ridge")} <= {*of.nodes}
    for way in (["Top", "Quality", "Coding"], ["Roof", "Ridge", "Top", "Inner", "Coding"]):
        assert of.find(way) is at(of, "Coding")


def test_a_node_may_be_linked_under_a_path_that_contains_a_link() -> None:
    lint = Category(("code", "lint"), tools=("ruff.*",), also_under=(("quality",),))
    strict = Category(("deep", "strict"), tools=("mypy.*",), also_under=(("quality", "lint"),))
    of = ontology(tool("ruff.check"), tool("mypy.run"), categories=[strict, lint])

    assert below(of, "quality") == [("code", "lint")]
    assert of.find(["code", "lint", "strict"]) is at(of, "deep", "strict")
    assert at(of, "code").count == 2


# -- groups -----------------------------------------------------------------------------------------------------------


def many(count: int) -> list[Tool]:
    things = ["invoice", "calendar", "picture", "message"]
    return [tool(f"s.t{number}", f"Change the {things[number % 4]} of somebody.") for number in range(count)]


def test_a_node_with_more_than_a_dozen_tools_shows_groups() -> None:
    dozen, more = ontology(*many(12)), ontology(*many(40))

    assert dozen.children(at(dozen, "s")) == ()
    assert len(dozen.tool_ids(at(dozen, "s"))) == 12
    assert more.tool_ids(at(more, "s")) == ()
    groups = more.children(at(more, "s"))
    assert sorted(tool_id for group in groups for tool_id in more.within(group)) == sorted(more.tools)
    for group in groups:
        assert more.find(group.path) is group
        assert group.count == len(more.within(group))
        assert more.node(group).path == group.path
    (holder,) = more.holders("s.t7")
    assert holder in groups
    assert "s.t7" in more.within(holder)


IN_A_CATEGORY: list[tuple[list[Tool], list[Category]]] = [
    (many(40), [Category(("Made",), tools=("s.*",))]),
    ([replace(each, metadata=ToolMetadata(category=("Made",))) for each in many(40)], []),
    ([replace(each, source="Made", own_path=("inside",)) for each in many(40)], []),
    (many(40), [Category(("s",), tools=("s.*",))]),
    ([replace(each, metadata=ToolMetadata(category=("s",))) for each in many(40)], []),
]


@pytest.mark.parametrize(("tools", "made"), IN_A_CATEGORY)
def test_tools_of_a_category_are_not_grouped(tools: list[Tool], made: list[Category]) -> None:
    of = ontology(*tools, categories=made)
    here = at(of, *of.places(tools[0])[0])

    assert of.children(here) == ()
    assert of.tool_ids(here) == tuple(sorted(of.tools))


def test_a_category_is_grouped_if_its_owner_enables_it() -> None:
    of = ontology(*many(40), categories=[Category(("Made",), tools=("s.*",), group=True)])
    here = at(of, "Made")

    assert of.children(here)
    assert of.tool_ids(here) == ()
    assert of.grouped_tool_ids(here) == tuple(sorted(of.tools))


def test_a_described_source_groups_only_the_tools_it_does_not_claim() -> None:
    made = [Category(("s",), summary="All there is.", tools=("other.*",))]
    of = ontology(*many(40), tool("other.t"), categories=made)

    assert of.children(at(of, "s"))
    assert of.tool_ids(at(of, "s")) == ("other.t",)


def test_a_category_with_many_nodes_is_grouped_only_if_its_owner_enables_it() -> None:
    def below_made(*, group: bool) -> list[Branch]:
        parts = [Category(("Made", f"part {number:02}"), tools=(f"s.t{number}",)) for number in range(60)]
        of = ontology(*many(60), categories=[Category(("Made",), group=group), *parts])
        return [*of.children(at(of, "Made"))]

    assert [branch.name for branch in below_made(group=False)] == [f"part {number:02}" for number in range(60)]
    assert any(branch.is_group for branch in below_made(group=True))


def test_a_group_never_shadows_a_node_with_the_same_name() -> None:
    linked = Category(("x", "invoice"), tools=("o.*",), also_under=(("s",),))
    of = ontology(*many(40), tool("s.own", category=("calendar",)), tool("o.other"), categories=[linked])

    for child in of.children(at(of, "s")):
        assert of.find(["s", child.name]) is child
    assert of.within(at(of, "s")) == of.tools.keys()


def test_groups_and_summaries_are_shared_between_views_of_the_same_tools() -> None:
    tools = many(40)
    one, other = ontology(*tools, tool("a.x")), ontology(*reversed(tools), tool("b.y"), tool("b.z"))

    for mine, theirs in zip(one.children(at(one, "s")), other.children(at(other, "s")), strict=True):
        assert mine.path == theirs.path
        assert one.node(mine).summary is other.node(theirs).summary
        assert one.within(mine) == other.within(theirs)


def test_only_a_limited_number_of_tools_is_read_to_group_search_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.catalog.ontology.MAX_READ", 70)
    of = ontology(*(replace(each, source=source) for source in "abc" for each in many(40)))
    held = dict(of.holders_of(["a.t1", "b.t1", "a.t2", "c.t1", "none.t1"]))

    assert [len(held[tool_id].path) for tool_id in ("a.t1", "b.t1", "a.t2", "c.t1")] == [2, 1, 2, 1]
    assert held["a.t1"] in of.children(at(of, "a"))
    assert held["b.t1"] is at(of, "b")
    assert "none.t1" not in held


class Together(dict[str, Tool]):
    """Each read of a tool waits briefly until a second thread reads as well."""

    meeting = threading.Barrier(2)

    def __getitem__(self, tool_id: str) -> Tool:
        with suppress(threading.BrokenBarrierError):
            self.meeting.wait(timeout=0.2)
        return super().__getitem__(tool_id)

    def items(self) -> Any:
        return [(tool_id, self[tool_id]) for tool_id in self]


def test_two_threads_get_the_same_nodes() -> None:
    tools = Together({each.id: each for each in many(40)})
    of = Ontology(tools, {})

    def root(_: int) -> Branch:
        return of.root

    def groups(_: int) -> tuple[Branch, ...]:
        return of.children(at(of, "s"))

    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(root, range(2))
        assert one is other
        tools.meeting.reset()
        first, second = threads.map(groups, range(2))
        assert first
        assert first == second


# -- names and sizes --------------------------------------------------------------------------------------------------

ODD_NAMES = ["", "a/b", "/", "\x00", "🧰", "ファイル", "ملفات", "é", "a" * 10_000, " ", "..", "*", "\ud800"]


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
def test_a_node_name_may_contain_any_characters(name: str) -> None:
    of = ontology(tool("s.x", category=(name, "inner")), tool("s.y", category=("other",)))

    assert below(of, "s", name) == [("s", name, "inner")]
    assert of.within(at(of, "s", name, "inner")) == {"s.x"}
    assert of.find(["s", f"{name}x"]) is None
    assert of.nearest(["s", name, "none", "deep"]) == (2, at(of, "s", name))
    of.search(name, limit=5)


def test_a_slash_in_a_name_does_not_split_a_path() -> None:
    of = ontology(tool("s.x", category=("a/b",)), tool("s.y", category=("a", "b")))

    assert of.within(at(of, "s", "a/b")) == {"s.x"}
    assert of.within(at(of, "s", "a", "b")) == {"s.y"}


def test_a_path_of_a_thousand_levels_is_supported() -> None:
    path = tuple(f"n{depth}" for depth in range(1_000))
    of = ontology(tool("s.deep", category=path), tool("s.half", category=path[:500]))

    assert of.within(at(of, "s", *path)) == {"s.deep"}
    assert (of.root.count, at(of, "s", *path[:500]).count, at(of, "s", *path).count) == (2, 2, 1)
    assert of.nearest(["s", *path, "more"]) == (1_001, at(of, "s", *path))
    assert of.search("n999", limit=1)[0][0] == ("s", *path)


def test_a_node_may_have_ten_thousand_children() -> None:
    of = ontology(*(tool(f"s.t{number}", category=(f"c{number:05}",)) for number in range(10_000)))

    children = [path for path in below(of, "s") if path in of.nodes]  # without groups, if there are any
    assert children == sorted(children)
    assert len(children) == 10_000
    assert at(of, "s").count == 10_000


# -- laws -------------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from("abAé")
PATHS = st.lists(NAMES, max_size=3).map(tuple)
TOOLS = st.lists(PATHS, max_size=12).map(
    lambda paths: [tool(f"s{n % 2}.t{n}", category=path, tags=(str(n % 3),)) for n, path in enumerate(paths)]
)


@st.composite
def categories(draw: st.DrawFn) -> list[Category]:
    """Categories without a cycle: a category is linked only under earlier ones."""
    paths = [
        ("s0",),
        ("s1", "a"),
        *sorted(draw(st.sets(st.lists(NAMES, min_size=1, max_size=3).map(tuple), max_size=5))),
    ]
    made: list[Category] = []
    for number, path in enumerate(paths[2:], start=2):
        uppers = [upper for upper in paths[:number] if upper[: len(path)] != path]
        made.append(
            Category(
                path,
                tools=tuple(draw(st.sets(st.sampled_from(["s0.*", "*.t1", "*.t[2-5]", "s1.t7"]), max_size=2))),
                tagged=tuple(draw(st.sets(st.sampled_from("012"), max_size=1))),
                also_under=tuple(draw(st.sets(st.sampled_from(uppers), max_size=2))) if uppers else (),
            )
        )
    return made


@settings(max_examples=examples(200), deadline=None)
@given(TOOLS, categories())
def test_every_path_down_reaches_exactly_the_tools_it_counts(tools: list[Tool], made: list[Category]) -> None:
    of = ontology(*tools, categories=made)

    def reached(branch: Branch, way: tuple[str, ...]) -> set[str]:
        assert of.find(branch.path) is branch
        found = set(branch.tool_ids)
        for child in {*branch.below.values(), *branch.linked}:
            found |= reached(child, (*way, child.name))
        assert found == of.within(branch)
        assert branch.count == len(found) > 0 or branch is of.root
        return found

    assert reached(of.root, ()) == {tool.id for tool in tools}
    for each in tools:
        primary, *_ = of.places(each)
        assert each.id in of.within(at(of, *primary))
        assert {branch.path for branch in of.holders(each.id)} == {*of.places(each)}


@pytest.mark.holds("goals.ontology")
@settings(max_examples=examples(200), deadline=None)
@given(TOOLS, categories())
def test_every_tool_is_reachable_from_the_top_through_visible_nodes(tools: list[Tool], made: list[Category]) -> None:
    of = ontology(*tools, categories=made)
    found, waiting, seen = set[str](), [of.root], {of.root}
    while waiting:
        branch = waiting.pop()
        found |= {*of.tool_ids(branch)}
        new = [child for child in of.children(branch) if child not in seen]
        seen.update(new)
        waiting += new

    assert found == {tool.id for tool in tools}


@settings(max_examples=examples(100), deadline=None)
@given(TOOLS, categories())
def test_nodes_and_counts_do_not_depend_on_the_order_of_the_tools(tools: list[Tool], made: list[Category]) -> None:
    one, other = ontology(*tools, categories=made), ontology(*reversed(tools), categories=made)

    assert counts(one) == counts(other)
    assert [*one.nodes] == [*other.nodes]
    for path in one.nodes:
        assert below(one, *path) == below(other, *path)
