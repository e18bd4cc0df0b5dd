"""The protocols that every source implements, and the source that stands in for one that cannot be used."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Container, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Protocol, Self, runtime_checkable

import anyio

from toolcrib.core.errors import InvalidTool, SourceUnavailable, ToolFailed
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Node, Tool, one_line, summarize


class ProgressListener(Protocol):
    """Receives the progress of a running call. `total` is None if it is unknown."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None: ...


@dataclass(frozen=True, slots=True)
class SetAside:
    """A definition that a source sent and that Toolcrib ignores, with the reason."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Extras:
    """The prompts and resources of a source, each definition as the source sent it.

    Source: MCP, "Prompts" and "Resources".
    """

    prompts: tuple[Mapping[str, Any], ...] = ()
    """Each prompt has a `name`, unique in the source."""
    resources: tuple[Mapping[str, Any], ...] = ()
    """Each resource has a `uri`, unique in the source."""
    templates: tuple[Mapping[str, Any], ...] = ()
    """Each resource template has a `uriTemplate`, unique in the source."""


NO_EXTRAS = Extras()


TITLE_CHARS = 80
"""The maximum length of a source's title, in characters. The title is in the first answer that every model reads."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Everything that a source offers at one moment."""

    tools: tuple[Tool, ...]
    title: str | None = None
    """The display name of the source. A title longer than `TITLE_CHARS` is cut."""
    summary: str = ""
    """One line on what the source is for. A summary longer than `SUMMARY_CHARS` is cut."""
    version: str | None = None
    """The version that the source reports."""
    set_aside: tuple[SetAside, ...] = ()
    """Definitions that Toolcrib ignores, with the reasons."""
    warnings: tuple[str, ...] = ()
    """Problems with the source, for its owner."""
    ttl_s: float | None = None
    """How long this listing remains valid, in seconds. 0: it has expired. None: the source does not say."""
    extras: Extras = NO_EXTRAS
    nodes: tuple[Node, ...] = ()
    """The categories that the source itself describes. Paths are as in `Tool.own_path`."""

    def __post_init__(self) -> None:
        # The limits apply here and not where a server's answer is read, so that they hold for every source.
        object.__setattr__(self, "title", one_line(self.title or "", TITLE_CHARS) or None)
        object.__setattr__(self, "summary", one_line(self.summary))


class Source(AbstractAsyncContextManager["Source"], Protocol):
    """Where tools come from. Enter a source before its first use; leaving it stops everything that it started.

    Implementations raise `SourceUnavailable` for every cause outside Toolcrib that keeps them from answering. They
    raise nothing else for such causes. A tool that reports failure returns an ordinary `ToolResult` with `is_error`.
    """

    @property
    def name(self) -> str:
        """The name of the source: unique in a catalog, without dots. It is the first part of the ids of its tools."""
        ...

    async def list_tools(self) -> Listing:
        """Return everything that the source offers now.

        Raises:
            SourceUnavailable: the source cannot be reached, or does not answer in time.
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
        """Run `tool`, a tool of this source as it was shown. Only `toolcrib.operations.calling` calls this method.

        Raises:
            SourceUnavailable: the source cannot be reached, stopped, or did not answer in time. The error is
                `retryable` if nothing was sent to the source.
            StaleExpansion: the source now has a different definition of the tool, or no such tool. Nothing was sent.
            ToolFailed: the source refused to run the tool, or has no such tool.
        """
        ...

    def changes(self) -> AsyncIterator[None]:
        """Yield whenever the listing may have changed. The iterator ends only with the source."""
        ...


FetchMethod = Literal["prompts/get", "resources/read", "completion/complete"]


@runtime_checkable
class EditableSource(Protocol):
    """A source to which the program that owns it adds tools one by one, and from which it removes them."""

    def holds(self, name: str) -> bool:
        """Return whether the source has a tool of this name that it can run."""
        ...

    def remove(self, name: str) -> None:
        """Remove the tool. This works from any thread; running calls finish."""
        ...


@runtime_checkable
class _ExtrasSource(Protocol):
    """A source that can have prompts and resources (`Extras`)."""

    async def fetch(self, method: FetchMethod, params: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        """Return the result of one request about prompts or resources. Only `calling` calls this method.

        `params` and the result are in the form that MCP prescribes.

        Raises:
            SourceUnavailable: as in `call_tool`.
            ToolFailed: the source refused the request. `details` hold the source's own error as `upstream`.
        """
        ...


async def fetch(
    source: Source, method: FetchMethod, params: Mapping[str, Any], context: CallContext
) -> Mapping[str, Any]:
    """Call `source.fetch` on any source; raise `ToolFailed` if the source cannot have prompts or resources."""
    if not isinstance(source, _ExtrasSource):
        raise ToolFailed(f"`{source.name}` offers no prompts or resources.")
    return await source.fetch(method, params, context)


@runtime_checkable
class WatchableSource(Protocol):
    """A source that can report changes of single resources."""

    async def watch(self, uri: str, updated: Callable[[], None]) -> None:
        """From now on, call `updated` whenever the resource, or a part of it, may have changed.

        This holds until `unwatch` gets the same two arguments, even if the source disconnects in between. After a
        reconnect the source calls `updated` too, because it missed the notifications sent meanwhile. Only `calling`
        calls this method.

        Raises:
            SourceUnavailable: as in `call_tool`.
            ToolFailed: the source does not report such changes, or refused. `details` hold the source's own error as
                `upstream`.
        """
        ...

    def unwatch(self, uri: str, updated: Callable[[], None]) -> None:
        """End what `watch` began. Nothing happens if there was no such `watch`."""
        ...


async def watch(source: Source, uri: str, updated: Callable[[], None]) -> None:
    """Call `source.watch` on any source; raise `ToolFailed` if the source does not report changes."""
    if not isinstance(source, WatchableSource):
        raise ToolFailed(f"`{source.name}` does not report changes of its resources.")
    await source.watch(uri, updated)


def unwatch(source: Source, uri: str, updated: Callable[[], None]) -> None:
    """Call `source.unwatch` on any source. Nothing happens if the source does not report changes."""
    if isinstance(source, WatchableSource):
        source.unwatch(uri, updated)


def headline(instructions: str | None) -> str:
    """Return the first line of a source's instructions that is not empty, without the marks of a Markdown heading."""
    lines = (line.strip().lstrip("#").strip() for line in (instructions or "").splitlines())
    return summarize(next((line for line in lines if line), ""))


_SENTENCE_WORDS = 4
"""The minimum number of words in a line below a heading for which that line is preferred to the heading."""


def server_summary(instructions: str | None, description: str | None) -> str:
    """Return one line on what a server is for, from the server's own words; empty if the server sent no words.

    By default this is the first line of the instructions. If that line is a Markdown heading, it is usually only a
    title, as in `# Notes Server - Instructions`. Then the description is preferred, and after it a sentence below the
    heading.
    """
    lines = [line for line in (instructions or "").splitlines() if line.strip()]
    if lines and lines[0].lstrip().startswith("#"):
        below = next((line for line in lines if not line.lstrip().startswith("#")), "")
        sentence = headline(below) if len(below.split()) >= _SENTENCE_WORDS else ""
        return headline(description) or sentence or headline(instructions)
    return headline(instructions) or headline(description)


def free_name(name: str, taken: Container[str]) -> str:
    """Return `name`; if it is taken, return the first of `name-2`, `name-3` and so on that is free."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def source_name(label: str) -> str:
    """Make a source name from `label`: letters, digits, `_` and `-` are kept, and other characters become `-`.

    Raises:
        InvalidTool: nothing of the label is left.
    """
    name = re.sub(r"[^\w-]+", "-", label).strip("-")
    if not name:
        raise InvalidTool(f"`{label}` contains no letter, digit, `_` or `-`, so it cannot become a source name")
    return name


@dataclass(frozen=True, slots=True)
class Condition:
    """How many calls run and wait at a server, and whether calls are paused after failures."""

    running: int
    waiting: int
    failures: int
    """Failures in a row, of starts or calls; 0 if the server works."""
    retry_after_s: float | None
    """In how many seconds the next attempt is allowed; None if calls are not paused."""


class UnavailableSource:
    """Takes the place of a source whose configuration is wrong, so that the owner sees why its tools are missing."""

    def __init__(self, name: str, reason: str, *, diagnosis: str = "", remedy: str = "") -> None:
        self._name = name
        self.reason = reason
        self.diagnosis = diagnosis
        self.remedy = remedy

    @property
    def name(self) -> str:
        return self._name

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    async def list_tools(self) -> Listing:
        raise self._error()

    async def call_tool(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        raise self._error()

    async def changes(self) -> AsyncIterator[None]:
        await anyio.sleep_forever()
        yield

    def _error(self) -> SourceUnavailable:
        return SourceUnavailable(self.reason, diagnosis=self.diagnosis, remedy=self.remedy)
