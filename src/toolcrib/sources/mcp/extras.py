"""All pages of a server's prompts, resources and resource templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

import anyio
import mcp_types
from mcp.shared.exceptions import MCPError
from mcp_types import methods as surfaces
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import RootModel, ValidationError

from toolcrib.sources.base import NO_EXTRAS, Extras
from toolcrib.sources.mcp.connection import WHOLE, Connection

MAX_PAGES = 1_000
"""Pages read of one list; a server that goes on beyond is not followed for ever."""

_ListMethod = Literal["prompts/list", "resources/list", "resources/templates/list"]

_KEYS: Mapping[_ListMethod, tuple[str, str]] = {
    "prompts/list": ("prompts", "name"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
}
"""By method: under which key its page has the definitions, and what tells one from another."""


class WholeResult(RootModel[dict[str, Any]]):
    """A result as the session gives it, with the fields the SDK's models would drop."""


class WireRequest(mcp_types.Request[dict[str, Any], str]):
    """A request with its parameters as they are, fields that the SDK does not know included."""


async def list_extras(connection: Connection, *, page_timeout_s: float) -> tuple[Extras, tuple[str, ...]]:
    """What the server offers besides tools, and what is odd about that: a list that it refuses is empty, and told of.

    Raises:
        MCPError: the connection has ended.
    """
    capabilities = connection.session.server_capabilities
    if capabilities is None or (capabilities.prompts is None and capabilities.resources is None):
        return NO_EXTRAS, ()
    warnings: list[str] = []

    async def listed(method: _ListMethod) -> tuple[Mapping[str, Any], ...]:
        try:
            definitions, odd = await _list(connection, method, page_timeout_s)
        except TimeoutError:
            warnings.append(f"it did not answer {method} within {page_timeout_s:g} s")
            return ()
        except MCPError as error:
            if not connection.is_open:
                raise
            # Many a server says that it has resources and knows nothing of templates.
            if error.code != mcp_types.METHOD_NOT_FOUND:
                warnings.append(f"it refused {method}: {error.message}")
            return ()
        except ValidationError:
            warnings.append(f"it answered {method} with what is no list")
            return ()
        warnings.extend(odd)
        return definitions

    prompts = await listed("prompts/list") if capabilities.prompts is not None else ()
    with_resources = capabilities.resources is not None
    resources = await listed("resources/list") if with_resources else ()
    templates = await listed("resources/templates/list") if with_resources else ()
    return Extras(prompts, resources, templates), tuple(warnings)


async def _list(
    connection: Connection, method: _ListMethod, page_timeout_s: float
) -> tuple[tuple[Mapping[str, Any], ...], list[str]]:
    """All definitions that can be used, the first of those with the same name; and a line for those that cannot."""
    key, name = _KEYS[method]
    kept: dict[str, Mapping[str, Any]] = {}
    odd = 0
    cursors: set[str] = set()
    cursor: str | None = None
    while True:
        request = WireRequest(method=method, params={"cursor": cursor} if cursor else {})
        with anyio.fail_after(page_timeout_s):
            page = (await connection.session.send_request(request, WholeResult)).root[WHOLE]
        for wire in cast("list[object]", page[key]) if isinstance(page.get(key), list) else []:
            if _is_acceptable(method, key, wire):
                kept.setdefault(cast("dict[str, str]", wire)[name], cast("dict[str, Any]", wire))
            else:
                odd += 1
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or not cursor:
            break
        if cursor in cursors or len(cursors) >= MAX_PAGES:
            return tuple(kept.values()), [f"its answers to {method} do not end; {len(kept)} were read"]
        cursors.add(cursor)
    return tuple(kept.values()), [f"{odd} of its answers to {method} cannot be used"] if odd else []


def _is_acceptable(method: _ListMethod, key: str, wire: object) -> bool:
    page = {key: [wire], "ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
    try:
        surfaces.validate_server_result(method, LATEST_MODERN_VERSION, page)
    except ValidationError:
        return False
    return True
