"""`toolcrib eval` on catalogs that are small enough to check every number by hand."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.audit.auditing import performed, until_written
from tests.cli.running import toolcrib, toolcrib_process
from tests.cli.terminal import typed
from tests.search.embedders.models import WORDS, static_folder, vectors
from tests.servers import faulty
from tests.servers.launching import faulty_entry, write_config

from toolcrib.audit.redaction import REDACTED
from toolcrib.audit.store import AuditStore
from toolcrib.config.search_settings import DEFAULT_SEARCH
from toolcrib.search.embedders.pinned_models import GAIN
from toolcrib.search.index.weights import WEIGHTS

TOOLS = [
    {"id": "t1", "name": "send_mail", "description": "Send a letter to somebody.", "server": "post"},
    {"id": "t2", "name": "water_garden", "description": "Water the garden.", "server": "garden"},
    {"id": "t3", "name": "paint_fence", "description": "Paint the fence.", "server": "garden"},
]

QUERIES: list[dict[str, Any]] = [
    {"query": "send a letter", "relevant": ["post.send_mail"]},
    {"query": "water the garden", "relevant": ["t2", "t1"]},
    {"query": "zzzz", "relevant": ["t3"]},
]


ASKED: list[dict[str, Any]] = [
    {"query": "document", "relevant": ["send"]},
    {"query": "send", "relevant": ["send"]},
]


def lines(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    return lines(tmp_path / "tools.jsonl", ({**tool, "input_schema": {"type": "object"}} for tool in TOOLS))


@pytest.fixture
def files(tmp_path: Path, tools: Path) -> list[str]:
    return ["--tools", str(tools), "--queries", str(lines(tmp_path / "queries.jsonl", QUERIES))]


def test_metrics_are_correct_for_tools_named_by_id_or_by_row(files: list[str]) -> None:
    ended = toolcrib("eval", *files, "--json")
    assert ended.code == 0
    report = ended.json
    assert (report["queries"], report["tools"]) == (3, 3)
    # The first query finds its tool at rank 1, the second query one of its two tools, the third query no tool.
    assert report["metrics"]["recall@1"] == pytest.approx((1 + 1 / 2 + 0) / 3, abs=1e-4)
    assert report["metrics"]["mrr"] == pytest.approx((1 + 1 + 0) / 3, abs=1e-4)
    half = 1 / (1 + 1 / math.log2(3))
    assert report["metrics"]["ndcg@10"] == pytest.approx((1 + half + 0) / 3, abs=1e-4)
    assert (report["refused"], report["unknown"]) == (1, {})
    shown = toolcrib("eval", *files)
    assert shown.code == 0
    assert "3 queries over 3 tools" in shown.out
    assert "empty results for 1 of 3 (33.3%)" in shown.out
    for name, mean in report["metrics"].items():
        low, high = report["intervals"][name]
        (line,) = [
            line.split() for line in shown.out.partition("queries over")[0].splitlines() if line.startswith(f"{name} ")
        ]
        assert line == [name, f"{mean:.3f}", f"{low:.3f}", "to", f"{high:.3f}"]


def test_json_output_has_the_answer_to_every_query(files: list[str]) -> None:
    answers = toolcrib("eval", *files, "--json").json["answers"]
    assert [(answer["id"], answer["rank"], answer["refused"]) for answer in answers] == [
        ("1", 1, False),
        ("2", 1, False),
        ("3", None, True),
    ]
    assert answers[1]["relevant"] == ["garden.water_garden", "post.send_mail"]
    assert answers[1]["found"][0]["tool_id"] == "garden.water_garden"
    assert 0 < answers[1]["found"][0]["confidence"] <= 1


@pytest.mark.parametrize("text", ['{"query": "x"}', "{", '{"query": "", "relevant": []}'])
def test_an_invalid_line_exits_with_2_and_is_named(files: list[str], text: str) -> None:
    Path(files[3]).write_text(text)
    ended = toolcrib_process("eval", *files)
    assert ended.code == 2
    assert "line 1" in " ".join(ended.err.split())
    assert toolcrib("eval", *files, "--json").json["error"]["code"] == "INVALID_CONFIG"


# -- mistakes ---------------------------------------------------------------------------------------------------------


def test_the_worst_queries_are_explained(tmp_path: Path) -> None:
    tools = lines(
        tmp_path / "tools.jsonl",
        [
            {"id": "b", "name": "letter_box", "description": "Empty the letter box.", "server": "post"},
            {"id": "s", "name": "send", "description": "Send a letter, however long it may be.", "server": "post"},
            {"id": "g", "name": "water_garden", "description": "Water the garden.", "server": "garden"},
        ],
    )
    queries = lines(
        tmp_path / "queries.jsonl",
        [
            {"id": "above", "query": "Put it into the letter box!", "relevant": ["s"]},
            {"id": "no word", "query": "irrigate", "relevant": ["garden.water_garden"]},
            {"id": "no match", "query": "water the garden", "relevant": ["s", "g", "nowhere"]},
            {"id": "perfect", "query": "send", "relevant": ["s"]},
        ],
    )
    ended = toolcrib("eval", "--tools", tools, "--queries", queries, "--json")
    assert "no match: nowhere" in ended.err
    report = ended.json
    assert report["unknown"] == {"no match": ["nowhere"]}
    worst = {mistake["id"]: mistake for mistake in report["worst"]}
    assert [*worst] == ["no word", "no match", "above"]

    above = worst["above"]
    assert [(each["tool_id"], each["rank"], each["words"]) for each in above["above"]] == [
        ("post.letter_box", 1, ["letter", "box"])
    ]
    ((tool,),) = [above["relevant"]]
    assert (tool["tool_id"], tool["rank"], tool["words"]) == ("post.send", 2, ["letter"])
    assert above["above"][0]["confidence"] > tool["confidence"] > 0

    assert worst["no word"]["refused"]
    assert worst["no word"]["above"] == []
    assert worst["no word"]["relevant"][0]["reason"] == "it has no word of the query"
    reasons = [(each["tool_id"], each["rank"], each.get("reason")) for each in worst["no match"]["relevant"]]
    assert reasons == [
        ("garden.water_garden", 1, None),
        ("nowhere", None, "it is not in the catalog"),
        ("post.send", None, "it has no word of the query"),
    ]

    shown = toolcrib("eval", "--tools", tools, "--queries", queries, "--worst", "2").out
    assert "it has no word of the query" in shown
    assert "Put it into the letter box!" not in shown
    assert "Worst" not in toolcrib("eval", "--tools", tools, "--queries", queries, "--worst", "0").out


def test_a_refused_page_lists_the_results_that_were_held_back(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = replace(WEIGHTS.by_words, refused=1.0)
    strict = replace(DEFAULT_SEARCH, weights=replace(WEIGHTS, by_words=never, by_table=never, weak_results=0))
    monkeypatch.setattr("toolcrib.cli.eval_command.DEFAULT_SEARCH", strict)
    lenient = write_config(tmp_path / "lenient.json", toolcrib={"search": {"refuse": False}})
    report = toolcrib("eval", *files, "--compare", lenient, "--json").json
    assert (report["refused"], report["comparison"]["refused"]) == (3, 1)
    assert report["metrics"]["mrr"] == 0
    assert report["comparison"]["metrics"]["mrr"] == pytest.approx(2 / 3, abs=1e-4)
    worst = {mistake["query"]: mistake for mistake in report["worst"]}
    letter = worst["send a letter"]
    assert (letter["refused"], letter["above"]) == (True, [])
    assert [(each["tool_id"], each["rank"], each["words"]) for each in letter["relevant"]] == [
        ("post.send_mail", 1, ["send", "letter"])
    ]
    assert worst["zzzz"]["relevant"][0]["reason"] == "it has no word of the query"
    assert "ndcg@10 0.00, empty result" in toolcrib("eval", *files).out


def test_queries_are_grouped_by_their_own_category_or_by_that_of_their_tools(tmp_path: Path, tools: Path) -> None:
    queries = lines(
        tmp_path / "queries.jsonl",
        [
            {"query": "send a letter", "relevant": ["t1"]},
            {"query": "zzzz", "relevant": ["t2", "t3"]},
            {"query": "water", "relevant": ["t2"], "category": "Asked in spring"},
        ],
    )
    ended = toolcrib("eval", "--tools", tools, "--queries", queries, "--json")
    assert [(group["name"], group["queries"], group["refused"]) for group in ended.json["categories"]] == [
        ("garden", 1, 1),
        ("Asked in spring", 1, 0),
        ("post", 1, 0),
    ]
    assert "Asked in spring" in toolcrib("eval", "--tools", tools, "--queries", queries).out


def test_queries_without_a_relevant_tool_are_counted_separately(files: list[str]) -> None:
    negatives: list[dict[str, Any]] = [
        {"query": "brew coffee", "relevant": []},
        {"query": "letter of the alphabet", "relevant": []},
    ]
    with_negatives = [*files[:3], lines(Path(files[3]).with_name("more.jsonl"), [*QUERIES, *negatives])]
    without, report = (toolcrib("eval", *each, "--json").json for each in (files, with_negatives))
    assert report["metrics"] == without["metrics"]
    assert "nothing_here" not in without
    assert (report["queries"], report["nothing_here"]["queries"], report["nothing_here"]["refused"]) == (3, 2, 1)
    assert 0 < report["nothing_here"]["auroc"] <= 1
    shown = toolcrib("eval", *with_negatives).out
    assert "1 of 2 (50.0%) that no tool fits" in shown
    assert f"AUROC {report['nothing_here']['auroc']:.3f}" in shown


# -- floors -----------------------------------------------------------------------------------------------------------


def test_a_missed_floor_exits_with_1_and_reports_the_difference(files: list[str]) -> None:
    ended = toolcrib_process("eval", *files, "--floor", "mrr=0.7", "--floor", "0.4")
    assert ended.code == 1
    assert "mrr is 0.6667" in ended.err
    assert "0.0333 less than 0.7" in ended.err
    assert "ndcg@10" not in ended.err
    told = toolcrib("eval", *files, "--floor", "mrr=0.7", "--floor", "0.4", "--json")
    assert told.code == 1
    assert told.json["floors"] == [
        {"metric": "mrr", "floor": 0.7, "mean": 0.6667, "missed_by": 0.0333},
        {"metric": "ndcg@10", "floor": 0.4, "mean": told.json["metrics"]["ndcg@10"], "missed_by": 0.0},
    ]


def test_floors_that_are_reached_exit_with_0(files: list[str]) -> None:
    ended = toolcrib_process("eval", *files, "--floor", "mrr=0.6667", "--floor", "recall@10=0.5")
    assert (ended.code, ended.err) == (0, "")


def test_an_invalid_floor_exits_with_2_before_any_query_runs(files: list[str]) -> None:
    for floor, complaint in [("precision=0.5", "unknown metric `precision`"), ("80", "not between 0 and 1")]:
        ended = toolcrib("eval", *files, "--floor", floor)
        assert (ended.code, ended.out) == (2, "")
        assert complaint in ended.err


# -- comparisons ------------------------------------------------------------------------------------------------------


def test_equal_settings_have_no_difference(files: list[str], tmp_path: Path) -> None:
    same = write_config(tmp_path / "same.json")
    comparison = toolcrib("eval", *files, "--compare", same, "--json").json["comparison"]
    assert comparison["with"] == str(same)
    for difference in comparison["difference"].values():
        assert difference == {"mean": 0, "interval": [0, 0], "distinguishable": False, "better": 0, "worse": 0}
    assert "no query has a different ndcg@10" in toolcrib("eval", *files, "--compare", same).out


@pytest.fixture
def reworded(tmp_path: Path) -> list[str]:
    """Six queries that match their tools only by a synonym, and two that match by their words."""
    tools = [
        {"id": verb, "name": f"{verb}_thing", "description": "", "server": verb}
        for verb in ("delete", "create", "send", "purchase", "stop", "verify")
    ]
    queries = [
        {"id": f"q-{word}", "query": word, "relevant": [verb]}
        for word, verb in (
            ("erase", "delete"),
            ("make", "create"),
            ("submit", "send"),
            ("buy", "purchase"),
            ("terminate", "stop"),
            ("validate", "verify"),
            ("stop", "stop"),
            ("send", "send"),
        )
    ]
    files = lines(tmp_path / "reworded.jsonl", tools), lines(tmp_path / "asked.jsonl", queries)
    return ["--tools", str(files[0]), "--queries", str(files[1])]


def test_a_signal_can_be_disabled(reworded: list[str]) -> None:
    whole, without = (
        toolcrib("eval", *reworded, *words, "--json").json
        for words in ([], ["--without", "synonyms", "--without", "meaning"])
    )
    assert whole["metrics"]["recall@1"] == 1
    assert (without["metrics"]["recall@1"], without["refused"]) == (0.25, 6)


def test_comparing_without_a_signal_shows_the_queries_that_need_it(reworded: list[str]) -> None:
    words = ["--compare", "without:synonyms, meaning"]
    comparison = toolcrib("eval", *reworded, *words, "--json").json["comparison"]
    assert comparison["with"] == "without:synonyms, meaning"
    assert comparison["metrics"]["recall@1"] == 0.25
    recall = comparison["difference"]["recall@1"]
    assert (recall["mean"], recall["better"], recall["worse"], recall["distinguishable"]) == (-0.75, 0, 6, True)
    assert -1 <= recall["interval"][0] < recall["interval"][1] < 0
    assert sum(answer["refused"] for answer in comparison["answers"]) == 6

    shown = toolcrib("eval", *reworded, *words).out
    assert "6 worse with “other”; the 3 largest changes" in shown
    assert "1.00 → 0.00  q-erase  erase" in shown
    assert "better" not in shown


def test_a_compared_configuration_supplies_search_settings_and_starts_no_server(
    reworded: list[str], tmp_path: Path
) -> None:
    trace = tmp_path / "started"
    server = {"command": sys.executable, "args": ["-c", f"open({str(trace)!r}, 'w')"]}
    other = write_config(
        tmp_path / "other.json", toolcrib={"search": {"without": ["synonyms", "meaning"]}}, server=server
    )
    comparison = toolcrib("eval", *reworded, "--compare", other, "--json").json["comparison"]
    assert comparison["difference"]["recall@1"]["mean"] == -0.75
    assert not trace.exists()


def test_eval_uses_the_search_settings_of_the_configuration(tmp_path: Path) -> None:
    queries = lines(tmp_path / "queries.jsonl", [{"query": "erase", "relevant": ["shed.remove"]}])
    declared = {"shed": {"tools": {"remove": {"description": "Out with it.", "command": ["true"]}}}}

    def recall(**search: list[str]) -> float:
        mine = {"plugins": False, "declared": declared, "search": search}
        config = write_config(tmp_path / "mcp.json", toolcrib=mine)
        return toolcrib("eval", config, "--queries", queries, "--json").json["metrics"]["recall@1"]

    assert recall() == 1
    assert recall(without=["synonyms", "meaning"]) == 0


@pytest.mark.parametrize("words", [["--without", "luck"], ["--compare", "without:synonyms,luck"]])
def test_an_unknown_signal_exits_with_2_and_lists_the_known_signals(files: list[str], words: list[str]) -> None:
    ended = toolcrib("eval", *files, *words)
    assert (ended.code, ended.out) == (2, "")
    assert "`luck` is not a signal" in ended.err
    assert "synonyms" in ended.err


def test_the_gain_of_the_configured_embedding_model_is_measured_on_the_same_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    near = vectors()
    near[WORDS.index("send")] = near[WORDS.index("document")]  # to this model, they mean the same
    static_folder(tmp_path / "model", tensors={"embeddings": near})
    rows = [
        {"id": name, "name": name, "description": name, "server": "post", "input_schema": {"type": "object"}}
        for name in ("write", "mail", "send")
    ]
    given = ["--tools", lines(tmp_path / "tools.jsonl", rows), "--queries", lines(tmp_path / "queries.jsonl", ASKED)]
    config = write_config(tmp_path / "mcp.json", toolcrib={"search": {"embedder": {"folder": "model"}}})
    report = toolcrib("eval", "-c", config, *given, "--json").json
    without = toolcrib("eval", *given, "--json").json
    assert report["unknown"] == {}
    assert report["embedding"]["without"]["metrics"] == without["metrics"]
    gain = report["embedding"]["difference"]["ndcg@10"]
    assert gain["mean"] == pytest.approx(report["metrics"]["ndcg@10"] - without["metrics"]["ndcg@10"], abs=2e-4)
    assert gain["mean"] != 0
    told = toolcrib("eval", "-c", config, *given).out
    one, other = (each["metrics"]["ndcg@10"] for each in (report, without))
    assert f"embedding model: nDCG@10 {one:.3f}, and {other:.3f} with word vectors instead, which may be" in told
    assert "embedding" not in toolcrib("eval", "-c", config, *given, "--without", "embedding", "--json").json


def test_without_an_embedding_model_one_line_says_what_one_would_gain(files: list[str]) -> None:
    (told,) = (line for line in toolcrib("eval", *files).out.splitlines() if "embedding" in line)
    assert told == f"no embedding model. {GAIN}"
    assert "embedding" not in toolcrib("eval", *files, "--json").json


def test_a_configuration_with_a_different_embedder_cannot_be_compared(files: list[str], tmp_path: Path) -> None:
    other = write_config(tmp_path / "other.json", toolcrib={"search": {"embedder": {"folder": "model"}}})
    ended = toolcrib("eval", *files, "--compare", other)
    assert (ended.code, ended.out) == (2, "")
    assert "embedding" in ended.err


def test_a_missing_configuration_to_compare_with_exits_with_2(files: list[str], tmp_path: Path) -> None:
    ended = toolcrib_process("eval", *files, "--compare", tmp_path / "absent.json")
    assert ended.code == 2
    assert "absent.json" in ended.err


# -- the source of the tools ------------------------------------------------------------------------------------------


def test_servers_of_a_configuration_are_searched_and_failed_servers_are_reported(tmp_path: Path) -> None:
    config = write_config(
        tmp_path / "mcp.json", faulty=faulty_entry(), broken=faulty_entry("exit-at-start"), toolcrib={"plugins": False}
    )
    names = [tool["name"] for tool in faulty.BASE_TOOLS]
    named = next(name for name in names if "env" in name)
    queries = lines(
        tmp_path / "queries.jsonl", [{"query": "environment variable of this process", "relevant": [f"faulty.{named}"]}]
    )
    for words in (["-c", config], [config]):
        ended = toolcrib_process("eval", *words, "--queries", queries, "--json")
        assert ended.code == 0
        assert "unavailable: broken" in ended.err
        assert ended.json["tools"] == len(names)
        assert ended.json["metrics"]["recall@1"] == 1


# -- text output ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [44, 60, 80, 120])
def test_output_fits_the_terminal_and_numbers_are_complete(files: list[str], tmp_path: Path, columns: int) -> None:
    same = write_config(tmp_path / "same.json")
    for words in ([], ["--compare", str(same)]):
        ended = typed("eval", *files, *words, answers=[], environ={**os.environ}, folder=tmp_path, columns=columns)
        assert ended.code == 0
        assert all(len(line) <= columns for line in ended.out.splitlines()), ended.out
        assert "…" not in ended.out
        assert "recall@10" in ended.out


@pytest.mark.parametrize("columns", [44, 100])
def test_a_long_changed_query_is_cut_at_the_width_of_the_terminal(
    reworded: list[str], tmp_path: Path, columns: int
) -> None:
    long = {"id": "q-long", "query": "erase " + "all of it, " * 20, "relevant": ["delete"]}
    queries = lines(tmp_path / "long.jsonl", [long, {"id": "q-short", "query": "buy", "relevant": ["purchase"]}])
    words = ["eval", *reworded[:3], queries, "--worst", "0", "--compare", "without:synonyms,meaning"]
    ended = typed(*words, answers=[], environ={**os.environ}, folder=tmp_path, columns=columns)
    assert ended.code == 0
    cut, whole = (line for line in ended.out.splitlines() if "→" in line)
    assert cut.startswith("1.00 → 0.00  q-long  erase all of")
    assert cut.endswith("…")
    assert len(cut) <= columns
    assert whole == "1.00 → 0.00  q-short  buy"


# -- a replayed audit -------------------------------------------------------------------------------------------------


def audit_of(path: Path, traces: int, **changed: Any) -> Path:
    """An audit in which a query without a word of any tool led to `paint_fence`, in its second search."""
    with AuditStore(path) as store:
        for number in range(traces):
            trace: dict[str, Any] = {"trace_id": f"{number:032x}", "tool_ids": ("garden.paint_fence",)}
            now = 1_000.0 + 10 * number
            steps: list[dict[str, Any]] = [
                {"query": "zzzz yyyy", **changed},
                {"query": "qqqq wwww", **changed},
                {"query": None, "operation": "call_tool"},
            ]
            for at, step in enumerate(steps):
                store.record(performed(0, **{**trace, "at": now + at, **step}))
        until_written(store)
    return path


def test_an_audit_is_replayed_with_what_was_learned_from_its_first_half(tmp_path: Path, tools: Path) -> None:
    place = audit_of(tmp_path / "audit.sqlite", 30)
    given = ["eval", "--tools", str(tools), "--from-audit", "--path", str(place)]
    ended = toolcrib(*given, "--json")
    assert ended.code == 0, ended.err
    report = ended.json
    assert report["queries"] == 15
    assert report["metrics"]["recall@1"] == 1
    assert report["comparison"]["metrics"]["recall@1"] < 1
    assert report["replay"] == {
        "learned_from": 15,
        "interleaved": {"this": 15, "other": 0, "ties": 0},
        "searches_per_call": {"audit": 2, "this": 2, "other": 2},
    }
    shown = toolcrib(*given)
    assert "learned from 15 earlier searches" in shown.out
    assert "searches per successful call" in shown.out


@pytest.mark.parametrize(
    ("traces", "changed", "said"),
    [
        (3, {}, "a replay needs 20 searches that led to a successful call, and the audit at"),
        (30, {"query": REDACTED}, "keeps no queries"),
        (0, {}, "0 searches"),
    ],
)
def test_an_audit_that_cannot_be_replayed_is_refused_with_the_reason(
    tmp_path: Path, tools: Path, traces: int, changed: dict[str, Any], said: str
) -> None:
    place = audit_of(tmp_path / "audit.sqlite", traces, **changed)
    ended = toolcrib("eval", "--tools", str(tools), "--from-audit", "--path", str(place))
    assert ended.code == 2
    assert said in " ".join(ended.err.split())


def test_a_replay_needs_an_audit_and_no_queries(tmp_path: Path, files: list[str]) -> None:
    missing = toolcrib("eval", *files[:2], "--from-audit", "--path", str(tmp_path / "none.sqlite"))
    assert (missing.code, "there is no audit" in missing.err) == (2, True)
    assert toolcrib("eval", *files, "--from-audit").code == 2
    assert toolcrib("eval", *files[:2]).code == 2
    assert toolcrib("eval", *files, "--path", str(tmp_path / "none.sqlite")).code == 2
