"""The commands and their options; what each does lives in a module of its own, imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from toolcrib.version import VERSION

DEFAULT_CONFIG = Path("mcp.json")

config_argument = click.argument(
    "config", type=click.Path(path_type=Path, dir_okay=False), default=DEFAULT_CONFIG, envvar="TOOLCRIB_CONFIG"
)
config_option = click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    default=DEFAULT_CONFIG,
    envvar="TOOLCRIB_CONFIG",
    show_default=True,
    show_envvar=True,
    help="The mcp.json whose servers make up the catalog.",
)
tools_option = click.option(
    "--tools",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Look at the definitions in this file instead; no server is started.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
wait_option = click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    default=60.0,
    show_default=True,
    help="How long to wait for servers that are starting.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="toolcrib")
@click.option("-v", "--verbose", is_flag=True, help="Say on standard error what happens; with servers, what they say.")
def main(verbose: bool) -> None:
    """The counter where an agent's tools are kept and handed out on request.

    CONFIG is an mcp.json as your client has it (mcp.json here by default). Start with `toolcrib doctor`, look around
    with `toolcrib tree` and `toolcrib search`, then give your client `toolcrib serve` as its one MCP server:
    `toolcrib install` does that for you.
    """
    from toolcrib.cli.output import set_up_logging

    set_up_logging(verbose=verbose)


@main.command(short_help="Serve the tools of an mcp.json over MCP.")
@config_argument
@click.option("--http", metavar="HOST:PORT", help="Serve streamable HTTP there, at /mcp, for many clients at once.")
@click.option(
    "--operations",
    type=click.Choice(["compact", "all"]),
    default="compact",
    show_default=True,
    help="What a client sees: four operations, or every tool, for clients that search by themselves.",
)
@click.option(
    "--cache",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="TOOLCRIB_CACHE",
    show_envvar=True,
    help="Where the last known definitions are kept; in the cache folder of this system if not said.",
)
@click.option("--no-cache", is_flag=True, help="Keep no definitions: start every server at once.")
def serve(**options: Any) -> None:
    """Serve the tools of CONFIG's servers over MCP, on standard input and output or over HTTP.

    A client sees four tools: list, search_tools, expand_tool and call_tool. Changes of CONFIG are taken over while it
    runs. The definitions of every server are kept, so that from the second start on a server is started only when it
    is called. To use it, put this in your client's configuration in place of its servers:

    \b
      {"mcpServers": {"toolcrib": {"command": "toolcrib", "args": ["serve", "/path/to/mcp.json"]}}}
    """
    from toolcrib.cli.serve import serve as run

    run(**options)


@main.command(short_help="Start published servers and do real tasks through them.")
@click.option("--keep", is_flag=True, help="Keep the folder that the demo works in.")
@json_option
def demo(**options: Any) -> None:
    """Start published MCP servers, do real tasks through them, and count what that cost.

    Needs uvx (from uv) on the PATH; the first run downloads the servers.
    """
    from toolcrib.cli.demo import demo as run

    run(**options)


@main.command(short_help="Show the catalog as a tree.")
@config_argument
@tools_option
@wait_option
@json_option
def tree(**options: Any) -> None:
    """Show the catalog: its sources, categories and tools."""
    from toolcrib.cli.browse import tree as run

    run(**options)


@main.command(short_help="Find tools by what they do.")
@click.argument("query", nargs=-1, required=True)
@config_option
@tools_option
@click.option(
    "-n", "--limit", type=click.IntRange(1, 50), default=10, show_default=True, help="How many tools to show."
)
@wait_option
@json_option
def search(query: tuple[str, ...], **options: Any) -> None:
    """Find tools by what they do, in plain words: `toolcrib search show the last commits`."""
    from toolcrib.cli.browse import search as run

    run(" ".join(query), **options)


@main.command(short_help="Show what a tool takes and gives.")
@click.argument("tool_id", metavar="ID")
@config_option
@tools_option
@wait_option
@json_option
def expand(tool_id: str, **options: Any) -> None:
    """Show what the tool ID takes and gives: its description and schemas."""
    from toolcrib.cli.browse import expand as run

    run(tool_id, **options)


@main.command(short_help="Run a tool.")
@click.argument("tool_id", metavar="ID")
@click.argument("arguments", metavar="JSON", default="{}")
@config_option
@wait_option
@json_option
def call(tool_id: str, arguments: str, **options: Any) -> None:
    """Run the tool ID with JSON as its arguments (`-` reads them from standard input).

    \b
      toolcrib call git.git_log '{"repo_path": ".", "max_count": 3}'
    """
    from toolcrib.cli.call import call as run

    run(tool_id, arguments, **options)


@main.command(short_help="Start every server and tell what is wrong.")
@config_argument
@wait_option
@json_option
def doctor(**options: Any) -> None:
    """Start every server of CONFIG and tell what is wrong: does it start, how long does it take, what does it offer?

    Exits with 1 when a server cannot be used.
    """
    from toolcrib.cli.doctor import doctor as run

    run(**options)


@main.command(short_help="Tell whether Toolcrib would pay for itself.")
@config_argument
@tools_option
@wait_option
@json_option
def worth_it(**options: Any) -> None:
    """Weigh all definitions of CONFIG's servers as a client would show them to a model, against what Toolcrib costs.

    Ends with a verdict: worth it, or leave it. Exits with 1 where that hangs on servers that cannot be listed.
    """
    from toolcrib.cli.worth_it import worth_it as run

    run(**options)


@main.command(short_help="Put Toolcrib into a client's configuration.")
@click.argument(
    "client", metavar="CLIENT", type=click.Choice(["claude-code", "claude-desktop", "cursor", "vscode", "zed"])
)
@click.option(
    "--scope",
    type=click.Choice(["user", "local", "project"]),
    help="For whom it counts: you everywhere (the default), you in this project, or everybody in this project.",
)
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="TOOLCRIB_CONFIG",
    show_envvar=True,
    help="The mcp.json that Toolcrib is to serve; one in its own folder if not said.",
)
@click.option("--move/--keep", default=None, help="Move the client's servers behind Toolcrib, or keep them there.")
@click.option("--yes", is_flag=True, help="Ask nothing: move what can be moved, and write it.")
@click.option("--dry-run", is_flag=True, help="Show the change and write nothing.")
@click.option("--undo", "take_back", is_flag=True, help="Put back what was there before this command changed it.")
@json_option
def install(client: str, **options: Any) -> None:
    """Put `toolcrib serve` into the configuration of CLIENT as an MCP server, and its other servers behind it.

    CLIENT is claude-code, claude-desktop, cursor, vscode or zed.

    Shows the exact change, asks, and keeps what was there. Servers that only the client can start stay where they are
    and are named with the reason.
    """
    from toolcrib.cli.install import install as run

    run(client, **options)


@main.command("eval", short_help="Measure how well search finds the right tools.")
@click.option(
    "--tools",
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Definitions: one JSON object a line, an MCP tools/list answer, or an object of servers.",
)
@click.option(
    "--queries",
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help='One {"query": ..., "relevant": [tool ids]} a line.',
)
@json_option
def evaluate(**options: Any) -> None:
    """Measure how well search finds the right tools: recall@1/5/10, nDCG@10 and MRR."""
    from toolcrib.cli.evaluate import evaluate as run

    run(**options)
