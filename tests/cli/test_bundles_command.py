"""`toolcrib bundles`, and the option `--bundle` of the commands that show the catalog."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.running import toolcrib
from tests.servers.launching import Json, faulty_entry, write_config

SETTINGS: Json = {
    "bundles": {
        "sums": {"description": "To add up.", "required": ["bench.add"], "optional": ["echo", "bench.nothing"]},
        "work": {"required": ["bench.add", "bench.push", "bench.echo", "down.*"]},
        "none": {},
    },
    "policy": {"rules": [{"then": "hide", "tools": ["bench.echo"]}], "otherwise": "allow"},
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(
        tmp_path / "mcp.json", toolcrib=SETTINGS, bench=faulty_entry(), down=faulty_entry("exit-at-start")
    )


def test_bundles_are_listed_with_their_completeness(config: Path) -> None:
    shown = toolcrib("bundles", config)
    assert shown.code == 0
    lines = {line.split()[0]: line for line in shown.out.splitlines()}
    assert "complete" in lines["sums"]
    assert "incomplete" not in lines["sums"]
    assert "To add up." in lines["sums"]
    assert "incomplete: 3 missing" in lines["work"]
    assert "incomplete" not in lines["none"]

    wire = toolcrib("bundles", "-c", config, "--json").json["bundles"]
    shown_alone = [("none", True), ("sums", True), ("work", False)]
    assert [(each["name"], each["complete"]) for each in wire][:3] == shown_alone


def test_one_bundle_is_shown_with_its_tools_and_the_reasons_for_missing_ones(config: Path) -> None:
    shown = toolcrib("bundles", config, "work")
    assert shown.code == 1
    for told in (
        "bench.add",
        "bench.push: not found",
        "bench.echo: hidden from `local`",
        "down.*: `down` is unavailable",
    ):
        assert told in shown.out

    complete = toolcrib("bundles", "sums", "-c", config)
    assert complete.code == 0
    there, absent = complete.out.partition("not available")[::2]
    assert "bench.add" in there
    assert "bench.nothing: not found" in absent
    assert "missing" not in complete.out


def test_one_bundle_as_json_has_the_same_content_and_exit_code(config: Path) -> None:
    ended = toolcrib("bundles", config, "work", "--json")
    assert ended.code == 1
    assert ended.json["required"] == ["bench.add"]
    assert ended.json["optional"] == []
    missing = {each["entry"]: (each["absence"], each["why"]) for each in ended.json["missing"]}
    assert missing["bench.echo"] == ("unknown", "hidden from `local`")
    assert missing["bench.push"] == ("unknown", "not found")
    assert missing["down.*"][0] == "unavailable"


def test_an_empty_bundle_is_reported_as_empty(config: Path) -> None:
    shown = toolcrib("bundles", config, "none")
    assert (shown.code, shown.out) == (0, "none\nThis bundle is empty.\n")


def test_an_unknown_bundle_and_too_many_arguments_are_errors(config: Path) -> None:
    unknown = toolcrib("bundles", config, "sum")
    assert unknown.code == 1
    assert "`sums`" in unknown.err
    assert toolcrib("bundles", config, "sums", "work").code == 2
    assert toolcrib("bundles", config, "-c", config).code == 2


def test_without_configured_bundles_the_shipped_bundles_are_listed_with_a_hint(tmp_path: Path) -> None:
    shown = toolcrib("bundles", write_config(tmp_path / "mcp.json"))
    assert shown.code == 0
    assert [line.split()[0] for line in shown.out.splitlines()] == ["bundle", "code_agent", "blog_agent"]
    assert "incomplete: 5 missing" in shown.out, "none of what an agent for code requires is there"
    assert "These bundles come with Toolcrib. Define your own under `toolcrib.bundles`" in shown.err


def test_shipped_bundles_are_listed_unless_a_configured_bundle_has_the_same_name(tmp_path: Path) -> None:
    own = write_config(tmp_path / "mcp.json", toolcrib={"bundles": {"code_agent": {"optional": ["*"]}, "all": {}}})
    shown = toolcrib("bundles", own)
    assert [line.split()[0] for line in shown.out.splitlines()] == ["bundle", "all", "code_agent", "blog_agent"]
    assert "5 missing" not in shown.out
    assert shown.err == ""


def test_catalog_commands_with_a_bundle_show_only_its_tools(config: Path) -> None:
    within = ("--bundle", "sums", "-c", config)

    assert "1 tool" in toolcrib("tree", *within).out
    assert toolcrib("list", "bench", *within).out.split()[0] == "bench.add"
    assert "bench.fail" not in toolcrib("search", "fail", "add", *within).out
    assert "bench.add" in toolcrib("describe", *within).out
    assert "bench.fail" not in toolcrib("describe", *within).out
    assert toolcrib("expand", "bench.add", *within).code == 0
    assert "5" in toolcrib("call", "bench.add", json.dumps({"a": 2, "b": 3}), *within).out
    for words in (("expand", "bench.fail"), ("call", "bench.fail", "{}")):
        refused = toolcrib(*words, *within)
        assert refused.code == 1
        assert "TOOL_NOT_FOUND" in refused.err
        assert f"-c {config} --bundle sums" in refused.err, "the proposed command uses the same catalog"
    assert toolcrib("tree", "--bundle", "sum", "-c", config).code == 1
