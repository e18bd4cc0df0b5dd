"""Grammars for a model's output: the arguments of one tool, a call of one of several tools, or text or a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from toolcrib.core.errors import InvalidTool
from toolcrib.core.schema import Schema
from toolcrib.definitions.grammars.codepoints import spelled
from toolcrib.definitions.grammars.emitter import COLON, COMMA, OBJECT, ROOT, SHARED, SPACE, Emitter
from toolcrib.definitions.grammars.gbnf import Chars, Literal, Ref, Repeat, Rule, Sequence, without_dead_ends, written
from toolcrib.definitions.grammars.schema_places import Places, TooLarge, Unenforced

_CALL = "call"
_TOOL = "call-of"
_TEXT = "text"
_TEXT_CHAR = "text-char"


@dataclass(frozen=True, slots=True)
class Envelope:
    """The format of a call: `before`, then an object with two keys, then `after`.

    Models were trained on different formats. Llama writes `{"name": ..., "parameters": ...}`. Hermes and Qwen write
    `<tool_call>` and a line break before the object, and a line break and `</tool_call>` after it.
    """

    name: str = "name"
    """The key with the tool's name. It always comes first, because the rest depends on it."""
    arguments: str = "arguments"
    before: str = ""
    after: str = ""


PLAIN = Envelope()

STYLES: Mapping[str, Envelope] = {
    "plain": PLAIN,
    "hermes": Envelope(before="<tool_call>\n", after="\n</tool_call>"),
    "llama": Envelope(arguments="parameters"),
}
"""The call formats of model families. Qwen uses the format of Hermes."""


@dataclass(frozen=True, slots=True)
class Degraded:
    """A tool whose schema is not enforced at all: any JSON object is allowed as its arguments."""

    why: str
    """The reason, as a clause."""
    tool: str = ""
    """The name of the tool, if the grammar covers several tools."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar in llama.cpp's dialect, with everything that it allows beyond the schemas."""

    text: str
    """The rules, one on each line. The first one is `root`. The text is always the same for the same input."""
    unenforced: tuple[Unenforced, ...] = ()
    """Ordered by tool, in the order given, then by the order in which the keywords were found."""
    degraded: tuple[Degraded, ...] = ()


def arguments_grammar(schema: Mapping[str, Any]) -> Grammar:
    """Make a grammar for the arguments of one tool. `schema` is its input schema."""
    rules, tool = _tool(schema, "a")
    return _grammar({ROOT: ((Ref(tool.root),),), **rules}, {"": tool})


def call_grammar(schemas: Mapping[str, Mapping[str, Any]], envelope: Envelope = PLAIN) -> Grammar:
    """Make a grammar for a call of exactly one of several tools.

    `schemas` has the input schemas by the names that the model uses for the tools.

    Raises:
        ValueError: there is no tool, or a name or the envelope contains half of a surrogate pair.
    """
    rules, tools = _calls(schemas, envelope)
    return _grammar({ROOT: ((Ref(_CALL),),), **rules}, tools)


def text_or_call_grammar(schemas: Mapping[str, Mapping[str, Any]], envelope: Envelope = PLAIN) -> Grammar:
    """Make a grammar for a call as in `call_grammar`, or for text.

    Output that starts neither like a call nor with white space is text to its end.

    Raises:
        ValueError: for the same reasons as `call_grammar`.
    """
    rules, tools = _calls(schemas, envelope)
    opening = ord((envelope.before or "{")[0])
    apart = tuple((point, point) for point in sorted({0, 0x09, 0x0A, 0x0D, 0x20, 0x7B, opening}))
    text: dict[str, Rule] = {
        _TEXT: ((Chars(apart, negated=True), Repeat(_TEXT_CHAR)),),
        _TEXT_CHAR: ((Chars(((0, 0),), negated=True),),),
    }
    return _grammar({ROOT: ((Ref(_CALL),), (Ref(_TEXT),)), **rules, **text}, tools)


@dataclass(frozen=True, slots=True)
class _Tool:
    root: str
    """The name of the rule for the tool's arguments."""
    unenforced: tuple[Unenforced, ...] = ()
    degraded: str | None = None


def _calls(schemas: Mapping[str, Mapping[str, Any]], envelope: Envelope) -> tuple[dict[str, Rule], dict[str, _Tool]]:
    if not schemas:
        raise ValueError("the grammar needs at least one tool")
    (envelope.before + envelope.after).encode()
    before, after = (((Literal(text),) if text else ()) for text in (envelope.before, envelope.after))
    opening: Sequence = (*before, Literal("{"), Ref(SPACE), Literal(spelled(envelope.name)), Ref(COLON))
    # The common start of all calls is written once, because llama.cpp follows every alternative character by character.
    rules: dict[str, Rule] = {
        _CALL: ((*opening, Ref(_TOOL), Ref(SPACE), Literal("}"), *after),),
        _TOOL: tuple((Ref(f"t{at}"),) for at in range(len(schemas))),
    }
    tools: dict[str, _Tool] = {}
    for at, (name, schema) in enumerate(schemas.items()):
        own, tools[name] = _tool(schema, f"t{at}")
        key = Literal(spelled(envelope.arguments))
        rules[f"t{at}"] = ((Literal(spelled(name)), Ref(COMMA), key, Ref(COLON), Ref(tools[name].root)),)
        rules |= own
    return rules, tools


def _tool(schema: Mapping[str, Any], prefix: str) -> tuple[dict[str, Rule], _Tool]:
    """Return the rules for the arguments of one tool. There are no rules if its schema cannot be enforced."""
    try:
        Schema(schema)
        places = Places(schema)
        emitter = Emitter(places, prefix)
        root = emitter.emit()
        rules = without_dead_ends({**emitter.rules, **SHARED}, root)
    except InvalidTool as error:
        return {}, _Tool(OBJECT, degraded=error.message)
    except TooLarge:
        return {}, _Tool(OBJECT, degraded="its grammar would be too large")
    except RecursionError:
        return {}, _Tool(OBJECT, degraded="its schema is nested too deeply")
    if not rules:
        return {}, _Tool(OBJECT, degraded="no arguments are valid for its schema")
    own = {name: rule for name, rule in rules.items() if name not in SHARED}
    return own, _Tool(root, tuple(places.unenforced.values()))


def _grammar(rules: Mapping[str, Rule], tools: Mapping[str, _Tool]) -> Grammar:
    return Grammar(
        written(without_dead_ends({**rules, **SHARED}, ROOT)),
        tuple(replace(each, tool=name) for name, tool in tools.items() for each in tool.unenforced),
        tuple(Degraded(tool.degraded, name) for name, tool in tools.items() if tool.degraded is not None),
    )
