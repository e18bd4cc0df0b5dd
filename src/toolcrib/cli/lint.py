"""`toolcrib lint`: what is wrong with definitions, told before a model meets them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from toolcrib.catalog.state import SourceStatus
from toolcrib.catalog.view import View
from toolcrib.cli.opening import opened
from toolcrib.cli.output import escape, print_json, run, stderr, stdout
from toolcrib.cli.slips import Slips
from toolcrib.config import read_config
from toolcrib.core.checks import check_tool
from toolcrib.core.errors import InvalidTool, SourceUnavailable
from toolcrib.core.principal import LOCAL
from toolcrib.crib import Toolcrib
from toolcrib.sources.base import Listing
from toolcrib.sources.functions import FunctionSource
from toolcrib.sources.plugins import Plugin, PluginDispatcher


@dataclass(frozen=True, slots=True)
class _Finding:
    place: str
    problem: str


def lint(config: Path | None, modules: tuple[str, ...], wait_s: float, *, as_json: bool) -> None:
    """Look, and report; the process ends with 1 where something is wrong."""
    found: list[_Finding] = []

    async def main() -> None:
        for module in modules:
            found.extend([finding async for finding in _of_module(module)])
        if config is not None:
            found.extend([finding async for finding in _of_config(config, wait_s)])
        if as_json:
            print_json({"findings": [{"place": each.place, "problem": each.problem} for each in found]})
            return
        counted = "1 finding" if len(found) == 1 else f"{len(found)} findings"
        for finding in found:
            stdout.print(f"[bold]{escape(finding.place)}[/]: {escape(finding.problem)}", soft_wrap=True)
        stderr.print(f"[red]{counted}.[/]" if found else "[green]Nothing is wrong.[/]")

    run(main, as_json=as_json)
    sys.exit(1 if found else 0)


async def _of_config(config: Path, wait_s: float) -> AsyncIterator[_Finding]:
    async with opened(config, None, wait_s=wait_s) as crib:
        # All that was listed: whoever runs this owns the policy.
        view = View.of(crib.registry.state, overlay=crib.lockers.open_overlay(LOCAL.id))
        read = crib.with_registered(read_config(config))
        passed_over = crib.registration_problems
    for entry in view.sources.values():
        if entry.status is SourceStatus.FAILED:
            yield _Finding(entry.name, entry.reason or "it cannot be listed")
        for aside in entry.set_aside:
            yield _Finding(f"{entry.name}.{aside.name}", f"it is set aside: {aside.reason}")
    for slip in Slips(read, view):
        yield _Finding(str(config), slip)
    for problem in passed_over:
        yield _Finding("registered", problem)
    for bundle in read.bundles:
        for missing in read.bundles.contents(bundle.name).look(bundle.name, view).missing:
            yield _Finding(f"the bundle {bundle.name}", f"`{missing.entry}` is missing: {missing.why}")
    for name in view.visible.state.needing.keys() - {capability.name for capability in read.capabilities}:
        yield _Finding(f"the capability {name}", "tools need it, and it is not set up")


async def _of_module(target: str) -> AsyncIterator[_Finding]:
    """What is wrong with the cribs, sources of functions and plugins of a module, or with the one that is named."""
    name, _, attribute = target.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(name)
        given = {attribute: getattr(module, attribute)} if attribute else _offered(module)
    except InvalidTool as error:  # a tool is refused where it is added
        yield _Finding(target, error.message)
        return
    except Exception as error:  # noqa: BLE001  it is somebody's code
        yield _Finding(target, f"it cannot be imported: {type(error).__name__}: {error}")
        return
    if not given:
        yield _Finding(target, "there is no Toolcrib, FunctionSource or Plugin in it")
    for label, value in given.items():
        async for problem in _of_value(value):
            yield _Finding(f"{name}:{label}", problem)


def _offered(module: ModuleType) -> dict[str, object]:
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, Toolcrib | FunctionSource | Plugin)
        or (isinstance(value, type) and issubclass(value, Plugin) and value.__module__ == module.__name__)
    }


async def _of_value(value: object) -> AsyncIterator[str]:
    match value:
        case Toolcrib():
            for tool in value.registry.list():
                for problem in _of_listing(Listing((tool,))):
                    yield problem
        case FunctionSource():
            for problem in _of_listing(await value.list_tools()):
                yield problem
        case Plugin():
            try:
                listing = await PluginDispatcher().add(value).list_tools()
            except (InvalidTool, SourceUnavailable) as error:
                yield error.message
                return
            for problem in _of_listing(listing):
                yield problem
        case type() if issubclass(value, Plugin):
            async for problem in _of_value(value()):
                yield problem
        case _:
            yield f"it is a {type(value).__name__}, and no Toolcrib, FunctionSource or Plugin"


def _of_listing(listing: Listing) -> Iterator[str]:
    for aside in listing.set_aside:
        yield f"`{aside.name}` is set aside: {aside.reason}"
    for tool in listing.tools:
        try:
            check_tool(tool)
        except InvalidTool as error:
            yield error.message
