"""Fetches prompts and resources from their sources, completes their arguments, and watches resources for changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import anyio

from toolcrib.catalog.access import Access
from toolcrib.catalog.catalog_state import SourceEntry
from toolcrib.catalog.prompts_and_resources import PromptsAndResources, fits
from toolcrib.catalog.view import View
from toolcrib.core.errors import NotAuthorized, NotFound, SourceUnavailable, ToolFailed
from toolcrib.core.events import Consent
from toolcrib.core.names import resource_uri
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.operations.calling.approval_question import Intent
from toolcrib.operations.calling.runner import Runner
from toolcrib.operations.calling.source_requests import under_catalog_names
from toolcrib.sources.base import FetchMethod, fetch, unwatch, watch

_EXPRESSION = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class FetchedItem:
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


NOTHING_FETCHED = FetchedItem()
"""The record of an operation that fetches no prompt or resource."""


async def get_prompt(
    view: View, name: str, arguments: Mapping[str, Any] | None, context: CallContext, *, runner: Runner
) -> Mapping[str, Any]:
    """Fetch a prompt with its arguments filled in. Return the result of MCP's `prompts/get`.

    Raises:
        NotFound: no visible prompt is named `name`.
        NotAuthorized, RateLimited: nothing was sent.
        SourceUnavailable, ToolFailed: see `fetch`.
    """
    locate = partial(_prompt, name=name)
    params: dict[str, Any] = {"name": locate(view)[1]}
    if arguments is not None:
        params["arguments"] = dict(arguments)
    return await _fetch(view, locate, "prompts/get", params, context, runner=runner)


async def read_resource(view: View, uri: str, context: CallContext, *, runner: Runner) -> Mapping[str, Any]:
    """Read a resource. Return the result of MCP's `resources/read`.

    Raises:
        NotFound: the URI belongs to no visible source.
        NotAuthorized, RateLimited: nothing was sent.
        SourceUnavailable, ToolFailed: see `fetch`.
    """
    locate = partial(_resource, uri=uri)
    return await _fetch(view, locate, "resources/read", {"uri": locate(view)[1]}, context, runner=runner)


async def complete(view: View, params: Mapping[str, Any], context: CallContext, *, runner: Runner) -> Mapping[str, Any]:
    """Complete an argument of a prompt or resource template. Return the result of MCP's `completion/complete`.

    `params` are those of the request. They name the prompt or template as the catalog does.

    Raises:
        NotFound: no visible prompt or template has this name.
        NotAuthorized, RateLimited: nothing was sent.
        SourceUnavailable, ToolFailed: see `fetch`.
    """
    match params.get("ref"):
        case {"type": "ref/prompt", "name": str() as name} as ref:
            locate, key = partial(_prompt, name=name), "name"
        case {"type": "ref/resource", "uri": str() as uri} as ref:
            locate, key = partial(_resource, uri=uri), "uri"
        case _:
            raise NotFound("`ref` must name a prompt or a resource.")
    own_params = {**params, "ref": {**ref, key: locate(view)[1]}}
    return await _fetch(view, locate, "completion/complete", own_params, context, runner=runner)


async def watch_resource(
    view: View, uri: str, updated: Callable[[], None], context: CallContext, *, runner: Runner
) -> Callable[[], None]:
    """Call `updated` whenever a resource may have changed. Return a function that ends this.

    See `WatchableSource.watch`.

    Raises:
        NotFound: the URI belongs to no visible source.
        NotAuthorized, RateLimited: see `read_resource`.
        SourceUnavailable, ToolFailed: see `watch`.
    """
    locate = partial(_resource, uri=uri)
    own = locate(view)[1]
    entry, _ = await _admitted(view, locate, {"uri": own}, context, runner)
    try:
        with anyio.fail_after(context.remaining_s()):
            await watch(entry.source, own, updated)
    except TimeoutError as error:
        raise SourceUnavailable(f"`{entry.name}` did not answer within the time limit of your request.") from error
    return partial(unwatch, entry.source, own, updated)


Locate = Callable[[View], tuple[str, str]]
"""Finds the requested item in a view: its source, and its own name or URI there. Raises `NotFound`."""


def _prompt(view: View, name: str) -> tuple[str, str]:
    item = view.prompts_and_resources.prompts.get(name)
    if item is None:
        raise NotFound(f"Prompt `{name}` not found.")
    return item.source, item.own_name


def _resource(view: View, uri: str) -> tuple[str, str]:
    if (found := view.prompts_and_resources.templates.get(uri)) is not None:
        return found.source, found.own_name
    located = view.prompts_and_resources.locate(uri)
    if located is None:
        raise NotFound(
            f"Resource `{uri}` not found.",
            hints=[f"The URI of a resource has the form `{resource_uri('SOURCE', 'URI')}`."],
        )
    return located


async def _fetch(
    view: View,
    locate: Locate,
    method: FetchMethod,
    params: Mapping[str, Any],
    context: CallContext,
    *,
    runner: Runner,
) -> Mapping[str, Any]:
    # A client completes what a person types, so it does not repeat a request later.
    may_wait = method != "completion/complete"
    entry, approval = await _admitted(view, locate, params, context, runner, may_wait=may_wait)
    with runner.running.asking(f"{method} of `{entry.name}`", context):
        result = await fetch(entry.source, method, params, context)
    if context.client is None and ToolResult(result).needs_input:
        raise ToolFailed(f"{method} of `{entry.name}` asks for input, but your client cannot be asked for it.")
    if approval is not None:
        result = runner.approver.paused(*approval, result)
    return under_catalog_names(entry, result)


async def _admitted(
    view: View,
    locate: Locate,
    params: Mapping[str, Any],
    context: CallContext,
    runner: Runner,
    *,
    may_wait: bool = True,
) -> tuple[SourceEntry, tuple[Intent, Consent] | None]:
    """Check access, rate limit and approval for an item. Return its source, and what a person approved if asked."""
    if view.principal != context.principal:
        raise ValueError(f"a view for {view.principal.id} cannot serve a request for {context.principal.id}")
    entry, access = _entry(view, locate)
    runner.limits.admit(context.principal)
    if access is Access.CALL:
        return entry, None
    what = "{}: {}".format(*locate(view))
    intent = Intent(context.principal.id, what, server=entry.identity, arguments=params, may_wait=may_wait)
    consent = await runner.approver.ask(intent, context)
    now = runner.view_now(view, context)
    entry_now, _ = _entry(now, locate)
    if locate(now) != locate(view) or not entry_now.is_same_server(entry):
        raise NotAuthorized(f"`{what}` was not used: it changed while a person was being asked.")
    return entry_now, (intent, consent)


def _entry(view: View, locate: Locate) -> tuple[SourceEntry, Access]:
    """Return the source of an item and the access to it, which is at least `Access.ASK`."""
    source, own_name = locate(view)
    access = view.access_to_item(source, own_name)
    if access < Access.ASK:
        raise NotAuthorized(f"`{view.principal.id}` is not allowed to use `{own_name}` of `{source}`.")
    return view.sources[source], access


def _filled(uri: str, template: str) -> dict[str, str]:
    """Return what a caller filled into `template`, by the name of the expression, which can mark it as a secret.

    If there are several expressions, one entry has all of their names and the complete text, because the text could be
    split in different ways.
    """
    names = [name.strip("+#./;?&*") for name in _EXPRESSION.findall(template)]
    first, last = template.index("{"), len(template) - template.rindex("}") - 1
    return {", ".join(names): uri[first : len(uri) - last]}
