"""Under which name a tool stands in a model's own tool list."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from toolcrib.core.tools import Tool

MAX_CHARS = 63
"""The longest name every client and provider takes: `^[a-zA-Z_][a-zA-Z0-9_-]{0,62}$`."""

_HASH_CHARS = 6
_ACCEPTED = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,62}")
_ODD = re.compile(r"[^a-zA-Z0-9_-]+")


def model_names(tools: Iterable[Tool]) -> dict[str, str]:
    """A name for each tool, by tool id: `source__name` where that is accepted and free, else with a hash in its middle.

    The hash is of the tool id, so a name depends on its neighbours only where two plain names are the same; then both
    carry one.
    """
    plain = {tool.id: f"{tool.source}__{tool.name}" for tool in tools}
    owners: dict[str, int] = {}
    for name in plain.values():
        owners[name.casefold()] = owners.get(name.casefold(), 0) + 1
    return {
        tool_id: name if _ACCEPTED.fullmatch(name) and owners[name.casefold()] == 1 else _with_hash(name, tool_id)
        for tool_id, name in plain.items()
    }


def _with_hash(name: str, tool_id: str) -> str:
    mark = f"_{hashlib.sha256(tool_id.encode('utf-8', 'surrogatepass')).hexdigest()[:_HASH_CHARS]}_"
    clean = _ODD.sub("_", name)
    if not clean[:1].isalpha() and not clean.startswith("_"):
        clean = f"_{clean}"
    kept = min(len(clean), MAX_CHARS - len(mark))
    return clean[: (kept + 1) // 2] + mark + clean[len(clean) - kept // 2 :]
