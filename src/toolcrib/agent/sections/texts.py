"""Texts with placeholders: `${name}`, and `$$` for a dollar sign."""

from __future__ import annotations

import re
from collections.abc import Collection

_PLACE = re.compile(r"\$(?:\$|\{(?P<name>[^{}]*)(?P<end>\}?))")


def wrong_place(text: str, fields: Collection[str]) -> str | None:
    """Return the first placeholder of `text` that no field fills, as it is written. None if all can be filled."""
    for place in _PLACE.finditer(text):
        if place["name"] is not None and (not place["end"] or place["name"] not in fields):
            return place[0]
    return None


def filled(text: str, params: object) -> str:
    """Return `text` with its placeholders replaced by the attributes of `params`.

    Values are converted with `str`. Placeholders inside values are not replaced.
    """

    def fill(place: re.Match[str]) -> str:
        return "$" if place["name"] is None else str(getattr(params, place["name"]))

    return _PLACE.sub(fill, text).strip()
