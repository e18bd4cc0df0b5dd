"""All errors of Toolcrib: each has a stable code, a message that a model can act on, hints and a next action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Self

from toolcrib.core.digests import size_of


class ErrorCode(StrEnum):
    """The error codes, stable on every surface.

    Source: discovery protocol v0.1, "Error model", and the codes that Toolcrib adds to it.
    """

    UNKNOWN_PATH = "UNKNOWN_PATH"
    NO_MATCH_IN_CATEGORY = "NO_MATCH_IN_CATEGORY"
    TOOL_NOT_FOUND = "TOOL_NOT_FOUND"
    NOT_AUTHORIZED = "NOT_AUTHORIZED"
    APPROVAL_PENDING = "APPROVAL_PENDING"
    NOT_EXPANDED = "NOT_EXPANDED"
    STALE_EXPANSION = "STALE_EXPANSION"
    INVALID_ARGUMENTS = "INVALID_ARGUMENTS"
    INVALID_CURSOR = "INVALID_CURSOR"
    RATE_LIMITED = "RATE_LIMITED"
    CAPABILITY_MISSING = "CAPABILITY_MISSING"
    SOURCE_UNAVAILABLE = "SOURCE_UNAVAILABLE"
    SIGN_IN_REQUIRED = "SIGN_IN_REQUIRED"
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
"""The longest message of an error on the wire, in characters. All hints together have the same limit."""

MAX_STEP_BYTES = 4_000
"""The largest arguments of a next action on the wire, in bytes of JSON."""


@dataclass(frozen=True, slots=True)
class NextAction:
    """An operation with its arguments, ready to send."""

    operation: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def to_wire(self) -> dict[str, Any]:
        """Return the action as JSON.

        Arguments larger than `MAX_STEP_BYTES` are not sent back, because the client has them. The action is then to
        expand the tool they are for, or to list the catalog.
        """
        if size_of(self.arguments) <= MAX_STEP_BYTES:
            return {"operation": self.operation, "arguments": dict(self.arguments)}
        kept = {"tool_id": self.arguments.get("tool_id")}
        if isinstance(kept["tool_id"], str) and size_of(kept) <= MAX_STEP_BYTES:
            return {"operation": "expand_tool", "arguments": kept}
        return {"operation": "list", "arguments": {}}


class ToolcribError(Exception):
    """The base class of every error that Toolcrib raises on purpose.

    `details` holds JSON values that only errors of this code have, such as a violated schema path or an upstream's
    own error.

    On the wire an error is short, no matter what the client sent. Only an upstream's own error can be long.
    """

    code: ClassVar[ErrorCode]
    advice: ClassVar[str]
    """What to do about this error. The documentation's table of errors shows it."""

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
        for hint in self.hints:  # so that a traceback shows the hints below the message
            self.add_note(hint)

    def leading_to(self, step: NextAction) -> Self:
        """Return a copy of this error with `step` as its next action."""
        led = type(self).__new__(type(self), *self.args)
        vars(led).update(vars(self), next_action=step)
        return led

    def to_wire(self) -> dict[str, Any]:
        """Return the error as every surface sends it: `{"error": {code, message, hints, next_action, ...}}`."""
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
    """Return `text`, shortened to at most `chars` characters."""
    return text if len(text) <= chars else text[: max(0, chars - 1)] + "…"


class UnknownPath(ToolcribError):
    """No visible category has this path."""

    code = ErrorCode.UNKNOWN_PATH
    advice = "Send `next_action`. The hints name the closest existing category and what it contains."


class NoMatchInCategory(ToolcribError):
    """Nothing in the category matches the query."""

    code = ErrorCode.NO_MATCH_IN_CATEGORY
    advice = "The hints name categories with matches. `next_action` searches the whole catalog."


class ToolNotFound(ToolcribError):
    """No tool with this id exists, or the principal cannot see it."""

    code = ErrorCode.TOOL_NOT_FOUND
    advice = (
        "The hints name similar ids. `next_action` expands the tool if the id, or the name after the source, differs "
        "from that of exactly one tool by one edit: a letter inserted, deleted or swapped with its neighbor, or "
        "substituted in a word of at least four letters. Otherwise it searches for the tool."
    )


class NotAuthorized(ToolcribError):
    """The principal can see the tool but not call it, or the call was not approved."""

    code = ErrorCode.NOT_AUTHORIZED
    advice = "Use a different tool, or one that a person will approve. `next_action` lists the category of this tool."


class ApprovalPending(ToolcribError):
    """The call waits until a person approves it. Nothing ran.

    `waiting_id` names the call for the person (`details.waiting_id`). The call expires after `expires_in_s` seconds
    without an answer.
    """

    code = ErrorCode.APPROVAL_PENDING
    advice = "Tell your user that call `details.waiting_id` waits for approval. After the answer, send `next_action`."

    def __init__(self, message: str, *, waiting_id: str, expires_in_s: int, hints: Sequence[str] = ()) -> None:
        details = {"waiting_id": waiting_id, "expires_in_s": expires_in_s}
        super().__init__(message, hints=hints, retryable=True, details=details)
        self.waiting_id = waiting_id
        self.expires_in_s = expires_in_s


class NotExpanded(ToolcribError):
    """A call named a tool by its id instead of by the handle that an expansion returns."""

    code = ErrorCode.NOT_EXPANDED
    advice = "Send `next_action`: the same call with the handle if this server gave you one, otherwise the expansion."


class StaleExpansion(ToolcribError):
    """The definition changed after it was shown."""

    code = ErrorCode.STALE_EXPANSION
    advice = "Send `next_action`. The new definition may need different arguments."


class InvalidArguments(ToolcribError):
    """The arguments of a tool or an operation do not match its schema. Nothing ran."""

    code = ErrorCode.INVALID_ARGUMENTS
    advice = "`details.violations` names each problem. `next_action` is the corrected request if the mistake is clear."


class InvalidCursor(ToolcribError):
    """The cursor was not made by this server for this exact request."""

    code = ErrorCode.INVALID_CURSOR
    advice = "Send `next_action`: the same request from the first page."


class RateLimited(ToolcribError):
    """A principal exceeded its rate limit. Nothing ran.

    The same call is allowed `retry_after_s` seconds after it was refused (`details.retry_after_s`).
    """

    code = ErrorCode.RATE_LIMITED
    advice = "Retry after `details.retry_after_s` seconds."

    def __init__(self, message: str, *, retry_after_s: float, hints: Sequence[str] = ()) -> None:
        super().__init__(message, hints=hints, retryable=True, details={"retry_after_s": retry_after_s})
        self.retry_after_s = retry_after_s


class CapabilityMissing(ToolcribError):
    """The system lacks something that the tool needs. Nothing ran."""

    code = ErrorCode.CAPABILITY_MISSING
    advice = "The message says what is missing and how to fix it. `next_action` searches for a different tool."


OWNER_HINT = "The gateway's owner can run `toolcrib doctor` or read the log for the cause."
"""The hint of an error whose cause is not shown to callers."""


class SourceUnavailable(ToolcribError):
    """The tool's source cannot be reached, or it stopped before it answered.

    `diagnosis` is for the source's owner: the last output of a server, or what its configuration says. It can contain
    paths and secrets, so it goes to `doctor` and the log, never to a caller. The caller gets `OWNER_HINT`. `remedy`
    tells the owner what to do, if Toolcrib knows. `retry_after_s` is the time in seconds until Toolcrib tries the
    source again, if known. Callers read it as `details.retry_after_s`.
    """

    code = ErrorCode.SOURCE_UNAVAILABLE
    advice = "Retry if `retryable`, after `details.retry_after_s` seconds if given. `toolcrib doctor` shows the cause."

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
        """Return a copy of this error with `retry_after_s` replaced."""
        return type(self)(
            self.message,
            diagnosis=self.diagnosis,
            remedy=self.remedy,
            hints=self.hints,
            next_action=self.next_action,
            retryable=self.retryable,
            retry_after_s=retry_after_s,
        )


class SignInRequired(SourceUnavailable):
    """The tool's server needs a sign-in. No one has signed in, or the sign-in has ended. Nothing ran.

    The hints have the command by which a person signs in. The server is tried again soon after that.
    """

    code = ErrorCode.SIGN_IN_REQUIRED
    advice = "Ask the user to run the command in the hints. After the sign-in, send `next_action`."


class ToolFailed(ToolcribError):
    """The tool, or the source that was asked to run it, reported an error of its own."""

    code = ErrorCode.TOOL_FAILED
    advice = "Read `details.upstream`, the server's own error."


class NotFound(ToolcribError):
    """No prompt, resource, bundle or approval with this name exists, or the principal cannot see it."""

    code = ErrorCode.NOT_FOUND
    advice = "List what exists, and use a name from that list."


class UnknownBundle(NotFound):
    """No bundle has this name."""


class BundleIncomplete(ToolcribError):
    """Tools that a bundle requires do not exist or are hidden. `details.missing` names all of them.

    `diagnosis` is for the bundle's owner: it names tools that exist but are hidden. Callers see these as unknown.
    """

    code = ErrorCode.BUNDLE_INCOMPLETE
    advice = "`details.missing` names each missing tool and the reason. The owner can run `toolcrib bundles NAME`."

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
    """A configuration is invalid. The message names the file, the server and the key."""

    code = ErrorCode.INVALID_CONFIG
    advice = "Fix the configuration. The message names the file, the server and the key."


class InvalidTool(ToolcribError):
    """A tool definition cannot be added to a catalog. The message says why."""

    code = ErrorCode.INVALID_TOOL
    advice = "Fix the definition. The message names the problem."


class InvalidPrompt(ToolcribError):
    """A prompt cannot be built from its sections, or rendered with the given values. The message names the section."""

    code = ErrorCode.INVALID_PROMPT
    advice = "Fix the section. The message names the section and the problem."


class ProviderFailed(ToolcribError):
    """A model's provider refused a request, failed to answer it, or cannot be reached.

    `retry_after_s` is the time in seconds after which the provider wants the next request (`details.retry_after_s`);
    None if the provider did not say.
    """

    code = ErrorCode.PROVIDER_FAILED
    advice = "The message says what to do. Retry if `retryable`, after `details.retry_after_s` seconds if given."

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
    """A conversation exceeded its budget of turns, tokens, time or restarts. Every call in it has an answer."""

    code = ErrorCode.BUDGET_EXCEEDED
    advice = "Continue the same session with a larger budget, or ask for less."


class InvalidOutput(ToolcribError):
    """A model's final answer does not have the requested type, even after the model was told the problems."""

    code = ErrorCode.INVALID_OUTPUT
    advice = "`details.problems` names the problems. Try a simpler type or a different model."
