"""What a fake editor can do wrong with one method of the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

METHOD_NOT_FOUND = -32601


class Awaited(Protocol):
    """An event of asyncio or anyio."""

    async def wait(self) -> object: ...


@dataclass(frozen=True, slots=True)
class Refuse:
    """Every request is answered with this error, and not handled."""

    code: int = METHOD_NOT_FOUND
    message: str = "Method not found"
    data: Any = None


@dataclass(frozen=True, slots=True)
class Hang:
    """No request is ever handled or answered."""


@dataclass(frozen=True, slots=True)
class Delay:
    """Every request is handled so many seconds later than it came; what comes after it is not held up."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hold:
    """Every request is handled once `until` is set; what comes after it is not held up."""

    until: Awaited


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection is lost when the method comes: before it is handled, or `after` it was, its answer unsent.

    Of a method that the editor itself sends, the connection is lost before or after it went out.
    """

    after: bool = False


@dataclass(frozen=True, slots=True)
class Instead:
    """Every request is answered with `result`, of whatever shape, and not handled."""

    result: Any


@dataclass(frozen=True, slots=True)
class Garbage:
    """A line that is no JSON-RPC message goes before every answer."""

    line: bytes = b"this is not JSON"


@dataclass(frozen=True, slots=True)
class WrongId:
    """Every answer has an id that was never asked with."""


Fault: TypeAlias = Refuse | Hang | Delay | Hold | Drop | Instead | Garbage | WrongId
