"""Prompts and resources under names that are unique in the catalog."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.catalog.catalog_state import SourceEntry
from toolcrib.catalog.prompts_and_resources import PromptsAndResources
from toolcrib.core.names import resource_uri, split_resource_uri
from toolcrib.sources.base import Extras
from toolcrib.testing.scripted_source import ScriptedSource


def entry(name: str, *, plain: bool = False, **extras: Any) -> SourceEntry:
    return SourceEntry(ScriptedSource(name), plain_names=plain, extras=Extras(**extras))


def shelf(*entries: SourceEntry) -> PromptsAndResources:
    return PromptsAndResources({each.name: each for each in entries})


def prompts(*names: str) -> tuple[dict[str, Any], ...]:
    return tuple({"name": name, "description": f"{name} it"} for name in names)


def resources(*uris: str) -> tuple[dict[str, Any], ...]:
    return tuple({"uri": uri, "name": uri} for uri in uris)


@given(st.text(min_size=1, max_size=12).filter(lambda name: "." not in name), st.text(min_size=1, max_size=30))
def test_a_resource_uri_leads_back_to_its_source_and_original_uri(source: str, uri: str) -> None:
    try:
        source.encode()
    except UnicodeEncodeError:
        return
    assert split_resource_uri(resource_uri(source, uri)) == (source, uri)


def test_two_sources_may_use_the_same_names() -> None:
    both = shelf(
        entry("a", prompts=prompts("plan"), resources=resources("memo://1")),
        entry("b", prompts=prompts("plan"), resources=resources("memo://1")),
    )
    assert [*both.prompts] == ["a__plan", "b__plan"]
    assert both.prompts["b__plan"].own_name == "plan"
    assert both.prompts["b__plan"].wire == {"name": "b__plan", "description": "plan it"}
    assert [*both.resources] == ["toolcrib://a/memo://1", "toolcrib://b/memo://1"]
    assert both.locate("toolcrib://b/memo://1") == ("b", "memo://1")


def test_prompts_with_colliding_names_get_different_names() -> None:
    both = shelf(entry("a", prompts=prompts("b__c")), entry("a__b", prompts=prompts("c")))
    assert len(both.prompts) == 2
    assert {item.source for item in both.prompts.values()} == {"a", "a__b"}


def test_a_resource_that_is_not_listed_is_located_by_its_prefix() -> None:
    one = shelf(entry("a", resources=resources("memo://1")))
    assert one.locate("toolcrib://a/memo://2") == ("a", "memo://2")
    for nowhere in ("toolcrib://b/memo://1", "memo://1", "toolcrib://", "toolcrib://a", "toolcrib:///memo://1", ""):
        assert one.locate(nowhere) is None, nowhere


def test_a_plain_uri_is_located_by_resources_templates_or_the_only_source() -> None:
    template = {"uriTemplate": "memo://{day}/{page}.md", "name": "page"}
    one = entry("a", plain=True, resources=resources("memo://1"))
    other = entry("b", plain=True, resources=resources("memo://1", "memo://2"), templates=(template,))
    both = shelf(one, other)
    assert [*both.resources] == ["memo://1", "memo://2", "toolcrib://b/memo://1"]
    assert both.locate("memo://1") == ("a", "memo://1")
    assert both.locate("toolcrib://b/memo://1") == ("b", "memo://1")
    assert both.locate("memo://monday/3.md") == ("b", "memo://monday/3.md")
    for near in ("memo://monday/3.txt", "memos://monday/3.md", "memo://.md"):
        assert both.locate(near) is None, near
    assert shelf(one).locate("memo://unlisted") == ("a", "memo://unlisted")
