"""Reads all pages of a server's prompts, resources and resource templates."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Literal, cast

import anyio
import anyio.lowlevel
import mcp_types
from mcp.shared.exceptions import MCPError
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import RootModel, ValidationError

from toolcrib.sources.base import NO_EXTRAS, Extras
from toolcrib.sources.mcp import pages
from toolcrib.sources.mcp.connection import WHOLE, Connection
from toolcrib.sources.mcp.shapes import LIST_KEYS, is_definition

_ListMethod = Literal["prompts/list", "resources/list", "resources/templates/list"]

_NAMES: Mapping[_ListMethod, str] = {
    "prompts/list": "name",
    "resources/list": "uri",
    "resources/templates/list": "uriTemplate",
}
"""The field that identifies a definition, by method."""


class WholeResult(RootModel[dict[str, Any]]):
    """A result as the session returns it, with the fields that the SDK's models would drop."""


class WireRequest(mcp_types.Request[dict[str, Any], str]):
    """A request with its parameters unchanged, including fields that the SDK does not know."""


async def list_extras(connection: Connection, *, page_timeout_s: float) -> tuple[Extras, tuple[str, ...]]:
    """Return what the server offers besides tools, and warnings. A list that the server refuses is empty, with a
    warning.

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
            # Many servers declare resources but do not support templates.
            if error.code != mcp_types.METHOD_NOT_FOUND:
                warnings.append(f"it refused {method}: {error.message}")
            return ()
        except ValidationError:
            warnings.append(f"it answered {method} with something that is not a list")
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
    """Return all usable definitions, the first of those with the same name, and a warning about the others."""
    name = _NAMES[method]
    kept: dict[str, Mapping[str, Any]] = {}
    read, odd = 0, 0

    async def page(cursor: str | None) -> object:
        nonlocal read, odd
        request = WireRequest(method=method, params={"cursor": cursor} if cursor else {})
        with anyio.fail_after(page_timeout_s):
            result = (await connection.session.send_request(request, WholeResult)).root[WHOLE]
        wires = result.get(LIST_KEYS[method])
        for wire in islice(
            cast("list[object]", wires) if isinstance(wires, list) else (), pages.MAX_DEFINITIONS - read
        ):
            read += 1
            if read % pages.AT_ONCE == 0:
                await anyio.lowlevel.checkpoint()
            if is_definition(wire, method, LATEST_MODERN_VERSION):
                kept.setdefault(cast("dict[str, str]", wire)[name], cast("dict[str, Any]", wire))
            else:
                odd += 1
        return result.get("nextCursor")

    ends = await pages.walk(page, lambda: read)
    warnings = [] if ends else [f"its answers to {method} do not end; {read} definitions were read"]
    if odd:
        warnings.append(f"{odd} of the definitions in its answers to {method} are invalid")
    return tuple(kept.values()), warnings
