"""Examines a server's entry in a client's file: whether it is Toolcrib, and whether Toolcrib can take it over."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from toolcrib.cli.clients.jsonc_document import dump, members_of
from toolcrib.cli.clients.known_clients import NAME, KnownClient, Scope
from toolcrib.config import OUR_KEY, parse_config
from toolcrib.config.config_file import EDITOR_VARIABLES
from toolcrib.core.placeholders import references_in

_TAKES_A_VALUE = frozenset({"--http", "--cache", "--operations"})
"""Options of `toolcrib serve` that take a value."""

_PLACEHOLDER = re.compile(r"\$\{[^}]*\}")
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-[^}]*)?\}")

EVERYWHERE = frozenset(
    {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "APPDATA", "LOCALAPPDATA", "USERPROFILE", "USERNAME", "TEMP"}
    | {"CLAUDE_PROJECT_DIR"}
)
"""Variables that every client passes to its servers by itself. Only Claude Code sets the last one."""

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Serving:
    """A command line of `toolcrib serve`."""

    config: str | None
    """The file that it serves. None if the entry does not name one."""
    before: tuple[str, ...]
    """The options before the file."""
    after: tuple[str, ...]
    """The options after the file."""


def serving(entry: object) -> Serving | None:
    """Return how an entry starts `toolcrib serve`. None if it starts something else, or if that is unclear."""
    words = [*_words(entry)]
    starts = next((i for i, word in enumerate(words) if _is_toolcrib(word)), None)
    if starts is None or "serve" not in words[starts:]:
        return None
    options = words[words.index("serve", starts) + 1 :]
    at = 0
    while at < len(options) and options[at].startswith("-"):
        at += 2 if options[at] in _TAKES_A_VALUE else 1
    if at >= len(options):
        return Serving(None, tuple(options), ())
    return Serving(options[at], tuple(options[:at]), tuple(options[at + 1 :]))


def served_file(client: KnownClient, scope: Scope, file: Path, entry: object) -> Path | None:
    """Return the configuration that an entry in `file` makes Toolcrib serve, or None.

    The path in the entry must be absolute, or lead to a file in the project that `file` belongs to.
    """
    found = serving(entry)
    if found is None or found.config is None:
        return None
    if Path(found.config).is_absolute():
        return Path(found.config)
    return client.project.named(file, found.config) if scope is Scope.PROJECT and client.project is not None else None


def is_toolcrib(entry: object) -> bool:
    """Return whether an entry starts Toolcrib in any way, also through a shell.

    If in doubt, the answer is yes: Toolcrib must not be moved behind itself.
    """
    if serving(entry) is not None:
        return True
    text = " ".join(_words(entry))
    return re.search(rf"\b{NAME}\b.*\bserve\b", text) is not None


def reaches_shared(entry: object) -> bool:
    """Return whether an entry connects to a gateway of `toolcrib serve --http` on this machine."""
    url = (members_of(entry) or {}).get("url")
    if not isinstance(url, str):
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.hostname in _LOOPBACK and parts.path.rstrip("/") == "/mcp"


def why_not_movable(
    client: KnownClient,
    name: str,
    entry: object,
    raw: str,
    *,
    inputs: object = (),
    keeps_workspace: bool = False,
) -> str | None:
    """Return why a server cannot be moved, as part of a sentence. None if Toolcrib can take it over.

    `raw` is the text of the entry, in which duplicate keys are visible. `inputs` are those of the client's file.
    `keeps_workspace`: the server would be moved to a file of the same project.
    """
    members = members_of(entry)
    if members is None:
        return "the entry is not an object"
    if is_toolcrib(entry):
        return "it is Toolcrib itself"
    if unknown := [key for key in members if key not in client.keys]:
        return f"Toolcrib does not support {_listed(unknown)}"
    for text in strings_in(members):
        for placeholder in _PLACEHOLDER.findall(text):
            if (reason := _why_not_fillable(client, placeholder, keeps_workspace=keeps_workspace)) is not None:
                return reason
    env_file = members.get("envFile")
    if isinstance(env_file, str) and not env_file.startswith("${") and not Path(env_file).is_absolute():
        return f"the path of its `envFile` is relative, and only {client.title} knows its folder"
    if client.expands_home:
        if any(word.startswith("~") for word in _words(entry)):
            return f"only {client.title} expands `~` in a command"
        if any(key.upper() == "PATH" for key in members_of(members.get("env")) or {}):
            return f"{client.title} adds to its PATH, but Toolcrib would replace it"
    # Without plugins: listing them takes long, and they do not matter here.
    document = f'{{"mcpServers": {{{dump(name)}: {raw}}}, "inputs": {dump(inputs)}, "{OUR_KEY}": {{"plugins": false}}}}'
    (server,) = parse_config(document, Path(name), _EveryVariable()).servers
    return None if server.problem is None else server.problem.removeprefix(f"mcpServers.{name}.")


def _why_not_fillable(client: KnownClient, placeholder: str, *, keeps_workspace: bool) -> str | None:
    """Return why Toolcrib would not fill in a placeholder as the client does, as part of a sentence."""
    if client.fills is not None and client.fills.fullmatch(placeholder):
        return None
    if client.asks_for_inputs and any(each.kind == "input" for each in references_in(placeholder)):
        return None  # whether it is defined is checked together with the whole entry
    if client.fills_editor_variables and (variable := placeholder[2:-1]) in EDITOR_VARIABLES:
        if keeps_workspace or not variable.startswith("workspace"):
            return None
        return f"only {client.title} knows which project `{placeholder}` means"
    return f"`{placeholder}` means something different in {client.title} than in Toolcrib"


def inputs_of(entry: object) -> list[str]:
    """Return the ids of the inputs that an entry refers to, in order."""
    texts = strings_in(members_of(entry) or {})
    return [*dict.fromkeys(each.name for text in texts for each in references_in(text) if each.kind == "input")]


def may_need_sign_in(entry: object) -> bool:
    """Return whether the client may have signed in to this server: remote, without headers and without a query."""
    members = members_of(entry) or {}
    if "command" in members or "url" not in members or members.get("headers"):
        return False
    try:
        parts = urlsplit(str(members["url"]))
    except ValueError:
        return True
    return parts.hostname not in _LOOPBACK and not parts.query


def same_server(one: object, other: object) -> bool:
    """Return whether two entries mean the same to Toolcrib, even if they are written or labelled differently."""
    return _meaning(one) == _meaning(other)


def variables(entry: object) -> list[str]:
    """Return the environment variables that an entry refers to, in order, except those that are always set."""
    texts = strings_in(members_of(entry) or {})
    found = dict.fromkeys(name for text in texts for name in _VARIABLE.findall(text))
    return [name for name in found if name not in EVERYWHERE | EDITOR_VARIABLES]


def gateway_entry(client: KnownClient, command: Sequence[str], passed: Sequence[str], old: object) -> dict[str, Any]:
    """Return the entry that starts `command` from `client` and passes on the named variables.

    Other keys of the `old` entry are kept. If it was disabled, the new entry is enabled.
    """
    kept = dict(members_of(old) or {})
    for key in ("url", "headers", "disabled"):
        kept.pop(key, None)
    if kept.get("enabled") is False:
        del kept["enabled"]
    if client.writes_type or "type" in kept:
        kept["type"] = "stdio"
    kept["command"], kept["args"] = command[0], [*command[1:]]
    env = dict(members_of(kept.get("env")) or {})
    if client.passes is not None:
        env = {name: client.passes % name for name in passed} | env
    if env or "env" in kept:
        kept["env"] = env
    return kept


class _EveryVariable(Mapping[str, str]):
    """An environment in which every variable is set, to a value that is valid in any place, also in a URL.

    Which variables are set is only known in the environment in which the client starts Toolcrib.
    """

    def __getitem__(self, name: str) -> str:
        return "https://x"

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


_LABELS = frozenset({"name", "description", "gallery", "version", "source"})
_USUAL: Mapping[str, tuple[object, ...]] = {
    "type": ("stdio", "http", "streamable-http"),
    "args": ([],),
    "env": ({},),
    "headers": ({},),
    "disabled": (False,),
    "enabled": (True,),
}
"""Values of keys that mean the same as a missing key."""


def _meaning(entry: object) -> object:
    """Return an entry without keys that do not matter, and with all variables in one notation."""
    members = members_of(entry)
    if members is None:
        return entry
    said = {k: v for k, v in members.items() if k not in _LABELS and not any(v == usual for usual in _USUAL.get(k, ()))}
    return json.loads(json.dumps(said).replace("${env:", "${"))


def _is_toolcrib(word: str) -> bool:
    """Return whether a word of a command line names Toolcrib: as a path, as a module or as a requirement."""
    return re.fullmatch(rf"{NAME}(?:\.exe|\.cmd)?(?:[=@\[ ].*)?", re.split(r"[\\/]", word)[-1]) is not None


def _words(entry: object) -> Iterator[str]:
    """Yield the words of the command line of an entry."""
    members = members_of(entry) or {}
    args = members.get("args")
    for word in (members.get("command"), *(cast("list[object]", args) if isinstance(args, list) else ())):
        if isinstance(word, str):
            yield word


def strings_in(value: object) -> Iterator[str]:
    """Yield every string in a JSON value, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in cast("dict[str, object]", value).values():
            yield from strings_in(part)
    elif isinstance(value, list):
        for part in cast("list[object]", value):
            yield from strings_in(part)


def _listed(names: Sequence[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
