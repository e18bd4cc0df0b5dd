"""ACP updates for tool calls (which tool really runs, where, and how it ended) and for the model's plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from acp.helpers import (
    image_block,
    plan_entry,
    text_block,
    tool_content,
    tool_diff_content,
    tool_terminal_ref,
    update_plan,
)
from acp.schema import (
    AgentPlanUpdate,
    ContentToolCallContent,
    FileEditToolCallContent,
    PlanEntryPriority,
    PlanEntryStatus,
    TerminalToolCallContent,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    ToolKind,
)
from pydantic import BaseModel, ValidationError
from pydantic_ai.messages import BinaryContent, ToolCallPart, ToolReturnPart

from toolcrib.adapters.pydantic_ai.toolset import MARK, OPERATION_OF
from toolcrib.catalog.access import Access
from toolcrib.catalog.view import View
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.operations.calling.approval_question import in_one_line
from toolcrib.operations.operation_table import CALLS
from toolcrib.sources.acp.descriptors import kind_of as descriptor_kind
from toolcrib.sources.acp.diffs import diffs_of, locations_of
from toolcrib.sources.acp.editor_source import EditorSource
from toolcrib.sources.acp.local import LocalSource
from toolcrib.sources.base import free_name

TITLE_CHARS = 160
"""The maximum length of a call's title, in characters. Arguments that do not fit are shortened."""

CONTENT_CHARS = 20_000
"""The maximum length of a result in the editor, in characters. The model may receive more of it."""

MAX_LINE = 2**32 - 1
"""The highest line number in a location. Source: ACP v1, `ToolCallLocation`."""

PLAN = "update_plan"
"""The tool by which a model reports its plan. The editor shows the plan instead of the call."""

Content = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent

_LOOKING: Mapping[str, ToolKind] = {"expand_tool": "read"}
"""The ACP kinds of operations that call no tool. Operations that are not listed have the kind `search`."""


@dataclass(frozen=True, slots=True)
class ShownCall:
    """What a model's call really calls."""

    title: str
    kind: ToolKind
    arguments: Mapping[str, Any]
    tool: Tool | None = None
    """None for an operation, and for a tool that does not exist."""
    is_asked: bool = False
    """Whether the person must approve the call before it runs."""
    locations: tuple[ToolCallLocation, ...] = ()


class CallUpdates:
    """Tracks the calls of one conversation.

    The editor receives a separate id for each call, because some providers reuse call ids in later turns.
    """

    def __init__(self, view: Callable[[], View], cwd: Path) -> None:
        self._view = view
        self._cwd = cwd
        self._ids: dict[str, str] = {}
        """The editor's id of each call, by the model's id. If the model used an id twice, this is the later call."""
        self._taken: set[str] = set()
        self._terminals: dict[str, str] = {}
        """The terminal in which a call runs, by the editor's id of the call."""

    def id_of(self, call_id: str) -> str:
        """Return the id under which the editor knows a call that has begun."""
        return self._ids.get(call_id, call_id)

    def called(self, part: ToolCallPart) -> ShownCall:
        """Describe what `part` calls: an operation, or a tool.

        A tool is found whether called directly or by an operation.
        """
        arguments = _arguments(part)
        operation = OPERATION_OF.get(part.tool_name)
        if operation in CALLS:
            inner = arguments.get("arguments")
            reference = str(arguments.get("tool_id", ""))
            return self.about(reference, cast("dict[str, Any]", inner) if isinstance(inner, dict) else {})
        if operation is not None:
            return ShownCall(_titled(part.tool_name, arguments), _LOOKING.get(operation, "search"), arguments)
        return self.about(part.tool_name, arguments)

    def about(self, reference: str, arguments: Mapping[str, Any]) -> ShownCall:
        """Describe a call of the tool that `reference` means. `reference` is a handle, an id or a name."""
        view = self._view()
        tool, _ = view.resolve(reference)
        if tool is None:
            return ShownCall(_titled(in_one_line(reference, TITLE_CHARS)[1:-1], arguments), "other", arguments)
        # The name that the model uses has only letters, digits and underscores. The source's own name may have
        # anything.
        title = _titled(view.names.get(tool.id, tool.id), arguments)
        asked = view.access_to(tool) is Access.ASK
        return ShownCall(title, kind_of(tool, view), arguments, tool, asked, self._locations(tool, arguments))

    def begun(self, part: ToolCallPart) -> ToolCallStart:
        """Report a call that the model asked for. It runs at once unless the person must approve it."""
        call = self.called(part)
        shown_as = self._ids[part.tool_call_id] = free_name(part.tool_call_id, self._taken)
        self._taken.add(shown_as)
        return ToolCallStart(
            session_update="tool_call",
            tool_call_id=shown_as,
            title=call.title,
            kind=call.kind,
            status="pending" if call.is_asked else "in_progress",
            locations=list(call.locations) or None,
            raw_input=dict(call.arguments),
            field_meta=meta_of(call),
        )

    def runs_in(self, call_id: str, terminal_id: str) -> ToolCallProgress:
        """Report that a call runs in a terminal of the editor, which the editor shows from now on."""
        self._terminals[call_id] = terminal_id
        return progressed(call_id, content=[tool_terminal_ref(terminal_id)])

    def ended(self, part: ToolReturnPart) -> ToolCallProgress:
        """Report the result of a call."""
        call_id = self.id_of(part.tool_call_id)
        result = _result(part)
        text = _text(part.content)
        content: list[Content] = []
        if (terminal_id := self._terminals.pop(call_id, None)) is not None:
            content.append(tool_terminal_ref(terminal_id))
        elif text:
            shown = text if len(text) <= CONTENT_CHARS else f"{text[:CONTENT_CHARS]}…"
            content.append(tool_content(text_block(shown)))
        content += [tool_content(image_block(image.base64, image.media_type)) for image in _images(part.content)]
        content += [tool_diff_content(diff.path, diff.new_text, diff.old_text) for diff in diffs_of(result)]
        locations = [
            ToolCallLocation(path=each.path, line=each.line if (each.line or 0) <= MAX_LINE else None)
            for each in locations_of(result)
        ]
        return progressed(
            call_id,
            status="completed" if part.outcome == "success" else "failed",
            content=content or None,
            locations=locations or None,
            raw_output=_value(text) if result.structured_content is None else result.structured_content,
        )

    def _locations(self, tool: Tool, arguments: Mapping[str, Any]) -> tuple[ToolCallLocation, ...]:
        """Return the file that the arguments name, for a call of an editor's tool or a local tool.

        The arguments of other tools have no agreed meaning: a path there may be on a different machine.
        """
        path, line = arguments.get("path"), arguments.get("line")
        if not _has_kind(tool, self._view()) or not isinstance(path, str) or not path:
            return ()
        at = line if isinstance(line, int) and not isinstance(line, bool) and 0 <= line <= MAX_LINE else None
        return (ToolCallLocation(path=str(self._cwd / path), line=at),)


def meta_of(call: ShownCall) -> dict[str, Any] | None:
    """Return `_meta` with the id of the called tool, for programs. Returns None for an operation."""
    return None if call.tool is None else {MARK: {"toolId": call.tool.id}}


def progressed(call_id: str, **news: Any) -> ToolCallProgress:
    """Return an update of a call. `news` uses the names of the SDK's fields."""
    return ToolCallProgress(session_update="tool_call_update", tool_call_id=call_id, **news)


def kind_of(tool: Tool, view: View) -> ToolKind:
    """Return the ACP kind of a tool.

    Editors run some kinds without asking a person, usually `read` and `search`. So the claims of an MCP server do not
    count: a key `kind` in `wire`, which is what the server sent, is ignored. Its tools are `read` if the owner trusts
    the server and the annotation says so, else `other`.
    """
    if _has_kind(tool, view):
        return cast("ToolKind", descriptor_kind(tool))
    return "read" if tool.annotations.read_only and view.is_trusted(tool.source) else "other"


def _has_kind(tool: Tool, view: View) -> bool:
    """Whether the tool was described in ACP's terms: by the editor itself, or by the agent's local source.

    The source is asked for its type, not for its name: a server may have any name.
    """
    entry = view.sources.get(tool.source)
    return entry is not None and isinstance(entry.source, EditorSource | LocalSource)


def details(called: ShownCall) -> str | None:
    """List all arguments, one per line, for a person who is asked. Returns None if the title shows them in full."""
    share = max(TITLE_CHARS, CONTENT_CHARS // max(1, len(called.arguments)))
    lines = [f"{in_one_line(key, share)[1:-1]}: {in_one_line(value, share)}" for key, value in called.arguments.items()]
    return None if all(line in called.title for line in lines) else "\n".join(lines)


def _titled(name: str, arguments: Mapping[str, Any]) -> str:
    if not arguments:
        return name
    share = max(20, (TITLE_CHARS - len(name)) // len(arguments))
    given = (f"{in_one_line(key, 40)[1:-1]}: {in_one_line(value, share)}" for key, value in arguments.items())
    title = f"{name}({', '.join(given)})"
    return title if len(title) <= 2 * TITLE_CHARS else f"{title[: 2 * TITLE_CHARS]}…"


def _arguments(part: ToolCallPart) -> dict[str, Any]:
    """Return the arguments of a model's call, which may be invalid JSON."""
    given: Any = part.args
    if isinstance(given, str):
        try:
            given = json.loads(given or "{}")
        except ValueError:
            return {"": given}
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {}


def _result(part: ToolReturnPart) -> ToolResult:
    """Return the structured part of the result, which the source sent in addition to the text."""
    told = cast("dict[str, Any]", part.metadata).get(MARK) if isinstance(part.metadata, dict) else None
    return ToolResult(cast("dict[str, Any]", told) if isinstance(told, dict) else {})


def _value(text: str) -> object:
    """Parse `text` if it is a JSON object, as pages of operations and errors are."""
    if text.startswith("{"):
        with suppress(ValueError):
            return json.loads(text)
    return text or None


def _images(content: object) -> Iterator[BinaryContent]:
    for each in cast("list[object]", content) if isinstance(content, list) else ():
        if isinstance(each, BinaryContent) and each.is_image:
            yield each


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(each for each in cast("list[object]", content) if isinstance(each, str))
    return ""


class PlanStep(BaseModel):
    """One step of a plan."""

    content: str
    status: PlanEntryStatus = "pending"
    priority: PlanEntryPriority = "medium"


def plan_update(steps: Iterable[PlanStep]) -> AgentPlanUpdate:
    """Convert the plan to an ACP update."""
    return update_plan(plan_entry(step.content, priority=step.priority, status=step.status) for step in steps)


def stored_plan_update(part: ToolCallPart) -> AgentPlanUpdate | None:
    """Return the plan in `part`, a call of `PLAN`, or None if its arguments are invalid."""
    try:
        given: Any = json.loads(part.args or "{}") if not isinstance(part.args, dict) else part.args
        steps = cast("list[object]", given["steps"])
        return plan_update([PlanStep.model_validate(step) for step in steps])
    except (ValidationError, ValueError, LookupError, TypeError):
        return None
