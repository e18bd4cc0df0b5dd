"""Generates the parts of the documentation that come from the code: `python -m tests.docs.generate` writes them."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from click import Command, Context
from click.testing import CliRunner
from tests.docs.exchanges import exchanges, mistake

from toolcrib.audit.redaction import SECRET_KEYS, SECRET_WORDS
from toolcrib.catalog.access import HINTS
from toolcrib.catalog.categories import STANDARD
from toolcrib.cli import main as toolcrib
from toolcrib.cli.app import COMMANDS
from toolcrib.config.access_settings import AuthSettings, Jwt, PolicySettings, RuleSettings, TokenSettings
from toolcrib.config.catalog_sections import BundleSettings, CapabilitySettings, CategorySettings
from toolcrib.config.configuration import Audit
from toolcrib.config.gateway_settings import OAuthSection, PinSettings, SourceSettings, ToolcribSettings
from toolcrib.config.search_settings import EmbedderSettings, HistorySettings, SearchSettings
from toolcrib.core.errors import ErrorCode, SignInRequired, ToolcribError
from toolcrib.core.metadata import KEYS as METADATA_KEYS
from toolcrib.definitions.lint import RULES
from toolcrib.operations.briefing import operation_tools
from toolcrib.operations.operation_table import ALL, OPERATIONS, SETS, message_document
from toolcrib.search.index.weights import SIGNALS
from toolcrib.sources.declared.definition import DeclaredSourceSettings, DeclaredToolSettings
from toolcrib.sources.declared.http_endpoint import Endpoint
from toolcrib.surfaces.http.problems import STATUSES

WORDS = {"SIGNALS": ", ".join(f"`{name}`" for name in SIGNALS), "HINTS": ", ".join(HINTS)}
"""Values for names in braces in the docstrings of settings."""

DOCS = Path(__file__).parents[2] / "docs"


def errors() -> str:
    kinds = {kind.code: kind for kind in (*ToolcribError.__subclasses__(), SignInRequired)}
    rows = [(f"`{code}`", (kinds[code].__doc__ or "").partition("\n")[0], kinds[code].advice) for code in ErrorCode]
    return table(("Code", "Means", "What to do"), rows)


def operations() -> str:
    rows = [
        (
            f"**{tool.name}**",
            ", ".join(f"`{name}`" for name in tool.input_schema["properties"]),
            tool.description,
        )
        for tool in operation_tools(OPERATIONS)
    ]
    return table(("Operation", "Takes", "Does"), rows)


def sets() -> str:
    rows = [(f"`{name}`", ", ".join(exposed)) for name, exposed in SETS.items()]
    return table(("Set", "Operations"), [*rows, (f"`{ALL}`", "none: every tool itself, as `SOURCE__NAME`")])


def command_list() -> str:
    return table(
        ("Command", "Does", "Takes"),
        [
            (f"`{_usage(name)}`", short_help, ", ".join(f"`{option}`" for option in _shared(_command(name))))
            for name, (_, short_help) in COMMANDS.items()
        ],
    )


def evaluation() -> str:
    tools, queries = "examples/evaluation/tools.json", "examples/evaluation/queries.jsonl"
    words = ["eval", "--tools", str(DOCS.parent / tools), "--queries", str(DOCS.parent / queries)]
    shown = CliRunner().invoke(toolcrib, words, catch_exceptions=False).stdout
    lines = [line.rstrip() for line in shown.splitlines()]
    return "\n".join(["```text", f"$ toolcrib eval --tools {tools} --queries {queries}", *lines, "```"])


def standard_categories() -> str:
    return table(("Name", "Title", "Summary"), [(f"`{n.name}`", n.title or "", n.summary) for n in STANDARD.values()])


def secret_keys() -> str:
    return table(
        ("In a key", "As a word of a key"),
        [(", ".join(f"`{key}`" for key in SECRET_KEYS), ", ".join(f"`{word}`" for word in SECRET_WORDS))],
    )


def settings(known: Mapping[str, str]) -> Callable[[], str]:
    return lambda: table(("Key", "Means"), [(f"`{key}`", meaning) for key, meaning in known.items()])


def fields_of(kind: Any) -> Callable[[], str]:
    """Returns a function that lists the settings of `kind` with docstrings and defaults."""
    return lambda: settings({field.name: _told(field, described(kind)[field.name]) for field in fields(kind)})()


def described(kind: type) -> dict[str, str]:
    """Returns the docstring of each field of a class and its bases, which are only in the source."""
    found: dict[str, str] = {}
    for each in reversed([each for each in kind.__mro__ if each is not object]):
        (body,) = ast.parse(inspect.getsource(each)).body
        assert isinstance(body, ast.ClassDef)
        for field, text in pairwise(body.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(doc))):
                    for word, meant in WORDS.items():
                        doc = doc.replace(f"{{{word}}}", meant)
                    found[name] = " ".join(doc.split())
                case _:
                    pass
    return found


def _told(field: Field[Any], meaning: str) -> str:
    """Returns the meaning of a setting, with its default in parentheses if there is one."""
    default: Any = field.default
    match default:
        case bool():
            told = f"`{str(default).lower()}`"
        case int() | float():
            told = f"{default:.10g}"
        case tuple():
            told = ", ".join(cast("tuple[str, ...]", default))
        case str():
            told = default and f"`{default}`"
        case _:
            told = ""
    required = " Required." if field.default is field.default_factory is MISSING else ""
    return (f"{meaning.removesuffix('.')} ({told})." if told else meaning) + required


def statuses() -> str:
    codes = {status: [f"`{code}`" for code, each in STATUSES.items() if each is status] for status in STATUSES.values()}
    return table(("Status", "Code"), [(str(int(status)), ", ".join(codes[status])) for status in sorted(codes)])


def lint_rules() -> str:
    rows = [(f"`{rule.id}`", rule.level.value, f"{rule.title} {rule.help}") for rule in RULES.values()]
    return table(("Rule", "Level", "Finds"), rows)


PARTS: Mapping[str, Callable[[], str]] = {
    "errors": errors,
    "operations": operations,
    "sets": sets,
    "commands": command_list,
    "evaluation": evaluation,
    "standard categories": standard_categories,
    "settings": fields_of(ToolcribSettings),
    "source settings": fields_of(SourceSettings),
    "oauth settings": fields_of(OAuthSection),
    "category settings": fields_of(CategorySettings),
    "bundle settings": fields_of(BundleSettings),
    "capability settings": fields_of(CapabilitySettings),
    "declared source settings": fields_of(DeclaredSourceSettings),
    "declared tool settings": fields_of(DeclaredToolSettings),
    "http settings": fields_of(Endpoint),
    "embedder settings": fields_of(EmbedderSettings),
    "metadata settings": settings(METADATA_KEYS),
    "pin settings": fields_of(PinSettings),
    "policy settings": fields_of(PolicySettings),
    "rule settings": fields_of(RuleSettings),
    "audit settings": fields_of(Audit),
    "history settings": fields_of(HistorySettings),
    "search settings": fields_of(SearchSettings),
    "secret keys": secret_keys,
    "auth settings": fields_of(AuthSettings),
    "token settings": fields_of(TokenSettings),
    "jwt settings": fields_of(Jwt),
    "statuses": statuses,
    "exchanges": exchanges,
    "mistake": mistake,
    "lint rules": lint_rules,
}
"""Maps NAME in `<!-- generated: NAME -->` to the function that makes this part of a page."""

BAR = "\\|"

SCHEMA_FILE = DOCS / "discovery-protocol.schema.json"

_PART = re.compile(r"(<!-- generated: ([a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def generated(text: str) -> str:
    """Returns a page with its generated parts replaced."""
    return _PART.sub(lambda part: f"{part[1]}{PARTS[part[2]]()}\n{part[3]}", text)


def schema_file() -> str:
    return json.dumps(message_document(), indent=2) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |"

    return "\n".join([line(head), f"|{'---|' * len(head)}", *map(line, rows)])


def _shared(command: Command) -> list[str]:
    """Returns the common options that `command` accepts."""
    taken = {option for parameter in command.params for option in parameter.opts}
    return [option for option in ("-c", "--tools", "--json") if option in taken]


def _command(name: str) -> Command:
    command = toolcrib.get_command(Context(toolcrib), name)
    assert command is not None
    return command


def _usage(name: str) -> str:
    shown = [
        parameter.make_metavar(context)
        for context in [_command(name).make_context(name, [], resilient_parsing=True)]
        for parameter in _command(name).params
        if parameter.param_type_name == "argument"
    ]
    return " ".join(["toolcrib", name, *shown])


if __name__ == "__main__":
    for path in sorted(DOCS.glob("*.md")):
        path.write_text(generated(path.read_text()))
    SCHEMA_FILE.write_text(schema_file())
