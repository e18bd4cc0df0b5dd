"""`toolcrib token`: create an access token for the HTTP gateway."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import click

from toolcrib.cli.clients.file_changes import FileChange, check_writable, read
from toolcrib.cli.clients.file_changes import write as write_file
from toolcrib.cli.clients.jsonc_document import JsoncDocument, MalformedJson, dump
from toolcrib.cli.options import FILE, json_option
from toolcrib.cli.terminal_output import fail, print_json, stderr, stdout
from toolcrib.config import OUR_KEY, parse_config
from toolcrib.config.access_settings import may_be_principal
from toolcrib.core.errors import InvalidConfig, ToolcribError

PREFIX = "toolcrib_"
"""The prefix by which secret scanners recognize a token."""


@click.command()
@click.argument("principal", metavar="NAME")
@click.option("--scope", "scopes", multiple=True, help="A scope for this token, for use in policy rules. Repeatable.")
@click.option("--write", type=FILE, metavar="FILE", help="Add the entry to this mcp.json, under toolcrib.auth.tokens.")
@json_option
def token(principal: str, *, scopes: tuple[str, ...], write: Path | None, as_json: bool) -> None:
    """Create a random bearer token for NAME, and show the entry for the configuration, which contains only its hash.

    The token is shown only once. Every request with this token to `toolcrib serve --http` acts on behalf of NAME.
    """
    if not principal.strip():
        raise click.BadParameter("a principal needs a name", param_hint="NAME")
    if not may_be_principal(principal):
        raise click.BadParameter(f"`{principal}` is reserved and cannot have a token", param_hint="NAME")
    made = f"{PREFIX}{secrets.token_urlsafe(32)}"
    entry = {"sha256": hashlib.sha256(made.encode()).hexdigest(), "principal": principal, "scopes": list(scopes)}
    if write is not None:
        try:
            _add(entry, write)
        except ToolcribError as error:
            fail(error, as_json=as_json)
    if as_json:
        print_json({"token": made, "entry": entry})
        return
    stdout.print(made, markup=False)
    if write is not None:
        stderr.print(f"This token is shown only once. {write} accepts it from now on.", markup=False)
        return
    stderr.print("This token is shown only once. Add this entry to `toolcrib.auth.tokens`:", markup=False)
    stderr.print(json.dumps(entry), markup=False)


def _add(entry: Mapping[str, object], path: Path) -> None:
    """Add the entry of a token to a configuration. Everything else in the file stays as it is.

    Raises:
        InvalidConfig: the file is missing, cannot be changed, or would not be a valid configuration afterwards.
    """
    file = read(path)
    if file.data is None:
        raise InvalidConfig(f"{path}: file not found")
    section = (OUR_KEY, "auth")
    try:
        document = JsoncDocument(file.text)
        there = (document.at(section) or {}).get("tokens", [])
        if not isinstance(there, list):
            raise MalformedJson("toolcrib.auth.tokens: must be a list")
        changed = document.with_members(section, {"tokens": dump([*cast("list[object]", there), entry])})
    except MalformedJson as error:
        raise InvalidConfig(f"{path}: {error}") from error
    parse_config(changed.text, path)
    check_writable(file)
    write_file(FileChange(file, file.encoded(changed.text)))
