"""Prompts and resources are fetched in one module, under the same access rules and rate limits as calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.catalogs import registry_of, tool

from toolcrib.catalog.access import Access, Policy, Rules
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.view import View
from toolcrib.core.errors import NotAuthorized, NotFound, RateLimited, ToolFailed
from toolcrib.core.principal import CallContext
from toolcrib.operations.calling import Runner, complete, get_prompt, read_resource
from toolcrib.operations.calling.limits import CallLimits, Rate
from toolcrib.sources.base import Extras, FetchMethod
from toolcrib.testing.scripted_source import ScriptedSource

pytestmark = pytest.mark.anyio

FREE = Runner()


class Library(ScriptedSource):
    """Has a prompt and a resource, and records every request."""

    def __init__(self) -> None:
        super().__init__("library")
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    async def fetch(self, method: FetchMethod, params: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        self.asked.append((method, params))
        if method == "resources/read":
            return {"contents": [{"uri": params["uri"], "text": "held"}]}
        link = {"type": "resource_link", "uri": "memo://1", "name": "one"}
        return {"messages": [{"role": "user", "content": link}], "completion": {"values": ["a"]}}


def only(access: Access) -> Rules:
    """The same access for everything."""
    return Rules((), access)


def catalog(library: Library, policy: Policy | None = None) -> View:
    registry = registry_of(tool("library.lend"))
    extras = Extras(
        prompts=({"name": "plan"},),
        resources=({"uri": "memo://1", "name": "one"},),
        templates=({"uriTemplate": "memo://{n}", "name": "any"},),
    )
    registry.register_source(SourceEntry(library, SourceStatus.READY, extras=extras))
    return View.of(registry.state) if policy is None else View.of(registry.state, policy=policy)


async def test_a_source_receives_its_own_names_and_the_client_receives_catalog_names() -> None:
    library = Library()
    view = catalog(library)
    got = await get_prompt(view, "library__plan", {"day": "1"}, CallContext(), runner=FREE)
    assert got["messages"][0]["content"]["uri"] == "toolcrib://library/memo://1"
    read = await read_resource(view, "toolcrib://library/memo://1", CallContext(), runner=FREE)
    assert read["contents"] == [{"uri": "toolcrib://library/memo://1", "text": "held"}]
    argument = {"name": "n", "value": ""}
    template = {"type": "ref/resource", "uri": "toolcrib://library/memo://{n}"}
    await complete(view, {"ref": template, "argument": argument}, CallContext(), runner=FREE)
    assert library.asked == [
        ("prompts/get", {"name": "plan", "arguments": {"day": "1"}}),
        ("resources/read", {"uri": "memo://1"}),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": "memo://{n}"}, "argument": argument}),
    ]


async def test_an_unknown_prompt_or_resource_is_not_found() -> None:
    view = catalog(Library())
    for asking in (
        get_prompt(view, "plan", None, CallContext(), runner=FREE),
        read_resource(view, "toolcrib://nobody/memo://1", CallContext(), runner=FREE),
        complete(view, {"ref": {"type": "ref/prompt", "name": "plan"}}, CallContext(), runner=FREE),
        complete(view, {"ref": "plan"}, CallContext(), runner=FREE),
    ):
        with pytest.raises(NotFound):
            await asking


async def test_reading_a_forbidden_resource_is_refused_and_a_hidden_one_not_found() -> None:
    library = Library()
    with pytest.raises(NotAuthorized):
        await read_resource(
            catalog(library, only(Access.SEE)), "toolcrib://library/memo://1", CallContext(), runner=FREE
        )
    with pytest.raises(NotFound):  # hidden items do not exist for the caller
        await read_resource(
            catalog(library, only(Access.HIDDEN)), "toolcrib://library/memo://1", CallContext(), runner=FREE
        )
    assert library.asked == []


async def test_reading_counts_towards_the_rate_limit() -> None:
    library, limits = Library(), CallLimits(Rate(calls_per_minute=1, burst_calls=1))
    view = catalog(library)
    await read_resource(view, "toolcrib://library/memo://1", CallContext(), runner=Runner(limits))
    with pytest.raises(RateLimited):
        await get_prompt(view, "library__plan", None, CallContext(), runner=Runner(limits))
    assert len(library.asked) == 1


async def test_a_source_without_prompts_and_resources_reports_it() -> None:
    registry = registry_of(tool("plain.lend"))
    registry.register_source(SourceEntry(ScriptedSource("plain"), SourceStatus.READY))
    with pytest.raises(ToolFailed, match="offers no prompts"):
        await read_resource(View.of(registry.state), "toolcrib://plain/memo://1", CallContext(), runner=FREE)
