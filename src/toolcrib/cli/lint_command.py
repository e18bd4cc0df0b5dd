"""`toolcrib lint`: check tool definitions for problems, before a model reads them."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from importlib import import_module
from itertools import groupby
from pathlib import Path
from types import ModuleType

import click
from click.core import ParameterSource

from toolcrib.catalog.catalog_state import SourceStatus
from toolcrib.catalog.view import View
from toolcrib.cli.config_mistakes import ConfigMistakes
from toolcrib.cli.opened_catalog import opened
from toolcrib.cli.options import config_either_way, is_typed, json_option, tools_option, wait_option
from toolcrib.cli.terminal_output import asynchronous, plain, print_json, stderr, stdout
from toolcrib.config import read_config
from toolcrib.core.errors import InvalidTool, SourceUnavailable
from toolcrib.core.principal import LOCAL
from toolcrib.core.schema import nearest
from toolcrib.core.tools import Tool, check_tool
from toolcrib.crib.crib import Toolcrib
from toolcrib.definitions.lint import RULES, Finding, Level, Limits, lint_tools
from toolcrib.definitions.lint.findings import Problem
from toolcrib.definitions.lint.sarif import sarif_log
from toolcrib.sources.base import Listing
from toolcrib.sources.catalog_file import load_catalog_file
from toolcrib.sources.functions import FunctionSource
from toolcrib.sources.plugins import Plugin, PluginDispatcher

_NAME = re.compile(r'"name"\s*:\s*("(?:[^"\\\n]|\\.)*")')
_KEY = re.compile(r'("(?:[^"\\\n]|\\.)*")\s*:')
_STYLES = {Level.ERROR: "red", Level.WARNING: "yellow", Level.NOTE: "cyan"}


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Decides which findings are reported."""

    only: frozenset[str]
    """Ids of rules. If empty, all rules are run."""
    ignored: tuple[tuple[str, str], ...]
    """Pairs of a rule and a pattern of the places where it is ignored."""
    limits: Limits

    @classmethod
    def of(cls, only: Iterable[str], ignored: Iterable[str], max_tokens: int) -> _Wanted:
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


@click.command()
@config_either_way
@click.option(
    "--python",
    "modules",
    metavar="MODULE[:NAME]",
    multiple=True,
    help="A module with tools to check. It is imported. Repeatable.",
)
@tools_option
@click.option("--rule", "only", metavar="RULE", multiple=True, help="Report only this rule. Repeatable.")
@click.option(
    "--ignore",
    "ignored",
    metavar="RULE[:PATTERN]",
    multiple=True,
    help="Do not report this rule, or not for tools with these ids. Repeatable.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1),
    metavar="TOKENS",
    default=1_000,
    show_default=True,
    help="The largest allowed definition, in estimated tokens.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "note"]),
    default="warning",
    show_default=True,
    help="Exit with 1 if a finding has this level or worse.",
)
@click.option("--sarif", "as_sarif", is_flag=True, help="Print a SARIF 2.1.0 log, for code hosts and editors.")
@wait_option
@json_option
@asynchronous
async def lint(
    config: Path,
    tools: Path | None,
    modules: tuple[str, ...],
    wait_s: float,
    *,
    only: tuple[str, ...],
    ignored: tuple[str, ...],
    max_tokens: int,
    fail_on: str,
    as_json: bool,
    as_sarif: bool,
) -> int:
    """Check tool definitions for problems: those of CONFIG's servers, those in a file, and those of Python modules.

    Finds tools that a model would confuse, descriptions that say nothing, parameters that a model must guess, names
    that clients refuse, schemas that do not match the function, and patterns in CONFIG that match nothing.

    CONFIG is checked if you name it, or if you pass neither a MODULE nor a FILE. Exits with 1 if there are problems.
    """
    if as_json and as_sarif:
        raise click.UsageError("Pass either --json or --sarif, not both.")
    checks_config = _is_config_chosen(is_alone=not (modules or tools), replaces_environment=tools is not None)
    wanted = _Wanted.of(only, ignored, max_tokens)
    sources = [_of_module(module, wanted) for module in modules]
    sources += [_of_file(tools, wanted)] if tools is not None else []
    sources += [_of_config(config, wait_s, wanted)] if checks_config else []
    found = [finding for source in sources async for finding in source if finding in wanted]
    if as_sarif:
        print_json(sarif_log(found, Path.cwd()))
    elif as_json:
        counts = Counter(finding.rule.id for finding in found)
        print_json({"findings": [finding.to_wire() for finding in found], "counts": dict(counts.most_common())})
    else:
        _show(found)
    return int(any(finding.level.is_at_least(Level(fail_on)) for finding in found))


def _is_config_chosen(*, is_alone: bool, replaces_environment: bool) -> bool:
    """Return whether to check the configuration: it is named, or nothing else is checked."""
    context = click.get_current_context()
    if is_alone or context.params["argument"] or is_typed("config"):
        return True
    # A FILE replaces a configuration from the environment, as for other commands.
    return context.get_parameter_source("config") is ParameterSource.ENVIRONMENT and not replaces_environment


def _finding(rule: str, where: str, text: str, change: str = "", file: Path | None = None) -> Finding:
    """Return a finding of a rule that is not about definitions. The advice defaults to that of the rule."""
    return Finding(RULES[rule], where, Problem(text, change or RULES[rule].change), file)


async def _of_file(path: Path, wanted: _Wanted) -> AsyncIterator[Finding]:
    listings = [(source.name, await source.list_tools()) for source in load_catalog_file(path)]
    tools = [tool for _, listing in listings for tool in listing.tools]
    lines = _lines_of_tools(path, tools)
    for name, listing in listings:
        for aside in listing.set_aside:
            yield _finding("definition-unusable", f"{name}.{aside.name}", f"it is ignored: {aside.reason}", file=path)
    for finding in wanted.of_tools(tools):
        yield replace(finding, file=path, line=lines.get(finding.where))


async def _of_config(config: Path, wait_s: float, wanted: _Wanted) -> AsyncIterator[Finding]:
    async with opened(config, None, wait_s=wait_s, sees_all=True) as crib:
        # Check everything that was listed, whatever the policy hides: the person who runs this owns the policy.
        view = View.of(crib.registry.state, overlay=crib.isolated_sources.open_overlay(LOCAL.id))
        read = crib.with_registered(read_config(config))
        passed_over = crib.registration_problems
    labels = {name: label for label, name in read.source_names.items()}
    written_here = {each.name for each in read.declared}
    lines = _lines_of_keys(config, labels.values())
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
    for mistake in ConfigMistakes(read, view):
        yield _finding("configuration-slip", str(config), mistake, file=config)
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


async def _of_module(target: str, wanted: _Wanted) -> AsyncIterator[Finding]:
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


async def _of_value(value: object, where: str, wanted: _Wanted) -> AsyncIterator[Finding]:
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


def _lines_of_tools(path: Path, tools: Iterable[Tool]) -> Mapping[str, int]:
    """Return the line of each tool, by id. A tool that is not found is left out.

    `tools` must have the order of the file: the first of several tools with one name gets the first line with that
    name.
    """
    lines = _lines(path, _NAME)
    return {tool.id: lines[tool.name].popleft() for tool in tools if lines[tool.name]}


def _lines_of_keys(path: Path, keys: Iterable[str]) -> Mapping[str, int]:
    """Return the line where each of `keys` first occurs as a JSON key."""
    lines = _lines(path, _KEY)
    return {key: lines[key][0] for key in keys if lines[key]}


def _lines(path: Path, pattern: re.Pattern[str]) -> defaultdict[str, deque[int]]:
    """Return line numbers, from 1, by the JSON strings that `pattern` finds."""
    found: defaultdict[str, deque[int]] = defaultdict(deque)
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").split("\n"), start=1):
        for match in pattern.finditer(line):
            try:
                found[json.loads(match[1])].append(number)
            except ValueError:  # an invalid escape
                continue
    return found
