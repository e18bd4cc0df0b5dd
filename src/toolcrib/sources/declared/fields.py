"""Reads one object of a declaration, and names the place of each problem."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from toolcrib.core.errors import InvalidTool
from toolcrib.core.schema import nearest


@dataclass(frozen=True, slots=True)
class Fields:
    """The members of the object at `where`. Each reader raises `InvalidTool` for a value of the wrong type."""

    values: Mapping[str, Any]
    where: str

    @classmethod
    def of(cls, value: object, where: str) -> Fields:
        """Raise `InvalidTool` if `value` is not an object."""
        if not isinstance(value, Mapping):
            raise InvalidTool(f"{where}: must be an object")
        return cls(cast("Mapping[str, Any]", value), where)

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def at(self, key: str | int) -> str:
        """Return the place of one member."""
        return f"{self.where}.{key}"

    def wrong(self, key: str, expected: str) -> InvalidTool:
        """Return the error for one member, to be raised."""
        return InvalidTool(f"{self.at(key)}: {expected}")

    def only(self, known: Iterable[str]) -> None:
        """Check that every key is in `known`.

        Raises:
            InvalidTool: a key is not.
        """
        known = list(known)
        for key in self.values:
            if key not in known:
                near = nearest(key, known)
                meant = f" (did you mean `{near}`?)" if near else f"; known: {', '.join(known)}"
                raise InvalidTool(f"{self.where}: unknown key `{key}`{meant}")

    def fields(self, key: str) -> Fields:
        """Return the object under `key`, or an empty one if the key is missing."""
        return Fields.of(self.values.get(key, {}), self.at(key))

    def text(self, key: str, default: str = "") -> str:
        value = self.values.get(key, default)
        if not isinstance(value, str):
            raise self.wrong(key, "must be a string")
        return value

    def texts(self, key: str) -> Mapping[str, str]:
        """Return the object of strings under `key`, or an empty one if the key is missing."""
        members = self.fields(key)
        return {name: members.text(name) for name in members.values}

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, "must be true or false")
        return value

    def seconds(self, key: str, default: float, most: float) -> float:
        """Return the number of seconds under `key`: greater than 0 and at most `most`."""
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
            raise self.wrong(key, f"must be a number of seconds, greater than 0 and at most {most:g}")
        return float(value)
