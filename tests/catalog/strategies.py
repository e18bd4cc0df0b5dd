"""Generated tools, rules and categories, made of few words so that conditions match and names collide."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from tests.catalogs import tool

from toolcrib.catalog.access import HINTS, Access, Rule, Rules
from toolcrib.catalog.categories import Category
from toolcrib.core.principal import Principal
from toolcrib.core.tools import Path, Tool, ToolAnnotations

SOURCES = ("files", "Files", "git")
TAGS = ("x", "y")
PRINCIPALS = tuple(
    Principal(name, frozenset(scopes)) for name in ("ada", "grace") for scopes in ((), ("write",), ("write", "admin"))
)

ANNOTATIONS = st.builds(
    ToolAnnotations,
    read_only=st.booleans(),
    destructive=st.booleans(),
    idempotent=st.booleans(),
    open_world=st.booleans(),
)
CATEGORIES = st.sampled_from([(), ("read",), ("Read",), ("read", "deep")])
TAGGED = st.sampled_from([(), ("x",), ("y",), ("x", "y")])


@st.composite
def tools(draw: st.DrawFn, *, max_size: int = 10, names: str = "abcdefAB") -> list[Tool]:
    """Tools with different ids."""
    ids = st.builds("{}.{}".format, st.sampled_from(SOURCES), st.sampled_from(names))
    made = draw(
        st.lists(
            st.builds(
                tool,
                ids,
                st.sampled_from(["Read a file", "Write a shared file", "shared alpha", "beta", ""]),
                category=CATEGORIES,
                tags=TAGGED,
                properties=st.sampled_from([{}, {"path": {"type": "string"}}]),
            ),
            max_size=max_size,
            unique_by=lambda t: t.id,
        )
    )
    return [replace(each, annotations=draw(ANNOTATIONS)) for each in made]


@st.composite
def many_tools(draw: st.DrawFn) -> list[Tool]:
    """Enough tools for nodes to be grouped, and some tools in other categories."""
    things = draw(st.lists(st.sampled_from(["invoice", "calendar", "file", "picture"]), min_size=14, max_size=20))
    crowd = [
        tool(f"git.{thing}{number}", f"Change the {thing}, shared.", tags=draw(TAGGED), properties={})
        for number, thing in enumerate(things)
    ]
    return [*crowd, *draw(tools(max_size=4, names="abc"))]


def _several(*choices: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.just(()) | st.lists(st.sampled_from(choices), min_size=1, max_size=2).map(tuple)


PATHS: st.SearchStrategy[tuple[Path, ...]] = st.just(()) | st.lists(
    st.sampled_from([("files",), ("git", "read"), ("Files", "Read"), ("code",), ("code", "lint"), ("quality",)]),
    min_size=1,
    max_size=2,
).map(tuple)


def _or_none(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Without empty values, which a rule must not have."""
    return values.map(lambda value: value or None)


RULES = st.builds(
    Rules,
    st.lists(
        st.builds(
            Rule,
            st.sampled_from(Access),
            principals=_or_none(_several("ada", "g*", "*")),
            scopes=_or_none(_several("write", "admin")),
            paths=_or_none(PATHS),
            tags=_or_none(_several(*TAGS)),
            sources=_or_none(_several("files", "[Ff]iles", "g?t")),
            tools=_or_none(_several("*.a", "git.*", "files.[a-c]", "git.invoice1*")),
            annotations=_or_none(st.dictionaries(st.sampled_from(HINTS), st.booleans(), max_size=2)),
        ),
        max_size=4,
    ).map(tuple),
    st.sampled_from(Access),
)
"""Every policy that a configuration file can express."""

SET_UP: st.SearchStrategy[list[Category]] = st.lists(
    st.sampled_from(
        [
            Category(("code",), summary="All about code."),
            Category(("code", "lint"), tools=("*.a", "git.file*"), also_under=(("quality",),)),
            Category(("quality",), tagged=("y",)),
            Category(("team",), tagged=("x",), also_under=(("quality",), ("git",))),
            Category(("git", "read"), tools=("git.c", "git.calendar*")),
        ]
    ),
    max_size=4,
    unique_by=lambda category: category.path,
)
"""Categories without a cycle."""
