"""The requirements of the discovery protocol in our own words; a test of a requirement is marked `holds("ID")`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement."""

    id: str
    """Its topic and details, separated by dots."""
    section: str
    """The section of the document; `departures` for additions to the document and differences from it."""
    text: str


def _of(section: str, texts: Mapping[str, str]) -> tuple[Requirement, ...]:
    return tuple(Requirement(name, section, text) for name, text in texts.items())


REQUIREMENTS: tuple[Requirement, ...] = (
    *_of(
        "goals",
        {
            "goals.nothing-up-front": "However large the catalog, a model starts without its tools and their schemas.",
            "goals.little-until-chosen": "Until a tool is chosen, an answer shows only its pointer.",
            "goals.ontology": "Every tool is reached from the top by going down nodes.",
            "goals.escape-hatch": "After a search in the wrong category, a search in plain words finds the tool.",
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
            "nodes.summary": "A node pointer has a summary of the node in one sentence.",
            "nodes.tags": "A node pointer has the node's tags, where it has any.",
            "nodes.confidence": "A node in search results has a confidence in [0, 1], and the best comes first.",
            "pointers.minimal": "A pointer has only what is needed to decide whether to expand the tool.",
            "pointers.everywhere": "Lists and searches show a tool by its pointer.",
            "pointers.tool_id": "A pointer has the id that expand_tool takes.",
            "pointers.path": "A pointer has the path of the tool's node.",
            "pointers.summary": "A pointer says in one sentence what the tool does.",
            "pointers.tags": "A pointer has the tool's tags, where it has any.",
            "pointers.confidence": "A tool in search results has a confidence in [0, 1].",
            "schemas.one-door": "Only an expansion contains the schemas of a tool.",
            "schemas.full": "An expansion has everything that a call needs, with the schemas of the source unchanged.",
        },
    ),
    *_of(
        "operations",
        {
            "operations.few": "There are few operations, and each is answered.",
            "operations.every-way": "Python, MCP and HTTP give the same answer to the same request.",
        },
    ),
    *_of(
        "list",
        {
            "list.nodes-and-tools": "A list shows the nodes and the tools at a path, and nothing from elsewhere.",
            "list.path": "`path` selects the node; a missing or empty path is the root.",
            "list.filters-by-tags": "With `tags`, a list shows tools with all of them, and nodes that lead there.",
            "list.filters-by-query": "With `query`, a list shows what matches within the path.",
            "list.limit": "`limit` bounds a page; it may be left out.",
            "list.limit.default": "Without a limit, a page has at most 10 tools.",
            "list.limit.most": "No page has more than 50 entries, and a larger limit is refused.",
            "list.cursor": "`cursor` continues after a page; walking all pages shows every entry once.",
            "list.answer.path": "A list has the path that it shows.",
            "list.answer.nodes": "`nodes` holds the node pointers.",
            "list.answer.tools": "`tools` holds the tool pointers.",
            "list.answer.next_cursor": "`next_cursor` leads to the next page, and is null on the last.",
        },
    ),
    *_of(
        "search_tool_by_category",
        {
            "category-search.words": "A category is searched in natural language.",
            "category-search.scoped": "Only tools in the category or below it are found.",
            "category-search.ranked": "The results are pointers, the most relevant first.",
            "category-search.query": "`query` describes the tool to find in a category, and is required.",
            "category-search.category_path": "`category_path` names the category, and is required.",
            "category-search.limit": "`limit` bounds a page as it does a list: 10 by default, 50 at most.",
            "category-search.cursor": "`cursor` continues after a page, and may be null.",
            "category-search.answer.category_path": "The answer has the path of the searched category.",
            "category-search.answer.results": "`results` holds the pointers.",
            "category-search.answer.next_cursor": "`next_cursor` leads to further results, and is null at the end.",
        },
    ),
    *_of(
        "search_nodes",
        {
            "node-search.where-to-start": "A model that knows no category finds one in plain words.",
            "node-search.paths": "The paths of the results can be listed and searched.",
            "node-search.query": "`query` describes the category to find, and is required.",
            "node-search.limit": "`limit` bounds the number of results: 10 by default, 50 at most.",
            "node-search.answer.results": "`results` holds the node pointers.",
        },
    ),
    *_of(
        "expand_tool",
        {
            "expand.one": "An expansion is of the one tool that `tool_id` names.",
            "expand.answer.tool_id": "An expansion has the tool's id.",
            "expand.answer.path": "An expansion has the path of the tool's node.",
            "expand.answer.summary": "An expansion has the pointer's summary.",
            "expand.answer.args_schema": "`args_schema` is the schema of the arguments.",
            "expand.answer.result_schema": "`result_schema` is the schema of the result, if the tool declares one.",
        },
    ),
    *_of(
        "call_tool",
        {
            "call.not-needed": "Discovery works without calls: the operations for it need no call.",
            "call.conform": "A call runs the tool only with arguments that match the shown schema.",
        },
    ),
    *_of(
        "errors",
        {
            "errors.leak-nothing": "An error reveals nothing that its caller may not see.",
            "errors.no-match-in-category": "A search in a category without matches is NO_MATCH_IN_CATEGORY.",
            "errors.no-match-in-category.hints": "The hints of NO_MATCH_IN_CATEGORY name categories with matches.",
            "errors.unknown-path": "A path that does not exist is UNKNOWN_PATH for every operation.",
            "errors.unknown-path.closest": "UNKNOWN_PATH names the closest existing category, on the top level too.",
            "errors.tool-not-found": "An id that does not exist or is hidden is TOOL_NOT_FOUND.",
            "errors.not-authorized": "Calling a tool that may only be seen is NOT_AUTHORIZED.",
            "errors.message": "Every error has a message that the caller can act on.",
            "errors.hints": "An error may have hints, which are strings.",
            "errors.next-action": "Every error has a next action: an operation with valid arguments.",
        },
    ),
    *_of(
        "rules",
        {
            "rules.told": "A model gets rules for exactly the operations that it has.",
            "rules.look-first": "A model is told not to assume tools, and to look with list and the searches.",
            "rules.top-down": "A model is told to browse from the top with list.",
            "rules.escape-hatch": "A model is told which searches to use when no node seems right.",
            "rules.expand-first": "A model is told to expand a tool before it calls it.",
            "rules.follow-errors": "A model is told to follow the hints and next action of an error.",
        },
    ),
    *_of(
        "interaction",
        {
            "interaction.five-steps": "List, list deeper, search there, expand, call: each step leads to the next.",
            "interaction.small": "Schemas are shown only in the step before the call.",
        },
    ),
    *_of(
        "departures",
        {
            "list.all-nodes": "Without a limit, a list shows all nodes, then tools: at most 50 entries.",
            "messages.conform": "For every request, the answer or error matches its published schema.",
            "messages.strict": "A message without a required member does not match its published schema.",
            "search_tools.everywhere": "search_tools searches the whole catalog; `category` and `tags` narrow it.",
            "search_tools.all": "search_tools without a query returns all tools, ordered by id.",
            "search_tools.category": "`category` of search_tools is a path or a string.",
            "search_tools.detail_level": "`detail_level` selects ids, pointers or expansions.",
            "search_tools.one-door": "`full` is an expansion: with schemas, a handle and an audit record.",
            "search_tools.include_unavailable": "Unavailable tools are found only on request, with the reason.",
            "list_categories.top": "list_categories shows the same nodes as a list of the root, in the same order.",
            "list_categories.tools": "A category counts its tools, and a walk over all pages names each of them once.",
            "list_categories.version": "A category that is a source has the version of the source, if there is one.",
            "list_categories.pages": "list_categories is paged like a list.",
            "expand.several": "expand_tool takes several ids; one that fails does not affect the others.",
            "expand.answer.handle": "An expansion has a handle, which calls exactly the shown definition.",
            "errors.not-expanded": "A call by a bare id is NOT_EXPANDED, and its next action expands the tool.",
            "errors.stale-expansion": "A call by the handle of an old definition is STALE_EXPANSION.",
            "errors.invalid-arguments": "Arguments that do not match a schema are INVALID_ARGUMENTS, and nothing runs.",
            "errors.invalid-cursor": "A cursor of a different request is INVALID_CURSOR; it leads to page 1.",
            "errors.capability-missing": "A tool that lacks a required capability is CAPABILITY_MISSING.",
            "errors.source-unavailable": "A tool whose source cannot be reached is SOURCE_UNAVAILABLE.",
            "errors.tool-failed": "A call that the tool's source refuses is TOOL_FAILED.",
            "errors.rate-limited": "A call above the rate limit is RATE_LIMITED, and says when to retry.",
            "errors.retryable": "Every error says whether the same request can succeed later without harm.",
        },
    ),
)
