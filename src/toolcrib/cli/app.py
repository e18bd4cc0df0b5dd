"""The command line. A command is imported when it runs, so that `--help` and completion stay quick."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

import click

from toolcrib.version import VERSION

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Start here": {
        "doctor": ("doctor_command.doctor", "Start every server and report problems."),
        "worth-it": ("worth_it_command.worth_it", "Estimate whether Toolcrib saves tokens for you."),
        "install": ("install_command.install", "Add Toolcrib to a client such as Cursor or Claude Code."),
        "demo": ("demo_command.demo", "Start sample servers and run real tasks through them."),
    },
    "Serve": {
        "serve": ("serve_command.serve", "Serve your tools over MCP."),
        "acp": ("acp_command.acp", "Run as an agent in an editor that speaks ACP."),
        "token": ("token_command.token", "Create an access token for the HTTP gateway."),
    },
    "Look around": {
        "search": ("catalog_commands.search", "Find tools by what they do."),
        "list": ("catalog_commands.list_", "List the categories and tools at a path."),
        "tree": ("catalog_commands.tree", "Show the whole catalog as a tree."),
        "categories": ("catalog_commands.categories", "Show the top-level categories."),
        "expand": ("catalog_commands.expand", "Show a tool's full definition."),
        "call": ("call_command.call", "Run a tool."),
    },
    "Control": {
        "secret": ("secret_command.secret", "Store secrets outside mcp.json."),
        "approvals": ("approvals_command.approvals", "Answer calls that wait for a person, and revoke approvals."),
        "pin": ("pin_command.pin", "Pin the current tool definitions."),
        "drift": ("drift_command.drift", "Show how definitions changed since you pinned them."),
        "login": ("sign_in_commands.login", "Sign in to a remote server."),
        "logout": ("sign_in_commands.logout", "Remove the sign-in to a remote server."),
        "logins": ("sign_in_commands.logins", "Show who is signed in to which server."),
        "audit": ("audit_command.audit", "Show what agents searched for, expanded and called."),
        "bundles": ("bundles_command.bundles", "Show the bundles and what each one is missing."),
    },
    "Add tools": {
        "register": ("registration_commands.register", "Register a command or an HTTP endpoint as a tool."),
        "unregister": ("registration_commands.unregister", "Unregister tools."),
        "export": ("registration_commands.export", "Write everything that is registered to one file."),
        "import": ("registration_commands.import_", "Register everything in a file."),
    },
    "Improve": {
        "lint": ("lint_command.lint", "Check tool definitions for problems."),
        "eval": ("eval_command.evaluate", "Measure how well search finds the right tools."),
        "embed": ("embed_command.embed", "Download an embedding model."),
    },
    "Build your own agent": {
        "describe": ("own_agent_commands.describe", "Print the tools as text for a system prompt."),
        "instructions": ("own_agent_commands.instructions", "Print the instructions that a model receives."),
        "grammar": ("own_agent_commands.grammar", "Print a grammar that only allows valid tool calls."),
        "schema": ("own_agent_commands.schema", "Print the protocol's messages as JSON Schema."),
    },
}
"""The commands as `--help` groups them. Each has the module and the name of its function, and its short help."""

COMMANDS = {name: command for commands in SECTIONS.values() for name, command in commands.items()}

RENAMED = {"add": "register", "remove": "unregister"}
"""Earlier names of commands, which keep working."""


class _LazyGroup(click.Group):
    """Imports a command when it runs, and lists the commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            module, function = COMMANDS[cmd_name][0].split(".")
            command: click.Command = getattr(import_module(f"toolcrib.cli.{module}"), function)
            _accept_verbose(command)
            self.commands[cmd_name] = command
        return self.commands.get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if (name := RENAMED.get(args[0])) is not None:
            if not ctx.resilient_parsing:  # the shell that completes a command does not want to hear this
                click.echo(f"`toolcrib {args[0]}` is now `toolcrib {name}`.", err=True)
            args = [name, *args[1:]]
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            # Click itself suggests only commands that are imported already, and only since 8.4.
            from difflib import get_close_matches

            near = " or ".join(f"`{name}`" for name in get_close_matches(args[0], COMMANDS))
            raise click.UsageError(f"{error.message} Did you mean {near}?", ctx) if near else error from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", short_help) for name, (_, short_help) in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        found = {name: short_help for name, (_, short_help) in COMMANDS.items() if name.startswith(incomplete)}
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=short_help) for name, short_help in found.items()), *options]


def _accept_verbose(command: click.Command) -> None:
    """Let `command` accept `-v` after its name. Only the help of `serve` lists it, to keep the other helps short."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            _accept_verbose(each)
        return
    command.params.append(
        click.Option(
            ["-v", "--verbose"],
            is_flag=True,
            expose_value=False,
            callback=_log_everything,
            hidden=command.name != "serve",
            help="Log to standard error, including what the servers log.",
        )
    )


def _log_everything(_context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        from toolcrib.cli.terminal_output import log_everything

        log_everything()


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
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
