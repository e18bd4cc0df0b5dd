"""Handles: what `expand_tool` gives and `call_tool` takes, as proof of what was shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

_TRACE = re.compile(r"(?=.*[1-9a-f])[0-9a-f]{1,32}")  # no trace has only zeros


@dataclass(frozen=True, slots=True)
class Handle:
    """`ID@DIGEST` or `ID@DIGEST.TRACE`: a tool, a digest of exactly what was shown of it, and in which trace it was.

    Nobody keeps a session: whatever a call has to be bound to travels in here.
    """

    tool_id: str
    digest: str
    trace_id: str | None = None
    """32 hex digits."""

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The handle in `text`; None where it holds no `@` and so can be none.

        What stands where a trace should and is none makes the digest another, which no tool has.
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
