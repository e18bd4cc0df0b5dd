"""Keeps the last output of a server's standard error, and hides the secrets of its configuration in what it sends.

The output is drained at once, so that the program never blocks.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, TextIO, cast

import anyio

from toolcrib.core.placeholders import references_in
from toolcrib.sources.mcp.server_spec import AnyServer, HttpServer, StdioServer

SHORTEST = 6
"""The minimum length of a value that is hidden, in characters. Shorter values occur in many words by chance."""


class Secrets:
    """The values of a server's `env` and `headers`. All values count, because a name seldom shows whether its value is
    secret."""

    def __init__(
        self,
        server: AnyServer,
        filled_in: Mapping[str, str] = MappingProxyType({}),
        tokens: Callable[[], Sequence[str]] = lambda: (),
    ) -> None:
        """`filled_in` are values in other places, by the names that replace them. `tokens` returns the current tokens
        from signing in to the server, which are secret, too.
        """
        self._tokens = tokens
        values = (*filled_in.items(), *_values(server))
        # A reference that is not filled in is no secret, and errors name it.
        self._names = {value: name for name, value in values if len(value) >= SHORTEST and not references_in(value)}
        # Longest first, because one value may contain a shorter one.
        longest_first = sorted(self._names, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    @property
    def longest(self) -> int:
        """The length of the longest value, in characters."""
        return max(map(len, (*self._names, *self._tokens())), default=0)

    def hidden(self, text: str) -> str:
        """Return `text` with each value replaced by its name."""
        for token in self._tokens():
            text = text.replace(token, "[token]")
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: f"[{self._names[found[0]]}]", text)

    def hidden_in(self, value: Any) -> Any:
        """Return a JSON value with `hidden` applied to every string in it, including keys."""
        match value:
            case str():
                return self.hidden(value)
            case Mapping():
                members = cast("Mapping[str, Any]", value).items()
                return {self.hidden(key): self.hidden_in(each) for key, each in members}
            case list():
                return [self.hidden_in(each) for each in cast("list[Any]", value)]
            case _:
                return value


def _values(server: AnyServer) -> Iterator[tuple[str, str]]:
    if isinstance(server, StdioServer):
        yield from server.env.items()
    elif isinstance(server, HttpServer):
        for name, value in server.headers.items():
            yield name, value
            if credentials := value.partition(" ")[2].strip():  # what follows `Bearer`
                yield name, credentials
        yield "client_secret", server.oauth.client_secret
        yield "private_key", server.oauth.private_key


KEPT_BYTES = 8_192


class LastWords:
    """The last `KEPT_BYTES` of a stream as text, and the exit code of the program behind it."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self.exit_code: int | None = None
        """The program's exit code, negative for a signal. None if we ended the program, or if it still runs."""

    def append(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._size += len(chunk)
        while self._size - len(self._chunks[0]) >= KEPT_BYTES:
            self._size -= len(self._chunks.popleft())

    def clear(self) -> None:
        """Drop what was written so far."""
        self._chunks.clear()
        self._size = 0

    def lines(self, secrets: Secrets) -> list[str]:
        """Return the non-empty lines that were kept in full, without `secrets`."""
        text = b"".join(self._chunks)[-KEPT_BYTES:].decode("utf-8", "replace")
        # Hide secrets before splitting into lines, because a key may span several. Skip the first bytes: a key that was
        # cut there would not be recognized.
        cut = secrets.longest if self._size > KEPT_BYTES else 0
        lines = secrets.hidden(text[cut:]).splitlines()
        if self._size > KEPT_BYTES and len(lines) > 1:
            del lines[0]  # it may begin in the middle
        return [line.rstrip() for line in lines if line.strip()]


@asynccontextmanager
async def listening(words: LastWords) -> AsyncGenerator[TextIO]:
    """Yield a file for a child process to write to. Its output arrives in `words` until the block ends."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)

    async def drain() -> None:
        while True:
            await anyio.wait_readable(read_fd)
            chunk = os.read(read_fd, 65_536)
            if not chunk:
                return
            words.append(chunk)

    try:
        with os.fdopen(write_fd, "w") as writable:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(drain)
                yield writable
                tasks.cancel_scope.cancel()
    finally:
        os.close(read_fd)
