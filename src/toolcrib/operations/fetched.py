"""What may be recorded of a request for a prompt or a resource: what it names, and apart from that what it fills in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from toolcrib.catalog.shelf import Shelf, fits
from toolcrib.core.names import resource_uri

_EXPRESSION = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Fetched:
    """One such request. What a caller filled into a URI is no part of its `item`, but stands in `arguments`."""

    item: str | None = None
    """The prompt, or the URI or URI template, as the catalog names it; see `OperationPerformed`."""
    arguments: Mapping[str, Any] | None = None

    @classmethod
    def prompt(cls, name: str, arguments: Mapping[str, Any] | None) -> Self:
        return cls(name, arguments)

    @classmethod
    def resource(cls, uri: str, shelf: Shelf) -> Self:
        """Of a URI that is not listed, its template or else its source is the item; of one that leads nowhere, none."""
        if uri in shelf.resources or uri in shelf.templates:
            return cls(uri)
        for template in shelf.templates:
            if fits(uri, template):
                return cls(template, _filled(uri, template))
        located = shelf.locate(uri)
        return cls(None if located is None else resource_uri(located[0], ""), {"uri": uri})

    @classmethod
    def completion(cls, params: Mapping[str, Any], shelf: Shelf) -> Self:
        """`params`: of the request, whatever their shape."""
        match params.get("ref"):
            case {"type": "ref/prompt", "name": str() as item}:
                pass
            case {"type": "ref/resource", "uri": str() as uri}:
                item = cls.resource(uri, shelf).item
            case _:
                item = None
        match params.get("argument"):
            case {"name": str() as name, "value": value}:
                return cls(item, {name: value})
            case _:
                return cls(item)


NOTHING = Fetched()
"""Of an operation that fetches nothing."""


def _filled(uri: str, template: str) -> dict[str, str]:
    """What a caller filled into `template`, by the name there: it may say that this is a secret.

    Where several expressions could have shared it otherwise, all of it stands under all of their names.
    """
    names = [name.strip("+#./;?&*") for name in _EXPRESSION.findall(template)]
    first, last = template.index("{"), len(template) - template.rindex("}") - 1
    return {", ".join(names): uri[first : len(uri) - last]}
