"""A hand-written schema must agree with its callable: each disagreement is reported."""

from __future__ import annotations

import datetime
import enum
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from toolcrib.core.errors import InvalidTool
from toolcrib.sources.agreement import disagreements
from toolcrib.sources.functions import FunctionSource, plain_tool
from toolcrib.sources.signatures import read_signature


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    beside: Point | None = None


@dataclass
class Pair:
    one: int
    other: str = ""


TYPES: list[Any] = [
    int, float, str, bool, None, Any, bytes, list[int], dict[str, float], tuple[int, str], set[str], int | None,
    int | str, Literal["a", 1], Literal[1, 2.5], Colour, Point, Pair, datetime.date, Decimal, UUID, list[Point],
    Annotated[int, Field(ge=1)], Annotated[str, "What it is called."], Annotated[str, Field(alias="other name")],
]  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(TYPES), st.booleans()), max_size=5), st.sampled_from([None, Any, int, Point]))
def test_a_schema_read_from_a_signature_agrees_with_the_signature(given: list[tuple[Any, bool]], extra: Any) -> None:
    def called(**_: Any) -> None: ...

    kinds = inspect.Parameter
    annotations = {f"p{position}": annotation for position, (annotation, _) in enumerate(given)}
    parameters = [
        kinds(f"p{position}", kinds.KEYWORD_ONLY, default=None if has_default else kinds.empty, annotation=annotation)
        for position, (annotation, has_default) in enumerate(given)
        if annotation != TYPES[-1] or position == 0  # an alias can be taken only once
    ]
    if extra is not None:
        parameters.append(kinds("extra", kinds.VAR_KEYWORD, annotation=extra))
        annotations["extra"] = extra
    vars(called)["__signature__"] = inspect.Signature(parameters)
    called.__annotations__ = annotations
    schema = read_signature(called).input_schema

    assert [*disagreements(schema, schema)] == []


def find(query: str, limit: int = 10, exact: bool = False, point: Point | None = None, share: float = 0.5) -> str:
    return query


def anything(**arguments: Any) -> str:
    return ""


def numbers(**arguments: int) -> str:
    return ""


def one_of(colour: Colour, level: Literal[1, 2]) -> str:
    return ""


def schema(properties: Mapping[str, Any], required: list[str] | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required or [], **more}


TEXT, NUMBER, WHOLE = {"type": "string"}, {"type": "number"}, {"type": "integer"}
QUERY = {"query": TEXT}
LACKS = "the callable needs `query`, which the schema does not"

AGREE: list[tuple[str, Callable[..., Any], dict[str, Any]]] = [
    ("a parameter with a default may be omitted", find, schema(QUERY, ["query"])),
    ("the schema has more constraints", find, schema({"query": {**TEXT, "minLength": 3, "enum": ["abc"]}}, ["query"])),
    ("a parameter with a default may be required", find, schema({**QUERY, "limit": WHOLE}, ["query", "limit"])),
    ("an integer is a number", find, schema({**QUERY, "share": WHOLE}, ["query"])),
    ("an enum of whole numbers", find, schema({**QUERY, "limit": {**NUMBER, "enum": [1, 2.0]}}, ["query"])),
    ("a property without a type", find, schema({**QUERY, "limit": {"minimum": 1}, "exact": {}}, ["query"])),
    ("a boolean schema", find, schema({**QUERY, "limit": True}, ["query"])),
    ("one of the accepted types", find, schema({**QUERY, "point": {"type": "object"}}, ["query"])),
    ("all of the accepted types", find, schema({**QUERY, "point": {"type": ["object", "null"]}}, ["query"])),
    (
        "a reference",
        find,
        schema({"query": {"$ref": "#/$defs/a~1b"}}, ["query"], **{"$defs": {"a/b": {"anyOf": [TEXT, {"const": "x"}]}}}),
    ),
    (
        "the whole schema is a reference",
        find,
        {"$ref": "#/$defs/a", "$defs": {"a": schema({"query": {"$ref": "#/$defs/t"}}, ["query"]), "t": TEXT}},
    ),
    ("the whole schema is an allOf", find, {"type": "object", "allOf": [schema(QUERY, ["query"])]}),
    ("any keyword argument", anything, schema({"a": TEXT, "b": NUMBER}, ["a"])),
    ("any keyword argument that is a number", numbers, schema({"a": WHOLE, "b": {"const": 5}})),
    ("enum values", one_of, schema({"colour": {"const": "red"}, "level": {"enum": [1]}}, ["colour", "level"])),
]  # fmt: skip

DISAGREE: list[tuple[str, Callable[..., Any], dict[str, Any], list[str]]] = [
    (
        "an argument that the callable does not accept",
        find,
        schema({**QUERY, "sort": TEXT}, ["query"]),
        ["the schema has `sort`, which the callable does not accept"],
    ),
    ("a required parameter is missing", find, schema({"limit": WHOLE}), [f"{LACKS} have"]),
    ("a required parameter is optional in the schema", find, schema(QUERY), [f"{LACKS} require"]),
    (
        "a different type",
        find,
        schema({"query": WHOLE, "limit": TEXT}, ["query"]),
        [
            "the schema lets `query` be integer, but the callable accepts string",
            "the schema lets `limit` be string, but the callable accepts integer",
        ],
    ),
    (
        "a number where an integer is needed",
        find,
        schema({**QUERY, "limit": NUMBER}, ["query"]),
        ["the schema lets `limit` be number, but the callable accepts integer"],
    ),
    (
        "one type too many",
        find,
        schema({**QUERY, "share": {"type": ["number", "null"]}}, ["query"]),
        ["the schema lets `share` be null, but the callable accepts integer or number"],
    ),
    (
        "types from oneOf and const",
        find,
        schema({**QUERY, "limit": {"oneOf": [WHOLE, {"enum": ["all", None]}]}, "exact": {"const": []}}, ["query"]),
        [
            "the schema lets `limit` be null or string, but the callable accepts integer",
            "the schema lets `exact` be array, but the callable accepts boolean",
        ],
    ),
    (
        "the wrong type for an extra keyword argument",
        numbers,
        schema({"a": TEXT}),
        ["the schema lets `a` be string, but the callable accepts integer"],
    ),
    (
        "enum values of a different type",
        one_of,
        schema({"colour": WHOLE, "level": {"enum": ["one"]}}, ["colour", "level"]),
        [
            "the schema lets `colour` be integer, but the callable accepts string",
            "the schema lets `level` be string, but the callable accepts integer",
        ],
    ),
]


@pytest.mark.parametrize(("call", "declared"), [case[1:] for case in AGREE], ids=[case[0] for case in AGREE])
def test_a_declared_schema_that_the_callable_accepts_is_accepted(
    call: Callable[..., Any], declared: dict[str, Any]
) -> None:
    tool = FunctionSource().add(call, input_schema=declared)

    assert tool.input_schema == {"type": "object", **declared}


@pytest.mark.parametrize(
    ("call", "declared", "reasons"), [case[1:] for case in DISAGREE], ids=[case[0] for case in DISAGREE]
)
def test_a_declared_schema_that_the_callable_does_not_accept_is_refused_with_reasons(
    call: Callable[..., Any], declared: dict[str, Any], reasons: list[str]
) -> None:
    with pytest.raises(InvalidTool) as refused:
        FunctionSource("tools").add(call, input_schema=declared)

    start = f"`tools.{call.__name__}`: its schema and the callable disagree: "
    assert refused.value.message == start + "; ".join(reasons)


def test_a_plain_tool_accepts_any_declared_schema() -> None:
    source = FunctionSource("tools")
    bare = source.add(plain_tool("echo", "Says it again.", lambda arguments: arguments))
    given = source.add(plain_tool("find", "Finds.", lambda arguments: arguments), input_schema=schema(QUERY, ["query"]))

    assert (bare.name, bare.description) == ("echo", "Says it again.")
    assert bare.arguments.is_valid({"whatever": [1]})
    assert given.input_schema == schema(QUERY, ["query"])
