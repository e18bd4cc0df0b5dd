"""Collects what a schema says about one place in a value: keywords, those of `$ref`s and `allOf`s, and choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast
from urllib.parse import unquote

from toolcrib.core.schema import type_name
from toolcrib.core.subschemas import at_reference

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")

_IMPLIED = {
    "properties": "object",
    "required": "object",
    "additionalProperties": "object",
    "patternProperties": "object",
    "propertyNames": "object",
    "minProperties": "object",
    "maxProperties": "object",
    "items": "array",
    "prefixItems": "array",
    "minItems": "array",
    "maxItems": "array",
    "minLength": "string",
    "maxLength": "string",
    "pattern": "string",
    "format": "string",
    "minimum": "number",
    "maximum": "number",
    "exclusiveMinimum": "number",
    "exclusiveMaximum": "number",
    "multipleOf": "number",
}
"""The type that an author means who gives a keyword but no type. JSON Schema itself would allow every other type
too."""

_OLD = ("draft-03", "draft-04", "draft-05", "draft-06", "draft-07", "draft-3", "draft-4", "draft-6", "draft-7")


MAX_STEPS = 100_000
"""The number of schemas that are visited for one grammar. Repeated visits count each time."""


class TooLarge(Exception):
    """The schema is so large that a grammar for it would be of no use."""


@dataclass(frozen=True, slots=True)
class Unenforced:
    """A keyword that a grammar does not enforce. A model may write what the keyword forbids."""

    pointer: str
    """The place of the schema with the keyword, as a JSON Pointer into the tool's input schema (RFC 6901)."""
    keyword: str
    why: str
    """The reason, as a clause."""
    tool: str = ""
    """The name of the tool, if the grammar covers several tools."""


@dataclass(frozen=True, slots=True)
class PlacedSchema:
    """One schema that applies to a place, and its JSON Pointer."""

    pointer: str
    schema: Mapping[str, Any]

    def get(self, keyword: str, kind: type | tuple[type, ...]) -> Any:
        """Return the value of `keyword`. None if it is missing or not of type `kind`."""
        value = self.schema.get(keyword)
        return value if isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool) else None

    def schemas(self, keyword: str) -> dict[str, str]:
        """Return the pointers of the schemas under `keyword`, by their names."""
        found = cast("Mapping[str, Any]", self.get(keyword, Mapping) or {})
        return {str(name): f"{self.pointer}/{keyword}/{escaped(str(name))}" for name in found}


@dataclass(frozen=True, slots=True)
class Leaf:
    """Parts that all apply to one place, without open choices. With `never`, no value is valid."""

    parts: tuple[PlacedSchema, ...]
    never: bool = False
    is_lone: bool = False
    """Whether the first part, with everything that it refers to, is the only one at this place."""

    @property
    def types(self) -> frozenset[str]:
        """The allowed JSON types. `number` includes `integer`."""
        said = [part for part in self.parts if "type" in part.schema]
        found = frozenset(TYPES)
        for part in said:
            named = part.schema["type"]
            names = {named} if isinstance(named, str) else {str(name) for name in cast("Sequence[object]", named)}
            if "number" in names:
                names.add("integer")
            found &= names
        if not said and (implied := {_IMPLIED[key] for part in self.parts for key in part.schema if key in _IMPLIED}):
            return frozenset(implied | ({"integer"} if "number" in implied else set()))
        return found

    @property
    def values(self) -> tuple[PlacedSchema, Sequence[Any]] | None:
        """The first enumeration and its part. `const` counts as an enumeration of one value. None if neither exists."""
        for part in self.parts:
            if "const" in part.schema:
                return part, (part.schema["const"],)
            if (listed := part.get("enum", list)) is not None:
                return part, listed
        return None

    def closes(self) -> bool:
        """Whether only declared keys are allowed.

        This is the case unless a part allows others, or no part declares keys: an author who lists keys means these.
        """
        is_welcoming = False
        for part in self.parts:
            for keyword in ("additionalProperties", "unevaluatedProperties"):
                more = part.schema.get(keyword)
                if more is False and not part.schema.get("patternProperties"):
                    return True
                is_welcoming |= more is not None and more is not False
            is_welcoming |= bool(part.schema.get("patternProperties"))
        return not is_welcoming and any("properties" in part.schema for part in self.parts)

    def declared(self) -> dict[str, tuple[str, ...]]:
        """Return the pointers of the schemas of each declared key, in order of first mention.

        Required keys without a schema come last.

        Raises:
            TooLarge: there are more keys than can be visited.
        """
        found: dict[str, dict[str, str]] = {}
        for part in self.parts:
            for name, pointer in part.schemas("properties").items():
                found.setdefault(name, {})[part.pointer] = pointer
        for name in self.required():
            found.setdefault(name, {})
        closing = [
            part.pointer
            for part in self.parts
            if "additionalProperties" in part.schema and not part.schema.get("patternProperties")
        ]
        if len(closing) * len(found) > MAX_STEPS:
            raise TooLarge
        return {
            name: (*own.values(), *(f"{pointer}/additionalProperties" for pointer in closing if pointer not in own))
            for name, own in found.items()
        }

    def required(self) -> tuple[str, ...]:
        listed = (cast("list[object]", part.get("required", list) or []) for part in self.parts)
        return tuple(dict.fromkeys(name for names in listed for name in names if isinstance(name, str)))

    def of_other_keys(self) -> tuple[str, ...]:
        """Return the pointers of the schemas that the value of an undeclared key must match."""
        return tuple(
            f"{part.pointer}/additionalProperties"
            for part in self.parts
            if isinstance(part.schema.get("additionalProperties"), Mapping) and not part.schema.get("patternProperties")
        )


@dataclass
class Places:
    """Finds the schemas that apply to each place of one document, and records the keywords that it had to leave out."""

    document: Mapping[str, Any]
    unenforced: dict[tuple[str, str], Unenforced] = field(default_factory=dict[tuple[str, str], Unenforced])

    def __post_init__(self) -> None:
        dialect = self.document.get("$schema")
        self._steps = 0
        self._is_old = isinstance(dialect, str) and any(old in dialect for old in _OLD)

    def report(self, pointer: str, keyword: str, why: str) -> None:
        self.unenforced.setdefault((pointer, keyword), Unenforced(pointer, keyword, why))

    def flat(self, pointers: Sequence[str]) -> Leaf:
        """Return all parts that apply where the schemas at `pointers` apply. Follows `$ref` and `allOf`; choices stay
        open.

        Each part is included once. (`Schema` refuses a schema that leads back to itself at the same place.)

        Raises:
            TooLarge: more than `MAX_STEPS` schemas were visited.
        """
        seen: dict[str, PlacedSchema] = {}
        never = False
        waiting = list(reversed(pointers))
        while waiting:
            pointer = waiting.pop()
            if pointer in seen:
                continue
            schema = at_reference(self.document, _fragment(pointer))
            if schema is False:
                never = True
            part = PlacedSchema(pointer, cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {})
            if self._is_old and "$ref" in part.schema:  # in old dialects, `$ref` hides the keywords next to it
                part = PlacedSchema(pointer, {"$ref": part.schema["$ref"]})
            if pointer and isinstance(part.schema.get("$id"), str):
                self.report(pointer, "$id", "references are resolved only from the top of the schema")
            seen[pointer] = part
            self._steps += 1
            if self._steps > MAX_STEPS:
                raise TooLarge
            waiting += reversed([*self._referred(part), *_listed(part, "allOf")])
        return Leaf(tuple(seen.values()), never)

    def _referred(self, part: PlacedSchema) -> list[str]:
        for keyword in ("$dynamicRef", "$recursiveRef"):
            if keyword in part.schema:
                self.report(part.pointer, keyword, "its target depends on the schema that refers to it")
        ref = part.schema.get("$ref")
        if ref is None:
            return []
        if not isinstance(ref, str) or at_reference(self.document, ref) is None:
            self.report(part.pointer, "$ref", "only JSON Pointers within the schema are resolved")
            return []
        return ["".join("/" + step for step in unquote(ref).split("/")[1:])]

    def leaves(self, pointers: Sequence[str], most: int) -> list[Leaf]:
        """Return the alternatives of a place, each with one branch of every `anyOf` and `oneOf`. At most `most`."""
        found: dict[tuple[tuple[str, ...], bool], Leaf] = {}
        waiting: list[tuple[tuple[str, ...], frozenset[tuple[str, str]]]] = [(tuple(pointers), frozenset())]
        tried: set[tuple[tuple[str, ...], frozenset[tuple[str, str]]]] = set()
        while waiting:
            place, settled = waiting.pop()
            leaf = self.flat(place)
            key = tuple(part.pointer for part in leaf.parts)
            if (key, settled) in tried or leaf.never:
                continue
            tried.add((key, settled))
            choice = next(
                (
                    (part, keyword)
                    for part in leaf.parts
                    for keyword in ("anyOf", "oneOf")
                    if part.get(keyword, list) and (part.pointer, keyword) not in settled
                ),
                None,
            )
            if choice is None:
                found.setdefault((key, leaf.never), replace(leaf, is_lone=len(set(pointers)) == 1))
                continue
            part, keyword = choice
            branches = _listed(part, keyword)
            settled |= {(part.pointer, keyword)}
            if len(found) + len(waiting) + len(branches) > most:
                self.report(part.pointer, keyword, f"there are more than {most:,} alternatives in one place")
                waiting.append((key, settled))
                continue
            if keyword == "oneOf":
                self._look_for_overlaps(key, part, branches)
            waiting += [((*key, branch), settled) for branch in reversed(branches)]
        return list(found.values())

    def _look_for_overlaps(self, place: tuple[str, ...], part: PlacedSchema, branches: list[str]) -> None:
        """Report a `oneOf` unless the output for one branch can never match a different branch."""
        if len(branches) > MAX_COMPARED:
            self.report(part.pointer, "oneOf", f"only up to {MAX_COMPARED} alternatives are compared")
            return
        rest = tuple(pointer for pointer in place if pointer != part.pointer)
        leaves = [self.flat((*rest, part.pointer, branch)) for branch in branches]
        own = [self.flat((branch,)) for branch in branches]
        for at, one in enumerate(leaves):
            for other_at in range(at + 1, len(leaves)):
                if not self._are_apart(one, leaves[other_at], own[at], own[other_at]):
                    self.report(part.pointer, "oneOf", "a value may match several of its alternatives")
                    return

    def _are_apart(self, one: Leaf, other: Leaf, own: Leaf, other_own: Leaf) -> bool:
        if one.never or other.never or _never_meet(own, other_own):
            return True
        # Output follows the intended types, validation follows the declared types.
        if ((one.types & _said_types(other)) | (other.types & _said_types(one))) - {"object"}:
            return False
        if _lacks_required(one, other) and _lacks_required(other, one):
            return True  # output for one of them never has all the keys that the other needs
        first, second = own.declared(), other_own.declared()
        both = sorted({*own.required()} & {*other_own.required()})
        return any(_never_meet(self.flat(first[name]), self.flat(second[name])) for name in both)


MAX_COMPARED = 60
"""The number of branches of a `oneOf` that are compared with each other."""


def _lacks_required(one: Leaf, other: Leaf) -> bool:
    """Whether the output for `one` always lacks a key that `other` requires."""
    choices = sum(keyword in part.schema for part in one.parts for keyword in ("anyOf", "oneOf"))
    is_settled = choices == 1  # the one choice that is being compared
    return is_settled and one.closes() and not set(other.required()) <= set(one.declared())


def _never_meet(one: Leaf, other: Leaf) -> bool:
    """Whether no value can match both, judged by types and enumerations."""
    types, others = _said_types(one), _said_types(other)
    if not types & others:
        return True
    listed, other_listed = one.values, other.values
    if listed is not None and other_listed is not None:
        keys = {_identity(value) for value in listed[1]}
        return not any(_identity(value) in keys for value in other_listed[1])
    if listed is not None:
        return not any(fits_type(value, others) for value in listed[1])
    if other_listed is not None:
        return not any(fits_type(value, types) for value in other_listed[1])
    return False


def _said_types(leaf: Leaf) -> frozenset[str]:
    """Return the declared types. No type is implied by keywords."""
    return Leaf(
        tuple(PlacedSchema(part.pointer, {"type": part.schema["type"]}) for part in leaf.parts if "type" in part.schema)
    ).types


def fits_type(value: Any, types: frozenset[str]) -> bool:
    name = type_name(value)
    if name == "number" and "integer" in types:
        return "number" in types or float(value).is_integer()
    return name in types


def _identity(value: Any) -> object:
    """Return a value that is equal for two JSON values if JSON Schema treats them as equal."""
    match value:
        case bool() | None | str():
            return (type_name(value), value)
        case int() | float():
            return ("number", value)
        case Mapping():
            pairs = cast("Mapping[str, Any]", value).items()
            return ("object", frozenset((key, _identity(inner)) for key, inner in pairs))
        case _:
            return ("array", tuple(_identity(inner) for inner in cast("Sequence[Any]", value)))


def _listed(part: PlacedSchema, keyword: str) -> list[str]:
    return [f"{part.pointer}/{keyword}/{at}" for at in range(len(part.get(keyword, list) or ()))]


def escaped(step: str) -> str:
    """Escape one step of a JSON Pointer."""
    return step.replace("~", "~0").replace("/", "~1")


def _fragment(pointer: str) -> str:
    return "#" + pointer.replace("%", "%25")
