"""How what went wrong with a server is put: for any caller to read, and with more of it for the server's owner."""

from __future__ import annotations

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
    hidden: Callable[[str], str] = str,
) -> SourceUnavailable:
    """`{name} {what}` for callers; for the server's owner the cause, and what was `heard` of the server, in sentences.

    Callers read no cause that this module did not word: errors of the system and of servers quote paths, variables,
    addresses and headers. `hidden` takes the server's own secrets out of a text.
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
        retryable=retryable,
        retry_after_s=retry_after_s,
    )


def bottom(error: BaseException) -> BaseException:
    """What an exception group is about."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def in_one_line(error: BaseException) -> str:
    """What went wrong, at most 300 characters where the error says it in its own words."""
    error = bottom(error)
    if isinstance(error, FileNotFoundError):
        return f"there is no program `{error.filename}`"
    if isinstance(error, Closed):
        return "it exited"
    return " ".join(str(error).split())[:300] or type(error).__name__


def garbled_line(error: Exception) -> str:
    """The line that did not parse, as far as it can be told, at most 80 characters."""
    if isinstance(error, ValidationError):
        line = error.errors(include_url=False)[0].get("input")
        if isinstance(line, str):
            return line[:80]
    return " ".join(str(error).split())[:80]
