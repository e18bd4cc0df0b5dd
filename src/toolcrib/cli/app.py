"""The commands of `toolcrib` and their options. The module that does a command's work is imported when it runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from toolcrib.cli.since import Since
from toolcrib.version import VERSION

DEFAULT_CONFIG = Path("mcp.json")

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


def config_either_way(command: Callable[..., None]) -> Callable[..., None]:
    """Let `command` accept its configuration as the argument CONFIG or as `-c`, but not as both."""

    @click.argument("argument", metavar="[CONFIG]", type=click.Path(path_type=Path, dir_okay=False), required=False)
    @config_option
    @wraps(command)
    def run(argument: Path | None, config: Path, **options: Any) -> None:
        context = click.get_current_context()
        if argument is not None and context.get_parameter_source("config") is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"Pass the configuration once: you gave `{argument}` and `-c {config}`.")
        # Hints that propose a command read the configuration from `context.params`.
        chosen = context.params["config"] = argument or config
        command(config=chosen, **options)

    return run


tools_option = click.option(
    "--tools",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Read tool definitions from this file instead of starting servers.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
as_option = click.option(
    "--as",
    "principal",
    metavar="NAME",
    help="Show what this principal sees, with the scopes of its first token in the configuration.",
)
bundle_option = click.option("--bundle", metavar="NAME", help="Use only the tools of this bundle.")
wait_option = click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    default=60,
    show_default=True,
    help="How long to wait for servers to start.",
)


def _speak_up(_context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        from toolcrib.cli.terminal_output import log_everything

        log_everything()


def _verbose(*, hidden: bool) -> click.Option:
    """`-v` after the name of a command, where most people put it. It does the same as `-v` before the name."""
    told = "Log to standard error, including what the servers log."
    return click.Option(
        ["-v", "--verbose"], is_flag=True, expose_value=False, callback=_speak_up, hidden=hidden, help=told
    )


def _take_verbose_anywhere(group: click.Group) -> None:
    """Let every command accept `-v`. Only the help of `serve` lists it, to keep the other helps short."""
    for command in group.commands.values():
        if isinstance(command, click.Group):
            _take_verbose_anywhere(command)
        else:
            command.params.append(_verbose(hidden=command is not serve))


SECTIONS = {
    "Start here": ("doctor", "worth-it", "install", "demo"),
    "Serve": ("serve", "acp", "token"),
    "Look around": ("search", "list", "tree", "categories", "expand", "call"),
    "Control": ("approvals", "pin", "drift", "audit", "bundles"),
    "Add tools": ("add", "remove", "export", "import"),
    "Improve": ("lint", "eval", "embed"),
    "Build your own agent": ("describe", "instructions", "grammar", "schema"),
}
"""The commands as `--help` groups them. Commands that are not listed here appear in a last section."""


class _Sections(click.Group):
    """Shows its commands in groups, because one list of all commands is hard to scan."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        known = {name for names in SECTIONS.values() for name in names}
        rest = tuple(name for name in self.list_commands(ctx) if name not in known)
        width = max(map(len, self.commands))
        for title, names in {**SECTIONS, "Others": rest}.items():
            shown = [(name, self.commands[name]) for name in names if name in self.commands]
            if shown:
                with formatter.section(title):
                    formatter.write_dl(
                        [(f"{name:{width}}", command.get_short_help_str(120)) for name, command in shown]
                    )


@click.group(cls=_Sections, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(VERSION, prog_name="toolcrib")
@click.option("-v", "--verbose", is_flag=True, help="Log to standard error, including what the servers log.")
def main(verbose: bool) -> None:
    """Give agents search, expand and call instead of hundreds of tool definitions.

    CONFIG is your client's mcp.json. The default is mcp.json in the current folder.

    To start, run `toolcrib doctor` to check your servers, then `toolcrib install CLIENT` to add Toolcrib to your
    client. The documentation is in docs/commands.md of the project.
    """
    from toolcrib.cli.terminal_output import set_up_logging

    set_up_logging(verbose=verbose)


def _operations(context: click.Context, _: click.Parameter, value: str) -> str:
    """Return `value` if it is a set of operations or a list of their names.

    Raises:
        click.BadParameter: `value` is neither.
    """
    if value in ("compact", "all"):  # the common values are checked first, to start faster without the imports below
        if value == "all" and context.command.name != "serve":
            raise click.BadParameter("only `serve` accepts `all`, because `all` has no operations")
        return value
    from toolcrib.core.errors import InvalidConfig
    from toolcrib.operations.tools import chosen

    try:
        chosen(value)
    except InvalidConfig as error:
        raise click.BadParameter(error.message) from error
    return value


@main.command(short_help="Serve your tools over MCP.")
@config_either_way
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Serve over HTTP on this address: MCP at /mcp, the HTTP API at /v1. A port alone means 127.0.0.1.",
)
@click.option(
    "--operations",
    metavar="[compact|full|guarded|discovery|all|NAME,NAME...]",
    default="compact",
    show_default=True,
    callback=_operations,
    help="Which tools a client sees: `compact` (four), `full` (six), `guarded` (adds call_read_only_tool), "
    "`discovery` (finds by category), `all` (every tool, for clients that search by themselves), or the operations "
    "that you name, such as list,search_tools,expand_tool.",
)
@click.option(
    "--cache",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="TOOLCRIB_CACHE",
    show_envvar=True,
    help="Where to cache tool definitions. Default: your system's cache folder.",
)
@click.option("--no-cache", is_flag=True, help="Do not cache definitions. Start every server immediately.")
@click.option("--bundle", metavar="NAME", help="Serve only the tools of this bundle.")
@click.option("--no-audit", is_flag=True, help="Turn the audit off, even if CONFIG turns it on.")
def serve(**options: Any) -> None:
    """Serve the tools of CONFIG's servers over MCP, on standard input and output or over HTTP.

    A client sees four tools: list, search_tools, expand_tool and call_tool. You can edit CONFIG while the gateway
    runs: it applies the changes. It caches tool definitions, so after the first start it starts a server only when
    one of its tools is called. To use it, replace the servers in your client's configuration with this entry:

    \b
      {"mcpServers": {"toolcrib": {"command": "toolcrib", "args": ["serve", "/path/to/mcp.json"]}}}

    CONFIG can also be MODULE:NAME, for a Toolcrib object called NAME in your Python module. Then the options for the
    cache and the audit do not apply.
    """
    import gc

    # Almost everything that a start allocates stays alive. Searching it for garbage again and again takes an eighth
    # of the time to the first answer. The `serve` function runs one collection when the gateway is ready.
    gc.disable()
    try:
        from toolcrib.cli.serve_command import serve as run

        run(**options)
    finally:
        gc.enable()


@main.command(short_help="Run as an agent in an editor that speaks ACP.")
@click.argument("config", metavar="[CONFIG]", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option(
    "--model",
    metavar="MODEL",
    required=True,
    envvar="TOOLCRIB_MODEL",
    show_envvar=True,
    help="A Pydantic AI model name, such as openai:gpt-5, or scripted:FILE to run a script without a model.",
)
@click.option("--bundle", metavar="NAME", help="Use only the tools of this bundle of CONFIG.")
@click.option("--no-sessions", is_flag=True, help="Do not save conversations. They cannot be loaded later.")
@click.option("--no-audit", is_flag=True, help="Turn the audit off, even if CONFIG turns it on.")
def acp(**options: Any) -> None:
    """Run as an agent in an editor that speaks the Agent Client Protocol, on standard input and output.

    When a conversation starts, Toolcrib finds out what the editor offers: files, terminals, its own tools and MCP
    servers. The agent finds all of these, and the tools of CONFIG if you pass one, through the same four operations.
    The editor asks you before a tool runs that may change something. This needs the extra `acp`, and the packages that
    Pydantic AI needs for your MODEL.

    \b
      {"agent_servers": {"Toolcrib": {"command": "toolcrib", "args": ["acp", "--model", "openai:gpt-5"]}}}
    """
    from toolcrib.cli.acp_command import acp as run

    run(**options)


@main.command(short_help="Start sample servers and run real tasks through them.")
@click.option("--keep", is_flag=True, help="Keep the folder that the demo creates.")
@json_option
def demo(**options: Any) -> None:
    """Start published MCP servers, run real tasks through them, and count the tokens that this takes.

    This needs uvx (from uv) on the PATH. The first run downloads the servers.
    """
    from toolcrib.cli.demo_command import demo as run

    run(**options)


@main.command(short_help="Print the instructions that a model receives.")
@config_either_way
@click.option("--full", is_flag=True, help="Print the long version, for your own system prompt.")
@click.option(
    "--operations",
    metavar="[compact|full|guarded|discovery|NAME,NAME...]",
    default="compact",
    show_default=True,
    callback=_operations,
    help="The operations that the instructions explain.",
)
def instructions(**options: Any) -> None:
    """Print what a model is told about the operations and about the top-level categories of CONFIG's catalog."""
    from toolcrib.cli.protocol import instructions as run

    run(**options)


@main.command(short_help="Print the protocol's messages as JSON Schema.")
def schema() -> None:
    """Print one JSON Schema document with every request, every response and the error of the discovery protocol."""
    from toolcrib.cli.protocol import schema as run

    run()


@main.group(short_help="Register a command or an HTTP endpoint as a tool.")
def add() -> None:
    """Register a tool in addition to the configuration. It survives restarts, and running gateways pick it up.

    To register other kinds of tools, categories or bundles, use `toolcrib import`.
    """


def _registering(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that all kinds of tools share."""
    for option in (
        json_option,
        config_option,
        click.option(
            "--schema",
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            help="A file with the JSON Schema of the arguments. Default: every {name} is a required string.",
        ),
        click.option("--description", required=True, metavar="TEXT", help="What the tool does. Models read it."),
        click.argument("tool_id", metavar="ID"),
    ):
        command = option(command)
    return command


@add.command("command", short_help="Register a command.")
@_registering
@click.argument("words", metavar="-- PROGRAM [ARGUMENT]...", nargs=-1, required=True)
def add_command(tool_id: str, words: tuple[str, ...], description: str, **options: Any) -> None:
    """Register a command as the tool ID. It runs without a shell, and each {name} in it becomes an argument.

    \b
      toolcrib add command ops.disk_free --description "Free room on a disk." -- df -h -- {path}
    """
    from toolcrib.cli.registration_commands import add as run

    run(tool_id=tool_id, declaration={"description": description, "command": [*words]}, **options)


@add.command("http", short_help="Register an HTTP endpoint.")
@_registering
@click.argument("url")
@click.option("--method", default="GET", show_default=True, help="The HTTP method.")
@click.option("--header", "headers", metavar="'NAME: VALUE'", multiple=True, help="A header to send. Repeatable.")
@click.option("--body", metavar="TEXT", help="The request body, as plain text.")
@click.option("--json-body", metavar="JSON", help='The request body, as JSON: \'{"text": "{text}"}\'.')
@click.option("--allow-private", is_flag=True, help="Allow an address on this machine or in a private network.")
def add_http(tool_id: str, url: str, description: str, **options: Any) -> None:
    """Register an HTTP endpoint as the tool ID. Each {name} in the URL, headers and body becomes an argument.

    \b
      toolcrib add http weather.current "https://weather.example.com/v1/now?city={city}" \\
        --description "The weather in a city." --header 'Authorization: Bearer ${env:WEATHER_TOKEN}'
    """
    from toolcrib.cli.registration_commands import add as run
    from toolcrib.cli.registration_commands import http_of

    keys = ("method", "headers", "body", "json_body", "allow_private")
    http = http_of(url, **{key: options.pop(key) for key in keys})
    run(tool_id=tool_id, declaration={"description": description, "http": http}, **options)


@main.command(short_help="Unregister tools.")
@click.argument("tool_ids", metavar="[ID]...", nargs=-1)
@click.option("--category", "categories", metavar="PATH", multiple=True, help="A category: `Coding/Refactoring`.")
@click.option("--override", "overrides", metavar="PATTERN", multiple=True, help="The metadata of these tools.")
@click.option("--bundle", "bundles", metavar="NAME", multiple=True, help="A bundle.")
@click.option("--capability", "capabilities", metavar="NAME", multiple=True, help="A capability.")
@config_option
@json_option
def remove(**options: Any) -> None:
    """Unregister the tools ID, or what the options name. If one of them is not registered, nothing is removed."""
    if not any(options[key] for key in ("tool_ids", "categories", "overrides", "bundles", "capabilities")):
        raise click.UsageError("Name what to remove. Run `toolcrib export` to see what is registered.")
    from toolcrib.cli.registration_commands import remove as run

    run(**options)


@main.command(short_help="Write everything that is registered to one file.")
@config_either_way
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write. Default: standard output.",
)
def export(**options: Any) -> None:
    """Write everything that was registered for CONFIG to one JSON document, for `toolcrib import` or for mcp.json."""
    from toolcrib.cli.registration_commands import export as run

    run(**options)


@main.command("import", short_help="Register everything in a file.")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@config_either_way
@click.option("--replace", "replacing", is_flag=True, help="Replace registered items that differ from the file.")
@click.option("--dry-run", is_flag=True, help="Show what would change, but write nothing.")
@json_option
def import_(**options: Any) -> None:
    """Register everything in FILE for CONFIG: tools, categories, bundles, capabilities, metadata. All or nothing."""
    from toolcrib.cli.registration_commands import import_ as run

    run(**options)


@main.command(short_help="Show or revoke calls that people approved permanently.")
@click.option("--revoke", metavar="NUMBER", type=int, multiple=True, help="Ask people again about this one.")
@click.option(
    "--store", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="The file with the approvals."
)
@json_option
def approvals(**options: Any) -> None:
    """Show which tools run without asking because a person answered `always`, and for which principal."""
    from toolcrib.cli.approvals_command import approvals as run

    run(**options)


@main.command("list", short_help="List the categories and tools at a path.")
@click.argument("path", nargs=-1)
@config_option
@tools_option
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="Show only tools with this tag. Repeatable.")
@click.option("--query", help="Show only what matches this query, best first.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 50),
    metavar="COUNT",
    default=50,
    show_default=True,
    help="How many entries to show.",
)
@bundle_option
@as_option
@wait_option
@json_option
def list_(**options: Any) -> None:
    """List the categories and tools at a path, given name by name: `toolcrib list Coding Refactoring`."""
    from toolcrib.cli.catalog_commands import list_ as run

    run(**options)


@main.command(short_help="Show the whole catalog as a tree.")
@config_either_way
@tools_option
@bundle_option
@as_option
@wait_option
@json_option
def tree(**options: Any) -> None:
    """Show the whole catalog: its sources, categories and tools."""
    from toolcrib.cli.catalog_commands import tree as run

    run(**options)


@main.command(short_help="Show the top-level categories.")
@config_either_way
@tools_option
@wait_option
@json_option
def categories(**options: Any) -> None:
    """Show the top-level categories: how many tools each one has, and the version of each source."""
    from toolcrib.cli.catalog_commands import categories as run

    run(**options)


@main.command(short_help="Find tools by what they do.")
@click.argument("query", nargs=-1, required=True)
@config_option
@tools_option
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 50),
    metavar="COUNT",
    default=10,
    show_default=True,
    help="How many tools to show.",
)
@click.option(
    "--in",
    "category",
    metavar="CATEGORY",
    multiple=True,
    help="Search only this category and those below it. Repeat to go deeper: `--in Work --in Files`.",
)
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="Show only tools with this tag. Repeatable.")
@bundle_option
@as_option
@wait_option
@json_option
def search(query: tuple[str, ...], **options: Any) -> None:
    """Find tools by what they do, in plain words: `toolcrib search show the last commits`.

    The best match comes first. The number before each tool is its confidence, from 0 to 1.
    """
    from toolcrib.cli.catalog_commands import search as run

    run(" ".join(query), **options)


@main.command(short_help="Show a tool's full definition.")
@click.argument("tool_id", metavar="ID")
@config_option
@tools_option
@bundle_option
@as_option
@wait_option
@json_option
def expand(tool_id: str, **options: Any) -> None:
    """Show the full definition of the tool ID: its description, input schema and output schema."""
    from toolcrib.cli.catalog_commands import expand as run

    run(tool_id, **options)


@main.command(short_help="Print the tools as text for a system prompt.")
@config_either_way
@tools_option
@click.option(
    "--detail",
    type=click.Choice(["name", "summary", "full"]),
    default="full",
    show_default=True,
    help="The most to print about each tool. `full` adds its arguments and the handle for calling it.",
)
@click.option(
    "--budget",
    "budget_tokens",
    type=click.IntRange(min=100),
    metavar="TOKENS",
    default=2_000,
    show_default=True,
    help="The maximum length of the text, at four bytes per token.",
)
@bundle_option
@wait_option
@json_option
def describe(**options: Any) -> None:
    """Print the tools of CONFIG's servers as text for a system prompt, for agents that cannot call tools natively.

    The text groups tools by category, required tools first. If the budget is too small, tools that matter less are
    shortened, and then only counted.
    """
    from toolcrib.cli.describe import describe as run

    run(**options)


@main.command(short_help="Print a grammar that only allows valid tool calls.")
@click.argument("tool_ids", metavar="[TOOL]...", nargs=-1)
@config_option
@tools_option
@click.option(
    "--of",
    "what",
    type=click.Choice(["call", "arguments", "text-or-call"]),
    default="call",
    show_default=True,
    help="What to allow: a call of one of the tools, the arguments of the one TOOL, or text or a call.",
)
@click.option(
    "--style",
    type=click.Choice(["plain", "hermes", "llama"]),
    default="plain",
    show_default=True,
    help='How the model writes a call: {"name", "arguments"}; the same in <tool_call> tags; {"name", "parameters"}.',
)
@click.option("--strict", is_flag=True, help="Print schemas for the strict modes of OpenAI and Anthropic instead.")
@bundle_option
@wait_option
@json_option
def grammar(**options: Any) -> None:
    """Print a grammar for llama.cpp (GBNF) that allows calls of TOOLs, or of all tools of CONFIG's servers.

    Rules of their schemas that the grammar cannot express are listed on standard error.

    \b
      toolcrib grammar files.read files.write > calls.gbnf
      llama-server -m model.gguf --grammar-file calls.gbnf
    """
    from toolcrib.cli.own_agent_commands import grammar as run

    run(**options)


@main.command(short_help="Run a tool.")
@click.argument("tool_id", metavar="ID")
@click.argument("arguments", metavar="[JSON | KEY=VALUE...]", nargs=-1)
@config_option
@bundle_option
@wait_option
@json_option
def call(tool_id: str, arguments: tuple[str, ...], **options: Any) -> None:
    """Run the tool ID. Pass its arguments as one JSON object (`-` reads it from standard input), or as KEY=VALUE pairs.

    A VALUE that is a JSON number, true, false, null, list or object is read as JSON. Any other VALUE is a string.

    \b
      toolcrib call git.git_log '{"repo_path": ".", "max_count": 3}'
      toolcrib call git.git_log repo_path=. max_count=3
    """
    from toolcrib.cli.call_command import call as run

    run(tool_id, arguments, **options)


@main.command(short_help="Show the bundles and what each one is missing.")
@click.argument("words", metavar="[CONFIG] [NAME]", nargs=-1)
@config_option
@wait_option
@json_option
def bundles(words: tuple[str, ...], config: Path, **options: Any) -> None:
    """Show the bundles of CONFIG and whether their required tools are available. With NAME, show that bundle's tools.

    Exits with 1 if a tool that NAME requires is missing.
    """
    from toolcrib.catalog.bundles import is_bundle_name
    from toolcrib.cli.bundles_command import bundles as run

    names = [word for word in words if is_bundle_name(word)]
    files = [Path(word) for word in words if not is_bundle_name(word)]
    context = click.get_current_context()
    files += [config] if not files or context.get_parameter_source("config") is ParameterSource.COMMANDLINE else []
    if len(names) > 1 or len(files) > 1:
        raise click.UsageError("Pass at most one configuration and one bundle.")
    context.params["config"] = files[0]
    run(files[0], names[0] if names else None, **options)


@main.command(short_help="Start every server and report problems.")
@config_either_way
@wait_option
@json_option
def doctor(**options: Any) -> None:
    """Start every server of CONFIG and report problems: whether it starts, how long that takes and what it offers.

    Also reports possible mistakes in the policy and the categories, and quarantined or suspicious definitions. Exits
    with 1 if a server cannot be used or a tool is quarantined.
    """
    from toolcrib.cli.doctor_command import doctor as run

    run(**options)


@main.command(short_help="Pin the current tool definitions.")
@click.argument("what", metavar="[WHAT]...", nargs=-1)
@config_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--full", is_flag=True, help="Show each new or changed definition in full.")
@click.option("--by", metavar="NAME", help="Who pins. Default: your user name on this system.")
@click.option("--remove", "mode", flag_value="remove", help="Remove pins instead. No server starts.")
@click.option("--list", "mode", flag_value="list", help="Show what is pinned. No server starts.")
@click.option("--log", "mode", flag_value="log", help="Show the history of all pins. No server starts.")
@wait_option
@json_option
def pin(what: tuple[str, ...], config: Path, mode: str | None, full: bool, wait_s: float, **options: Any) -> None:
    """Pin the definitions of CONFIG's servers as they are now. By default, agents do not see later changes until
    you pin them.

    WHAT: servers, tool ids or patterns of tool ids. Default: everything.

    Shows what is new, changed or suspicious, and asks for confirmation. Exits with 1 if something was not pinned.

    \b
      toolcrib pin git 'tracker.get_*'
    """
    from toolcrib.cli import pin_command as command

    shows = {"list": command.list_pins, "log": command.show_log}
    if mode in shows:
        shows[mode](what, config, as_json=options["as_json"])
    elif mode == "remove":
        command.unpin(what, config, **options)
    else:
        command.pin(what, config, wait_s=wait_s, full=full, **options)


@main.command(short_help="Show how definitions changed since you pinned them.")
@click.argument("what", metavar="[WHAT]...", nargs=-1)
@config_option
@wait_option
@json_option
def drift(what: tuple[str, ...], **options: Any) -> None:
    """Show how the definitions of CONFIG's servers changed since they were pinned with `toolcrib pin`.

    WHAT: servers, tool ids or patterns of tool ids. Default: everything.

    Exits with 1 if a definition changed, is gone, or is quarantined because it is not pinned. Exits with 2 if a server
    did not answer.
    """
    from toolcrib.cli.drift_command import drift as run

    run(what, **options)


@main.command(short_help="Check tool definitions for problems.")
@config_either_way
@click.option(
    "--python",
    "modules",
    metavar="MODULE[:NAME]",
    multiple=True,
    help="A module with tools to check. It is imported. Repeatable.",
)
@tools_option
@click.option("--rule", "only", metavar="RULE", multiple=True, help="Report only this rule. Repeatable.")
@click.option(
    "--ignore",
    "ignored",
    metavar="RULE[:PATTERN]",
    multiple=True,
    help="Do not report this rule, or not for tools with these ids. Repeatable.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1),
    metavar="TOKENS",
    default=1_000,
    show_default=True,
    help="The largest allowed definition, in estimated tokens.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "note"]),
    default="warning",
    show_default=True,
    help="Exit with 1 if a finding has this level or worse.",
)
@click.option("--sarif", "as_sarif", is_flag=True, help="Print a SARIF 2.1.0 log, for code hosts and editors.")
@wait_option
@json_option
def lint(config: Path, tools: Path | None, modules: tuple[str, ...], **options: Any) -> None:
    """Check tool definitions for problems: those of CONFIG's servers, those in a file, and those of Python modules.

    Finds tools that a model would confuse, descriptions that say nothing, parameters that a model must guess, names
    that clients refuse, schemas that do not match the function, and patterns in CONFIG that match nothing.

    CONFIG is checked if you name it, or if you pass neither a MODULE nor a FILE. Exits with 1 if there are problems.
    """
    from toolcrib.cli.lint_command import lint as run

    if options["as_json"] and options["as_sarif"]:
        raise click.UsageError("Pass either --json or --sarif, not both.")
    context = click.get_current_context()
    source = context.get_parameter_source("config")
    # A FILE replaces a configuration from the environment, as for other commands.
    is_typed = context.params["argument"] or source is ParameterSource.COMMANDLINE
    is_named = is_typed or (source is not ParameterSource.DEFAULT and tools is None)
    run(config if is_named or not (modules or tools) else None, tools, modules, **options)


audit_path_option = click.option(
    "--path",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Read this audit instead of CONFIG's.",
)


class _Audit(click.Command):
    """Shows the audit. `audit forget` runs a separate command: no trace id begins with `forget`."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args[:1] == [audit_forget.name]:
            return audit_forget.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@main.command(cls=_Audit, short_help="Show what agents searched for, expanded and called.")
@click.argument("trace", metavar="[TRACE | forget]", required=False)
@config_option
@audit_path_option
@click.option("--principal", metavar="ID", help="Traces of this principal.")
@click.option("--bundle", metavar="NAME", help="Traces with an operation in this bundle.")
@click.option("--tool", metavar="ID", help="Traces that expanded or called this tool, or any tool of this source.")
@click.option("--since", type=Since(), metavar="WHEN", help="Traces since this time: 90s, 30m, 2h, 7d, 1w, or a date.")
@click.option("--failed", is_flag=True, help="Traces with a failure.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(0),
    metavar="COUNT",
    help="How many traces to show. Default: 20, or all of them with --json.",
)
@click.option("-f", "--follow", is_flag=True, help="Keep running and show new operations as they happen.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, one for each operation.")
def audit(trace: str | None, **options: Any) -> None:
    """Show what agents searched for, expanded and called, and how it ended. Prints the latest traces, newest last.

    TRACE is the beginning of a trace id: it shows everything known about that trace. To delete traces, run `toolcrib
    audit forget`, which has its own --help.
    """
    from toolcrib.cli.audit_command import audit as run

    run(trace, **options)


@click.command("forget")
@config_option
@audit_path_option
@click.option("--principal", metavar="ID", help="Traces of this principal.")
@click.option("--tool", metavar="ID", help="Traces that name this tool, or any tool of this source, in any way.")
@click.option("--query", metavar="TEXT", help="Traces with a query that contains TEXT, in upper or lower case.")
@click.option(
    "--before", type=Since(), metavar="WHEN", help="Traces that ended before a date, or 90s, 30m, 2h, 7d ago."
)
@click.option("--all", "everything", is_flag=True, help="All traces.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
def audit_forget(config: Path, path: Path | None, everything: bool, yes: bool, as_json: bool, **said: Any) -> None:
    """Delete traces from the audit permanently. A trace is deleted if it matches all the options that you pass.

    Programs that use the audit keep running. Search in running gateways forgets these traces within a few seconds.
    """
    from toolcrib.audit.audit_file import Unwanted
    from toolcrib.cli.forgetting import forget as run

    unwanted = Unwanted(**said)
    if unwanted.is_all != everything or "" in said.values():
        raise click.UsageError(
            "Say which traces: pass --principal, --tool, --query or --before, or --all for all of them."
        )
    run(unwanted, config, path, yes=yes, as_json=as_json)


@main.group(short_help="Download an embedding model.")
def embed() -> None:
    """Download an embedding model for search. No other command downloads one."""


@embed.command(short_help="Download the files that a manifest pins.")
@click.argument("manifest", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def fetch(manifest: Path, folder: Path) -> None:
    """Download the files that MANIFEST names into FOLDER, and check the SHA-256 hash of each file.

    FOLDER is created when all files are complete. MANIFEST is JSON:

    \b
      {"files": {"model.safetensors": {"url": "https://...", "sha256": "..."}}}
    """
    from toolcrib.cli.embed_command import fetch as run

    run(manifest, folder)


@main.command(short_help="Estimate whether Toolcrib saves tokens for you.")
@config_either_way
@tools_option
@wait_option
@json_option
def worth_it(**options: Any) -> None:
    """Compare the tokens of all definitions of CONFIG's servers, as a client shows them to a model, with Toolcrib's
    cost.

    Ends with a verdict: worth it, or not. Exits with 1 if the verdict depends on servers that cannot be listed.
    """
    from toolcrib.cli.worth_it_command import worth_it as run

    run(**options)


@main.command(short_help="Add Toolcrib to a client such as Cursor or Claude Code.")
@click.argument(
    "client", metavar="CLIENT", type=click.Choice(["claude-code", "claude-desktop", "cursor", "vscode", "zed"])
)
@click.option(
    "--scope",
    type=click.Choice(["user", "local", "project"]),
    help="Who gets the change: `user` (you, in every project; the default), `local` (you, in this project), "
    "`project` (everyone in this project).",
)
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="TOOLCRIB_CONFIG",
    show_envvar=True,
    help="The mcp.json that Toolcrib serves. Default: one in Toolcrib's own folder.",
)
@click.option("--move/--keep", default=None, help="Move the client's servers behind Toolcrib, or keep them in place.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Show the change, but write nothing.")
@click.option("--undo", "take_back", is_flag=True, help="Restore the previous configuration.")
@json_option
def install(client: str, **options: Any) -> None:
    """Add `toolcrib serve` to the configuration of CLIENT as an MCP server, and move its other servers behind it.

    CLIENT is claude-code, claude-desktop, cursor, vscode or zed.

    Shows the exact change, asks for confirmation, and saves a backup. Servers that only the client can start are not
    moved, and the command says why.
    """
    from toolcrib.cli.install_command import install as run

    run(client, **options)


@main.command(short_help="Create an access token for the HTTP gateway.")
@click.argument("principal", metavar="NAME")
@click.option("--scope", "scopes", multiple=True, help="A scope for this token, for use in policy rules. Repeatable.")
@click.option(
    "--write",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Add the entry to this mcp.json, under toolcrib.auth.tokens.",
)
@json_option
def token(principal: str, **options: Any) -> None:
    """Create a random bearer token for NAME, and show the entry for the configuration, which contains only its hash.

    The token is shown only once. Every request with this token to `toolcrib serve --http` acts on behalf of NAME.
    """
    from toolcrib.cli.token_command import token as run

    run(principal, **options)


@main.command("eval", short_help="Measure how well search finds the right tools.")
@config_either_way
@tools_option
@click.option(
    "--queries",
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help='A file with one {"query": ..., "relevant": [tool ids]} per line. No ids means that no tool fits.',
)
@click.option("--without", metavar="SIGNAL", multiple=True, help="Rank without this signal. Repeatable.")
@click.option(
    "--compare",
    metavar="SETTINGS",
    help="Also rank with these settings: `toolcrib.search` of a different mcp.json, or `without:SIGNAL,SIGNAL`.",
)
@click.option(
    "--floor",
    "floors",
    metavar="[METRIC=]VALUE",
    multiple=True,
    help="Exit with 1 if the mean is lower: `0.8` (of nDCG@10), `recall@5=0.9`. Repeatable.",
)
@click.option(
    "--worst",
    type=click.IntRange(0),
    metavar="COUNT",
    default=5,
    show_default=True,
    help="How many failures to explain.",
)
@wait_option
@json_option
def evaluate(**options: Any) -> None:
    """Measure how well search finds the right tools of CONFIG's servers: nDCG@10, recall@1/5/10 and MRR.

    Prints intervals, results by category, and the worst queries with the tools that ranked above the right ones.

    \b
      toolcrib eval --queries queries.jsonl --floor ndcg@10=0.8
      toolcrib eval --tools tools.json --queries queries.jsonl --compare without:synonyms
    """
    from toolcrib.cli.eval_command import evaluate as run

    run(**options)


_take_verbose_anywhere(main)
