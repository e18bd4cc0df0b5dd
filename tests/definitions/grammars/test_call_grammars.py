"""The texts that grammars accept, and the keywords that they report as unenforced."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from tests.definitions.grammars.gbnf import Read
from tests.definitions.grammars.peers import Matcher, spelled

from toolcrib.definitions.grammars import (
    STYLES,
    Envelope,
    arguments_grammar,
    call_grammar,
    text_or_call_grammar,
)

FILE: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "action": {"type": "string", "enum": ["read", "write", "list"]},
        "path": {"type": "string"},
        "content": {"type": "string"},
    },
    "required": ["action", "path"],
}
"""The migrated file tool from the document on the tool registry."""


def written(schema: Mapping[str, Any], *values: object) -> list[bool]:
    """Return for each of `values` whether a tool with `schema` accepts it as arguments. Strings are used unchanged."""
    grammar = arguments_grammar(schema)
    assert not grammar.degraded
    matcher = Matcher(grammar.text)
    return [matcher.accepts(value if isinstance(value, str) else spelled(value)) for value in values]


def of(schema: Mapping[str, Any], *values: object) -> list[bool]:
    """Return for each of `values` whether it is accepted under one required key with `schema`."""
    whole = {"type": "object", "properties": {"x": schema}, "required": ["x"], "$defs": schema.get("$defs", {})}
    return written(whole, *({"x": value} for value in values))


def reported(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return the keywords that are not enforced, by the pointer of their schema."""
    return {each.pointer: each.keyword for each in arguments_grammar(schema).unenforced}


def test_whole_calls_of_the_file_tool_are_accepted_and_fragments_are_not() -> None:
    whole = [
        '{"action": "read", "path": "main.go"}',
        '{"action":"write","path":"a/b.txt","content":"x\\ny"}',
        '{\n  "action": "list",\n  "path": "."\n}',
    ]
    assert written(FILE, *whole) == [True] * 3
    assert not any(written(FILE, *(text[:at] for text in whole for at in range(len(text)))))
    wrong = [
        '"read"',
        '"main.go"',
        "[]",
        "null",
        "{}",
        '{"action": "read"}',
        '{"path": "x"}',
        '{"action": "move", "path": "x"}',
    ]
    assert not any(written(FILE, *wrong, whole[0] + "}", f"[{whole[0]}]"))


def test_a_call_names_one_of_the_tools_and_has_the_arguments_of_that_tool() -> None:
    matcher = Matcher(call_grammar({"file": FILE, "now": {"type": "object", "properties": {}}}).text)
    assert matcher.accepts('{"name": "file", "arguments": {"action": "read", "path": "x"}}')
    assert matcher.accepts('{"name":"now","arguments":{}}')
    for text in (
        '{"name": "now", "arguments": {"action": "read", "path": "x"}}',
        '{"name": "file", "arguments": {}}',
        '{"name": "other", "arguments": {}}',
        '{"arguments": {}, "name": "now"}',
        '{"name": "now"}',
        "Now.",
    ):
        assert not matcher.accepts(text), text


def test_an_envelope_sets_the_keys_and_the_text_around_a_call() -> None:
    now: dict[str, dict[str, Any]] = {"now": {"type": "object", "properties": {}}}
    llama = Matcher(call_grammar(now, STYLES["llama"]).text)
    assert llama.accepts('{"name": "now", "parameters": {}}')
    assert not llama.accepts('{"name": "now", "arguments": {}}')
    hermes = Matcher(call_grammar(now, STYLES["hermes"]).text)
    assert hermes.accepts('<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>')
    assert not hermes.accepts('{"name": "now", "arguments": {}}')
    odd = Matcher(call_grammar(now, Envelope(name='to"ol', before="[", after="]")).text)
    assert odd.accepts('[{"to\\"ol": "now", "arguments": {}}]')


@pytest.mark.parametrize("style", STYLES)
def test_text_or_call_accepts_either_and_no_text_that_looks_like_a_broken_call(style: str) -> None:
    envelope = STYLES[style]
    matcher = Matcher(text_or_call_grammar({"file": FILE}, envelope).text)
    call = f'{{"name": "file", "{envelope.arguments}": {{"action": "read", "path": "x"}}}}'
    call = envelope.before + call + envelope.after
    assert matcher.accepts(call)
    assert matcher.accepts('I read it: {"name": "file"} and\nfound nothing 😀.')
    for text in (call[:-1], call + "}", '{"name": "other"}', "{ it", ' {"name"', ""):
        assert not matcher.accepts(text), text


def test_an_unusable_schema_does_not_affect_the_grammar_of_other_tools() -> None:
    grammar = call_grammar(
        {"bad": {"type": "strin"}, "file": FILE, "never": {"properties": {"a": False}, "required": ["a"]}}
    )
    assert [each.tool for each in grammar.degraded] == ["bad", "never"]
    matcher = Matcher(grammar.text)
    assert matcher.accepts('{"name": "bad", "arguments": {"any": [1, {"thing": null}]}}')
    assert not matcher.accepts('{"name": "bad", "arguments": [1]}')
    assert matcher.accepts('{"name": "file", "arguments": {"action": "read", "path": "x"}}')
    assert not matcher.accepts('{"name": "file", "arguments": {"any": 1}}')


def test_the_same_schemas_give_the_same_grammar_with_rule_names_valid_for_llama_cpp() -> None:
    tools = {"file": FILE, "ünï cöde": {"type": "object", "properties": {"ключ": {"type": ["string", "null"]}}}}
    text = text_or_call_grammar(tools).text
    assert text == text_or_call_grammar(json.loads(json.dumps(tools))).text
    read = Read(text)
    assert next(iter(read.rules)) == "root"
    assert not read.left_recursive()


def test_optional_keys_appear_in_any_subset_and_the_grammar_grows_linearly() -> None:
    def schema(count: int) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {f"k{at}": {"type": "boolean"} for at in range(count)},
            "required": ["k2"],
        }

    def subsets(count: int) -> Iterable[dict[str, bool]]:
        for bits in range(2**count):
            yield {f"k{at}": True for at in range(count) if bits >> at & 1}

    every = list(subsets(5))
    assert written(schema(5), *every) == ["k2" in each for each in every]
    small, large = (len(arguments_grammar(schema(count)).text) for count in (100, 200))
    assert large < 2.2 * small


def test_undeclared_keys_are_accepted_only_if_additional_properties_allow_them() -> None:
    declared = {"type": "object", "properties": {"a": {"type": "integer"}, "ab": {"type": "integer"}}}
    values = ({"a": 1}, {"b": "x"}, {"a": 1, "abc": "x"}, {"a": "x"}, {"ab": "x"}, {"": "x"})
    assert written(declared, *values) == [True, False, False, False, False, False]
    assert written({**declared, "additionalProperties": False}, *values) == [True, False, False, False, False, False]
    assert written({**declared, "additionalProperties": True}, *values) == [True, True, True, False, False, True]
    texts = {**declared, "additionalProperties": {"type": "string"}}
    assert written(texts, *values, {"b": 1}) == [True, True, True, False, False, True, False]
    assert written({"type": "object"}, *values) == [True] * 6
    assert of({"type": "object", "propertyNames": {"enum": ["a", "b"]}}, {"a": 1, "b": []}, {"c": 1}) == [True, False]


def test_references_recursion_and_composition_are_enforced() -> None:
    tree: dict[str, Any] = {
        "type": "object",
        "properties": {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["value"],
    }
    deep: list[Any] = [{"value": 1, "children": [{"value": 2, "children": []}]}, {"value": 1, "children": [{}]}]
    assert written(tree, *deep) == [
        True,
        False,
    ]
    both = {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"$ref": "#/$defs/b~1c%25"},
        ],
        "$defs": {"b/c%": {"properties": {"b": {"type": "string"}, "a": {"minimum": 3}}, "required": ["b"]}},
    }
    assert written(both, {"a": 3, "b": ""}, {"a": 2, "b": ""}, {"a": 3}, {"b": ""}) == [True, False, False, False]
    either = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    }
    assert written(either, {"a": 1}, {"b": 1}, {"a": 1, "b": 1}, {}) == [True, True, True, False]


def test_a_oneof_is_reported_unless_its_branches_exclude_each_other() -> None:
    def shape(kind: str, **more: object) -> dict[str, Any]:
        return {"type": "object", "properties": {"kind": {"const": kind}, **more}, "required": ["kind"]}

    apart = {"oneOf": [shape("circle", r={"type": "number"}), shape("square", a={"type": "number"})]}
    assert reported({"type": "object", "properties": {"x": apart}}) == {}
    assert of(apart, {"kind": "circle", "r": 1.5}, {"kind": "circle", "a": 1}, {"kind": "other"}) == [
        True,
        False,
        False,
    ]
    keys: dict[str, Any] = {"properties": {"a": {}}, "required": ["a"]}
    overlapping: tuple[list[dict[str, Any]], ...] = (
        [{"type": "string"}, {"type": ["string", "null"]}],
        [{"enum": [1, "a"]}, {"type": "integer"}],
        [{"type": ["object", "string"], "properties": {"b": {}}, "required": ["b"]}, keys],
    )
    for branches in overlapping:
        assert reported({"type": "object", "properties": {"x": {"oneOf": branches}}}) == {"/properties/x": "oneOf"}


def test_an_enum_accepts_exactly_its_values_of_every_type() -> None:
    values: list[Any] = ["a", "", 1, 1.5, -3, True, None, {"k": [1, {}]}, [], 'q"\\\n\x00\x7f😀']
    assert of({"enum": values}, *values) == [True] * len(values)
    assert of({"enum": values}, "b", 2, False, {"k": [1]}, [1]) == [False] * 5
    assert of({"const": "x"}, "x", "y") == [True, False]
    assert of({"type": "string", "enum": ["a", 1]}, "a", 1) == [True, False]
    beside = {"enum": ["a", "aa", 5, {"k": 1}], "minLength": 2, "maximum": 4, "properties": {"k": {"type": "string"}}}
    assert of(beside, "a", "aa", 5, {"k": 1}) == [False, True, False, False]
    assert of({"allOf": [{"enum": ["a", 1, "b"]}, {"enum": [1.0, "b", "c"]}]}, "a", 1, "b", "c") == [
        False,
        True,
        True,
        False,
    ]
    assert reported({"type": "object", "properties": {"x": {"enum": [{}], "not": {"$ref": "#"}}}}) == {
        "/properties/x": "not"
    }


def test_length_and_item_limits_are_enforced_up_to_the_maximum_of_llama_cpp() -> None:
    assert of({"type": "string", "minLength": 2, "maxLength": 3}, "é", "é\n", "😀😀😀", "abcd") == [
        False,
        True,
        True,
        False,
    ]
    assert of(
        {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2}, [], [1], [1, 2], [1, 2, 3]
    ) == [
        False,
        True,
        True,
        False,
    ]
    row = {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False, "minItems": 1}
    assert of(row, [], [1], [1, "a"], [1, "a", 2], ["a"]) == [False, True, True, False, False]
    long = {"type": "string", "minLength": 2_500, "maxLength": 5_000}
    many = {"type": "array", "items": {"type": "integer"}, "maxItems": 5_000}
    schema = {"type": "object", "properties": {"long": long, "many": many}}
    assert [(each.pointer, each.keyword) for each in arguments_grammar(schema).unenforced] == [
        ("/properties/long", "minLength"),
        ("/properties/long", "maxLength"),
        ("/properties/many", "maxItems"),
    ]
    assert of(long, "x" * 1_998, "x" * 1_999, "x" * 6_000) == [False, True, True]
    assert not Read(arguments_grammar(schema).text).left_recursive()


def test_unenforced_keywords_are_reported_with_their_pointers() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "a/b": {"type": "array", "uniqueItems": True, "contains": {"const": 1}},
            "n": {"type": "number", "multipleOf": 0.01, "minimum": 0.5},
            "t": {"type": "string", "pattern": "(?=x)", "format": "email"},
            "o": {"type": "object", "patternProperties": {"^x": {"type": "string"}}, "minProperties": 2},
            "u": {"type": "array", "uniqueItems": False, "items": {}},
        },
        "not": {"required": ["a/b", "n"]},
        "if": {"required": ["n"]},
        "then": {"required": ["t"]},
        "dependentRequired": {"n": ["t"]},
    }
    grammar = arguments_grammar(schema)
    assert {(each.pointer, each.keyword) for each in grammar.unenforced} == {
        ("/properties/a~1b", "uniqueItems"),
        ("/properties/a~1b", "contains"),
        ("/properties/n", "multipleOf"),
        ("/properties/n", "minimum"),
        ("/properties/t", "pattern"),
        ("/properties/t", "format"),
        ("/properties/o", "patternProperties"),
        ("/properties/o", "minProperties"),
        ("", "not"),
        ("", "if"),
        ("", "dependentRequired"),
    }
    assert all(each.why and not each.why.endswith(".") for each in grammar.unenforced)
    of_several = call_grammar({"first": {"type": "object"}, "second": schema})
    assert {each.tool for each in of_several.unenforced} == {"second"}


def test_any_characters_in_tool_names_and_keys_are_escaped() -> None:
    odd = [
        'say "hi"',
        "back\\slash",
        "line\nbreak\r\t",
        "nul\x00\x1f\x7f",
        "astral 😀 \U000e0041",
        "/#[]-^${}|",
        "é",
        "e\u0301",
    ]
    schema = {
        "type": "object",
        "properties": {name: {"enum": [name]} for name in odd},
        "required": odd,
        "additionalProperties": {"type": "null"},
    }
    grammar = call_grammar(dict.fromkeys(odd, schema))
    assert not grammar.degraded
    assert not grammar.unenforced
    assert all(ord(char) >= 0x20 or char == "\n" for char in grammar.text)
    Read(grammar.text)
    matcher = Matcher(grammar.text)
    for name in odd:
        call: dict[str, Any] = {"name": name, "arguments": {key: key for key in odd}}
        assert matcher.accepts(spelled(call)), name
        assert matcher.accepts(spelled({"name": name, "arguments": {**call["arguments"], "other": None}}))
        assert not matcher.accepts(json.dumps({"name": name + "x", **call}))
    # Each key has one spelling: with unnecessary escapes, a declared key could appear twice.
    assert not matcher.accepts(json.dumps({"name": "é", "arguments": {key: key for key in odd}}))


def test_a_lone_surrogate_degrades_only_the_tool_that_contains_it() -> None:
    broken = {"type": "object", "properties": {"\ud800": {"type": "string"}}}
    grammar = call_grammar({"broken": broken, "file": FILE})
    assert [each.tool for each in grammar.degraded] == ["broken"]
    grammar.text.encode()
    with pytest.raises(ValueError, match="surrogates"):
        call_grammar({"\ud800": FILE})


def test_a_grammar_without_tools_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one tool"):
        call_grammar({})
