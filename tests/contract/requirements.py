"""What the discovery protocol asks for, in our own words; a test that holds one is marked `holds("ID")`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that must be so."""

    id: str
    """What it is about, then what of it, divided by dots."""
    section: str
    """Of the document that it comes from; `departures` where we add to the document or do otherwise."""
    text: str


def _of(section: str, texts: Mapping[str, str]) -> tuple[Requirement, ...]:
    return tuple(Requirement(name, section, text) for name, text in texts.items())


REQUIREMENTS: tuple[Requirement, ...] = (
    *_of(
        "goals",
        {
            "goals.nothing-up-front": "However large the catalog, a model starts without its tools and their schemas.",
            "goals.little-until-chosen": "Until a tool is chosen, an answer tells no more of it than a pointer does.",
            "goals.ontology": "Every tool is reached from the top by going down nodes.",
            "goals.escape-hatch": "Who looked in the wrong place finds the tool in plain words.",
            "goals.trace": "A search, the expansion of what it found and the call are one trace in the audit.",
        },
    ),
    *_of(
        "concepts",
        {
            "nodes.category": "A node is a category with a path; the root is the empty one.",
            "nodes.children-and-tools": "A node holds nodes, tools, or both.",
            "nodes.name": "A node pointer has the node's own name: the last part of its path.",
            "nodes.path": "A node pointer has the node's path, and a list of that path answers.",
            "nodes.summary": "A node pointer says in a sentence what is inside.",
            "nodes.tags": "A node pointer has the node's tags, where it has any.",
            "nodes.confidence": "A node that was searched for has a confidence in [0, 1], and the best comes first.",
            "pointers.minimal": "A pointer holds what it takes to decide whether to expand, and nothing else.",
            "pointers.everywhere": "What lists and searches show of a tool is its pointer.",
            "pointers.tool_id": "A pointer has the id that expand_tool takes.",
            "pointers.path": "A pointer has the path of the node that the tool hangs in.",
            "pointers.summary": "A pointer says in a sentence what the tool does.",
            "pointers.tags": "A pointer has the tool's tags, where it has any.",
            "pointers.confidence": "A tool that was searched for has a confidence in [0, 1].",
            "schemas.one-door": "The schemas of a tool are in no answer but an expansion.",
            "schemas.full": "An expansion has all that a call needs, and the schemas as their source has them.",
        },
    ),
    *_of(
        "operations",
        {
            "operations.few": "There are few operations, and each is answered.",
            "operations.every-way": "Python, MCP and HTTP give one answer to one request.",
        },
    ),
    *_of(
        "list",
        {
            "list.nodes-and-tools": "A list shows the nodes and the tools at a path, and nothing from elsewhere.",
            "list.path": "`path` says where; without it, or with an empty one, that is the root.",
            "list.filters-by-tags": "With `tags`, a list shows what carries all of them, and nodes that lead there.",
            "list.filters-by-query": "With `query`, a list shows what matches within the path.",
            "list.limit": "`limit` bounds a page; it may be left out.",
            "list.limit.default": "Where no limit is given, a page holds 10 tools at most.",
            "list.limit.most": "No page holds more than 50 entries, and asking for more is refused.",
            "list.cursor": "`cursor` continues after a page; a walk shows every entry once.",
            "list.answer.path": "A list says of which path it is.",
            "list.answer.nodes": "`nodes` holds the node pointers.",
            "list.answer.tools": "`tools` holds the tool pointers.",
            "list.answer.next_cursor": "`next_cursor` leads to the next page, and is null on the last.",
        },
    ),
    *_of(
        "search_tool_by_category",
        {
            "category-search.words": "A category is searched in natural language.",
            "category-search.scoped": "Only what hangs at or below the category is found.",
            "category-search.ranked": "What is found are pointers, the most relevant first.",
            "category-search.query": "`query` says what is looked for in a category, and has to be given.",
            "category-search.category_path": "`category_path` has to be given; it names the category.",
            "category-search.limit": "`limit` bounds a page as it does a list: 10 by default, 50 at most.",
            "category-search.cursor": "`cursor` continues after a page, and may be null.",
            "category-search.answer.category_path": "The answer says in which category was searched.",
            "category-search.answer.results": "`results` holds the pointers.",
            "category-search.answer.next_cursor": "`next_cursor` leads to what matches less, and is null at the end.",
        },
    ),
    *_of(
        "search_nodes",
        {
            "node-search.where-to-start": "Who knows no category finds one in plain words.",
            "node-search.paths": "The paths that are found can be listed and searched in.",
            "node-search.query": "`query` says what kind of category is looked for, and has to be given.",
            "node-search.limit": "`limit` bounds what is found: 10 by default, 50 at most.",
            "node-search.answer.results": "`results` holds the node pointers.",
        },
    ),
    *_of(
        "expand_tool",
        {
            "expand.one": "An expansion is of the one tool that `tool_id` names.",
            "expand.answer.tool_id": "An expansion has the tool's id.",
            "expand.answer.path": "An expansion has the path of the node that the tool hangs in.",
            "expand.answer.summary": "An expansion has the pointer's summary.",
            "expand.answer.args_schema": "`args_schema` is the schema of the arguments.",
            "expand.answer.result_schema": "`result_schema` is the schema of the answer, where the tool declares one.",
        },
    ),
    *_of(
        "call_tool",
        {
            "call.not-needed": "Discovery goes without calls: a set of operations to look is complete in itself.",
            "call.conform": "A call runs the tool with arguments of the schema that was shown, and with no others.",
        },
    ),
    *_of(
        "errors",
        {
            "errors.leak-nothing": "An error tells nothing of what its caller may not see.",
            "errors.no-match-in-category": "A search in a category in which nothing matches is NO_MATCH_IN_CATEGORY.",
            "errors.no-match-in-category.hints": "Its hints name categories in which something does.",
            "errors.unknown-path": "A path that is not there is UNKNOWN_PATH, whichever operation it is given to.",
            "errors.unknown-path.closest": "It names the closest category that is there, on the top level too.",
            "errors.tool-not-found": "An id that is not there, or is hidden, is TOOL_NOT_FOUND.",
            "errors.not-authorized": "A tool that may be seen and not called is NOT_AUTHORIZED.",
            "errors.message": "Every error has a message to act on.",
            "errors.hints": "An error may have hints, and they are texts.",
            "errors.next-action": "Every error has a next action: an operation with arguments that it takes.",
        },
    ),
    *_of(
        "rules",
        {
            "rules.told": "Rules for exactly the operations that it has stand in what a model is told.",
            "rules.look-first": "A model is told to assume no tool, and to look with list and the searches.",
            "rules.top-down": "A model is told to go down from the top with list.",
            "rules.escape-hatch": "A model is told which searches to ask when no node seems right.",
            "rules.expand-first": "A model is told to expand a tool before it calls it.",
            "rules.follow-errors": "A model is told to follow the hints and next action of an error.",
        },
    ),
    *_of(
        "interaction",
        {
            "interaction.five-steps": "List, list deeper, search there, expand, call: each step leads to the next.",
            "interaction.small": "Schemas are seen only in the step before the call.",
        },
    ),
    *_of(
        "departures",
        {
            "list.all-nodes": "Where no limit is given, a list shows all nodes, then tools: 50 in all at most.",
            "messages.conform": "Whatever is asked, answer and error match their published schemas.",
            "messages.strict": "A message that lacks a member it has to have matches no published schema.",
            "search_tools.everywhere": "search_tools searches the whole catalog; `category` and `tags` narrow it.",
            "search_tools.all": "search_tools without a query gives all tools, by id.",
            "search_tools.category": "`category` of search_tools is a path, or one text.",
            "search_tools.detail_level": "`detail_level` chooses ids, pointers or expansions.",
            "search_tools.one-door": "Detail `full` is an expansion: its schemas, its handle, its place in the audit.",
            "search_tools.include_unavailable": "What cannot be called is found only on demand, and says why.",
            "list_categories.top": "list_categories shows the nodes that a list of the root shows, in its order.",
            "list_categories.tools": "A category counts its tools, and a walk over all pages names each of them once.",
            "list_categories.version": "A category that is a source says its version, where the source has one.",
            "list_categories.pages": "list_categories is paged as a list is.",
            "expand.several": "expand_tool takes several ids; one that fails takes none of the others with it.",
            "expand.answer.handle": "An expansion has a handle, by which exactly what was shown is called.",
            "errors.not-expanded": "A call by a bare id is NOT_EXPANDED, and its next action expands the tool.",
            "errors.stale-expansion": "A call by the handle of an older definition is STALE_EXPANSION; it leads on.",
            "errors.invalid-arguments": "Arguments that miss a schema are INVALID_ARGUMENTS; nothing runs.",
            "errors.invalid-cursor": "A cursor of another request is INVALID_CURSOR, and leads to the first page.",
            "errors.capability-missing": "A tool that lacks what it needs of the system is CAPABILITY_MISSING.",
            "errors.source-unavailable": "A tool whose source cannot be reached is SOURCE_UNAVAILABLE.",
            "errors.tool-failed": "What the tool's source refuses is TOOL_FAILED.",
            "errors.rate-limited": "A call too many is RATE_LIMITED, and says when to come back.",
            "errors.retryable": "Every error says whether the same request can succeed later without harm.",
        },
    ),
)
