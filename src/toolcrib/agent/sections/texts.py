"""Texts with places to fill in: `${name}`, and `$$` for a dollar sign."""

from __future__ import annotations

import re
from collections.abc import Collection

_PLACE = re.compile(r"\$(?:\$|\{(?P<name>[^{}]*)(?P<end>\}?))")


def wrong_place(text: str, fields: Collection[str]) -> str | None:
    """The first place of `text` that none of `fields` can fill, as it is written there."""
    for place in _PLACE.finditer(text):
        if place["name"] is not None and (not place["end"] or place["name"] not in fields):
            return place[0]
    return None


def filled(text: str, params: object) -> str:
    """`text` with the attributes of `params` in its places.

    They stand as `str` writes them: what looks like a place there is none.
    """

    def fill(place: re.Match[str]) -> str:
        return "$" if place["name"] is None else str(getattr(params, place["name"]))

    return _PLACE.sub(fill, text).strip()
