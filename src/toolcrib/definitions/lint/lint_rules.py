"""All lint rules in one table, from which documentation, SARIF and options are made, and the run over tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from toolcrib.core.tools import Tool
from toolcrib.definitions.lint import descriptions, lookalikes, parameters, suspicious, tool_names
from toolcrib.definitions.lint.findings import Finding, Level, LintRule
from toolcrib.definitions.lint.linted_tool import DEFAULT_LIMITS, MAX_TOKENS, Limits, LintedTool

_RULES = (
    LintRule(
        "near-duplicate",
        Level.WARNING,
        "Tools that a model would confuse.",
        "Name, description and parameters are the same or nearly the same, in one source or in several. A model "
        "picks one by chance. Keep one and hide the others, or explain in each description when to use which.",
        of_catalog=lookalikes.nearly_same,
    ),
    LintRule(
        "same-description",
        Level.WARNING,
        "Different tools of one source with the same description.",
        "The description was probably copied. Describe in each what it does that the others do not.",
        of_catalog=lookalikes.same_description,
    ),
    LintRule(
        "description-missing",
        Level.WARNING,
        "No description.",
        "Search can find the tool only by its name, and a model has to guess the rest.",
        of_tool=descriptions.missing,
    ),
    LintRule(
        "description-placeholder",
        Level.WARNING,
        "A placeholder instead of a description: `TODO`, `description`, `N/A`.",
        "Describe what the tool does, what it works on, what it returns, and when to use it.",
        of_tool=descriptions.boilerplate,
    ),
    LintRule(
        "description-repeats-name",
        Level.WARNING,
        "A description that only repeats the name.",
        '`get_user`: "This tool gets a user" does not help a model to choose it. Describe what it '
        "works on, what it returns, and when to use it.",
        of_tool=descriptions.name_again,
    ),
    LintRule(
        "description-short",
        Level.NOTE,
        f"A description of fewer than {descriptions.MIN_CHARS} characters.",
        "It is too short to say what the tool returns and when to use it.",
        of_tool=descriptions.short,
    ),
    LintRule(
        "description-long",
        Level.NOTE,
        f"A description of more than {descriptions.MAX_CHARS:,} characters.",
        "Some endpoints refuse it, and details hide what matters. Keep what helps to decide when to use the tool.",
        of_tool=descriptions.long,
    ),
    LintRule(
        "parameter-undocumented",
        Level.WARNING,
        "Parameters without a description, at any depth.",
        "A list of values, or an explanation in the tool's description "
        "(`path: ...`), counts as a description. Describe each parameter: its meaning, unit, format and an example.",
        of_tool=parameters.undocumented,
    ),
    LintRule(
        "parameter-untyped",
        Level.WARNING,
        "Parameters without a type, at any depth.",
        "A model has to guess the type, and some providers refuse the schema. Add `type`.",
        of_tool=parameters.untyped,
    ),
    LintRule(
        "parameter-values-in-words",
        Level.NOTE,
        "String parameters whose description lists the allowed values.",
        "With `enum`, wrong values are found before the call, and the error names them.",
        of_tool=parameters.values_in_words,
    ),
    LintRule(
        "parameter-name-rejected",
        Level.ERROR,
        "Parameter names for which Anthropic and Bedrock refuse the whole request.",
        "They accept 1 to 64 letters, digits, `_`, `-` and `.`. Toolcrib does not rename parameters.",
        of_tool=tool_names.parameters_rejected,
    ),
    LintRule(
        "required-undeclared",
        Level.WARNING,
        "Parameters that are required but not declared.",
        "A model does not know what to pass. If other properties are not allowed, no call can succeed.",
        of_tool=parameters.required_undeclared,
    ),
    LintRule(
        "array-without-items",
        Level.ERROR,
        "Arrays without `items`, at any depth.",
        "OpenAI and Gemini refuse every request with such a schema.",
        of_tool=parameters.array_without_items,
    ),
    LintRule(
        "schema-refused",
        Level.ERROR,
        "An input or output schema that is not valid JSON Schema.",
        "With an invalid input schema, the tool cannot be used. With an invalid output schema, results are not "
        "checked.",
        of_tool=parameters.schema_refused,
    ),
    LintRule(
        "name-rejected",
        Level.WARNING,
        "A tool name that MCP or a provider does not accept.",
        "MCP accepts 1 to 128 letters, digits, `_`, `-` and `.`. Anthropic does not accept `.`. OpenAI accepts at most "
        "64 characters and no `.`. Gemini accepts no digit at the start. Toolcrib renames such tools for models. Other "
        "clients ignore them or fail.",
        of_tool=tool_names.rejected,
    ),
    LintRule(
        "name-long-with-server",
        Level.NOTE,
        f"A source name and tool name with more than {tool_names.MAX_WITH_SERVER} characters together.",
        "Cursor ignores such tools if it connects to the server directly.",
        of_tool=tool_names.long_with_server,
    ),
    LintRule(
        "name-differs-in-case",
        Level.WARNING,
        "Tools of one source whose names differ only in upper and lower case.",
        "A model confuses them, and a client that ignores case shows only one.",
        of_catalog=tool_names.same_but_for_case,
    ),
    LintRule(
        "over-budget",
        Level.WARNING,
        f"A definition of more than {MAX_TOKENS:,} estimated tokens, or more than `--max-tokens`.",
        "One token is estimated as four UTF-8 bytes of the compact JSON of name, description and input schema.",
        of_tool=descriptions.over_budget,
    ),
    LintRule(
        "hints-contradict",
        Level.WARNING,
        "A tool that is marked read-only and destructive.",
        "Clients may use either claim. Toolcrib treats the tool as destructive.",
        of_tool=descriptions.contradictory,
    ),
    LintRule(
        "hint-doubtful",
        Level.WARNING,
        "A tool that is marked read-only, but whose name says delete, remove or drop.",
        "A client may run read-only tools without asking.",
        of_tool=descriptions.doubtful,
    ),
    LintRule(
        "hidden-characters",
        Level.WARNING,
        "Invisible characters that a model can read.",
        "Characters that a script or an emoji needs are not reported. Others were hidden on purpose, or copied by "
        "mistake.",
        of_tool=suspicious.hidden_characters,
    ),
    LintRule(
        "tag-characters",
        Level.WARNING,
        "Text in Unicode tag characters, which is invisible but can be read by a model.",
        "Their only normal use is in three flag emojis. The finding shows the hidden text.",
        of_tool=suspicious.tag_characters,
    ),
    LintRule(
        "bidi-controls",
        Level.WARNING,
        "Control characters that show a text in a different order than a model reads it.",
        "A person who pins such a text has not read what the model reads.",
        of_tool=suspicious.bidi_controls,
    ),
    LintRule(
        "instructions-to-model",
        Level.WARNING,
        "Instructions to the model that go beyond how to use the tool.",
        "For example: ignore earlier instructions, hide something from the user, call this tool before every other "
        "one, or pass on the conversation.",
        of_tool=suspicious.instructions,
    ),
    LintRule(
        "secrets-named",
        Level.NOTE,
        "Files and variables that hold secrets: `~/.ssh`, `/etc/passwd`, `mcp.json`.",
        "A model that reads about them may read them. A tool that works with such files may need to name them.",
        of_tool=suspicious.secrets,
    ),
    LintRule(
        "url-credentials",
        Level.WARNING,
        "A URL with a password or key in it.",
        "The secret is sent to a model with every request. `user:password` and similar placeholders are allowed.",
        of_tool=suspicious.credentials,
    ),
    LintRule(
        "other-tool-named",
        Level.NOTE,
        "The name of a tool of a different source.",
        "A source that tells a model how to use tools of a different source may want to replace them. Names "
        "that could be normal words are ignored.",
        of_catalog=suspicious.other_tools,
    ),
    LintRule(
        "lookalike-name",
        Level.WARNING,
        "A name that looks like the name of a different tool, or letters that only look like other letters.",
        "`sеarch` with a Cyrillic `е` is a different tool. Names of parameters are checked too.",
        of_catalog=suspicious.lookalikes,
    ),
    LintRule(
        "definition-unusable",
        Level.ERROR,
        "A definition that is ignored because it cannot be used.",
        "Agents cannot find or call the tool.",
        "Correct what the reason names",
    ),
    LintRule(
        "server-definition-unusable",
        Level.NOTE,
        "A definition of a configured server or plugin that is ignored because it cannot be used.",
        "Agents cannot find or call the tool. Only the author of the server can fix this, so it does not fail a "
        "check of the configuration. To check your own server, pass `--fail-on note`.",
        "Report it to the author of the server",
    ),
    LintRule(
        "metadata-wrong",
        Level.ERROR,
        "Metadata that contradicts the rest: an example that the schema refuses, or a condition without its tool.",
        "A model that follows such an example fails.",
        "Make the metadata and the schema agree",
    ),
    LintRule(
        "source-unavailable",
        Level.ERROR,
        "A source that cannot be listed.",
        "Its tools are missing.",
        "Run `toolcrib doctor` for details, or remove the source from the configuration",
    ),
    LintRule(
        "module-unusable",
        Level.ERROR,
        "A Python module that cannot be imported, or that contains nothing to check.",
        "`--python` accepts a module with a `Toolcrib`, a `FunctionSource` or a `Plugin`, or the name of one in it.",
        "Fix the module, or pass a different one",
    ),
    LintRule(
        "configuration-slip",
        Level.WARNING,
        "A pattern, path or tag of the configuration that matches nothing, or an example that does not match.",
        "The setting has no effect.",
        "Correct it, or remove it",
    ),
    LintRule(
        "registration-unusable",
        Level.ERROR,
        "Something that was registered at run time and cannot be used.",
        "It has no effect until it can be used.",
        "Register it again, or remove it",
    ),
    LintRule(
        "bundle-incomplete",
        Level.ERROR,
        "A tool that a bundle names but that is missing.",
        "Agents that work in the bundle do not have the tool.",
        "Add its source to the configuration, or remove it from the bundle",
    ),
    LintRule(
        "capability-missing",
        Level.WARNING,
        "A capability that tools need but that the configuration does not define.",
        "These tools cannot be called until it is defined.",
        "Define it under `toolcrib.capabilities`",
    ),
)

RULES: Mapping[str, LintRule] = MappingProxyType({rule.id: rule for rule in _RULES})
"""All rules by id, in the order of the documentation."""


def lint_tools(
    tools: Iterable[Tool], limits: Limits = DEFAULT_LIMITS, *, rules: Iterable[LintRule] = RULES.values()
) -> Iterator[Finding]:
    """Yield the findings of `rules` that check definitions, ordered by tool id, then by rule.

    Takes seconds for 10,000 tools. The time is proportional to the number of tools.
    """
    ordered = sorted(tools, key=lambda tool: tool.id)
    rules = tuple(rules)
    of_catalog: dict[str, list[Finding]] = {}
    for rule in rules:
        for problem in rule.of_catalog(ordered) if rule.of_catalog is not None else ():
            of_catalog.setdefault(problem.tool_id, []).append(Finding(rule, problem.tool_id, problem))
    for tool in ordered:
        definition = LintedTool(tool, limits)
        yield from of_catalog.get(tool.id, ())
        for rule in rules:
            for problem in rule.of_tool(definition) if rule.of_tool is not None else ():
                yield Finding(rule, tool.id, problem)
