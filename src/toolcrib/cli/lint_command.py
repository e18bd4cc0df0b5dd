"""`toolcrib lint`: check tool definitions for problems, before a model reads them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from importlib import import_module
from itertools import groupby
from pathlib import Path
from types import ModuleType

import click

from toolcrib.catalog.catalog_state import SourceStatus
from toolcrib.catalog.view import View
from toolcrib.cli.config_mistakes import Slips
from toolcrib.cli.lines import lines_of_keys, lines_of_tools
from toolcrib.cli.opened_catalog import opened
from toolcrib.cli.terminal_output import plain, print_json, run, stderr, stdout
from toolcrib.config import read_config
from toolcrib.core.checks import check_tool
from toolcrib.core.errors import InvalidTool, SourceUnavailable
from toolcrib.core.principal import LOCAL
from toolcrib.core.schema import nearest
from toolcrib.core.tools import Tool
from toolcrib.crib.crib import Toolcrib
from toolcrib.definitions.lint import RULES, Finding, Level, Limits, lint_tools
from toolcrib.definitions.lint.findings import Problem
from toolcrib.definitions.lint.sarif import sarif_log
from toolcrib.sources.base import Listing
from toolcrib.sources.catalog_file import load_catalog_file
from toolcrib.sources.functions import FunctionSource
from toolcrib.sources.plugins import Plugin, PluginDispatcher

_STYLES = {Level.ERROR: "red", Level.WARNING: "yellow", Level.NOTE: "cyan"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Decides which findings are reported."""

    only: frozenset[str]
    """Ids of rules. If empty, all rules are run."""
    ignored: tuple[tuple[str, str], ...]
    """Pairs of a rule and a pattern of the places where it is ignored."""
    limits: Limits

    @classmethod
    def of(cls, only: Iterable[str], ignored: Iterable[str], max_tokens: int) -> Wanted:
        """Parse the options: ids of rules, and ids that may be followed by `:` and a pattern.

        Raises:
            click.UsageError: a rule does not exist.
        """
        rules = frozenset(map(_rule_id, only))
        pairs = tuple(
            (_rule_id(rule), pattern or "*") for rule, _, pattern in (text.partition(":") for text in ignored)
        )
        return cls(rules, pairs, Limits(max_tokens=max_tokens))

    def __contains__(self, finding: Finding) -> bool:
        if self.only and finding.rule.id not in self.only:
            return False
        return not any(rule == finding.rule.id and fnmatchcase(finding.where, glob) for rule, glob in self.ignored)

    def of_tools(self, tools: Iterable[Tool]) -> Iterator[Finding]:
        """Yield the findings about definitions. Rules that cannot be reported are not run."""
        all_over = {rule for rule, pattern in self.ignored if pattern == "*"}
        rules = [rule for rule in RULES.values() if rule.id not in all_over and rule.id in (self.only or RULES)]
        return lint_tools(tools, self.limits, rules=rules)


def lint(
    config: Path | None,
    tools: Path | None,
    modules: tuple[str, ...],
    wait_s: float,
    *,
    only: Iterable[str],
    ignored: Iterable[str],
    max_tokens: int,
    fail_on: str,
    as_json: bool,
    as_sarif: bool,
) -> None:
    """Check, and report. The process exits with 1 if a finding has the level `fail_on` or worse.

    `only` and `ignored` have the form that `Wanted.of` expects.
    """
    wanted = Wanted.of(only, ignored, max_tokens)
    found: list[Finding] = []

    async def main() -> None:
        for module in modules:
            found.extend([finding async for finding in _of_module(module, wanted) if finding in wanted])
        if tools is not None:
            found.extend([finding async for finding in _of_file(tools, wanted) if finding in wanted])
        if config is not None:
            found.extend([finding async for finding in _of_config(config, wait_s, wanted) if finding in wanted])
        if as_sarif:
            print_json(sarif_log(found, Path.cwd()))
        elif as_json:
            counts = Counter(finding.rule.id for finding in found)
            print_json({"findings": [finding.to_wire() for finding in found], "counts": dict(counts.most_common())})
        else:
            _show(found)

    run(main, as_json=as_json or as_sarif)
    sys.exit(1 if any(finding.level.is_at_least(Level(fail_on)) for finding in found) else 0)


def _finding(rule: str, where: str, text: str, change: str = "", file: Path | None = None) -> Finding:
    """Return a finding of a rule that is not about definitions. The advice defaults to that of the rule."""
    return Finding(RULES[rule], where, Problem(text, change or RULES[rule].change), file)


async def _of_file(path: Path, wanted: Wanted) -> AsyncIterator[Finding]:
    listings = [(source.name, await source.list_tools()) for source in load_catalog_file(path)]
    tools = [tool for _, listing in listings for tool in listing.tools]
    lines = lines_of_tools(path, tools)
    for name, listing in listings:
        for aside in listing.set_aside:
            yield _finding("definition-unusable", f"{name}.{aside.name}", f"it is ignored: {aside.reason}", file=path)
    for finding in wanted.of_tools(tools):
        yield replace(finding, file=path, line=lines.get(finding.where))


async def _of_config(config: Path, wait_s: float, wanted: Wanted) -> AsyncIterator[Finding]:
    async with opened(config, None, wait_s=wait_s, sees_all=True) as crib:
        # Check everything that was listed, whatever the policy hides: the person who runs this owns the policy.
        view = View.of(crib.registry.state, overlay=crib.isolated_sources.open_overlay(LOCAL.id))
        read = crib.with_registered(read_config(config))
        passed_over = crib.registration_problems
    labels = {name: label for label, name in read.source_names.items()}
    written_here = {each.name for each in read.declared}
    lines = lines_of_keys(config, labels.values())
    for entry in view.sources.values():
        line = lines.get(labels.get(entry.name, entry.name))
        if entry.status is SourceStatus.FAILED:
            failed = _finding(
                "source-unavailable", entry.name, entry.reason or "it could not list its tools", file=config
            )
            yield replace(failed, line=line)
        rule = "definition-unusable" if entry.name in written_here else "server-definition-unusable"
        for aside in entry.set_aside:
            reason = f"it is ignored: {aside.reason}"
            yield replace(_finding(rule, f"{entry.name}.{aside.name}", reason, file=config), line=line)
    for slip in Slips(read, view):
        yield _finding("configuration-slip", str(config), slip, file=config)
    for problem in passed_over:
        yield _finding("registration-unusable", "registered", problem)
    for bundle in read.bundles:
        for missing in read.bundles.contents(bundle.name).resolve(bundle.name, view).missing:
            text = f"`{missing.entry}` is missing: {missing.why}"
            yield _finding("bundle-incomplete", f"the bundle {bundle.name}", text, file=config)
    for name in view.visible.state.needing.keys() - {capability.name for capability in read.capabilities}:
        text = "tools need it, but it is not configured"
        yield _finding("capability-missing", f"the capability {name}", text, file=config)
    for finding in wanted.of_tools(view.tools.values()):
        source = view.tools[finding.where].source
        yield replace(finding, file=config, line=lines.get(labels.get(source, source)))


async def _of_module(target: str, wanted: Wanted) -> AsyncIterator[Finding]:
    """Check the Toolcrib objects, function sources and plugins of a module, or only the named one."""
    name, _, attribute = target.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(name)
        given = {attribute: getattr(module, attribute)} if attribute else _offered(module)
    except InvalidTool as error:  # the module adds an invalid tool while it is imported
        yield _finding("definition-unusable", target, error.message)
        return
    except (Exception, SystemExit) as error:  # noqa: BLE001  the module is not ours and can raise anything
        yield _finding("module-unusable", target, f"cannot be imported: {type(error).__name__}: {error}")
        return
    file = Path(module.__file__) if module.__file__ is not None else None
    if not given:
        text = "contains no Toolcrib, FunctionSource or Plugin"
        yield _finding("module-unusable", target, text, file=file)
    for label, value in given.items():
        async for finding in _of_value(value, f"{name}:{label}", wanted):
            yield replace(finding, file=file)


def _offered(module: ModuleType) -> dict[str, object]:
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, Toolcrib | FunctionSource | Plugin)
        or (isinstance(value, type) and issubclass(value, Plugin) and value.__module__ == module.__name__)
    }


async def _of_value(value: object, where: str, wanted: Wanted) -> AsyncIterator[Finding]:
    match value:
        case Toolcrib():
            listing = Listing(tuple(value.registry.list()))
        case FunctionSource():
            listing = await value.list_tools()
        case Plugin():
            try:
                listing = await PluginDispatcher().add(value).list_tools()
            except (InvalidTool, SourceUnavailable) as error:
                yield _finding("definition-unusable", where, error.message)
                return
        case type() if issubclass(value, Plugin):
            try:
                plugin = value()
            except (Exception, SystemExit) as error:  # noqa: BLE001  the plugin is not ours and can raise anything
                yield _finding("module-unusable", where, f"cannot be created: {type(error).__name__}: {error}")
                return
            async for finding in _of_value(plugin, where, wanted):
                yield finding
            return
        case _:
            text = f"is a {type(value).__name__}, not a Toolcrib, FunctionSource or Plugin"
            yield _finding("module-unusable", where, text)
            return
    for finding in _of_listing(listing, where):
        yield finding
    for finding in wanted.of_tools(listing.tools):
        yield finding


def _of_listing(listing: Listing, where: str) -> Iterator[Finding]:
    for aside in listing.set_aside:
        yield _finding("definition-unusable", where, f"`{aside.name}` is ignored: {aside.reason}")
    for tool in listing.tools:
        try:
            check_tool(tool)
        except InvalidTool as error:
            yield _finding("metadata-wrong", where, error.message)


def _show(found: list[Finding]) -> None:
    """Print the findings of each tool, then the counts of each rule."""
    for where, findings in groupby(found, key=lambda finding: finding.where):
        stdout.print(plain(where), style="bold", markup=False)
        for finding in findings:
            stdout.print(f"  {finding.level.value}", style=_STYLES[finding.level], end=" ")
            stdout.print(finding.rule.id, style="dim")
            _indented(finding.problem.text)
            _indented(f"→ {finding.problem.change}", style="dim")
        stdout.print()
    for (level, rule), count in sorted(Counter((each.level, each.rule.id) for each in found).items(), key=_worst_first):
        stdout.print(f"{count:>6}  [{_STYLES[level]}]{level.value:<7}[/]  {rule}")
    counted = "1 finding" if len(found) == 1 else f"{len(found):,} findings"
    stderr.print(f"[red]{counted}.[/]" if found else "[green]No problems found.[/]")


def _worst_first(counted: tuple[tuple[Level, str], int]) -> tuple[int, int, str]:
    (level, rule), count = counted
    return tuple(Level).index(level), -count, rule


def _indented(text: str, style: str = "") -> None:
    """Print indented text: wrapped on a terminal, otherwise on one line, so that programs can search it."""
    from rich.text import Text

    shown = Text(" ".join(plain(text).split()))
    for line in shown.wrap(stdout, stdout.width - 4) if stdout.is_terminal else (shown,):
        line.rstrip()
        stdout.print(f"    {line.plain}", style=style, markup=False)


def _rule_id(text: str) -> str:
    if text in RULES:
        return text
    near = nearest(text, RULES)
    raise click.UsageError(f"Rule `{text}` not found" + (f" (did you mean `{near}`?)" if near else "") + ".")
