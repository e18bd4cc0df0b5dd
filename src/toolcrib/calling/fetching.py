"""Prompts and resources: which source has one, and the one way in which it is asked for it, or to tell of changes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio

from toolcrib.calling.approving import Approved, Intent
from toolcrib.calling.links import under_catalog_names
from toolcrib.calling.runner import Runner
from toolcrib.catalog.access import Access
from toolcrib.catalog.state import SourceEntry
from toolcrib.catalog.view import View
from toolcrib.core.errors import NotAuthorized, NotFound, SourceUnavailable
from toolcrib.core.names import resource_uri
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.sources.base import FetchMethod, fetch, unwatch, watch


async def get_prompt(
    view: View, name: str, arguments: Mapping[str, Any] | None, context: CallContext, *, runner: Runner
) -> Mapping[str, Any]:
    """A prompt with its arguments filled in: the result of MCP's `prompts/get`.

    Raises:
        NotFound: no visible prompt is called `name`.
        NotAuthorized, RateLimited: before anything was sent.
        SourceUnavailable, ToolFailed: as `fetch` does.
    """
    item = view.shelf.prompts.get(name)
    if item is None:
        raise NotFound(f"No prompt is called `{name}`.")
    params: dict[str, Any] = {"name": item.own_name}
    if arguments is not None:
        params["arguments"] = dict(arguments)
    return await _fetch(view, (item.source, item.own_name), "prompts/get", params, context, runner=runner)


async def read_resource(view: View, uri: str, context: CallContext, *, runner: Runner) -> Mapping[str, Any]:
    """What a resource holds: the result of MCP's `resources/read`.

    Raises:
        NotFound: no visible source would know the URI.
        NotAuthorized, RateLimited: before anything was sent.
        SourceUnavailable, ToolFailed: as `fetch` does.
    """
    source, own = _located(view, uri)
    return await _fetch(view, (source, own), "resources/read", {"uri": own}, context, runner=runner)


async def complete(view: View, params: Mapping[str, Any], context: CallContext, *, runner: Runner) -> Mapping[str, Any]:
    """Values for an argument of a prompt or of a template of resources: the result of MCP's `completion/complete`.

    `params` are those of the request, which name the prompt or the template as the catalog does.

    Raises:
        NotFound: no visible prompt or template has the name.
        NotAuthorized, RateLimited: before anything was sent.
        SourceUnavailable, ToolFailed: as `fetch` does.
    """
    match params.get("ref"):
        case {"type": "ref/prompt", "name": str() as name} as ref:
            if (item := view.shelf.prompts.get(name)) is None:
                raise NotFound(f"No prompt is called `{name}`.")
            source, own_name, own = item.source, item.own_name, {**ref, "name": item.own_name}
        case {"type": "ref/resource", "uri": str() as uri} as ref:
            source, own_name = _located(view, uri)
            own = {**ref, "uri": own_name}
        case _:
            raise NotFound("`ref` names neither a prompt nor a resource.")
    own_params = {**params, "ref": own}
    return await _fetch(view, (source, own_name), "completion/complete", own_params, context, runner=runner)


async def watch_resource(
    view: View, uri: str, updated: Callable[[], None], context: CallContext, *, runner: Runner
) -> Callable[[], None]:
    """Have `updated` called whenever a resource may have become another; gives what ends that. See
    `WatchableSource.watch`.

    Raises:
        NotFound: no visible source would know the URI.
        NotAuthorized, RateLimited: as `read_resource` does.
        SourceUnavailable, ToolFailed: as `watch` does.
    """
    name, own = _located(view, uri)
    try:
        async with _admitted(view, (name, own), {"uri": own}, context, runner) as (entry, _):
            with anyio.fail_after(context.remaining_s()):
                await watch(entry.source, own, updated)
    except TimeoutError as error:
        raise SourceUnavailable(f"`{name}` was not asked in time: the caller's time is over.") from error
    return partial(unwatch, entry.source, own, updated)


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
    view: View,
    item: tuple[str, str],
    method: FetchMethod,
    params: Mapping[str, Any],
    context: CallContext,
    *,
    runner: Runner,
) -> Mapping[str, Any]:
    """`item`: the source, and the own name or URI there of what this is about."""
    try:
        async with _admitted(view, item, params, context, runner) as (entry, approved):
            with anyio.fail_after(context.remaining_s()):
                result = await fetch(entry.source, method, params, context)
            approved.goes_on = ToolResult(result).needs_input
    except TimeoutError as error:
        raise SourceUnavailable(f"{method} of `{item[0]}` was given up: the caller's time is over.") from error
    return under_catalog_names(entry, result)


@asynccontextmanager
async def _admitted(
    view: View, item: tuple[str, str], params: Mapping[str, Any], context: CallContext, runner: Runner
) -> AsyncGenerator[tuple[SourceEntry, Approved]]:
    """The source of the item, for a principal that may use it and does not ask too fast."""
    if view.principal != context.principal:
        raise ValueError(f"a view for {view.principal.id} cannot serve a request for {context.principal.id}")
    source, own_name = item
    access = view.access_to_item(source, own_name)
    if access < Access.ASK:
        raise NotAuthorized(f"`{own_name}` of `{source}` may be seen and not used by `{view.principal.id}`.")
    runner.limits.admit(context.principal)
    entry = view.sources[source]
    if access is Access.CALL:
        yield entry, Approved()
        return
    intent = Intent(context.principal.id, f"{source}: {own_name}", arguments=params)
    async with runner.approver.approved(intent, context) as approved:
        yield entry, approved
