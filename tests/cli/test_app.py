"""The command line as a whole: help, version, completion and errors that all commands share."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import psutil
import pytest
from click.testing import CliRunner
from tests.cli.running import TOOLCRIB, toolcrib, toolcrib_process
from tests.processes import is_running
from tests.servers.launching import faulty_entry, write_config
from tests.until import until_blocking

from toolcrib.cli.app import COMMANDS, RENAMED, SECTIONS, main
from toolcrib.version import VERSION

READING = [["tree"], ["search", "words"], ["expand", "a.b"], ["call", "a.b"], ["doctor"]]


def run(*words: str) -> str:
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code == 0, result.output
    return result.output


def command_called(name: str) -> click.Command:
    command = main.get_command(click.Context(main), name)
    assert command is not None, name
    return command


def test_help_lists_every_command_and_each_command_has_help() -> None:
    overview = run("--help")
    assert overview == run("-h")
    for name, (_, short_help) in COMMANDS.items():
        command = command_called(name)
        assert re.search(rf"^  {name} +{re.escape(short_help)}$", overview, re.MULTILINE)
        shown = run(name, "--help")
        assert str(command.help).splitlines()[0].split(":")[0] in " ".join(shown.split())
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.opts[-1] in shown
                assert parameter.is_flag or parameter.help, f"{name} {parameter.name}"


def test_examples_in_help_are_on_their_own_lines() -> None:
    assert '\n    {"mcpServers": {"toolcrib": {"command": "toolcrib", "args":' in run("serve", "--help")
    assert "\n    toolcrib call git.git_log '{" in run("call", "--help")


def test_the_version_is_printed() -> None:
    assert VERSION in run("--version")


@pytest.mark.parametrize("words", [["serch"], ["search"], ["search", "x", "--limit", "0"], ["tree", "--tools", "nope"]])
def test_a_wrong_command_line_exits_with_2_and_mentions_help(words: list[str]) -> None:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert "--help" in result.output


@pytest.mark.parametrize("command", READING, ids=lambda words: words[0])
def test_an_unusable_configuration_exits_with_2(command: list[str], tmp_path: Path) -> None:
    absent, broken = tmp_path / "absent.json", tmp_path / "broken.json"
    broken.write_text('{"mcpServers": {"a": {}, "a": {}}}')
    for config, complaint in [(absent, "file not found"), (broken, "duplicate server name `a`")]:
        place = ["-c", str(config)]
        shown = CliRunner().invoke(main, [*command, *place])
        assert shown.exit_code == 2
        assert shown.stdout == ""
        assert complaint in shown.stderr
        assert str(config) in shown.stderr.replace("\n", "")
        as_json = CliRunner().invoke(main, [*command, *place, "--json"])
        assert as_json.exit_code == 2
        assert '"code":"INVALID_CONFIG"' in as_json.stdout
        assert as_json.stderr == ""


@pytest.mark.parametrize("command", ["tree", "doctor", "instructions", "worth-it", "serve"])
def test_commands_accept_the_configuration_as_argument_or_option_but_not_both(command: str, tmp_path: Path) -> None:
    config, absent = tmp_path / "mcp.json", tmp_path / "absent.json"
    for place in ([str(absent)], ["-c", str(absent)], ["--config", str(absent)]):
        missing = CliRunner().invoke(main, [command, *place])
        assert missing.exit_code == 2
        assert f"{absent}: file not found" in missing.stderr.replace("\n", "")
    twice = CliRunner().invoke(main, [command, str(config), "-c", str(absent)])
    assert (twice.exit_code, twice.stdout) == (2, "")
    assert f"Pass the configuration once: you gave `{config}` and `-c {absent}`" in " ".join(twice.stderr.split())


def test_a_configuration_on_the_command_line_has_priority_over_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLCRIB_CONFIG", str(tmp_path / "absent.json"))
    config = write_config(tmp_path / "mcp.json", off={"command": "x", "disabled": True})
    assert '"disabled":["off"]' in run("doctor", str(config), "--json")
    assert '"disabled":["off"]' in run("doctor", "-c", str(config), "--json")


def test_the_default_configuration_comes_from_the_environment_or_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(tmp_path / "mcp.json")
    elsewhere = write_config(tmp_path / "other.json", off={"command": "x", "disabled": True})
    monkeypatch.chdir(tmp_path)
    assert '"disabled":[]' in toolcrib("doctor", "--json").out
    monkeypatch.setenv("TOOLCRIB_CONFIG", str(elsewhere))
    assert '"disabled":["off"]' in run("doctor", "--json")


def test_interrupting_a_command_ends_the_command_and_its_servers(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", mute=faulty_entry("silent"))
    # A shell that runs the tests in the background makes them ignore this signal, and their children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen([TOOLCRIB, "tree", str(config)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        try:
            here = psutil.Process(process.pid)
            until_blocking(here.children, "the server is started")
            servers = here.children(recursive=True)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
            assert process.returncode == 130
            assert out == b""
            assert b"Traceback" not in err
            until_blocking(lambda: not any(is_running(each.pid) for each in servers), "every server has ended")
        finally:
            process.kill()


def test_logs_of_servers_and_the_sdk_are_shown_only_with_verbose(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", broken=faulty_entry("exit-at-start"), noisy=faulty_entry("garbage"))
    quiet = toolcrib_process("doctor", config, "--json")
    assert (quiet.code, quiet.json["healthy"], quiet.err) == (1, False, "")
    write_config(config, broken=faulty_entry("exit-at-start"))
    for words in (("-v", "doctor", config, "--json"), ("doctor", config, "--json", "-v")):
        asked = toolcrib_process(*words)
        assert (asked.code, asked.json["healthy"]) == (1, False)
        assert "`broken` could not start" in " ".join(asked.err.split())


def test_every_command_accepts_verbose_after_its_name() -> None:
    def commands(found: Iterable[click.Command]) -> Iterator[click.Command]:
        for command in found:
            yield from commands(command.commands.values()) if isinstance(command, click.Group) else [command]

    for command in commands(map(command_called, COMMANDS)):
        assert any("-v" in parameter.opts for parameter in command.params), command.name
    assert "--verbose" in run("serve", "--help")


def test_a_tool_can_be_called_with_arguments_from_standard_input(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry("flood-stderr"))
    ended = toolcrib_process("call", "bench.echo", "-", "-c", config, given='{"text": "お茶"}')
    assert (ended.code, ended.out, ended.err) == (0, "お茶\n", "")


def test_help_shows_each_command_in_a_section_within_eighty_columns() -> None:
    shown = run("--help")
    for title, names in SECTIONS.items():
        assert f"\n{title}:\n" in shown
        assert all(f"\n  {name} " in shown for name in names)
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    "start",
    [
        {"words": ["--help"]},
        {
            "words": [],
            "environ": {"_TOOLCRIB_COMPLETE": "bash_complete", "COMP_WORDS": "toolcrib re", "COMP_CWORD": "1"},
        },
    ],
    ids=["help", "completion"],
)
def test_listing_the_commands_imports_no_command_module(start: dict[str, Any]) -> None:
    code = "import json, sys; from toolcrib.cli import main\ntry: main(prog_name='toolcrib')\n"
    code += "finally: print(json.dumps([*sys.modules]), file=sys.stderr)"
    ended = subprocess.run(
        [sys.executable, "-c", code, *start["words"]],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **start.get("environ", {})},
    )
    assert "register" in ended.stdout
    ours = {name for name in json.loads(ended.stderr) if name.startswith("toolcrib.")}
    assert ours == {"toolcrib.cli", "toolcrib.cli.app", "toolcrib.version"}


def test_shell_completion_lists_commands_and_options() -> None:
    context = click.Context(main)
    assert [item.value for item in main.shell_complete(context, "re")] == ["register"]
    assert [item.help for item in main.shell_complete(context, "se")] == [
        "Serve your tools over MCP.",
        "Find tools by what they do.",
        "Store secrets outside mcp.json.",
    ]
    assert "--version" in [item.value for item in main.shell_complete(context, "--")]


@pytest.mark.parametrize(("earlier", "name"), RENAMED.items())
def test_the_former_name_of_a_command_works_and_prints_the_new_name(earlier: str, name: str) -> None:
    assert f"\n  {earlier} " not in run("--help")
    result = CliRunner().invoke(main, [earlier, "--help"])
    assert result.exit_code == 0
    assert result.stderr == f"`toolcrib {earlier}` is now `toolcrib {name}`.\n"
    assert result.stdout == run(name, "--help")


def test_a_misspelled_command_names_those_that_are_close() -> None:
    result = CliRunner().invoke(main, ["serv"])
    assert result.exit_code == 2
    assert "Error: No such command 'serv'. Did you mean `serve` or `secret` or `search`?\n" in result.stderr
    assert CliRunner().invoke(main, ["qqq"]).stderr.endswith("Error: No such command 'qqq'.\n")
