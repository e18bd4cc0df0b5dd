"""Metrics against values worked out by hand, and files of judged queries."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from toolcrib.core.errors import InvalidConfig
from toolcrib.evaluation import JudgedQuery, evaluate, read_queries


def judged(query: str, *relevant: str) -> JudgedQuery:
    return JudgedQuery(query, query, frozenset(relevant))


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


def test_a_query_with_more_relevant_tools_than_results_can_still_be_answered_perfectly() -> None:
    tools = [f"t{number:02}" for number in range(20)]

    evaluation = evaluate(lambda _, limit: tools[:limit], [judged("all", *tools)], tools=20)

    assert evaluation.ndcg_at_10 == pytest.approx(1.0)
    assert evaluation.recall_at_10 == pytest.approx(0.5)


def test_a_tool_that_is_returned_twice_counts_once() -> None:
    evaluation = evaluate(lambda _, __: ["a", "a"], [judged("q", "a", "b")], tools=2)

    assert evaluation.recall_at_5 == pytest.approx(0.5)


def test_the_wire_form_names_metrics_as_they_are_known() -> None:
    wire = evaluate(lambda _, __: ["x", "x", "y", "a"], [judged("q", "a")], tools=3).to_wire()

    assert wire == {
        "metrics": {"ndcg@10": 0.5, "recall@1": 0.0, "recall@5": 1.0, "recall@10": 1.0, "mrr": 0.3333},
        "queries": 1,
        "tools": 3,
    }


def test_no_queries_are_no_evaluation() -> None:
    with pytest.raises(ValueError, match="no query"):
        evaluate(lambda _, __: [], [], tools=0)


def test_queries_are_read_from_lines(tmp_path: Path) -> None:
    file = tmp_path / "queries.jsonl"
    file.write_text(
        '{"id": "q1", "query": "send a message\u2028now", "relevant": ["mail.send"], "note": 1}\n\n'
        '{"query": "日本語", "relevant": ["a", "b"]}\n',
        encoding="utf-8",
    )

    assert read_queries(file) == (
        JudgedQuery("q1", "send a message\u2028now", frozenset({"mail.send"})),
        JudgedQuery("3", "日本語", frozenset({"a", "b"})),
    )


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"relevant": ["a"]}', "`query`"),
        ('{"query": " ", "relevant": ["a"]}', "`query`"),
        ('{"query": "q"}', "`relevant`"),
        ('{"query": "q", "relevant": []}', "`relevant`"),
        ('{"query": "q", "relevant": "a"}', "`relevant`"),
        ('{"query": "q", "relevant": [1]}', "`relevant`"),
    ],
)
def test_a_malformed_line_is_named_with_its_file(tmp_path: Path, line: str, complaint: str) -> None:
    file = tmp_path / "queries.jsonl"
    file.write_text('{"query": "fine", "relevant": ["a"]}\n' + line, encoding="utf-8")

    with pytest.raises(InvalidConfig, match=complaint) as caught:
        read_queries(file)

    assert "queries.jsonl, line 2" in caught.value.message


def test_a_file_that_holds_nothing_or_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")

    for name, complaint in [("empty.jsonl", "holds no query"), ("absent.jsonl", "cannot be read")]:
        with pytest.raises(InvalidConfig, match=complaint):
            read_queries(tmp_path / name)
