"""One server as a client has it: whether it is Toolcrib itself, whether it can stand behind Toolcrib, what it reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from toolcrib.cli.clients.jsonc import dump, members_of
from toolcrib.cli.clients.known import NAME, KnownClient, Scope
from toolcrib.config import OUR_KEY, parse_config

_TAKES_A_VALUE = frozenset({"--http", "--cache", "--operations"})
"""Options of `toolcrib serve` that are followed by a word of theirs."""

_PLACEHOLDER = re.compile(r"\$\{[^}]*\}")
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-[^}]*)?\}")

EVERYWHERE = frozenset(
    {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "APPDATA", "LOCALAPPDATA", "USERPROFILE", "USERNAME", "TEMP"}
    | {"CLAUDE_PROJECT_DIR"}
)
"""Variables that every client gives its servers without being told; Claude Code sets the last one for each."""

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Serving:
    """A command line of `toolcrib serve`."""

    config: str | None
    """The file it serves; None where the entry does not say."""
    before: tuple[str, ...]
    """Its options before the file."""
    after: tuple[str, ...]
    """And those after it."""


def serving(entry: object) -> Serving | None:
    """How an entry starts `toolcrib serve`; None where it starts something else, or nothing that can be told."""
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
    """The configuration that an entry in `file` makes Toolcrib serve, if it does and the path says where that is.

    It does if it is absolute, or leads to a file in the project that `file` belongs to.
    """
    found = serving(entry)
    if found is None or found.config is None:
        return None
    if Path(found.config).is_absolute():
        return Path(found.config)
    return client.project.named(file, found.config) if scope is Scope.PROJECT and client.project is not None else None


def is_toolcrib(entry: object) -> bool:
    """Whether an entry starts Toolcrib in any way, a shell's included, or reaches one that serves on this machine.

    In doubt it is: what stands in front of the servers must not be moved behind itself.
    """
    if serving(entry) is not None:
        return True
    text = " ".join(_words(entry))
    return re.search(rf"\b{NAME}\b.*\bserve\b", text) is not None


def reaches_shared(entry: object) -> bool:
    """Whether an entry reaches a gateway that `toolcrib serve --http` serves on this machine."""
    url = (members_of(entry) or {}).get("url")
    if not isinstance(url, str):
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.hostname in _LOOPBACK and parts.path.rstrip("/") == "/mcp"


def why_not_movable(client: KnownClient, name: str, entry: object, raw: str) -> str | None:
    """Why a server has to stay where it is, as a part of a sentence; None where Toolcrib can take it over.

    `raw` is the entry's text, in which a key that stands there twice can be seen.
    """
    members = members_of(entry)
    if members is None:
        return "it is no object"
    if is_toolcrib(entry):
        return "it is Toolcrib itself"
    if unknown := [key for key in members if key not in client.keys]:
        return f"{_listed(unknown)} may mean something that Toolcrib does not do"
    for text in _texts(members):
        for placeholder in _PLACEHOLDER.findall(text):
            if client.fills is None or not client.fills.fullmatch(placeholder):
                return f"`{placeholder}` does not mean to Toolcrib what it means to {client.title}"
    if client.expands_home:
        if any(word.startswith("~") for word in _words(entry)):
            return f"`~` in a command is expanded by {client.title}, not by Toolcrib"
        if any(key.upper() == "PATH" for key in members_of(members.get("env")) or {}):
            return f"its PATH is added to by {client.title} and would be replaced by Toolcrib"
    # Without plugins, which take long to list and have nothing to do with it.
    document = f'{{"mcpServers": {{{dump(name)}: {raw}}}, "{OUR_KEY}": {{"plugins": false}}}}'
    (server,) = parse_config(document, Path(name), _EveryVariable()).servers
    if server.problem is not None:
        return server.problem.removeprefix(f"mcpServers.{name}.")
    if "url" in members and "command" not in members and _may_be_signed_in(members):
        return f"it carries no credentials: {client.title} may have signed in to it, which Toolcrib cannot take over"
    return None


def same_server(one: object, other: object) -> bool:
    """Whether two entries mean the same to Toolcrib, however they are written and labelled."""
    return _meaning(one) == _meaning(other)


def variables(entry: object) -> list[str]:
    """The environment variables that Toolcrib fills into a server, in order, but those that are always there."""
    texts = _texts(members_of(entry) or {})
    found = dict.fromkeys(name for text in texts for name in _VARIABLE.findall(text))
    return [name for name in found if name not in EVERYWHERE]


def gateway_entry(client: KnownClient, command: Sequence[str], passed: Sequence[str], old: object) -> dict[str, Any]:
    """The entry that starts `command` from `client` and passes the named variables on.

    What `old` says beside that stays; one that was switched off is on again.
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
    """An environment in which all variables are set, to what goes through as a part of any text, an address included.

    Which ones are set is known only where the client starts Toolcrib.
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
"""Values of keys that say no more than their absence."""


def _meaning(entry: object) -> object:
    """An entry without what does not matter, and each variable written in one way."""
    members = members_of(entry)
    if members is None:
        return entry
    said = {k: v for k, v in members.items() if k not in _LABELS and not any(v == usual for usual in _USUAL.get(k, ()))}
    return json.loads(json.dumps(said).replace("${env:", "${"))


def _may_be_signed_in(members: Mapping[str, Any]) -> bool:
    """Whether a remote server may be one that the client signed in to: no header, no query, and not on this machine."""
    if members.get("headers"):
        return False
    try:
        parts = urlsplit(str(members["url"]))
    except ValueError:
        return True
    return parts.hostname not in _LOOPBACK and not parts.query


def _is_toolcrib(word: str) -> bool:
    """Whether a word of a command line names the program: its path, its module, or it as a requirement."""
    return re.fullmatch(rf"{NAME}(?:\.exe|\.cmd)?(?:[=@\[ ].*)?", re.split(r"[\\/]", word)[-1]) is not None


def _words(entry: object) -> Iterator[str]:
    """The words of the command line that an entry starts."""
    members = members_of(entry) or {}
    args = members.get("args")
    for word in (members.get("command"), *(cast("list[object]", args) if isinstance(args, list) else ())):
        if isinstance(word, str):
            yield word


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in cast("dict[str, object]", value).values():
            yield from _texts(part)
    elif isinstance(value, list):
        for part in cast("list[object]", value):
            yield from _texts(part)


def _listed(names: Sequence[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
