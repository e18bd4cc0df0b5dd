"""Writes the rules of a grammar for the places of one schema."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, cast

from toolcrib.core.errors import InvalidTool
from toolcrib.core.schema import Schema
from toolcrib.definitions.grammars import codepoints, numbers
from toolcrib.definitions.grammars.codepoints import CHAR, CHAR_RULES, spelled
from toolcrib.definitions.grammars.gbnf import MAX_REPEATS, Chars, Literal, Ref, Repeat, Rule, Symbol
from toolcrib.definitions.grammars.gbnf import Sequence as Symbols
from toolcrib.definitions.grammars.numbers import INTEGER, NUMBER, NUMBER_RULES, NumberRange
from toolcrib.definitions.grammars.regular_expressions import (
    ANY,
    FORMATS,
    Both,
    Either,
    OneOf,
    Times,
    Tree,
    UnheldPattern,
    lengths,
    parsed,
)
from toolcrib.definitions.grammars.schema_places import TYPES, Leaf, PlacedSchema, Places, TooLarge, fits_type

MAX_SYMBOLS = 200_000
"""The number of symbols in the rules of one schema. A larger schema is not enforced."""

CHARS_OF_A_SYMBOL = 16
"""The number of characters in literals that count as one symbol."""

MAX_VALUES = 2_000
"""The number of values of one enumeration. For a longer one, only the types are enforced."""

MAX_ALTERNATIVES = 500
"""The number of combinations of branches at one place."""

MAX_KEY_CHARS = 2_000
"""The number of characters of all declared keys of one object, if undeclared keys must differ from them."""

MAX_NESTING = 60
"""The nesting depth of a value in an enumeration."""

ROOT = "root"
VALUE = "json-value"
OBJECT = "json-object"
ARRAY = "json-array"
STRING = "json-string"
KEY_REST = "json-key-rest"
MEMBER = "json-member"
SPACE = "json-space"
COLON = "json-colon"
COMMA = "json-comma"
_MORE_MEMBERS = "json-more-member"
_MORE_ITEMS = "json-more-item"
_OBJECT_REST = "json-object-rest"
_ARRAY_REST = "json-array-rest"
_BLANK = "json-blank"
_NEVER = "json-never"

MAX_INDENT = 20
"""The number of blanks at the start of a line. Without a limit, a model could write blanks forever."""

SHARED: Mapping[str, Rule] = {
    SPACE: ((), (Literal(" "),), (Literal("\n"), Repeat(_BLANK, 0, MAX_INDENT)), (Ref(_NEVER),)),
    # Nothing ever matches this rule. llguidance makes a token of each rule that does not lead back to itself, and then
    # reads as much as possible into the token. For this reason every rule with white space leads back to itself.
    _NEVER: ((Chars(((0, codepoints.LAST),), negated=True), Ref(ROOT)),),
    _BLANK: ((Chars(((0x09, 0x09), (0x20, 0x20))),),),
    COLON: ((Literal(":"),), (Literal(": "),)),
    COMMA: ((Literal(","), Ref(SPACE)),),
    VALUE: (
        (Ref(OBJECT),),
        (Ref(ARRAY),),
        (Ref(STRING),),
        (Ref(NUMBER),),
        (Literal("true"),),
        (Literal("false"),),
        (Literal("null"),),
    ),
    OBJECT: ((Literal("{"), Ref(SPACE), Ref(_OBJECT_REST)),),
    _OBJECT_REST: ((Literal("}"),), (Ref(MEMBER), Repeat(_MORE_MEMBERS), Ref(SPACE), Literal("}"))),
    _MORE_MEMBERS: ((Ref(COMMA), Ref(MEMBER)),),
    MEMBER: ((Ref(STRING), Ref(COLON), Ref(VALUE)),),
    ARRAY: ((Literal("["), Ref(SPACE), Ref(_ARRAY_REST)),),
    _ARRAY_REST: ((Literal("]"),), (Ref(VALUE), Repeat(_MORE_ITEMS), Ref(SPACE), Literal("]"))),
    _MORE_ITEMS: ((Ref(COMMA), Ref(VALUE)),),
    STRING: ((Literal('"'), Repeat(CHAR), Literal('"')),),
    KEY_REST: ((Repeat(CHAR), Literal('"')),),
    **CHAR_RULES,
    **NUMBER_RULES,
}
"""The rules for plain JSON. The rules of a schema refer to them."""

_IGNORED = {
    "object": ("not", "if", "dependentRequired", "dependentSchemas", "dependencies", "patternProperties"),
    "array": ("not", "if", "contains", "uniqueItems", "unevaluatedItems"),
}
_CANNOT = {
    "not": "a grammar cannot exclude values",
    "if": "a grammar cannot depend on earlier output",
    "dependentRequired": "a grammar cannot depend on earlier output",
    "dependentSchemas": "a grammar cannot depend on earlier output",
    "dependencies": "a grammar cannot depend on earlier output",
    "patternProperties": "keys are not matched with patterns",
    "contains": "items are not distinguished",
    "uniqueItems": "a grammar cannot depend on earlier output",
    "unevaluatedItems": "items are not distinguished",
}
_SILENT: Mapping[str, tuple[object, ...]] = {
    "not": ({},),
    "uniqueItems": (False,),
    "unevaluatedItems": (True, {}),
    "patternProperties": ({},),
}
"""Values with which these keywords have no effect."""


@dataclass
class Emitter:
    """Writes the rules for the places of one schema. The names of the rules start with `prefix`."""

    places: Places
    prefix: str
    rules: dict[str, Rule] = field(default_factory=dict[str, Rule])
    _names: dict[tuple[tuple[str, ...], bool], str] = field(default_factory=dict[tuple[tuple[str, ...], bool], str])
    _waiting: list[tuple[str, tuple[str, ...], bool]] = field(default_factory=list[tuple[str, tuple[str, ...], bool]])
    _count: int = 0
    _symbols: int = 0

    def emit(self) -> str:
        """Write all rules, and return the name of the rule for the arguments, which are always an object.

        Raises:
            TooLarge: there would be too many rules.
        """
        root = self._place(("",), "arguments", only_object=True)
        while self._waiting:
            name, pointers, only_object = self._waiting.pop()
            self._set(name, self._alternatives(pointers, only_object=only_object))
        return root

    def _set(self, name: str, rule: Rule) -> None:
        self._symbols += sum(len(sequence) + 1 for sequence in rule)
        texts = (symbol.text for sequence in rule for symbol in sequence if isinstance(symbol, Literal))
        self._symbols += sum(map(len, texts)) // CHARS_OF_A_SYMBOL
        if self._symbols > MAX_SYMBOLS:
            raise TooLarge
        self.rules[name] = rule

    def _new(self, hint: str) -> str:
        self._count += 1
        slug = re.sub(r"[^a-z0-9]+", "-", hint[:40].lower())[:24].strip("-")
        return f"{self.prefix}-{self._count}{f'-{slug}' if slug else ''}"

    def _rule(self, hint: str, rule: Iterable[Symbols]) -> str:
        name = self._new(hint)
        self._set(name, tuple(rule))
        return name

    def _place(self, pointers: Sequence[str], hint: str, *, only_object: bool = False) -> str:
        """Return the name of the rule for values that match the schemas at all `pointers`. The rule is written
        later."""
        key = (tuple(dict.fromkeys(pointers)), only_object)
        if not key[0] and not only_object:
            return VALUE
        if key not in self._names:
            self._names[key] = self._new(hint)
            self._waiting.append((self._names[key], *key))
        return self._names[key]

    def _alternatives(self, pointers: tuple[str, ...], *, only_object: bool) -> Rule:
        found: list[list[Symbols]] = []
        for leaf in self.places.leaves(pointers, MAX_ALTERNATIVES):
            found += self._of_leaf(leaf, leaf.types & {"object"} if only_object else leaf.types)
        if len(found) > 1:  # a string or number of several symbols becomes one rule, which readers treat as one token
            found = [self._as_one(kind) for kind in found]
        return tuple(dict.fromkeys(sequence for kind in found for sequence in kind))

    def _as_one(self, kind: list[Symbols]) -> list[Symbols]:
        is_token = not any(isinstance(symbol, Ref) and symbol.rule == SPACE for sequence in kind for symbol in sequence)
        is_simple = all(len(sequence) == 1 for sequence in kind)
        return [(Ref(self._rule("", kind)),)] if is_token and not is_simple else kind

    def _of_leaf(self, leaf: Leaf, types: frozenset[str]) -> list[list[Symbols]]:
        """Return the alternatives, grouped by type."""
        if leaf.values is not None:
            part, values = leaf.values
            if len(values) <= MAX_VALUES:
                return [self._enumerated(leaf, part, values, types)]
            self.places.report(part.pointer, "enum", f"it has more than {MAX_VALUES:,} values")
            types = frozenset(name for name in types if any(fits_type(v, frozenset({name})) for v in values))
        if types == frozenset(TYPES) and not any(part.schema.keys() & _SAYING for part in leaf.parts):
            return [[(Ref(VALUE),)]]
        named = [name for name in TYPES if name in types and not (name == "integer" and "number" in types)]
        return [self._by_type[name](self, leaf) for name in named]

    # Enumerations

    def _enumerated(
        self, leaf: Leaf, part: PlacedSchema, values: Sequence[Any], types: frozenset[str]
    ) -> list[Symbols]:
        found: list[Symbols] = []
        for value in self._fitting([value for value in values if fits_type(value, types)], leaf, part):
            try:
                found.append(_joined(_constant(value)))
            except (UnicodeEncodeError, _TooDeep, ValueError, OverflowError):
                continue  # no string can represent it, or it is not worth writing
        return found

    def _fitting(self, values: list[Any], leaf: Leaf, enumerating: PlacedSchema) -> list[Any]:
        """Return the `values` that match all keywords except the enumeration of the part `enumerating`."""
        for part in leaf.parts:
            values = self._formatted(values, part)
            others: dict[str, Any] = {key: part.schema[key] for key in _CHECKED_VALUES if key in part.schema}
            if part.pointer != enumerating.pointer:
                others |= {key: part.schema[key] for key in ("enum", "const") if key in part.schema}
            if not others:
                continue
            check = _alone(others)
            if check is not None:
                values = [value for value in values if check.is_valid(value)]
                continue
            for keyword in others:
                self.places.report(part.pointer, keyword, "it is not enforced next to an enumeration")
        return values

    def _formatted(self, values: list[Any], part: PlacedSchema) -> list[Any]:
        said = part.get("format", str)
        if said in FORMATS:
            return [value for value in values if not isinstance(value, str) or re.search(FORMATS[said], value)]
        if said is not None and any(isinstance(value, str) for value in values):
            self.places.report(part.pointer, "format", f"only these formats are enforced: {', '.join(FORMATS)}")
        return values

    # Objects

    def _object(self, leaf: Leaf) -> list[Symbols]:
        self._report_ignored(leaf, "object")
        declared = {name: pointers for name, pointers in leaf.declared().items() if _can_be_written(name)}
        required = set(leaf.required())
        if declared:
            for pointer in self._key_schemas(leaf):
                self.places.report(pointer, "propertyNames", "it is not enforced if keys are declared")
        least = max((part.get("minProperties", int) or 0 for part in leaf.parts), default=0)
        is_closed = leaf.closes()
        if not is_closed and not declared and not leaf.of_other_keys() and not self._key_schemas(leaf) and least == 0:
            self._report_counts(leaf, declared, required, is_closed=False)
            return [] if required else [(Ref(OBJECT),)]
        self._report_counts(leaf, declared, required, is_closed=is_closed)
        if any(not _can_be_written(name) for name in required):
            return []
        more = None if is_closed else self._other_member(leaf, declared)
        return [(Literal("{"), Ref(SPACE), Ref(self._members(declared, required, more, may_be_empty=least == 0)))]

    def _members(
        self, declared: Mapping[str, tuple[str, ...]], required: set[str], more: str | None, *, may_be_empty: bool
    ) -> str:
        """Return the rule for the rest of an object after its opening brace.

        The keys are in order. Any subset with all required keys is allowed. The number of rules is linear.
        """
        end: Symbols = (Ref(SPACE), Literal("}"))
        if more is not None:
            end = (Repeat(self._rule("more", [(Ref(COMMA), Ref(more))])), *end)
        rest = self._rule("end", [end])  # the rest of the object after at least one member
        members: list[tuple[str, Symbols, str]] = []
        for name in reversed(list(declared)):
            member: Symbols = (Literal(spelled(name)), Ref(COLON), Ref(self._place(declared[name], name)))
            members.append((name, member, rest))
            following: list[Symbols] = [(Ref(COMMA), *member, Ref(rest))]
            if name not in required:
                following.append((Ref(rest),))
            rest = self._rule(f"after-{name}", following)
        first: list[Symbols] = []
        for name, member, after in reversed(members):
            first.append((*member, Ref(after)))
            if name in required:
                break
        else:
            if more is not None:
                first.append((Ref(more), *end))
            if may_be_empty:
                first.append((Literal("}"),))
        return self._rule("members", first)

    def _other_member(self, leaf: Leaf, declared: Mapping[str, tuple[str, ...]]) -> str:
        """Return the rule for an undeclared key with its value."""
        value = self._place(leaf.of_other_keys(), "other")
        names = self._key_schemas(leaf)
        if not declared and names:
            found: list[Symbols] = []
            for key in self.places.leaves([f"{pointer}/propertyNames" for pointer in names], MAX_ALTERNATIVES):
                found += [sequence for kind in self._of_leaf(key, key.types & {"string"}) for sequence in kind]
            return self._rule("member", [(Ref(self._rule("key", found)), Ref(COLON), Ref(value))])
        if sum(map(len, declared)) > MAX_KEY_CHARS:
            self.places.report(
                leaf.parts[0].pointer, "properties", "a declared key may also appear as an undeclared key"
            )
            declared = {}
        key = self._rule("key", [(Literal('"'), Ref(self._key_apart(declared)))]) if declared else STRING
        return self._rule("member", [(Ref(key), Ref(COLON), Ref(value))])

    def _key_schemas(self, leaf: Leaf) -> list[str]:
        """Return the pointers of the parts whose `propertyNames` says more than that keys are strings."""
        return [part.pointer for part in leaf.parts if "propertyNames" in part.schema and not _is_any_text(part)]

    def _key_apart(self, names: Iterable[str]) -> str:
        """Return the rule for the rest of a key after its opening quote that differs from all `names`, as a tree of
        letters."""
        tree: dict[int, Any] = {}
        for name in names:
            node = tree
            for char in name:
                node = node.setdefault(ord(char), {})
            node[-1] = True
        return self._key_node(tree)

    def _key_node(self, tree: dict[int, Any]) -> str:
        done: dict[int, str] = {}
        waiting: list[tuple[dict[int, Any], bool]] = [(tree, False)]
        while waiting:  # children before their parents, without recursion: a key may be long
            node, is_ready = waiting.pop()
            if not is_ready:
                waiting.append((node, True))
                waiting += [(child, False) for point, child in node.items() if point >= 0]
                continue
            points = sorted(point for point in node if point >= 0)
            rule: list[Symbols] = [] if -1 in node else [(Literal('"'),)]
            rule += [(Literal(spelled(chr(point))[1:-1]), Ref(done[id(node[point])])) for point in points]
            other = codepoints.one_of(codepoints.complement(codepoints.normal((p, p) for p in points)))
            rule += [(*one, Ref(KEY_REST)) for one in other]
            done[id(node)] = self._rule("key", rule)
        return done[id(tree)]

    def _report_counts(
        self, leaf: Leaf, declared: Mapping[str, object], required: set[str], *, is_closed: bool
    ) -> None:
        for part in leaf.parts:
            least = part.get("minProperties", int)
            if least is not None and least > max(len(required), 1):
                self.places.report(part.pointer, "minProperties", "keys are not counted")
            most = part.get("maxProperties", int)
            if most is not None and not (is_closed and len(declared) <= most):
                self.places.report(part.pointer, "maxProperties", "keys are not counted")
            more = part.schema.get("unevaluatedProperties")
            sees_all = part is leaf.parts[0] and leaf.is_lone
            if (isinstance(more, Mapping) and more) or (more is False and not sees_all):
                self.places.report(part.pointer, "unevaluatedProperties", "keys are not distinguished")

    def _report_ignored(self, leaf: Leaf, kind: str) -> None:
        for part in leaf.parts:
            for keyword in _IGNORED.get(kind, ("not", "if")):
                if keyword in part.schema and part.schema[keyword] not in _SILENT.get(keyword, ()):
                    self.places.report(part.pointer, keyword, _CANNOT[keyword])

    # Arrays

    def _array(self, leaf: Leaf) -> list[Symbols]:
        self._report_ignored(leaf, "array")
        least = max((part.get("minItems", int) or 0 for part in leaf.parts), default=0)
        mosts = [most for part in leaf.parts if (most := part.get("maxItems", int)) is not None]
        most = min(mosts) if mosts else None
        ahead = max((len(_ahead(part)) for part in leaf.parts), default=0)
        if most is not None and most < least:
            return []
        if least > ahead + MAX_REPEATS:
            self._report_bounds(leaf, "minItems")
            least = ahead + MAX_REPEATS
        if most is not None and most > ahead + MAX_REPEATS:
            self._report_bounds(leaf, "maxItems")
            most = None
        if ahead > MAX_REPEATS:
            raise TooLarge
        end: Symbols = (Ref(SPACE), Literal("]"))
        item = self._place(tuple(self._item(leaf, ahead)), "item")
        rest = self._rule("more", [(*self._repeated_items(item, least - ahead, most, ahead), *end)])
        for at in reversed(range(ahead)):
            place = self._place(tuple(self._item(leaf, at)), f"item-{at}")
            head: Symbols = (Ref(place), Ref(rest)) if at == 0 else (Ref(COMMA), Ref(place), Ref(rest))
            found: list[Symbols] = [head] if most is None or at < most else []
            if at >= least:
                found.append((Literal("]"),) if at == 0 else end)
            rest = self._rule(f"from-{at}", found)
        if ahead == 0:
            found = [] if most == 0 else [(Ref(item), *self._repeated_items(item, least - 1, most, 1), *end)]
            if least == 0:
                found.append((Literal("]"),))
            rest = self._rule("items", found)
        return [(Literal("["), Ref(SPACE), Ref(rest))]

    def _repeated_items(self, item: str, least: int, most: int | None, written: int) -> Symbols:
        """Return symbols for further items, each after a comma, when `written` items exist already."""
        left = None if most is None else most - written
        if left is not None and left <= 0:
            return ()
        again = self._rule("next", [(Ref(COMMA), Ref(item))])
        if left is not None and left > MAX_REPEATS:
            left = None
        return (Repeat(again, min(max(least, 0), MAX_REPEATS), left),)

    def _item(self, leaf: Leaf, at: int) -> Iterable[str]:
        for part in leaf.parts:
            ahead = _ahead(part)
            if at < len(ahead):
                yield ahead[at]
            elif isinstance(part.schema.get("items"), list):
                if "additionalItems" in part.schema:
                    yield f"{part.pointer}/additionalItems"
            elif "items" in part.schema:
                yield f"{part.pointer}/items"

    def _report_bounds(self, leaf: Leaf, keyword: str) -> None:
        for part in leaf.parts:
            bound = part.get(keyword, int)
            if bound is not None and bound > MAX_REPEATS:
                self.places.report(part.pointer, keyword, f"a grammar counts at most {MAX_REPEATS:,}")

    # Texts

    def _string(self, leaf: Leaf) -> list[Symbols]:
        self._report_ignored(leaf, "string")
        least = max((part.get("minLength", int) or 0 for part in leaf.parts), default=0)
        mosts = [most for part in leaf.parts if (most := part.get("maxLength", int)) is not None]
        most = min(mosts) if mosts else None
        if most is not None and most < least:
            return []
        tree = self._first_held(leaf)
        if tree is not None:
            shortest, longest = lengths(tree)
            for part in leaf.parts:
                if (part.get("minLength", int) or 0) > shortest:
                    self.places.report(
                        part.pointer, "minLength", "characters are not counted next to a pattern or format"
                    )
                bound = part.get("maxLength", int)
                if bound is not None and (longest is None or longest > bound):
                    self.places.report(
                        part.pointer, "maxLength", "characters are not counted next to a pattern or format"
                    )
            return [_joined((Literal('"'), *self._spelled(tree), Literal('"')))]
        if least > MAX_REPEATS:
            self._report_bounds(leaf, "minLength")
            least = MAX_REPEATS
        if most is not None and most > MAX_REPEATS:
            self._report_bounds(leaf, "maxLength")
            most = None
        if least == 0 and most is None:
            return [(Ref(STRING),)]
        inside: Symbols = () if most == 0 else (Repeat(CHAR, least, most),)
        return [(Literal('"'), *inside, Literal('"'))]

    def _first_held(self, leaf: Leaf) -> Tree | None:
        """Return the first of all patterns and formats that can be enforced. The others are reported."""
        held: Tree | None = None
        for part in leaf.parts:
            for keyword in ("pattern", "format"):
                said = part.get(keyword, str)
                if said is None:
                    continue
                if keyword == "format" and said not in FORMATS:
                    self.places.report(part.pointer, keyword, f"only these formats are enforced: {', '.join(FORMATS)}")
                elif held is not None:
                    self.places.report(part.pointer, keyword, "only one of several patterns and formats is enforced")
                else:
                    try:
                        held = parsed(FORMATS[said] if keyword == "format" else said)
                    except UnheldPattern as error:
                        self.places.report(part.pointer, keyword, str(error))
        return held

    def _spelled(self, tree: Tree) -> Symbols:
        """Return the symbols for the strings of a pattern, spelled as in a JSON string."""
        match tree:
            case OneOf(ranges) if ranges == ANY:
                return (Ref(CHAR),)
            case OneOf(ranges):
                one = codepoints.one_of(ranges)
                if len(ranges) == 1 and ranges[0][0] == ranges[0][1] and one:
                    return (Literal(spelled(chr(ranges[0][0]))[1:-1]),)
                return one[0] if len(one) == 1 else (Ref(self._rule("char", one)),)
            case Both(parts):
                return tuple(symbol for part in parts for symbol in self._spelled(part))
            case Either(parts):
                return (Ref(self._rule("either", [_joined(self._spelled(part)) for part in parts])),)
            case Times(part, least, most):
                inside = self._spelled(part)
                is_rule = len(inside) == 1 and isinstance(inside[0], Ref)
                name = cast("Ref", inside[0]).rule if is_rule else self._rule("part", [_joined(inside)])
                return (Repeat(name, least, most),)

    # Numbers, and the rest

    def _number(self, leaf: Leaf) -> list[Symbols]:
        return self._numeric(leaf, is_integer=False)

    def _integer(self, leaf: Leaf) -> list[Symbols]:
        return self._numeric(leaf, is_integer=True)

    def _numeric(self, leaf: Leaf, *, is_integer: bool) -> list[Symbols]:
        self._report_ignored(leaf, "number")
        bounds = NumberRange()
        for part in leaf.parts:
            step = part.get("multipleOf", (int, float))
            if step is not None and step != 1:
                self.places.report(part.pointer, "multipleOf", "a grammar cannot divide")
            is_integer |= step == 1
        for part in leaf.parts:
            bounds = self._within(bounds, part, is_integer=is_integer)
        if is_integer:
            return [(Ref(INTEGER),)] if bounds.is_open else list(numbers.integers(bounds))
        return [(Ref(NUMBER),)] if bounds.is_open else list(numbers.numbers(bounds))

    def _within(self, bounds: NumberRange, part: PlacedSchema, *, is_integer: bool) -> NumberRange:
        low, high, no_low, no_high = bounds.low, bounds.high, bounds.excludes_low, bounds.excludes_high
        for keyword in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"):
            said = part.get(keyword, (int, float))
            if said is None or not math.isfinite(said):
                continue
            is_strict = (
                keyword.startswith("exclusive")
                or part.schema.get(f"exclusive{keyword[0].upper()}{keyword[1:]}") is True
            )
            bound = Fraction(str(said))
            if not is_integer and not numbers.can_hold(bound):
                self.places.report(part.pointer, keyword, "a bound of numbers must be an integer with few digits")
            elif keyword.lower().endswith("minimum") and (low is None or (bound, is_strict) > (low, no_low)):
                low, no_low = bound, is_strict
            elif keyword.lower().endswith("maximum") and (high is None or (-bound, is_strict) > (-high, no_high)):
                high, no_high = bound, is_strict
        return NumberRange(low, high, no_low, no_high)

    def _boolean(self, leaf: Leaf) -> list[Symbols]:
        self._report_ignored(leaf, "boolean")
        return [(Literal("true"),), (Literal("false"),)]

    def _null(self, leaf: Leaf) -> list[Symbols]:
        self._report_ignored(leaf, "null")
        return [(Literal("null"),)]

    _by_type: Mapping[str, Callable[[Emitter, Leaf], list[Symbols]]] = field(
        init=False,
        default_factory=lambda: {
            "object": Emitter._object,
            "array": Emitter._array,
            "string": Emitter._string,
            "number": Emitter._number,
            "integer": Emitter._integer,
            "boolean": Emitter._boolean,
            "null": Emitter._null,
        },
    )


_SAYING = frozenset(
    {
        *("properties", "required", "additionalProperties", "propertyNames", "minProperties", "maxProperties"),
        *("items", "prefixItems", "additionalItems", "minItems", "maxItems", "minLength", "maxLength", "pattern"),
        *("format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "unevaluatedItems"),
        *("unevaluatedProperties", "patternProperties", "not", "if", "contains", "uniqueItems"),
        *("dependentRequired", "dependentSchemas", "dependencies"),
    }
)


_CHECKED_VALUES = sorted(_SAYING - {"format", "unevaluatedProperties", "unevaluatedItems"} | {"then", "else"})


class _TooDeep(Exception):
    """A value is nested so deeply that it is left out."""


def _constant(value: Any, depth: int = 0) -> Symbols:
    """Return symbols for exactly this JSON value. White space between its tokens is allowed as everywhere."""
    if depth > MAX_NESTING:
        raise _TooDeep
    match value:
        case str():
            return (Literal(spelled(value)),)
        case None | bool() | int() | float():
            return (Literal(json.dumps(value, allow_nan=False)),)
        case Mapping():
            pairs = cast("Mapping[str, Any]", value).items()
            parts = [(Literal(spelled(key)), Ref(COLON), *_constant(inner, depth + 1)) for key, inner in pairs]
            return _listing("{", parts, "}")
        case _:
            return _listing("[", [_constant(inner, depth + 1) for inner in cast("Sequence[Any]", value)], "]")


def _listing(opening: str, parts: Sequence[Symbols], closing: str) -> Symbols:
    inside: list[Symbol] = []
    for at, part in enumerate(parts):
        inside += [Ref(COMMA), *part] if at else part
    return (Literal(opening), Ref(SPACE), *inside, *((Ref(SPACE),) if parts else ()), Literal(closing))


def _joined(symbols: Symbols) -> Symbols:
    """Return the same symbols with neighbouring literals joined."""
    found: list[Symbol] = []
    for symbol in symbols:
        if isinstance(symbol, Literal) and found and isinstance(last := found[-1], Literal):
            found[-1] = Literal(last.text + symbol.text)
        else:
            found.append(symbol)
    return tuple(found)


def _alone(schema: Mapping[str, Any]) -> Schema | None:
    """Compile these keywords alone. None if they refer to the rest, or if a pattern could backtrack forever."""
    if '"$' in json.dumps(schema):
        return None
    try:
        parsed(schema.get("pattern", ""))
        return Schema(schema)
    except (InvalidTool, UnheldPattern):
        return None


def _ahead(part: PlacedSchema) -> list[str]:
    """Return the pointers of the schemas for the first items."""
    for keyword in ("prefixItems", "items"):
        listed = part.get(keyword, list)
        if listed is not None:
            return [f"{part.pointer}/{keyword}/{at}" for at in range(len(listed))]
    return []


def _can_be_written(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_any_text(part: PlacedSchema) -> bool:
    names: object = part.schema["propertyNames"]
    return names in (True, {}, {"type": "string"})
