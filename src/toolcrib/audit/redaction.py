"""Copies a tool's arguments for the audit: without secrets, and limited in size."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias, cast

from toolcrib.core.subschemas import at_reference

REDACTED = "[redacted]"
"""The replacement for a secret, or for something that may be one."""

SECRET_KEYS = (
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "secret",
    "token",
    "api_key",
    "access_key",
    "private_key",
    "signing_key",
    "encryption_key",
    "authorization",
    "authentication",
    "bearer",
    "credential",
    "cookie",
    "session_id",
    "signature",
    "card_number",
)
"""A value is a secret if its key contains one of these. Case and separators do not matter."""

SECRET_WORDS = ("auth", "pass", "pwd", "pat", "pin", "jwt", "sid", "otp", "tan", "puk", "cvv", "cvc", "ssn", "iban")
"""Words that are too short to search for inside other words. A value is a secret if one is a whole word of its key."""

MAX_TEXT = 500
"""How many characters of one string are kept."""

MAX_MEMBERS = 50
"""How many members of one list or object are kept."""

MAX_DEPTH = 12

MAX_CHARS = 16_384
"""How many characters of all strings and keys are kept."""

MAX_STEPS = 100_000
"""How many subschemas are visited for one set of arguments. If an untrusted schema has more, the rest is secret."""

_WINDOW = MAX_TEXT + 8_192
"""How many characters of a string are searched for secrets. What follows is cut off. A secret that begins in the kept
part is recognized by fewer characters than that."""

_MAX_NAME = 64
"""The maximum length of a string that may be the name of something."""

_NAMING = frozenset({"name", "key", "header", "field", "variable", "param", "parameter", "option"})
"""Keys whose value names the value next to it, as in `{"name": "Authorization", "value": "..."}`."""

# No unbounded quantifier is followed by a quantifier, because untrusted strings could make such a pattern very slow.
_LOOKS_SECRET = re.compile(
    r"""
      (?i:\b(?:bearer|basic|negotiate|digest)\s{1,8}[A-Z0-9+/=._~-]{8})    # the value of an Authorization header
    | -----BEGIN[ ][A-Z0-9 ]{0,40}(?:PRIVATE[ ]KEY|SECRET)               # PEM, OpenSSH, PGP
    | (?<![A-Za-z0-9])(?:sk|rk|whsec)[-_][\w-]{16}                       # OpenAI, Anthropic, Stripe
    | (?<![A-Za-z0-9])key-[0-9a-f]{32}                                   # Mailgun
    | (?<![A-Za-z0-9])(?:A3T[A-Z0-9]|AKIA|ASIA|AGPA|AIDA|AROA|AIPA|ANPA|ANVA)[A-Z0-9]{16}  # AWS: ids of keys
    | (?<![\w/+=-])(?=\S{0,39}[a-z])(?=\S{0,39}[A-Z])(?=\S{0,39}[0-9])[A-Za-z0-9/+]{40}(?![\w/+=-])  # AWS: a secret key
    | (?<![A-Za-z0-9])(?:gh[pousr]_|github_pat_|glpat-|gldt-|xox[abeprs]-|xapp-|npm_|pypi-|hf_|dop_v1_)[\w-]{10}
    | (?<![A-Za-z0-9])(?:AIza|ya29\.|SG\.|AGE-SECRET-KEY-|eyJ[\w-]{6,200}\.)[\w.=-]{8}  # Google, SendGrid, age, JWT
    | (?i:[a-z][a-z0-9+.-]{1,30}://[^\s/?\#@:]{0,200}:[^\s/@]{1,6000}@)  # an address with a password in it
    | (?i:[a-z][a-z0-9+.-]{1,30}://[a-z0-9_.~%-]{20,6000}@)              # or with a token
    """,
    re.VERBOSE,
)

_Schema: TypeAlias = Mapping[str, Any]

_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
"""Keywords whose subschemas apply to the same value as the schema that contains them."""

_BY_KEY = ("dependentSchemas", "dependencies")
"""Keywords whose subschemas apply to the same value if it has a certain key."""

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class Redaction:
    """The rules that find secrets in arguments. If in doubt, a value is a secret."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        """`keys` are more patterns of secret keys, in addition to `SECRET_KEYS`."""
        folded = sorted({folded_key(key) for key in (*SECRET_KEYS, *keys)} - {""})
        self._keys = re.compile("|".join(map(re.escape, folded)))
        inside = "|".join(r"[\W_]{0,2}".join(map(re.escape, key)) for key in folded)
        name = rf"(?:(?:{inside})|(?<![^\W_])(?:{'|'.join(SECRET_WORDS)})(?![^\W\d_]))"
        # Matches in a string, such as a command or a JSON body: `password=x`, `"api_key": "x"`, `Cookie: x`, `--token
        # x`, and
        # curl's `-u ada:x`.
        self._assigned = re.compile(
            rf"{name}[\w.-]{{0,30}}[\\\"'\]]{{0,6}}\s{{0,8}}(?:=>|[:=]|\sis\s)=?\s{{0,8}}[^\s,;]"
            rf"|(?<!\S)[\"']?--?[\w-]{{0,30}}{name}[\w-]{{0,30}}[\"',\s]{{1,8}}\S"
            r"|(?<!\S)(?:-u|--user)[\s=]{0,4}[^\s:]{1,200}:\S",
            re.IGNORECASE,
        )

    def arguments(self, given: Mapping[str, Any], input_schema: Mapping[str, Any] | None) -> dict[str, Any]:
        """Copy `given` without what `input_schema`, a key or its own form marks as secret, shortened to `MAX_CHARS`.

        The result is a JSON value, even if `given` is not. If everything is secret, it is `{"": REDACTED}`.
        """
        marks = _Marks(input_schema) if input_schema is not None else None
        copied = _Copy(self, marks).value(given, marks.root if marks is not None else (), 0)
        return cast("dict[str, Any]", copied) if isinstance(copied, dict) else {"": copied}

    def text(self, text: str) -> str:
        """Return `text`, shortened to `MAX_TEXT` characters, or `REDACTED` if it contains something like a secret."""
        window = text[:_WINDOW]
        if _LOOKS_SECRET.search(window) is not None or self._assigned.search(window) is not None:
            return REDACTED
        return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(text):,} characters)"

    def is_secret_key(self, key: str) -> bool:
        """Return whether the value of `key` is a secret."""
        return self._keys.search(folded_key(key)) is not None or any(
            word.casefold().endswith(SECRET_WORDS[:3]) or word.casefold() in SECRET_WORDS for word in _WORD.findall(key)
        )


_WORD = re.compile(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+(?![^\W\d_A-Z])")
"""One word of a key: `db_pass`, `userPin`, `JWTHeader`."""


def folded_key(key: str) -> str:
    """Return a key in lower case and without separators."""
    return "".join(filter(str.isalnum, key.casefold()))


def is_pattern(text: str) -> bool:
    """Return whether `text` can be searched for in keys: it needs a letter or a digit."""
    return bool(folded_key(text))


class _Copy:
    """Makes one copy, and counts how many characters it may still use."""

    def __init__(self, redaction: Redaction, marks: _Marks | None) -> None:
        self._redaction = redaction
        self._marks = marks
        self._chars_left = MAX_CHARS

    def value(self, value: object, schemas: Sequence[_Schema], depth: int) -> object:
        """Copy `value`, to which `schemas` apply."""
        if self._marks is not None and self._marks.is_secret(value, schemas):
            return REDACTED
        if self._chars_left <= 0 or depth > MAX_DEPTH:
            return "…"
        self._chars_left -= 8  # values without text use space, too
        match value:
            case None | bool():
                return value
            case int() if abs(value) < 1 << 63:
                return value
            case float() if math.isfinite(value):
                return value
            case str():
                return self._text(value)
            case Mapping():
                return self._members(cast("Mapping[object, object]", value), schemas, depth)
            case list() | tuple():
                return self._items(cast("Sequence[object]", value), schemas, depth)
            case _:
                return REDACTED

    def _text(self, text: str) -> str:
        kept = self._redaction.text(text)
        self._chars_left -= len(kept)
        return kept

    def _members(self, given: Mapping[object, object], schemas: Sequence[_Schema], depth: int) -> object:
        if self._marks is not None and self._marks.are_keys_secret(schemas):
            return REDACTED
        named = self._names_secret(given)
        copied: dict[str, object] = {}
        for key, value in islice(given.items(), MAX_MEMBERS):
            name = key if isinstance(key, str) else REDACTED
            shown = self._text(name)
            if self._redaction.is_secret_key(name) or (named and folded_key(name) not in _NAMING):
                copied[shown] = REDACTED
            else:
                below = self._marks.member(schemas, name) if self._marks is not None else ()
                copied[shown] = self.value(value, below, depth + 1)
        if len(given) > MAX_MEMBERS:
            copied["…"] = f"{len(given) - MAX_MEMBERS:,} more"
        return copied

    def _names_secret(self, given: Mapping[object, object]) -> bool:
        """Return whether a member says that the value next to it is a secret."""
        return any(
            isinstance(value, str)
            and isinstance(key, str)
            and folded_key(key) in _NAMING
            and self._is_secret_name(value)
            for key, value in islice(given.items(), MAX_MEMBERS)
        )

    def _is_secret_name(self, text: str) -> bool:
        """Return whether `text` is the name of a secret, and not a sentence with such a word."""
        return len(text) <= _MAX_NAME and self._redaction.is_secret_key(text)

    def _items(self, given: Sequence[object], schemas: Sequence[_Schema], depth: int) -> object:
        copied: list[object] = []
        after_option = False
        for position, item in enumerate(given[:MAX_MEMBERS]):
            below = self._marks.item(schemas, position) if self._marks is not None else ()
            copied.append(REDACTED if after_option else self.value(item, below, depth + 1))
            # In a command line or a list of pairs, the name comes first: `["--password", "x"]`, `["Authorization",
            # "x"]`.
            after_option = isinstance(item, str) and self._is_secret_name(item)
        if len(given) > MAX_MEMBERS:
            copied.append(f"… ({len(given) - MAX_MEMBERS:,} more)")
        return copied


class _Marks:
    """Finds what a schema marks as secret: values at or below `format: password` and `writeOnly`.

    All alternatives (`anyOf`, `if` and others) are assumed to apply.
    """

    def __init__(self, document: _Schema) -> None:
        self._document = document
        self._holding: dict[int, bool] = {}
        self._steps_left = MAX_STEPS
        self._has_any = self._holds_mark(document)
        self.root = self._applied([document])

    def is_secret(self, value: object, schemas: Sequence[_Schema]) -> bool:
        if not self._has_any:
            return False
        if self._steps_left <= 0:
            return True
        if any(_marked(schema) or self._is_stray(schema) for schema in schemas):
            return True
        # The schema does not describe this value (the key may be misspelled), and this tool has secrets.
        if not schemas:
            return True
        if isinstance(value, Mapping | list | tuple):
            return False
        # This is not the object that would contain the secret, but it may be the same object as a JSON string.
        return any(self._holds_mark(schema) for schema in schemas)

    def are_keys_secret(self, schemas: Sequence[_Schema]) -> bool:
        names = [schema["propertyNames"] for schema in schemas if isinstance(schema.get("propertyNames"), Mapping)]
        return any(_marked(schema) or self._is_stray(schema) for schema in self._applied(names))

    def member(self, schemas: Sequence[_Schema], key: str) -> list[_Schema]:
        """Return the schemas that apply to the value under `key`."""
        found: list[object] = []
        for schema in schemas:
            properties, patterns = _object(schema.get("properties")), _object(schema.get("patternProperties"))
            found += [below for pattern, below in patterns.items() if _may_match(pattern, key)]
            if key in properties:
                found.append(properties[key])
            else:
                found += [schema.get("additionalProperties"), schema.get("unevaluatedProperties")]
        return self._applied(found)

    def item(self, schemas: Sequence[_Schema], position: int) -> list[_Schema]:
        """Return the schemas that apply to the value at `position`."""
        found: list[object] = []
        for schema in schemas:
            for keyword in ("prefixItems", "items"):
                placed = schema.get(keyword)
                if isinstance(placed, list):  # `items` can also be a list, up to draft 2019-09
                    found += cast("list[object]", placed)[position : position + 1]
                else:
                    found.append(placed)
            found += (schema.get(keyword) for keyword in ("additionalItems", "unevaluatedItems", "contains"))
        return self._applied(found)

    def _applied(self, schemas: Iterable[object]) -> list[_Schema]:
        """Return those of `schemas` that are objects, and all schemas that apply together with them."""
        found: dict[int, _Schema] = {}
        waiting = [*schemas]
        while waiting and self._steps_left > 0:
            self._steps_left -= 1
            schema = waiting.pop()
            if isinstance(schema, list):
                waiting += cast("list[object]", schema)
            if not isinstance(schema, Mapping) or id(cast("_Schema", schema)) in found:
                continue
            known = cast("_Schema", schema)
            found[id(known)] = known
            waiting += (known[keyword] for keyword in _IN_PLACE if keyword in known)
            for keyword in _BY_KEY:
                waiting += _object(known.get(keyword)).values()
            waiting += (at_reference(self._document, known[keyword]) for keyword in _REFERENCES if keyword in known)
        return [*found.values()]

    def _is_stray(self, schema: _Schema) -> bool:
        """Return whether a reference (an anchor, an `$id`, a URL) may not be found. Then its target may be a mark."""
        if "$id" in schema and schema is not self._document:  # JSON pointers inside it start at a different root
            return True
        return any(
            keyword in schema and not isinstance(at_reference(self._document, schema[keyword]), Mapping | bool)
            for keyword in _REFERENCES
        )

    def _holds_mark(self, schema: _Schema) -> bool:
        """Return whether `schema`, or anything that it refers to, contains a mark."""
        if id(schema) not in self._holding:
            self._holding[id(schema)] = self._found_mark(schema)
        return self._holding[id(schema)]

    def _found_mark(self, schema: _Schema) -> bool:
        seen: set[int] = set()
        waiting: list[object] = [schema]
        while waiting:
            self._steps_left -= 1
            if self._steps_left <= 0:
                return True
            value = waiting.pop()
            if isinstance(value, list):
                waiting += cast("list[object]", value)
            elif isinstance(value, Mapping) and id(cast("_Schema", value)) not in seen:
                below = cast("_Schema", value)
                seen.add(id(below))
                if _marked(below) or self._is_stray(below):
                    return True
                waiting += below.values()
                waiting += (at_reference(self._document, below[keyword]) for keyword in _REFERENCES if keyword in below)
        return False


def _marked(schema: _Schema) -> bool:
    return schema.get("format") == "password" or schema.get("writeOnly", False) is not False


def _object(value: object) -> _Schema:
    return cast("_Schema", value) if isinstance(value, Mapping) else {}


def _may_match(pattern: str, key: str) -> bool:
    """Return whether `pattern` may match `key`. Untrusted patterns are not run, because that could take forever.

    Every pattern that is not plain text is assumed to match.
    """
    plain = re.fullmatch(r"(\^?)([\w-]*)(\$?)", pattern)
    if plain is None:
        return True
    start, text, end = plain.groups()
    if start and end:
        return key == text
    return key.startswith(text) if start else key.endswith(text) if end else text in key
