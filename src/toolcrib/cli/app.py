"""The commands and their options; what each does lives in a module of its own, imported when it runs."""

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
    """Have `command` take its `config` as CONFIG or as `-c`: as clients' files name it, or as other commands do."""

    @click.argument("argument", metavar="[CONFIG]", type=click.Path(path_type=Path, dir_okay=False), required=False)
    @config_option
    @wraps(command)
    def run(argument: Path | None, config: Path, **options: Any) -> None:
        context = click.get_current_context()
        if argument is not None and context.get_parameter_source("config") is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"The configuration is named twice: `{argument}`, and `{config}` with -c.")
        # Errors that propose a command read it there.
        chosen = context.params["config"] = argument or config
        command(config=chosen, **options)

    return run


tools_option = click.option(
    "--tools",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Look at the definitions in this file instead; no server is started.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
as_option = click.option(
    "--as",
    "principal",
    metavar="NAME",
    help="What this principal sees, with the scopes of its first token in the configuration.",
)
bundle_option = click.option("--bundle", metavar="NAME", help="Only what this bundle of the configuration holds.")
wait_option = click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    default=60,
    show_default=True,
    help="How long to wait for servers that are starting.",
)


def _speak_up(_context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        from toolcrib.cli.output import log_everything

        log_everything()


def _verbose(*, hidden: bool) -> click.Option:
    """`-v` after a command, where most people put it first; it is the same as before it."""
    told = "Log to standard error, including what the servers log."
    return click.Option(
        ["-v", "--verbose"], is_flag=True, expose_value=False, callback=_speak_up, hidden=hidden, help=told
    )


def _take_verbose_anywhere(group: click.Group) -> None:
    """Let every command take `-v`. Only the help of `serve` shows it: each of the others would have a line more."""
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
"""The commands as `--help` groups them. Others stand in a section of their own at the end."""


class _Sections(click.Group):
    """Shows its commands by purpose: one list of all of them is hard to scan."""

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
    from toolcrib.cli.output import set_up_logging

    set_up_logging(verbose=verbose)


def _operations(context: click.Context, _: click.Parameter, value: str) -> str:
    """`value`, where it is a set of operations or names some."""
    if value in ("compact", "all"):  # most often, and then nothing else is imported for it
        if value == "all" and context.command.name != "serve":
            raise click.BadParameter("`all` is for `serve` alone: there are no operations then")
        return value
    from toolcrib.core.errors import InvalidConfig
    from toolcrib.protocol.tools import chosen

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
    help="Serve many clients there: MCP at /mcp, and an API. A port alone is one of this machine.",
)
@click.option(
    "--operations",
    metavar="[compact|full|guarded|discovery|all|NAME,NAME...]",
    default="compact",
    show_default=True,
    callback=_operations,
    help="What a client sees: four operations; all six of the protocol; four and call_read_only_tool, which it may "
    "approve for good; four that find by category; every tool, for clients that search by themselves; or the "
    "operations that you name, such as list,search_tools,expand_tool.",
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
@click.option("--bundle", metavar="NAME", help="Serve only what this bundle of CONFIG holds.")
@click.option("--no-audit", is_flag=True, help="Write down nothing of what is done, whatever CONFIG says.")
def serve(**options: Any) -> None:
    """Serve the tools of CONFIG's servers over MCP, on standard input and output or over HTTP.

    A client sees four tools: list, search_tools, expand_tool and call_tool. Changes of CONFIG are taken over while it
    runs. The definitions of every server are kept, so that from the second start on a server is started only when it
    is called. To use it, put this in your client's configuration in place of its servers:

    \b
      {"mcpServers": {"toolcrib": {"command": "toolcrib", "args": ["serve", "/path/to/mcp.json"]}}}

    CONFIG may also be MODULE:NAME, for the Toolcrib that is called NAME in a Python module of yours. The options on
    the cache and the audit are for servers alone.
    """
    import gc

    # What a start makes is there to stay. Looking for garbage among it, over and over as it becomes more, takes an
    # eighth of the time until the first answer; `serve` has garbage looked for once it serves.
    gc.disable()
    try:
        from toolcrib.cli.serve import serve as run

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
    help="A model as Pydantic AI names it, like openai:gpt-5; or scripted:FILE, which plays a script.",
)
@click.option("--bundle", metavar="NAME", help="Of CONFIG, only what this bundle holds.")
@click.option("--no-sessions", is_flag=True, help="Keep no conversations: none can be loaded later on.")
@click.option("--no-audit", is_flag=True, help="Write down nothing of what is done, whatever CONFIG says.")
def acp(**options: Any) -> None:
    """Be an agent in an editor that speaks the Agent Client Protocol, on standard input and output.

    What the editor offers (files, terminals, its own tools, MCP servers) is found out when a conversation begins, and
    stands with the tools of CONFIG, if you name one, behind the same four operations. The editor asks you before
    anything runs that may change something. Needs the extra `acp`, and what Pydantic AI needs for your MODEL.

    \b
      {"agent_servers": {"Toolcrib": {"command": "toolcrib", "args": ["acp", "--model", "openai:gpt-5"]}}}
    """
    from toolcrib.cli.acp import acp as run

    run(**options)


@main.command(short_help="Start sample servers and run real tasks through them.")
@click.option("--keep", is_flag=True, help="Keep the folder that the demo works in.")
@json_option
def demo(**options: Any) -> None:
    """Start published MCP servers, do real tasks through them, and count what that cost.

    Needs uvx (from uv) on the PATH; the first run downloads the servers.
    """
    from toolcrib.cli.demo import demo as run

    run(**options)


@main.command(short_help="Print the instructions that a model receives.")
@config_either_way
@click.option("--full", is_flag=True, help="All of them, for a system prompt of your own; a client is told fewer.")
@click.option(
    "--operations",
    metavar="[compact|full|guarded|discovery|NAME,NAME...]",
    default="compact",
    show_default=True,
    callback=_operations,
    help="For which operations.",
)
def instructions(**options: Any) -> None:
    """Print what a model is told of the operations and of what stands at the top of CONFIG's catalog."""
    from toolcrib.cli.protocol import instructions as run

    run(**options)


@main.command(short_help="Print the protocol's messages as JSON Schema.")
def schema() -> None:
    """Print every request and response of the discovery protocol, and its error, as one JSON Schema document."""
    from toolcrib.cli.protocol import schema as run

    run()


@main.group(short_help="Register a command or an HTTP endpoint as a tool.")
def add() -> None:
    """Register a tool beside the configuration: it survives restarts, and running gateways take it over.

    What a tool can be besides this, and what else can be registered, goes by `toolcrib import`.
    """


def _registering(command: Callable[..., None]) -> Callable[..., None]:
    """What every kind of tool that is added has."""
    for option in (
        json_option,
        config_option,
        click.option(
            "--schema",
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            help="The JSON Schema of its arguments; if not said, every {name} in it is a required text.",
        ),
        click.option("--description", required=True, metavar="TEXT", help="What it does; models read it."),
        click.argument("tool_id", metavar="ID"),
    ):
        command = option(command)
    return command


@add.command("command", short_help="Register a command.")
@_registering
@click.argument("words", metavar="-- PROGRAM [ARGUMENT]...", nargs=-1, required=True)
def add_command(tool_id: str, words: tuple[str, ...], description: str, **options: Any) -> None:
    """Register a command as the tool ID; no shell reads it, and each {name} in it is an argument.

    \b
      toolcrib add command ops.disk_free --description "Free room on a disk." -- df -h -- {path}
    """
    from toolcrib.cli.registering import add as run

    run(tool_id=tool_id, declaration={"description": description, "command": [*words]}, **options)


@add.command("http", short_help="Register an HTTP endpoint.")
@_registering
@click.argument("url")
@click.option("--method", default="GET", show_default=True, help="How it is asked.")
@click.option("--header", "headers", metavar="'NAME: VALUE'", multiple=True, help="May be given several times.")
@click.option("--body", metavar="TEXT", help="What is sent, as a text.")
@click.option("--json-body", metavar="JSON", help='What is sent, as JSON: \'{"text": "{text}"}\'.')
@click.option("--allow-private", is_flag=True, help="It is on this machine, or in a private network.")
def add_http(tool_id: str, url: str, description: str, **options: Any) -> None:
    """Register an HTTP endpoint as the tool ID; each {name} in path, query, headers and body is an argument.

    \b
      toolcrib add http weather.current "https://weather.example.com/v1/now?city={city}" \\
        --description "The weather in a city." --header 'Authorization: Bearer ${env:WEATHER_TOKEN}'
    """
    from toolcrib.cli.registering import add as run
    from toolcrib.cli.registering import http_of

    keys = ("method", "headers", "body", "json_body", "allow_private")
    http = http_of(url, **{key: options.pop(key) for key in keys})
    run(tool_id=tool_id, declaration={"description": description, "http": http}, **options)


@main.command(short_help="Unregister tools.")
@click.argument("tool_ids", metavar="[ID]...", nargs=-1)
@click.option("--category", "categories", metavar="PATH", multiple=True, help="A category: `Coding/Refactoring`.")
@click.option("--override", "overrides", metavar="PATTERN", multiple=True, help="What is said of these tools.")
@click.option("--bundle", "bundles", metavar="NAME", multiple=True, help="A bundle.")
@click.option("--capability", "capabilities", metavar="NAME", multiple=True, help="A capability.")
@config_option
@json_option
def remove(**options: Any) -> None:
    """Register the tools ID no longer, or what the options name: all of it, or nothing where something is wrong."""
    if not any(options[key] for key in ("tool_ids", "categories", "overrides", "bundles", "capabilities")):
        raise click.UsageError("Nothing is named that is to go; `toolcrib export` shows what is registered.")
    from toolcrib.cli.registering import remove as run

    run(**options)


@main.command(short_help="Write everything that is registered to one file.")
@config_either_way
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Where to, if not shown.")
def export(**options: Any) -> None:
    """Write what is registered beside CONFIG as one JSON document, for `toolcrib import` or for the mcp.json itself."""
    from toolcrib.cli.registering import export as run

    run(**options)


@main.command("import", short_help="Register everything in a file.")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@config_either_way
@click.option("--replace", "replacing", is_flag=True, help="Take the place of what is registered and differs.")
@click.option("--dry-run", is_flag=True, help="Show what would change and write nothing.")
@json_option
def import_(**options: Any) -> None:
    """Register all that FILE holds beside CONFIG, or nothing: tools, categories, bundles, capabilities, metadata."""
    from toolcrib.cli.registering import import_ as run

    run(**options)


@main.command(short_help="Show or revoke calls that people approved permanently.")
@click.option("--revoke", metavar="NUMBER", type=int, multiple=True, help="Ask again from now on.")
@click.option(
    "--store", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Where approvals are kept."
)
@json_option
def approvals(**options: Any) -> None:
    """Show which tools run without asking because somebody answered `always`, and for whom."""
    from toolcrib.cli.approvals import approvals as run

    run(**options)


@main.command("list", short_help="List the categories and tools at a path.")
@click.argument("path", nargs=-1)
@config_option
@tools_option
@click.option(
    "--tag", "tags", metavar="TAG", multiple=True, help="Only what carries this tag; may be given several times."
)
@click.option("--query", help="Only what matches, best first.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 50),
    metavar="COUNT",
    default=50,
    show_default=True,
    help="How many to show.",
)
@bundle_option
@as_option
@wait_option
@json_option
def list_(**options: Any) -> None:
    """Show the nodes and tools at a path, one name after another: `toolcrib list Coding Refactoring`."""
    from toolcrib.cli.browse import list_ as run

    run(**options)


@main.command(short_help="Show the whole catalog as a tree.")
@config_either_way
@tools_option
@bundle_option
@as_option
@wait_option
@json_option
def tree(**options: Any) -> None:
    """Show the catalog: its sources, categories and tools."""
    from toolcrib.cli.browse import tree as run

    run(**options)


@main.command(short_help="Show the top-level categories.")
@config_either_way
@tools_option
@wait_option
@json_option
def categories(**options: Any) -> None:
    """Show the categories at the top of the catalog: how many tools each has, and its version where it is a source."""
    from toolcrib.cli.browse import categories as run

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
    metavar="NODE",
    multiple=True,
    help="Only at or below this node; `--in Work --in Files` for one within another.",
)
@click.option(
    "--tag", "tags", metavar="TAG", multiple=True, help="Only what carries this tag; may be given several times."
)
@bundle_option
@as_option
@wait_option
@json_option
def search(query: tuple[str, ...], **options: Any) -> None:
    """Find tools by what they do, in plain words: `toolcrib search show the last commits`.

    Best first; before each stands how likely it is to serve, from 0 to 1.
    """
    from toolcrib.cli.browse import search as run

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
    """Show what the tool ID takes and gives: its description and schemas."""
    from toolcrib.cli.browse import expand as run

    run(tool_id, **options)


@main.command(short_help="Print the tools as text for a system prompt.")
@config_either_way
@tools_option
@click.option(
    "--detail",
    type=click.Choice(["name", "summary", "full"]),
    default="full",
    show_default=True,
    help="How much to tell of each tool at most; full: what it takes, and the handle to call it by.",
)
@click.option(
    "--budget",
    "budget_tokens",
    type=click.IntRange(min=100),
    metavar="TOKENS",
    default=2_000,
    show_default=True,
    help="The longest text, at four bytes a token.",
)
@bundle_option
@wait_option
@json_option
def describe(**options: Any) -> None:
    """Print the tools of CONFIG's servers as text for a system prompt, for agents without tool calling of their own.

    Grouped by category, the required ones first. Where not all have room, the least needed are told less of, then
    counted.
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
    help="A call of one of the tools, the arguments of the one TOOL, or text or a call.",
)
@click.option(
    "--style",
    type=click.Choice(["plain", "hermes", "llama"]),
    default="plain",
    show_default=True,
    help='How the model calls: {"name", "arguments"}; the same in <tool_call> tags; {"name", "parameters"}.',
)
@click.option("--strict", is_flag=True, help="Print schemas for the strict modes of OpenAI and Anthropic instead.")
@bundle_option
@wait_option
@json_option
def grammar(**options: Any) -> None:
    """Print a grammar for llama.cpp (GBNF) of calls of TOOLs, or of all tools of CONFIG's servers.

    What of their schemas it does not hold is told on standard error.

    \b
      toolcrib grammar files.read files.write > calls.gbnf
      llama-server -m model.gguf --grammar-file calls.gbnf
    """
    from toolcrib.cli.grammar import grammar as run

    run(**options)


@main.command(short_help="Run a tool.")
@click.argument("tool_id", metavar="ID")
@click.argument("arguments", metavar="[JSON | KEY=VALUE...]", nargs=-1)
@config_option
@bundle_option
@wait_option
@json_option
def call(tool_id: str, arguments: tuple[str, ...], **options: Any) -> None:
    """Run the tool ID with JSON as its arguments (`-` reads them from standard input), or with KEY=VALUE for each.

    A VALUE is JSON where it is a number, true, false, null, a list or an object, and else a string.

    \b
      toolcrib call git.git_log '{"repo_path": ".", "max_count": 3}'
      toolcrib call git.git_log repo_path=. max_count=3
    """
    from toolcrib.cli.call import call as run

    run(tool_id, arguments, **options)


@main.command(short_help="Show the bundles and what each one is missing.")
@click.argument("words", metavar="[CONFIG] [NAME]", nargs=-1)
@config_option
@wait_option
@json_option
def bundles(words: tuple[str, ...], config: Path, **options: Any) -> None:
    """Show the bundles of CONFIG and whether all that they require is there; with NAME, the tools of that one.

    Exits with 1 where something that NAME requires is missing.
    """
    from toolcrib.catalog.bundles import is_bundle_name
    from toolcrib.cli.bundle import bundles as run

    names = [word for word in words if is_bundle_name(word)]
    files = [Path(word) for word in words if not is_bundle_name(word)]
    context = click.get_current_context()
    files += [config] if not files or context.get_parameter_source("config") is ParameterSource.COMMANDLINE else []
    if len(names) > 1 or len(files) > 1:
        raise click.UsageError("One configuration and one bundle can be named.")
    context.params["config"] = files[0]
    run(files[0], names[0] if names else None, **options)


@main.command(short_help="Start every server and report problems.")
@config_either_way
@wait_option
@json_option
def doctor(**options: Any) -> None:
    """Start every server of CONFIG and tell what is wrong: does it start, how long does it take, what does it offer?

    Names what is probably a slip in policy and categories, too, and which definitions are quarantined or suspicious.
    Exits with 1 when a server cannot be used, or a tool is quarantined.
    """
    from toolcrib.cli.doctor import doctor as run

    run(**options)


@main.command(short_help="Pin the current tool definitions.")
@click.argument("what", metavar="[WHAT]...", nargs=-1)
@config_option
@click.option("--yes", is_flag=True, help="Ask nothing.")
@click.option("--full", is_flag=True, help="Show each definition that is new or changed in full.")
@click.option("--by", metavar="NAME", help="Who approves; the user of this system if not said.")
@click.option("--remove", "mode", flag_value="remove", help="Take approvals back instead; no server is started.")
@click.option("--list", "mode", flag_value="list", help="Show what is approved; no server is started.")
@click.option("--log", "mode", flag_value="log", help="Show all approvals there were, and their ends; likewise.")
@wait_option
@json_option
def pin(what: tuple[str, ...], config: Path, mode: str | None, full: bool, wait_s: float, **options: Any) -> None:
    """Approve of the definitions of CONFIG's servers as they are now: what changes later is shown to nobody before
    somebody has approved of that. WHAT: servers, ids of tools, or patterns of ids; all if nothing is named.

    Shows what is new, what changed and what is suspicious in it, and asks. Exits with 1 where something was not
    approved of.

    \b
      toolcrib pin git 'tracker.get_*'
    """
    from toolcrib.cli import pin as command

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
    """Show what changed in the definitions of CONFIG's servers since somebody approved of them with `toolcrib pin`.
    WHAT: servers, ids of tools, or patterns of ids; all if nothing is named.

    Exits with 1 where something changed, is gone, or is not approved and does not pass; with 2 where a server could
    not be asked.
    """
    from toolcrib.cli.drift import drift as run

    run(what, **options)


@main.command(short_help="Check tool definitions for problems.")
@config_either_way
@click.option(
    "--python",
    "modules",
    metavar="MODULE[:NAME]",
    multiple=True,
    help="A module whose tools are looked at, imported for that; may be given several times.",
)
@tools_option
@click.option("--rule", "only", metavar="RULE", multiple=True, help="Only what this rule finds; may be given again.")
@click.option(
    "--ignore",
    "ignored",
    metavar="RULE[:PATTERN]",
    multiple=True,
    help="Nothing that this rule finds, or not in tools of such ids; may be given again.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1),
    metavar="TOKENS",
    default=1_000,
    show_default=True,
    help="What one definition may take, in estimated tokens.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "note"]),
    default="warning",
    show_default=True,
    help="Exit with 1 where something is as bad as this.",
)
@click.option("--sarif", "as_sarif", is_flag=True, help="Print one SARIF 2.1.0 log, for code hosts and editors.")
@wait_option
@json_option
def lint(config: Path, tools: Path | None, modules: tuple[str, ...], **options: Any) -> None:
    """Tell what is wrong with the definitions of CONFIG's servers and with what CONFIG says of them, with definitions
    in a file, and with tools in Python: tools that a model would confuse, descriptions that say nothing, parameters to
    guess at, names that clients refuse, schemas that do not agree with what is called, patterns that match nothing.

    CONFIG is looked at where it is named, or no MODULE or FILE is. Exits with 1 where something is wrong, for CI.
    """
    from toolcrib.cli.lint import lint as run

    if options["as_json"] and options["as_sarif"]:
        raise click.UsageError("--json and --sarif are two ways to print the same.")
    context = click.get_current_context()
    source = context.get_parameter_source("config")
    # A FILE stands in place of what the environment names, as for other commands.
    is_typed = context.params["argument"] or source is ParameterSource.COMMANDLINE
    is_named = is_typed or (source is not ParameterSource.DEFAULT and tools is None)
    run(config if is_named or not (modules or tools) else None, tools, modules, **options)


audit_path_option = click.option(
    "--path", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="The audit, wherever CONFIG has it."
)


class _Audit(click.Command):
    """Shows it; `forget` after it, which begins no trace id, is a command of its own."""

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
@click.option("--bundle", metavar="NAME", help="Traces in which something was done within this bundle.")
@click.option("--tool", metavar="ID", help="Traces in which this tool, or one of this source, was expanded or called.")
@click.option("--since", type=Since(), metavar="WHEN", help="Traces since then: 90s, 30m, 2h, 7d, 1w, or a date.")
@click.option("--failed", is_flag=True, help="Traces in which something failed.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(0),
    metavar="COUNT",
    help="How many traces to show: 20 if not said, or all of them with --json.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on and show what comes, one operation after another.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on a line for each operation.")
def audit(trace: str | None, **options: Any) -> None:
    """Show what agents looked for, expanded and called, and how it ended: the newest traces, the newest last.

    TRACE is what the id of a trace begins with: that trace is shown with all that is known of it. `toolcrib audit
    forget` deletes traces; see its own --help.
    """
    from toolcrib.cli.audit import audit as run

    run(trace, **options)


@click.command("forget")
@config_option
@audit_path_option
@click.option("--principal", metavar="ID", help="Traces of this principal.")
@click.option("--tool", metavar="ID", help="Traces in which this tool, or one of this source, was named at all.")
@click.option("--query", metavar="TEXT", help="Traces with a query that has TEXT in it, upper or lower case.")
@click.option(
    "--before", type=Since(), metavar="WHEN", help="Traces that ended before a date, or 90s, 30m, 2h, 7d ago."
)
@click.option("--all", "everything", is_flag=True, help="All traces.")
@click.option("--yes", is_flag=True, help="Ask nothing.")
@json_option
def audit_forget(config: Path, path: Path | None, everything: bool, yes: bool, as_json: bool, **said: Any) -> None:
    """Delete traces from the audit for good: those in which all that is said is met.

    Programs that have the audit open go on; search in running gateways forgets these traces a few seconds later.
    """
    from toolcrib.cli.forgetting import forget as run
    from toolcrib.stores.audit_file import Unwanted

    unwanted = Unwanted(**said)
    if unwanted.is_all != everything or "" in said.values():
        raise click.UsageError("Say which traces, by --principal, --tool, --query or --before; or --all of them.")
    run(unwanted, config, path, yes=yes, as_json=as_json)


@main.group(short_help="Download an embedding model.")
def embed() -> None:
    """Fetch a model for search. Nothing else in Toolcrib downloads one."""


@embed.command(short_help="Download the files that a manifest pins.")
@click.argument("manifest", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def fetch(manifest: Path, folder: Path) -> None:
    """Download the files that MANIFEST names into FOLDER, and check each against its sha256.

    FOLDER appears when all of them are there. MANIFEST is JSON:

    \b
      {"files": {"model.safetensors": {"url": "https://...", "sha256": "..."}}}
    """
    from toolcrib.cli.embed import fetch as run

    run(manifest, folder)


@main.command(short_help="Estimate whether Toolcrib saves tokens for you.")
@config_either_way
@tools_option
@wait_option
@json_option
def worth_it(**options: Any) -> None:
    """Weigh all definitions of CONFIG's servers as a client would show them to a model, against what Toolcrib costs.

    Ends with a verdict: worth it, or leave it. Exits with 1 where that hangs on servers that cannot be listed.
    """
    from toolcrib.cli.worth_it import worth_it as run

    run(**options)


@main.command(short_help="Add Toolcrib to a client such as Cursor or Claude Code.")
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
    """Make a random bearer token for NAME, and show what to write into the configuration: its hash alone.

    The token is shown this once. Whoever sends it to `toolcrib serve --http` asks on behalf of NAME.
    """
    from toolcrib.cli.token import token as run

    run(principal, **options)


@main.command("eval", short_help="Measure how well search finds the right tools.")
@config_either_way
@tools_option
@click.option(
    "--queries",
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help='One {"query": ..., "relevant": [tool ids]} a line; no ids where nothing serves it.',
)
@click.option(
    "--without", metavar="SIGNAL", multiple=True, help="Rank without this signal; may be given several times."
)
@click.option(
    "--compare",
    metavar="SETTINGS",
    help="Rank with these as well: `toolcrib.search` of another mcp.json, or `without:SIGNAL,SIGNAL`.",
)
@click.option(
    "--floor",
    "floors",
    metavar="[METRIC=]VALUE",
    multiple=True,
    help="Exit with 1 where the mean is below: `0.8` (of nDCG@10), `recall@5=0.9`; may be given several times.",
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

    With intervals, by category, and the worst queries with what stands above the right tools.

    \b
      toolcrib eval --queries queries.jsonl --floor ndcg@10=0.8
      toolcrib eval --tools tools.json --queries queries.jsonl --compare without:synonyms
    """
    from toolcrib.cli.evaluate import evaluate as run

    run(**options)


_take_verbose_anywhere(main)
