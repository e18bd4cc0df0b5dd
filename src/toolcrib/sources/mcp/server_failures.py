"""Says why a server failed: one sentence for any caller; the output that explains it and a remedy for the owner."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import cast

import httpx2
from pydantic import ValidationError

from toolcrib.core.errors import SignInRequired, SourceUnavailable
from toolcrib.core.placeholders import Problem
from toolcrib.core.uris import shown
from toolcrib.sources.mcp.refused_requests import Closed, Refusal, RequestRefused
from toolcrib.sources.mcp.server_spec import AnyServer, HttpServer, StdioServer

MAX_TELLING_LINES = 3
MAX_LINE = 300
"""The maximum length of a quoted line, in characters."""

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_LABEL = re.compile(r"npm (?:error|ERR!)(?: 404| [A-Z]+(?=\s*$))?\s?")
"""What npm writes at the start of every line."""

_NOISE = re.compile(
    r"""(?ix) ^\s*$
    | ^npm\s(?:warn|notice|info|http)\b
    | ^npm\s(?:error|ERR!)\s(?:code|errno|syscall|path|dest|type|cause)\b
    | ^(?:npm\s(?:error|ERR!)\s*)?\s*(?:at\s|File\s"|\^+\s*$|[{}\]])
    | ^(?:npm\s(?:error|ERR!)\s*)?\s*(?:requireStack|code|errno|syscall|address|port|type):
    | ^Traceback\s\(most\srecent
    | a\scomplete\slog\sof\sthis\srun | note\sthat\syou\scan\salso\sinstall | tarball,\sfolder,\shttp\surl
    | if\syou\sare\sbehind\sa\sproxy | ^node\.js\sv\d | ^require\sstack | ^-\s/ | ^node:internal
    | ^(?:Downloading|Downloaded|Installed|Resolved|Prepared|Building|Built|Updating|Creating|Using)\s
    """
)
"""Lines that say nothing about the cause."""

_CAUSE = re.compile(
    r"""(?ix) is\snot\sin\sthis\sregistry | was\snot\sfound\sin\sthe\spackage\sregistry | could\snot\sbe\sfound
    | no\ssolution\sfound | cannot\sfind\s(?:module|package) | no\smodule\snamed | no\ssuch\s(?:file|option|command)
    | not\sfound | \bE(?:NOENT|NOTFOUND|ACCES|ADDRINUSE|CONNREFUSED|AI_AGAIN)\b | permission\sdenied
    | not\sset | required | missing | must\sbe\sset | refused | invalid | unauthorized | forbidden | denied
    | un(?:recognized|known|expected)\s | already\sin\suse | timed\sout | certificate | not\spermitted
    """
)
_ERROR = re.compile(r"(?i)^(?:\w+\.)*\w*(?:error|exception)\b|\b(?:error|fatal|failed|failure|cannot|panic(?:ked)?)\b")


_NOTHING, _SAYS_SOMETHING, _SAYS_ERROR, _SAYS_CAUSE = range(4)


def telling(lines: Sequence[str], most: int = MAX_TELLING_LINES) -> list[str]:
    """Return the lines that say most about the cause, best first: at most `most`, without labels and colours.

    Package managers and runtimes write the cause first and many details after it; programs write the cause last. So the
    cause is recognized by its words. Among equally good lines the last one wins. If no line has such words, the last
    lines are returned unchanged.
    """
    ranked: dict[str, tuple[int, int]] = {}
    for number, line in enumerate(_joined(lines)):
        if not (text := _LABEL.sub("", line, count=1).strip()):
            continue
        ranked[text[:MAX_LINE]] = (_NOTHING if _NOISE.search(line) else _rank(text), number)
    best = max((rank for rank, _ in ranked.values()), default=0)
    told = sorted((text for text, (rank, _) in ranked.items() if rank == best), key=lambda text: ranked[text][1])
    return told[-most:] if best < _SAYS_ERROR else told[::-1][:most]


def _rank(text: str) -> int:
    return _SAYS_CAUSE if _CAUSE.search(text) else _SAYS_ERROR if _ERROR.search(text) else _SAYS_SOMETHING


def _joined(lines: Sequence[str]) -> list[str]:
    """Return the lines without colours. An indented line that continues the sentence above it is joined to that
    line."""
    joined: list[str] = []
    for coloured in lines:
        line = _ESCAPE.sub("", coloured).rstrip()
        goes_on = line[:2].isspace() and joined and not _NOISE.search(line) and not _NOISE.search(joined[-1])
        if goes_on:
            joined[-1] += f" {line.strip()}"
        else:
            joined.append(line)
    return joined


# -- what to do -------------------------------------------------------------------------------------------------------

_INSTALLED_WITH = {
    "uv": "Install uv: https://docs.astral.sh/uv/",
    "uvx": "Install uv, which brings `uvx`: https://docs.astral.sh/uv/",
    "npx": "Install Node.js, which brings `npx`: https://nodejs.org/",
    "npm": "Install Node.js, which brings `npm`: https://nodejs.org/",
    "node": "Install Node.js: https://nodejs.org/",
    "bunx": "Install Bun, which brings `bunx`: https://bun.sh/",
    "docker": "Install Docker: https://docs.docker.com/get-docker/",
}
_NO_NPM_PACKAGE = re.compile(r"'(?P<name>(?:@[\w.-]+/)?[\w.-]+)@[^']*' (?:is not in this registry|could not be found)")
_NO_PYTHON_PACKAGE = re.compile(r"[Bb]ecause (?P<name>[\w.-]+) was not found in the package registry")
_NO_MODULE = re.compile(r"[Nn]o module named '?(?P<name>[\w.]+)|Cannot find (?:module|package) '(?P<path>[^']+)'")
_NO_SERVICE = re.compile(
    r"(?:ECONNREFUSED|[Cc]onnection refused)\D*(?P<address>(?:127\.0\.0\.1|localhost|\[?::1\]?)[: ]\d+)"
)
_NETWORK = re.compile(
    r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|[Ff]ailed to fetch|dns error|error sending request|certificate"
)
_UNSET = re.compile(r"\b(?P<name>[A-Z][A-Z0-9]*_[A-Z0-9_]+)\b.*(?:require|not set|missing|must be|provide|undefined)")
_UNSET_FIRST = re.compile(
    r"(?:require|not set|[Mm]issing|must set|provide|[Ss]et).*\b(?P<name>[A-Z][A-Z0-9]*_[A-Z0-9_]+)\b"
)


def remedy(server: AnyServer, cause: BaseException | None, lines: Sequence[str]) -> str:
    """Return what the server's owner can do, as sentences; empty if that is unknown. `lines` are the server's
    output."""
    match cause, server:
        case Problem(remedy=told), _:
            return told
        case RequestRefused(refusal=refusal), HttpServer():
            return _for_http(refusal, server)
        case httpx2.ConnectError(), HttpServer():
            return _UNREACHED
        case FileNotFoundError(), StdioServer():
            name = PurePath(server.command).name
            return _INSTALLED_WITH.get(name, f"Install `{name}`, or write its full path as `command`.")
        case PermissionError(), StdioServer():
            return f"Make `{server.command}` executable, or write the program that runs it as `command`."
        case _, StdioServer():
            if not lines and isinstance(cause, Closed) and cause.exit_code == 0:
                return "Check `args`: the program exited and did not serve MCP on standard input and output."
            return _by_output("\n".join(_joined(lines)))
        case _:
            return ""


_NO_PLACE = (
    "Set its `isolation`: to `principal` if each person signs in, or to `shared` if all use one sign-in. Or add a token"
    " to its `headers`."
)
_UNREACHED = "Check that the server is running, and the host and port in `url`."


def _for_http(refusal: Refusal, server: HttpServer) -> str:
    if refusal.wants_sign_in:
        return f"Run `{refusal.login}`." if refusal.login else _NO_PLACE
    match refusal.status:
        case None:
            return _UNREACHED if refusal.unreached and not refusal.lasting else ""
        case 401 | 403 | 407 if server.headers:
            return "Check the credentials in its `headers`."
        case 401 | 403 | 407:
            return "Add the required credentials to its `headers`. If it lets people sign in, run `toolcrib login`."
        case 404 | 405 if server.transport == "streamable-http":
            return 'Check the path in `url`: it often ends in /mcp. For an older server, set `"type": "sse"`.'
        case 404 | 405:
            return "Check the path in `url`: it often ends in /sse."
        case _:
            return ""


_KNOWN = (
    (_NO_NPM_PACKAGE, "Check the name in `args`: there is no npm package `{}`."),
    (_NO_PYTHON_PACKAGE, "Check the name in `args`: there is no Python package `{}`."),
    (_UNSET, "Set `{}` in its `env`."),
    (_UNSET_FIRST, "Set `{}` in its `env`."),
    (_NO_SERVICE, "Check that the service at `{}` is running."),
    (_NETWORK, "Check the network, and HTTPS_PROXY if you need a proxy."),
    (_NO_MODULE, "Check `command` and `args`: `{}` is not installed there."),
)


def _by_output(output: str) -> str:
    for pattern, told in _KNOWN:
        if (found := pattern.search(output)) is not None:
            return told.format(next(filter(None, found.groups()), ""))
    return ""


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
        if isinstance(cause, RequestRefused):
            refusal = cause.refusal
            if refusal.wants_sign_in:
                return _sign_in_required(name, refusal, heard, remedy, hidden)
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


def _sign_in_required(
    name: str, refusal: Refusal, heard: Sequence[str], remedy: str, hidden: Callable[[str], str]
) -> SignInRequired:
    """Return the error for a server that wants a sign-in. A new attempt is useless until a person has signed in."""
    hints = [f"Ask the user to run `{refusal.login}` where Toolcrib runs, and to sign in."] if refusal.login else []
    return SignInRequired(
        f"`{name}` {refusal.what}.",
        diagnosis=shown(hidden(" ".join((refusal.diagnosis, *heard)))).strip(),
        remedy=shown(hidden(remedy)),
        hints=hints,
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
