"""Words that tools share, and what they are worth in a catalog that is too small to know it."""

from __future__ import annotations

from toolcrib.core.tools import Tool
from toolcrib.search.index.fields import document
from toolcrib.search.index.index import Index
from toolcrib.search.index.tokens import terms
from toolcrib.search.index.vocabulary import SHARES


def test_each_is_a_term_and_a_share() -> None:
    assert all(0 < share < 1 for share in SHARES.values())
    assert [term for term in SHARES if terms(term, keep_stopwords=True) not in ([term], [term[:-1]])] == []


def test_in_a_small_catalog_a_verb_of_all_tools_does_not_outweigh_what_is_asked_about() -> None:
    told = {
        "time.get_current_time": "Get current time in a specific timezone.",
        "git.git_diff_staged": "Shows changes that are staged for a commit.",
        "git.git_log": "Shows the commit logs.",
    }
    index = Index.build(document(Tool(*tool_id.split("."), description=text)) for tool_id, text in told.items())
    assert index.search("get rid of what I staged", limit=1).hits[0].tool_id == "git.git_diff_staged"


def test_a_request_that_shares_nothing_but_such_a_verb_is_not_taken_for_served() -> None:
    index = Index.build([document(Tool("time", "get_current_time", "Get current time in a specific timezone."))])
    (hit,) = index.search("get me a coffee", limit=1).hits or [None]
    assert hit is None or hit.confidence < 0.5
