"""The faults that a fake editor can have for one method of the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

METHOD_NOT_FOUND = -32601


class _Event(Protocol):
    """An event of asyncio or anyio."""

    async def wait(self) -> object: ...


@dataclass(frozen=True, slots=True)
class Refuse:
    """Every request is answered with this error and not handled."""

    code: int = METHOD_NOT_FOUND
    message: str = "Method not found"
    data: Any = None


@dataclass(frozen=True, slots=True)
class Hang:
    """Requests are never handled or answered."""


@dataclass(frozen=True, slots=True)
class Delay:
    """Every request is handled this many seconds after its arrival. Later messages are not delayed."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hold:
    """Every request is handled once `until` is set. Later messages are not delayed."""

    until: _Event


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection is lost when a request with this method arrives, before it is handled.

    With `after`, the request is handled first, but its answer is not sent. For a method that the editor itself sends,
    the connection is lost before or after the message is sent.
    """

    after: bool = False


@dataclass(frozen=True, slots=True)
class Instead:
    """Every request is answered with `result`, which may have any form, and not handled."""

    result: Any


@dataclass(frozen=True, slots=True)
class Garbage:
    """Every answer is preceded by a line that is not a JSON-RPC message."""

    line: bytes = b"this is not JSON"


@dataclass(frozen=True, slots=True)
class WrongId:
    """Every answer has an id that the agent never used."""


Fault: TypeAlias = Refuse | Hang | Delay | Hold | Drop | Instead | Garbage | WrongId
