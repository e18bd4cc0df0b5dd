"""Metrics compared with hand-computed values and a naive implementation, intervals, comparisons, floors and files."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.errors import InvalidConfig
from toolcrib.search.evaluation import (
    METRICS,
    Answer,
    Comparison,
    Evaluation,
    Floor,
    Found,
    JudgedQuery,
    auroc,
    calibration_error,
    estimates,
    evaluate,
    read_queries,
)

TOOLS = [f"t{number:02}" for number in range(15)]


def judged(query: str, *relevant: str, category: str | None = None) -> JudgedQuery:
    return JudgedQuery(query, query, frozenset(relevant), () if category is None else (category,))


def found(*results: tuple[str, float]) -> tuple[Found, ...]:
    return tuple(Found(*result) for result in results)


def first_of(ranks: Sequence[int]) -> Evaluation:
    """Queries with one relevant tool at the given ranks; 0 means not found."""
    answers = (
        Answer(judged(f"q{at}", "right"), found(*[("right" if n == rank else f"x{n}", 0.5) for n in range(1, 11)]))
        for at, rank in enumerate(ranks)
    )
    return Evaluation(tuple(answers), tools=11)


# -- metrics ----------------------------------------------------------------------------------------------------------


def test_metrics_are_means_over_queries() -> None:
    rankings = {"first": ["a", "x", "b"], "second": ["x", "c"]}
    queries = [judged("first", "a", "b"), judged("second", "c")]

    evaluation = evaluate(lambda query, limit: rankings[query][:limit], queries, tools=7)

    assert evaluation.recall_at_1 == pytest.approx((1 / 2 + 0) / 2)
    assert evaluation.recall_at_5 == 1.0
    assert evaluation.mrr == pytest.approx((1 + 1 / 2) / 2)
    first = (1 + 1 / math.log2(4)) / (1 + 1 / math.log2(3))
    assert evaluation.ndcg_at_10 == pytest.approx((first + 1 / math.log2(3)) / 2)
    assert (evaluation.queries, evaluation.tools) == (2, 7)


def naive(ranked: Sequence[str], relevant: frozenset[str]) -> dict[str, float]:
    """Compute the metrics from their definitions, without the code under test."""
    gain = sum(1 / math.log2(ranked.index(tool) + 2) for tool in relevant if tool in ranked[:10])
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(len(relevant), 10) + 1))
    ranks = [rank for rank in range(1, 11) if rank <= len(ranked) and ranked[rank - 1] in relevant]
    recalls = {f"recall@{k}": len({*ranked[:k]} & relevant) / len(relevant) for k in (1, 5, 10)}
    return {"ndcg@10": gain / ideal, **recalls, "mrr": 1 / ranks[0] if ranks else 0.0}


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(TOOLS), unique=True, max_size=15),
            st.frozensets(st.sampled_from(TOOLS), min_size=1, max_size=12),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_metrics_match_their_definitions(cases: list[tuple[list[str], frozenset[str]]]) -> None:
    rankings = {f"q{at}": ranked for at, (ranked, _) in enumerate(cases)}
    queries = [JudgedQuery(f"q{at}", f"q{at}", relevant) for at, (_, relevant) in enumerate(cases)]

    evaluation = evaluate(lambda query, limit: rankings[query][:limit], queries, tools=len(TOOLS))

    expected = [naive(ranked, relevant) for ranked, relevant in cases]
    for metric in METRICS:
        assert evaluation.means[metric] == pytest.approx(np.mean([each[metric] for each in expected]))
        estimate = evaluation.metrics[metric]
        assert 0 <= estimate.low <= estimate.mean + 1e-12
        assert estimate.mean - 1e-12 <= estimate.high <= 1 + 1e-12


def test_more_relevant_tools_than_results_can_still_give_a_perfect_ndcg() -> None:
    tools = [f"t{number:02}" for number in range(20)]

    evaluation = evaluate(lambda _, limit: tools[:limit], [judged("all", *tools)], tools=20)

    assert evaluation.ndcg_at_10 == pytest.approx(1.0)
    assert evaluation.recall_at_10 == pytest.approx(0.5)


def test_a_tool_that_is_returned_twice_counts_once() -> None:
    evaluation = evaluate(lambda _, __: ["a", "a"], [judged("q", "a", "b")], tools=2)

    assert evaluation.recall_at_5 == pytest.approx(0.5)


def test_the_wire_form_uses_the_standard_metric_names() -> None:
    wire = evaluate(lambda _, __: ["x", "x", "y", "a"], [judged("q", "a")], tools=3).to_wire()

    assert wire == {
        "metrics": {"ndcg@10": 0.5, "recall@1": 0.0, "recall@5": 1.0, "recall@10": 1.0, "mrr": 0.3333},
        "intervals": {  # one query has no spread
            "ndcg@10": [0.5, 0.5],
            "recall@1": [0.0, 0.0],
            "recall@5": [1.0, 1.0],
            "recall@10": [1.0, 1.0],
            "mrr": [0.3333, 0.3333],
        },
        "queries": 1,
        "tools": 3,
        "refused": 0,
    }


@pytest.mark.parametrize("queries", [[], [judged("nothing serves this")]])
def test_an_evaluation_requires_a_query_with_a_relevant_tool(queries: list[JudgedQuery]) -> None:
    with pytest.raises(ValueError, match="no query"):
        evaluate(lambda _, __: [], queries, tools=0)


# -- queries without a relevant tool ----------------------------------------------------------------------------------


def test_queries_without_a_relevant_tool_are_evaluated_separately() -> None:
    pages: dict[str, tuple[Found, ...]] = {
        "served": found(("a", 0.9)),
        "refused": (),
        "other": found(("a", 0.4)),
        "rightly refused": (),
    }
    queries = [judged("served", "a"), judged("refused", "a"), judged("other"), judged("rightly refused")]

    evaluation = evaluate(lambda query, _: pages[query], queries, tools=1)

    assert evaluation.ndcg_at_10 == pytest.approx(0.5)
    assert (evaluation.queries, evaluation.refused) == (2, 1)
    wire = evaluation.to_wire()["nothing_here"]
    assert (wire["queries"], wire["refused"]) == (2, 1)
    # .9 is above .4 and 0, an empty page is below .4 and equal to the other empty page.
    assert wire["auroc"] == pytest.approx((1 + 1 + 0 + 0.5) / 4)
    # Two pages have a first result: .9 is right, .4 is wrong, and each is in its own bin.
    assert wire["calibration_error"] == pytest.approx((0.1 + 0.4) / 2)


def test_confidence_is_not_evaluated_if_every_query_has_a_relevant_tool() -> None:
    evaluation = evaluate(lambda _, __: ["a"], [judged("q", "a")], tools=1)

    assert evaluation.auroc is None
    assert evaluation.calibration_error is None
    assert "nothing_here" not in evaluation.to_wire()


def test_calibration_is_missing_if_no_page_has_a_result() -> None:
    evaluation = evaluate(lambda _, __: [], [judged("q", "a"), judged("other")], tools=1)

    assert evaluation.auroc == pytest.approx(0.5)
    assert evaluation.to_wire()["nothing_here"]["calibration_error"] is None


confidences = st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=20)


@given(confidences, confidences)
def test_auroc_is_the_share_of_correctly_ordered_pairs(served: list[float], others: list[float]) -> None:
    wins = [1.0 if one > other else 0.5 if one == other else 0.0 for one in served for other in others]
    assert auroc(served, others) == pytest.approx(np.mean(wins))


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=30))
def test_calibration_error_is_the_weighted_gap_of_the_bins(pairs: list[tuple[float, bool]]) -> None:
    expected = 0.0
    for number in range(10):
        members = [(said, true) for said, true in pairs if number == min(int(said * 10), 9)]
        if members:
            said, true = (float(np.mean([member[at] for member in members])) for at in (0, 1))
            expected += len(members) / len(pairs) * abs(said - true)
    assert calibration_error(*zip(*pairs, strict=True)) == pytest.approx(expected)


# -- intervals --------------------------------------------------------------------------------------------------------


def test_about_95_percent_of_the_intervals_contain_the_true_mean() -> None:
    random = np.random.default_rng(7)
    held = 0
    for _ in range(200):
        (estimate,) = estimates(random.beta(2, 5, size=(80, 1)))
        held += estimate.low <= 2 / 7 <= estimate.high
    assert 0.90 <= held / 200 <= 0.98


def test_the_width_of_an_interval_matches_the_standard_error() -> None:
    values = np.random.default_rng(1).random((3_000, 2))
    for column, estimate in enumerate(estimates(values)):
        error = values[:, column].std() / math.sqrt(3_000)
        assert estimate.mean == pytest.approx(values[:, column].mean())
        assert estimate.high - estimate.low == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_intervals_of_the_same_queries_are_deterministic() -> None:
    values = np.random.default_rng(3).random((50, 1))
    assert estimates(values) == estimates(values)


# -- categories and mistakes ------------------------------------------------------------------------------------------


def test_categories_are_sorted_worst_first_and_may_share_a_query() -> None:
    pages = {"good": ["a"], "bad": ["x", "a"], "empty": list[str]()}
    queries = [
        judged("good", "a", category="mail"),
        judged("bad", "a", category="files"),
        JudgedQuery("empty", "empty", frozenset({"a"}), ("mail", "files", "files")),
        judged("no category", "a"),
        judged("nothing serves this", category="none"),
    ]

    groups = evaluate(lambda query, _: pages.get(query, []), queries, tools=2).groups

    assert [(group.name, group.queries, group.refused) for group in groups] == [("files", 2, 1), ("mail", 2, 1)]
    assert groups[0].metrics["mrr"].mean == pytest.approx(0.25)
    assert groups[1].metrics["recall@1"].mean == pytest.approx(0.5)


def test_the_worst_answers_are_first_and_ties_are_ordered_by_confidence() -> None:
    pages = {
        "perfect": found(("a", 0.9)),
        "unsure": found(("x", 0.2)),
        "sure": found(("x", 0.8)),
        "second": found(("x", 1.0), ("a", 0.9)),
        "empty": found(),
    }
    evaluation = evaluate(lambda query, _: pages[query], [judged(name, "a") for name in pages], tools=2)

    assert [answer.judged.id for answer in evaluation.worst(9)] == ["sure", "unsure", "empty", "second"]
    assert [answer.judged.id for answer in evaluation.worst(1)] == ["sure"]


# -- comparisons ------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 10), min_size=1, max_size=30))
def test_equal_settings_have_a_difference_of_exactly_zero(ranks: list[int]) -> None:
    comparison = Comparison(first_of(ranks), first_of(ranks))

    for difference in comparison.differences.values():
        assert (difference.estimate.mean, difference.estimate.low, difference.estimate.high) == (0, 0, 0)
        assert (difference.better, difference.worse, difference.is_distinguishable) == (0, 0, False)
    assert comparison.most_changed(5) == ((), ())


def test_a_consistently_better_setting_is_distinguishable_in_both_directions() -> None:
    one, other = first_of([2] * 40 + [1] * 2), first_of([1] * 40 + [2] * 2)

    forth, back = (Comparison(*pair).differences["mrr"] for pair in ((one, other), (other, one)))

    assert forth.estimate.mean == pytest.approx(other.mrr - one.mrr)
    assert 0 < forth.estimate.low < forth.estimate.mean < forth.estimate.high
    assert (forth.better, forth.worse, forth.is_distinguishable) == (40, 2, True)
    assert back.estimate.mean == pytest.approx(-forth.estimate.mean)
    assert (back.better, back.worse, back.is_distinguishable) == (2, 40, True)


def test_a_setting_that_helps_and_hurts_equally_is_not_distinguishable() -> None:
    comparison = Comparison(first_of([1, 2] * 30), first_of([2, 1] * 30))

    assert not comparison.differences["mrr"].is_distinguishable


def test_fewer_than_six_changed_queries_are_never_distinguishable() -> None:
    few, enough = (Comparison(first_of([2] * count), first_of([1] * count)) for count in (5, 6))

    assert few.differences["mrr"].estimate.low > 0
    assert not few.differences["mrr"].is_distinguishable
    assert enough.differences["mrr"].is_distinguishable


def test_the_difference_is_paired() -> None:
    """Queries that are hard for both settings do not matter; without pairing, they would hide the difference."""
    one = first_of([1, 0] * 50)
    other = first_of([1, 10] * 50)

    difference = Comparison(one, other).differences["mrr"]

    assert one.metrics["mrr"].high > other.metrics["mrr"].low
    assert difference.is_distinguishable


def test_the_queries_with_the_largest_changes_are_listed() -> None:
    comparison = Comparison(first_of([1, 1, 2, 0, 5]), first_of([1, 0, 1, 1, 5]))

    better, worse = comparison.most_changed(5)

    assert [change.before.judged.id for change in better] == ["q3", "q2"]
    assert [(change.after.judged.id, change.gain) for change in worse] == [("q1", -1.0)]
    assert [change.gain for change in comparison.most_changed(1)[0]] == [1.0]


# -- floors -----------------------------------------------------------------------------------------------------------


def test_a_floor_applies_to_the_named_metric_or_to_ndcg_by_default() -> None:
    assert Floor.parse("0.8") == Floor("ndcg@10", 0.8)
    assert Floor.parse(" Recall@5 = .9 ") == Floor("recall@5", 0.9)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("precision=0.5", "unknown metric `precision`"),
        ("=0.5", "unknown metric"),
        ("mrr=", "not a number"),
        ("mrr=high", "`high` is not a number"),
        ("80", "not between"),
        ("-0.1", "not between"),
        ("nan", "not between"),
    ],
)
def test_an_invalid_floor_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Floor.parse(text)


def test_a_floor_is_missed_by_its_difference_to_the_mean() -> None:
    evaluation = first_of([1, 2, 4])  # MRR (1 + 1/2 + 1/4) / 3 = .58333

    assert Floor("mrr", 0.6).missed_by(evaluation) == pytest.approx(0.0167)
    assert Floor("mrr", 0.5833).missed_by(evaluation) == 0
    assert Floor("mrr", 0.1).missed_by(evaluation) == 0
    assert Floor("recall@1", 1 / 3).missed_by(evaluation) == 0


# -- files ------------------------------------------------------------------------------------------------------------


def test_queries_are_read_from_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "queries.jsonl"
    file.write_text(
        '\ufeff{"id": "q1", "query": "send a message\u2028now", "relevant": ["mail.send"], "note": 1}\n\n'
        '{"query": "日本語", "relevant": ["a", "b"], "category": ["Text", "Asian"]}\r\n'
        '{"query": "brew coffee", "relevant": [], "category": "Kitchen"}\n',
        encoding="utf-8",
    )

    assert read_queries(file) == (
        JudgedQuery("q1", "send a message\u2028now", frozenset({"mail.send"})),
        JudgedQuery("3", "日本語", frozenset({"a", "b"}), ("Text/Asian",)),
        JudgedQuery("4", "brew coffee", frozenset(), ("Kitchen",)),
    )


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"relevant": ["a"]}', "`query`"),
        ('{"query": " ", "relevant": ["a"]}', "`query`"),
        ('{"query": "q"}', "`relevant`"),
        ('{"query": "q", "relevant": "a"}', "`relevant`"),
        ('{"query": "q", "relevant": [1]}', "`relevant`"),
        ('{"query": "q", "relevant": ["a"], "category": 1}', "`category`"),
        ('{"query": "q", "relevant": ["a"], "category": ["x", 1]}', "`category`"),
    ],
)
def test_an_invalid_line_is_reported_with_file_and_line_number(tmp_path: Path, line: str, complaint: str) -> None:
    file = tmp_path / "queries.jsonl"
    file.write_text('{"query": "fine", "relevant": ["a"]}\n' + line, encoding="utf-8")

    with pytest.raises(InvalidConfig, match=complaint) as caught:
        read_queries(file)

    assert "queries.jsonl, line 2" in caught.value.message


def test_a_file_without_usable_queries_is_refused(tmp_path: Path) -> None:
    nothing = json.dumps({"query": "brew coffee", "relevant": []}).encode()
    for name, data, complaint in [
        ("empty.jsonl", b"\n", "contains no queries"),
        ("negatives.jsonl", nothing, "every `relevant` is empty"),
        ("latin.jsonl", b'{"query": "caf\xe9"}', "could not read"),
    ]:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InvalidConfig, match=complaint):
            read_queries(tmp_path / name)
    with pytest.raises(InvalidConfig, match="could not read"):
        read_queries(tmp_path / "absent.jsonl")
