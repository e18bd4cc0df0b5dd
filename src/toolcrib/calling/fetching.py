"""Prompts and resources: which source has one, and the one way in which it is asked for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio

from toolcrib.calling.links import under_catalog_names
from toolcrib.catalog.view import View
from toolcrib.core.errors import NotFound, SourceUnavailable
from toolcrib.core.names import resource_uri
from toolcrib.core.principal import CallContext
from toolcrib.sources.base import FetchMethod, fetch


async def get_prompt(
    view: View, name: str, arguments: Mapping[str, Any] | None, context: CallContext
) -> Mapping[str, Any]:
    """A prompt with its arguments filled in: the result of MCP's `prompts/get`.

    Raises:
        NotFound: no visible prompt is called `name`.
        SourceUnavailable, ToolFailed: as `fetch` does.
    """
    item = view.shelf.prompts.get(name)
    if item is None:
        raise NotFound(f"No prompt is called `{name}`.")
    params: dict[str, Any] = {"name": item.own_name}
    if arguments is not None:
        params["arguments"] = dict(arguments)
    return await _fetch(view, item.source, "prompts/get", params, context)


async def read_resource(view: View, uri: str, context: CallContext) -> Mapping[str, Any]:
    """What a resource holds: the result of MCP's `resources/read`.

    Raises:
        NotFound: no visible source would know the URI.
        SourceUnavailable, ToolFailed: as `fetch` does.
    """
    source, own = _located(view, uri)
    return await _fetch(view, source, "resources/read", {"uri": own}, context)


async def complete(view: View, params: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
    """Values for an argument of a prompt or of a template of resources: the result of MCP's `completion/complete`.

    `params` are those of the request, which name the prompt or the template as the catalog does.

    Raises:
        NotFound: no visible prompt or template has the name.
        SourceUnavailable, ToolFailed: as `fetch` does.
    """
    match params.get("ref"):
        case {"type": "ref/prompt", "name": str() as name} as ref:
            if (item := view.shelf.prompts.get(name)) is None:
                raise NotFound(f"No prompt is called `{name}`.")
            source, own = item.source, {**ref, "name": item.own_name}
        case {"type": "ref/resource", "uri": str() as uri} as ref:
            source, own_uri = _located(view, uri)
            own = {**ref, "uri": own_uri}
        case _:
            raise NotFound("`ref` names neither a prompt nor a resource.")
    return await _fetch(view, source, "completion/complete", {**params, "ref": own}, context)


def _located(view: View, uri: str) -> tuple[str, str]:
    if (found := view.shelf.templates.get(uri)) is not None:
        return found.source, found.own_name
    located = view.shelf.locate(uri)
    if located is None:
        raise NotFound(
            f"No resource has the URI `{uri}`.",
            hints=[f"Resources are read under URIs such as `{resource_uri('SOURCE', 'URI')}`."],
        )
    return located


async def _fetch(
    view: View, source: str, method: FetchMethod, params: Mapping[str, Any], context: CallContext
) -> Mapping[str, Any]:
    if view.principal != context.principal:
        raise ValueError(f"a view for {view.principal.id} cannot serve a request for {context.principal.id}")
    entry = view.sources[source]
    try:
        with anyio.fail_after(context.remaining_s()):
            result = await fetch(entry.source, method, params, context)
    except TimeoutError as error:
        raise SourceUnavailable(f"{method} of `{source}` was given up: the caller's time is over.") from error
    return under_catalog_names(entry, result)
