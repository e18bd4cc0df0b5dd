"""The agent's own read-only tools for editors without file access. They read the folders of the session."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Any, Self

import anyio.to_thread

from toolcrib.core.errors import StaleExpansion, ToolFailed
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.sources.acp.descriptors import ToolDescriptor, parameters_of
from toolcrib.sources.acp.diffs import Location, with_files
from toolcrib.sources.acp.editor_files import writable
from toolcrib.sources.acp.roots import Roots, walk
from toolcrib.sources.acp.search_patterns import Matcher, expression, glob, literal
from toolcrib.sources.base import Listing, ProgressListener
from toolcrib.sources.watches import Watches

LOCAL_FILES = "local"

MAX_FILE_BYTES = 10_000_000
"""The maximum size of a file that is read. A larger file is refused."""

MAX_READ_CHARS = 200_000
"""The maximum length of one answer to `read_file`, in characters."""

MAX_SEARCHED_BYTES = 2_000_000
"""The maximum size of a file that is searched. A larger file is skipped."""

MAX_WALKED = 200_000
"""How many files and folders one search visits."""

SEARCH_S = 20.0
"""The time limit of one search, in seconds."""

MAX_FOUND = 1_000
DEFAULT_FOUND = 200

MAX_LINE_CHARS = 300
"""The maximum length of a shown line, in characters."""

_BOUNDS = (
    f"A search visits at most {MAX_WALKED} entries in at most {SEARCH_S:g} seconds, and reports if it ended early."
)
_UNSEEN = "Hidden folders, links and folders of installed packages are skipped."


_FOLDER = {
    "type": "string",
    "minLength": 1,
    "description": "The folder or file to search. Default: all folders of the session.",
}
_LIMIT = {"type": "integer", "minimum": 1, "maximum": MAX_FOUND, "default": DEFAULT_FOUND}

LOCAL_TOOLS = (
    ToolDescriptor(
        name="read_file",
        kind="read",
        description=(
            "Read a text file in the folders of the session, as it is on the disk. "
            "Give `line` and `limit` to read only a part of it."
        ),
        parameters=parameters_of(
            ("path",),
            path={
                "type": "string",
                "minLength": 1,
                "description": "An absolute path, or a path relative to the session's folder.",
            },
            line={"type": "integer", "minimum": 1, "description": "The first line to read, counted from 1."},
            limit={"type": "integer", "minimum": 1, "description": "How many lines to read at most."},
        ),
    ),
    ToolDescriptor(
        name="find_files",
        kind="search",
        description=(
            "Find files in the folders of the session by a pattern for their paths, for example `src/**/*.py`. "
            f"A pattern without `/` matches their names. {_UNSEEN} {_BOUNDS}"
        ),
        parameters=parameters_of(
            ("pattern",),
            pattern={
                "type": "string",
                "minLength": 1,
                "description": "`*` and `?` within a part of a path, `**` across parts, `[ab]`, `{a,b}`.",
            },
            path=_FOLDER,
            limit={**_LIMIT, "description": "How many paths to return at most."},
        ),
    ),
    ToolDescriptor(
        name="search_text",
        kind="search",
        description=(
            "Find lines that contain a text or match a regular expression, in the text files of the session's folders. "
            f"{_UNSEEN} Files of more than {MAX_SEARCHED_BYTES} bytes are skipped. {_BOUNDS}"
        ),
        parameters=parameters_of(
            ("query",),
            query={"type": "string", "minLength": 1, "description": "The text to find, literally, on one line."},
            is_regex={
                "type": "boolean",
                "default": False,
                "description": "Whether `query` is a regular expression, without lookaround and backreferences.",
            },
            ignores_case={"type": "boolean", "default": False},
            files={
                "type": "string",
                "minLength": 1,
                "description": "Search only files that match this pattern, as in find_files.",
            },
            path=_FOLDER,
            limit={**_LIMIT, "description": "How many lines to return at most."},
        ),
    ),
)
"""The descriptors of the offered tools."""


class LocalSource:
    """Reads and finds files in `folders`. Paths that lead outside, even by a link, are refused.

    Threads read the disk. An abandoned search ends soon.
    """

    def __init__(self, folders: Sequence[str | Path], *, name: str = LOCAL_FILES) -> None:
        """`folders` has at least one entry. Relative paths start at the first one."""
        self._name = name
        self._roots = Roots(folders)
        self._tools = {descriptor.name: descriptor.as_tool(name) for descriptor in LOCAL_TOOLS}
        self._watches = Watches()

    @property
    def name(self) -> str:
        return self._name

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._watches.end()

    async def list_tools(self) -> Listing:
        return Listing(
            tuple(self._tools.values()), summary="Read-only access to the files of this session, by the agent itself."
        )

    async def call_tool(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        """Run one of the tools.

        Raises:
            ToolFailed: there is no such tool or file, the path is outside of the folders, or the file is not text.
            StaleExpansion: the tool was shown with a different definition.
        """
        offered = self._tools.get(tool.name)
        if offered is None:
            raise ToolFailed(f"`{self._name}` has no tool `{tool.name}`.")
        if offered.digests.wire != tool.digests.wire:
            raise StaleExpansion(f"The definition of `{tool.id}` has changed.")
        search = _SearchProgress()
        run: Callable[[], ToolResult]
        match tool.name:
            case "read_file":
                run = partial(self._read, arguments)
            case "find_files":
                run = partial(self._find, search, arguments)
            case _:
                run = partial(self._search, search, arguments)
        try:
            return await anyio.to_thread.run_sync(run, abandon_on_cancel=True)
        finally:
            search.is_given_up.set()

    def changes(self) -> AsyncIterator[None]:
        """Yield nothing, because the tools never change."""
        return self._watches.watch()

    def _read(self, arguments: Mapping[str, Any]) -> ToolResult:
        path = self._roots.inside(arguments["path"])
        text = _text(self._roots.read(path, MAX_FILE_BYTES))
        if text is None:
            raise ToolFailed(f"`{path}` is not a text file.")
        lines = text.split("\n")
        if lines[-1] == "":
            del lines[-1]
        first, limit = arguments.get("line", 1), arguments.get("limit")
        wanted = lines[first - 1 :][:limit]
        shown, is_cut = _fitting(wanted)
        said = [shown] if shown else []
        if is_cut or first > 1 or len(wanted) < len(lines):
            last = first + len(wanted) - 1
            said.append(
                f"[lines {first} to {last} of {len(lines)}]" if wanted else f"[the file has {len(lines)} lines]"
            )
        if is_cut:
            said.append(f"[of these, only {len(shown)} characters are shown; read the rest with `line` and `limit`]")
        location = Location(str(path), first if first > 1 else None)
        value = {**location.to_wire(), "text": shown, "line_count": len(lines), "is_cut": is_cut}
        return with_files(_answer(said or ["[The file is empty.]"], value), locations=[location])

    def _find(self, search: _SearchProgress, arguments: Mapping[str, Any]) -> ToolResult:
        limit = arguments.get("limit", DEFAULT_FOUND)
        files = search.files(self._roots.start(arguments.get("path")), glob(arguments["pattern"]))
        paths = sorted(writable(str(path)) for path in islice(files, MAX_FOUND + 1))
        shown = paths[:limit]
        notes = [search.note] if search.note else []
        if len(paths) > limit:
            more = "more than " if len(paths) > MAX_FOUND else ""
            notes.append(f"[{limit} of {more}{min(len(paths), MAX_FOUND)} are shown]")
        value = {"paths": shown, "is_complete": not notes}
        return _answer(["\n".join(shown) if shown else "No file was found.", *notes], value)

    def _search(self, search: _SearchProgress, arguments: Mapping[str, Any]) -> ToolResult:
        make = expression if arguments.get("is_regex") else literal
        matches = make(arguments["query"], ignores_case=bool(arguments.get("ignores_case")))
        limit = arguments.get("limit", DEFAULT_FOUND)
        files = search.files(self._roots.start(arguments.get("path")), glob(arguments.get("files", "*")))
        found = [*islice(self._lines(search, files, matches), limit + 1)]
        shown = found[:limit]
        notes = [search.note] if search.note else []
        if search.large:
            notes.append(f"[{search.large} files of more than {MAX_SEARCHED_BYTES} bytes were skipped]")
        if len(found) > limit:
            notes.append(f"[only the first {limit} matches are shown]")
        text = "\n".join(f"{path}:{line}: {content}" for path, line, content in shown)
        value = {
            "matches": [{"path": path, "line": line, "text": content} for path, line, content in shown],
            "is_complete": not notes,
        }
        locations = [Location(path, line) for path, line, _ in shown]
        return with_files(_answer([text or "No line was found.", *notes], value), locations=locations)

    def _lines(
        self, search: _SearchProgress, files: Iterator[Path], matches: Matcher
    ) -> Iterator[tuple[str, int, str]]:
        for path in files:
            text = search.text_of(self._roots, path)
            for number, line in enumerate(text.split("\n") if text else (), start=1):
                if matches(line.removesuffix("\r")):
                    yield writable(str(path)), number, line.strip()[:MAX_LINE_CHARS]


@dataclass
class _SearchProgress:
    """The progress of one search, in its own thread."""

    is_given_up: Event = field(default_factory=Event)
    """Set from outside when the search is abandoned."""
    ends_at: float = field(default_factory=lambda: time.monotonic() + SEARCH_S)
    walked: int = 0
    large: int = 0
    """The number of files that were skipped because of their size."""
    note: str = ""
    """Why the search ended early."""

    def files(self, starts: Sequence[Path], matches: Matcher) -> Iterator[Path]:
        """Yield the files whose paths, relative to the start of the search, `matches`, until a limit is reached."""
        for start in starts:
            above = start if start.is_dir() else start.parent
            for path in walk(start):
                self.walked += 1
                if self._is_over():
                    return
                if path is not None and matches(path.relative_to(above).as_posix()):
                    yield path

    def text_of(self, roots: Roots, path: Path) -> str | None:
        """Return the text of a file; None if it is not text, is too large or cannot be read."""
        try:
            if path.stat().st_size > MAX_SEARCHED_BYTES:
                self.large += 1
                return None
            return _text(roots.read(path, MAX_SEARCHED_BYTES))
        except (OSError, ToolFailed):  # the file was deleted, or has grown
            return None

    def _is_over(self) -> bool:
        if self.walked > MAX_WALKED:
            self.note = f"[the search ended after {MAX_WALKED} entries; use `path` to search a single folder]"
        elif time.monotonic() > self.ends_at:
            self.note = f"[the search ended after {SEARCH_S:g} s; use `path` to search a single folder]"
        return bool(self.note) or self.is_given_up.is_set()


def _text(data: bytes) -> str | None:
    """Return `data` decoded as UTF-8; None if it is not text."""
    return None if b"\0" in data else data.decode("utf-8-sig", "replace")


def _fitting(lines: Sequence[str]) -> tuple[str, bool]:
    """Return the lines as one text, and whether they were cut."""
    text = "\n".join(lines)
    return text[:MAX_READ_CHARS], len(text) > MAX_READ_CHARS


def _answer(texts: Sequence[str], value: Mapping[str, Any]) -> ToolResult:
    return ToolResult({"content": [{"type": "text", "text": text} for text in texts], "structuredContent": dict(value)})
