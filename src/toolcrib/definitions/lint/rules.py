"""All rules in one table: the documentation, SARIF and the command's options are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from toolcrib.definitions.lint import descriptions, hints, lookalikes, names, parameters, suspicious, weight
from toolcrib.definitions.lint.definition import MAX_TOKENS
from toolcrib.definitions.lint.findings import Level, Rule

_RULES = (
    Rule(
        "near-duplicate",
        Level.WARNING,
        "Tools that a model would take for one another.",
        "Name, description and parameters are the same or nearly, in one source or in several. A model picks one "
        "by chance. Keep one and hide the others, or say in each description when to use it and not the other.",
        of_catalog=lookalikes.nearly_same,
    ),
    Rule(
        "same-description",
        Level.WARNING,
        "Different tools of one source with one description.",
        "The description was probably copied. Say in each what it does that the others do not.",
        of_catalog=lookalikes.same_description,
    ),
    Rule(
        "description-missing",
        Level.WARNING,
        "No description.",
        "A search finds the tool by its name alone, and a model guesses at the rest.",
        of_tool=descriptions.missing,
    ),
    Rule(
        "description-placeholder",
        Level.WARNING,
        "A description that was never written: `TODO`, `description`, `N/A`.",
        "Say what the tool does, what it works on, what comes back, and when to use it.",
        of_tool=descriptions.boilerplate,
    ),
    Rule(
        "description-repeats-name",
        Level.WARNING,
        "A description without a word that is not in the name already.",
        '`get_user`: "This tool gets a user" tells a model nothing that tells it from its neighbours. Say what it '
        "works on, what comes back, when to use it and when not.",
        of_tool=descriptions.name_again,
    ),
    Rule(
        "description-short",
        Level.NOTE,
        f"A description of fewer than {descriptions.MIN_CHARS} characters.",
        "There is no room in it for what comes back and when to use it.",
        of_tool=descriptions.short,
    ),
    Rule(
        "description-long",
        Level.NOTE,
        f"A description of more than {descriptions.MAX_CHARS:,} characters.",
        "Some endpoints refuse it, and what matters drowns. Keep what decides whether to use the tool.",
        of_tool=descriptions.long,
    ),
    Rule(
        "parameter-undocumented",
        Level.WARNING,
        "Parameters, at any depth, of which nothing is said.",
        "A description of their own counts, and so do a list of values and an explanation in the tool's description "
        "(`path: ...`). Say what each means: its unit, its format, an example.",
        of_tool=parameters.undocumented,
    ),
    Rule(
        "parameter-untyped",
        Level.WARNING,
        "Parameters, at any depth, that may be anything.",
        "A model guesses at the type, and some providers refuse the schema. Say `type`.",
        of_tool=parameters.untyped,
    ),
    Rule(
        "parameter-values-in-words",
        Level.NOTE,
        "Texts whose description lists the values that are allowed.",
        "As `enum` they are checked before the call, and what is wrong is named.",
        of_tool=parameters.values_in_words,
    ),
    Rule(
        "parameter-name-rejected",
        Level.ERROR,
        "Parameters whose names Anthropic and Bedrock refuse, and the whole request with them.",
        "They take 1 to 64 letters, digits, `_`, `-` and `.`. Toolcrib does not rename parameters.",
        of_tool=names.parameters_rejected,
    ),
    Rule(
        "required-undeclared",
        Level.WARNING,
        "Parameters that are required and not declared.",
        "A model does not know what to put there; where no others are allowed, no call can succeed.",
        of_tool=parameters.required_undeclared,
    ),
    Rule(
        "array-without-items",
        Level.ERROR,
        "Arrays without `items`, at any depth.",
        "OpenAI and Gemini refuse such a schema, and with it the request.",
        of_tool=parameters.array_without_items,
    ),
    Rule(
        "schema-refused",
        Level.ERROR,
        "An input or output schema that is no JSON Schema.",
        "Of an input schema the tool is lost, of an output schema every answer passes unchecked.",
        of_tool=parameters.schema_refused,
    ),
    Rule(
        "name-rejected",
        Level.WARNING,
        "A tool name that MCP's rules or a provider refuse.",
        "MCP takes 1 to 128 letters, digits, `_`, `-` and `.`; Anthropic no `.`; OpenAI no `.` and 64 characters; "
        "Gemini no digit first. Toolcrib renames such tools for a model; other clients leave them out or fail.",
        of_tool=names.rejected,
    ),
    Rule(
        "name-long-with-server",
        Level.NOTE,
        f"Names of source and tool that have more than {names.MAX_WITH_SERVER} characters together.",
        "Cursor leaves such tools out where it is given the server itself.",
        of_tool=names.long_with_server,
    ),
    Rule(
        "name-differs-in-case",
        Level.WARNING,
        "Tools of one source whose names differ in nothing but case.",
        "A model confuses them, and a client that ignores case loses one.",
        of_catalog=names.same_but_for_case,
    ),
    Rule(
        "over-budget",
        Level.WARNING,
        f"A definition of more than {MAX_TOKENS:,} estimated tokens, or as many as `--max-tokens` says.",
        "A token is estimated as four UTF-8 bytes of compact JSON of name, description and input schema.",
        of_tool=weight.over_budget,
    ),
    Rule(
        "hints-contradict",
        Level.WARNING,
        "A tool that claims to be read-only and destructive.",
        "Clients believe one or the other. Toolcrib believes that it is destructive.",
        of_tool=hints.contradictory,
    ),
    Rule(
        "hint-doubtful",
        Level.WARNING,
        "A tool that claims to be read-only, and whose name says delete, remove or drop.",
        "A client may run what is read-only without asking anybody.",
        of_tool=hints.doubtful,
    ),
    Rule(
        "hidden-characters",
        Level.WARNING,
        "Characters that nobody sees and a model reads.",
        "Those that a script or an emoji is spelled with are no finding. Whatever else is hidden was hidden by "
        "somebody, or copied without looking.",
        of_tool=suspicious.hidden_characters,
    ),
    Rule(
        "tag-characters",
        Level.WARNING,
        "A text in Unicode's tag characters, which nobody sees and a model reads.",
        "They have no use but three flags. The finding says what stands there.",
        of_tool=suspicious.tag_characters,
    ),
    Rule(
        "bidi-controls",
        Level.WARNING,
        "Controls that show a text in another order than a model reads it in.",
        "Who approves of such a text has not read what the model reads.",
        of_tool=suspicious.bidi_controls,
    ),
    Rule(
        "instructions-to-model",
        Level.WARNING,
        "Instructions to the model that go beyond how the tool is used.",
        "To ignore what it was told, to keep something from the user, to do something before every other tool, to pass "
        "on the conversation.",
        of_tool=suspicious.instructions,
    ),
    Rule(
        "secrets-named",
        Level.NOTE,
        "Files and variables in which secrets are kept: `~/.ssh`, `/etc/passwd`, `mcp.json`.",
        "A model that reads of them may read them. A tool that is for them may well name them.",
        of_tool=suspicious.secrets,
    ),
    Rule(
        "url-credentials",
        Level.WARNING,
        "An address with a password or key in it.",
        "It is sent to a model with every definition. `user:password` and other words that only stand for one are "
        "fine.",
        of_tool=suspicious.credentials,
    ),
    Rule(
        "other-tool-named",
        Level.NOTE,
        "The name of a tool of another source.",
        "A source that tells a model what to do with the tools of another may want to be asked in its place. Names "
        "that could be words are passed over.",
        of_catalog=suspicious.other_tools,
    ),
    Rule(
        "lookalike-name",
        Level.WARNING,
        "A name that looks like that of another tool, or letters among others that only look like them.",
        "`sеarch` with a Cyrillic `е` is another tool. Parameters count, too.",
        of_catalog=suspicious.lookalikes,
    ),
    Rule(
        "definition-unusable",
        Level.ERROR,
        "A definition that was set aside.",
        "Nobody can find or call it.",
        "Correct what the reason names",
    ),
    Rule(
        "server-definition-unusable",
        Level.NOTE,
        "A definition of a configured server or plugin that was set aside.",
        "Nobody can find or call it. Only the author of the server can change that, so it does not fail a check of the "
        "configuration. Check a server of your own with `--fail-on note`.",
        "Report it to the author of the server",
    ),
    Rule(
        "metadata-wrong",
        Level.ERROR,
        "Metadata that does not agree with the rest: an example that the schema refuses, a condition without its tool.",
        "A model that follows the example fails.",
        "Make the metadata and the schema agree",
    ),
    Rule(
        "source-unavailable",
        Level.ERROR,
        "A source that cannot be listed.",
        "Its tools are missing.",
        "Ask `toolcrib doctor`, which says more, or take it out of the configuration",
    ),
    Rule(
        "module-unusable",
        Level.ERROR,
        "A Python module that cannot be imported, or in which there is nothing to look at.",
        "`--python` takes a module with a `Toolcrib`, a `FunctionSource` or a `Plugin`, or the name of one in it.",
        "Mend the module, or name another",
    ),
    Rule(
        "configuration-slip",
        Level.WARNING,
        "A pattern, path or tag of the configuration that nothing meets, or an example that does not match.",
        "It does not do what it was written for.",
        "Write what was meant, or take it out",
    ),
    Rule(
        "registration-unusable",
        Level.ERROR,
        "Something that was registered at run time and cannot be used as it is.",
        "It is passed over until it can.",
        "Register it anew, or remove it",
    ),
    Rule(
        "bundle-incomplete",
        Level.ERROR,
        "A tool that a bundle names and that is missing.",
        "Who works within the bundle does without it.",
        "Add its source to the configuration, or take it out of the bundle",
    ),
    Rule(
        "capability-missing",
        Level.WARNING,
        "A capability that tools need and the configuration does not set up.",
        "Until then these tools cannot be called.",
        "Set it up under `toolcrib.capabilities`",
    ),
)

RULES: Mapping[str, Rule] = MappingProxyType({rule.id: rule for rule in _RULES})
"""By id, in the order in which they are documented."""
