"""What every source can do: list its tools, run one of them, and say when its list has changed."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Container, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from toolcrib.core.errors import InvalidTool, ToolFailed
from toolcrib.core.nodes import Node
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool, one_line, summarize


class ProgressListener(Protocol):
    """Told how far a running call has come; `total` is None where nobody knows it."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None: ...


@dataclass(frozen=True, slots=True)
class SetAside:
    """A definition that a source sent and that could not be taken, alone, with the reason."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Extras:
    """What a source offers besides tools, each definition as it was sent. Source: MCP, "Prompts" and "Resources"."""

    prompts: tuple[Mapping[str, Any], ...] = ()
    """Each with a `name`, unique in the source."""
    resources: tuple[Mapping[str, Any], ...] = ()
    """Each with a `uri`, unique in the source."""
    templates: tuple[Mapping[str, Any], ...] = ()
    """Each with a `uriTemplate`, unique in the source."""


NO_EXTRAS = Extras()


TITLE_CHARS = 80
"""The longest title of a source, in characters: it is in the first answer that every model reads."""


@dataclass(frozen=True, slots=True)
class Listing:
    """All that a source offers at one moment."""

    tools: tuple[Tool, ...]
    title: str | None = None
    """What people call the source; a longer one than `TITLE_CHARS` is cut."""
    summary: str = ""
    """One line on what the source is for; a longer one than `SUMMARY_CHARS` is cut."""
    version: str | None = None
    """Which version the source says it is of."""
    set_aside: tuple[SetAside, ...] = ()
    warnings: tuple[str, ...] = ()
    """What is odd about the source, for its owner."""
    ttl_s: float | None = None
    """For how much longer this listing is good, in seconds: 0 is past its time, None where its source does not say."""
    extras: Extras = NO_EXTRAS
    nodes: tuple[Node, ...] = ()
    """What the source says of the categories of its tools; paths as in `Tool.own_path`."""

    def __post_init__(self) -> None:
        # Here and not where a server's answer is read, so that it holds for every source.
        object.__setattr__(self, "title", one_line(self.title or "", TITLE_CHARS) or None)
        object.__setattr__(self, "summary", one_line(self.summary))


class Source(AbstractAsyncContextManager["Source"], Protocol):
    """Entered before its first use; leaving it stops everything it started.

    Implementations raise `SourceUnavailable` for whatever keeps them from answering, and nothing else for reasons that
    lie outside Toolcrib. A tool that reports failure is an ordinary `ToolResult` with `is_error`.
    """

    @property
    def name(self) -> str:
        """Unique in a catalog, without dots; the first part of the ids of its tools."""
        ...

    async def list_tools(self) -> Listing:
        """Everything the source offers now.

        Raises:
            SourceUnavailable: it cannot be reached, or does not answer in time.
        """
        ...

    async def call_tool(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        """Run `tool`, which is one of this source's as it was shown; only `toolcrib.operations.calling` calls this.

        Raises:
            SourceUnavailable: the source cannot be reached, went away or did not answer in time; `retryable` when
                nothing was sent to it.
            StaleExpansion: the source has another definition of it by now, or none; nothing was sent.
            ToolFailed: the source refused to run it, or has no such tool.
        """
        ...

    def changes(self) -> AsyncIterator[None]:
        """Yields whenever the listing may have changed; ends only with the source."""
        ...


FetchMethod = Literal["prompts/get", "resources/read", "completion/complete"]


@runtime_checkable
class EditableSource(Protocol):
    """A source whose tools its program adds and removes one by one."""

    def holds(self, name: str) -> bool:
        """Whether it has a tool of this name, which it could run."""
        ...

    def remove(self, name: str) -> None:
        """Offer the tool no longer, from any thread; calls that are under way finish."""
        ...


@runtime_checkable
class ExtrasSource(Protocol):
    """A source that can have `Extras`."""

    async def fetch(self, method: FetchMethod, params: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        """The result of one request about its prompts and resources, both as MCP writes them; only `calling`
        calls this.

        Raises:
            SourceUnavailable: as `call_tool` does.
            ToolFailed: the source refused it; `details` hold its own error as `upstream`.
        """
        ...


async def fetch(
    source: Source, method: FetchMethod, params: Mapping[str, Any], context: CallContext
) -> Mapping[str, Any]:
    """`source.fetch`, for whoever does not know the source; raises `ToolFailed` where it can have no extras."""
    if not isinstance(source, ExtrasSource):
        raise ToolFailed(f"`{source.name}` offers no prompts or resources.")
    return await source.fetch(method, params, context)


@runtime_checkable
class WatchableSource(Protocol):
    """A source that can tell of changes of single resources."""

    async def watch(self, uri: str, updated: Callable[[], None]) -> None:
        """From now on call `updated` whenever the resource, or a part of it, may have become another.

        That holds until `unwatch` gets the same two, whatever becomes of the source meanwhile: once it is back after it
        was away, `updated` is called as well, since nobody told of what changed in between. Only `calling`
        calls this.

        Raises:
            SourceUnavailable: as `call_tool` does.
            ToolFailed: the source tells of no such changes, or refused; `details` hold its own error as `upstream`.
        """
        ...

    def unwatch(self, uri: str, updated: Callable[[], None]) -> None:
        """Let go of what `watch` began; nothing happens where it did not."""
        ...


async def watch(source: Source, uri: str, updated: Callable[[], None]) -> None:
    """`source.watch`, for whoever does not know the source; raises `ToolFailed` where it tells of no changes."""
    if not isinstance(source, WatchableSource):
        raise ToolFailed(f"`{source.name}` does not tell of changes of its resources.")
    await source.watch(uri, updated)


def unwatch(source: Source, uri: str, updated: Callable[[], None]) -> None:
    """`source.unwatch`, likewise; nothing happens where there was nothing to watch."""
    if isinstance(source, WatchableSource):
        source.unwatch(uri, updated)


def headline(instructions: str | None) -> str:
    """The first line of a source's instructions that says something, without the marks of a Markdown heading."""
    lines = (line.strip().lstrip("#").strip() for line in (instructions or "").splitlines())
    return summarize(next((line for line in lines if line), ""))


_SENTENCE_WORDS = 4
"""Words from which a line below a heading says more than the heading."""


def server_summary(instructions: str | None, description: str | None) -> str:
    """One line on what a server is for, from what it says of itself; empty if it says nothing.

    That is the first line of its instructions. If that line is a Markdown heading, it is mostly a title, as in
    `# Notes Server - Instructions`: the description comes before it, and so does a sentence below it.
    """
    lines = [line for line in (instructions or "").splitlines() if line.strip()]
    if lines and lines[0].lstrip().startswith("#"):
        below = next((line for line in lines if not line.lstrip().startswith("#")), "")
        sentence = headline(below) if len(below.split()) >= _SENTENCE_WORDS else ""
        return headline(description) or sentence or headline(instructions)
    return headline(instructions) or headline(description)


def free_name(name: str, taken: Container[str]) -> str:
    """`name`, or where that is taken the first of `name-2`, `name-3` and so on that is not."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def source_name(label: str) -> str:
    """A name for a source that people call `label`: letters, digits, `_` and `-` of it, the rest as `-`.

    Raises:
        InvalidTool: nothing of the label is left.
    """
    name = re.sub(r"[^\w-]+", "-", label).strip("-")
    if not name:
        raise InvalidTool(f"`{label}` has no letter, digit, `_` or `-` that could name a source")
    return name
