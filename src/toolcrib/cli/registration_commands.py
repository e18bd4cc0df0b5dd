"""`toolcrib register`, `unregister`, `export` and `import`: what is registered next to a configuration."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from toolcrib.cli.clients.server_entries import strings_in
from toolcrib.cli.opened_catalog import registrations_of
from toolcrib.cli.options import EXISTING_FILE, FILE, config_either_way, config_option, json_option
from toolcrib.cli.terminal_output import asynchronous, plain, plain_json, print_json, stderr, stdout, write
from toolcrib.config import read_config
from toolcrib.config.registration_store import Registration, RegistrationStore
from toolcrib.config.registrations import Kind, Registering, document, read_document, registration, told
from toolcrib.core.errors import InvalidConfig, NotFound
from toolcrib.sources.declared.template import Template


@click.group()
def register() -> None:
    """Register a tool in addition to those of the configuration. It survives restarts. Running gateways load it.

    To register other kinds of tools, categories or bundles, use `toolcrib import`.
    """


def _registering(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that all kinds of tools share."""
    for option in (
        json_option,
        config_option,
        click.option(
            "--schema",
            type=EXISTING_FILE,
            help="A file with the JSON Schema of the arguments. Default: every {name} is a required string.",
        ),
        click.option("--description", required=True, metavar="TEXT", help="What the tool does. Models read it."),
        click.argument("tool_id", metavar="ID"),
    ):
        command = option(command)
    return command


@register.command("command", short_help="Register a command.")
@_registering
@click.argument("words", metavar="-- PROGRAM [ARGUMENT]...", nargs=-1, required=True)
@asynchronous
async def register_command(words: tuple[str, ...], description: str, **options: Any) -> None:
    """Register a command as the tool ID. It runs without a shell, and each {name} in it becomes an argument.

    \b
      toolcrib register command ops.disk_free --description "Free space on a disk." -- df -h -- {path}
    """
    _register(declaration={"description": description, "command": [*words]}, **options)


@register.command("http", short_help="Register an HTTP endpoint.")
@_registering
@click.argument("url")
@click.option("--method", default="GET", show_default=True, help="The HTTP method.")
@click.option("--header", "headers", metavar="'NAME: VALUE'", multiple=True, help="A header to send. Repeatable.")
@click.option("--body", metavar="TEXT", help="The request body, as plain text.")
@click.option("--json-body", metavar="JSON", help='The request body, as JSON: \'{"text": "{text}"}\'.')
@click.option("--allow-private", is_flag=True, help="Allow an address on this machine or in a private network.")
@asynchronous
async def register_http(
    url: str,
    description: str,
    *,
    method: str,
    headers: tuple[str, ...],
    body: str | None,
    json_body: str | None,
    allow_private: bool,
    **options: Any,
) -> None:
    """Register an HTTP endpoint as the tool ID. Each {name} in the URL, headers and body becomes an argument.

    \b
      toolcrib register http weather.current "https://weather.example.com/v1/now?city={city}" \\
        --description "The weather in a city." --header 'Authorization: Bearer ${env:WEATHER_TOKEN}'
    """
    if (bare := next((header for header in headers if ":" not in header), None)) is not None:
        raise click.UsageError(f"`{bare}` is not a header. Use 'NAME: VALUE'.")
    pairs = (header.partition(":") for header in headers)
    http: dict[str, Any] = {"url": url} if method == "GET" else {"method": method, "url": url}
    http |= {"headers": {name.strip(): value.strip() for name, _, value in pairs}} if headers else {}
    http |= {} if body is None else {"body": body}
    http |= {} if json_body is None else {"json": _json(json_body)}
    http |= {"allow_private": True} if allow_private else {}
    _register(declaration={"description": description, "http": http}, **options)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"--json-body is not valid JSON: {error}.") from error


def _register(config: Path, tool_id: str, declaration: dict[str, Any], schema: Path | None, *, as_json: bool) -> None:
    """Register a declared tool. Without `schema`, each `{name}` in it becomes a required string argument."""
    source, _, name = tool_id.partition(".")
    if not (source and name):
        raise InvalidConfig(f"`{tool_id}` is not a tool id. Use SOURCE.NAME, for example ops.disk_free")
    body = dict(declaration)
    body["input_schema"] = _schema_of(declaration, tool_id) if schema is None else _schema_in(schema)
    new = registration(Kind.TOOL, tool_id, body)
    registering = Registering(read_config(config))

    def change(rows: Sequence[Registration]) -> Iterable[Registration]:
        if new.key in {row.key for row in rows}:
            hint = f"Run `toolcrib unregister {tool_id}` first."
            raise InvalidConfig(f"`{tool_id}` is already registered. Nothing was changed.", hints=[hint])
        return registering.added(rows, [new])

    _report(config, *_changed(registrations_of(config), change), as_json=as_json)


@click.command()
@click.argument("tool_ids", metavar="[ID]...", nargs=-1)
@click.option("--category", "categories", metavar="PATH", multiple=True, help="A category: `Coding/Refactoring`.")
@click.option("--override", "overrides", metavar="PATTERN", multiple=True, help="The metadata of these tools.")
@click.option("--bundle", "bundles", metavar="NAME", multiple=True, help="A bundle.")
@click.option("--capability", "capabilities", metavar="NAME", multiple=True, help="A capability.")
@config_option
@json_option
@asynchronous
async def unregister(
    config: Path,
    *,
    tool_ids: tuple[str, ...],
    categories: tuple[str, ...],
    overrides: tuple[str, ...],
    bundles: tuple[str, ...],
    capabilities: tuple[str, ...],
    as_json: bool,
) -> None:
    """Unregister the tools ID, or what the options name. If one of them is not registered, nothing is removed."""
    named = {
        Kind.TOOL: tool_ids,
        Kind.CATEGORY: categories,
        Kind.OVERRIDE: overrides,
        Kind.BUNDLE: bundles,
        Kind.CAPABILITY: capabilities,
    }
    keys = [(kind.value, name) for kind, names in named.items() for name in names]
    if not keys:
        raise click.UsageError("Name what to remove. Run `toolcrib export` to see what is registered.")
    registering = Registering(read_config(config))
    try:
        before, after = _changed(registrations_of(config), lambda rows: registering.removed(rows, keys))
    except NotFound as error:
        raise NotFound(error.message, hints=["Run `toolcrib export` to see what is registered."]) from error
    _report(config, before, after, as_json=as_json)


@click.command()
@config_either_way
@click.option("-o", "--output", type=FILE, help="The file to write. Default: standard output.")
@asynchronous
async def export(config: Path, output: Path | None) -> None:
    """Write everything that was registered for CONFIG to one JSON document, for `toolcrib import` or for mcp.json."""
    rows = registrations_of(config).all()
    if not rows:
        read_config(config)  # with rows, the configuration may be missing: its registrations can still be exported
    whole, unreadable = document(rows)
    text = f"{json.dumps(whole, ensure_ascii=False, indent=2)}\n"
    _write(text, output)
    for each in unreadable:
        stderr.print(f"Left out: {plain(str(each))}.", markup=False, style="yellow")


@click.command("import")
@click.argument("file", type=EXISTING_FILE)
@config_either_way
@click.option("--replace", "replacing", is_flag=True, help="Replace registered items that differ from the file.")
@click.option("--dry-run", is_flag=True, help="Show what would change, but write nothing.")
@json_option
@asynchronous
async def import_(file: Path, config: Path, *, replacing: bool, dry_run: bool, as_json: bool) -> None:
    """Register everything in FILE for CONFIG: tools, categories, bundles, capabilities, metadata. All or nothing."""
    new = read_document(_text_in(file), file)
    registering = Registering(read_config(config))
    store = registrations_of(config)

    def change(rows: Sequence[Registration]) -> Iterable[Registration]:
        return registering.added(rows, new, replacing=replacing)

    before, after = ((rows := store.all()), tuple(change(rows))) if dry_run else _changed(store, change)
    _report(config, before, after, as_json=as_json, dry_run=dry_run)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        write(plain_json(text) if stdout.is_terminal else text)
        return
    try:
        # The document may contain secrets, so like the store it is readable by its owner only.
        with open(output, "w", encoding="utf-8", opener=partial(os.open, mode=0o600)) as file:
            file.write(text)
    except OSError as error:
        raise InvalidConfig(f"{output}: cannot write the file: {error.strerror}") from error


def _text_in(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path}: must be UTF-8 text") from error
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot read the file: {error.strerror}") from error


def _changed(
    store: RegistrationStore, change: Callable[[Sequence[Registration]], Iterable[Registration]]
) -> tuple[Sequence[Registration], Sequence[Registration]]:
    """Update the store. Returns what was registered before and after `change`."""
    before: list[Registration] = []

    def noted(rows: Sequence[Registration]) -> Iterable[Registration]:
        before.extend(rows)
        return change(rows)

    after = store.update(noted)
    return before, after


def _report(
    config: Path, before: Sequence[Registration], after: Sequence[Registration], *, as_json: bool, dry_run: bool = False
) -> None:
    then, now = {row.key: row for row in before}, {row.key: row for row in after}
    changes = {
        "added": [key for key in now if key not in then],
        "replaced": [key for key, row in now.items() if key in then and then[key] != row],
        "removed": [key for key in then if key not in now],
    }
    if as_json:
        wire = {what: [{"kind": kind, "name": name} for kind, name in keys] for what, keys in changes.items()}
        print_json({**wire, "dry_run": dry_run})
        return
    for what, keys in changes.items():
        for key in keys:
            stdout.print(plain(f"{'would be ' * dry_run}{what}: {told(*key)}"), markup=False)
    if not any(changes.values()):
        stderr.print("Nothing changes: everything is already registered like this.")
    elif dry_run:
        stderr.print("Nothing was written.")
    else:
        stderr.print(plain(f"Running gateways that use {config} apply the change within seconds."), markup=False)


def _schema_of(declaration: dict[str, Any], where: str) -> dict[str, Any]:
    """Return a schema with the placeholders of `declaration` as arguments, in the order of the text."""
    names: dict[str, None] = {}
    for text in _texts(declaration):
        template = Template.read(text, where)
        names |= dict.fromkeys(sorted(template.names, key=lambda name: text.index(f"{{{name}}}")))
    properties = {name: {"type": "string"} for name in names}
    return {"type": "object", "properties": properties, "required": [*names]} if names else {"type": "object"}


def _texts(declaration: dict[str, Any]) -> list[str]:
    """Return the strings of a declaration that can contain placeholders."""
    http = declaration.get("http", {})
    return [
        *declaration.get("command", ()),
        *([http["url"]] if http else ()),
        *http.get("headers", {}).values(),
        *([http["body"]] if "body" in http else ()),
        *strings_in(http.get("json")),
    ]


def _schema_in(path: Path) -> Any:
    try:
        return json.loads(_text_in(path))
    except ValueError as error:
        raise InvalidConfig(f"{path}: {error}") from error
