"""A source that lists cached definitions, so that its server need not start before the first call."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from toolcrib.core.client import NO_CLIENT, Client
from toolcrib.sources.base import Extras, Listing, SetAside, Source
from toolcrib.sources.definition_cache import CachedDefinitions, Definitions
from toolcrib.sources.tool_definitions import read_definitions
from toolcrib.sources.wrapper import WrapperSource

logger = logging.getLogger(__name__)

LIFETIME_S = 86_400.0
"""How long definitions remain valid if their source does not say, in seconds."""


class CachedSource(WrapperSource):
    """Takes the first listing from the store, with the rest of its lifetime.

    So listing does not start the server. The first call starts it, and compares the cached definition with the current
    one. A new listing also starts the server once the cached definitions have expired.
    """

    def __init__(
        self,
        wrapped: Source,
        store: Definitions,
        address: Mapping[str, Any],
        *,
        client: Callable[[], Client] = lambda: NO_CLIENT,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`client` returns the client's capabilities. Many servers offer more tools to a client that can be asked for
        input."""
        super().__init__(wrapped)
        self._store = store
        self._address = address
        self._client = client
        self._now = now
        self._listed = False
        self.stands_in = False
        """Whether the last listing came from the cache."""

    async def list_tools(self) -> Listing:
        if not self._listed:
            self._listed = True
            if (kept := self._load()) is not None:
                self.stands_in = True
                return kept
        self.stands_in = False
        listing = await super().list_tools()
        self._store.save(self._key, CachedDefinitions(self._now(), _written(listing)))
        return listing

    @property
    def _key(self) -> str:
        able = self._client().capabilities
        return self._store.key({**self._address, "capabilities": able} if able else self._address)

    def _load(self) -> Listing | None:
        kept = self._store.load(self._key)
        if kept is None:
            return None
        try:
            listing = _read(self.name, kept.body)
        except (ValueError, KeyError, TypeError) as error:
            logger.warning("source %s: its cached definitions cannot be read: %s", self.name, error)
            self._store.forget(self._key)
            return None
        lifetime_s = LIFETIME_S if listing.ttl_s is None else listing.ttl_s
        age_s = max(0.0, self._now() - kept.listed_at)
        return replace(listing, ttl_s=max(0.0, lifetime_s - age_s))


def _written(listing: Listing) -> bytes:
    return json.dumps(
        {
            "tools": [tool.wire for tool in listing.tools],
            "title": listing.title,
            "summary": listing.summary,
            "version": listing.version,
            "set_aside": [[aside.name, aside.reason] for aside in listing.set_aside],
            "warnings": listing.warnings,
            "ttl_s": listing.ttl_s,
            "prompts": listing.extras.prompts,
            "resources": listing.extras.resources,
            "templates": listing.extras.templates,
        },
        default=dict,
    ).encode()


def _read(source: str, body: bytes) -> Listing:
    """Read what `_written` wrote, and check its definitions again.

    Raises:
        ValueError, KeyError, TypeError: `body` has a different form.
    """
    kept = cast("Mapping[str, Any]", json.loads(body))
    tools, set_aside = read_definitions(source, kept["tools"])
    return Listing(
        tools=tools,
        title=kept["title"],
        summary=kept["summary"],
        version=kept.get("version"),
        set_aside=(*set_aside, *(SetAside(name, reason) for name, reason in kept["set_aside"])),
        warnings=tuple(kept["warnings"]),
        ttl_s=kept["ttl_s"],
        extras=Extras(tuple(kept["prompts"]), tuple(kept["resources"]), tuple(kept["templates"])),
    )
