"""Handles, which `expand_tool` returns and `call_tool` takes. A handle proves that a definition was shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

_TRACE = re.compile(r"(?=.*[1-9a-f])[0-9a-f]{1,32}")  # no trace has only zeros


@dataclass(frozen=True, slots=True)
class Handle:
    """`ID@DIGEST` or `ID@DIGEST.TRACE`: a tool, a digest of the definition that was shown, and the trace.

    The server keeps no session for it. Everything that a call must be bound to is in the handle.
    """

    tool_id: str
    digest: str
    trace_id: str | None = None
    """32 hex digits."""

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read the handle in `text`; return None if `text` contains no `@`.

        If the part after the dot is not a trace, it stays in the digest. No tool has such a digest, so the handle is
        stale.
        """
        tool_id, at, rest = text.rpartition("@")
        if not at:
            return None
        digest, _, trace = rest.partition(".")
        if _TRACE.fullmatch(trace):
            return cls(tool_id, digest, trace.zfill(32))
        return cls(tool_id, rest)

    def __str__(self) -> str:
        return f"{self.tool_id}@{self.digest}" + (f".{self.trace_id.lstrip('0')}" if self.trace_id else "")
