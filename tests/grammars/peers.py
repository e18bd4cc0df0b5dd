"""Implementations that nobody here wrote, put one question: may this be written? does this validate?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jsonschema_rs
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from llguidance.gbnf_to_lark import gbnf_to_lark


class _Bytes:
    """Every byte is a token."""

    eos_token_id = 256
    bos_token_id = None
    tokens = (*(bytes([byte]) for byte in range(256)), b"<end>")
    special_token_ids = (256,)

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


TOKENIZER = LLTokenizer(TokenizerWrapper(_Bytes()), n_vocab=257)
LIMITS = LLParserLimits(initial_lexer_fuel=50_000_000, step_lexer_fuel=20_000_000, max_grammar_size=5_000_000)


class Matcher:
    """What a grammar lets be written, as llguidance reads it."""

    def __init__(self, gbnf: str) -> None:
        self._matcher = LLMatcher(TOKENIZER, LLMatcher.grammar_from_lark(gbnf_to_lark(gbnf)), limits=LIMITS)
        assert not self._matcher.is_error(), self._matcher.get_error()[:2000]

    def accepts(self, text: str) -> bool:
        """Whether `text` may be written from beginning to end, and end there."""
        matcher = self._matcher
        tokens = list(text.encode())
        written = matcher.consume_tokens(tokens) if matcher.validate_tokens(tokens) == len(tokens) else False
        found = written and matcher.is_accepting()
        assert matcher.reset() or not matcher.is_error(), matcher.get_error()[:2000]
        return found


def validator(schema: Mapping[str, Any]) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(dict(schema), validate_formats=True)


def spelled(value: Any) -> str:
    """The spelling that grammars hold: no escape that is not needed."""
    return json.dumps(value, ensure_ascii=False)
