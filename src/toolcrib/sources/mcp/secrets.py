"""Hides the secrets of a server's configuration in what the server sends."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from toolcrib.sources.mcp.server import AnyServer, HttpServer, StdioServer

SHORTEST = 6
"""The minimum length of a value that is hidden, in characters. Shorter values occur in many words by chance."""


class Secrets:
    """The values of a server's `env` and `headers`. All values count, because a name seldom shows whether its value is
    secret."""

    def __init__(self, server: AnyServer) -> None:
        self._names = {value: name for name, value in _values(server) if len(value) >= SHORTEST}
        # Longest first, because one value may contain a shorter one.
        longest_first = sorted(self._names, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    @property
    def longest(self) -> int:
        """The length of the longest value, in characters."""
        return max(map(len, self._names), default=0)

    def hidden(self, text: str) -> str:
        """Return `text` with each value replaced by its name."""
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
