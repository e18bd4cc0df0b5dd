"""Tools and categories as frozen values: definitions, digests, the pointers that stand for tools, and checks."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, cast

import orjson

from toolcrib.core.contracts import contract_of, words_of
from toolcrib.core.digests import digest
from toolcrib.core.errors import InvalidTool
from toolcrib.core.metadata import EXPANDED, NO_METADATA, Optionality, ToolExample, ToolMetadata
from toolcrib.core.properties import cached_property
from toolcrib.core.schema import Schema, check_nesting
from toolcrib.core.values import read_path

EMPTY_SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {}}
"""The schema of a tool that takes no arguments."""

Path = tuple[str, ...]
"""The path of a category: the names from the root down. The root is `()`."""

ROOT: Path = ()

SUMMARY_CHARS = 160
"""The longest summary of a pointer, in characters."""

REPR_CHARS = 120
"""The longest `repr` of a tool, in characters."""

DIGEST_CHARS = 24
"""Hex digits of the digest in a handle: 96 bits, so that an attacker cannot make two definitions with equal digests."""


DECLARATION = "toolcrib/declaration"
"""The key in `_meta` for a digest of what a declared tool runs. An approval of the tool is bound to this digest."""


@dataclass(frozen=True, slots=True)
class ToolAnnotations:
    """What the author of a tool claims about its behavior.

    The claims are untrusted hints: they can make a decision stricter, never less strict. The defaults are those of
    the MCP specification, `ToolAnnotations`.
    """

    title: str | None = None
    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        """Read MCP's `annotations`. A hint that is not a boolean counts as missing."""
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
        """Return the four hints under MCP's names, including those with default values."""
        return {
            "readOnlyHint": self.read_only,
            "destructiveHint": self.destructive,
            "idempotentHint": self.idempotent,
            "openWorldHint": self.open_world,
        }


@dataclass(frozen=True, repr=False)
class Tool:
    """One callable: its name, description and schemas, as its source defined them.

    `id` is `source.name` and unique in a catalog. By convention, the mappings inside must not be modified: a changed
    definition is a new `Tool`.
    """

    source: str
    """The name of the source that runs the tool; it contains no dot."""
    name: str
    """The exact name of the tool at its source."""
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=lambda: EMPTY_SCHEMA)
    output_schema: Mapping[str, Any] | None = None
    title: str | None = None
    annotations: ToolAnnotations = ToolAnnotations()
    metadata: ToolMetadata = NO_METADATA
    own_path: Path = ROOT
    """The category in which the source puts the tool, below the source's own category."""
    wire: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Everything the source sent, including fields that Toolcrib does not read; empty if the tool was not sent."""

    def __post_init__(self) -> None:
        if self.own_path:
            object.__setattr__(self, "own_path", read_path(self.own_path, "own_path", InvalidTool))

    def __repr__(self) -> str:
        """Show only id and summary, in at most `REPR_CHARS` characters, because schemas would fill screens and logs."""
        shown = f"Tool({self.id!r}, {self.summary!r})"
        return shown if len(shown) <= REPR_CHARS else f"{shown[: REPR_CHARS - 2]}…)"

    @cached_property
    def id(self) -> str:
        return f"{self.source}.{self.name}"

    @cached_property
    def summary(self) -> str:
        """The first sentence of the description, or the title, or the name: one line of at most `SUMMARY_CHARS`."""
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
        """The compiled output schema; None if the tool declares no output schema.

        Raises:
            InvalidTool: the schema cannot be used.
        """
        return None if self.output_schema is None else Schema(self.output_schema)

    @cached_property
    def digests(self) -> _Digests:
        schemas = {"input": self.input_schema, "output": self.output_schema}
        given = {side: schema for side, schema in schemas.items() if schema is not None}
        return _Digests(
            wire=digest(self.wire or {**schemas, **self._texts, "annotations": self.annotations.to_wire()}),
            contract=digest({side: contract_of(schema) for side, schema in given.items()}),
            text=digest(
                [self._texts, [[side, *words] for side, schema in given.items() for words in words_of(schema)]]
            ),
        )

    @property
    def _texts(self) -> dict[str, Any]:
        """The texts that a model reads in addition to the schemas."""
        said = {key: said for key, said in self.metadata.to_wire().items() if key in EXPANDED}
        return {"name": self.name, "title": self.title, "description": self.description, "metadata": said}

    @cached_property
    def _schemas_digest(self) -> str:
        """A digest of both schemas as they are shown, words included."""
        return digest({"input": self.input_schema, "output": self.output_schema})

    @cached_property
    def fingerprint(self) -> int:
        """A 128-bit hash of everything that is shown or claimed about the tool.

        It is cheaper than `digests` and only valid inside one process. Unlike `==`, it distinguishes `true` from `1`,
        as JSON does. Key order matters.
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
        """A digest of the source's own definition, without what the owner adds.

        If the digests of two definitions are equal, the same call means the same in both.
        """
        words = [self.name, self.title, self.description]
        return digest([self._schemas_digest, words, self.annotations.to_wire()])

    @cached_property
    def handle(self) -> str:
        """`id@digest`, which `call_tool` takes as proof that exactly this definition was shown."""
        shown = [self._schemas_digest, digest(self._texts), self.annotations.to_wire()]
        return f"{self.id}@{digest(shown)[:DIGEST_CHARS]}"


@dataclass(frozen=True, slots=True)
class _Digests:
    """Three SHA-256 digests of one definition, in hex. The severity of drift depends on which of them changed."""

    wire: str
    """A digest of everything the source sent."""
    contract: str
    """A digest of the contracts of the input and output schema, with references resolved; see `contract_of`."""
    text: str
    """A digest of everything that a model reads, including the words in the schemas."""


@dataclass(frozen=True, slots=True)
class ToolPointer:
    """Enough of a tool to decide whether to expand it. Source: discovery protocol v0.1, "Tool pointer"."""

    tool_id: str
    path: Path
    summary: str
    tags: tuple[str, ...] = ()
    confidence: float | None = None
    """The confidence of a search result, in [0, 1]; None if the tool was only listed."""
    optionality: Optionality = Optionality.OPTIONAL
    usage_hint: str = ""
    """When to use it, in one line of at most `SUMMARY_CHARS` characters."""
    unavailable: str | None = None
    """Why the tool cannot be called, permanently or until a person acts; None if it can be called."""

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


# A sentence ends at a full stop before a space and a capital (so not in "e.g. this"), at a CJK full stop, or at a blank
# line.
_SENTENCE_END = re.compile(
    r"(?<=[.!?])\s+(?=[A-Z\d\"'`*(\[])|(?<=[。！？])|\n\s*\n|\n\s*(?=(?:Args|Arguments|Parameters|Returns)\b)"
)


def summarize(text: str, limit: int = SUMMARY_CHARS) -> str:
    """Return the first sentence of `text` on one line, cut after a word with an ellipsis if longer than `limit`."""
    start = text.lstrip()[: 4 * limit].rstrip()
    return one_line(next((part for part in _SENTENCE_END.split(start, maxsplit=1) if part), ""), limit)


def one_line(text: str, limit: int = SUMMARY_CHARS) -> str:
    """Return `text` on one line, cut after a word with an ellipsis if longer than `limit` characters."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    cut = line[: limit - 1]
    head, space, _ = cut.rpartition(" ")
    return (head if space and len(head) > limit // 2 else cut).rstrip(" ,;:") + "…"


@dataclass(frozen=True, slots=True)
class Node:
    """A category, which contains tools and other categories. Source: discovery protocol v0.1, "Node"."""

    path: Path
    title: str | None = None
    summary: str = ""
    tags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The last part of the path; empty for the root."""
        return self.path[-1] if self.path else ""


def check_tool(tool: Tool) -> None:
    """Check that the metadata of `tool` is consistent and matches its schema, and that its schemas can be sent.

    Raises:
        InvalidTool: an example does not match the input schema, a schema is nested too deeply, or `check_metadata`
            refuses the metadata. The message names the tool and the place.
    """
    try:
        check_nesting(tool.input_schema)
        check_nesting(tool.output_schema)
        check_metadata(tool.metadata)
        problem = next(example_problems(tool, tool.metadata.examples), None)
    except InvalidTool as error:
        raise InvalidTool(f"`{tool.id}`: {error.message}") from error
    if problem is not None:
        raise InvalidTool(f"`{tool.id}`: {problem}")


def check_metadata(metadata: ToolMetadata) -> None:
    """Check that `metadata` is consistent.

    Raises:
        InvalidTool: a conditional tool has no condition, a tool that is not conditional has one, or a string is blank.
    """
    is_conditional = metadata.optionality is Optionality.CONDITIONAL
    if is_conditional and not (metadata.condition or "").strip():
        raise InvalidTool("condition: a conditional tool needs a condition: say when it is required")
    if metadata.condition is not None and not is_conditional:
        raise InvalidTool("condition: only allowed if `optionality` is `conditional`")
    for key in ("category", "tags", "requires_capabilities", "aliases", "intents"):
        if any(not text.strip() for text in getattr(metadata, key)):
            raise InvalidTool(f"{key}: must not contain a blank string")


def example_problems(tool: Tool, examples: tuple[ToolExample, ...]) -> Iterator[str]:
    """Yield a problem for each of `examples` whose input does not match the input schema of `tool`."""
    for number, example in enumerate(examples, start=1):
        if violations := tool.arguments.violations(dict(example.input), "the input"):
            yield f"example {number} ({example.description}) does not match its schema: {violations[0].message}"
