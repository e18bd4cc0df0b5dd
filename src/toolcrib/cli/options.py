"""The arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

DEFAULT_CONFIG = Path("mcp.json")

FILE = click.Path(path_type=Path, dir_okay=False)
EXISTING_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)

config_option = click.option(
    "-c",
    "--config",
    type=FILE,
    default=DEFAULT_CONFIG,
    envvar="TOOLCRIB_CONFIG",
    show_default=True,
    show_envvar=True,
    help="The mcp.json with your servers and Toolcrib's settings.",
)


def config_either_way(command: Callable[..., None]) -> Callable[..., None]:
    """Let `command` accept its configuration as the argument CONFIG or as `-c`, but not as both."""

    @click.argument("argument", metavar="[CONFIG]", type=FILE, required=False)
    @config_option
    @wraps(command)
    def run(argument: Path | None, config: Path, **options: Any) -> None:
        context = click.get_current_context()
        if argument is not None and is_typed("config"):
            raise click.UsageError(f"Pass the configuration once: you gave `{argument}` and `-c {config}`.")
        # Hints that propose a command read the configuration from `context.params`.
        chosen = context.params["config"] = argument or config
        command(config=chosen, **options)

    return run


def is_typed(option: str) -> bool:
    """Return whether `option` is on the command line. The environment may give a value that is for other commands."""
    return click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE


def is_config_named() -> bool:
    """Return whether the user named a configuration, as an argument, as an option or in the environment."""
    context = click.get_current_context()
    if context.params.get("argument") is not None:
        return True
    return context.get_parameter_source("config") in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


tools_option = click.option(
    "--tools", type=EXISTING_FILE, help="Read tool definitions from this file instead of starting servers."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
as_option = click.option(
    "--as",
    "principal",
    metavar="NAME",
    help="Show what this principal sees. Its scopes are those of its first token in the configuration.",
)
bundle_option = click.option("--bundle", metavar="NAME", help="Use only the tools of this bundle.")
no_audit_option = click.option("--no-audit", is_flag=True, help="Turn the audit off, even if CONFIG turns it on.")
tag_option = click.option(
    "--tag", "tags", metavar="TAG", multiple=True, help="Show only tools with this tag. Repeatable."
)
wait_option = click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    default=60,
    show_default=True,
    help="How long to wait for servers to start.",
)


def limit_option(default: int, what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option that limits how many results are shown. `what` names the results."""
    return click.option(
        "-n",
        "--limit",
        type=click.IntRange(1, 50),
        metavar="COUNT",
        default=default,
        show_default=True,
        help=f"How many {what} to show.",
    )


def operations_option(metavar: str, help: str) -> Callable[[Callable[..., None]], Callable[..., None]]:  # noqa: A002
    """Return the option that chooses a set of operations, or operations by their names."""
    return click.option(
        "--operations", metavar=metavar, default="compact", show_default=True, callback=_operations, help=help
    )


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
    from toolcrib.operations.operation_table import chosen

    try:
        chosen(value)
    except InvalidConfig as error:
        raise click.BadParameter(error.message) from error
    return value
