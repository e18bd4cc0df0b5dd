"""Arguments of the Python methods of a crib: a string counts as a list of one, and wrong types are refused."""

from __future__ import annotations

from typing import Any

import pytest

from toolcrib import Category, ToolMetadata
from toolcrib.core.errors import InvalidArguments, NextAction
from toolcrib.crib.crib import Toolcrib
from toolcrib.operations.protocol_messages import DetailLevel


def borrow(item: str) -> str:
    """Borrow an item."""
    return item


def cancel(item: str) -> str:
    """Cancel a request to borrow an item."""
    return item


def lending() -> Toolcrib:
    """A crib with one tool in a category and one outside."""
    crib = Toolcrib()
    crib.add_category(Category(("Lending", "Items")))
    crib.add(borrow, metadata=ToolMetadata(category=("Lending", "Items"), tags=("loans",)))
    crib.add(cancel)
    return crib


@pytest.mark.parametrize(
    ("operation", "alone", "listed"),
    [
        ("list", {"path": "Lending"}, {"path": ["Lending"]}),
        ("list", {"path": "Lending/Items"}, {"path": ["Lending", "Items"]}),
        ("list", {"path": ""}, {}),
        ("list", {"path": None}, {}),
        ("list", {"tags": "loans"}, {"tags": ["loans"]}),
        ("list", {"tags": {"loans"}}, {"tags": ["loans"]}),
        ("search_tools", {"query": "borrow", "category": "Lending"}, {"query": "borrow", "category": ["Lending"]}),
        ("search_tools", {"query": "borrow", "tags": "loans"}, {"query": "borrow", "tags": ["loans"]}),
        ("search_tools", {"detail_level": "name"}, {"detail_level": DetailLevel.NAME}),
        (
            "search_tool_by_category",
            {"query": "borrow", "category_path": "Lending"},
            {"query": "borrow", "category_path": ["Lending"]},
        ),
        ("expand_tools", {"tool_ids": "functions.borrow"}, {"tool_ids": ["functions.borrow"]}),
    ],
)
def test_a_single_string_counts_as_a_list_of_one(operation: str, alone: dict[str, Any], listed: dict[str, Any]) -> None:
    crib = lending()

    def answer(given: dict[str, Any]) -> dict[str, Any]:
        wire: dict[str, Any] = getattr(crib, operation)(**given).to_wire()
        for tool in wire.get("tools", ()):
            tool.pop("handle", None)  # the handle contains the trace of its request
        return wire

    assert "orrow" in str(answer(listed))
    assert answer(alone) == answer(listed)


@pytest.mark.parametrize(
    ("operation", "given", "message"),
    [
        ("search_tools", {"query": 5}, "query: must be a string."),
        ("list", {"path": 3}, "path: must be a list of strings."),
        ("list", {"path": {"Lending": 1}}, "path: must be a list of strings."),
        ("list", {"path": ["Lending", 4]}, "path.1: must be a string"),
        ("list", {"tags": b"loans"}, "tags: must be a list of strings."),
        ("list", {"limit": "5"}, "limit: must be an integer."),
        ("list", {"limit": True}, "limit: must be an integer."),
        ("search_tools", {"category": 7}, "category: must be a list of strings."),
        ("search_tools", {"detail_level": "ful"}, "detail_level: must be one of: name, summary, full (did you"),
        ("search_tools", {"include_unavailable": "no"}, "include_unavailable: must be true or false."),
        (
            "search_tool_by_category",
            {"query": "x", "category_path": None},
            "category_path: must be a list of strings.",
        ),
        ("search_nodes", {"query": None}, "query: must be a string."),
        ("expand_tool", {"tool_id": 5}, "tool_id: must be a string."),
        ("expand_tools", {"tool_ids": [5]}, "tool_ids.0: must be a string"),
        ("describe", {"detail": "ful"}, "detail: must be one of: name, summary, full (did you mean `full`?)"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_its_path(
    operation: str, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArguments) as wrong:
        getattr(lending(), operation)(**given)

    assert wrong.value.message.startswith(message)
    (violation,) = wrong.value.details["violations"]
    assert violation["place"].removeprefix("/") in given


@pytest.mark.anyio
async def test_an_unknown_operation_is_refused_with_the_closest_name() -> None:
    with pytest.raises(InvalidArguments, match="did you mean `search_tools`") as wrong:
        await lending().perform("serch_tools", {"query": "borrow"})

    assert wrong.value.next_action == NextAction("list")
