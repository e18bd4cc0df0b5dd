"""What is recorded about a request for a prompt or resource: the item, and separately the values filled into it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from toolcrib.catalog.prompts_and_resources import PromptsAndResources, fits
from toolcrib.core.names import resource_uri

_EXPRESSION = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Fetched:
    """A request for a prompt or resource. Values that a caller filled into a URI are in `arguments`, not in `item`."""

    item: str | None = None
    """The name of the prompt, or the URI or URI template, in the catalog; see `OperationPerformed.item`."""
    arguments: Mapping[str, Any] | None = None

    @classmethod
    def prompt(cls, name: str, arguments: Mapping[str, Any] | None) -> Self:
        return cls(name, arguments)

    @classmethod
    def resource(cls, uri: str, shelf: PromptsAndResources) -> Self:
        """Record a request for a resource.

        For a URI that is not listed, the item is its template, or else its source. A URI of no source has no item.
        """
        if uri in shelf.resources or uri in shelf.templates:
            return cls(uri)
        for template in shelf.templates:
            if fits(uri, template):
                return cls(template, _filled(uri, template))
        located = shelf.locate(uri)
        return cls(None if located is None else resource_uri(located[0], ""), {"uri": uri})

    @classmethod
    def completion(cls, params: Mapping[str, Any], shelf: PromptsAndResources) -> Self:
        """Record a request for a completion. `params` are those of the request, and can have any shape."""
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
"""The record of an operation that fetches no prompt or resource."""


def _filled(uri: str, template: str) -> dict[str, str]:
    """Return what a caller filled into `template`, by the name of the expression, which can mark it as a secret.

    If there are several expressions, one entry has all of their names and the complete text, because the text could be
    split in different ways.
    """
    names = [name.strip("+#./;?&*") for name in _EXPRESSION.findall(template)]
    first, last = template.index("{"), len(template) - template.rindex("}") - 1
    return {", ".join(names): uri[first : len(uri) - last]}
