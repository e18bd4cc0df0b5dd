"""`toolcrib token`."""

from __future__ import annotations

import hashlib
import json
import secrets

import click

from toolcrib.cli.output import print_json, stderr, stdout
from toolcrib.config.auth import may_be_principal

PREFIX = "toolcrib_"
"""By which programs that look for secrets in the wrong places know one."""


def token(principal: str, *, scopes: tuple[str, ...], as_json: bool) -> None:
    """Print a new token and the entry that stands for it under `toolcrib.auth.tokens`."""
    if not principal.strip():
        raise click.BadParameter("a principal needs a name", param_hint="NAME")
    if not may_be_principal(principal):
        raise click.BadParameter(f"nobody over HTTP can be `{principal}`", param_hint="NAME")
    made = f"{PREFIX}{secrets.token_urlsafe(32)}"
    entry = {"sha256": hashlib.sha256(made.encode()).hexdigest(), "principal": principal, "scopes": list(scopes)}
    if as_json:
        print_json({"token": made, "entry": entry})
        return
    stdout.print(made, markup=False)
    stderr.print("This is the token; it is shown this once. Its entry under `toolcrib.auth.tokens`:", markup=False)
    stderr.print(json.dumps(entry), markup=False)
