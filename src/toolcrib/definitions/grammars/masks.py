"""Computes masks of the next token directly from schemas, with llguidance (the extra `toolcrib[grammars]`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolcrib.definitions.grammars.call_grammars import PLAIN, Envelope
from toolcrib.definitions.grammars.codepoints import spelled

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer


class MasksUnavailable(Exception):
    """llguidance is not installed, or refuses a schema. The message says what to do."""


def call_matcher(
    tokenizer: LLTokenizer, schemas: Mapping[str, Mapping[str, Any]], envelope: Envelope = PLAIN
) -> LLMatcher:
    """Return a matcher that decides, token by token, what a model may write in a call of exactly one of several tools.

    `schemas` has the input schemas by the names that the model uses for the tools. llguidance reads the schemas itself.
    It enforces more of JSON Schema than GBNF can express, and ignores keywords that it does not know.

    Raises:
        MasksUnavailable: llguidance is not installed, or it refuses one of the schemas.
        ValueError: there is no tool.
    """
    if not schemas:
        raise ValueError("the matcher needs at least one tool")
    try:
        from llguidance import LLMatcher  # noqa: PLC0415  # an extra, which may be absent
    except ImportError as error:
        raise MasksUnavailable("llguidance is not installed: `pip install toolcrib[grammars]`") from error
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_lark(_lark(schemas, envelope)))
    if matcher.is_error():
        raise MasksUnavailable(f"llguidance refuses a schema: {matcher.get_error().splitlines()[0]}")
    return matcher


def _lark(schemas: Mapping[str, Mapping[str, Any]], envelope: Envelope) -> str:
    """Write the calls in llguidance's grammar format, with each schema embedded as a separate document."""
    lines = [f"start: {' | '.join(f'call_{at}' for at in range(len(schemas)))}"]
    for at, (name, schema) in enumerate(schemas.items()):
        opening = f"{envelope.before}{{{spelled(envelope.name)}: {spelled(name)}, {spelled(envelope.arguments)}: "
        held = {**schema, "x-guidance": {"lenient": True, "whitespace_flexible": True}}
        lines += [
            f"call_{at}: {json.dumps(opening)} arguments_{at} {json.dumps('}' + envelope.after)}",
            f"arguments_{at}: %json {json.dumps(held, ensure_ascii=False)}",
        ]
    return "\n".join(["%llguidance {}", *lines])
