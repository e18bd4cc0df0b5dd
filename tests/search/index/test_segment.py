"""Packed postings keep what is known of each tool, however they are merged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.search.index.strategies import DOCUMENTS, IDS, unique

from toolcrib.search.index.fields import Document
from toolcrib.search.index.segment import Part, Segment, merged, segment
from toolcrib.search.index.weights import WEIGHTS


def _told(packed: Segment) -> dict[str, object]:
    """All that a segment knows of each of its tools."""
    origins, impacts = [*packed.origin_of_each()], dict[tuple[str, str], float]()
    for term in packed.terms:
        found = packed.postings(term)
        assert found is not None
        assert len(found[0]) > 0
        assert (found[0][1:] > found[0][:-1]).all()
        impacts |= {(packed.ids[at], term): gain for at, gain in zip(found[0], found[1].tolist(), strict=True)}
    return {
        tool_id: (
            packed.keys[at],
            packed.has_parameters[at],
            packed.lengths[at],
            origins[at],
            {term: gain for (holder, term), gain in impacts.items() if holder == tool_id},
        )
        for tool_id, at in packed.positions.items()
    }


@given(st.lists(DOCUMENTS, min_size=1), st.lists(DOCUMENTS, min_size=1), st.sets(IDS))
def test_what_is_merged_is_what_would_be_packed_of_the_same_tools(
    first: list[Document], second: list[Document], removed: set[str]
) -> None:
    taken = {each.tool_id for each in second}
    parts = [
        Part.whole(segment(unique(first), WEIGHTS)).without({*removed, *taken}),
        Part.whole(segment(unique(second), WEIGHTS)).without(removed),
    ]
    left = [each for each in unique([*first, *second]) if each.tool_id not in removed]
    together, afresh = merged(parts), segment(left, WEIGHTS)

    assert together.ids == afresh.ids == tuple(sorted(each.tool_id for each in left))
    assert _told(together) == _told(afresh)
    assert {each.tool_id: each.origin for each in left} == dict(
        zip(together.ids, together.origin_of_each(), strict=True)
    )
    assert {each.tool_id: each.key for each in left} == dict(zip(together.ids, together.keys.tolist(), strict=True))
    assert set(together.origins) == {each.origin for each in left}, "nothing is left of origins that are gone"
    assert together.nbytes == afresh.nbytes


def test_runs_are_of_one_origin_each_and_as_long_as_they_can_be() -> None:
    names = {"a-b.x": "a-b", "a.one": "a", "a.two": "a", "a.two.b": "a.two", "a.z": "a", "b.x": "b"}
    packed = segment([Document(tool_id, origin=origin) for tool_id, origin in names.items()], WEIGHTS)

    assert packed.runs.tolist() == [0, 1, 3, 4, 5]
    assert [*packed.origin_of_each()] == [names[tool_id] for tool_id in packed.ids]
