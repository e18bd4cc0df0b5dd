"""Nodes, counted and described from the tools that hang in them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.catalogs import tool

from toolcrib.catalog.ontology import Node, Ontology, primary_path
from toolcrib.core.tools import ROOT, Path, Tool


def ontology(*tools: Tool, described: dict[Path, Node] | None = None) -> Ontology:
    return Ontology(described or {}, {tool.id: tool for tool in tools})


def test_a_tool_stands_below_its_source_in_its_category() -> None:
    assert primary_path(tool("git.commit")) == ("git",)
    assert primary_path(tool("git.commit", category=("history", "write"))) == ("git", "history", "write")


def test_every_node_counts_the_tools_at_and_below_it() -> None:
    of = ontology(
        tool("git.commit", category=("history",)), tool("git.log", category=("history", "read")), tool("fs.read")
    )

    assert of.counts == {ROOT: 3, ("git",): 2, ("git", "history"): 2, ("git", "history", "read"): 1, ("fs",): 1}


def test_an_empty_catalog_has_its_root_and_nothing_else() -> None:
    assert ontology().counts == {ROOT: 0}
    assert ROOT in ontology()
    assert ("git",) not in ontology(described={("git",): Node(("git",))})


def test_children_stand_in_the_order_of_their_names_whatever_their_case() -> None:
    of = ontology(tool("b.x"), tool("C.x"), tool("a.x"), tool("c.x"))

    assert of.children[ROOT] == (("a",), ("b",), ("C",), ("c",))


def test_a_node_that_somebody_described_says_so() -> None:
    git = Node(("git",), "Git", "Version control.", ("vcs",))

    assert ontology(tool("git.commit"), described={("git",): git}).node(("git",)) == git


def test_a_node_without_a_summary_tells_what_is_in_it_and_keeps_the_rest() -> None:
    of = ontology(tool("git.commit"), tool("git.add"), described={("git",): Node(("git",), "Git", tags=("vcs",))})

    assert of.node(("git",)) == Node(("git",), "Git", "add, commit", ("vcs",))


def test_a_summary_that_is_made_up_speaks_of_children_before_tools_and_of_six_at_most() -> None:
    many = ontology(*(tool(f"git.t{number}") for number in range(9)))

    assert many.node(("git",)).summary == "t0, t1, t2, t3, t4, t5 and 3 more"
    assert ontology(tool("git.commit", category=("write",)), tool("git.log")).node(("git",)).summary == "write"


PATHS = st.lists(st.sampled_from("abAé"), max_size=3).map(tuple)


@given(st.lists(PATHS, max_size=12))
def test_walking_the_children_from_the_root_reaches_every_tool_once(categories: list[Path]) -> None:
    of = ontology(*(tool(f"s{number % 2}.t{number}", category=path) for number, path in enumerate(categories)))

    def walk(path: Path) -> list[str]:
        here = list(of.tools_at.get(path, ()))
        below = [walk(child) for child in of.children.get(path, ())]
        assert of.counts[path] == len(here) + sum(map(len, below))
        found = [*here, *(tool_id for ids in below for tool_id in ids)]
        assert sorted(of.within(path)) == sorted(found)
        return found

    assert sorted(walk(ROOT)) == sorted(of.tools)


def test_a_path_holds_what_is_below_it_and_not_what_only_begins_like_it() -> None:
    of = ontology(tool("git.commit"), tool("github.issue"))

    assert list(of.within(("git",))) == ["git.commit"]
