"""Names of tools in a model's own tool list, and URIs of resources."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from urllib.parse import quote, unquote

from toolcrib.core.tools import Tool

MAX_CHARS = 63
"""The longest name that every client and provider accepts, in characters: `^[a-zA-Z_][a-zA-Z0-9_-]{0,62}$`."""

URI_SCHEME = "toolcrib"
"""The URI scheme of resources: `toolcrib://SOURCE/URI`, so that two sources can use the same URI."""

_HASH_CHARS = 6
_ACCEPTED = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,62}")
_ODD = re.compile(r"[^a-zA-Z0-9_-]+")


def model_names(tools: Iterable[Tool], plain_sources: Container[str] = ()) -> dict[str, str]:
    """Return a name for each tool, by tool id: `source__name`, or only `name` if its source is in `plain_sources`."""
    return unique_names(full_names({tool.id: (tool.source, tool.name) for tool in tools}, plain_sources))


def full_names(named: Mapping[str, tuple[str, str]], plain_sources: Container[str] = ()) -> dict[str, str]:
    """Return the full name `source__name` for each item of `named`, which maps ids to (source, name).

    If the source is one of `plain_sources` and no other item would have the same name, the result is only `name`.
    These names can be longer than `MAX_CHARS`, or have characters that clients refuse; see `unique_names`.
    """
    full = {key: f"{source}__{name}" for key, (source, name) in named.items()}
    plain = {key: name for key, (source, name) in named.items() if source in plain_sources}
    owners = Counter(name.casefold() for name in [*plain.values(), *(full[key] for key in full if key not in plain)])
    return full | {key: name for key, name in plain.items() if owners[name.casefold()] == 1}


def unique_names(plain: Mapping[str, str]) -> dict[str, str]:
    """Return an accepted name for each item of `plain`, which maps ids to names.

    A name that clients accept and that no other item has stays as it is. Any other name gets a hash in its middle. The
    names differ in more than upper and lower case. The hash is made from the id, so a name depends on other names only
    if two plain names are equal. In that case both get a hash.
    """
    accepted = {tool_id: name for tool_id, name in plain.items() if _ACCEPTED.fullmatch(name)}
    owners = Counter(name.casefold() for name in accepted.values())
    names = {tool_id: name for tool_id, name in accepted.items() if owners[name.casefold()] == 1}
    taken = {name.casefold() for name in names.values()}
    waiting = plain.keys() - names.keys()
    hash_chars = _HASH_CHARS
    while waiting:  # one round, unless hashes collide: by chance among thousands, or with a name made for that purpose
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
    """Return the URI of a source's resource in Toolcrib. A URI template results in a URI template."""
    return f"{URI_SCHEME}://{quote(source, safe='')}/{uri}"


def split_resource_uri(uri: str) -> tuple[str, str] | None:
    """Return the source and its own URI, from a URI made by `resource_uri`; None for any other URI."""
    head, _, own = uri.removeprefix(f"{URI_SCHEME}://").partition("/")
    return (unquote(head), own) if uri.startswith(f"{URI_SCHEME}://") and head and own else None
