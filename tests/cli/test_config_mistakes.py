"""Possible mistakes in policies and categories that `toolcrib doctor` reports, and doubtful cases that it accepts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import toolcrib
from tests.servers import faulty
from tests.servers.launching import Json, faulty_entry, write_config

GONE: Json = {"command": "no-such-program-4b1f"}


def reported(folder: Path, settings: Json, **servers: Json) -> dict[str, Any]:
    config = write_config(folder / "mcp.json", toolcrib=settings, **{"bench": faulty_entry(), **servers})
    return toolcrib("doctor", config, "--json").json


def warnings(folder: Path, settings: Json, **servers: Json) -> list[str]:
    return reported(folder, settings, **servers)["warnings"]


def rules(*given: Json) -> Json:
    return {"policy": {"rules": [{"then": "hide", **rule} for rule in given], "otherwise": "allow"}}


def test_rule_patterns_without_matches_are_reported_with_path_and_suggestion(tmp_path: Path) -> None:
    settings = rules(
        {"tools": ["bench.echo", "echo"]},
        {"tools": ["bench.ecoh"]},
        {"tools": ["bnch.e*"], "sources": ["bnch", "bench"]},
        {"paths": [["bench", "Remote"], ["benhc"]]},
        {"tags": ["review"]},
    )
    assert warnings(tmp_path, settings) == [
        "toolcrib.policy.rules.0.tools: `echo` matches no tool; tool ids have the form SOURCE.NAME",
        "toolcrib.policy.rules.1.tools: `bench.ecoh` matches no tool (did you mean `bench.echo`?)",
        "toolcrib.policy.rules.2.sources: `bnch` matches no source (did you mean `bench`?)",
        "toolcrib.policy.rules.2.tools: `bnch.e*` matches no tool (did you mean `bench.e*`?)",
        "toolcrib.policy.rules.3.paths: `bench/Remote` has no tools",
        "toolcrib.policy.rules.3.paths: `benhc` has no tools (did you mean `bench`?)",
        "toolcrib.policy.rules.4.tags: no tool has the tag `review`",
    ]


def test_a_rule_that_hides_all_its_tools_is_not_reported_as_unmatched(tmp_path: Path) -> None:
    met = {"tools": ["bench.echo", "*.add", "bench.memo://*"], "sources": ["b*"], "paths": [["bench"], ["Sums"]]}
    assert warnings(tmp_path, {**rules(met), "categories": {"Sums": {"tools": ["bench.add"]}}}) == []


def test_a_server_can_be_named_by_its_label_and_mistakes_are_reported_once(tmp_path: Path) -> None:
    settings = rules(
        {"tools": ["The Bench.echo", "The Bench.ecoh"], "sources": ["The Bench"], "paths": [["The Bench"]]}
    )
    found = warnings(tmp_path, settings, **{"The Bench": faulty_entry()})
    assert len(found) == 1
    assert "ecoh` matches no tool (did you mean " in found[0]


def test_empty_categories_and_links_to_unknown_categories_are_reported(tmp_path: Path) -> None:
    categories: Json = {
        "Coding": {
            "categories": {"Sums": {"tools": ["bench.add"], "also_under": [["Quality"], ["Codnig"], ["bench"]]}}
        },
        "Quality": {"summary": "Holds what is linked."},
        "Empty": {"tools": ["bench.subtract"], "tagged": ["sums"]},
    }
    assert warnings(tmp_path, {"categories": categories}) == [
        "toolcrib.categories.Empty.tools: `bench.subtract` matches no tool",
        "toolcrib.categories.Empty.tagged: no tool has the tag `sums`",
        "toolcrib.categories.Empty: the category is empty",
        "toolcrib.categories.Coding.categories.Sums.also_under: category `Codnig` not found (did you mean `Coding`?)",
    ]


def test_patterns_for_failed_isolated_or_disabled_sources_are_not_reported(tmp_path: Path) -> None:
    perhaps = rules(
        {"tools": ["gone.x", "off.x", "hers.x", "g?ne.*", "[gh]*.x", "*.x"], "sources": ["gone", "off", "hers"]},
        {"paths": [["hers"], ["gone", "Remote"], ["Later"], ["Above"]], "tags": ["review"]},
    )
    categories: Json = {
        "Above": {},
        "Later": {"tools": ["gone.*"], "also_under": [["Above"], ["hers", "Notes"]]},
        "Tagged": {"tagged": ["review"]},
    }
    others: Json = {"gone": GONE, "off": {**GONE, "disabled": True}, "hers": faulty_entry()}
    isolated: Json = {"sources": {"hers": {"isolation": "principal", "principals": {"ada": {}}}}}
    assert warnings(tmp_path, {**perhaps, **isolated, "categories": categories}, **others) == []
    assert warnings(tmp_path, {**rules({"tools": ["bench.x", "goner.x"]}), **isolated}, **others) == [
        "toolcrib.policy.rules.0.tools: `bench.x` matches no tool",
        "toolcrib.policy.rules.0.tools: `goner.x` matches no tool",
    ]


def test_unknown_tools_of_an_isolated_server_are_not_reported(tmp_path: Path) -> None:
    isolated: Json = {"sources": {"mine": {"isolation": "principal"}}}
    ruled = rules({"tools": ["mine.echo", "mine.other"], "paths": [["mine"], ["Mine"]]})
    categories: Json = {"Mine": {"tools": ["mine.echo"]}}
    assert warnings(tmp_path, {**ruled, **isolated, "categories": categories}, mine=faulty_entry()) == []


def test_unknown_principals_are_reported_only_when_all_principals_are_known(tmp_path: Path) -> None:
    tokens = [{"sha256": str(number) * 64, "principal": name} for number, name in enumerate(("ada", "bob"))]
    isolated: Json = {"hers": {"isolation": "principal", "principals": {"cleo": {}, "*": {}}}}
    settings = rules({"principals": ["adda", "b*", "local", "cleo", "zz*"], "tools": ["bench.echo"]})
    where = "toolcrib.policy.rules.0.principals: no token and no isolated server has the principal"
    known = {**settings, "auth": {"tokens": tokens}, "sources": isolated}
    assert warnings(tmp_path, known, hers=faulty_entry()) == [
        f"{where} `adda` (did you mean `ada`?)",
        f"{where} `zz*`",
    ]
    assert warnings(tmp_path, settings) == [], "without tokens, tokens may be added later"
    jwt = {"issuer": "https://id.example.com", "audience": "https://tools.example.com/mcp"}
    assert warnings(tmp_path, {**settings, "auth": {"tokens": tokens, "jwt": jwt}}) == []


def test_possible_mistakes_do_not_fail_doctor_and_the_policy_is_shown(tmp_path: Path) -> None:
    open_to_all = write_config(tmp_path / "mcp.json", bench=faulty_entry())
    assert toolcrib("doctor", open_to_all, "--json").json["policy"] is None
    assert "Policy: none, everyone can see and call every tool." in toolcrib("doctor", open_to_all).out

    ruled = write_config(tmp_path / "mcp.json", toolcrib=rules({"tools": ["echo", "bench.add"]}), bench=faulty_entry())
    shown = toolcrib("doctor", ruled)
    assert shown.code == 0
    assert "Policy: 1 rule, else `allow`." in shown.out
    assert (
        "Possible mistake: toolcrib.policy.rules.0.tools: `echo` matches no tool; tool ids have the form SOURCE.NAME."
        in shown.out
    )
    report = toolcrib("doctor", ruled, "--json").json
    assert report["healthy"] is True
    assert (report["policy"]["rules"], report["policy"]["otherwise"]) == (1, "allow")


def test_doctor_reports_that_the_policy_hides_every_tool_from_local(tmp_path: Path) -> None:
    settings: Json = {"policy": {"otherwise": "hide"}}
    told = f"The policy hides all {len(faulty.BASE_TOOLS)} tools from the principal `local`."
    assert reported(tmp_path, settings)["hidden_from_local"] == told
    shown = toolcrib("doctor", tmp_path / "mcp.json")
    assert (shown.code, told in shown.out) == (0, True)
    assert reported(tmp_path, rules({"principals": ["ada"]}))["hidden_from_local"] is None


def test_a_rule_without_any_match_fails_doctor(tmp_path: Path) -> None:
    config = write_config(
        tmp_path / "mcp.json", toolcrib=rules({"tools": ["bench.add"]}, {"tools": ["echo"]}), bench=faulty_entry()
    )
    shown = toolcrib("doctor", config)
    assert shown.code == 1
    assert "Rule 1 hides 1 tool.\nProblem: Rule 2 matches nothing.\n" in shown.out
    told = "Problem: toolcrib.policy.rules.1.tools: `echo` matches no tool; tool ids have the form SOURCE.NAME."
    assert told in shown.out
    assert "Possible mistake" not in shown.out
    report = toolcrib("doctor", config, "--json").json
    assert report["healthy"] is False
    assert report["policy"]["matches"] == [
        {"rule": 1, "then": "hide", "tools": 1, "claiming": {}, "matches_nothing": False},
        {"rule": 2, "then": "hide", "tools": 0, "claiming": {}, "matches_nothing": True},
    ]


@pytest.mark.parametrize(
    "rule", [{"sources": ["bench"], "tools": ["bench.memo://*"]}, {"tools": ["off.x"]}, {"principals": ["nobody"]}]
)
def test_rules_for_resources_disabled_servers_and_unknown_principals_are_accepted(rule: Json, tmp_path: Path) -> None:
    others: Json = {"off": {**GONE, "disabled": True}} if "off.x" in str(rule) else {}
    config = write_config(tmp_path / "mcp.json", toolcrib=rules(rule), bench=faulty_entry(), **others)
    assert toolcrib("doctor", config).code == 0


def test_tools_that_match_only_by_annotations_of_untrusted_sources_are_counted(tmp_path: Path) -> None:
    reading = {"policy": {"rules": [{"then": "allow", "annotations": {"read_only": True}}], "otherwise": "hide"}}
    servers = {"good": faulty_entry(), "other": faulty_entry()}
    config = write_config(
        tmp_path / "mcp.json", toolcrib={**reading, "sources": {"good": {"trusted": True}}}, **servers
    )
    shown = toolcrib("doctor", config)
    assert shown.code == 0
    count = sum(tool.get("annotations", {}).get("readOnlyHint", False) for tool in faulty.BASE_TOOLS)
    assert count > 1
    untrusted = "match only by their own annotations, and their"
    told = f"Rule 1 allows {count} tools; {count} more {untrusted} source is not trusted: other."
    assert told in " ".join(shown.out.split())
    config = write_config(tmp_path / "mcp.json", toolcrib=reading, **servers)
    told = f"Rule 1 allows no tools; {2 * count} {untrusted} sources are not trusted: good, other."
    assert told in " ".join(toolcrib("doctor", config).out.split())


def test_a_category_with_the_name_of_a_source_is_reported_as_merged(tmp_path: Path) -> None:
    settings: Json = {"categories": {"bench": {"summary": "Where things are tried"}, "Sums": {"tools": ["*.add"]}}}
    report = reported(tmp_path, settings)
    assert report["categories_named_as_sources"] == ["bench"]
    assert report["warnings"] == []
    assert "Categories merged with the source of the same name: bench." in toolcrib("doctor", tmp_path / "mcp.json").out
