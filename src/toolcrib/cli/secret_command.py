"""`toolcrib secret`: store, list and remove secrets, and the question for a missing one."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolcrib.cli.options import FILE, json_option
from toolcrib.cli.terminal_output import escape, fail, plain, print_json, stderr, stdout
from toolcrib.config import Config, ServerConfig, read_config
from toolcrib.config.inputs import SECRET_NAME, Input
from toolcrib.core.errors import InvalidConfig, NotFound, ToolcribError
from toolcrib.core.placeholders import references_in
from toolcrib.secrets.keys import KeyUnavailable
from toolcrib.secrets.secret_store import SecretStore, StoredSecret
from toolcrib.sources.mcp.server_spec import texts_of

if TYPE_CHECKING:
    from rich.table import Table

_config_option = click.option(
    "-c",
    "--config",
    type=FILE,
    metavar="FILE",
    help="NAME is the id of an input of this mcp.json. Without this option, every mcp.json can use the secret.",
)


@click.group()
def secret() -> None:
    """Keep secrets out of mcp.json.

    `toolcrib secret set NAME` encrypts a value and stores it. In the `env`, `headers` or `url` of a server, write
    ${keyring:NAME} instead of the value.
    """


@secret.command("set")
@click.argument("name")
@click.argument("rest", nargs=-1, metavar="")
@_config_option
@json_option
def set_(name: str, rest: tuple[str, ...], config: Path | None, *, as_json: bool) -> None:
    """Store the secret NAME.

    Asks for the value on a terminal, without showing it. Otherwise reads it from standard input, without the last line
    end.
    """
    if rest:  # the usual error would print the value
        raise click.UsageError(
            "A value on the command line stays in the history of the shell, and other users can see it. Leave it out:"
            " the command asks for it, or reads it from standard input."
        )
    with _errors_told(as_json=as_json):
        given = _input_of(config, name) if config is not None else Input(name, is_password=True)
        if config is None and not SECRET_NAME.fullmatch(name):
            raise InvalidConfig(f"`{name}` is not a valid name of a secret: use letters, digits and `_.@/-`")
        value = _asked(given) if sys.stdin.isatty() else _read(given)
        SecretStore().set(name, value, config)
    if as_json:
        print_json({"set": name, "config": None if config is None else str(config.absolute())})
    else:
        use = f"${{keyring:{name}}}" if config is None else f"${{input:{name}}} of {config}"
        stderr.print(plain(f"Stored and encrypted. Toolcrib uses it for {use} when a server starts."), markup=False)


@secret.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """List the names of the stored secrets, never their values."""
    with _errors_told(as_json=as_json):
        stored = SecretStore().all()
    if as_json:
        print_json({"secrets": [*map(_wire, stored)]})
    elif stored:
        stdout.print(_table(stored))
    else:
        stderr.print("No secrets are stored.")


@secret.command()
@click.argument("name")
@_config_option
@json_option
def remove(name: str, config: Path | None, *, as_json: bool) -> None:
    """Remove the secret NAME."""
    with _errors_told(as_json=as_json):
        store = SecretStore()
        if not store.remove(name, config):
            hints = ["Run `toolcrib secret list` to see what is stored."]
            if config is None and any(each.name == name for each in store.all()):
                hints = [f"It is an input of an mcp.json. Run `toolcrib secret remove {name} --config FILE`.", *hints]
            raise NotFound(f"Secret `{name}` not found.", hints=hints)
    if as_json:
        print_json({"removed": name, "config": None if config is None else str(config.absolute())})
    else:
        stderr.print(plain(f"Removed `{name}`. Running servers keep the value until they stop."), markup=False)


def ask_for_inputs(config: Path, wanted: Callable[[str], bool] | None = None) -> None:
    """Ask at the terminal for each input that has no value yet, and store the answers.

    With `wanted`, only inputs of servers with accepted names count. Without a terminal, or with `--json`, nothing is
    asked. Then these servers do not start, and their error says which command stores the value.

    Raises:
        InvalidConfig: the file cannot be used.
    """
    context = click.get_current_context(silent=True)
    if not (sys.stdin.isatty() and sys.stderr.isatty()) or (context is not None and context.params.get("as_json")):
        return
    read = read_config(config)
    needed = {*_needed_by(read, wanted)}
    if not (inputs := [each for each in read.inputs.by_id.values() if each.id in needed]):
        return
    with _errors_told(as_json=False):
        store, here = SecretStore(), os.path.realpath(config)
        known = {each.name for each in store.all() if each.config is not None and str(each.config) == here}
        for each in inputs:
            if each.id not in known:
                store.set(each.id, _asked(each), config)


def _needed_by(config: Config, wanted: Callable[[str], bool] | None) -> Iterator[str]:
    """Yield the ids of the inputs that the servers need."""
    for server in config.enabled:
        if server.server is not None and (wanted is None or wanted(server.name)):
            for text in _texts_of(server):
                yield from (each.name for each in references_in(text) if each.kind == "input")


def _texts_of(server: ServerConfig) -> Iterator[str]:
    if server.server is not None:
        yield from texts_of(server.server)
    for personal in (server.principals or {}).values():
        yield from (*personal.env.values(), *personal.headers.values())


def _input_of(config: Path, name: str) -> Input:
    known = read_config(config).inputs.by_id
    if name not in known:
        ids = f"it has {', '.join(f'`{each}`' for each in known)}" if known else "it has none"
        raise InvalidConfig(f"{config}: there is no input `{name}` under `inputs`: {ids}")
    if known[name].problem:
        raise InvalidConfig(f"{config}: inputs: `{name}` {known[name].problem}")
    return known[name]


def _asked(wanted: Input) -> str:
    """Ask for a value at the terminal. Standard output stays free for results."""
    question = plain(wanted.description.strip() or wanted.id)
    if not wanted.options:
        return click.prompt(
            question,
            default=None if wanted.is_password else wanted.default or None,
            hide_input=wanted.is_password,
            err=True,
        )
    values = dict(wanted.options)
    default = next((label for label, value in wanted.options if value == wanted.default), None)
    return values[click.prompt(question, type=click.Choice([*values]), default=default, err=True)]


def _read(wanted: Input) -> str:
    """Read a value from standard input."""
    try:
        value = sys.stdin.read().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise InvalidConfig("standard input: must be UTF-8 text") from None  # the cause would show the value
    if wanted.options and value not in dict(wanted.options).values():
        raise InvalidConfig(
            f"inputs: the value of `{wanted.id}` must be one of: {', '.join(each for _, each in wanted.options)}"
        )
    return value


@contextmanager
def _errors_told(*, as_json: bool) -> Generator[None]:
    """Print errors of the block without a value, and exit."""
    try:
        yield
    except ToolcribError as error:
        fail(error, as_json=as_json)
    except (KeyUnavailable, ValueError) as error:
        fail(InvalidConfig(f"{str(error)[:1].upper()}{str(error)[1:]}"), as_json=as_json)
    except (OSError, sqlite3.Error) as error:
        fail(InvalidConfig(f"{SecretStore().path}: {error}"), as_json=as_json)


def _wire(stored: StoredSecret) -> dict[str, object]:
    at = datetime.fromtimestamp(stored.set_at).astimezone()
    return {
        "name": stored.name,
        "config": None if stored.config is None else str(stored.config),
        "set_at": at.isoformat(timespec="seconds"),
    }


def _table(stored: tuple[StoredSecret, ...]) -> Table:
    from rich.table import Table

    table = Table("name", "for", "stored", box=None, header_style="dim", padding=(0, 3, 0, 0))
    for each in stored:
        at = datetime.fromtimestamp(each.set_at).astimezone()
        table.add_row(f"[bold]{escape(each.name)}[/]", escape(str(each.config or "all")), f"{at:%Y-%m-%d %H:%M}")
    return table
