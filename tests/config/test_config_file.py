"""Tests for reading `mcp.json`, and for errors in one server or in the whole file."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.config import Config, ServerConfig, parse_config, read_config
from toolcrib.config.gateway_settings import SourceSettings, ToolcribSettings
from toolcrib.core.errors import InvalidConfig
from toolcrib.operations.calling.limits import Rate
from toolcrib.sources.limited import DEFAULT_CAPACITY, Capacity
from toolcrib.sources.mcp.server_spec import DEFAULT_PATIENCE, HttpServer, Patience, StdioServer

FILE = Path("mcp.json")
UNKNOWN_TYPE = " is not a transport for a `url`; use http, streamable-http or sse"
SETTINGS, SOURCE_SETTINGS = ([field.name for field in fields(kind)] for kind in (ToolcribSettings, SourceSettings))
ENVIRON = {"HOME": "/home/ada", "TOKEN": "s3cret", "EMPTY": ""}


def read(document: object, environ: dict[str, str] | None = None) -> Config:
    return parse_config(json.dumps(document), FILE, ENVIRON if environ is None else environ)


def server(entry: object, **ours: Any) -> ServerConfig:
    """Reads a file with one server, named `git`, and returns that server."""
    (only,) = read({"mcpServers": {"git": entry}, "toolcrib": ours}).servers
    return only


def refused(document: object) -> str:
    """Reads an invalid file and returns the error message."""
    with pytest.raises(InvalidConfig) as error:
        parse_config(document if isinstance(document, str) else json.dumps(document), FILE, ENVIRON)
    return error.value.message


# -- servers ----------------------------------------------------------------------------------------------------------


def test_a_stdio_server_is_read_with_arguments_environment_and_folder() -> None:
    entry = {"command": "uvx", "args": ["git-server", 8080, 1.5], "env": {"PORT": 80}, "cwd": "/tmp/x"}

    assert server(entry) == ServerConfig(
        "git", StdioServer("uvx", ("git-server", "8080", "1.5"), {"PORT": "80"}, Path("/tmp/x"))
    )


def test_a_stdio_server_needs_only_a_command() -> None:
    assert server({"command": "x"}).server == StdioServer("x", (), {}, None)
    assert server({"type": "stdio", "command": "x"}).server == StdioServer("x", (), {}, None)


@pytest.mark.parametrize(
    ("kind", "transport"),
    [
        (None, "streamable-http"),
        ("http", "streamable-http"),
        ("streamable-http", "streamable-http"),
        ("streamableHttp", "streamable-http"),
        ("sse", "sse"),
    ],
)
def test_a_remote_server_is_read_with_its_headers_and_transport(kind: str | None, transport: Any) -> None:
    entry: dict[str, Any] = {"url": "https://example.com/mcp", "headers": {"X-Key": "k"}}

    read_ = server(entry if kind is None else {**entry, "type": kind}).server

    assert read_ == HttpServer("https://example.com/mcp", {"X-Key": "k"}, transport=transport)


def test_the_servers_key_of_vs_code_is_accepted() -> None:
    config = read({"inputs": [], "servers": {"git": {"type": "stdio", "command": "x"}}})

    assert [server.name for server in config.servers] == ["git"]


def test_servers_keep_the_order_of_the_file() -> None:
    config = read({"mcpServers": {name: {"command": "x"} for name in ("b", "c", "a")}})

    assert [server.name for server in config.servers] == ["b", "c", "a"]


@pytest.mark.parametrize("document", [{}, {"mcpServers": {}}, {"servers": {}}, {"toolcrib": {}}, {"theme": "dark"}])
def test_a_file_without_servers_is_valid(document: object) -> None:
    assert read(document).servers == ()


def test_keys_of_other_programs_are_ignored() -> None:
    entry = {"command": "x", "autoApprove": ["a"], "alwaysAllow": [], "timeout": 60, "description": "x"}

    assert server(entry).server == StdioServer("x", (), {}, None)
    assert read({"$schema": "x", "inputs": [], "globalShortcut": "", "mcpServers": {}}).servers == ()


def test_a_disabled_server_is_valid_and_not_enabled() -> None:
    config = read({"mcpServers": {"off": {"disabled": True, "command": "${UNSET}"}, "on": {"command": "x"}}})

    assert config.servers[0] == ServerConfig("off", disabled=True)
    assert [server.name for server in config.enabled] == ["on"]
    assert server({"command": "x", "disabled": False}).server is not None


@pytest.mark.parametrize("disabled", ["true", "yes", 1, None, [], {}])
def test_a_non_boolean_disabled_value_is_an_error(disabled: object) -> None:
    wrong = server({"command": "x", "disabled": disabled})

    assert wrong.server is None
    assert wrong.problem == "mcpServers.git.disabled: must be true or false"


# -- errors in one server ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("npx x", ": must be an object"),
        (None, ": must be an object"),
        ([], ": must be an object"),
        ({}, ".command: the server needs either `command` or `url`"),
        (
            {"cmd": "x"},
            ".command: the server needs either `command` or `url`; unknown key `cmd` (did you mean `command`?)",
        ),
        ({"command": None}, ".command: must be a string"),
        ({"command": ["npx", "x"]}, ".command: must be a string"),
        ({"command": "x", "args": "a b"}, ".args: must be a list of strings"),
        ({"command": "x", "args": {"a": "b"}}, ".args: must be a list of strings"),
        ({"command": "x", "args": ["a", None]}, ".args.1: must be a string"),
        ({"command": "x", "args": [["a"]]}, ".args.0: must be a string"),
        ({"command": "x", "args": [True]}, ".args.0: must be a string"),
        ({"command": "x", "env": ["A=b"]}, ".env: must be an object whose values are strings"),
        ({"command": "x", "env": "A=b"}, ".env: must be an object whose values are strings"),
        ({"command": "x", "env": {"A": None}}, ".env.A: must be a string"),
        ({"command": "x", "env": {"A": {"b": 1}}}, ".env.A: must be a string"),
        ({"command": "x", "cwd": ["/"]}, ".cwd: must be a string"),
        ({"url": 5}, ".url: `5` is not an http or https URL"),
        ({"url": None}, ".url: must be a string"),
        ({"url": ""}, ".url: `` is not an http or https URL"),
        ({"url": "localhost:80/mcp"}, ".url: `localhost:80/mcp` is not an http or https URL"),
        ({"url": "file:///etc/passwd"}, ".url: `file:///etc/passwd` is not an http or https URL"),
        ({"url": "https:///mcp"}, ".url: `https:///mcp` is not an http or https URL"),
        ({"url": "https://a.b", "headers": ["X: y"]}, ".headers: must be an object whose values are strings"),
        ({"url": "https://a.b", "headers": {"X": []}}, ".headers.X: must be a string"),
        ({"url": "https://a.b", "type": "ws"}, ".type: `ws`" + UNKNOWN_TYPE),
        ({"url": "https://a.b", "type": "stdio"}, ".type: `stdio`" + UNKNOWN_TYPE),
        ({"url": "https://a.b", "type": ["sse"]}, ".type: `['sse']`" + UNKNOWN_TYPE),
    ],
    ids=str,
)  # fmt: skip
def test_an_error_in_a_server_names_the_server_and_key(entry: object, problem: str) -> None:
    config = read({"mcpServers": {"git": entry, "files": {"command": "x"}}})

    wrong, other = config.servers
    assert (wrong.server, wrong.disabled) == (None, False)
    assert wrong.problem == f"mcpServers.git{problem}"
    assert other.server == StdioServer("x", (), {}, None)
    assert config.enabled == config.servers


def test_a_duplicate_key_in_a_server_is_reported() -> None:
    config = parse_config('{"servers": {"git": {"command": "x", "command": "y"}}}', FILE)

    assert config.servers[0].problem == "servers.git.command: duplicate key"


# -- variables --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("${TOKEN}", "s3cret"),
        ("${env:TOKEN}", "s3cret"),
        ("Bearer ${TOKEN}!${HOME}", "Bearer s3cret!/home/ada"),
        ("${UNSET:-default}", "default"),
        ("${env:UNSET:-default}", "default"),
        ("${UNSET:-}", ""),
        ("${UNSET:-http://x:80/}", "http://x:80/"),
        ("${EMPTY:-default}", "default"),
        ("${EMPTY}", ""),
        ("${TOKEN:-default}", "s3cret"),
        ("$TOKEN {TOKEN} $$ ${", "$TOKEN {TOKEN} $$ ${"),
    ],
)
def test_variables_are_expanded_in_every_string(text: str, filled: str) -> None:
    program = server({"command": text, "args": [text], "env": {"A": text}, "cwd": f"/x{text}"}).server
    address = server({"url": f"https://x/{text}", "headers": {"A": text}}).server

    assert program == StdioServer(filled, (filled,), {"A": filled}, Path(f"/x{filled}"))
    assert address == HttpServer(f"https://x/{filled}", {"A": filled}, transport="streamable-http")


def test_the_value_of_a_variable_is_not_expanded_again() -> None:
    config = read({"mcpServers": {"git": {"command": "${A}"}}}, {"A": "${B}", "B": "b"})

    assert config.servers[0].server == StdioServer("${B}", (), {}, None)


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ({"command": "${UNSET}"}, "command"),
        ({"command": "x", "args": ["a", "-t=${UNSET}"]}, "args.1"),
        ({"command": "x", "env": {"KEY": "${env:UNSET}"}}, "env.KEY"),
        ({"command": "x", "cwd": "${UNSET}/a"}, "cwd"),
        ({"url": "https://${UNSET}/"}, "url"),
        ({"url": "https://x/", "headers": {"Authorization": "Bearer ${UNSET}"}}, "headers.Authorization"),
    ],
)
def test_an_unset_variable_disables_only_its_server(entry: object, key: str) -> None:
    config = read({"mcpServers": {"git": entry, "files": {"command": "x"}}})

    assert config.servers[0].problem == f"mcpServers.git.{key}: environment variable `UNSET` is not set"
    assert config.servers[1].server is not None


@pytest.mark.parametrize(
    "placeholder",
    [
        "${}",
        "${env:}",
        "${a b}",
        "${1A}",
        "${TOKEN:+x}",
        "${TOKEN:?}",
        "${config:a.b}",
    ],
)
def test_an_unsupported_placeholder_is_an_error(placeholder: str) -> None:
    wrong = server({"command": "x", "env": {"A": placeholder}})

    assert wrong.problem is not None
    assert (
        wrong.problem
        == f"mcpServers.git.env.A: Toolcrib cannot fill in `{placeholder}`, because it is not an environment variable"
    )


def test_a_default_that_contains_a_placeholder_is_an_error() -> None:
    wrong = server({"command": "${UNSET:-${TOKEN}}"})

    assert wrong.problem == "mcpServers.git.command: a default must not contain a placeholder"


def test_an_unset_variable_error_does_not_contain_values_of_variables() -> None:
    wrong = server({"url": "https://x/", "headers": {"A": "Bearer ${TOKEN}", "B": "${UNSET}"}})

    assert wrong.problem is not None
    assert "s3cret" not in wrong.problem


@pytest.mark.parametrize(
    "entry",
    [
        {"url": "${TOKEN}"},
        {"url": "ftp://${TOKEN}@x/"},
        {"url": "https://x/?key=${TOKEN}", "type": "carrier pigeon"},
        {"url": "https://x/?key=${TOKEN}", "headers": ["${TOKEN}"]},
        {"command": "${TOKEN}", "args": "${TOKEN}"},
        {"command": "${TOKEN}", "args": ["${TOKEN}", None]},
        {"command": "x", "env": {"A": "${TOKEN}", "B": "${input:b}"}},
        {"command": "x", "env": {"A": "${TOKEN}", "B": "${C:-${TOKEN}}"}},
        {"command": "x", "args": ["${TOKEN}"], "cwd": "~${TOKEN}/x"},
    ],
    ids=str,
)
def test_server_errors_do_not_contain_values_of_variables(entry: object) -> None:
    problem = server(entry).problem

    assert problem is not None
    assert ENVIRON["TOKEN"] not in problem


def test_a_folder_of_an_unknown_user_disables_only_its_server() -> None:
    entry = {"command": "x", "cwd": "~nobody-4b1f/x"}

    config = read({"mcpServers": {"git": entry, "files": {"command": "x", "cwd": "~/x"}}})

    assert config.servers[0].problem is not None
    assert config.servers[0].problem.startswith("mcpServers.git.cwd: ")
    assert config.servers[1].server == StdioServer("x", cwd=Path("~/x").expanduser())


# -- names ------------------------------------------------------------------------------------------------------------


def test_labels_that_give_the_same_name_get_numbers() -> None:
    labels = ["a.b", "a b", "a-b", "@a/b", "…", "!", "-", "--", "a-b-2", "ファイル"]

    names = [server.name for server in read({"mcpServers": {label: {"command": "x"} for label in labels}}).servers]

    assert names[:4] == ["a-b", "a-b-2", "a-b-3", "a-b-4"]
    assert len(set(names)) == len(labels)
    assert names[-1] == "ファイル"


@given(st.lists(st.text(), unique=True, max_size=8))
def test_every_server_gets_a_unique_name_without_a_dot(labels: list[str]) -> None:
    config = read({"mcpServers": {label: {"command": "x"} for label in labels}})

    names = [server.name for server in config.servers]
    assert len(set(names)) == len(labels)
    assert all(name and "." not in name for name in names)


def test_source_settings_use_the_label_in_the_file() -> None:
    config = read({"mcpServers": {"a.b": {"command": "x"}}, "toolcrib": {"sources": {"a.b": {"title": "A"}}}})

    assert (config.servers[0].name, config.servers[0].title) == ("a-b", "A")


# -- settings of Toolcrib ---------------------------------------------------------------------------------------------


def test_a_server_can_override_the_global_timeouts() -> None:
    config = read(
        {
            "mcpServers": {"git": {"command": "x"}, "slow": {"url": "https://x"}, "off": {"disabled": True}},
            "toolcrib": {
                "call_timeout_s": 5,
                "start_timeout_s": 0.5,
                "sources": {"slow": {"call_timeout_s": 900, "list_timeout_s": 7}, "off": {"title": "Off"}},
            },
        }
    )

    assert config.servers[0].patience == Patience(start_s=0.5, list_s=DEFAULT_PATIENCE.list_s, call_s=5.0)
    assert config.servers[1].patience == Patience(start_s=0.5, list_s=7.0, call_s=900.0)


@pytest.mark.parametrize("seconds", ["0", "-1", "86401", '"60"', "true", "null", "[]", "NaN", "Infinity", "1e999"])
def test_an_invalid_timeout_is_refused(seconds: str) -> None:
    for where, ours in (
        ("toolcrib.call_timeout_s", f'{{"call_timeout_s": {seconds}}}'),
        ("toolcrib.sources.git.call_timeout_s", f'{{"sources": {{"git": {{"call_timeout_s": {seconds}}}}}}}'),
    ):
        message = refused(f'{{"mcpServers": {{"git": {{}}}}, "toolcrib": {ours}}}')
        assert message == f"mcp.json: {where}: must be a number of seconds, greater than 0 and at most 86400"


def test_a_server_can_override_the_global_call_limits() -> None:
    config = read(
        {
            "mcpServers": {"git": {"command": "x"}, "slow": {"command": "y"}},
            "toolcrib": {
                "max_concurrent_calls": 8,
                "sources": {"slow": {"max_concurrent_calls": 1, "max_queued_calls": 0}},
            },
        }
    )

    assert config.capacity == Capacity(8, DEFAULT_CAPACITY.queued_calls)
    assert [server.capacity for server in config.servers] == [config.capacity, Capacity(1, 0)]
    assert server({"command": "x"}).capacity == DEFAULT_CAPACITY


@pytest.mark.parametrize(
    ("ours", "rate"),
    [
        ({}, Rate(1_000, 1_000)),
        ({"calls_per_minute": 30}, Rate(30, 30)),
        ({"burst_calls": 5}, Rate(1_000, 5)),
        ({"calls_per_minute": 30, "burst_calls": 90}, Rate(30, 90)),
        ({"calls_per_minute": 0}, None),
        ({"calls_per_minute": 0, "burst_calls": 5}, None),
    ],
)
def test_the_call_rate_is_read_with_its_defaults(ours: dict[str, int], rate: Rate | None) -> None:
    assert read({"toolcrib": ours}).rate == rate


@pytest.mark.parametrize(
    ("ours", "rate"),
    [
        ({}, Rate(5_000, 1_666)),
        ({"calls_per_minute": 30}, Rate(5_000, 1_666)),
        ({"calls_per_minute": 2_000}, Rate(10_000, 3_333)),
        ({"burst_calls": 3_000}, Rate(15_000, 5_000)),
        ({"calls_per_minute": 1_000_000}, Rate(5_000_000, 1_666_666)),
        ({"lookups_per_minute": 60}, Rate(60, 20)),
        ({"lookups_per_minute": 1}, Rate(1, 1)),
        ({"lookups_per_minute": 0}, None),
        ({"calls_per_minute": 0}, None),
        ({"calls_per_minute": 0, "lookups_per_minute": 60}, Rate(60, 20)),
    ],
)
def test_the_lookup_rate_is_read_with_its_defaults(ours: dict[str, int], rate: Rate | None) -> None:
    assert read({"toolcrib": ours}).lookup_rate == rate


@pytest.mark.parametrize("given_", ["-1", "1.5", "true", "null", '"5"', "1000001", "1e400", "[]"])
@pytest.mark.parametrize(
    ("key", "least"),
    [("max_concurrent_calls", 1), ("max_queued_calls", 0), ("calls_per_minute", 0), ("burst_calls", 1)],
)
def test_an_invalid_call_limit_is_refused(key: str, least: int, given_: str) -> None:
    places = [(f"toolcrib.{key}", f'{{"{key}": {given_}}}')]
    if key in SOURCE_SETTINGS:
        places.append((f"toolcrib.sources.git.{key}", f'{{"sources": {{"git": {{"{key}": {given_}}}}}}}'))
    for where, ours in places:
        message = refused(f'{{"mcpServers": {{"git": {{}}}}, "toolcrib": {ours}}}')
        assert message == f"mcp.json: {where}: must be a whole number of calls, from {least} to 1000000"


def test_a_call_limit_has_a_minimum() -> None:
    for key, least in (("max_concurrent_calls", 1), ("max_queued_calls", 0), ("burst_calls", 1)):
        read({"toolcrib": {key: least}})
        assert f"from {least} to" in refused({"toolcrib": {key: least - 1}})


def test_gateway_rate_limits_are_refused_for_one_server() -> None:
    for key in ("calls_per_minute", "burst_calls"):
        message = refused({"mcpServers": {"git": {}}, "toolcrib": {"sources": {"git": {key: 1}}}})
        assert f"toolcrib.sources.git: unknown key `{key}`" in message


def test_a_server_gets_its_configured_title_and_summary() -> None:
    git = server({"command": "x"}, sources={"git": {"title": "Git", "summary": "Version control."}})

    assert (git.title, git.summary) == ("Git", "Version control.")
    assert (server({"command": "x"}).title, server({"command": "x"}).summary) == (None, "")


@pytest.mark.parametrize(
    ("ours", "message"),
    [
        ({"call_timeout": 5}, "toolcrib: unknown key `call_timeout` (did you mean `call_timeout_s`?)"),
        ({"zebra": 5}, f"toolcrib: unknown key `zebra`; known: {', '.join(SETTINGS)}"),
        ({"sources": {"gti": {}}}, "toolcrib.sources: unknown key `gti` (did you mean `git`?)"),
        ({"sources": {"zebra": {}}}, "toolcrib.sources: unknown key `zebra`; known: git"),
        ({"sources": {"git": {"Title": "x"}}}, "toolcrib.sources.git: unknown key `Title` (did you mean `title`?)"),
        (
            {"sources": {"git": {"zebra": "x"}}},
            f"toolcrib.sources.git: unknown key `zebra`; known: {', '.join(SOURCE_SETTINGS)}",
        ),
        ({"sources": {"git": {"title": 5}}}, "toolcrib.sources.git.title: must be a string"),
        ({"sources": {"git": {"summary": []}}}, "toolcrib.sources.git.summary: must be a string"),
        ({"sources": {"git": []}}, "toolcrib.sources.git: must be an object"),
        ({"sources": []}, "toolcrib.sources: must be an object"),
        ([], "toolcrib: must be an object"),
        (None, "toolcrib: must be an object"),
    ],
    ids=str,
)
def test_an_invalid_toolcrib_setting_is_reported_with_its_path(ours: object, message: str) -> None:
    assert refused({"mcpServers": {"git": {"command": "x"}}, "toolcrib": ours}) == f"mcp.json: {message}"


def test_settings_of_a_server_are_refused_in_a_file_without_servers() -> None:
    assert refused({"toolcrib": {"sources": {"git": {}}}}).endswith("unknown key `git`; known: none")


# -- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("{", "line 1, column 2"),
        ('{\n  "mcpServers": {\n    "git": {"command": }\n  }\n}', "line 3, column 24"),
        ('{\n  // why\n  "mcpServers": {\n    "git": {"command" "x"}\n  }\n}', "line 4, column 23"),
        ('{"a": /* two\nlines */ oops}', "line 2, column 10"),
        ("{'mcpServers': {}}", "line 1, column 2"),
        ('{"a": 1} {"b": 2}', "line 1, column 10"),
    ],
)
def test_a_syntax_error_is_reported_with_line_and_column(text: str, position: str) -> None:
    assert refused(text).startswith(f"mcp.json: {position}: ")


def test_an_empty_or_toml_file_is_recognized_in_the_error() -> None:
    told: list[str] = []
    for text in ("", " \n", '[mcp_servers.git]\ncommand = "uvx"\n', "# nothing\n"):
        with pytest.raises(InvalidConfig) as refused:
            parse_config(text, FILE, {})
        told.append(refused.value.message.removeprefix(f"{FILE}: "))

    assert told[0] == told[1] == 'the file is empty; the smallest configuration is {"mcpServers": {}}'
    assert told[2] == "this is TOML; a configuration is JSON, with the servers under `mcpServers`"
    assert told[3].startswith("line 1, column 1")


def test_comments_and_trailing_commas_are_allowed_and_strings_unchanged() -> None:
    text = """
    // servers of mine
    {
      "mcpServers": { /* the
                         only one */
        "git": {
          "command": "x", // runs it
          "args": ["https://a//b", "/* no comment */", "a, ]", "\\" // neither", ",}",],
        },
      },
    }
    """

    assert parse_config(text, FILE).servers[0].server == StdioServer(
        "x", ("https://a//b", "/* no comment */", "a, ]", '" // neither', ",}"), {}, None
    )


@pytest.mark.parametrize("text", ["[]", "null", "5", '"mcpServers"', "true"])
def test_a_file_that_is_not_an_object_is_refused(text: str) -> None:
    assert refused(text) == "mcp.json: the file: must be an object"


@pytest.mark.parametrize("value", [None, [], "git", 5, [{"name": "git", "command": "x"}]])
@pytest.mark.parametrize("key", ["mcpServers", "servers"])
def test_servers_that_are_not_an_object_are_refused(key: str, value: object) -> None:
    assert refused({key: value}) == f"mcp.json: {key}: must be an object"


def test_duplicate_server_names_are_refused() -> None:
    message = refused('{"mcpServers": {"git": {"command": "x"}, "git": {"command": "y"}}}')

    assert message == "mcp.json: mcpServers: duplicate server name `git`. Rename one of them."


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"mcpServers": {"a": {}}, "mcpServers": {}}', "duplicate key `mcpServers`"),
        ('{"servers": {"a": {}}, "servers": {}}', "duplicate key `servers`"),
        ('{"toolcrib": {}, "toolcrib": {}}', "duplicate key `toolcrib`"),
        ('{"toolcrib": {"call_timeout_s": 1, "call_timeout_s": 2}}', "toolcrib.call_timeout_s: duplicate key"),
        ('{"mcpServers": {"a": {}}, "toolcrib": {"sources": {"a": {}, "a": {}}}}', "toolcrib.sources.a: duplicate key"),
        (
            '{"toolcrib": {"sources": {"a": {"principals": {"p": {"env": {"K": "1", "K": ""}}}}}}}',
            "toolcrib.sources.a.principals.p.env.K: duplicate key",
        ),
    ],
)
def test_duplicate_keys_in_a_file_are_refused(text: str, told: str) -> None:
    assert refused(text) == f"mcp.json: {told}"


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' * 100_000, '{"a": ' + "1" * 5_000 + "}"], ids=lambda t: t[:5])
def test_a_file_beyond_the_limits_of_python_is_refused(text: str) -> None:
    assert refused(text).startswith("mcp.json: ")


@given(st.text('{}[]":,/*\n\\ax1', max_size=40))
def test_any_file_content_is_read_or_refused(text: str) -> None:
    with suppress(InvalidConfig):
        assert parse_config(text, FILE, {}).path == FILE


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["x", "${A}", "https://x", ""]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["git", "command", "url", "args", "env", "headers", "type", "cwd", "disabled", "sources"]),
            inner,
            max_size=3,
        )
    ),
)


@given(st.dictionaries(st.sampled_from(["mcpServers", "servers", "toolcrib"]), ANY))
def test_any_json_document_is_read_refused_or_reported_per_server(document: object) -> None:
    try:
        config = read(document)
    except InvalidConfig:
        return
    for server in config.servers:
        assert (server.server is not None) + (server.problem is not None) + server.disabled == 1


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"gît": {"command": "x"}}}', encoding="utf-8-sig")

    config = read_config(path)

    assert config.path == path
    assert [server.name for server in config.servers] == ["gît"]


def test_an_unreadable_file_is_reported_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"nowhere\.json: file not found"):
        read_config(tmp_path / "nowhere.json")
    with pytest.raises(InvalidConfig, match="cannot read the file"):
        read_config(tmp_path)


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"é": {}}}', encoding=encoding)

    with pytest.raises(InvalidConfig, match=r"mcp\.json: must be UTF-8 text"):
        read_config(path)
