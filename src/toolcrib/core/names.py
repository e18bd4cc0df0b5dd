"""Under which name a tool stands in a model's own tool list."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from urllib.parse import quote, unquote

from toolcrib.core.tools import Tool

MAX_CHARS = 63
"""The longest name every client and provider takes: `^[a-zA-Z_][a-zA-Z0-9_-]{0,62}$`."""

URI_SCHEME = "toolcrib"
"""Resources stand under `toolcrib://SOURCE/URI`, so that two sources may use the same URI."""

_HASH_CHARS = 6
_ACCEPTED = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,62}")
_ODD = re.compile(r"[^a-zA-Z0-9_-]+")


def may_be_model_name(text: str) -> bool:
    """Whether `text` could be a name of `model_names`; a tool id, with its dot, never is."""
    return _ACCEPTED.fullmatch(text) is not None


def model_names(tools: Iterable[Tool], plain_sources: Container[str] = ()) -> dict[str, str]:
    """A name for each tool, by tool id: `source__name`, or its own where its source is one of `plain_sources`."""
    return unique_names(full_names({tool.id: (tool.source, tool.name) for tool in tools}, plain_sources))


def full_names(named: Mapping[str, tuple[str, str]], plain_sources: Container[str] = ()) -> dict[str, str]:
    """What each of `named`, a source and a name by id, is called if any name is accepted: `source__name`.

    Or its own name, where its source is one of `plain_sources` and none of the others is called the same.
    """
    full = {key: f"{source}__{name}" for key, (source, name) in named.items()}
    plain = {key: name for key, (source, name) in named.items() if source in plain_sources}
    owners = Counter(name.casefold() for name in [*plain.values(), *(full[key] for key in full if key not in plain)])
    return full | {key: name for key, name in plain.items() if owners[name.casefold()] == 1}


def unique_names(plain: Mapping[str, str]) -> dict[str, str]:
    """A name for each of `plain`, by id: as it is where that is accepted and free, else with a hash in its middle.

    No two are the same, upper and lower case aside. The hash is of the id, so a name depends on its neighbours only
    where two plain names are the same; then both carry one.
    """
    accepted = {tool_id: name for tool_id, name in plain.items() if _ACCEPTED.fullmatch(name)}
    owners = Counter(name.casefold() for name in accepted.values())
    names = {tool_id: name for tool_id, name in accepted.items() if owners[name.casefold()] == 1}
    taken = {name.casefold() for name in names.values()}
    waiting = plain.keys() - names.keys()
    hash_chars = _HASH_CHARS
    while waiting:  # one round, unless hashes meet: by chance among thousands, or with a name that was made to
        tried = {tool_id: _with_hash(plain[tool_id], tool_id, hash_chars) for tool_id in waiting}
        owners = Counter(name.casefold() for name in tried.values())
        names.update(
            (tool_id, name)
            for tool_id, name in tried.items()
            if owners[name.casefold()] == 1 and name.casefold() not in taken
        )
        taken.update(name.casefold() for name in tried.values())
        waiting -= names.keys()
        hash_chars += _HASH_CHARS
    return {tool_id: names[tool_id] for tool_id in plain}


def _with_hash(name: str, tool_id: str, hash_chars: int) -> str:
    mark = f"_{hashlib.sha256(tool_id.encode('utf-8', 'surrogatepass')).hexdigest()[:hash_chars]}_"
    clean = _ODD.sub("_", name)
    if not clean[:1].isalpha() and not clean.startswith("_"):
        clean = f"_{clean}"
    kept = min(len(clean), MAX_CHARS - len(mark))
    return clean[: (kept + 1) // 2] + mark + clean[len(clean) - kept // 2 :]


def resource_uri(source: str, uri: str) -> str:
    """Under which URI a resource of a source is read through Toolcrib; a URI template becomes one as well."""
    return f"{URI_SCHEME}://{quote(source, safe='')}/{uri}"


def split_resource_uri(uri: str) -> tuple[str, str] | None:
    """The source and its own URI that `resource_uri` made `uri` of; None where it made no such thing."""
    head, _, own = uri.removeprefix(f"{URI_SCHEME}://").partition("/")
    return (unquote(head), own) if uri.startswith(f"{URI_SCHEME}://") and head and own else None
