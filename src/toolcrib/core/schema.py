"""Compiles JSON Schemas, and says precisely what is wrong with a value that does not match."""

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
from toolcrib.core.digests import size_of
from toolcrib.core.errors import InvalidTool, cut
from toolcrib.core.properties import cached_property
from toolcrib.core.subschemas import IN_PLACE, References, has_embedded_resources, references_of

MAX_VIOLATIONS = 8
"""How many violations of one value are reported. More would distract from the first."""

MAX_ALLOWED = 20
"""How many allowed values or keys one violation lists."""

MAX_ALLOWED_BYTES = 1_500
"""The largest list of allowed values in one violation, in bytes of JSON."""

MAX_TOLD_BYTES = 4_000
"""The largest list of violations in one error, in bytes of JSON. The first violation is always included."""

MAX_COMPARED = 2_000
"""How many names `nearest` compares with one name, letter by letter."""

MAX_COMPARED_CHARS = 200
"""The longest name that `nearest` compares, in characters. A longer string is not a misspelled name."""

MAX_COMPARED_UNITS = 1_500_000
"""The limit for all comparisons of names in one value, in units of 10 ns: about 15 ms."""

MAX_EXPLANATIONS = 64
"""How many errors of one value are explained. Several errors can have the same explanation, which is reported once."""

_LIKE = 0.6
"""The smallest Ratcliff-Obershelp ratio at which one name is suggested for another."""

MAX_BRANCHES = 2_000
"""How many subschemas can apply to one value, with `$ref`s resolved. A chain of choices doubles the number with each
link, so a definition of one kilobyte could keep a validator busy for minutes.

Source: MCP 2026-07-28, "Composition-Keyword Resource Use"."""

MAX_STRAYS = 8
"""How many references only the validator can follow: references by `$id` or anchor, and all references in a schema with
an `$id` inside. More of them could hide a chain of choices."""

MAX_NESTING = 150
"""How many levels of objects and lists a schema can have. With the messages around it, a deeper schema could not be
written or read: common parsers stop at 200 or 255."""

MAX_JUDGED = 1_000_000
"""The limit of work for checking a value while everything else waits, in units: some milliseconds. See `Cost`."""

MAX_EXPLAINED = 10_000
"""The limit of work for explaining what is wrong with a value, in units. It is lower, because the validator makes all
errors before it returns the first, each with a copy of the value in question."""

_PATTERNS = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000)
"""Patterns with lookaround are matched by backtracking, so they need a limit. The time for any other pattern grows with
the length of the string."""

_SCALARS = (str, int, float, type(None))

_MESSAGE_CHARS = 300

_NO_JSON = (ValueError, TypeError, RecursionError)
"""What the validator raises for a value that is not JSON: half a surrogate pair, or a key that is not a string."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One place where a value does not match its schema."""

    place: str
    """The place, as a JSON Pointer into the value (RFC 6901); `""` is the value itself."""
    message: str
    """What was expected at the place, as a sentence without a full stop."""
    keyword: str
    """The schema keyword that failed; empty if the check was too much work."""
    allowed: tuple[Any, ...] = ()
    """The allowed values or keys, if they can be listed."""
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
    """Return the first of `violations` as JSON, as many as fit into `MAX_TOLD_BYTES`, and at least one."""
    told, room = list[dict[str, Any]](), MAX_TOLD_BYTES
    for violation in violations:
        wire = violation.to_wire()
        room -= size_of(wire)
        if told and room < 0:
            break
        told.append(wire)
    return told


class Schema:
    """A compiled schema. The dialect is draft 2020-12 unless `$schema` names a different one. Nothing is downloaded.

    Raises:
        InvalidTool: the schema is invalid, its dialect is unknown, or a `$ref` leads out of the document.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self._references = References(document)
        try:
            if _has_references(document):  # without references, the number of branches is limited by its length
                _check_size(document)
            self._validator = jsonschema_rs.validator_for(dict(document), retriever=_refuse, pattern_options=_PATTERNS)
        except (ValueError, TypeError, RecursionError) as error:  # ValidationError and ReferencingError are ValueErrors
            raise InvalidTool(f"its schema is not usable: {_first_line(error)}") from error

    @cached_property
    def cost(self) -> Cost:
        """The maximum work of checking a value against this schema."""
        return Cost(self.document)

    def is_valid(self, value: Any) -> bool:
        """Return whether `value` matches. Return False if the check takes more work than `MAX_JUDGED`."""
        return self.cost.of(value, MAX_JUDGED) <= MAX_JUDGED and self.matches(value)

    def violations(self, value: Any, whole: str = "the arguments") -> tuple[Violation, ...]:
        """Return what is wrong with `value`: at most `MAX_VIOLATIONS`, and none if it is valid.

        `whole` is the name of the value in messages. The check takes at most some milliseconds. If it would take
        longer, the only violation says so.
        """
        found = self.quick_violations(value, whole)
        if found is not None:
            return found
        return (unexplained(whole) if self.cost.of(value, MAX_JUDGED) <= MAX_JUDGED else undecided(whole),)

    def quick_violations(self, value: Any, whole: str = "the arguments") -> tuple[Violation, ...] | None:
        """Return what is wrong with `value`, or None if the answer takes more than some milliseconds."""
        cost = self.cost.of(value, MAX_JUDGED)
        if cost <= MAX_JUDGED and self.matches(value):
            return ()
        return self.all_violations(value, whole) if cost <= MAX_EXPLAINED else None

    def first_violations(self, value: Any, whole: str) -> tuple[Violation, ...]:
        """Return what is wrong at the first place that does not match, without a time limit; nothing if it is valid."""
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return tuple(islice(self._explain(error, whole, Comparisons()), MAX_VIOLATIONS))
        except _NO_JSON:
            return self.all_violations(value, whole)
        return ()

    def all_violations(self, value: Any, whole: str = "the arguments") -> tuple[Violation, ...]:
        """Return what is wrong with `value`, at most `MAX_VIOLATIONS`, without a limit of time and memory."""
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
            return (Violation("", "a string contains half a surrogate pair, which is not valid Unicode", "type"),)
        except _NO_JSON as error:
            return (Violation("", f"this is not a JSON value: {_first_line(error)}", "type"),)
        return tuple(found.values())[:MAX_VIOLATIONS]

    def matches(self, value: Any) -> bool:
        try:
            return self._validator.is_valid(value)
        except _NO_JSON:
            return False

    def _explain(self, error: jsonschema_rs.ValidationError, whole: str, compared: Comparisons) -> Iterable[Violation]:
        place = pointer(error.instance_path)
        at = f"`{place}`" if place else whole
        prefix = f"`{place}`: " if place else ""  # where only `whole` is meant, the sentence around it says so
        kind = error.kind
        match kind:
            case ValidationErrorKind.Required(property=missing):
                given = _keys(error.instance)
                known = self._properties_at(error.schema_path[:-1])
                near = nearest(missing, [key for key in given if key not in known], compared)
                yield Violation(
                    place,
                    f"{prefix}the required key `{missing}` is missing" + (f" (`{near}` was given)" if near else ""),
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
                        f"{prefix}unknown key `{key}`{meant}",
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
        """Explain the alternative that the value comes closest to."""
        branches = [branch for branch in context if branch]
        if not branches:
            return
        type_misses = [_types_of(branch, place) for branch in branches]
        if all(type_misses):  # every alternative expects a different type: name all types in one violation
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
        """Return the keys that the subschema at `schema_path` declares; none if a `$ref` cannot be followed."""
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
    """Return the violation for a value that takes too long to check."""
    return Violation("", f"checking {whole} against this schema would take too long", "")


def unexplained(whole: str) -> Violation:
    """Return the violation for a value that does not match, if finding the place would take too long."""
    return Violation("", f"finding out what is wrong with {whole} would take too long", "")


def _has_references(document: Mapping[str, Any]) -> bool:
    try:
        text = orjson.dumps(document)
    except (TypeError, RecursionError):  # for example an integer beyond 64 bits, which is valid in a schema
        return True
    return any(keyword in text for keyword in (b'$ref"', b'$dynamicRef"', b'$recursiveRef"'))


def _check_size(document: Mapping[str, Any]) -> None:
    """Refuse a document that applies too many subschemas to one value. A loop of references counts as too many.

    Raises:
        InvalidTool: more than `MAX_BRANCHES`, or more than `MAX_STRAYS` references that only the validator can follow.
    """
    counted: dict[int, int] = {}
    is_bundle, references = has_embedded_resources(document), References(document)

    def target(reference: str) -> object:
        # In a bundle, equal references in different parts lead to different subschemas. The root's can be decoys.
        return None if is_bundle else references.target(reference)

    def branches(value: object, above: frozenset[int]) -> int:
        """Count the subschemas that `value` (a schema, or a list or object of schemas) applies to one value."""
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
                    "so Toolcrib cannot count the subschemas that apply to one value"
                )
            if branches(schema, frozenset()) > MAX_BRANCHES:
                raise InvalidTool(f"its schema applies more than {MAX_BRANCHES} subschemas to one value")


def check_nesting(document: object) -> None:
    """Check that `document` is not nested too deeply to be sent.

    Raises:
        InvalidTool: `document` has more than `MAX_NESTING` levels of objects and lists.
    """
    with suppress(TypeError):  # for example an integer beyond 64 bits, or nested far too deeply
        text = orjson.dumps(document)
        if text.count(b"{") + text.count(b"[") <= MAX_NESTING:  # true for most documents, and ten times faster
            return
    level: list[object] = [document]
    for _ in range(MAX_NESTING + 1):
        # Keep each value once: a value that contains itself would otherwise multiply with each level.
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
    """Return the JSON Pointer (RFC 6901) of `steps`; `""` for no steps."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def _refuse(uri: str) -> Any:
    raise ValueError(f"remote references are refused ({uri})")


def _first_line(error: BaseException) -> str:
    message = getattr(error, "message", None) or str(error) or type(error).__name__
    return str(message).strip().splitlines()[0][:_MESSAGE_CHARS]


def _types_of(branch: Sequence[jsonschema_rs.ValidationError], place: str) -> tuple[str, ...]:
    """Return the types that an alternative expects at `place`, if the type is its only error; otherwise none."""
    if len(branch) != 1 or pointer(branch[0].instance_path) != place:
        return ()
    kind = branch[0].kind
    return tuple(kind.types) if isinstance(kind, ValidationErrorKind.Type) else ()


def _keys(value: Any) -> list[str]:
    return [str(key) for key in cast("Mapping[str, Any]", value)] if isinstance(value, Mapping) else []


class Comparisons:
    """The remaining budget for comparing names. All calls of `nearest` for one value share one budget."""

    def __init__(self, units: float = MAX_COMPARED_UNITS) -> None:
        self._left = units

    def allow(self, units: float) -> bool:
        """Take `units` from the budget, and return whether that much was left."""
        if units > self._left:
            return False
        self._left -= units
        return True


def nearest(word: str, candidates: Iterable[str], compared: Comparisons | None = None) -> str | None:
    """Return the candidate most similar to `word`, ignoring case and separators.

    Return None if no Ratcliff-Obershelp ratio is at least 0.6. Only the first `MAX_COMPARED` candidates with at most
    `MAX_COMPARED_CHARS` characters are compared. If the budget `compared` runs out, the result is the best of the
    candidates that were compared so far (those with most letters in common come first), or None.
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
    # The exact ratio takes cubic time, so skip candidates whose upper bound (letters in common) is already too low.
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
"""The sort key for types in a message: null comes last, because it is rarely the type that was meant."""


def _listing(options: Sequence[Any], limit: int = 20) -> str:
    shown = ", ".join(_short(option) for option in options[:limit])
    return shown + (f" (and {len(options) - limit} more)" if len(options) > limit else "")


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:79] + "…"


def type_name(value: Any) -> str:
    """Return the JSON name of the type of `value`."""
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
