"""An HTTP request with placeholders for arguments. An argument cannot change the host, the path or the structure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self, cast
from urllib.parse import quote, urlsplit

from toolcrib.core.errors import InvalidTool
from toolcrib.core.json_settings import Flag, Reader, Settings
from toolcrib.core.placeholders import Problem
from toolcrib.core.values import read_string
from toolcrib.sources.declared.template import Template, Values, as_text, check_name, default_of, refused

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
class _Address:
    """The address of an endpoint."""

    origin: str
    """Scheme, host and port, as written in the declaration."""
    path: Template
    """The path from its first `/`, percent-encoded."""
    search: Template | None = None
    """The part after the `?`, percent-encoded."""

    @classmethod
    def read(cls, value: object, where: str) -> Self:
        """Read the address `value`. Errors name its place as `where`.

        Raises:
            InvalidTool: the address is invalid.
        """
        url = read_string(value, where, InvalidTool)
        match = _URL.fullmatch(url)
        if match is None:
            fixed = "write out scheme, host and port, without placeholders: https://api.example.com/v1/{city}"
            if re.match(r"https?://[^/?#]*@", url):
                fixed = "put credentials into `headers`, not into the address"
            elif "#" in url:
                fixed = "remove the part after the `#`, because it is never sent"
            raise InvalidTool(f"{where}: {fixed}")
        try:
            parsed = urlsplit(match["origin"])
            is_address = bool(parsed.hostname) and parsed.port != 0
        except ValueError:
            is_address = False
        if not is_address:
            raise InvalidTool(f"{where}: `{match['origin']}` is not a valid address")
        query, fixed = match["query"], "/:@!$&'()*+,;=~%"
        search = None if query is None else _encoded_literals(Template.read(query, where), f"?{fixed}")
        path = _encoded_literals(Template.read(match["path"] or "/", where), fixed)
        written = "".join(part if isinstance(part, str) else "{}" for part in path.parts)
        if any(part in {".", ".."} for part in written.split("/")):
            raise InvalidTool(f"{where}: the path must not contain `.` or `..`")
        return cls(match["origin"], path, search)


def _read_method(value: object, where: str) -> str:
    method = read_string(value, where, InvalidTool).upper()
    if method not in METHODS:
        raise InvalidTool(f"{where}: must be one of: {', '.join(METHODS)}")
    return method


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


_Text = Annotated[Template, Reader(Template.read)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Settings):
    """An HTTP endpoint: the settings under `http`."""

    method: Annotated[str, Reader(_read_method)] = "GET"
    """The method: `GET`, `POST`, `PUT`, `PATCH`, `DELETE`, `HEAD` or `OPTIONS`."""
    url: Annotated[_Address, Reader(_Address.read)]
    """The address. Scheme, host and port are fixed; arguments are allowed in the path and after the `?`."""
    query: dict[str, _Text] = field(default_factory=dict)
    """Query parameters by name. A parameter without a value is left out; a list is sent as several."""
    headers: dict[str, _Text] = field(default_factory=dict)
    """Headers by name. A header without a value is left out."""
    json: Annotated[Json, Reader(_json_template)] = _ABSENT
    """The body, as a JSON value. A string that is only `"{name}"` is replaced by the argument itself."""
    body: Annotated[Template | None, Reader(Template.read)] = None
    """The body, as a string. In a form (`application/x-www-form-urlencoded`) arguments are encoded."""
    allow_private: Flag = False
    """`true` if the address is in a private network or on this machine."""

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

        headers = {name: fill(each, f"headers.{name}") for name, each in self.headers.items()}
        for name, template in headers.items():
            if any(isinstance(part, str) and _CONTROL.search(part) for part in template.parts):
                raise Problem(f"http.headers.{name}: its value contains a line break, which a header cannot contain")
        return replace(
            self,
            url=replace(
                self.url,
                path=fill(self.url.path, "url", _encoded),
                search=None if self.url.search is None else fill(self.url.search, "url", _encoded),
            ),
            query={name: fill(each, f"query.{name}") for name, each in self.query.items()},
            headers=headers,
            json=_mapped(self.json, lambda template: fill(template, "json")),
            body=None if self.body is None else fill(self.body, "body"),
        )

    def asking(self, values: Values) -> HttpRequest:
        """Return the request with `values` in it. The endpoint must be `filled`.

        Raises:
            InvalidArguments: a value would change the path, or is not valid in a header.
        """
        _check_path(self.url.path, values)
        search = [self.url.search.rendered(values, _encoded) or ""] if self.url.search is not None else []
        for name, template in self.query.items():
            search += (f"{_encoded(name)}={_encoded(text)}" for text in _texts(template, values))
        headers = [(name.encode(), value) for name, each in self.headers.items() for value in _header(each, values)]
        content, kind = self._content(values)
        if content is not None and not any(name.lower() == b"content-type" for name, _ in headers):
            headers.append((b"Content-Type", kind))
        path = self.url.path.rendered(values, _encoded)
        return HttpRequest(
            self.method, f"{self.url.origin}{path}{'?' if search else ''}{'&'.join(search)}", headers, content
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
        kinds = (each for name, each in self.headers.items() if name.lower() == "content-type")
        return any("x-www-form-urlencoded" in str(part).lower() for each in kinds for part in each.parts)

    def _all(self) -> Iterator[tuple[str, Template]]:
        """Yield every template with its place."""
        yield "url", self.url.path
        if self.url.search is not None:
            yield "url", self.url.search
        for key, members in (("query", self.query), ("headers", self.headers)):
            yield from ((f"{key}.{name}", template) for name, template in members.items())
        yield from (("json", template) for template in _json_templates(self.json))
        if self.body is not None:
            yield "body", self.body

    def check(self, input_schema: Mapping[str, Any]) -> None:
        """Check the endpoint of a tool with this input schema.

        Raises:
            InvalidTool: it is invalid, or would let an argument decide where the request goes. The message begins with
                the place below the tool.
        """
        if self.json is not _ABSENT and self.body is not None:
            raise InvalidTool(".http.body: a request has one body: use either `json` or `body`")
        if self.body is not None and self.body.names and _looks_like_json(self.body):
            raise InvalidTool(
                ".http.body: write a JSON body with arguments under `json`, where they cannot change its structure"
            )
        properties = cast("Mapping[str, Any]", input_schema.get("properties", {}))
        for where, template in self._all():
            for name in sorted(template.names):
                check_name(name, properties, f".http.{where}")
        sure = {*cast("Sequence[str]", input_schema.get("required", ()))}
        sure |= {name for name, each in properties.items() if default_of(each) is not None}
        address = (self.url.path, *(() if self.url.search is None else (self.url.search,)))
        for name in sorted({name for template in address for name in template.names}):
            if name not in sure:
                raise InvalidTool(
                    f".http.url: `{{{name}}}` is part of the address, so it must be `required` or have a `default`"
                )
        for name, template in self.headers.items():
            if not _HEADER_NAME.fullmatch(name) or name.lower() in _NOT_OURS:
                raise InvalidTool(f".http.headers: the header `{name}` cannot be set here")
            if any(isinstance(part, str) and _CONTROL.search(part) for part in template.parts):
                raise InvalidTool(f".http.headers.{name}: a header cannot contain a line break")


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
