"""Tests for results that are too large for one response."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.config import Room
from toolcrib.core.principal import LOCAL, Principal
from toolcrib.surfaces.mcp_gateway.paged_results import MAX_LINKS, PagedResults

ROOM = Room(text=1_000, binary=1_000)

SMALL = Room(text=50, binary=50)
TEXTS = st.lists(st.text(max_size=60), max_size=6)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def read_all(large: PagedResults, first_page: str) -> str:
    """Reads all pages, starting with the first."""
    name, pages, number = first_page.rpartition("/")[0], "", 1
    while (page := large.page(f"{name}/{number}", LOCAL)) is not None:
        pages, number = pages + page["contents"][0]["text"], number + 1
    return pages


def links(content: list[dict[str, Any]]) -> list[str]:
    return [block["uri"] for block in content if block["type"] == "resource_link"]


@given(TEXTS)
def test_no_text_is_lost_and_the_response_stays_within_its_limit(texts: list[str]) -> None:
    large = PagedResults()
    content = large.fitted({"content": [text(value) for value in texts]}, SMALL, LOCAL)["content"]
    pages = links(content)
    shown = [block["text"] for block in content if block["type"] == "text"]
    if not pages:
        assert shown == texts
        return
    note = shown.pop()
    assert "too large for one answer" in note
    assert sum(len(part.encode("utf-8", "surrogatepass")) for part in shown) <= SMALL.text
    rest = read_all(large, pages[0])
    # In the pages, a line break separates consecutive blocks.
    whole = "\n".join(texts)
    assert "".join(shown).replace("\n", "") + rest.replace("\n", "") == whole.replace("\n", "")


@given(st.text(min_size=20, max_size=400))
def test_the_pages_of_a_string_join_to_that_string(value: str) -> None:
    large = PagedResults()
    content = large.fitted({"content": [text(value)]}, SMALL, LOCAL)["content"]
    pages = links(content)
    if pages:
        head = content[0]["text"] if len(content) > len(pages) + 1 else ""
        assert head + read_all(large, pages[0]) == value
    else:
        assert content == [text(value)]


def test_a_page_ends_at_a_line_break_where_one_is_near() -> None:
    large = PagedResults()
    lines = "".join(f"line {number}\n" for number in range(500))
    content = large.fitted({"content": [text(lines)]}, ROOM, LOCAL)["content"]
    assert content[0]["text"].endswith("\n")


def test_images_between_text_blocks_keep_their_position() -> None:
    image = {"type": "image", "data": base64.b64encode(b"x" * 100).decode(), "mimeType": "image/png"}
    wire = {"content": [text("a"), image, text("b" * 2_000), image, text("c")], "isError": True, "_meta": {"kept": 1}}
    fitted = PagedResults().fitted(wire, ROOM, LOCAL)
    kinds = [block["type"] for block in fitted["content"]]
    assert kinds == ["text", "image", "text", "text", "resource_link", "resource_link", "image"]
    assert (fitted["isError"], fitted["_meta"]) == (True, {"kept": 1})


def test_large_structured_content_is_linked_unless_it_must_stay_whole() -> None:
    large, rows = PagedResults(), [{"row": number} for number in range(500)]
    wire = {"content": [text("500 rows")], "structuredContent": {"rows": rows}}
    fitted = large.fitted(wire, ROOM, LOCAL)
    assert "structuredContent" not in fitted
    assert '{"row":499}' in read_all(large, links(fitted["content"])[0])
    assert large.fitted(wire, ROOM, LOCAL, keeps_structure=True) == wire


def test_a_large_embedded_resource_becomes_a_link_with_its_mime_type() -> None:
    large = PagedResults()
    resource = {"uri": "memo://long", "mimeType": "text/markdown", "text": "word " * 1_000}
    content = large.fitted({"content": [{"type": "resource", "resource": resource}]}, ROOM, LOCAL)["content"]
    assert "memo://long is too large" in content[0]["text"]
    assert content[1]["mimeType"] == "text/markdown"
    assert read_all(large, links(content)[0]) == resource["text"]


def test_a_binary_beyond_the_limit_is_omitted_with_its_size() -> None:
    blob = {"uri": "memo://blob", "mimeType": "application/zip", "blob": base64.b64encode(bytes(5_000)).decode()}
    (told,) = PagedResults().fitted({"content": [{"type": "resource", "resource": blob}]}, ROOM, LOCAL)["content"]
    assert told["text"].startswith("[application/zip of about 5001 bytes is left out")


def test_only_the_first_pages_are_linked_but_all_are_readable() -> None:
    large, value = PagedResults(), "x" * 50_000
    content = large.fitted({"content": [text(value)]}, ROOM, LOCAL)["content"]
    assert len(links(content)) == MAX_LINKS
    assert len(content[0]["text"]) + len(read_all(large, links(content)[0])) == len(value)


def test_pages_are_readable_only_by_the_principal_of_the_result() -> None:
    large = PagedResults()
    page = links(large.fitted({"content": [text("x" * 5_000)]}, ROOM, LOCAL)["content"])[0]
    assert large.page(page, Principal("somebody else")) is None
    assert large.page(page, LOCAL) is not None
    assert large.page(page, replace(LOCAL, scopes=frozenset({"more"}))) is not None, "the token was renewed"
    for other in (f"{page}0", f"{page}/", page[:-2], "toolcrib-result://", "toolcrib-result:///1"):
        assert large.page(other, LOCAL) is None


def test_pages_of_one_principal_do_not_evict_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.surfaces.mcp_gateway.paged_results.MAX_KEPT_BYTES", 40_000)
    large, ada, eve = PagedResults(), Principal("ada"), Principal("eve")

    def first_page(whose: Principal, size: int = 10_000) -> str:
        return links(large.fitted({"content": [text("x" * size)]}, ROOM, whose)["content"])[0]

    mine, hers = first_page(ada), [first_page(eve) for _ in range(20)]
    assert large.page(mine, ada) is not None
    assert [large.page(page, eve) is not None for page in hers[-2:]] == [True, True]
    assert large.page(hers[0], eve) is None
    (_, told) = large.fitted({"content": [text("x" * 100_000)]}, ROOM, eve)["content"]
    assert "too large to store" in told["text"]
    assert large.page(mine, ada) is not None


def test_the_oldest_pages_are_evicted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.surfaces.mcp_gateway.paged_results.MAX_KEPT_BYTES", 40_000)
    large, value = PagedResults(), "x" * 10_000
    pages = [links(large.fitted({"content": [text(value)]}, ROOM, LOCAL)["content"])[0] for _ in range(6)]
    kept = [large.page(page, LOCAL) is not None for page in pages]
    assert kept[-3:] == [True, True, True]
    assert kept[0] is False
