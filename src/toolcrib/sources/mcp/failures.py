"""Words the failures of a server: one sentence for any caller, and more details for the server's owner."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import cast

from pydantic import ValidationError

from toolcrib.core.errors import SourceUnavailable
from toolcrib.core.uris import shown
from toolcrib.sources.mcp.refusals import Closed, Refused


def unavailable(
    name: str,
    what: str,
    error: BaseException | None = None,
    *,
    retryable: bool = True,
    heard: Sequence[str] = (),
    remedy: str = "",
    hidden: Callable[[str], str] = str,
) -> SourceUnavailable:
    """Return the error with the message `{name} {what}`, and with a diagnosis and a `remedy` for the owner.

    The diagnosis is the cause and what was `heard` from the server. Callers read only causes that this module words:
    errors of the system and of servers quote paths, variables, addresses and headers. `hidden` removes the server's own
    secrets from a text.
    """
    told, diagnosis, retry_after_s = f"`{name}` {what}", list[str](), None
    if error is not None and not isinstance(cause := bottom(error), TimeoutError):
        if isinstance(cause, Refused):
            refusal = cause.refusal
            told += "" if what == refusal.what else f": {hidden(in_one_line(cause))}"
            diagnosis += [refusal.diagnosis] if refusal.diagnosis else []
            retryable, retry_after_s = retryable and not refusal.lasting, refusal.retry_after_s
        elif isinstance(cause, Closed):
            told += f": {in_one_line(cause)}"
        else:
            diagnosis.append(f"The cause: {in_one_line(cause).rstrip('.')}.")
    return SourceUnavailable(
        told.rstrip(".") + ".",
        diagnosis=shown(hidden(" ".join((*diagnosis, *heard)))),
        remedy=shown(hidden(remedy)),
        retryable=retryable,
        retry_after_s=retry_after_s,
    )


def bottom(error: BaseException) -> BaseException:
    """Return the first exception that is not a group."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def in_one_line(error: BaseException) -> str:
    """Return what went wrong in one line, cut to 300 characters if the error uses its own words."""
    error = bottom(error)
    if isinstance(error, FileNotFoundError):
        return f"the program `{error.filename}` is not installed or not on the PATH"
    if isinstance(error, Closed):
        return _exited(error.exit_code)
    return " ".join(str(error).split())[:300] or type(error).__name__


def _exited(code: int | None) -> str:
    if code is None:
        return "it exited"
    if code >= 0:
        return f"it exited with code {code}"
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:  # a signal that only a different system has a name for
        return f"it was ended by signal {-code}"


def garbled_line(error: Exception) -> str:
    """Return the line that could not be parsed, cut to 80 characters."""
    if isinstance(error, ValidationError):
        line = error.errors(include_url=False)[0].get("input")
        if isinstance(line, str):
            return line[:80]
    return " ".join(str(error).split())[:80]
