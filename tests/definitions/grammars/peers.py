"""Third-party implementations: llguidance says whether a text may be written, jsonschema-rs whether it is valid."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

import jsonschema_rs
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from llguidance.gbnf_to_lark import gbnf_to_lark
from tests.definitions.grammars.instances import at


class _Bytes:
    """A tokenizer in which every byte is a token."""

    eos_token_id = 256
    bos_token_id = None
    tokens = (*(bytes([byte]) for byte in range(256)), b"<end>")
    special_token_ids = (256,)

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


TOKENIZER = LLTokenizer(TokenizerWrapper(_Bytes()), n_vocab=257)
LIMITS = LLParserLimits(initial_lexer_fuel=50_000_000, step_lexer_fuel=20_000_000, max_grammar_size=5_000_000)


class Matcher:
    """Matches texts against a grammar with llguidance."""

    def __init__(self, gbnf: str) -> None:
        self._matcher = LLMatcher(TOKENIZER, LLMatcher.grammar_from_lark(gbnf_to_lark(gbnf)), limits=LIMITS)
        assert not self._matcher.is_error(), self._matcher.get_error()[:2000]

    def accepts(self, text: str) -> bool:
        """Return whether the grammar accepts `text` as a complete text."""
        matcher = self._matcher
        tokens = list(text.encode())
        written = matcher.consume_tokens(tokens) if matcher.validate_tokens(tokens) == len(tokens) else False
        found = written and matcher.is_accepting()
        assert matcher.reset() or not matcher.is_error(), matcher.get_error()[:2000]
        return found


def validator(schema: Mapping[str, Any]) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(dict(schema), validate_formats=True)


def spelled(value: Any) -> str:
    """Write `value` as grammars do: without unnecessary escapes, and without a point in a whole number."""
    return json.dumps(_whole(value), ensure_ascii=False)


def _whole(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: _whole(inner) for key, inner in cast("dict[str, Any]", value).items()}
        case list():
            return [_whole(inner) for inner in cast("list[Any]", value)]
        case _:
            return value


def meant(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return `schema` as its author means it and as grammars read it.

    An object that lists keys allows no other keys. A keyword for objects, arrays, strings or numbers without `type`
    implies that type.
    """
    document: dict[str, Any] = {key: copy.deepcopy(said) for key, said in schema.items() if key != "$schema"}
    _imply(document)
    _close(document, document, set())
    return document


_OF_TYPES = {
    "object": ("properties", "required", "additionalProperties", "propertyNames", "minProperties", "maxProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_NAMED = ("properties", "$defs", "definitions")
_CHOICES = ("anyOf", "oneOf")
_INNER = ("items", "additionalProperties", "contains", "propertyNames")


def _imply(schema: Any) -> None:
    if type(schema) is not dict:
        return
    node = cast("dict[str, Any]", schema)
    kinds = [kind for kind, keywords in _OF_TYPES.items() if any(keyword in node for keyword in keywords)]
    if kinds and "type" not in node:
        node["type"] = kinds
    for inner in _below(node):
        _imply(inner)


def _below(node: dict[str, Any]) -> Iterator[Any]:
    for key in _NAMED:
        yield from node.get(key, {}).values()
    for key in (*_CHOICES, "allOf", "prefixItems"):
        yield from node.get(key, ())
    for key in _INNER:
        yield from _several(node.get(key))


def _several(said: Any) -> list[Any]:
    return cast("list[Any]", said) if type(said) is list else [said]


def _close(schema: Any, document: dict[str, Any], seen: set[int]) -> None:
    """Close the objects that `schema` describes, and the objects inside them."""
    if type(schema) is not dict or id(cast("object", schema)) in seen:
        return
    node = cast("dict[str, Any]", schema)
    seen.add(id(node))
    applied = list(_applied(node, document, set()))
    if set(node) & {"$ref", *_CHOICES} and "properties" not in node and "allOf" not in node:
        for key in _CHOICES:
            for branch in node.get(key, ()):
                _close(branch, document, seen)
        if "$ref" in node:
            _close(at(document, node["$ref"]), document, seen)
    elif any("properties" in part for part in applied) and not any(_welcomes(part) for part in applied):
        node["unevaluatedProperties"] = False
    for part in applied:
        for inner in part.get("properties", {}).values():
            _close(inner, document, seen)
        for key in ("items", "additionalProperties"):
            _close(part.get(key), document, seen)


def _applied(schema: Any, document: dict[str, Any], seen: set[int]) -> Iterator[dict[str, Any]]:
    if type(schema) is not dict or id(cast("object", schema)) in seen:
        return
    node = cast("dict[str, Any]", schema)
    seen.add(id(node))
    yield node
    for key in (*_CHOICES, "allOf"):
        for inner in node.get(key, ()):
            yield from _applied(inner, document, seen)
    if "$ref" in node:
        yield from _applied(at(document, node["$ref"]), document, seen)


def _welcomes(node: dict[str, Any]) -> bool:
    return node.get("additionalProperties", False) is not False or "patternProperties" in node
