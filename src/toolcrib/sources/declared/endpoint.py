"""An HTTP request with places for arguments, which can change neither where it goes nor what is asked there."""

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
    "url": "Where it goes. Scheme, host and port are fixed; arguments may stand in the path and behind the `?`.",
    "query": "Parameters by name. One whose argument is not there is left out; a list is sent as several.",
    "headers": "Headers by name. One whose argument is not there is left out.",
    "json": 'The body, as a JSON value; a text that is nothing but `"{name}"` is the argument itself.',
    "body": "The body, as a text; in a form (`application/x-www-form-urlencoded`) arguments are encoded.",
    "allow_private": "`true` where the address is in a private network or on this machine.",
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
"""Headers that say how a request is sent, which is settled where it is."""

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_ABSENT = object()

Json = Any


@dataclass(frozen=True, slots=True)
class Asking:
    """A request with everything filled in."""

    method: str
    url: str
    headers: Sequence[tuple[bytes, bytes]]
    content: bytes | None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a request goes and what is in it."""

    method: str
    origin: str
    """Scheme, host and port, as they were written."""
    path: Template
    """From its first `/` on, percent-encoded."""
    search: Template | None = None
    """What the address itself has behind its `?`, percent-encoded."""
    query: Mapping[str, Template] | None = None
    headers: Mapping[str, Template] | None = None
    json: Json = _ABSENT
    """A JSON value with a `Template` in the place of every text."""
    body: Template | None = None
    allows_private: bool = False
    """Whether it may lead into a private network, or to this machine."""

    @classmethod
    def read(cls, given: Fields, input_schema: Mapping[str, Any]) -> Self:
        """The endpoint that `given` writes under the keys of `HTTP_KEYS`.

        Raises:
            InvalidTool: something of it is wrong, or would let an argument say where the request goes.
        """
        given.only(HTTP_KEYS)
        method = given.text("method", "GET").upper()
        if method not in METHODS:
            raise given.wrong("method", f"one of {', '.join(METHODS)} is expected here")
        if "json" in given and "body" in given:
            raise given.wrong("body", "a request has one body: `json` or `body`")
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
            raise given.wrong("body", "a JSON body with arguments is a `json`, where they cannot change its form")
        endpoint._check(given, input_schema)
        return endpoint

    @property
    def names(self) -> frozenset[str]:
        """Of the arguments in it."""
        return frozenset(name for _, template in self._all() for name in template.names)

    def filled(self, environ: Mapping[str, str]) -> Self:
        """The same with its variables as `environ` has them.

        Raises:
            Problem: one of them is not set, or holds what no header can hold.
        """

        def fill(template: Template, where: str, written: Callable[[str], str] = str) -> Template:
            return template.filled(f"http.{where}", environ, written)

        headers = {name: fill(each, f"headers.{name}") for name, each in (self.headers or {}).items()}
        for name, template in headers.items():
            if any(isinstance(part, str) and _CONTROL.search(part) for part in template.parts):
                raise Problem(f"http.headers.{name}: it comes to a text with a line break, which no header can hold")
        return replace(
            self,
            path=fill(self.path, "url", _encoded),
            search=None if self.search is None else fill(self.search, "url", _encoded),
            query={name: fill(each, f"query.{name}") for name, each in (self.query or {}).items()},
            headers=headers,
            json=_mapped(self.json, lambda template: fill(template, "json")),
            body=None if self.body is None else fill(self.body, "body"),
        )

    def asking(self, values: Values) -> Asking:
        """The request with `values` in it; of an endpoint that is `filled`.

        Raises:
            InvalidArguments: a value would change the path, or cannot stand in a header.
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
        return Asking(self.method, f"{self.origin}{path}{'?' if search else ''}{'&'.join(search)}", headers, content)

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
        """Every template, with where it stands."""
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
                    "url", f"`{{{name}}}` stands in the address, so it has to be `required`, or to have a `default`"
                )
        for name, template in (self.headers or {}).items():
            if not _HEADER_NAME.fullmatch(name) or name.lower() in _NOT_OURS:
                raise given.wrong("headers", f"`{name}` is no header that can be set here")
            if any(isinstance(part, str) and _CONTROL.search(part) for part in template.parts):
                raise given.wrong(f"headers.{name}", "a header cannot hold a line break")


def _address(given: Fields) -> tuple[str, Template, Template | None]:
    """Origin, path and what is behind the `?` of the address under `url`."""
    url = given.text("url")
    match = _URL.fullmatch(url)
    if match is None:
        fixed = (
            "scheme, host and port are written out here, without anything to fill in: https://api.example.com/v1/{city}"
        )
        if re.match(r"https?://[^/?#]*@", url):
            fixed = "credentials stand in `headers`, not in the address"
        elif "#" in url:
            fixed = "what is behind a `#` is never sent"
        raise given.wrong("url", fixed)
    try:
        parsed = urlsplit(match["origin"])
        is_address = bool(parsed.hostname) and parsed.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise given.wrong("url", f"`{match['origin']}` is no address")
    where = given.at("url")
    search = (
        None if match["query"] is None else _encoded_literals(Template.read(match["query"], where), "/?:@!$&'()*+,;=~%")
    )
    path = _encoded_literals(Template.read(match["path"] or "/", where), "/:@!$&'()*+,;=~%")
    written = "".join(part if isinstance(part, str) else "{}" for part in path.parts)
    if any(part in {".", ".."} for part in written.split("/")):
        raise given.wrong("url", "`.` and `..` cannot stand in the path")
    return match["origin"], path, search


def _looks_like_json(template: Template) -> bool:
    first, last = template.parts[0], template.parts[-1]
    ends = (first.lstrip()[:1], last.rstrip()[-1:]) if isinstance(first, str) and isinstance(last, str) else ("", "")
    return ends in {("{", "}"), ("[", "]")}


def _encoded_literals(template: Template, safe: str) -> Template:
    """Its texts percent-encoded where they have to be; what already is stays as it is."""
    return Template(tuple(quote(part, safe=safe) if isinstance(part, str) else part for part in template.parts))


def _encoded(text: str) -> str:
    """Percent-encoded, so that nothing of it means anything in an address."""
    return quote(text, safe="", errors="replace")


def _templates(given: Fields, key: str) -> Mapping[str, Template]:
    return {name: Template.read(text, f"{given.at(key)}.{name}") for name, text in given.texts(key).items()}


def _check_path(path: Template, values: Values) -> None:
    """Pass where no value is a way out of its part of the path: servers decode `%2F` and `%2E` when they like.

    Raises:
        InvalidArguments: one is.
    """
    for name in sorted(path.names):
        if not as_text(values[name]):
            raise refused(name, "may not be empty, since it is a part of an address")
    inside = path.rendered(values, lambda value: re.sub(r"[/\\]", "\0", value)) or ""
    for segment in re.split(r"[/\0]", inside):
        if segment in {".", ".."}:
            name = next((name for name in sorted(path.names) if "." in as_text(values[name])), "url")
            raise refused(name, "may not lead elsewhere: `.` and `..` mean another address")


def _texts(template: Template, values: Values) -> list[str]:
    """What a parameter comes to: nothing where its argument is not there, several texts for a list."""
    value = values.get(template.bare) if template.bare is not None else None
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_text(each) for each in cast("Sequence[object]", value)]
    text = template.rendered(values)
    return [] if text is None else [text]


def _header(template: Template, values: Values) -> Iterator[bytes]:
    for name in sorted(template.names & values.keys()):
        if _CONTROL.search(as_text(values[name])):
            raise refused(name, "may not hold a line break or another control character, since it stands in a header")
    text = template.rendered(values)
    if text is not None:
        yield text.strip(" \t").encode("utf-8", "replace")


def _json_template(value: object, where: str) -> Json:
    """`value` with a template in the place of every text."""
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
    """`value` with `values` in it; a member or item is left out where one of its arguments is not there."""
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
