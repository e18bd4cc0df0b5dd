"""Output of real package managers and runtimes: the line that names the cause, and the remedy."""

from __future__ import annotations

import httpx2
import pytest

from toolcrib.sources.mcp import HttpServer, StdioServer
from toolcrib.sources.mcp.refused_requests import Closed, Refusal, RequestRefused
from toolcrib.sources.mcp.server_failures import remedy, telling

NPM_404 = """\
npm warn Unknown user config "nodedir". This will stop working in the next major version of npm.
npm error code E404
npm error 404 Not Found - GET https://registry.example.org/@modelcontextprotocol%2fserver-thinkin - Not found
npm error 404
npm error 404  '@modelcontextprotocol/server-thinkin@*' is not in this registry.
npm error 404
npm error 404 Note that you can also install from a
npm error 404 tarball, folder, http url, or git url.
npm error A complete log of this run can be found in: /home/ada/.npm/_logs/2026-11-22T11_56_32_208Z-debug-0.log"""
NPM_OFFLINE = """\
npm error code ENOTFOUND
npm error syscall getaddrinfo
npm error errno ENOTFOUND
npm error FetchError: request to https://registry.example.org/thinkin failed, reason: getaddrinfo ENOTFOUND
npm error     at ClientRequest.<anonymous> (/usr/lib/node_modules/npm/node_modules/minipass-fetch/lib/index.js:130:14)
npm error   code: 'ENOTFOUND',
npm error }
npm error If you are behind a proxy, please make sure that the 'proxy' config is set properly."""
UV_404 = """\
  × No solution found when resolving tool dependencies:
  ╰─▶ Because mcp-server-tme was not found in the package registry and you
      require mcp-server-tme, we can conclude that your requirements are
      unsatisfiable."""
UV_OFFLINE = """\
error: Failed to fetch: `https://pypi.org/simple/mcp-server-fetch/`
  Caused by: Request failed after 3 retries
  Caused by: error sending request for url (https://pypi.org/simple/mcp-server-fetch/)"""
NODE = """\
node:internal/modules/cjs/loader:1210
  throw err;
  ^

Error: Cannot find module '/srv/index.js'
Require stack:
- /srv/[eval]
    at Module._resolveFilename (node:internal/modules/cjs/loader:1207:15)
    at [eval]-wrapper:6:24 {
  code: 'MODULE_NOT_FOUND',
  requireStack: [ '/srv/[eval]' ]
}

Node.js v20.20.2"""
PYTHON = """\
Traceback (most recent call last):
  File "/srv/vault.py", line 3, in main
    raise ValueError("there are no vaults")
ValueError: there are no vaults"""
BRAVE = "\x1b[31mError: BRAVE_API_KEY environment variable is required\x1b[0m"
DATABASE = "starting\nError: connect ECONNREFUSED 127.0.0.1:5432\n    at TCPConnectWrap.afterConnect (node:net:1555:16)"

PROGRAM = StdioServer("npx", ("-y", "server"))


@pytest.mark.parametrize(
    ("output", "line", "way_out"),
    [
        (
            NPM_404,
            "'@modelcontextprotocol/server-thinkin@*' is not in this registry.",
            "Check the name in `args`: there is no npm package `@modelcontextprotocol/server-thinkin`.",
        ),
        (
            NPM_OFFLINE,
            "FetchError: request to https://registry.example.org/thinkin failed, reason: getaddrinfo ENOTFOUND",
            "Check the network, and HTTPS_PROXY if you need a proxy.",
        ),
        (
            UV_404,
            "Because mcp-server-tme was not found in the package registry and you require mcp-server-tme, we can",
            "Check the name in `args`: there is no Python package `mcp-server-tme`.",
        ),
        (
            UV_OFFLINE,
            "error: Failed to fetch: `https://pypi.org/simple/mcp-server-fetch/` Caused by: Request failed",
            "Check the network, and HTTPS_PROXY if you need a proxy.",
        ),
        (
            NODE,
            "Error: Cannot find module '/srv/index.js'",
            "Check `command` and `args`: `/srv/index.js` is not installed there.",
        ),
        (PYTHON, "ValueError: there are no vaults", ""),
        (BRAVE, "Error: BRAVE_API_KEY environment variable is required", "Set `BRAVE_API_KEY` in its `env`."),
        ("Please set GITHUB_TOKEN", "Please set GITHUB_TOKEN", "Set `GITHUB_TOKEN` in its `env`."),
        (
            DATABASE,
            "Error: connect ECONNREFUSED 127.0.0.1:5432",
            "Check that the service at `127.0.0.1:5432` is running.",
        ),
    ],
)
def test_the_line_that_names_the_cause_comes_first_without_noise(output: str, line: str, way_out: str) -> None:
    lines = [each for each in output.splitlines() if each.strip()]
    told = telling(lines)
    assert line in told[0]
    assert not any("complete log" in each or "Require stack" in each or "File" in each for each in told)
    assert remedy(PROGRAM, Closed(1), lines) == way_out


def test_output_without_a_cause_is_shown_by_its_last_lines_in_order() -> None:
    assert telling(["one", "two", "three", "four"]) == ["two", "three", "four"]
    assert telling(["same"] * 5) == ["same"]
    assert telling([]) == []


def test_a_very_long_line_is_cut() -> None:
    (told,) = telling(["error: " + "x" * 100_000])
    assert len(told) == 300


@pytest.mark.parametrize(
    ("command", "way_out"),
    [
        ("uvx", "Install uv, which brings `uvx`: https://docs.astral.sh/uv/"),
        ("/opt/bin/npx", "Install Node.js, which brings `npx`: https://nodejs.org/"),
        ("vault", "Install `vault`, or write its full path as `command`."),
    ],
)
def test_a_missing_program_gets_a_remedy_to_install_it(command: str, way_out: str) -> None:
    assert remedy(StdioServer(command), FileNotFoundError(2, "gone", command), []) == way_out


@pytest.mark.parametrize(
    ("refusal", "way_out"),
    [
        (Refusal("refused", status=401), "Add the required credentials to its `headers`."),
        (Refusal("refused", status=404), 'it often ends in /mcp. For an older server, set `"type": "sse"`.'),
        (Refusal("refused", status=503), ""),
        (Refusal("did not accept a connection", unreached=True), "Check that the server is running"),
        (Refusal("cannot be asked", unreached=True, lasting=True), ""),
        (Refusal("needs it", status=401, wants_sign_in=True, login="toolcrib login x"), "Run `toolcrib login x`."),
        (Refusal("needs it", status=401, wants_sign_in=True), "Set its `isolation`"),
    ],
)
def test_a_refused_request_gets_a_remedy_without_secrets(refusal: Refusal, way_out: str) -> None:
    told = remedy(HttpServer("https://ada:s3cret@far.example/mcp?key=s3cret"), RequestRefused(refusal), [])
    assert way_out in told
    assert bool(told) == bool(way_out)
    assert "s3cret" not in told


def test_an_unreachable_address_gets_a_remedy_to_check_the_server() -> None:
    assert "is running" in remedy(HttpServer("https://far.example/mcp"), httpx2.ConnectError("refused"), [])
