"""Prints results on standard output and everything else on standard error, and sets up logging."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import cached_property, partial, wraps
from shlex import quote
from typing import IO, TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import anyio
import click
import orjson

from toolcrib.cli.options import DEFAULT_CONFIG
from toolcrib.core.digests import BYTES_PER_TOKEN
from toolcrib.core.errors import (
    ApprovalPending,
    InvalidConfig,
    NextAction,
    SignInRequired,
    SourceUnavailable,
    ToolcribError,
)
from toolcrib.core.untrusted_text import OBEYED, visible
from toolcrib.core.uris import shown

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

T = TypeVar("T")

_UNBROKEN = 100_000
"""A number of columns that no line exceeds."""

WIDTH_IN_A_PIPE = 200
"""The width of tables, in columns, if standard output is not a terminal but a program or a file."""


class _WhenUsed:
    """A console that is created at its first use. `serve` rarely prints anything, and starts faster this way."""

    def __init__(self, *, stderr: bool) -> None:
        self._stderr = stderr

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console

        # Without emoji: `:bug:` in a server's text must not turn into a picture.
        made = partial(Console, emoji=False, highlight=False, soft_wrap=True)
        if self._stderr:
            return made(stderr=True)
        if sys.stdout.isatty():
            return made()
        return made(file=cast("IO[str]", _Trimmed()), width=WIDTH_IN_A_PIPE)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._console, name)

    # Rich's progress bars enter the console. Python looks for these methods in the class, not with `__getattr__`.
    def __enter__(self) -> Console:
        return self._console.__enter__()

    def __exit__(self, *error: object) -> None:
        self._console.__exit__(*cast("Any", error))


class _Trimmed:
    """Standard output without the trailing spaces that tables add to lines."""

    def write(self, text: str) -> int:
        return sys.stdout.write(re.sub(r" +(?=\n)", "", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stdout, name)


stdout = cast("Console", _WhenUsed(stderr=False))
stderr = cast("Console", _WhenUsed(stderr=True))


def plain(text: str) -> str:
    """Replace each character that a terminal would obey (cursor, colour, direction) with `\ufffd` in untrusted text."""
    return OBEYED.sub("\ufffd", text.replace("\r\n", "\n"))


def plain_json(document: str) -> str:
    """Escape each character that a terminal would obey in a JSON document. Such characters only occur in strings."""
    return OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def escape(text: str) -> str:
    """Escape untrusted text for places where Rich reads markup."""
    from rich.markup import escape as rich_escape

    return rich_escape(plain(text))


def counted(count: int, what: str) -> str:
    """Return `1 tool` or `12 tools`. `what` is in the singular."""
    return f"1 {what}" if count == 1 else f"{count:,} {what}s"


def size_wire(size: int) -> dict[str, int]:
    """Convert a number of bytes that a model reads to a JSON object."""
    return {"bytes": size, "estimated_tokens": size // BYTES_PER_TOKEN}


def set_up_logging(*, verbose: bool) -> None:
    """Log to standard error: only fatal errors, or with `verbose` everything, including the log of the SDK.

    Commands print what matters to a person themselves. Only `serve` logs warnings, because it has no other output.
    """
    handler: logging.Handler = logging.StreamHandler()
    if sys.stderr.isatty():
        from rich.logging import RichHandler

        handler = RichHandler(console=stderr, show_path=False, rich_tracebacks=False)
        handler.setFormatter(_Formatter("%(message)s"))  # this handler adds the time and the level itself
    else:
        handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S%z"))
    logging.basicConfig(level=logging.INFO if verbose else logging.CRITICAL, handlers=[handler])


def log_everything() -> None:
    """Switch to the logging of `verbose`."""
    logging.getLogger().setLevel(logging.INFO)


class _Formatter(logging.Formatter):
    """Writes each record on one line, with secrets in addresses hidden and control characters as `⟨U+001B⟩`.

    Servers choose names, keys and output that are logged. A line feed in them would forge a record, and an escape
    would move the cursor. Libraries log each request with its full address, including keys. The lines of a traceback
    are indented, so that none of them looks like a record.
    """

    def format(self, record: logging.LogRecord) -> str:
        return shown(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  the name of `logging`
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802  the name of `logging`
        return "\n".join(f"  {visible(line)}" for line in super().formatException(ei).split("\n"))


def log_warnings() -> None:
    """Also log Toolcrib's warnings, and changes of the configuration."""
    everything = logging.getLogger().level
    logging.getLogger("toolcrib").setLevel(min(logging.WARNING, everything))
    logging.getLogger("toolcrib.crib.following").setLevel(min(logging.INFO, everything))


def print_json(value: Any) -> None:
    """Print one JSON value on standard output, indented if standard output is a terminal."""
    at_terminal = sys.stdout.isatty()
    document = orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE | (orjson.OPT_INDENT_2 if at_terminal else 0))
    write(plain_json(document.decode()) if at_terminal else document)


def write(document: str | bytes) -> None:
    """Write a document to standard output unchanged. Text for a terminal must have gone through `plain` first."""
    sys.stdout.buffer.write(document if isinstance(document, bytes) else document.encode())
    sys.stdout.buffer.flush()


def show(what: RenderableType) -> None:
    """Print on standard output. Programs and files get neither wrapped lines nor trailing spaces."""
    if stdout.is_terminal:
        stdout.print(what, soft_wrap=False)
        return
    segments = stdout.render(what, stdout.options.update(width=_UNBROKEN))
    for line in "".join(segment.text for segment in segments).removesuffix("\n").split("\n"):
        stdout.print(line.rstrip(), markup=False)


def show_json(value: Any) -> None:
    """Print a JSON value in colours, as part of what a command shows to a person.

    Rich's own `print_json` does not escape C1 control characters and direction marks.
    """
    from rich.highlighter import JSONHighlighter
    from rich.text import Text

    shown = Text(plain_json(json.dumps(value, indent=2, ensure_ascii=False)), no_wrap=True)
    JSONHighlighter().highlight(shown)
    stdout.print(shown, soft_wrap=True)


def run(main: Callable[[], Awaitable[T]], *, as_json: bool) -> T:
    """Run an async command. On a Toolcrib error, print it and exit with 1, or with 2 for an invalid configuration."""
    try:
        return anyio.run(main)
    except* ToolcribError as group:
        fail(_first(group), as_json=as_json)
    except* KeyboardInterrupt:
        sys.exit(130)
    except* BrokenPipeError:  # `toolcrib demo | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def asynchronous(command: Callable[..., Coroutine[Any, Any, int | None]]) -> Callable[..., None]:
    """Let click call an async command with `run`. If `command` returns a number, the process exits with it."""

    @wraps(command)
    def call(**options: Any) -> None:
        code = run(partial(command, **options), as_json=options.get("as_json") or options.get("as_sarif") or False)
        if code:
            sys.exit(code)

    return call


class Confirmation:
    """Decides whether something may be written, by the option `--yes` and by the answer at the terminal."""

    def __init__(self, *streams: IO[str], yes: bool, as_json: bool) -> None:
        """A person is asked only if all `streams` are a terminal: those that show the change and the question."""
        self.yes = yes
        self.has_terminal = all(stream.isatty() for stream in streams) and not as_json

    def agrees(self, question: str) -> bool:
        if self.yes or not self.has_terminal:
            return self.yes
        try:
            return click.confirm(plain(question), default=False, err=True)
        except click.Abort:
            stderr.print()
            return False

    def explain_refusal(self, what: str) -> None:
        """Print that nothing was written, and why."""
        because = "" if self.has_terminal else ", because there is no terminal to confirm on. Pass --yes to confirm"
        stderr.print(f"{what}{because}.")


def fail(error: ToolcribError, *, as_json: bool) -> NoReturn:
    """Print `error` and exit."""
    if as_json:
        print_json(error.to_wire())
    else:
        say(f": {error.message}", heading=error.code.value)
        # The hints of a waiting call are for a model. The person who types a command can answer the call.
        for hint in [_how_to_answer(error.waiting_id)] if isinstance(error, ApprovalPending) else error.hints:
            say(f"  {hint}")
        for violation in error.details.get("violations", ())[3:]:  # the message already contains the first three
            stderr.print(f"  - {plain(violation['message'])}", markup=False)
        if isinstance(error, SourceUnavailable):  # the person who types a command owns the configuration
            if error.diagnosis:
                say(f"  {error.diagnosis}")
            if not isinstance(error, SignInRequired):  # its hints have the command
                stderr.print(f"  Next: toolcrib doctor{_pointed_at()}", markup=False)
        elif error.next_action is not None:
            show_next_action(error.next_action)
    sys.exit(2 if isinstance(error, InvalidConfig) else 1)


def _how_to_answer(waiting_id: str) -> str:
    return (
        f"Run `toolcrib approvals show {waiting_id}` to see the call, and `toolcrib approvals grant {waiting_id}` to "
        "approve it. Then run the same command again."
    )


def say(sentences: str, *, heading: str = "") -> None:
    """Print untrusted text on standard error, after `heading`. A terminal wraps it between words."""
    from rich.text import Text

    stderr.print(Text.assemble((heading, "bold red"), plain(sentences)), soft_wrap=not stderr.is_terminal)


def report_unavailable(sources: Iterable[str]) -> None:
    """Print the sources whose tools are missing, and the command that says why."""
    text = f"Unavailable: {', '.join(sources)}. Run `toolcrib doctor{_pointed_at()}` to see why."
    stderr.print(plain(text), markup=False, style="yellow")


def show_next_action(action: NextAction) -> None:
    """Print the next action as a command."""
    stderr.print(f"  Next: {_as_command(action.operation, action.arguments)}", markup=False)


def _as_command(operation: str, arguments: Mapping[str, Any]) -> str:
    """Format the next action as a shell command, with the options that select the same catalog."""
    where = f"{_pointed_at()}{_within()}"
    match operation, arguments:
        case "search_tools", {"include_unavailable": True}:
            return f"toolcrib doctor{_pointed_at()}"
        case "search_tools", {"query": str(query)}:
            return f"toolcrib search{where} {quote(query)}"
        case "expand_tool", {"tool_id": str(tool_id)}:
            return f"toolcrib expand{where} {quote(tool_id)}"
        case "call_tool", {"tool_id": str(tool_id), "arguments": given}:
            name = tool_id.rpartition("@")[0] or tool_id
            return f"toolcrib call{where} {quote(name)} {quote(json.dumps(given, ensure_ascii=False))}"
        case _:
            return f"toolcrib tree{where}"


def _pointed_at() -> str:
    """Return the option that selects this command's catalog, after a space, or an empty string for the default."""
    given = _given()
    if given.get("tools") is not None:
        return f" --tools {quote(str(given['tools']))}"
    if given.get("config") not in {None, DEFAULT_CONFIG}:
        return f" -c {quote(str(given['config']))}"
    return ""


def _within() -> str:
    """Return the option that selects this command's bundle, after a space, or an empty string without a bundle."""
    bundle = _given().get("bundle")
    return f" --bundle {quote(bundle)}" if bundle is not None else ""


def _given() -> Mapping[str, Any]:
    """Return the options of the current command, by name."""
    context = click.get_current_context(silent=True)
    return context.params if context is not None else {}


def _first(group: BaseExceptionGroup[ToolcribError]) -> ToolcribError:
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found
