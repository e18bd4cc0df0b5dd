"""What sources offer besides tools, under names that are unique in the catalog."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib.catalog.state import SourceEntry
from toolcrib.core.names import URI_SCHEME, full_names, resource_uri, split_resource_uri, unique_names
from toolcrib.core.properties import cached_property


@dataclass(frozen=True, slots=True)
class Item:
    """A prompt, a resource or a template of resources."""

    source: str
    own_name: str
    """The prompt's name, the resource's URI or the URI template, as its source has it."""
    wire: Mapping[str, Any]
    """Its definition, under its name in the catalog."""


@dataclass(frozen=True)
class Shelf:
    """Prompts are called `source__name`, made to fit as the names of tools are; resources `toolcrib://source/URI`.

    Those of a source with `plain_names` keep their own, unless another has it.
    """

    sources: Mapping[str, SourceEntry]
    may_see: Callable[[str, str], bool] | None = None
    """Whether something of a source, by its own name or URI, may be seen; None where all may."""

    def __bool__(self) -> bool:
        return bool(self.prompts or self.resources or self.templates)

    @cached_property
    def prompts(self) -> Mapping[str, Item]:
        """By name in the catalog, sorted."""
        offered = {
            f"{entry.name}.{wire['name']}": (entry.name, str(wire["name"]), wire)
            for entry in self.sources.values()
            for wire in entry.extras.prompts
            if self._sees(entry.name, str(wire["name"]))
        }
        own_names = {key: (source, own) for key, (source, own, _) in offered.items()}
        names = unique_names(full_names(own_names, self._plain))
        items = {
            names[key]: Item(source, own, {**wire, "name": names[key]}) for key, (source, own, wire) in offered.items()
        }
        return {name: items[name] for name in sorted(items)}

    @cached_property
    def resources(self) -> Mapping[str, Item]:
        """By URI in the catalog, sorted."""
        return self._under_uris("uri")

    @cached_property
    def templates(self) -> Mapping[str, Item]:
        """By URI template in the catalog, sorted."""
        return self._under_uris("uriTemplate")

    def locate(self, uri: str) -> tuple[str, str] | None:
        """The source of a resource and its own URI there, listed or not; None where no source would know it."""
        if (item := self.resources.get(uri)) is not None:
            return item.source, item.own_name
        located = self._unlisted(uri)
        return located if located is not None and self._sees(*located) else None

    def _sees(self, source: str, own_name: str) -> bool:
        return self.may_see is None or self.may_see(source, own_name)

    def _unlisted(self, uri: str) -> tuple[str, str] | None:
        if (split := split_resource_uri(uri)) is not None:
            return split if split[0] in self.sources else None
        plain = [entry for entry in self.sources.values() if entry.plain_names]
        for entry in plain:
            if any(fits(uri, str(template["uriTemplate"])) for template in entry.extras.templates):
                return entry.name, uri
        return (plain[0].name, uri) if len(plain) == 1 else None

    def _under_uris(self, key: str) -> Mapping[str, Item]:
        items: dict[str, Item] = {}
        for entry in self.sources.values():
            for wire in entry.extras.resources if key == "uri" else entry.extras.templates:
                own = str(wire[key])
                if not self._sees(entry.name, own):
                    continue
                # What looks like one of ours is not taken at its word: it could stand for another source's.
                keeps = entry.plain_names and own not in items and not own.startswith(URI_SCHEME)
                uri = own if keeps else resource_uri(entry.name, own)
                items[uri] = Item(entry.name, own, {**wire, key: uri})
        return {uri: items[uri] for uri in sorted(items)}

    @cached_property
    def _plain(self) -> frozenset[str]:
        return frozenset(name for name, entry in self.sources.items() if entry.plain_names)


def fits(uri: str, template: str) -> bool:
    """Whether `uri` could have been made from `template`, whose expressions stand for any text."""
    first, *others = re.split(r"\{[^{}]*\}", template)
    if not others or not uri.startswith(first):
        return uri == template
    at = len(first)
    for part in others[:-1]:
        found = uri.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return len(uri) - len(others[-1]) >= at and uri.endswith(others[-1])
