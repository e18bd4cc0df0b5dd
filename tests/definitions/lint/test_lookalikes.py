"""Tools that a model may confuse. The search for them does not grow with the square of the catalog."""

from __future__ import annotations

import random
from typing import Any

import pytest

from toolcrib import Tool
from toolcrib.definitions.lint import Finding, lint_tools

SEARCH = "Searches all issues of a repository by text, label and author, and answers the newest ones first."


def tool(tool_id: str, description: str = SEARCH, *parameters: str) -> Tool:
    source, _, name = tool_id.partition(".")
    properties: dict[str, Any] = {each: {"type": "string", "description": "It."} for each in parameters or ("query",)}
    return Tool(source, name, description, {"type": "object", "properties": properties})


def groups(*tools: Tool, rule: str = "near-duplicate") -> list[tuple[str, ...]]:
    return [(each.where, *each.problem.related) for each in findings(*tools, rule=rule)]


def findings(*tools: Tool, rule: str = "near-duplicate") -> list[Finding]:
    return [finding for finding in lint_tools(tools) if finding.rule.id == rule]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (tool("a.search_issues"), tool("b.search_issues")),
        (tool("a.search_issues"), tool("a.find_issue", SEARCH.replace("Searches", "Finds"))),
        (tool("a.search_issues"), tool("a.searchIssuesV2")),
        (tool("a.search_issues"), tool("b.search_issues", SEARCH.replace("newest", "latest"))),
        (
            tool("a.search_issues", SEARCH, "query", "limit"),
            tool("a.search_issues_2", SEARCH, "query", "limit", "page"),
        ),
        (tool("a.ping", ""), tool("b.ping", "")),
        (tool("a.🙂", ""), tool("b.🙂", "")),
    ],
)
def test_nearly_identical_tools_are_one_finding(one: Tool, other: Tool) -> None:
    assert groups(one, other) == [tuple(sorted((one.id, other.id)))]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (tool("a.create_label", "Creates a label in the repository, by its name and its color."),
         tool("a.delete_label", "Deletes a label in the repository, by its name and its color.")),
        (tool("a.search_issues"), tool("a.search_pulls", SEARCH.replace("issues", "pulls"))),
        (tool("a.search_issues"), tool("b.search_issues", "Looks for problems in a bug tracker of yours.")),
        (tool("a.search_issues"), tool("b.search_issues", SEARCH, "board", "sprint", "state")),
        (tool("a.date_to_time", "Turns a date into a time."), tool("a.time_to_date", "Turns a time into a date.")),
        (tool("a.over_1_goal", "The odds of over 1 goal."), tool("a.over_2_goal", "The odds of over 2 goals.")),
        (tool("a.🙂", ""), tool("a.🙁", "")),
        (tool("a.followers", "Lists them, newest first."), tool("a.followings", "Lists them, newest first.")),
    ],
)  # fmt: skip
def test_tools_with_a_clear_difference_have_no_finding(one: Tool, other: Tool) -> None:
    assert groups(one, other) == []


def test_a_finding_says_what_the_tools_have_in_common() -> None:
    (exact,) = findings(tool("a.search_issues"), tool("b.search_issues"))
    assert exact.problem.text == (
        "too similar to `b.search_issues`: same name, description and parameters. A model cannot tell them apart"
    )
    (nearly,) = findings(tool("a.search_issues"), tool("a.find_issue", SEARCH.replace("newest", "latest")))
    assert "they share the words of their names, 8" in nearly.problem.text


def test_a_description_shared_by_several_tools_is_reported_once() -> None:
    copied = [tool(f"a.list_{name}", SEARCH, name) for name in ("boards", "teams", "users")]
    assert groups(*copied, rule="same-description") == [("a.list_boards", "a.list_teams", "a.list_users")]
    assert groups(tool("a.list_teams"), tool("b.list_users"), rule="same-description") == []
    assert groups(tool("a.search_issues"), tool("a.search_issues_2"), rule="same-description") == []


def test_all_identical_tools_are_one_finding() -> None:
    (group,) = groups(*(tool(f"s{number:04}.search_issues") for number in range(2_000)))
    assert len(group) == 2_000
    assert group[0] == "s0000.search_issues"


def test_the_findings_do_not_depend_on_the_order_of_the_tools() -> None:
    rnd = random.Random(7)
    words = [f"word{chr(97 + number // 26)}{chr(97 + number % 26)}" for number in range(400)]
    tools = [tool(f"s.{words[at]}_{words[-at]}", " ".join(rnd.sample(words, 12))) for at in range(1, 150)]
    twins = [tool(f"t.{each.name}", f"{each.description} again") for each in tools[::3]]
    catalog = [*tools, *twins]
    expected = [(f"s.{twin.name}", twin.id) for twin in twins]
    assert sorted(groups(*catalog)) == sorted(expected)
    rnd.shuffle(catalog)
    assert sorted(groups(*catalog)) == sorted(expected)


def test_tools_made_from_one_template_are_compared_a_limited_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    from toolcrib.definitions.lint import lookalikes

    compared = 0
    true_one = lookalikes.is_like

    def counted(*pair: Any) -> bool:
        nonlocal compared
        compared += 1
        return true_one(*pair)

    monkeypatch.setattr(lookalikes, "is_like", counted)
    tools = [
        tool(f"s.get_{at:04}x", f"Gets item {at:04}x of the shop with its price and colour.") for at in range(1_000)
    ]
    assert groups(*tools) == []
    assert 0 < compared <= lookalikes.MAX_COMPARED * len(tools)
