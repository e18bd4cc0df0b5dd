"""Reads `mcp.json`: the servers, and Toolcrib's own settings in the same file."""

from __future__ import annotations

import os
import re
from collections import ChainMap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import orjson

from toolcrib.catalog.access import Policy, Rule
from toolcrib.catalog.categories import NO_CATEGORIES
from toolcrib.config.access_settings import Auth, AuthSettings, PolicySettings
from toolcrib.config.configuration import OUR_KEY, Config
from toolcrib.config.gateway_settings import ToolcribSettings, config_of
from toolcrib.config.inputs import read_inputs
from toolcrib.config.json_document import JsonObject, as_object, parse_object, refuse_duplicates
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.json_settings import read_settings
from toolcrib.core.schema import nearest

SERVER_KEYS = ("mcpServers", "servers")
"""Keys that can hold the servers: `mcpServers` in most clients, `servers` in VS Code."""

EDITOR_VARIABLES = frozenset({"workspaceFolder", "workspaceFolderBasename", "userHome", "pathSeparator"})
"""Variables that VS Code and Cursor fill in, and that have a meaning outside an editor too.

Source: code.visualstudio.com/docs/reference/variables-reference.
"""

_KEEPS_OUT = ("policy", "auth")
"""Settings that restrict access. Ignoring them in the wrong place would open more than the owner wants."""

_THIS_PROGRAM = Path("this program")
"""Takes the place of the file in errors about what a program gives."""


def read_config(path: Path, environ: Mapping[str, str] = os.environ) -> Config:
    """Read the configuration file at `path`.

    A server with an invalid entry is kept with its `problem`, and does not affect the others.

    Raises:
        InvalidConfig: the file cannot be read or is malformed, or has a duplicate server name or an unknown key of
            ours.
    """
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError as error:
        raise InvalidConfig(
            f"{path}: file not found",
            hints=["Pass the path of your client's mcp.json, or set TOOLCRIB_CONFIG."],
        ) from error
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot read the file: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path}: must be UTF-8 text") from error
    return parse_config(text, path, environ)


def parse_config(text: str, path: Path, environ: Mapping[str, str] = os.environ) -> Config:
    """Parse the configuration in `text`, the content of the file at `path`. Raises the same errors as `read_config`."""
    document = parse_object(text, path)
    for name in document.repeated:
        if name in (*SERVER_KEYS, OUR_KEY):
            raise InvalidConfig(f"{path}: duplicate key `{name}`")
    _check_place(document, path)
    key = next((key for key in SERVER_KEYS if key in document), SERVER_KEYS[0])
    if key not in document and (near := _meant_for_servers(document)) is not None:
        raise InvalidConfig(f"{path}: unknown key `{near}` (did you mean `{key}`?)")
    servers = as_object(document.get(key, {}), path, key)
    for name in servers.repeated:
        raise InvalidConfig(f"{path}: {key}: duplicate server name `{name}`. Rename one of them.")
    given = document.get(OUR_KEY, {})
    refuse_duplicates(given, f"{path}: {OUR_KEY}")
    # A file without settings needs no Pydantic. Most files are like this, and their gateways start sooner.
    settings = ToolcribSettings() if given == {} else read_settings(ToolcribSettings, given, f"{path}: {OUR_KEY}")
    inputs = read_inputs(document.get("inputs"))
    variables = cast("Mapping[str, str]", ChainMap(cast("Any", environ), _editor_variables(path)))
    return config_of(settings, servers, inputs, path=path, key=key, environ=variables)


def workspace_of(path: Path) -> Path:
    """Return the folder of the project that the configuration at `path` belongs to.

    Editors keep their file in a folder of their own within the project, such as `.vscode/mcp.json`.
    """
    folder = path.absolute().parent
    return folder.parent if folder.name in {".vscode", ".cursor"} else folder


def _editor_variables(path: Path) -> dict[str, str]:
    """Return the values of `EDITOR_VARIABLES` for the configuration at `path`."""
    workspace = workspace_of(path)
    return {
        "workspaceFolder": str(workspace),
        "workspaceFolderBasename": workspace.name,
        "userHome": os.path.expanduser("~"),  # noqa: PTH111  `Path.home` fails if there is no home
        "pathSeparator": os.sep,
    }


def policy_of(given: object) -> Policy:
    """Return the policy that a program gives. A mapping is read as `toolcrib.policy` is.

    Raises:
        InvalidConfig: `given` is neither a policy nor a mapping, or the mapping is invalid.
    """
    if isinstance(given, Mapping):
        document = _as_json(cast("Mapping[str, Any]", given), "policy")
        place = f"{_THIS_PROGRAM}: policy"
        return read_settings(PolicySettings, document, place).policy(place, NO_CATEGORIES, {})
    if isinstance(given, type) or not callable(getattr(given, "permissions", None)):
        lone = "; put a single rule into a list: `Rules([rule], otherwise=...)`" if isinstance(given, Rule) else ""
        raise InvalidConfig(
            "policy: must be `Rules`, a mapping like `toolcrib.policy`, or an object with a method `permissions`, "
            f"not `{type(given).__name__}`{lone}"
        )
    return cast("Policy", given)


def auth_of(given: Mapping[str, Any]) -> Auth:
    """Return who can use the gateway, from a mapping that a program gives. It is read as `toolcrib.auth` is.

    Raises:
        InvalidConfig: the mapping is invalid.
    """
    return read_settings(AuthSettings, _as_json(given, "auth"), f"{_THIS_PROGRAM}: auth").auth()


def _as_json(given: Mapping[str, Any], name: str) -> JsonObject:
    """Return `given` as it would be in a file, so that it is read in the same way."""
    try:
        written = orjson.dumps(dict(given), option=orjson.OPT_PASSTHROUGH_DATACLASS)
    except TypeError as error:
        raise InvalidConfig(f"{name}: {error}") from error
    return parse_object(written.decode(), _THIS_PROGRAM)


def _check_place(document: Mapping[str, Any], path: Path) -> None:
    """Refuse `policy` and `auth` in the wrong place: ignoring them would give access that the owner wants to refuse."""
    for key in document:
        if key != OUR_KEY and re.sub(r"[\W_]", "", key).casefold() == OUR_KEY:
            raise InvalidConfig(f"{path}: unknown key `{key}` (did you mean `{OUR_KEY}`?)")
        if key in _KEEPS_OUT:
            raise InvalidConfig(f"{path}: move `{key}` under the key `{OUR_KEY}`")


def _meant_for_servers(document: Mapping[str, Any]) -> str | None:
    """Return a key that may be a misspelled `mcpServers` or `servers`, or None."""
    if "context_servers" in document:  # the key in Zed's settings
        return "context_servers"
    return next((near for key in SERVER_KEYS if (near := nearest(key, document)) is not None), None)
