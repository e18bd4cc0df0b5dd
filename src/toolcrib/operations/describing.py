"""Describes the tools of a view as text for a system prompt, within a budget of tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, Self

from toolcrib.catalog.access import Access
from toolcrib.catalog.view import View
from toolcrib.core.digests import BYTES_PER_TOKEN
from toolcrib.core.errors import InvalidArguments
from toolcrib.core.metadata import Optionality
from toolcrib.core.tools import Path, Tool, summarize
from toolcrib.core.untrusted_text import as_block, as_id, as_json, as_path, on_one_line
from toolcrib.operations.argument_outlines import outline
from toolcrib.operations.protocol_messages import DetailLevel

MIN_BUDGET_TOKENS = 100
"""The smallest budget: room to say how to reach the tools if no tool is described."""

DEFAULT_BUDGET_TOKENS = 2_000

SUMMARY_CHARS = 80
"""The longest summary of a category, in characters."""

_LEVELS = (DetailLevel.NAME, DetailLevel.SUMMARY, DetailLevel.FULL)

_RANKS: Mapping[Optionality, str] = {
    Optionality.REQUIRED: "Required:",
    Optionality.CONDITIONAL: "Required on a condition:",
    Optionality.OPTIONAL: "Optional:",
}
"""The optionalities, most needed first, each with the label above its tools."""


@dataclass(frozen=True, slots=True)
class Description:
    """A description of tools for a system prompt. Equal views have equal descriptions."""

    text: str
    tokens: int
    """The estimated number of tokens of the text, rounded up."""
    shown: Mapping[str, DetailLevel]
    """The detail of each tool in the text, by id, in the order of the text."""
    left_out: tuple[str, ...]
    """The ids of visible tools that are not in the text, sorted: there was no room, or they cannot be called now."""

    @property
    def tool_ids(self) -> tuple[str, ...]:
        return tuple(self.shown)

    def in_trace(self, trace_id: str) -> Self:
        """Return this description unchanged, because a system prompt outlives a trace and must stay cacheable."""
        return self

    def to_wire(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "tokens": self.tokens,
            "shown": dict(self.shown),
            "left_out": [*self.left_out],
        }


def describe(
    view: View, detail: DetailLevel = DetailLevel.FULL, budget_tokens: int = DEFAULT_BUDGET_TOKENS
) -> Description:
    """Describe what the tools of `view` do and, at `DetailLevel.FULL`, their arguments and handles.

    Tools are listed by the category of their primary path, required ones first. If there is not enough room for all of
    them at `detail`, the least needed tools lose detail first. Required tools keep their detail longest. After them
    come the categories with the number of their tools, conditional tools, and optional tools. Among equals, each
    category gets its turn, and the tools with the shortest definitions are the first to be described in full. The text
    counts what is left out, and says how to reach it. A larger budget never reduces the detail of any tool.

    Tools that cannot be called now are counted and not described.

    Raises:
        InvalidArguments: `budget_tokens` is below `MIN_BUDGET_TOKENS`.

    Source: ADR-001, tools in a system prompt, grouped by category and by optionality.
    """
    if budget_tokens < MIN_BUDGET_TOKENS:
        raise InvalidArguments(f"`budget_tokens` must be at least {MIN_BUDGET_TOKENS}, not {budget_tokens}.")
    sheet = _Sheet.of(view)
    text, chosen = _fitted(sheet, detail, budget_tokens * BYTES_PER_TOKEN)
    in_order = (tool.id for _, tools in sheet.nodes for tool in tools)
    shown = {tool_id: chosen.levels[tool_id] for tool_id in in_order if tool_id in chosen.levels}
    return Description(
        text,
        -(-_size(text) // BYTES_PER_TOKEN),
        MappingProxyType(shown),
        tuple(sorted(view.tools.keys() - shown.keys())),
    )


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The content of a text."""

    levels: Mapping[str, DetailLevel] = field(default_factory=dict[str, DetailLevel])
    """The detail of each described tool, by id."""
    counted: frozenset[Path] = frozenset()
    """The categories that are named even if none of their tools is described."""


@dataclass(frozen=True, slots=True)
class _Phase:
    """The next things to add to a text, in order: more detail of some tools, or the names of some categories."""

    tool_ids: Sequence[str] = ()
    level: DetailLevel = DetailLevel.NAME
    nodes: Sequence[Path] = ()

    def __len__(self) -> int:
        return len(self.tool_ids) + len(self.nodes)

    def added_to(self, chosen: _Chosen, count: int) -> _Chosen:
        """Return `chosen` with the first `count` things of this phase added."""
        return _Chosen(
            {**chosen.levels, **dict.fromkeys(self.tool_ids[:count], self.level)},
            chosen.counted.union(self.nodes[:count]),
        )


def _fitted(sheet: _Sheet, detail: DetailLevel, room: int) -> tuple[str, _Chosen]:
    """Return the text with the most content in at most `room` bytes, and its content.

    Content is added in the same order for every `room`, and the same amounts are tried until a text is too long. So
    more room never results in less content, although adding content can make the text shorter.
    """
    chosen = _Chosen()
    text = sheet.text(chosen)
    for phase in sheet.phases(detail):
        low, high, trial = 0, len(phase) + 1, len(phase)
        begun = chosen
        while low < trial < high:
            attempt = phase.added_to(begun, trial)
            told = sheet.text(attempt)
            if _size(told) <= room:
                low, text, chosen = trial, told, attempt
            else:
                high = trial
            trial = (low + high) // 2
        if low < len(phase):
            break
    return text, chosen


@dataclass(frozen=True)
class _Sheet:
    """The tools to describe, in their order, with cached texts."""

    view: View
    nodes: Sequence[tuple[Path, Sequence[Tool]]]
    """The categories sorted by path, each with its tools: most needed first, then by id."""
    uncallable: int
    """The number of visible tools that cannot be called now."""
    _entries: dict[tuple[str, DetailLevel], str] = field(default_factory=dict[tuple[str, DetailLevel], str])
    _counted: dict[Path, str] = field(default_factory=dict[Path, str])

    @classmethod
    def of(cls, view: View) -> Self:
        hanging: defaultdict[Path, list[Tool]] = defaultdict(list)
        tools = [tool for tool in view.tools.values() if _may_be_called(view, tool)]
        for tool in tools:
            hanging[view.ontology.places(tool)[0]].append(tool)
        ranks = {optionality: rank for rank, optionality in enumerate(_RANKS)}
        nodes = [
            (path, sorted(hanging[path], key=lambda tool: (ranks[tool.metadata.optionality], tool.id)))
            for path in sorted(hanging)
        ]
        return cls(view, nodes, len(view.tools) - len(tools))

    def phases(self, detail: DetailLevel) -> Iterator[_Phase]:
        """Yield all phases, most important first. A phase is computed only when it is reached."""
        for optionality in _RANKS:
            in_turn = _in_turn([[t for t in tools if t.metadata.optionality is optionality] for _, tools in self.nodes])
            for level in _LEVELS[: _LEVELS.index(detail) + 1]:
                if level is DetailLevel.FULL:
                    in_turn = sorted(in_turn, key=lambda tool: len(self._entry(tool, DetailLevel.FULL)))
                yield _Phase([tool.id for tool in in_turn], level)
            if optionality is Optionality.REQUIRED:
                yield _Phase(nodes=[path for path, _ in self.nodes])

    def text(self, chosen: _Chosen) -> str:
        parts = ["# Tools", self._opening(chosen)]
        bare: list[tuple[Path, Sequence[Tool]]] = []
        for path, tools in self.nodes:
            if any(tool.id in chosen.levels for tool in tools):
                parts.append(self._section(path, tools, chosen))
            else:
                bare.append((path, tools))
        if chosen.counted and bare:
            parts.append(self._counts(bare, chosen))
        return "\n\n".join(parts) + "\n"

    def _opening(self, chosen: _Chosen) -> str:
        """Return how to call the described tools, and how to reach the others."""
        count = sum(len(tools) for _, tools in self.nodes)
        left, levels = count - len(chosen.levels), {*chosen.levels.values()}
        told: list[str] = []
        if not count:
            told.append("No tool can be called now.")
        if DetailLevel.FULL in levels:
            told.append("Call a tool by its handle (ID@DIGEST) as shown here, with its arguments as a JSON object.")
        if left:
            told.append(
                f"{left:,} of {count:,} tools are not described here: search_tools(query) finds them, list(path) shows "
                "those of a category."
            )
        if left or levels - {DetailLevel.FULL}:
            what = "Expand a tool without a handle" if DetailLevel.FULL in levels else "Expand a tool"
            told.append(f"{what} before you call it: expand_tool(tool_id) gives its arguments and its handle.")
        if self.uncallable:
            told.append(f"{_tools(self.uncallable)} cannot be called now and {_be(self.uncallable)} left out.")
        return " ".join(told)

    def _section(self, path: Path, tools: Sequence[Tool], chosen: _Chosen) -> str:
        """Return the text of a category with its described tools."""
        lines = [f"## {self._head(path)}"]
        labelled = any(tool.metadata.optionality is not Optionality.OPTIONAL for tool in tools)
        for optionality, label in _RANKS.items():
            shown = [t for t in tools if t.metadata.optionality is optionality and t.id in chosen.levels]
            if shown and labelled:
                lines.append(label)
            lines += self._listed(shown, chosen)
        missing = [tool for tool in tools if tool.id not in chosen.levels]
        if missing:
            required = sum(tool.metadata.optionality is Optionality.REQUIRED for tool in missing)
            lines.append(f"{len(missing):,} more{f' ({required:,} required)' if required else ''}: list, search_tools")
        return "\n".join(lines)

    def _listed(self, tools: Sequence[Tool], chosen: _Chosen) -> Iterator[str]:
        """Yield the lines of tools of one optionality. Tools that are only shown by id share the last line."""
        alone = [tool for tool in tools if _is_only_named(tool, chosen.levels[tool.id])]
        yield from (
            self._entry(tool, chosen.levels[tool.id])
            for tool in tools
            if not _is_only_named(tool, chosen.levels[tool.id])
        )
        if alone:
            yield f"- {', '.join(as_id(tool.id) for tool in alone)}"

    def _counts(self, nodes: Sequence[tuple[Path, Sequence[Tool]]], chosen: _Chosen) -> str:
        """Return the text of the categories that are named without their tools."""
        lines = ["## Not described here"]
        lines += [self._count(path, tools) for path, tools in nodes if path in chosen.counted]
        others = [len(tools) for path, tools in nodes if path not in chosen.counted]
        if others:
            noun = "category" if len(others) == 1 else "categories"
            lines.append(f"{len(others):,} more {noun} with {_tools(sum(others))}: list, search_tools")
        return "\n".join(lines)

    def _head(self, path: Path) -> str:
        """Return the heading of a category. A generated summary is left out, because it only repeats names of tools."""
        branch = self.view.ontology.find(path)
        return _titled(as_path(path), self.view.ontology.described(branch).summary if branch is not None else "")

    def _count(self, path: Path, tools: Sequence[Tool]) -> str:
        if path not in self._counted:
            branch = self.view.ontology.find(path)
            summary = self.view.ontology.node(branch).summary if branch is not None else ""
            self._counted[path] = f"- {_titled(f'{as_path(path)} ({_tools(len(tools))})', summary)}"
        return self._counted[path]

    def _entry(self, tool: Tool, level: DetailLevel) -> str:
        if (tool.id, level) not in self._entries:
            lines = self._whole(tool) if level is DetailLevel.FULL else _in_short(tool, level)
            self._entries[tool.id, level] = "\n".join(lines)
        return self._entries[tool.id, level]

    def _whole(self, tool: Tool) -> Iterator[str]:
        """Yield everything that a model needs to choose a tool and to call it."""
        handle, about = as_id(tool.id, tool.handle), as_block(tool.description)
        if len(about) <= 1:
            yield f"- {handle}: {about[0]}" if about else f"- {handle}"
        else:
            yield f"- {handle}"
            yield from _inside(about)
        known = tool.metadata
        yield from _condition(tool)
        if known.usage_hint and known.usage_hint.strip():
            yield f"  use: {on_one_line(known.usage_hint)}"
        yield from _arguments(tool)
        for example in known.examples:
            given = f"{on_one_line(example.description)}: {as_json(example.input)}".removeprefix(": ")
            yield f"  example: {given}" + (f" -> {on_one_line(example.output)}" if example.output else "")
        if known.requires_capabilities:
            yield f"  needs: {', '.join(map(as_id, known.requires_capabilities))}"
        for label, value in (("cost", known.cost), ("risk", known.risk)):
            if value and value.strip():
                yield f"  {label}: {on_one_line(value)}"
        if known.requires_permission or self.view.access_to(tool) is Access.ASK:
            yield "  permission: a person is asked before it runs"


def _titled(title: str, summary: str) -> str:
    told = on_one_line(summarize(summary, SUMMARY_CHARS))
    return f"{title}: {told}" if told else title


def _in_short(tool: Tool, level: DetailLevel) -> Iterator[str]:
    yield f"- {as_id(tool.id)}" + (f": {on_one_line(tool.summary)}" if level is DetailLevel.SUMMARY else "")
    yield from _condition(tool)


def _condition(tool: Tool) -> Iterator[str]:
    if tool.metadata.optionality is Optionality.CONDITIONAL and tool.metadata.condition:
        yield f"  condition: {on_one_line(tool.metadata.condition)}"


def _arguments(tool: Tool) -> Iterator[str]:
    """Yield an outline of the arguments, or their JSON Schema if the outline would lose something or be longer."""
    raw = as_json({key: value for key, value in tool.input_schema.items() if key != "$schema"})
    lines = outline(tool.input_schema)
    if lines == []:
        yield "  arguments: none"
    elif lines is not None and _size("\n".join(_inside(lines))) <= _size(raw):
        yield "  arguments:"
        yield from _inside(lines)
    else:
        yield f"  arguments, as JSON Schema: {raw}"


def _inside(lines: Sequence[str]) -> Iterator[str]:
    return (f"    {line}" if line else "" for line in lines)


def _is_only_named(tool: Tool, level: DetailLevel) -> bool:
    return level is DetailLevel.NAME and not any(_condition(tool))


def _in_turn(nodes: Sequence[Sequence[Tool]]) -> list[Tool]:
    """Return the first tool of each category, then the second of each, and so on."""
    return [tool for tools in zip_longest(*nodes) for tool in tools if tool is not None]


def _may_be_called(view: View, tool: Tool) -> bool:
    return tool.id not in view.unavailable and view.access_to(tool) >= Access.ASK


def _tools(count: int) -> str:
    return f"{count:,} tool{'s' * (count != 1)}"


def _be(count: int) -> str:
    return "is" if count == 1 else "are"


def _size(text: str) -> int:
    return len(text.encode())
