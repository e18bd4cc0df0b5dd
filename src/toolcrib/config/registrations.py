"""Reads and writes what is registered at run time: as rows of a store, as one document, and merged with a file.

The document contains, under `toolcrib`, what an `mcp.json` would contain there, and is read in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar, cast

from toolcrib.catalog.bundles import Bundles, ToolBundle
from toolcrib.catalog.capabilities import Capability
from toolcrib.catalog.capability_checks import AddressAccepts, PackageImportable, PathExists, ProgramOnPath, VariableSet
from toolcrib.catalog.catalog_settings import NOTHING_RESERVED, CatalogSettings, Reserved
from toolcrib.catalog.categories import Categories, Category
from toolcrib.catalog.overrides import MetadataOverride, Overrides
from toolcrib.config.bundles import read_bundle
from toolcrib.config.capabilities import read_capabilities
from toolcrib.config.categories import read_categories
from toolcrib.config.declared import read_declarations
from toolcrib.config.file import OUR_KEY, Config
from toolcrib.config.overrides import read_overrides
from toolcrib.config.registration_store import Registration
from toolcrib.config.settings import JsonObject, Settings, as_object, parsed
from toolcrib.core.errors import InvalidConfig, NotFound
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


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A row that is stored but not used now, and the reason."""

    row: Registration
    reason: str

    def __str__(self) -> str:
        return f"{told(self.row.kind, self.row.name)}: {self.reason}"


@dataclass(frozen=True)
class Joined:
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
    document = parsed(text, path)
    Settings(document, path, "the file").only((OUR_KEY, "version"))
    version: object = document.get("version")
    if isinstance(version, bool) or version != VERSION:
        meant = "it was written by a different version of Toolcrib" if isinstance(version, int) else "it is required"
        raise InvalidConfig(f"{path}: version: must be {VERSION}; {meant}")
    ours = Settings(as_object(document.get(OUR_KEY), path, OUR_KEY), path, OUR_KEY)
    ours.only(KEYS)
    _check(ours)
    return tuple(_rows_of(ours))


def document(rows: Rows) -> tuple[dict[str, Any], tuple[PassedOver, ...]]:
    """Return a document with the readable rows, and the rows that cannot be read."""
    values, unreadable = _read_all(rows, {})
    joining = _Joining(Config(_STORE), NOTHING_RESERVED, [*unreadable])
    joining.catalog_settings(values)  # rows from two programs can be valid alone and invalid together
    passed_over = tuple(joining.passed_over)
    wrong = {each.row for each in passed_over}
    return {OUR_KEY: _members(row for row in rows if row not in wrong), "version": VERSION}, passed_over


def _check(ours: Settings) -> None:
    """Check that an `mcp.json` could contain all of this, alone or with more settings."""
    read_declarations(ours.settings("declared"), ())
    overrides = read_overrides(ours.settings("tools"), {})
    categories = read_categories(ours.settings("categories"), {})
    _ = CatalogSettings(categories.given, overrides.given).all_categories
    bundles = ours.settings("bundles")
    bundles.only(bundles)
    for name in bundles:  # included bundles may be registered already, or configured, so they are not checked
        read_bundle(bundles, name, {})
    read_capabilities(ours.settings("capabilities"))


def _rows_of(ours: Settings) -> Iterator[Registration]:
    for name, source in _objects(ours.settings("declared")):
        tools = source.settings("tools")
        header = _without(source, "tools")
        if header or not tools.values:
            yield _row(Kind.SOURCE, name, header, ours)
        for tool, here in _objects(tools):
            yield _row(Kind.TOOL, f"{name}.{tool}", here.values, ours)
    # Keep the order of the document, so that a document made from these rows has the same order.
    waiting = _below(ROOT, ours.settings("categories"))
    while waiting:
        path, here = waiting.pop()
        below, said = _below(path, here.settings("categories")), _without(here, "categories")
        if said or not below:  # a category with no settings needs no row of its own if others are below it
            yield _row(Kind.CATEGORY, category_name(path), said, ours)
        waiting += below
    for key, kind in (("tools", Kind.OVERRIDE), ("bundles", Kind.BUNDLE), ("capabilities", Kind.CAPABILITY)):
        for name, here in _objects(ours.settings(key)):
            yield _row(kind, name, here.values, ours)


def _below(path: NodePath, settings: Settings) -> list[tuple[NodePath, Settings]]:
    """Return the categories at this level, the last one first."""
    return [((*path, name), here) for name, here in reversed([*_objects(settings)])]


def _objects(settings: Settings) -> Iterator[tuple[str, Settings]]:
    return ((name, settings.settings(name)) for name in settings)


def _without(settings: Settings, left_out: str) -> dict[str, Any]:
    return {key: value for key, value in settings.values.items() if key != left_out}


def _row(kind: Kind, name: str, body: Mapping[str, Any], ours: Settings) -> Registration:
    try:
        return registration(kind, name, body)
    except InvalidConfig as error:
        raise InvalidConfig(f"{ours.path}: {error.message}") from error


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
    homes = {Kind.OVERRIDE: "tools", Kind.BUNDLE: "bundles", Kind.CAPABILITY: "capabilities"}
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
            case Kind.CATEGORY:
                path = category_path(row.name)
                here = _at(members["categories"], *[step for name in path for step in (name, "categories")][:-1])
                below = here.pop("categories", None)
                here.update(body if below is None else {**body, "categories": below})
            case _:
                members[homes[Kind(row.kind)]][row.name] = body
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
            texts = {"title": thing.title, "summary": thing.summary}
            lists = {"tags": thing.tags, "tools": thing.tools, "tagged": thing.tagged, "also_under": thing.also_under}
            body = {key: value for key, value in {**texts, **lists, "group": thing.group}.items() if value}
            yield registration(Kind.CATEGORY, category_name(thing.path), body)
        case MetadataOverride():
            yield registration(Kind.OVERRIDE, thing.tools, thing.to_wire())
        case ToolBundle():
            keys = ("description", "required", "optional", "includes")
            yield registration(Kind.BUNDLE, thing.name, {key: value for key in keys if (value := getattr(thing, key))})
        case Capability():
            yield registration(Kind.CAPABILITY, thing.name, _capability(thing))
        case _:
            raise InvalidConfig(
                f"{_short(thing)} cannot be stored. Only what a configuration can contain is stored: `DeclaredTool` or "
                "`DeclaredTools` (a command or an endpoint), a `Category`, `MetadataOverride`, `ToolBundle` or "
                "`Capability`. Add functions with `crib.add` in each program"
            )


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


@dataclass
class _Values:
    """The content of rows, in their order, each with its row."""

    tools: list[tuple[Registration, DeclaredTools]]
    """Declared tools, each in a source of its own."""
    sources: list[tuple[Registration, DeclaredTools]]
    """The settings of declared sources, without tools."""
    categories: list[tuple[Registration, Category]]
    """Categories, in the order in which they would claim tools if they were in a configuration."""
    overrides: list[tuple[Registration, MetadataOverride]]
    bundles: list[tuple[Registration, ToolBundle]]
    capabilities: list[tuple[Registration, Capability]]


def _read_all(rows: Rows, names: Mapping[str, str]) -> tuple[_Values, tuple[PassedOver, ...]]:
    """Parse each of `rows`. Also return the rows that cannot be parsed. `names` are as for `read_overrides`."""
    values = _Values([], [], [], [], [], [])
    passed_over: list[PassedOver] = []
    for row in rows:
        try:
            _read(row, values, names)
        except InvalidConfig as error:
            passed_over.append(PassedOver(row, error.message.removeprefix(f"{_STORE}: ")))
    order = _order(_members(row for row, _ in values.categories)["categories"])
    values.categories.sort(key=lambda each: order[each[1].path])
    return values, tuple(passed_over)


def _order(members: JsonObject) -> dict[NodePath, int]:
    """Return the positions at which `read_categories` would read these categories."""
    found: dict[NodePath, int] = {}
    waiting: list[tuple[NodePath, JsonObject]] = [(ROOT, members)]
    while waiting:
        above, here = waiting.pop(0)
        for name, body in here.items():
            found[*above, name] = len(found)
            waiting.append(((*above, name), body.get("categories", JsonObject())))
    return found


_STORE = Path("registered")
"""A placeholder for the path in errors about a row. It is removed from the messages again."""


def _read(row: Registration, values: _Values, names: Mapping[str, str]) -> None:
    if row.kind not in list(Kind):
        raise InvalidConfig("this version of Toolcrib does not know this kind of item")
    body = _json_of(row)

    def alone(key: str, name: str, value: JsonObject = body) -> Settings:
        return Settings(JsonObject([(name, value)]), _STORE, f"{OUR_KEY}.{key}")

    match Kind(row.kind):
        case Kind.TOOL:
            source, _, name = row.name.partition(".")
            wire = JsonObject([("tools", JsonObject([(name, body)]))])
            values.tools.append((row, read_declarations(alone("declared", source, wire), ())[0]))
        case Kind.SOURCE:
            if "tools" in body:
                raise InvalidConfig("its tools must be registered one by one")
            values.sources.append((row, read_declarations(alone("declared", row.name), ())[0]))
        case Kind.CATEGORY:
            if "categories" in body:
                raise InvalidConfig("the categories below it must be registered one by one")
            path = category_path(row.name)
            found = read_categories(Settings(_nested(path, body), _STORE, f"{OUR_KEY}.categories"), names)
            values.categories.append((row, found.given[-1]))
        case Kind.OVERRIDE:
            values.overrides += ((row, each) for each in read_overrides(alone("tools", row.name), names).given)
        case Kind.BUNDLE:
            values.bundles.append((row, read_bundle(alone("bundles", row.name), row.name, names)))
        case Kind.CAPABILITY:
            values.capabilities.append((row, read_capabilities(alone("capabilities", row.name))[0]))


def _nested(path: NodePath, body: JsonObject) -> JsonObject:
    for name in reversed(path[1:]):
        body = JsonObject([("categories", JsonObject([(name, body)]))])
    return JsonObject([(path[0], body)])


# -- merged with a configuration --------------------------------------------------------------------------------------


def joined(config: Config, rows: Rows, reserved: Reserved = NOTHING_RESERVED) -> Joined:
    """Merge `config` with what `rows` register. The configuration and what it reserves take precedence."""
    values, passed_over = _read_all(rows, config.source_names)
    joining = _Joining(config, reserved, [*passed_over])
    return Joined(
        replace(
            config,
            declared=joining.declared(values),
            bundles=joining.bundles(values.bundles),
            capabilities=joining.capabilities(values.capabilities),
            **joining.catalog_settings(values),
        ),
        tuple(dict.fromkeys(joining.passed_over)),
    )


IN_CONFIGURATION = "the configuration or this program already defines it differently"
T = TypeVar("T")


class _Joining:
    """Merges rows into a configuration, and collects those that cannot be used."""

    def __init__(self, config: Config, reserved: Reserved, passed_over: list[PassedOver]) -> None:
        self._config = config
        self._reserved = reserved
        self.passed_over = passed_over

    def declared(self, values: _Values) -> tuple[DeclaredTools, ...]:
        plugins = (plugin.name for plugin in self._config.plugins)
        taken = self._reserved.sources.union(self._config.source_names.values(), plugins)
        configured = {source.name: source for source in self._config.declared}
        found = dict(configured)
        for row, said in (*values.sources, *values.tools):
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

    def catalog_settings(self, values: _Values) -> dict[str, Categories | Overrides]:
        """Return the merged categories and overrides, by the names of the fields of `Config`."""
        mine, claimed = self._config.catalog_settings, self._config.overrides.claims
        # A category that exists only because an override names it can still be defined by a row.
        bare = {path for path in claimed if Category(path, tools=claimed[path]) in mine.categories}
        set_up = tuple(each for each in mine.categories if each.path not in bare)
        own = self._reserved.catalog_settings
        paths = {each.path for each in (*set_up, *own.categories)}
        categories = [each for each in values.categories if not self._is_known(each[0], each[1].path, paths)]
        merged = self._merged(set_up, categories, values.overrides)
        # An override that is not used may have required approval. So require it for these tools, to be safe.
        unsaid = (each.row.name for each in self.passed_over if each.row.kind == Kind.OVERRIDE)
        asked = (MetadataOverride(pattern, {"requires_permission": True}) for pattern in dict.fromkeys(unsaid))
        return {"categories": merged.all_categories, "overrides": Overrides((*asked, *merged.overrides))}

    def _merged(
        self,
        set_up: tuple[Category, ...],
        categories: Iterable[tuple[Registration, Category]],
        overrides: Iterable[tuple[Registration, MetadataOverride]],
    ) -> CatalogSettings:
        own, mine = self._reserved.catalog_settings, self._config.overrides.given
        categories, overrides = [*categories], [*overrides]

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
