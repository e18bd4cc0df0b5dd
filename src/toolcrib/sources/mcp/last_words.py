"""Keeps the last output that a program wrote to standard error.

The output is drained at once, so that the program never blocks."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TextIO

import anyio

from toolcrib.sources.mcp.secrets import Secrets

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
