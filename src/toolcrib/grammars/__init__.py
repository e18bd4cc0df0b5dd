"""JSON Schema as grammars: what a local model may write, and what providers' strict modes accept."""

from toolcrib.grammars.calls import (
    PLAIN,
    Degraded,
    Envelope,
    Grammar,
    arguments_grammar,
    call_grammar,
    text_or_call_grammar,
)
from toolcrib.grammars.places import Unenforced

__all__ = [
    "PLAIN",
    "Degraded",
    "Envelope",
    "Grammar",
    "Unenforced",
    "arguments_grammar",
    "call_grammar",
    "text_or_call_grammar",
]
