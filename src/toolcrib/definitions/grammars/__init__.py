"""Turns JSON Schema into grammars for local models, and into schemas for the strict modes of providers."""

from toolcrib.definitions.grammars.call_grammars import (
    PLAIN,
    STYLES,
    Degraded,
    Envelope,
    Grammar,
    arguments_grammar,
    call_grammar,
    text_or_call_grammar,
)
from toolcrib.definitions.grammars.schema_places import Unenforced
from toolcrib.definitions.grammars.strict import StrictSchema, strict_schema

__all__ = [
    "PLAIN",
    "STYLES",
    "Degraded",
    "Envelope",
    "Grammar",
    "StrictSchema",
    "Unenforced",
    "arguments_grammar",
    "call_grammar",
    "strict_schema",
    "text_or_call_grammar",
]
