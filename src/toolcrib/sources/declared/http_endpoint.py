"""An HTTP request with placeholders for arguments. An argument cannot change the host, the path or the structure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast
from urllib.parse import quote, urlsplit

from toolcrib.core.placeholders import Problem
from toolcrib.sources.declared.fields import Fields
from toolcrib.sources.declared.template import Template, Values, as_text, check_name, default_of, refused

HTTP_KEYS: Mapping[str, str] = {
    "method": "`GET` (the default), `POST`, `PUT`, `PATCH`, `DELETE`, `HEAD` or `OPTIONS`.",
    "url": "The address. Scheme, host and port are fixed; arguments are allowed in the path and after the `?`.",
    "query": "Query parameters by name. A parameter without a value is left out; a list is sent as several.",
    "headers": "Headers by name. A header without a value is left out.",
    "json": 'The body, as a JSON value. A string that is only `"{name}"` is replaced by the argument itself.',
    "body": "The body, as a string. In a form (`application/x-www-form-urlencoded`) arguments are encoded.",
    "allow_private": "`true` if the address is in a private network or on this machine.",
}
"""Every key of `http`."""

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")

_URL = re.compile(
    r"(?P<origin>(?P<scheme>https?)://(?P<authority>[^/?#\\\s{}$@%\"<>^|`]+))(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?"
)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_OURS = frozenset(
    {"host", "connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
"""Headers that control how a request is sent. The HTTP client sets them."""

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_ABSENT = object()

Json = Any


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request with all values filled in."""

    method: str
    url: str
    headers: Sequence[tuple[bytes, bytes]]
    content: bytes | None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An HTTP endpoint: where a request goes and what it contains."""

    method: str
    origin: str
    """Scheme, host and port, as written in the declaration."""
    path: Template
    """The path from its first `/`, percent-encoded."""
    search: Template | None = None
    """The query in the address itself, percent-encoded."""
    query: Mapping[str, Template] | None = None
    headers: Mapping[str, Template] | None = None
    json: Json = _ABSENT
    """A JSON value with a `Template` in place of every string."""
    body: Template | None = None
    allows_private: bool = False
    """Whether the request may go to a private network or to this machine."""

    @classmethod
    def read(cls, given: Fields, input_schema: Mapping[str, Any]) -> Self:
        """Read the endpoint under the keys of `HTTP_KEYS`.

        Raises:
            InvalidTool: the endpoint is invalid, or would let an argument decide where the request goes.
        """
        given.only(HTTP_KEYS)
        method = given.text("method", "GET").upper()
        if method not in METHODS:
            raise given.wrong("method", f"must be one of: {', '.join(METHODS)}")
        if "json" in given and "body" in given:
            raise given.wrong("body", "a request has one body: use either `json` or `body`")
        origin, path, search = _address(given)
        endpoint = cls(
            method,
            origin,
            path,
            search,
            _templates(given, "query"),
            _templates(given, "headers"),
            _json_template(given.values["json"], given.at("json")) if "json" in given else _ABSENT,
            Template.read(given.values["body"], given.at("body")) if "body" in given else None,
            given.flag("allow_private"),
        )
        if endpoint.body is not None and endpoint.body.names and _looks_like_json(endpoint.body):
            raise given.wrong(
                "body", "write a JSON body with arguments under `json`, where they cannot change its structure"
            )
        endpoint._check(given, input_schema)
        return endpoint

    @property
    def names(self) -> frozenset[str]:
        """The names of the arguments in the templates."""
        return frozenset(name for _, template in self._all() for name in template.names)

    def filled(self, environ: Mapping[str, str]) -> Self:
        """Return a copy with the environment variables filled in from `environ`.

        Raises:
            Problem: a variable is not set, or contains something that a header cannot contain.
        """

        def fill(template: Template, where: str, written: Callable[[str], str] = str) -> Template:
            return template.filled(f"http.{where}", environ, written)

        headers = {name: fill(each, f"headers.{name}") for name, each in (self.headers or {}).items()}
        for name, template in headers.items():
            if any(isinstance(part, str) and _CONTROL.search(part) for part in template.parts):
                raise Problem(f"http.headers.{name}: its value contains a line break, which a header cannot contain")
        return replace(
            self,
            path=fill(self.path, "url", _encoded),
            search=None if self.search is None else fill(self.search, "url", _encoded),
            query={name: fill(each, f"query.{name}") for name, each in (self.query or {}).items()},
            headers=headers,
            json=_mapped(self.json, lambda template: fill(template, "json")),
            body=None if self.body is None else fill(self.body, "body"),
        )

    def asking(self, values: Values) -> HttpRequest:
        """Return the request with `values` in it. The endpoint must be `filled`.

        Raises:
            InvalidArguments: a value would change the path, or is not valid in a header.
        """
        _check_path(self.path, values)
        search = [self.search.rendered(values, _encoded) or ""] if self.search is not None else []
        for name, template in (self.query or {}).items():
            search += (f"{_encoded(name)}={_encoded(text)}" for text in _texts(template, values))
        headers = [
            (name.encode(), value) for name, each in (self.headers or {}).items() for value in _header(each, values)
        ]
        content, kind = self._content(values)
        if content is not None and not any(name.lower() == b"content-type" for name, _ in headers):
            headers.append((b"Content-Type", kind))
        path = self.path.rendered(values, _encoded)
        return HttpRequest(
            self.method, f"{self.origin}{path}{'?' if search else ''}{'&'.join(search)}", headers, content
        )

    def _content(self, values: Values) -> tuple[bytes | None, bytes]:
        if self.json is not _ABSENT:
            value = _json_value(self.json, values)
            text = None if value is _ABSENT else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            kind = b"application/json"
        else:
            written = _encoded if self._sends_a_form else str
            text = None if self.body is None else self.body.rendered(values, written)
            kind = b"text/plain; charset=utf-8"
        return None if text is None else text.encode("utf-8", "replace"), kind

    @property
    def _sends_a_form(self) -> bool:
        kinds = (each for name, each in (self.headers or {}).items() if name.lower() == "content-type")
        return any("x-www-form-urlencoded" in str(part).lower() for each in kinds for part in each.parts)

    def _all(self) -> Iterator[tuple[str, Template]]:
        """Yield every template with its place."""
        yield "url", self.path
        if self.search is not None:
            yield "url", self.search
        for key, members in (("query", self.query), ("headers", self.headers)):
            yield from ((f"{key}.{name}", template) for name, template in (members or {}).items())
        yield from (("json", template) for template in _json_templates(self.json))
        if self.body is not None:
            yield "body", self.body

    def _check(self, given: Fields, input_schema: Mapping[str, Any]) -> None:
        properties = cast("Mapping[str, Any]", input_schema.get("properties", {}))
        for where, template in self._all():
            for name in sorted(template.names):
                check_name(name, properties, given.at(where))
        sure = {*cast("Sequence[str]", input_schema.get("required", ()))}
        sure |= {name for name, each in properties.items() if default_of(each) is not None}
        for name in sorted({*self.path.names, *(self.search.names if self.search is not None else ())}):
            if name not in sure:
                raise given.wrong(
                    "url", f"`{{{name}}}` is part of the address, so it must be `required` or have a `default`"
                )
        for name, template in (self.headers or {}).items():
            if not _HEADER_NAME.fullmatch(name) or name.lower() in _NOT_OURS:
                raise given.wrong("headers", f"the header `{name}` cannot be set here")
            if any(isinstance(part, str) and _CONTROL.search(part) for part in template.parts):
                raise given.wrong(f"headers.{name}", "a header cannot contain a line break")


def _address(given: Fields) -> tuple[str, Template, Template | None]:
    """Return the origin, the path and the query of the address under `url`."""
    url = given.text("url")
    match = _URL.fullmatch(url)
    if match is None:
        fixed = "write out scheme, host and port, without placeholders: https://api.example.com/v1/{city}"
        if re.match(r"https?://[^/?#]*@", url):
            fixed = "put credentials into `headers`, not into the address"
        elif "#" in url:
            fixed = "remove the part after the `#`, because it is never sent"
        raise given.wrong("url", fixed)
    try:
        parsed = urlsplit(match["origin"])
        is_address = bool(parsed.hostname) and parsed.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise given.wrong("url", f"`{match['origin']}` is not a valid address")
    where = given.at("url")
    search = (
        None if match["query"] is None else _encoded_literals(Template.read(match["query"], where), "/?:@!$&'()*+,;=~%")
    )
    path = _encoded_literals(Template.read(match["path"] or "/", where), "/:@!$&'()*+,;=~%")
    written = "".join(part if isinstance(part, str) else "{}" for part in path.parts)
    if any(part in {".", ".."} for part in written.split("/")):
        raise given.wrong("url", "the path must not contain `.` or `..`")
    return match["origin"], path, search


def _looks_like_json(template: Template) -> bool:
    first, last = template.parts[0], template.parts[-1]
    ends = (first.lstrip()[:1], last.rstrip()[-1:]) if isinstance(first, str) and isinstance(last, str) else ("", "")
    return ends in {("{", "}"), ("[", "]")}


def _encoded_literals(template: Template, safe: str) -> Template:
    """Return the template with its strings percent-encoded where necessary. Encoded characters stay as they are."""
    return Template(tuple(quote(part, safe=safe) if isinstance(part, str) else part for part in template.parts))


def _encoded(text: str) -> str:
    """Return `text` percent-encoded, so that no character has a meaning in an address."""
    return quote(text, safe="", errors="replace")


def _templates(given: Fields, key: str) -> Mapping[str, Template]:
    return {name: Template.read(text, f"{given.at(key)}.{name}") for name, text in given.texts(key).items()}


def _check_path(path: Template, values: Values) -> None:
    """Check that no value leaves its part of the path. `%2F` and `%2E` do not help, because servers may decode them.

    Raises:
        InvalidArguments: a value would leave its part of the path.
    """
    for name in sorted(path.names):
        if not as_text(values[name]):
            raise refused(name, "must not be empty, because it is part of an address")
    inside = path.rendered(values, lambda value: re.sub(r"[/\\]", "\0", value)) or ""
    for segment in re.split(r"[/\0]", inside):
        if segment in {".", ".."}:
            name = next((name for name in sorted(path.names) if "." in as_text(values[name])), "url")
            raise refused(name, "must not contain `.` or `..` as a path segment, because it would change the address")


def _texts(template: Template, values: Values) -> list[str]:
    """Return the values of a parameter: empty if its argument is missing, several for a list."""
    value = values.get(template.bare) if template.bare is not None else None
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_text(each) for each in cast("Sequence[object]", value)]
    text = template.rendered(values)
    return [] if text is None else [text]


def _header(template: Template, values: Values) -> Iterator[bytes]:
    for name in sorted(template.names & values.keys()):
        if _CONTROL.search(as_text(values[name])):
            raise refused(
                name, "must not contain a line break or a different control character, because it is sent in a header"
            )
    text = template.rendered(values)
    if text is not None:
        yield text.strip(" \t").encode("utf-8", "replace")


def _json_template(value: object, where: str) -> Json:
    """Return `value` with a template in place of every string."""
    match value:
        case str():
            return Template.read(value, where)
        case Mapping():
            members = cast("Mapping[str, object]", value)
            return {key: _json_template(each, f"{where}.{key}") for key, each in members.items()}
        case list():
            items = cast("list[object]", value)
            return [_json_template(each, f"{where}.{position}") for position, each in enumerate(items)]
        case _:
            return value


def _mapped(value: Json, change: Callable[[Template], Template]) -> Json:
    match value:
        case Template():
            return change(value)
        case dict():
            return {key: _mapped(each, change) for key, each in cast("dict[str, Json]", value).items()}
        case list():
            return [_mapped(each, change) for each in cast("list[Json]", value)]
        case _:
            return value


def _json_templates(value: Json) -> Iterator[Template]:
    match value:
        case Template():
            yield value
        case dict():
            for each in cast("dict[str, Json]", value).values():
                yield from _json_templates(each)
        case list():
            for each in cast("list[Json]", value):
                yield from _json_templates(each)
        case _:
            return


def _json_value(value: Json, values: Values) -> Json:
    """Return `value` with `values` filled in. A member or item with a missing argument is left out."""
    match value:
        case Template():
            if value.bare is not None:
                return values.get(value.bare, _ABSENT)
            text = value.rendered(values)
            return _ABSENT if text is None else text
        case dict():
            members = ((key, _json_value(each, values)) for key, each in cast("dict[str, Json]", value).items())
            return {key: each for key, each in members if each is not _ABSENT}
        case list():
            items = (_json_value(each, values) for each in cast("list[Json]", value))
            return [each for each in items if each is not _ABSENT]
        case _:
            return value
