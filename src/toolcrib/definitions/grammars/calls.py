"""Grammars of what a model may write: one tool's arguments, a call of one of several tools, or text or a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from toolcrib.core.errors import InvalidTool
from toolcrib.core.schema import Schema
from toolcrib.definitions.grammars.codepoints import spelled
from toolcrib.definitions.grammars.emitter import COLON, COMMA, OBJECT, ROOT, SHARED, SPACE, Emitter
from toolcrib.definitions.grammars.gbnf import Chars, Literal, Ref, Repeat, Rule, Sequence, without_dead_ends, written
from toolcrib.definitions.grammars.places import Places, TooLarge, Unenforced

_CALL = "call"
_TOOL = "call-of"
_TEXT = "text"
_TEXT_CHAR = "text-char"


@dataclass(frozen=True, slots=True)
class Envelope:
    """What is around the arguments in a call: `before`, an object of two keys, `after`.

    What models were trained on differs: Llama writes `{"name": ..., "parameters": ...}`; Hermes and Qwen put
    `<tool_call>` and a line break before it, a line break and `</tool_call>` after it.
    """

    name: str = "name"
    """The key with the tool's name, always written first: what may follow hangs on it."""
    arguments: str = "arguments"
    before: str = ""
    after: str = ""


PLAIN = Envelope()

STYLES: Mapping[str, Envelope] = {
    "plain": PLAIN,
    "hermes": Envelope(before="<tool_call>\n", after="\n</tool_call>"),
    "llama": Envelope(arguments="parameters"),
}
"""How families of models were taught to call; Qwen calls as Hermes does."""


@dataclass(frozen=True, slots=True)
class Degraded:
    """A tool whose schema is not held at all: as its arguments any JSON object may be written."""

    why: str
    """As a clause."""
    tool: str = ""
    """Its name, where the grammar is of several."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar in llama.cpp's dialect, and how far what it holds goes beyond what the schemas allow."""

    text: str
    """Rules, one on each line; the first, `root`, holds all that may be written. The same for the same input."""
    unenforced: tuple[Unenforced, ...] = ()
    """By tool in the order given, then in the order in which they were come upon."""
    degraded: tuple[Degraded, ...] = ()


def arguments_grammar(schema: Mapping[str, Any]) -> Grammar:
    """The arguments of one tool, whose input schema is `schema`."""
    rules, tool = _tool(schema, "a")
    return _grammar({ROOT: ((Ref(tool.root),),), **rules}, {"": tool})


def call_grammar(schemas: Mapping[str, Mapping[str, Any]], envelope: Envelope = PLAIN) -> Grammar:
    """A call of exactly one of some tools, whose input schemas are given by the names a model knows them by.

    Raises:
        ValueError: there is no tool, or a name or the envelope holds half a surrogate pair.
    """
    rules, tools = _calls(schemas, envelope)
    return _grammar({ROOT: ((Ref(_CALL),),), **rules}, tools)


def text_or_call_grammar(schemas: Mapping[str, Mapping[str, Any]], envelope: Envelope = PLAIN) -> Grammar:
    """A call as in `call_grammar`, or text: what begins neither as a call does nor with white space is text to its end.

    Raises:
        ValueError: as `call_grammar`.
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
    """The name of the rule for its arguments."""
    unenforced: tuple[Unenforced, ...] = ()
    degraded: str | None = None


def _calls(schemas: Mapping[str, Mapping[str, Any]], envelope: Envelope) -> tuple[dict[str, Rule], dict[str, _Tool]]:
    if not schemas:
        raise ValueError("there is no tool to call")
    (envelope.before + envelope.after).encode()
    before, after = (((Literal(text),) if text else ()) for text in (envelope.before, envelope.after))
    opening: Sequence = (*before, Literal("{"), Ref(SPACE), Literal(spelled(envelope.name)), Ref(COLON))
    # What all calls begin with is written once: llama.cpp follows every alternative, character by character.
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
    """The rules of one tool's arguments; none where it degrades."""
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
        return {}, _Tool(OBJECT, degraded="its schema is nested too deep")
    if not rules:
        return {}, _Tool(OBJECT, degraded="no arguments at all meet its schema")
    own = {name: rule for name, rule in rules.items() if name not in SHARED}
    return own, _Tool(root, tuple(places.unenforced.values()))


def _grammar(rules: Mapping[str, Rule], tools: Mapping[str, _Tool]) -> Grammar:
    return Grammar(
        written(without_dead_ends({**rules, **SHARED}, ROOT)),
        tuple(replace(each, tool=name) for name, tool in tools.items() for each in tool.unenforced),
        tuple(Degraded(tool.degraded, name) for name, tool in tools.items() if tool.degraded is not None),
    )
