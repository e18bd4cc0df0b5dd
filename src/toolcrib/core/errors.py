"""One family of errors: a stable code, a sentence a model can act on, hints, and the next right step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Self

from toolcrib.core.weight import size_of


class ErrorCode(StrEnum):
    """Stable on every surface. Source: discovery protocol v0.1, "Error model", and the codes Toolcrib adds to it."""

    UNKNOWN_PATH = "UNKNOWN_PATH"
    NO_MATCH_IN_CATEGORY = "NO_MATCH_IN_CATEGORY"
    TOOL_NOT_FOUND = "TOOL_NOT_FOUND"
    NOT_AUTHORIZED = "NOT_AUTHORIZED"
    NOT_EXPANDED = "NOT_EXPANDED"
    STALE_EXPANSION = "STALE_EXPANSION"
    INVALID_ARGUMENTS = "INVALID_ARGUMENTS"
    INVALID_CURSOR = "INVALID_CURSOR"
    RATE_LIMITED = "RATE_LIMITED"
    CAPABILITY_MISSING = "CAPABILITY_MISSING"
    SOURCE_UNAVAILABLE = "SOURCE_UNAVAILABLE"
    TOOL_FAILED = "TOOL_FAILED"
    NOT_FOUND = "NOT_FOUND"
    BUNDLE_INCOMPLETE = "BUNDLE_INCOMPLETE"
    INVALID_CONFIG = "INVALID_CONFIG"
    INVALID_TOOL = "INVALID_TOOL"
    INVALID_PROMPT = "INVALID_PROMPT"
    PROVIDER_FAILED = "PROVIDER_FAILED"
    BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
    INVALID_OUTPUT = "INVALID_OUTPUT"


MAX_MESSAGE_CHARS = 2_000
"""Of the message of an error on the wire, and of all its hints together."""

MAX_STEP_BYTES = 4_000
"""Of the arguments of a next action on the wire, as JSON."""


@dataclass(frozen=True, slots=True)
class NextAction:
    """One operation with its arguments, ready to send."""

    operation: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def to_wire(self) -> dict[str, Any]:
        """As JSON. Arguments that are too large to be sent back are left to the client, which has them.

        Then the step looks at the tool that they are for, or at the catalog.
        """
        if size_of(self.arguments) <= MAX_STEP_BYTES:
            return {"operation": self.operation, "arguments": dict(self.arguments)}
        kept = {"tool_id": self.arguments.get("tool_id")}
        if isinstance(kept["tool_id"], str) and size_of(kept) <= MAX_STEP_BYTES:
            return {"operation": "expand_tool", "arguments": kept}
        return {"operation": "list", "arguments": {}}


class ToolcribError(Exception):
    """The root of every error Toolcrib raises on purpose.

    `details` is what only this code carries (a violated schema path, an upstream's own error), as JSON values.

    On the wire an error is short, whatever a client sent; only an upstream's own error may be long.
    """

    code: ClassVar[ErrorCode]
    advice: ClassVar[str]
    """What to do about it, for the table of all errors."""

    def __init__(
        self,
        message: str,
        *,
        hints: Sequence[str] = (),
        next_action: NextAction | None = None,
        retryable: bool = False,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hints = tuple(hints)
        self.next_action = next_action
        self.retryable = retryable
        self.details = dict(details or {})
        for hint in self.hints:  # a traceback shows them below the message
            self.add_note(hint)

    def leading_to(self, step: NextAction) -> Self:
        """A copy with `step` as its next action."""
        led = type(self).__new__(type(self), *self.args)
        vars(led).update(vars(self), next_action=step)
        return led

    def to_wire(self) -> dict[str, Any]:
        """The error object every surface carries: `{"error": {code, message, hints, next_action, retryable, ...}}`."""
        error: dict[str, Any] = {"code": self.code.value, "message": cut(self.message, MAX_MESSAGE_CHARS)}
        if self.hints:
            room = MAX_MESSAGE_CHARS // len(self.hints)
            whole = sum(map(len, self.hints)) <= MAX_MESSAGE_CHARS
            error["hints"] = [*self.hints] if whole else [cut(hint, room) for hint in self.hints[:MAX_MESSAGE_CHARS]]
        if self.next_action is not None:
            error["next_action"] = self.next_action.to_wire()
        error["retryable"] = self.retryable
        if self.details:
            error["details"] = self.details
        return {"error": error}


def cut(text: str, chars: int) -> str:
    """`text`, of which at most so many characters are left."""
    return text if len(text) <= chars else text[: max(0, chars - 1)] + "…"


class UnknownPath(ToolcribError):
    """The path names no node that may be seen."""

    code = ErrorCode.UNKNOWN_PATH
    advice = "Send `next_action`: hints name the closest node, and what is below the nearest that exists."


class NoMatchInCategory(ToolcribError):
    """Nothing in the category matches the query."""

    code = ErrorCode.NO_MATCH_IN_CATEGORY
    advice = "Hints name categories where something does match; `next_action` searches everywhere."


class ToolNotFound(ToolcribError):
    """No tool of this id exists, or it may not be seen."""

    code = ErrorCode.TOOL_NOT_FOUND
    advice = (
        "Hints name ids that are like it; `next_action` expands the tool if the id, or the name after the source, is "
        "one slip away from that tool alone: a letter inserted, deleted or swapped with its neighbor, or substituted "
        "in a word of at least four letters. Else it searches."
    )


class NotAuthorized(ToolcribError):
    """The tool may be seen and not called, or nobody approved of the call."""

    code = ErrorCode.NOT_AUTHORIZED
    advice = "Use another tool, or one that a person approves of; `next_action` lists the category of this one."


class NotExpanded(ToolcribError):
    """A call named a tool by its id, and not by the handle that an expansion gave."""

    code = ErrorCode.NOT_EXPANDED
    advice = "Send `next_action`: the call by its handle where this server gave you one, else the expansion."


class StaleExpansion(ToolcribError):
    """The definition changed since it was shown."""

    code = ErrorCode.STALE_EXPANSION
    advice = "Send `next_action`; the new definition may need other arguments."


class InvalidArguments(ToolcribError):
    """Arguments of a tool or of an operation do not match its schema; nothing ran."""

    code = ErrorCode.INVALID_ARGUMENTS
    advice = "`details.violations` name each place; `next_action` holds the repaired request where a slip explains it."


class InvalidCursor(ToolcribError):
    """The cursor was not made by this server for this very request."""

    code = ErrorCode.INVALID_CURSOR
    advice = "Send `next_action`: the request from its beginning."


class RateLimited(ToolcribError):
    """A principal calls faster than it may; nothing ran.

    The same call may be made again `retry_after_s` from when it was refused, in seconds (`details.retry_after_s`).
    """

    code = ErrorCode.RATE_LIMITED
    advice = "Try again in `details.retry_after_s` seconds."

    def __init__(self, message: str, *, retry_after_s: float, hints: Sequence[str] = ()) -> None:
        super().__init__(message, hints=hints, retryable=True, details={"retry_after_s": retry_after_s})
        self.retry_after_s = retry_after_s


class CapabilityMissing(ToolcribError):
    """The system lacks something that the tool needs; nothing ran."""

    code = ErrorCode.CAPABILITY_MISSING
    advice = "The message says what is missing, and what can be done about it; `next_action` searches for another tool."


OWNER_HINT = "The owner finds the cause with `toolcrib doctor` and in the log."
"""Of an error whose cause callers do not read."""


class SourceUnavailable(ToolcribError):
    """The tool's source cannot be reached, or went away before it answered.

    `diagnosis` is for the source's owner: what a server wrote as it died, what its configuration says. It may hold
    paths and secrets, so it goes to `doctor` and the log, never to a caller, who gets `OWNER_HINT`. `remedy` tells the
    owner what to do, as far as that is known. `retry_after_s`: in how many seconds the source is next tried, where that
    is known. Callers read it as `details.retry_after_s`.
    """

    code = ErrorCode.SOURCE_UNAVAILABLE
    advice = (
        "Try again if `retryable`, in `details.retry_after_s` seconds where it says so; `toolcrib doctor` says why."
    )

    def __init__(
        self,
        message: str,
        *,
        diagnosis: str = "",
        remedy: str = "",
        hints: Sequence[str] = (),
        next_action: NextAction | None = None,
        retryable: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        details = None if retry_after_s is None else {"retry_after_s": retry_after_s}
        if (diagnosis or remedy) and OWNER_HINT not in hints:
            hints = (*hints, OWNER_HINT)
        super().__init__(message, hints=hints, next_action=next_action, retryable=retryable, details=details)
        self.diagnosis = diagnosis
        self.remedy = remedy
        self.retry_after_s = retry_after_s

    def at(self, retry_after_s: float | None) -> SourceUnavailable:
        """The same failure, with the time of the next try."""
        return SourceUnavailable(
            self.message,
            diagnosis=self.diagnosis,
            remedy=self.remedy,
            hints=self.hints,
            next_action=self.next_action,
            retryable=self.retryable,
            retry_after_s=retry_after_s,
        )


class ToolFailed(ToolcribError):
    """The tool ran, or its source was asked to run it, and reported an error of its own."""

    code = ErrorCode.TOOL_FAILED
    advice = "`details.upstream` is the server's own error."


class NotFound(ToolcribError):
    """No prompt, resource, bundle or approval of this name exists, or it may not be seen."""

    code = ErrorCode.NOT_FOUND
    advice = "List them again."


class UnknownBundle(NotFound):
    """No bundle is called so."""


class BundleIncomplete(ToolcribError):
    """Something that a bundle requires is not there, or may not be seen; `details.missing` names all of it.

    `diagnosis` tells the bundle's owner what is only hidden; it never goes to a caller, who reads that as unknown.
    """

    code = ErrorCode.BUNDLE_INCOMPLETE
    advice = "`details.missing` says what and why; `toolcrib bundles NAME` tells the owner more."

    def __init__(
        self,
        message: str,
        *,
        diagnosis: str = "",
        next_action: NextAction | None = None,
        retryable: bool = False,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, next_action=next_action, retryable=retryable, details=details)
        self.diagnosis = diagnosis


class InvalidConfig(ToolcribError):
    """A configuration is wrong; the message names file, server and key."""

    code = ErrorCode.INVALID_CONFIG
    advice = "The message names file, server and key."


class InvalidTool(ToolcribError):
    """A tool definition cannot be taken into a catalog; the message says why."""

    code = ErrorCode.INVALID_TOOL
    advice = "The message says why."


class InvalidPrompt(ToolcribError):
    """A prompt cannot be made as it is written, or rendered with what it is given; the message names the section."""

    code = ErrorCode.INVALID_PROMPT
    advice = "The message names the section, and what is wrong with it."


class ProviderFailed(ToolcribError):
    """A model's provider refused a request, failed at it, or cannot be reached.

    `retry_after_s`: in how many seconds it asks to be tried again (`details.retry_after_s`); None where it did not say.
    """

    code = ErrorCode.PROVIDER_FAILED
    advice = (
        "The message says what to do; try again if `retryable`, in `details.retry_after_s` seconds where it says so."
    )

    def __init__(
        self,
        message: str,
        *,
        hints: Sequence[str] = (),
        retryable: bool = False,
        retry_after_s: float | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        told = dict(details or {}) | ({} if retry_after_s is None else {"retry_after_s": retry_after_s})
        super().__init__(message, hints=hints, retryable=retryable, details=told)
        self.retry_after_s = retry_after_s


class BudgetExceeded(ToolcribError):
    """A conversation took more turns, tokens, time or restarts than it may; every call in it is answered."""

    code = ErrorCode.BUDGET_EXCEEDED
    advice = "Go on with the same session and a larger budget, or ask for less."


class InvalidOutput(ToolcribError):
    """A model's final answer is not of the type that was asked for, also after it was told why."""

    code = ErrorCode.INVALID_OUTPUT
    advice = "`details.problems` say what is wrong with it; a simpler type or another model may do."
