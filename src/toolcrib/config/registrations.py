"""Reads and writes what is registered at run time: as rows of a store, as one document, and merged with a file.

The document contains, under `toolcrib`, what an `mcp.json` would contain there, and is read in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar, cast

from toolcrib.catalog.bundles import Bundles, ToolBundle
from toolcrib.catalog.capabilities import Capability
from toolcrib.catalog.capability_checks import AddressAccepts, PackageImportable, PathExists, ProgramOnPath, VariableSet
from toolcrib.catalog.catalog_settings import NOTHING_RESERVED, CatalogSettings, Reserved
from toolcrib.catalog.categories import Categories, Category
from toolcrib.catalog.overrides import MetadataOverride, Overrides
from toolcrib.config.catalog_sections import BundleSettings, CatalogSections, CategorySettings
from toolcrib.config.configuration import OUR_KEY, Config
from toolcrib.config.json_document import JsonObject, parse_object, refuse_duplicates
from toolcrib.config.registration_store import Registration
from toolcrib.core.errors import InvalidConfig, NotFound
from toolcrib.core.json_settings import Settings, errors_at, read_settings
from toolcrib.core.tools import ROOT, Tool
from toolcrib.core.tools import Path as NodePath
from toolcrib.sources.declared.definition import DeclaredTool, DeclaredTools

VERSION = 1
"""The version of the document's format."""

KEYS = ("declared", "categories", "tools", "bundles", "capabilities")
"""The keys of the document under `toolcrib`."""

Registrable = DeclaredTool | DeclaredTools | Category | MetadataOverride | ToolBundle | Capability
"""What can be registered: everything that can be written in a configuration."""

Rows = Sequence[Registration]

T = TypeVar("T")


class Kind(StrEnum):
    """What a row contains, and what its name means."""

    TOOL = "tool"
    """A declared tool. The name is the tool id."""
    SOURCE = "source"
    """The settings of a declared source, without its tools. The name is that of the source."""
    CATEGORY = "category"
    """A category, without those below it. The name is the path as written by `category_name`."""
    OVERRIDE = "override"
    """Metadata of tools. The name is a pattern of tool ids."""
    BUNDLE = "bundle"
    CAPABILITY = "capability"


_HOMES = {Kind.OVERRIDE: "tools", Kind.BUNDLE: "bundles", Kind.CAPABILITY: "capabilities"}
"""The keys of the document that have rows by their names."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Document(Settings):
    """The keys of a document."""

    toolcrib: Any = None
    version: Any = None


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A row that is stored but not used now, and the reason."""

    row: Registration
    reason: str

    def __str__(self) -> str:
        return f"{told(self.row.kind, self.row.name)}: {self.reason}"


@dataclass(frozen=True)
class _Joined:
    """A configuration merged with what is registered."""

    config: Config
    passed_over: tuple[PassedOver, ...] = ()


def told(kind: str, name: str) -> str:
    """Return the name of a row for messages."""
    words = {Kind.TOOL: "", Kind.SOURCE: "the source ", Kind.OVERRIDE: "the metadata of "}
    return f"{words.get(cast('Kind', kind), f'the {kind} ')}`{name}`"


def category_name(path: Sequence[str]) -> str:
    """Return a path as one string, such as `Coding/Refactoring`. A `/` in a name is written `~1`, and a `~` is `~0`."""
    return "/".join(name.replace("~", "~0").replace("/", "~1") for name in path)


def category_path(name: str) -> NodePath:
    """Return the path that `category_name` turned into `name`."""
    return tuple(each.replace("~1", "/").replace("~0", "~") for each in name.split("/"))


# -- the document -----------------------------------------------------------------------------------------------------


def read_document(text: str, path: Path) -> tuple[Registration, ...]:
    """Return the registrations of the document in `text`, the content of the file at `path`.

    Raises:
        InvalidConfig: the document is invalid. The message names the file and the place.
    """
    whole = parse_object(text, path)
    for key in whole.repeated:
        raise InvalidConfig(f"{path}: the file.{key}: duplicate key")
    read_settings(_Document, whole, f"{path}: the file")
    version: object = whole.get("version")
    if isinstance(version, bool) or version != VERSION:
        meant = "it was written by a different version of Toolcrib" if isinstance(version, int) else "it is required"
        raise InvalidConfig(f"{path}: version: must be {VERSION}; {meant}")
    ours: Any = whole.get(OUR_KEY)
    place = f"{path}: {OUR_KEY}"
    refuse_duplicates(ours, place)
    settings = read_settings(CatalogSections, ours, place)
    settings.declared_tools(path, OUR_KEY)
    catalog = settings.catalog_settings(place, {})
    # Included bundles may be registered already, or configured, so they are not checked.
    with errors_at(f"{place}.categories: "):
        _ = catalog.all_categories
    with errors_at(f"{path}: "):
        return tuple(_rows_in(ours))


def document(rows: Rows) -> tuple[dict[str, Any], tuple[PassedOver, ...]]:
    """Return a document with the readable rows, and the rows that cannot be read."""
    read, unreadable = _read_all(rows, {})
    joining = _Joining(Config(_STORE), NOTHING_RESERVED, [*unreadable])
    joining.catalog_settings(read)  # rows from two programs can be valid alone and invalid together
    passed_over = tuple(joining.passed_over)
    wrong = {each.row for each in passed_over}
    return {OUR_KEY: _members(row for row in rows if row not in wrong), "version": VERSION}, passed_over


def _rows_in(ours: JsonObject) -> Iterator[Registration]:
    """Yield the rows of the object under `toolcrib`, which must be valid."""
    for name, source in ours.get("declared", {}).items():
        tools, header = source.get("tools", {}), _without(source, "tools")
        if header or not tools:
            yield registration(Kind.SOURCE, name, header)
        for tool, body in tools.items():
            yield registration(Kind.TOOL, f"{name}.{tool}", body)
    # Keep the order of the document, so that a document made from these rows has the same order.
    waiting = _below(ROOT, ours)
    while waiting:
        path, here = waiting.pop()
        below, body = _below(path, here), _without(here, "categories")
        if body or not below:  # a category with no settings needs no row of its own if others are below it
            yield registration(Kind.CATEGORY, category_name(path), body)
        waiting += below
    for kind, key in _HOMES.items():
        for name, body in ours.get(key, {}).items():
            yield registration(kind, name, body)


def _below(path: NodePath, here: JsonObject) -> list[tuple[NodePath, JsonObject]]:
    """Return the categories below `path`, the last one first."""
    return [((*path, name), body) for name, body in reversed(here.get("categories", {}).items())]


def _without(body: JsonObject, left_out: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != left_out}


def registration(kind: Kind, name: str, body: Mapping[str, Any]) -> Registration:
    """Return the row of this kind and name with `body`.

    Raises:
        InvalidConfig: `body` cannot be written as JSON.
    """
    try:
        text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        f"{name}{text}".encode()
    except (TypeError, ValueError) as error:
        raise InvalidConfig(f"{told(kind, name)}: cannot be written as JSON: {error}") from error
    return Registration(kind, name, text)


def _members(rows: Iterable[Registration]) -> JsonObject:
    """Return the object under `toolcrib` for `rows`, which must all be readable."""
    members = JsonObject((key, JsonObject()) for key in KEYS)
    for row in rows:
        body = _json_of(row)
        match row.kind:
            case Kind.TOOL:
                source, _, name = row.name.partition(".")
                _at(members["declared"], source, "tools")[name] = body
            case Kind.SOURCE:
                here = _at(members["declared"], row.name)
                tools = here.pop("tools", JsonObject())
                here.update({**body, "tools": tools})
                here.repeated += body.repeated
            case Kind.CATEGORY:
                path = category_path(row.name)
                here = _at(members["categories"], *[step for name in path for step in (name, "categories")][:-1])
                below = here.pop("categories", None)
                here.update(body if below is None else {**body, "categories": below})
                here.repeated += body.repeated
            case _:
                members[_HOMES[Kind(row.kind)]][row.name] = body
    return members


def _at(members: JsonObject, *steps: str) -> JsonObject:
    """Return the object at this place. Creates it and its parents if they are missing."""
    for step in steps:
        members = members.setdefault(step, JsonObject())
    return members


def _json_of(row: Registration) -> JsonObject:
    """Parse the body of a row. Raises `InvalidConfig` if it is not a JSON object."""
    try:
        found = json.loads(row.body, object_pairs_hook=JsonObject)
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"the stored row is damaged: {error}") from error
    if not isinstance(found, JsonObject):
        raise InvalidConfig("the stored row is damaged: it must be an object")
    return found


# -- values -----------------------------------------------------------------------------------------------------------


def rows_of(things: Iterable[Registrable]) -> tuple[Registration, ...]:
    """Return the rows of objects that a program created.

    Raises:
        InvalidConfig: an object cannot be written in a configuration.
    """
    rows = tuple(row for thing in things for row in _rows_of_one(thing))
    _, passed_over = _read_all(rows, {})
    for each in passed_over:
        raise InvalidConfig(str(each))
    return rows


def _rows_of_one(thing: object) -> Iterator[Registration]:
    match thing:
        case DeclaredTool():
            yield registration(Kind.TOOL, thing.tool.id, thing.to_wire())
        case DeclaredTools():
            header = {key: value for key, value in thing.to_wire().items() if key != "tools"}
            if header or not thing.tools:
                yield registration(Kind.SOURCE, thing.name, header)
            for tool in thing.tools:
                yield from _rows_of_one(tool)
        case Category():
            yield registration(Kind.CATEGORY, category_name(thing.path), _filled(thing, CategorySettings))
        case MetadataOverride():
            yield registration(Kind.OVERRIDE, thing.tools, thing.to_wire())
        case ToolBundle():
            yield registration(Kind.BUNDLE, thing.name, _filled(thing, BundleSettings))
        case Capability():
            yield registration(Kind.CAPABILITY, thing.name, _capability(thing))
        case _:
            raise InvalidConfig(
                f"{_short(thing)} cannot be stored. Only what a configuration can contain is stored: `DeclaredTool` or "
                "`DeclaredTools` (a command or an endpoint), a `Category`, `MetadataOverride`, `ToolBundle` or "
                "`Capability`. Add functions with `crib.add` in each program"
            )


def _filled(thing: Category | ToolBundle, kind: type[CategorySettings | BundleSettings]) -> dict[str, Any]:
    """Return the settings of `thing` that are not empty."""
    return {field.name: value for field in fields(kind) if (value := getattr(thing, field.name, None))}


def _short(thing: object) -> str:
    return f"the tool `{thing.id}`" if isinstance(thing, Tool) else f"a `{type(thing).__name__}`"


def _capability(capability: Capability) -> dict[str, Any]:
    match capability.check:
        case ProgramOnPath(name):
            body: dict[str, Any] = {"program": name}
        case VariableSet(name):
            body = {"env": name}
        case PathExists(path):
            body = {"path": path}
        case PackageImportable(name):
            body = {"package": name}
        case AddressAccepts(host, port):
            body = {"address": f"[{host}]:{port}" if ":" in host else f"{host}:{port}"}
        case _:
            raise InvalidConfig(f"the capability `{capability.name}` is checked by Python code, which cannot be stored")
    plain = Capability(capability.name, capability.check)
    keys = ("remedy", "lifetime_s", "missing_lifetime_s", "timeout_s")
    return body | {key: getattr(capability, key) for key in keys if getattr(capability, key) != getattr(plain, key)}


_Read = Sequence[tuple[Registration, Registrable]]
"""The content of rows, each with its row. A row of an override can have several."""

_STORE = Path("registered")
"""A placeholder for the path in errors about a row. It is removed from the messages again."""
_PLACE = f"{_STORE}: {OUR_KEY}"


def _read_all(rows: Rows, names: Mapping[str, str]) -> tuple[_Read, tuple[PassedOver, ...]]:
    """Parse each of `rows`. Also return the rows that cannot be parsed. `names` are as for `CatalogSections`.

    The categories are in the order in which they would claim tools if they were in a configuration.
    """
    found: list[tuple[Registration, Registrable]] = []
    passed_over: list[PassedOver] = []
    for row in rows:
        try:
            found += ((row, each) for each in _read(row, names))
        except InvalidConfig as error:
            passed_over.append(PassedOver(row, error.message.removeprefix(f"{_STORE}: ")))
    members = _members(row for row, each in found if isinstance(each, Category))
    ordered = read_settings(CatalogSections, members, _PLACE).catalog_settings(_PLACE, {}).categories
    order = {category.path: position for position, category in enumerate(ordered)}
    found.sort(key=lambda each: order[each[1].path] if isinstance(each[1], Category) else 0)
    return found, tuple(passed_over)


def _read(row: Registration, names: Mapping[str, str]) -> tuple[Registrable, ...]:
    if row.kind not in list(Kind):
        raise InvalidConfig("this version of Toolcrib does not know this kind of item")
    body = _json_of(row)
    if row.kind == Kind.SOURCE and "tools" in body:
        raise InvalidConfig("its tools must be registered one by one")
    if row.kind == Kind.CATEGORY and "categories" in body:
        raise InvalidConfig("the categories below it must be registered one by one")
    members = _members([row])
    refuse_duplicates(members, _PLACE)
    settings = read_settings(CatalogSections, members, _PLACE)
    found = settings.catalog_settings(_PLACE, names)
    with errors_at(f"{_PLACE}.categories: "):
        Categories(found.categories)
    # Of the categories, the last one is that of the row. The others are only its path.
    declared = settings.declared_tools(_STORE, OUR_KEY)
    return (*declared, *found.categories[-1:], *found.overrides, *found.bundles, *found.capabilities)


def _of(kind: type[T], read: _Read) -> list[tuple[Registration, T]]:
    return [(row, each) for row, each in read if isinstance(each, kind)]


# -- merged with a configuration --------------------------------------------------------------------------------------


def joined(config: Config, rows: Rows, reserved: Reserved = NOTHING_RESERVED) -> _Joined:
    """Merge `config` with what `rows` register. The configuration and what it reserves take precedence."""
    read, passed_over = _read_all(rows, config.source_names)
    joining = _Joining(config, reserved, [*passed_over])
    return _Joined(
        replace(
            config,
            declared=joining.declared(_of(DeclaredTools, read)),
            bundles=joining.bundles(_of(ToolBundle, read)),
            capabilities=joining.capabilities(_of(Capability, read)),
            **joining.catalog_settings(read),
        ),
        tuple(dict.fromkeys(joining.passed_over)),
    )


IN_CONFIGURATION = "the configuration or this program already defines it differently"


class _Joining:
    """Merges rows into a configuration, and collects those that cannot be used."""

    def __init__(self, config: Config, reserved: Reserved, passed_over: list[PassedOver]) -> None:
        self._config = config
        self._reserved = reserved
        self.passed_over = passed_over

    def declared(self, given: Iterable[tuple[Registration, DeclaredTools]]) -> tuple[DeclaredTools, ...]:
        plugins = (plugin.name for plugin in self._config.plugins)
        taken = self._reserved.sources.union(self._config.source_names.values(), plugins)
        configured = {source.name: source for source in self._config.declared}
        found = dict(configured)
        for row, said in sorted(given, key=lambda each: each[0].kind == Kind.TOOL):  # the sources first
            before = found.get(said.name, DeclaredTools(said.name))
            if said.name in taken:
                self._pass_over(
                    row, f"the name `{said.name}` is already used by a server, a plugin or a source of this program"
                )
            elif row.kind == Kind.SOURCE and said.name in configured:
                self._pass_over(row, IN_CONFIGURATION)
            elif row.kind == Kind.SOURCE:
                found[said.name] = replace(said, tools=before.tools)
            elif any(said.tools[0].tool.name == each.tool.name for each in before.tools):
                self._pass_over(row, IN_CONFIGURATION)
            else:
                found[said.name] = before.having(said.tools[0])
        return tuple(found.values())

    def capabilities(self, given: Iterable[tuple[Registration, Capability]]) -> tuple[Capability, ...]:
        configured = self._config.capabilities
        known = {each.name for each in (*configured, *self._reserved.catalog_settings.capabilities)}
        return (*configured, *self._others(given, known, lambda each: each.name))

    def bundles(self, given: Iterable[tuple[Registration, ToolBundle]]) -> Bundles:
        configured = self._config.bundles.given
        known = {each.name for each in (*configured, *self._reserved.catalog_settings.bundles)}
        others = [(row, each) for row, each in given if not self._is_known(row, each.name, known)]
        # A bundle may include one that comes later, so adding them takes several rounds.
        taken: list[ToolBundle] = []
        while True:
            left: list[tuple[Registration, ToolBundle]] = []
            reasons: list[str] = []
            for row, bundle in others:
                try:
                    Bundles([*configured, *taken, bundle])
                    taken.append(bundle)
                except InvalidConfig as error:
                    left.append((row, bundle))
                    reasons.append(error.message)
            if len(left) == len(others):
                break
            others = left
        for (row, _), reason in zip(left, reasons, strict=True):
            self._pass_over(row, reason)
        return Bundles([*configured, *taken])

    def catalog_settings(self, read: _Read) -> dict[str, Categories | Overrides]:
        """Return the merged categories and overrides, by the names of the fields of `Config`."""
        mine, claimed = self._config.catalog_settings, self._config.overrides.claims
        # A category that exists only because an override names it can still be defined by a row.
        bare = {path for path in claimed if Category(path, tools=claimed[path]) in mine.categories}
        set_up = tuple(each for each in mine.categories if each.path not in bare)
        own = self._reserved.catalog_settings
        paths = {each.path for each in (*set_up, *own.categories)}
        categories = [each for each in _of(Category, read) if not self._is_known(each[0], each[1].path, paths)]
        merged = self._merged(set_up, categories, _of(MetadataOverride, read))
        # An override that is not used may have required approval. So require it for these tools, to be safe.
        unsaid = (each.row.name for each in self.passed_over if each.row.kind == Kind.OVERRIDE)
        asked = (MetadataOverride(pattern, {"requires_permission": True}) for pattern in dict.fromkeys(unsaid))
        return {"categories": merged.all_categories, "overrides": Overrides((*asked, *merged.overrides))}

    def _merged(
        self,
        set_up: tuple[Category, ...],
        categories: Sequence[tuple[Registration, Category]],
        overrides: Sequence[tuple[Registration, MetadataOverride]],
    ) -> CatalogSettings:
        own, mine = self._reserved.catalog_settings, self._config.overrides.given

        def of(some: Iterable[tuple[Registration, Category | MetadataOverride]]) -> CatalogSettings:
            things = [each for _, each in some]
            more = tuple(each for each in things if isinstance(each, Category))
            said = tuple(each for each in things if isinstance(each, MetadataOverride))
            # The configuration comes last, so it wins over what is registered.
            return CatalogSettings((*set_up, *more), (*said, *mine))

        def fits(catalog_settings: CatalogSettings) -> str | None:
            try:
                _ = CatalogSettings.of((catalog_settings, own)).all_categories
            except InvalidConfig as error:
                return error.message
            return None

        whole = of([*categories, *overrides])
        if fits(whole) is None:
            return whole
        taken: list[tuple[Registration, Category | MetadataOverride]] = []
        for each in (*categories, *overrides):
            if (reason := fits(of([*taken, each]))) is None:
                taken.append(each)
            else:
                self._pass_over(each[0], reason)
        return of(taken)

    def _others(
        self, given: Iterable[tuple[Registration, T]], known: Iterable[object], name: Callable[[T], object]
    ) -> list[T]:
        known = {*known}
        return [each for row, each in given if not self._is_known(row, name(each), known)]

    def _is_known(self, row: Registration, name: object, known: set[Any]) -> bool:
        """Return whether `name` already exists. If so, the row is passed over."""
        if name in known:
            self._pass_over(row, IN_CONFIGURATION)
        return name in known

    def _pass_over(self, row: Registration, reason: str) -> None:
        self.passed_over.append(PassedOver(row, reason))


# -- changes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Registering:
    """Changes registrations of a configuration. A change that would make any of them unusable is refused."""

    config: Config
    reserved: Reserved = NOTHING_RESERVED

    def added(self, rows: Rows, new: Rows, *, replacing: bool = False) -> tuple[Registration, ...]:
        """Return `rows` with `new` added. With `replacing`, different items of the same name are replaced.

        Raises:
            InvalidConfig: a different item with the same name exists, or an item could not be used.
        """
        there = {row.key: row for row in rows}
        differing = [row for row in new if row.key in there and not _is_same(there[row.key], row)]
        if differing and not replacing:
            listed = "; ".join(f"{told(row.kind, row.name)} is already registered, and differs" for row in differing)
            raise InvalidConfig(f"nothing was registered: {listed}")
        after = there | {row.key: row for row in new if row in differing or row.key not in there}
        self._check(rows, tuple(after.values()), "nothing was registered")
        return tuple(after.values())

    def removed(self, rows: Rows, gone: Iterable[tuple[str, str]]) -> tuple[Registration, ...]:
        """Return `rows` without the keys in `gone`. A declared source goes with its last tool.

        Raises:
            NotFound: a key in `gone` is not registered.
            InvalidConfig: a remaining item could not be used any more.
        """
        gone = set(gone)
        if missing := gone - {row.key for row in rows}:
            listed = ", ".join(sorted(told(kind, name) for kind, name in missing))
            raise NotFound(f"Nothing was removed: {listed} {_is_or_are(missing)} not registered.")
        left = [row for row in rows if row.key not in gone]
        filled = {row.name.partition(".")[0] for row in left if row.kind == Kind.TOOL}
        emptied = {name.partition(".")[0] for kind, name in gone if kind == Kind.TOOL} - filled
        after = tuple(row for row in left if not (row.kind == Kind.SOURCE and row.name in emptied))
        self._check(rows, after, "nothing was removed")
        return after

    def _check(self, before: Rows, after: Rows, otherwise: str) -> None:
        known, now = (joined(self.config, rows, self.reserved) for rows in (before, after))
        if wrong := [str(each) for each in now.passed_over if each not in known.passed_over]:
            raise InvalidConfig(f"{otherwise}: {'; '.join(wrong)}")
        try:
            Bundles([*now.config.bundles.given, *self.reserved.catalog_settings.bundles])
        except InvalidConfig as error:
            raise InvalidConfig(f"{otherwise}: {error.message}") from error


def _is_or_are(some: Collection[object]) -> str:
    return "is" if len(some) == 1 else "are"


def _is_same(one: Registration, other: Registration) -> bool:
    try:
        return json.dumps(_json_of(one), sort_keys=True) == json.dumps(_json_of(other), sort_keys=True)
    except InvalidConfig:
        return one == other
