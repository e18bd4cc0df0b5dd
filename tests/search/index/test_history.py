"""Past requests as a signal: what they say of tools, how much that counts, and that hidden calls leave no trace."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.knowing import past_of_traces

from toolcrib.core.tools import Tool
from toolcrib.search.index.fields import document
from toolcrib.search.index.history import MOST_OF_A_TOOL, Confirmed, History
from toolcrib.search.index.index import Index, Selection
from toolcrib.search.index.query import Query
from toolcrib.search.index.ranking import Knowledge
from toolcrib.search.index.weights import WEIGHTS

WORDS = ["send", "mail", "invoice", "weather", "berlin", "commit", "branch", "image"]
TOOLS = ["mail.send", "mail.find", "git.log", "git.push", "sky.today"]

texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)
moments = st.integers(0, 50).map(float)


def confirmed(text: str, tool_id: str, at: float = 0.0) -> Confirmed:
    return Confirmed(Query.parse(text), tool_id, at)


tools = st.sampled_from(TOOLS)
traces = st.none() | st.tuples(st.sampled_from(["ada", "bob"]), st.sampled_from("123"))
queries = texts.map(Query.parse)
pasts = st.lists(st.builds(Confirmed, queries, tools, moments, traces, st.frozensets(tools, max_size=2)), max_size=30)


def prior(history: History, text: str) -> Mapping[str, float]:
    return history.prior(Query.parse(text), WEIGHTS)


def index_of(*tools: tuple[str, str]) -> Index:
    """Of tools of the source `a`, each with a name and a description."""
    return Index.build(document(Tool("a", name, text)) for name, text in tools)


def weighed(history: History, selection: Selection, text: str, scores: Mapping[str, float]) -> dict[str, float]:
    """The scores of the selection's tools, which had those of `scores` before, or none."""
    arrays = [np.array([scores.get(i, 0.0) for i in p.segment.ids], np.float32) * p.mask for p in selection.parts]
    recall = history.over(selection.parts)
    found = recall.weighed(recall.history.votes(Query.parse(text), WEIGHTS), arrays, WEIGHTS)
    return {
        tool_id: float(score)
        for part, part_scores in zip(selection.parts, found, strict=True)
        for tool_id, score in zip(part.segment.ids, part_scores, strict=True)
        if tool_id in part
    }


def test_the_tool_that_served_the_same_request_before_has_all_of_the_prior() -> None:
    past = History.of([confirmed("send the invoice by mail", "mail.send"), confirmed("weather in Berlin", "sky.today")])
    assert prior(past, "Mail an invoice: send!") == pytest.approx({"mail.send": 1.0})
    assert prior(past, "an unheard-of matter") == {}
    assert prior(past, "") == {}


def test_requests_that_are_only_somewhat_alike_speak_less_for_a_tool() -> None:
    past = History.of([confirmed("send the invoice by mail", "mail.send"), confirmed("weather in Berlin", "sky.today")])
    assert 0 < prior(past, "send an invoice to the customer in Berlin")["mail.send"] < 0.7
    assert prior(past, "draw a sheep, a box, a rose, a fox, a king, and an invoice beneath") == {}, "below the floor"


def test_several_past_requests_say_more_than_one() -> None:
    one = [confirmed("send the invoice by mail", "mail.send"), confirmed("weather in Berlin", "sky.today")]
    more = [*one, confirmed("send an invoice to the customer", "mail.send")]
    asked = "send invoice 17 to my brother"
    assert prior(History.of(more), asked)["mail.send"] > prior(History.of(one), asked)["mail.send"]


def test_a_tool_that_served_a_request_once_counts_less_than_the_one_that_mostly_does() -> None:
    past = History.of(
        [*(confirmed("send mail", "mail.send", n) for n in range(10)), confirmed("send mail", "git.push")]
    )
    assert prior(past, "send mail")["mail.send"] == pytest.approx(1.0)
    assert prior(past, "send mail").get("git.push", 0.0) == 0.0


def test_of_each_tool_only_the_newest_requests_are_remembered() -> None:
    old, new = confirmed("send mail", "mail.send", at=1), confirmed("weather in Berlin", "sky.today", at=0)
    later = [confirmed(f"commit {number}", "mail.send", at=2 + number) for number in range(MOST_OF_A_TOOL)]
    past = History.of([old, new, *later])
    assert len(past) == MOST_OF_A_TOOL + 1
    assert prior(past, "send mail") == {}
    assert prior(past, "weather in Berlin"), "that of another tool stays, however old"


@given(pasts, st.sets(st.sampled_from(TOOLS)), st.lists(texts, min_size=1, max_size=4))
def test_restricted_to_some_tools_it_is_as_if_made_of_their_calls_alone(
    past: Sequence[Confirmed], visible: Collection[str], asked: Sequence[str]
) -> None:
    restricted = History.of(past).restricted(visible.__contains__)
    afresh = History.of(each for each in past if each.tool_id in visible)
    assert restricted.tool_ids == afresh.tool_ids
    assert len(restricted) == len(afresh)
    assert restricted.digest == afresh.digest
    assert restricted.same_source == afresh.same_source
    for text in asked:
        assert prior(restricted, text) == prior(afresh, text), "to the last digit"


@given(st.data(), pasts, texts)
def test_the_order_in_which_it_is_told_does_not_matter(data: st.DataObject, past: list[Confirmed], asked: str) -> None:
    shuffled = data.draw(st.permutations(past))
    assert prior(History.of(past), asked) == prior(History.of(shuffled), asked)
    assert History.of(past).digest == History.of(shuffled).digest


@given(pasts, texts, st.dictionaries(st.sampled_from(TOOLS), st.floats(0, 40, width=32)))
def test_what_the_past_adds_is_capped_and_who_has_none_is_left_alone(
    past: Sequence[Confirmed], asked: str, scores: Mapping[str, float]
) -> None:
    index = Index.build(document(Tool(source, name)) for source, name in (tool_id.split(".") for tool_id in TOOLS))
    history = History.of(past)
    assert all(0 < value <= 1 for value in prior(history, asked).values())
    top = max(scores.values(), default=0.0) or 1.0
    for tool_id, after in weighed(history, index.whole(), asked, scores).items():
        before = scores.get(tool_id, 0.0)
        if tool_id not in history.tool_ids:
            assert after == before
        else:
            assert 0 <= after <= (before + WEIGHTS.history * (1 + WEIGHTS.history_sure) * top) * (1 + 1e-6)
            assert after * (1 + WEIGHTS.history) >= before * (1 - 1e-6)


def test_a_tool_that_served_before_rises_above_one_whose_words_fit_as_well() -> None:
    index = index_of(("log", "commits"), ("show", "commits"))
    past = History.of([confirmed("what changed lately", "a.show")])
    after = weighed(past, index.whole(), "what changed lately?", {"a.log": 3.0, "a.show": 2.9})
    assert after["a.show"] > after["a.log"] == 3.0


def test_what_served_the_same_request_stands_first_however_little_its_words_fit() -> None:
    index = index_of(("log", "commits"), ("show", "commits"))
    past = History.of([confirmed("what changed lately", "a.show")])
    after = weighed(past, index.whole(), "what changed lately?", {"a.log": 3.0, "a.show": 0.1})
    assert after["a.show"] > after["a.log"] == 3.0


def test_a_tool_that_was_never_called_does_not_sink_beneath_one_that_served_something_alike() -> None:
    index = index_of(("circle", "area"), ("triangle", "area"))
    past = History.of([confirmed("area of a triangle of height 5", "a.triangle"), confirmed("weather", "a.sky")])
    asked = "area of a circle of radius 5"
    assert prior(past, asked), "it is alike"
    after = weighed(past, index.whole(), asked, {"a.circle": 9.0, "a.triangle": 6.5})
    assert after["a.circle"] == 9.0 > after["a.triangle"]


def test_calls_of_tools_that_are_not_visible_leave_no_trace_in_the_scores() -> None:
    tools = [("log", "commits"), ("show", "commits"), ("secret", "commits")]
    calls = [confirmed("show commits", "a.show"), confirmed("weather", "a.log")]
    hidden = [confirmed("show commits", "a.secret", n) for n in range(5)] + [confirmed("commits weather", "a.secret")]
    visible = index_of(*tools).select(lambda tool_id: tool_id != "a.secret")
    scores = {"a.log": 2.0, "a.show": 1.0, "a.secret": 3.0}
    told = weighed(History.of([*calls, *hidden]), visible, "show the commits", scores)
    assert told == weighed(History.of(calls), index_of(*tools[:2]).whole(), "show the commits", scores)


def test_where_no_words_match_what_served_before_is_all_that_is_found() -> None:
    index = index_of(("log", "commits"), ("show", "commits"))
    past = History.of([confirmed("what changed lately", "a.log")])
    after = weighed(past, index.whole(), "what changed lately?", {})
    assert [tool_id for tool_id, score in after.items() if score > 0] == ["a.log"]


def test_the_past_makes_surer_of_what_served_and_not_of_the_tools_beside_it() -> None:
    told = {
        "git.log": "Shows the commit logs.",
        "git.show": "Shows the contents of a commit.",
        "git.diff": "Shows differences between branches or commits.",
        "time.now": "Get current time in a specific timezone.",
    }
    index = Index.build(document(Tool(*tool_id.split("."), description=text)) for tool_id, text in told.items())
    asked = "show me the last commits"
    before = {hit.tool_id: hit.confidence for hit in index.search(asked, limit=9).hits}
    recall = History.of([confirmed(asked, "git.log")]).over(index.parts)
    first, *others = index.search(asked, limit=9, knowledge=Knowledge(recall=recall)).hits
    assert (first.tool_id, first.confidence > max(before.values())) == ("git.log", True)
    assert all(hit.confidence <= before[hit.tool_id] for hit in others)


def test_what_served_a_request_before_is_shown_where_its_words_alone_would_be_refused() -> None:
    index = Index.build([document(Tool("git", "log", "Shows the commit logs."))])
    asked = "what happened in the project lately"
    assert index.search(asked, limit=1).hits == ()
    recall = History.of([confirmed(asked, "git.log")]).over(index.parts)
    assert [hit.tool_id for hit in index.search(asked, limit=1, knowledge=Knowledge(recall=recall)).hits] == ["git.log"]


# -- tools that replaced others ---------------------------------------------------------------------------------------


def test_a_call_that_a_different_tool_replaced_counts_half() -> None:
    doubted = replace(confirmed("send mail", "mail.find"), replaced_by=frozenset({"mail.send", "git.log"}))
    replacing = [confirmed("mail it", "mail.send"), confirmed("commit", "git.log")]
    alone = prior(History.of([doubted, *replacing]), "send mail")
    assert alone["mail.find"] < 0.5
    again = [confirmed("send mail", "mail.find", at) for at in (1.0, 2.0)]
    assert prior(History.of([doubted, *again, *replacing]), "send mail")["mail.find"] == pytest.approx(1.0)
    beside = History.of([doubted, confirmed("send mail", "mail.send"), *replacing])
    assert prior(beside, "send mail")["mail.send"] == pytest.approx(1.0)
    assert prior(beside, "send mail")["mail.find"] == pytest.approx(alone["mail.find"])


# -- tools of one trace -----------------------------------------------------------------------------------------------


def test_how_often_traces_use_a_source_again_is_learned_and_nothing_without_evidence() -> None:
    assert past_of_traces().same_source == past_of_traces("mail.send", "git.log").same_source == 0.0
    assert 0 < past_of_traces("git.log git.push").same_source < 0.2, "one trace proves little"
    assert past_of_traces(*["git.log git.push"] * 95).same_source == pytest.approx(0.95)
    assert past_of_traces(*["git.log mail.send"] * 95).same_source == 0.0
    assert past_of_traces(*["git.log mail.send git.push"] * 95).same_source == pytest.approx(0.95 / 2)


def test_tools_that_followed_in_several_traces_and_in_many_of_all_are_named() -> None:
    past = past_of_traces(*["git.log git.push mail.send"] * 3, *["git.log mail.send"] * 2, *["sky.today git.log"] * 9)
    assert past.following("git.log") == ("mail.send",), "git.push followed in 3 of 14 traces"
    assert past.following("git.push") == ("mail.send",)
    assert past.following("sky.today") == ("git.log",)
    assert past.following("mail.send") == past.following("mail.find") == past.following("") == ()
    assert past_of_traces(*["git.log git.push"] * 2).following("git.log") == (), "two traces are few"


def test_a_tool_that_is_called_again_and_again_in_one_trace_counts_once() -> None:
    assert past_of_traces(" ".join(["git.log git.push"] * 9)).following("git.log") == ()


NEIGHBOURS = past_of_traces(*["git.log git.push", "mail.send mail.find"] * 9, *["git.log mail.send"] * 3)


def lifted(
    used: Collection[str], tools: Collection[str], hidden: Collection[str] = ()
) -> dict[str, tuple[float, float]]:
    """The score and confidence of each visible tool that matches, in a trace that used these tools."""
    documents = (document(Tool(*tool_id.split("."), description="Shows the log")) for tool_id in tools)
    index = Index.build(documents, weights=WEIGHTS.without("history").refusing_nothing())
    visible = index.select(lambda tool_id: tool_id not in hidden)
    recall = replace(NEIGHBOURS.over(visible.parts), used=frozenset(used))
    found = index.search("show the log", limit=50, visible=visible, knowledge=Knowledge(recall=recall))
    return {hit.tool_id: (hit.score, hit.confidence) for hit in found.hits}


def test_other_tools_of_a_used_source_rise_and_nothing_else_changes_to_the_last_digit() -> None:
    before, after = lifted([], TOOLS), lifted(["git.push"], TOOLS)
    assert {*before} == {*after} == {*TOOLS}
    changed = {tool_id for tool_id in TOOLS if before[tool_id] != after[tool_id]}
    assert changed == {"git.log"}
    assert next(iter(after)) == "git.log"
    assert after["git.log"][1] <= max(confidence for _, confidence in before.values()), "it is no surer that one fits"


def test_a_used_tool_that_is_hidden_raises_nothing() -> None:
    visible = [tool_id for tool_id in TOOLS if tool_id != "git.push"]
    assert lifted(["git.push"], TOOLS, hidden=["git.push"]) == lifted([], visible) == lifted(["git.push"], visible)


def test_where_all_tools_are_of_one_source_that_source_says_nothing() -> None:
    tools = ["git.log", "git.push", "git.show"]
    assert lifted(["git.push"], tools) == lifted([], tools)


def test_a_trace_without_evidence_from_the_past_changes_nothing() -> None:
    index = Index.build(document(Tool(*tool_id.split("."), description="Shows the log")) for tool_id in TOOLS)
    recall = past_of_traces(*["git.log mail.send"] * 9).over(index.parts)
    used = replace(recall, used=frozenset({"git.log"}))
    one, other = (index.search("show the log", limit=50, knowledge=Knowledge(recall=each)) for each in (recall, used))
    assert one == other
    assert used.mark(index.parts) == recall.mark(index.parts)
