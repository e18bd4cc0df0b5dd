"""What a tool is: its definition as frozen values, and the pointer that stands for it until it is expanded."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, cast

import orjson

from toolcrib.core.contracts import contract_of, words_of
from toolcrib.core.digests import digest
from toolcrib.core.errors import InvalidTool
from toolcrib.core.metadata import EXPANDED, NO_METADATA, Optionality, ToolMetadata
from toolcrib.core.properties import cached_property
from toolcrib.core.schema import Schema
from toolcrib.core.values import read_path

EMPTY_SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {}}
"""The schema of a tool that takes no arguments."""

Path = tuple[str, ...]
"""Where a node stands: the names from the root down. The root is `()`."""

ROOT: Path = ()

SUMMARY_CHARS = 160
"""The longest summary a pointer carries, in characters."""

REPR_CHARS = 120
"""The longest `repr` of a tool, in characters."""

DIGEST_CHARS = 24
"""Hex digits of the digest in a handle: 96 bits, so that nobody can make two definitions with the same one."""


DECLARATION = "toolcrib/declaration"
"""Under this key of `_meta` stands a digest of what a declared tool runs: who approved of a tool approved of that."""


@dataclass(frozen=True, slots=True)
class ToolAnnotations:
    """What a tool's author claims of its behaviour: a stranger's hints, which may tighten a decision, never loosen it.

    Defaults are those of the MCP specification, `ToolAnnotations`.
    """

    title: str | None = None
    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        """Read MCP's `annotations`; whatever is not a boolean where one belongs counts as absent."""
        if not isinstance(wire, Mapping):
            return cls()
        claims = cast(Mapping[str, object], wire)

        def claim(key: str, default: bool) -> bool:
            value = claims.get(key)
            return value if isinstance(value, bool) else default

        title = claims.get("title")
        return cls(
            title=title if isinstance(title, str) else None,
            read_only=claim("readOnlyHint", False),
            destructive=claim("destructiveHint", True),
            idempotent=claim("idempotentHint", False),
            open_world=claim("openWorldHint", True),
        )

    def to_wire(self) -> dict[str, bool]:
        """The four hints under MCP's names, defaults written out."""
        return {
            "readOnlyHint": self.read_only,
            "destructiveHint": self.destructive,
            "idempotentHint": self.idempotent,
            "openWorldHint": self.open_world,
        }


@dataclass(frozen=True, repr=False)
class Tool:
    """One callable: its name, description and schemas, as its source defined them.

    `id` is `source.name` and unique in a catalog. Mappings inside are read-only by agreement: a changed definition
    is a new `Tool`.
    """

    source: str
    """Name of the source that runs it; holds no dot."""
    name: str
    """The name its source knows it by, exactly."""
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=lambda: EMPTY_SCHEMA)
    output_schema: Mapping[str, Any] | None = None
    title: str | None = None
    annotations: ToolAnnotations = ToolAnnotations()
    metadata: ToolMetadata = NO_METADATA
    own_path: Path = ROOT
    """Where its source hangs it, below the source's own node."""
    wire: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Everything the source sent, unread fields included; empty for a tool that never travelled."""

    def __post_init__(self) -> None:
        if self.own_path:
            object.__setattr__(self, "own_path", read_path(self.own_path, "own_path", InvalidTool))

    def __repr__(self) -> str:
        """Its id and summary, in at most `REPR_CHARS` characters: whole schemas would fill screens and logs."""
        shown = f"Tool({self.id!r}, {self.summary!r})"
        return shown if len(shown) <= REPR_CHARS else f"{shown[: REPR_CHARS - 2]}…)"

    @cached_property
    def id(self) -> str:
        return f"{self.source}.{self.name}"

    @cached_property
    def summary(self) -> str:
        """The first sentence of the description, else title or name; one line of at most `SUMMARY_CHARS` characters."""
        return summarize(self.description) or one_line(self.title or "") or one_line(self.name)

    @cached_property
    def arguments(self) -> Schema:
        """The compiled input schema.

        Raises:
            InvalidTool: the schema cannot be used.
        """
        return Schema(self.input_schema)

    @cached_property
    def results(self) -> Schema | None:
        """The compiled output schema; None where the tool declares none.

        Raises:
            InvalidTool: the schema cannot be used.
        """
        return None if self.output_schema is None else Schema(self.output_schema)

    @cached_property
    def digests(self) -> Digests:
        schemas = {"input": self.input_schema, "output": self.output_schema}
        given = {side: schema for side, schema in schemas.items() if schema is not None}
        return Digests(
            wire=digest(self.wire or {**schemas, **self._texts, "annotations": self.annotations.to_wire()}),
            contract=digest({side: contract_of(schema) for side, schema in given.items()}),
            text=digest(
                [self._texts, [[side, *words] for side, schema in given.items() for words in words_of(schema)]]
            ),
        )

    @property
    def _texts(self) -> dict[str, Any]:
        """What a model reads besides the schemas."""
        said = {key: said for key, said in self.metadata.to_wire().items() if key in EXPANDED}
        return {"name": self.name, "title": self.title, "description": self.description, "metadata": said}

    @cached_property
    def _schemas_digest(self) -> str:
        """Of both schemas as they are shown, words included."""
        return digest({"input": self.input_schema, "output": self.output_schema})

    @cached_property
    def fingerprint(self) -> int:
        """128 bits of what can be told of the tool; cheaper than `digests`, and good only inside one process.

        Unlike `==`, it tells `true` from `1`, as JSON does. Key order counts.
        """
        shown = (self.id, self.own_path, self.title, self.description, self.input_schema, self.output_schema)
        try:
            told = orjson.dumps(shown)
        except TypeError:  # half a surrogate pair, or an integer beyond 64 bits
            told = repr(shown).encode("utf-8", "surrogatepass")
        claimed = repr((self.annotations, self.metadata)).encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.blake2b(told + claimed, digest_size=16).digest(), "big")

    @cached_property
    def offer(self) -> str:
        """A digest of what its source says of it, whatever its owner adds; equal where the same call means the same."""
        words = [self.name, self.title, self.description]
        return digest([self._schemas_digest, words, self.annotations.to_wire()])

    @cached_property
    def handle(self) -> str:
        """`id@digest`: what `call_tool` takes as proof that exactly this definition was shown."""
        shown = [self._schemas_digest, digest(self._texts), self.annotations.to_wire()]
        return f"{self.id}@{digest(shown)[:DIGEST_CHARS]}"


@dataclass(frozen=True, slots=True)
class Digests:
    """Three SHA-256 digests of one definition, in hex; drift is graded by which of them moved."""

    wire: str
    """Of everything the source sent."""
    contract: str
    """Of what input and output schema bind to, references followed; see `contract_of`."""
    text: str
    """Of what a model reads, the words in the schemas included."""


@dataclass(frozen=True, slots=True)
class ToolPointer:
    """Enough of a tool to decide whether to expand it. Source: discovery protocol v0.1, "Tool pointer"."""

    tool_id: str
    path: Path
    summary: str
    tags: tuple[str, ...] = ()
    confidence: float | None = None
    """In [0, 1], where the tool was searched for; absent where it was only listed."""
    optionality: Optionality = Optionality.OPTIONAL
    usage_hint: str = ""
    """When to use it, in one line of at most `SUMMARY_CHARS` characters."""
    unavailable: str | None = None
    """Why it cannot be called, at all or before somebody has done something."""

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"tool_id": self.tool_id, "path": list(self.path), "summary": self.summary}
        if self.tags:
            wire["tags"] = list(self.tags)
        if self.optionality is not Optionality.OPTIONAL:
            wire["optionality"] = self.optionality.value
        if self.usage_hint:
            wire["usage_hint"] = self.usage_hint
        if self.confidence is not None:
            wire["confidence"] = self.confidence
        if self.unavailable is not None:
            wire["unavailable"] = self.unavailable
        return wire


# Ends at a full stop followed by space and a capital (so "e.g. this" goes on), at a CJK full stop, or at a blank line.
_SENTENCE_END = re.compile(
    r"(?<=[.!?])\s+(?=[A-Z\d\"'`*(\[])|(?<=[。！？])|\n\s*\n|\n\s*(?=(?:Args|Arguments|Parameters|Returns)\b)"
)


def summarize(text: str, limit: int = SUMMARY_CHARS) -> str:
    """The first sentence of `text` on one line, cut at a word with an ellipsis beyond `limit` characters."""
    start = text.lstrip()[: 4 * limit].rstrip()
    return one_line(next((part for part in _SENTENCE_END.split(start, maxsplit=1) if part), ""), limit)


def one_line(text: str, limit: int = SUMMARY_CHARS) -> str:
    """`text` on one line, cut at a word with an ellipsis beyond `limit` characters."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    cut = line[: limit - 1]
    head, space, _ = cut.rpartition(" ")
    return (head if space and len(head) > limit // 2 else cut).rstrip(" ,;:") + "…"
