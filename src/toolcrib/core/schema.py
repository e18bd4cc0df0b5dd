"""JSON Schema: compile a tool's schema once, and say precisely what is wrong with some arguments."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, cast

import jsonschema_rs
import orjson
from jsonschema_rs import ValidationErrorKind

from toolcrib.core.cost import Cost
from toolcrib.core.errors import InvalidTool, cut
from toolcrib.core.properties import cached_property
from toolcrib.core.subschemas import IN_PLACE, References, has_embedded_resources, references_of
from toolcrib.core.weight import size_of

MAX_VIOLATIONS = 8
"""Violations reported of one value; more would drown the first."""

MAX_ALLOWED = 20
"""Allowed values or keys that one violation lists."""

MAX_ALLOWED_BYTES = 1_500
"""Of those values, as JSON."""

MAX_TOLD_BYTES = 4_000
"""Of the violations in one error, as JSON, the first one aside."""

MAX_COMPARED = 2_000
"""Texts that are compared with one, letter by letter."""

MAX_COMPARED_CHARS = 200
"""Of such a text; a longer one is no slip in a name."""

MAX_COMPARED_UNITS = 1_500_000
"""Units of 10 ns that all comparisons of names in one value may take together: some 15 ms."""

MAX_EXPLANATIONS = 64
"""Violations that are looked at in one value. Several errors may have the same explanation, which is told once."""

_LIKE = 0.6
"""The least Ratcliff-Obershelp ratio of two names where one may be meant by the other."""

MAX_BRANCHES = 2_000
"""Subschemas that may apply to one value, `$ref`s followed. A chain of choices doubles them with each link: a
definition of a kilobyte could keep a validator busy for minutes.

Source: MCP 2026-07-28, "Composition-Keyword Resource Use"."""

MAX_STRAYS = 8
"""References by `$id` or anchor, and any in a schema with an `$id` inside; more of them could hide such a chain."""

MAX_NESTING = 150
"""Objects and lists within one another in a schema. With the messages around it, more could not be written or read:
the usual parsers stop at 200 or 255."""

MAX_JUDGED = 1_000_000
"""Units of work that judging a value may take where it keeps everything else waiting: some milliseconds. See `Cost`."""

MAX_EXPLAINED = 10_000
"""The same for saying what is wrong where. The validator makes all errors before it hands over the first, each with a
copy of what it is about."""

_PATTERNS = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000)
"""Patterns that look around try one way after the other; any other pattern takes time that grows with the text."""

_SCALARS = (str, int, float, type(None))

_MESSAGE_CHARS = 300

_NO_JSON = (ValueError, TypeError, RecursionError)
"""What the validator raises on a value that JSON cannot hold: half a surrogate pair, a key that is no text."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One place where a value misses its schema."""

    place: str
    """Where, as a JSON Pointer into the value (RFC 6901); `""` is the value itself."""
    message: str
    """What was expected there, as a sentence without a full stop."""
    keyword: str
    """The schema keyword that failed."""
    allowed: tuple[Any, ...] = ()
    """The values or keys that would have been accepted, where they can be listed."""
    nearest: str | None = None
    """The key or value that was probably meant."""

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"place": cut(self.place, _MESSAGE_CHARS), "message": cut(self.message, _MESSAGE_CHARS)}
        if self.allowed:
            listed = self.allowed[:MAX_ALLOWED]
            while listed and size_of(listed) > MAX_ALLOWED_BYTES:
                listed = listed[:-1]
            wire["allowed"] = list(listed)
            if len(self.allowed) > len(listed):
                wire["allowed_count"] = len(self.allowed)
        if self.nearest is not None and len(self.nearest) <= MAX_COMPARED_CHARS:
            wire["nearest"] = self.nearest
        return wire


def violations_to_wire(violations: Iterable[Violation]) -> list[dict[str, Any]]:
    """As many of them as an error has room for, the first ones."""
    told, room = list[dict[str, Any]](), MAX_TOLD_BYTES
    for violation in violations:
        wire = violation.to_wire()
        room -= size_of(wire)
        if told and room < 0:
            break
        told.append(wire)
    return told


class Schema:
    """A compiled schema: draft 2020-12 unless its `$schema` names another; nothing is ever fetched.

    Raises:
        InvalidTool: not a valid schema, an unknown dialect, or a `$ref` that leaves the document.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self._references = References(document)
        try:
            if _has_references(document):  # without one, a schema has no more branches than it has text
                _check_size(document)
            self._validator = jsonschema_rs.validator_for(dict(document), retriever=_refuse, pattern_options=_PATTERNS)
        except (ValueError, TypeError, RecursionError) as error:  # ValidationError and ReferencingError are ValueErrors
            raise InvalidTool(f"its schema is not usable: {_first_line(error)}") from error

    @cached_property
    def cost(self) -> Cost:
        """How much work values may be to it."""
        return Cost(self.document)

    def is_valid(self, value: Any) -> bool:
        """Whether `value` matches. It does not where it takes too much work to find out: more than `MAX_JUDGED`."""
        return self.cost.of(value, MAX_JUDGED) <= MAX_JUDGED and self.matches(value)

    def violations(self, value: Any, whole: str = "the arguments") -> tuple[Violation, ...]:
        """What is wrong with `value`, at most `MAX_VIOLATIONS`; empty when it is valid. `whole` is what to call it.

        Takes no more than some milliseconds: where it would, the one violation says no more than that.
        """
        found = self.quick_violations(value, whole)
        if found is not None:
            return found
        return (unexplained(whole) if self.cost.of(value, MAX_JUDGED) <= MAX_JUDGED else undecided(whole),)

    def quick_violations(self, value: Any, whole: str = "the arguments") -> tuple[Violation, ...] | None:
        """The same; None where it takes more than some milliseconds to tell."""
        cost = self.cost.of(value, MAX_JUDGED)
        if cost <= MAX_EXPLAINED:
            return self.all_violations(value, whole)
        return () if cost <= MAX_JUDGED and self.matches(value) else None

    def first_violations(self, value: Any, whole: str) -> tuple[Violation, ...]:
        """What is wrong in the first place that does not match, however long that takes; empty when it is valid."""
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return tuple(islice(self._explain(error, whole, Comparisons()), MAX_VIOLATIONS))
        except _NO_JSON:
            return self.all_violations(value, whole)
        return ()

    def all_violations(self, value: Any, whole: str = "the arguments") -> tuple[Violation, ...]:
        """What `violations` tells, however much time and memory it takes."""
        if self.matches(value):
            return ()
        found: dict[tuple[str, str], Violation] = {}
        compared = Comparisons()
        try:
            errors = self._validator.iter_errors(value)
            explained = chain.from_iterable(self._explain(error, whole, compared) for error in errors)
            for violation in islice(explained, MAX_EXPLANATIONS):
                found.setdefault((violation.place, violation.message), violation)
                if len(found) >= MAX_VIOLATIONS:
                    break
        except UnicodeEncodeError:
            return (Violation("", "a text holds half a surrogate pair, which is no Unicode text", "type"),)
        except _NO_JSON as error:
            return (Violation("", f"this is no JSON value: {_first_line(error)}", "type"),)
        return tuple(found.values())[:MAX_VIOLATIONS]

    def matches(self, value: Any) -> bool:
        try:
            return self._validator.is_valid(value)
        except _NO_JSON:
            return False

    def _explain(self, error: jsonschema_rs.ValidationError, whole: str, compared: Comparisons) -> Iterable[Violation]:
        place = pointer(error.instance_path)
        at = f"`{place}`" if place else whole
        kind = error.kind
        match kind:
            case ValidationErrorKind.Required(property=missing):
                given = _keys(error.instance)
                known = self._properties_at(error.schema_path[:-1])
                near = nearest(missing, [key for key in given if key not in known], compared)
                yield Violation(
                    place,
                    f"the key `{missing}` is missing from {at}" + (f" (`{near}` was given)" if near else ""),
                    "required",
                    allowed=tuple(sorted(known)),
                    nearest=missing if near else None,
                )
            case ValidationErrorKind.AdditionalProperties(unexpected=unexpected) | (
                ValidationErrorKind.UnevaluatedProperties(unexpected=unexpected)
            ):
                known = self._properties_at(error.schema_path[:-1])
                for key in unexpected[:MAX_VIOLATIONS]:
                    near = nearest(key, known, compared)
                    meant = f" (did you mean `{near}`?)" if near else ""
                    yield Violation(
                        pointer([*error.instance_path, key]),
                        f"`{key}` is not a key of {at}{meant}",
                        kind.name,
                        allowed=tuple(sorted(known)),
                        nearest=near,
                    )
            case ValidationErrorKind.Enum(options=options):
                given = error.instance
                near = nearest(str(given), map(str, options), compared)
                yield Violation(
                    place,
                    f"{at} must be one of {_listing(options)}, not {_short(given)}",
                    "enum",
                    allowed=tuple(options),
                    nearest=near,
                )
            case ValidationErrorKind.Type(types=types):
                expected = " or ".join(sorted(types, key=_NULL_LAST))
                yield Violation(place, f"{at} must be {expected}, not {type_name(error.instance)}", "type")
            case ValidationErrorKind.AnyOf(context=context) | ValidationErrorKind.OneOfNotValid(context=context):
                yield from self._explain_choice(place, at, kind.name, context, whole, compared=compared)
            case _:
                message = _first_line(error)
                yield Violation(place, f"{at}: {message}", kind.name)

    def _explain_choice(
        self,
        place: str,
        at: str,
        keyword: str,
        context: Sequence[Sequence[jsonschema_rs.ValidationError]],
        whole: str,
        *,
        compared: Comparisons,
    ) -> Iterable[Violation]:
        """Of several alternatives, explain the one the value comes closest to."""
        branches = [branch for branch in context if branch]
        if not branches:
            return
        type_misses = [_types_of(branch, place) for branch in branches]
        if all(type_misses):  # every alternative is another type: say them all at once
            names = dict.fromkeys(name for names in type_misses for name in names)
            expected = " or ".join(sorted(names, key=_NULL_LAST))
            instance = branches[0][0].instance
            yield Violation(place, f"{at} must be {expected}, not {type_name(instance)}", keyword)
            return
        closest = min(
            (branch for branch, missed in zip(branches, type_misses, strict=True) if not missed),
            key=lambda branch: (-max(len(e.instance_path) for e in branch), len(branch)),
        )
        for error in closest:
            yield from self._explain(error, whole, compared)

    def _properties_at(self, schema_path: Sequence[str | int]) -> set[str]:
        """Keys that the subschema at `schema_path` declares; empty where a `$ref` leads elsewhere."""
        node: Any = self.document
        for step in schema_path:
            if isinstance(node, Mapping):
                branch = cast("Mapping[str | int, Any]", node)
                if "$ref" in branch and step == "$ref":
                    node = self._references.target(branch["$ref"])
                    continue
                node = branch.get(step)
            elif isinstance(node, Sequence) and isinstance(step, int) and not isinstance(node, str):
                steps = cast("Sequence[Any]", node)
                node = steps[step] if step < len(steps) else None
            else:
                return set()
        properties = cast("Mapping[str, Any]", node).get("properties") if isinstance(node, Mapping) else None
        return set(cast("Mapping[str, Any]", properties)) if isinstance(properties, Mapping) else set()


def undecided(whole: str) -> Violation:
    """The violation of a value of which it cannot be found out in time whether it matches, and where it does not."""
    return Violation("", f"{whole} cannot be checked: too much work for this schema", "")


def unexplained(whole: str) -> Violation:
    """The violation of a value that does not match, and of which it cannot be found out in time where."""
    return Violation("", f"{whole}: what is wrong would take too long to find", "")


def _has_references(document: Mapping[str, Any]) -> bool:
    try:
        text = orjson.dumps(document)
    except (TypeError, RecursionError):  # an integer beyond 64 bits, say: nothing that a schema may not hold
        return True
    return any(keyword in text for keyword in (b'$ref"', b'$dynamicRef"', b'$recursiveRef"'))


def _check_size(document: Mapping[str, Any]) -> None:
    """Refuse a document that looks at one value in too many ways; one that looks for ever looks in too many.

    Raises:
        InvalidTool: more than `MAX_BRANCHES`, or more than `MAX_STRAYS` references that only the validator can follow.
    """
    counted: dict[int, int] = {}
    is_bundle, references = has_embedded_resources(document), References(document)

    def target(reference: str) -> object:
        # In a bundle, equal references in different parts mean different subschemas: those of the root may be decoys.
        return None if is_bundle else references.target(reference)

    def branches(value: object, above: frozenset[int]) -> int:
        """How many subschemas `value`, a schema or a list or object of them, applies to one value."""
        if isinstance(value, list):
            return sum(branches(part, above) for part in cast("list[object]", value))
        if not isinstance(value, Mapping):
            return 0
        schema = cast("Mapping[str, object]", value)
        if id(schema) in above:
            return MAX_BRANCHES + 1
        if id(schema) not in counted:
            inside = above | {id(schema)}
            total = 1 + sum(branches(schema[key], inside) for key in IN_PLACE if key in schema)
            counted[id(schema)] = total + sum(branches(target(ref), inside) for ref in references_of(schema))
        return counted[id(schema)]

    strays, waiting = 0, [cast("object", document)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += cast("list[object]", value)
        elif isinstance(value, Mapping):
            schema = cast("Mapping[str, object]", value)
            waiting += schema.values()
            strays += sum(target(ref) is None for ref in references_of(schema))
            if strays > MAX_STRAYS:
                raise InvalidTool(
                    f"its schema has more than {MAX_STRAYS} references that involve an `$id` or an anchor, "
                    "so the ways in which it looks at one value cannot be counted"
                )
            if branches(schema, frozenset()) > MAX_BRANCHES:
                raise InvalidTool(f"its schema looks at one value in more than {MAX_BRANCHES} ways")


def check_nesting(document: object) -> None:
    """Pass where `document` is nested no deeper than can be sent.

    Raises:
        InvalidTool: more than `MAX_NESTING` objects and lists stand within one another.
    """
    with suppress(TypeError):  # an integer beyond 64 bits, say, or far too deep
        text = orjson.dumps(document)
        if text.count(b"{") + text.count(b"[") <= MAX_NESTING:  # most by far, and a tenth of the time
            return
    level: list[object] = [document]
    for _ in range(MAX_NESTING + 1):
        # Each once: of one that holds itself there would be more with each level.
        inside: dict[int, object] = {}
        for value in level:
            parts: Iterable[object] = ()
            if isinstance(value, dict | Mapping):
                parts = cast("Mapping[object, object]", value).values()
            elif isinstance(value, list | tuple):
                parts = cast("Sequence[object]", value)
            inside |= {id(part): part for part in parts if not isinstance(part, _SCALARS)}
        if not inside:
            return
        level = [*inside.values()]
    raise InvalidTool("its schema is nested too deeply")


def pointer(steps: Sequence[str | int]) -> str:
    """A JSON Pointer (RFC 6901) of `steps`; `""` for none."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def _refuse(uri: str) -> Any:
    raise ValueError(f"remote references are refused ({uri})")


def _first_line(error: BaseException) -> str:
    message = getattr(error, "message", None) or str(error) or type(error).__name__
    return str(message).strip().splitlines()[0][:_MESSAGE_CHARS]


def _types_of(branch: Sequence[jsonschema_rs.ValidationError], place: str) -> tuple[str, ...]:
    """The types one alternative asked for at `place` where that is all it missed; empty otherwise."""
    if len(branch) != 1 or pointer(branch[0].instance_path) != place:
        return ()
    kind = branch[0].kind
    return tuple(kind.types) if isinstance(kind, ValidationErrorKind.Type) else ()


def _keys(value: Any) -> list[str]:
    return [str(key) for key in cast("Mapping[str, Any]", value)] if isinstance(value, Mapping) else []


class Comparisons:
    """How much work comparing names may still take. All calls of `nearest` for one value share one of these."""

    def __init__(self, units: float = MAX_COMPARED_UNITS) -> None:
        self._left = units

    def allow(self, units: float) -> bool:
        """Whether that much is left; if so, it is less from now on."""
        if units > self._left:
            return False
        self._left -= units
        return True


def nearest(word: str, candidates: Iterable[str], compared: Comparisons | None = None) -> str | None:
    """The candidate most like `word`, ignoring case and separators; None below a Ratcliff-Obershelp ratio of 0.6.

    Only the first `MAX_COMPARED` candidates are looked at, and no text of more than `MAX_COMPARED_CHARS`. Where the
    work that `compared` allows ends, it is the best of those that have most letters in common with `word`, or None.
    """
    if len(word) > MAX_COMPARED_CHARS:
        return None
    compared = compared or Comparisons()
    matcher = difflib.SequenceMatcher(b=_folded(word))
    folded: dict[str, str] = {}
    in_common: list[tuple[float, str]] = []
    for candidate in islice((each for each in candidates if len(each) <= MAX_COMPARED_CHARS), MAX_COMPARED):
        if not compared.allow(200 + 10 * len(candidate)):
            return None
        name = _folded(candidate)
        folded[name] = candidate
        matcher.set_seq1(name)
        if matcher.real_quick_ratio() >= _LIKE and (bound := matcher.quick_ratio()) >= _LIKE:
            in_common.append((bound, name))
    best = (0.0, "")
    # The order of letters is compared in cubic time, so where letters in common rule a candidate out, it is not.
    for bound, name in sorted(in_common, reverse=True):
        work = 2_000 + len(word) * len(name) * min(len(word), len(name)) / 2
        if bound < best[0] or not compared.allow(work):
            break
        matcher.set_seq1(name)
        best = max(best, (matcher.ratio(), name))
    return folded[best[1]] if best[0] >= _LIKE else None


def _folded(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")


_NULL_LAST: Callable[[str], bool] = "null".__eq__
"""The order in which a message names types: what somebody meant to give is hardly null."""


def _listing(options: Sequence[Any], limit: int = 20) -> str:
    shown = ", ".join(_short(option) for option in options[:limit])
    return shown + (f" (and {len(options) - limit} more)" if len(options) > limit else "")


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:79] + "…"


def type_name(value: Any) -> str:
    """What JSON calls it."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case Mapping():
            return "object"
        case _:
            return "array"
