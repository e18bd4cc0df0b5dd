"""`toolcrib eval` on a catalog so small that its metrics can be worked out by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from tests.cli.running import toolcrib

TOOLS = [
    {"id": "t1", "name": "send_mail", "description": "Send a letter to somebody.", "server": "post"},
    {"id": "t2", "name": "water_garden", "description": "Water the garden.", "server": "garden"},
    {"id": "t3", "name": "paint_fence", "description": "Paint the fence.", "server": "garden"},
]

QUERIES = [
    {"query": "send a letter", "relevant": ["post.send_mail"]},
    {"query": "water the garden", "relevant": ["t2", "t1"]},
    {"query": "zzzz", "relevant": ["t3"]},
]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    tools, queries = tmp_path / "tools.jsonl", tmp_path / "queries.jsonl"
    tools.write_text("\n".join(json.dumps({**tool, "input_schema": {"type": "object"}}) for tool in TOOLS))
    queries.write_text("\n".join(json.dumps(query) for query in QUERIES))
    return ["--tools", str(tools), "--queries", str(queries)]


def test_known_metrics_come_out_whether_tools_are_named_by_id_or_by_row(files: list[str]) -> None:
    ended = toolcrib("eval", *files, "--json")
    assert ended.code == 0
    report = ended.json
    assert (report["queries"], report["tools"]) == (3, 3)
    # The first query finds its tool first, the second one of its two, the third none.
    assert report["metrics"]["recall@1"] == pytest.approx((1 + 1 / 2 + 0) / 3, abs=1e-4)
    assert report["metrics"]["mrr"] == pytest.approx((1 + 1 + 0) / 3, abs=1e-4)
    half = 1 / (1 + 1 / math.log2(3))
    assert report["metrics"]["ndcg@10"] == pytest.approx((1 + half + 0) / 3, abs=1e-4)
    shown = toolcrib("eval", *files)
    assert shown.code == 0
    assert "3 queries over 3 tools" in shown.out
    assert f"{report['metrics']['ndcg@10']:.3f}" in shown.out


def test_a_line_that_cannot_be_read_ends_with_2_and_is_named(files: list[str]) -> None:
    queries = Path(files[3])
    queries.write_text('{"query": "x", "relevant": []}')
    ended = toolcrib("eval", *files)
    assert ended.code == 2
    assert "line 1" in " ".join(ended.err.split())
