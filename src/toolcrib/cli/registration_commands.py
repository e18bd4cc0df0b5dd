"""`toolcrib add`, `remove`, `export` and `import`: manage what is registered in addition to a configuration."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from click import UsageError

from toolcrib.cli.places import store_of
from toolcrib.cli.terminal_output import plain, plain_json, print_json, run, stderr, stdout, write
from toolcrib.config import read_config
from toolcrib.config.registration_store import Registration, RegistrationStore
from toolcrib.config.registrations import (
    Kind,
    Registering,
    document,
    read_document,
    registration,
    told,
)
from toolcrib.core.errors import InvalidConfig, NotFound
from toolcrib.sources.declared.template import Template


def add(config: Path, tool_id: str, declaration: dict[str, Any], schema: Path | None, *, as_json: bool) -> None:
    """Register a declared tool. Without `schema`, each `{name}` in it becomes a required string argument."""

    async def main() -> None:
        source, _, name = tool_id.partition(".")
        if not (source and name):
            raise InvalidConfig(f"`{tool_id}` is not a tool id. Use SOURCE.NAME, for example ops.disk_free")
        body = dict(declaration)
        body["input_schema"] = _schema_of(declaration, tool_id) if schema is None else _schema_in(schema)
        new = registration(Kind.TOOL, tool_id, body)
        registering = Registering(read_config(config))

        def change(rows: Sequence[Registration]) -> Iterable[Registration]:
            if new.key in {row.key for row in rows}:
                hint = f"Run `toolcrib remove {tool_id}` first."
                raise InvalidConfig(f"`{tool_id}` is already registered. Nothing was changed.", hints=[hint])
            return registering.added(rows, [new])

        _tell(config, *_changed(store_of(config), change), as_json=as_json)

    run(main, as_json=as_json)


def http_of(
    url: str, *, method: str, headers: tuple[str, ...], body: str | None, json_body: str | None, allow_private: bool
) -> dict[str, Any]:
    """Return the endpoint in the form of a declaration.

    Raises:
        UsageError: a header has no colon, or `json_body` is not valid JSON.
    """
    if (bare := next((header for header in headers if ":" not in header), None)) is not None:
        raise UsageError(f"`{bare}` is not a header. Use 'NAME: VALUE'.")
    pairs = (header.partition(":") for header in headers)
    http: dict[str, Any] = {"url": url} if method == "GET" else {"method": method, "url": url}
    http |= {"headers": {name.strip(): value.strip() for name, _, value in pairs}} if headers else {}
    http |= {} if body is None else {"body": body}
    http |= {} if json_body is None else {"json": _json(json_body)}
    return http | ({"allow_private": True} if allow_private else {})


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"--json-body is not valid JSON: {error}.") from error


def remove(
    config: Path,
    *,
    tool_ids: tuple[str, ...],
    categories: tuple[str, ...],
    overrides: tuple[str, ...],
    bundles: tuple[str, ...],
    capabilities: tuple[str, ...],
    as_json: bool,
) -> None:
    """Unregister all of these, or nothing if one of them is not registered."""
    named = {
        Kind.TOOL: tool_ids,
        Kind.CATEGORY: categories,
        Kind.OVERRIDE: overrides,
        Kind.BUNDLE: bundles,
        Kind.CAPABILITY: capabilities,
    }
    keys = [(kind.value, name) for kind, names in named.items() for name in names]

    async def main() -> None:
        registering = Registering(read_config(config))
        try:
            before, after = _changed(store_of(config), lambda rows: registering.removed(rows, keys))
        except NotFound as error:
            raise NotFound(error.message, hints=["Run `toolcrib export` to see what is registered."]) from error
        _tell(config, before, after, as_json=as_json)

    run(main, as_json=as_json)


def export(config: Path, output: Path | None) -> None:
    """Write everything that is registered to one document. Unreadable items are left out and reported."""

    async def main() -> None:
        rows = store_of(config).all()
        if not rows:
            read_config(config)  # with rows, the configuration may be missing: its registrations can still be exported
        whole, unreadable = document(rows)
        text = f"{json.dumps(whole, ensure_ascii=False, indent=2)}\n"
        _write(text, output)
        for each in unreadable:
            stderr.print(f"Left out: {plain(str(each))}.", markup=False, style="yellow")

    run(main, as_json=False)


def import_(file: Path, config: Path, *, replacing: bool, dry_run: bool, as_json: bool) -> None:
    """Register everything in a document, or nothing."""

    async def main() -> None:
        new = read_document(_text_in(file), file)
        registering = Registering(read_config(config))
        store = store_of(config)

        def change(rows: Sequence[Registration]) -> Iterable[Registration]:
            return registering.added(rows, new, replacing=replacing)

        before, after = ((rows := store.all()), tuple(change(rows))) if dry_run else _changed(store, change)
        _tell(config, before, after, as_json=as_json, dry_run=dry_run)

    run(main, as_json=as_json)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        write(plain_json(text) if stdout.is_terminal else text)
        return
    try:
        # The document may contain secrets, so like the store it is readable by its owner only.
        with open(output, "w", encoding="utf-8", opener=partial(os.open, mode=0o600)) as file:
            file.write(text)
    except OSError as error:
        raise InvalidConfig(f"{output}: cannot write the file: {error.strerror}") from error


def _text_in(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path}: must be UTF-8 text") from error
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot read the file: {error.strerror}") from error


def _changed(
    store: RegistrationStore, change: Callable[[Sequence[Registration]], Iterable[Registration]]
) -> tuple[Sequence[Registration], Sequence[Registration]]:
    """Update the store. Returns what was registered before and after `change`."""
    before: list[Registration] = []

    def noted(rows: Sequence[Registration]) -> Iterable[Registration]:
        before.extend(rows)
        return change(rows)

    after = store.update(noted)
    return before, after


def _tell(
    config: Path,
    before: Sequence[Registration],
    after: Sequence[Registration],
    *,
    as_json: bool,
    dry_run: bool = False,
) -> None:
    then, now = {row.key: row for row in before}, {row.key: row for row in after}
    changes = {
        "added": [key for key in now if key not in then],
        "replaced": [key for key, row in now.items() if key in then and then[key] != row],
        "removed": [key for key in then if key not in now],
    }
    if as_json:
        wire = {what: [{"kind": kind, "name": name} for kind, name in keys] for what, keys in changes.items()}
        print_json({**wire, "dry_run": dry_run})
        return
    for what, keys in changes.items():
        for key in keys:
            stdout.print(plain(f"{'would be ' * dry_run}{what}: {told(*key)}"), markup=False)
    if not any(changes.values()):
        stderr.print("Nothing changes: everything is already registered like this.")
    elif dry_run:
        stderr.print("Nothing was written.")
    else:
        stderr.print(plain(f"Running gateways that use {config} apply the change within seconds."), markup=False)


def _schema_of(declaration: dict[str, Any], where: str) -> dict[str, Any]:
    """Return a schema with the placeholders of `declaration` as arguments, in the order of the text."""
    names: dict[str, None] = {}
    for text in _texts(declaration):
        template = Template.read(text, where)
        names |= dict.fromkeys(sorted(template.names, key=lambda name: text.index(f"{{{name}}}")))
    properties = {name: {"type": "string"} for name in names}
    return {"type": "object", "properties": properties, "required": [*names]} if names else {"type": "object"}


def _texts(declaration: dict[str, Any]) -> list[str]:
    """Return the strings of a declaration that can contain placeholders."""
    http = declaration.get("http", {})
    return [
        *declaration.get("command", ()),
        *([http["url"]] if http else ()),
        *http.get("headers", {}).values(),
        *([http["body"]] if "body" in http else ()),
        *_texts_in(http.get("json")),
    ]


def _schema_in(path: Path) -> Any:
    try:
        return json.loads(_text_in(path))
    except ValueError as error:
        raise InvalidConfig(f"{path}: {error}") from error


def _texts_in(value: object) -> Iterator[str]:
    """Yield every string in a JSON value, in order."""
    match value:
        case str():
            yield value
        case dict():
            yield from _texts_in([*cast("dict[str, object]", value).values()])
        case list():
            for member in cast("list[object]", value):
                yield from _texts_in(member)
        case _:
            pass
